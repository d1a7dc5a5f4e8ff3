//! Tests of the event stream: proportions, ids, skews, sizes and times, and that an event depends
//! on its number alone.

use std::iter::once;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::DataType;

use crate::ids::{FIRST_ID, last_auction, last_person};
use crate::times::Times;
use crate::*;

const ALL: [usize; 4] = [0, 1, 2, 3];

fn some(events: u64) -> (Events, RecordBatch) {
    let stream = Events::new(Config::default());
    let batch = stream.batch(once(0..events), &ALL);
    (stream, batch)
}

fn rows(batch: &RecordBatch, kind: Kind) -> &StructArray {
    batch.column(1 + kind as usize).as_struct()
}

/// The values of a column of numbers, of rows that are there, with the number of their event.
fn numbers(rows: &StructArray, name: &str) -> Vec<(u64, i64)> {
    let values = rows.column_by_name(name).unwrap().as_primitive::<Int64Type>();
    let there = (0..rows.len()).filter(|row| rows.is_valid(*row));
    there.map(|row| (row as u64, values.value(row))).collect()
}

fn times(rows: &StructArray, name: &str) -> Vec<(u64, i64)> {
    let values = rows.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>();
    let there = (0..rows.len()).filter(|row| rows.is_valid(*row));
    there.map(|row| (row as u64, values.value(row))).collect()
}

fn texts<'a>(rows: &'a StructArray, name: &str) -> Vec<&'a str> {
    let values = rows.column_by_name(name).unwrap().as_string::<i32>();
    (0..rows.len()).filter(|row| rows.is_valid(*row)).map(|row| values.value(row)).collect()
}

/// Asserts that `part` of `of` is about `share`.
fn about(part: usize, of: usize, share: f64) {
    let found = part as f64 / of as f64;
    assert!((found - share).abs() < 0.02, "{found} is not about {share}");
}

#[test]
fn of_fifty_events_one_is_a_person_and_three_are_auctions() {
    let (_, batch) = some(5_000);
    let types = batch.column(0).as_primitive::<Int32Type>().values();
    assert_eq!(types[..6], [0, 1, 1, 1, 2, 2]);
    for (kind, count) in [(Kind::Person, 100), (Kind::Auction, 300), (Kind::Bid, 4_600)] {
        let rows = rows(&batch, kind);
        assert_eq!(rows.len() - rows.null_count(), count);
        for (row, number) in types.iter().enumerate() {
            assert_eq!(rows.is_valid(row), *number == kind as i32, "row {row}");
        }
    }
}

#[test]
fn an_event_depends_on_its_number_alone() {
    let config = Config { events: Some(1_234), ..Config::default() };
    let stream = Events::new(config.clone());
    let whole = stream.batch(once(0..1_234), &ALL);
    for splits in [1, 2, 3, 7, 40] {
        let mut seen = vec![false; 1_234];
        for split in 0..splits {
            let deal = Deal::new(&config, split, splits);
            // In batches of 37, each of which begins anywhere in a group.
            for start in (0..deal.events()).step_by(37) {
                let end = deal.events().min(start + 37);
                let ranges: Vec<_> = deal.ranges(start..end).collect();
                let batch = stream.batch(ranges.iter().cloned(), &ALL);
                let numbers: Vec<u64> = ranges.into_iter().flatten().collect();
                assert_eq!(numbers[0], deal.number(start));
                for (row, number) in numbers.into_iter().enumerate() {
                    assert_eq!(batch.slice(row, 1), whole.slice(number as usize, 1));
                    assert!(!std::mem::replace(&mut seen[number as usize], true));
                }
            }
        }
        assert!(seen.iter().all(|seen| *seen), "{splits} splits");
    }
    // Other columns, in another order.
    let some = stream.batch(once(100..200), &[3, 0]);
    assert_eq!(some.column(0), &whole.column(3).slice(100, 100));
    assert_eq!(some.column(1), &whole.column(0).slice(100, 100));
    assert_eq!(stream.batch(once(5..9), &[]).num_rows(), 4);
    let other = Events::new(Config { seed: 1, ..config });
    assert_ne!(other.batch(once(0..100), &[3]), stream.batch(once(0..100), &[3]));
}

#[test]
fn ids_count_up_and_name_those_that_are_there() {
    let (stream, batch) = some(100_000);
    let config = stream.config();
    for kind in [Kind::Person, Kind::Auction] {
        let ids: Vec<i64> = numbers(rows(&batch, kind), "id").into_iter().map(|n| n.1).collect();
        assert_eq!(ids, (1_000..1_000 + ids.len() as i64).collect::<Vec<_>>());
    }
    let person = |number, id: i64, hot: u64| {
        let (last, id) = (last_person(config, number), (id - FIRST_ID) as u64);
        assert!(id + 1_000 > last && id <= last + 10 || id == last / 100 * 100 + hot, "{number}");
    };
    for (number, seller) in numbers(rows(&batch, Kind::Auction), "seller") {
        person(number, seller, 0);
    }
    for (number, bidder) in numbers(rows(&batch, Kind::Bid), "bidder") {
        person(number, bidder, 1);
    }
    for (number, auction) in numbers(rows(&batch, Kind::Bid), "auction") {
        let (last, id) = (last_auction(config, number), (auction - FIRST_ID) as u64);
        assert!(id + 100 >= last && id <= last + 10, "bid {number} is for {auction}");
    }
    // By hand: the first bid comes after one person and three auctions, event 50 is person 1.
    assert_eq!((last_person(config, 4), last_auction(config, 4)), (0, 2));
    assert_eq!((last_person(config, 50), last_auction(config, 50)), (1, 2));
    assert_eq!((last_person(config, 51), last_auction(config, 51)), (1, 3));
    assert_eq!((last_person(config, 0), last_auction(config, 0)), (0, 0));
}

#[test]
fn hot_ones_have_their_shares() {
    let (stream, batch) = some(200_000);
    let bids = rows(&batch, Kind::Bid);
    let hot = |named: Vec<(u64, i64)>, last: fn(&Config, u64) -> u64, place: u64| {
        let is_hot = |(number, id): &(u64, i64)| {
            *id - FIRST_ID == (last(stream.config(), *number) / 100 * 100 + place) as i64
        };
        (named.iter().filter(|n| is_hot(n)).count(), named.len())
    };
    // Beside the draw for a hot one, any may be it: one of about 100 auctions, or 1000 persons.
    let (part, of) = hot(numbers(bids, "auction"), last_auction, 0);
    about(part, of, 0.505);
    let (part, of) = hot(numbers(bids, "bidder"), last_person, 1);
    about(part, of, 0.75);
    let (part, of) = hot(numbers(rows(&batch, Kind::Auction), "seller"), last_person, 0);
    about(part, of, 0.75);
    let categories = numbers(rows(&batch, Kind::Auction), "category");
    for category in 10..15 {
        about(categories.iter().filter(|c| c.1 == category).count(), categories.len(), 0.2);
    }
}

#[test]
fn prices_are_uniform_in_their_logarithm() {
    let (_, batch) = some(50_000);
    let prices = numbers(rows(&batch, Kind::Bid), "price");
    for (below, share) in [(1_000, 1.0), (10_000, 2.0), (100_000, 3.0), (10_000_000, 5.0)] {
        about(prices.iter().filter(|p| p.1 < below).count(), prices.len(), share / 6.0);
    }
    assert!(prices.iter().all(|p| (100..=100_000_000).contains(&p.1)));
    let auctions = rows(&batch, Kind::Auction);
    let (initial, reserve) = (numbers(auctions, "initialBid"), numbers(auctions, "reserve"));
    assert!(initial.iter().zip(reserve).all(|(initial, reserve)| reserve.1 >= initial.1 + 100));
}

#[test]
fn channels_have_their_urls() {
    let (_, batch) = some(50_000);
    let bids = rows(&batch, Kind::Bid);
    let (channels, urls) = (texts(bids, "channel"), texts(bids, "url"));
    let hot = channels.iter().filter(|channel| !channel.starts_with("channel-")).count();
    about(hot, channels.len(), 0.5);
    let apples = channels.iter().filter(|channel| **channel == "Apple").count();
    about(apples, channels.len(), 0.125);
    let mut named = 0;
    for (channel, url) in channels.iter().zip(urls) {
        let parts: Vec<&str> = url.split('/').collect();
        assert_eq!(parts[..3], ["https:", "", "www.nexmark.com"], "{url}");
        assert!(parts[3..6].iter().all(|part| (3..5).contains(&part.len())), "{url}");
        match (channel.strip_prefix("channel-"), parts[6].strip_prefix("item.htm?query=1")) {
            (_, Some("")) => {}
            (Some(channel), Some(id)) => {
                let channel: u32 = channel.parse().unwrap();
                let id: u64 = id.strip_prefix("&channel_id=").unwrap().parse().unwrap();
                let bits = channel.reverse_bits();
                assert_eq!(id, u64::from(if bits >> 31 == 1 { bits.wrapping_neg() } else { bits }));
                named += 1;
            }
            _ => panic!("{channel} has {url}"),
        }
    }
    about(named, channels.len() - hot, 0.9);
}

#[test]
fn rows_have_their_sizes_on_average() {
    let (_, batch) = some(100_000);
    for (kind, average, fixed) in
        [(Kind::Person, 200.0, 8), (Kind::Auction, 500.0, 6 * 8), (Kind::Bid, 100.0, 4 * 8)]
    {
        let rows = rows(&batch, kind);
        // The original counts neither a bid's channel nor its URL, nor a person's time.
        let counted = |name: &str| !["channel", "url"].contains(&name);
        let of_texts = rows.fields().iter().filter(|f| *f.data_type() == DataType::Utf8);
        let names: Vec<&str> = of_texts.map(|f| f.name().as_str()).filter(|n| counted(n)).collect();
        let count = rows.len() - rows.null_count();
        let bytes: usize = names.iter().flat_map(|n| texts(rows, n)).map(str::len).sum();
        let found = bytes as f64 / count as f64 + fixed as f64;
        assert!((found - average).abs() < average / 50.0, "{kind:?}: {found}");
    }
    assert_eq!(Events::new(Config::default()).width_bytes(&ALL), 4 + 4 + 30 + 92);
}

#[test]
fn auctions_are_open_for_a_hundred_others_on_average() {
    let (_, batch) = some(200_000);
    let auctions = rows(&batch, Kind::Auction);
    let (begin, end) = (times(auctions, "dateTime"), times(auctions, "expires"));
    let lengths: Vec<i64> = begin.iter().zip(end).map(|(b, e)| e.1 - b.1).collect();
    // A hundred auctions are 1,666 events, of which there are ten in a millisecond.
    let mean = lengths.iter().sum::<i64>() as f64 / lengths.len() as f64;
    assert!((mean - 167.0).abs() < 5.0, "{mean}");
    assert!(lengths.iter().all(|length| (1..=334).contains(length)));
}

#[test]
fn one_rate_gives_equal_distances() {
    let config = Config { first_rate: 3_000, next_rate: 3_000, ..Config::default() };
    let stream = Events::new(config);
    let after: Vec<i64> = (0..7).map(|number| stream.times().after_ms(number)).collect();
    assert_eq!(after, [0, 0, 0, 1, 1, 1, 2]);
    assert_eq!(stream.times().at_ms(3_000 * 86_400), BASE_TIME_MS + 86_400_000);
    // Beyond what 64 bits hold.
    assert_eq!(stream.times().after_ms(u64::MAX), 6_148_914_691_236_517_205);
    let batch = stream.batch(once(0..200), &ALL);
    for (number, at) in times(rows(&batch, Kind::Bid), "dateTime") {
        assert_eq!(at, BASE_TIME_MS + number as i64 / 3);
    }
}

#[test]
fn rates_come_again_and_again() {
    let of = |shape, period_s| Config {
        first_rate: 10,
        next_rate: 20,
        shape,
        period_s,
        ..Config::default()
    };
    // Two seconds at 10 a second, two at 20: 60 events in four seconds.
    let square = Times::new(&of(Shape::Square, 4));
    let after: Vec<i64> =
        [0, 1, 19, 20, 21, 59, 60, 61, 80, 6_000].map(|n| square.after_ms(n)).into();
    assert_eq!(after, [0, 100, 1_900, 2_000, 2_050, 3_950, 4_000, 4_100, 6_000, 400_000]);
    // A second each at 20 to 10 and back, by hand: 15 + 5 * cos(36° i), rounded.
    let sine = Config { first_rate: 20, next_rate: 10, ..of(Shape::Sine, 10) };
    let sine = Times::new(&sine);
    let mut first = 0;
    for (step, rate) in [20, 19, 17, 13, 11, 10, 11, 13, 17, 19].into_iter().enumerate() {
        assert_eq!(sine.after_ms(first), step as i64 * 1_000);
        assert_eq!(sine.after_ms(first + 1), step as i64 * 1_000 + 1_000 / rate);
        first += rate as u64;
    }
    assert_eq!(sine.after_ms(first), 10_000);
}

#[test]
fn other_proportions_have_their_ids() {
    let none = Config { persons: 0, auctions: 0, bids: 1, ..Config::default() };
    let batch = Events::new(none).batch(once(0..1_000), &ALL);
    assert_eq!(rows(&batch, Kind::Bid).null_count(), 0);
    assert!(numbers(rows(&batch, Kind::Bid), "auction").iter().all(|n| n.1 >= FIRST_ID));
    let many = Config { persons: 2, auctions: 5, bids: 3, ..Config::default() };
    let batch = Events::new(many).batch(once(0..1_000), &ALL);
    for (kind, count) in [(Kind::Person, 200), (Kind::Auction, 500)] {
        let ids: Vec<i64> = numbers(rows(&batch, kind), "id").into_iter().map(|n| n.1).collect();
        assert_eq!(ids, (1_000..1_000 + count).collect::<Vec<_>>());
    }
}
