//! The answers of the queries, worked out in one pass after the other over all events, with plain
//! maps. No code is shared with what runs the queries, so agreement means something.

mod more;

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch, StructArray};

use super::rows::{RowSummary, Value};
use Value::{Null, Number, Text};

/// Milliseconds of the windows of most queries, and the gap of sessions.
const WINDOW_MS: i64 = 10_000;

/// How far apart the windows of query 5 begin.
const SLIDE_MS: i64 = 2_000;

const DAY_MS: i64 = 86_400_000;

/// Summary of a query's answer, over events in any order, except for the order of bids that tie for
/// last (q18) or first (q19); `None` for a query whose answer is unknown, or depends on the time of
/// running.
pub fn answer(query: &str, events: &[RecordBatch]) -> Option<RowSummary> {
    let mut rows = RowSummary::default();
    match query {
        "q0" => bids(events, |b| {
            rows.add(&[
                Number(b.auction),
                Number(b.bidder),
                Number(b.price),
                Number(b.at_ms),
                Text(b.extra),
            ]);
        }),
        "q1" => bids(events, |b| {
            let euros = Number(b.price * 908);
            rows.add(&[Number(b.auction), Number(b.bidder), euros, Number(b.at_ms), Text(b.extra)]);
        }),
        "q2" => bids(events, |b| {
            if b.auction % 123 == 0 {
                rows.add(&[Number(b.auction), Number(b.price)]);
            }
        }),
        "q3" => rows = local_items(events),
        "q4" => rows = prices_of_categories(events),
        "q5" => rows = hot_items(events),
        "q7" => rows = highest_bids(events),
        "q8" => rows = new_users(events),
        "q9" => rows = winning_bids(events),
        "q10" => bids(events, |b| more::logged(b, &mut rows)),
        "q11" => rows = user_sessions(events),
        "q13" => bids(events, |b| more::with_side_input(b, &mut rows)),
        "q14" => bids(events, |b| calculated(b, &mut rows)),
        "q15" => rows = statistics_of_days(events),
        "q16" => rows = statistics_of_channels(events),
        "q17" => rows = statistics_of_auctions(events),
        "q18" => rows = more::last_bids(events),
        "q19" => rows = more::highest_of_auctions(events),
        "q20" => rows = more::expanded_bids(events),
        "q21" => bids(events, |b| more::channel_id(b, &mut rows)),
        "q22" => bids(events, |b| {
            let parts: Vec<&str> = b.url.split('/').collect();
            let part = |place: usize| parts.get(place).map_or(Null, |part| Text(part));
            let own = [Number(b.auction), Number(b.bidder), Number(b.price), Text(b.channel)];
            rows.add(&[&own[..], &[part(3), part(4), part(5)]].concat());
        }),
        _ => return None,
    }
    Some(rows)
}

/// How many bids there are.
pub fn count_bids(events: &[RecordBatch]) -> u64 {
    let mut count = 0;
    bids(events, |_| count += 1);
    count
}

struct Person<'a> {
    id: i64,
    name: &'a str,
    city: &'a str,
    state: &'a str,
    at_ms: i64,
}

#[derive(Clone, Copy)]
struct Auction<'a> {
    id: i64,
    name: &'a str,
    description: &'a str,
    initial: i64,
    reserve: i64,
    at_ms: i64,
    expires_ms: i64,
    seller: i64,
    category: i64,
    extra: &'a str,
}

struct Bid<'a> {
    auction: i64,
    bidder: i64,
    price: i64,
    channel: &'a str,
    url: &'a str,
    at_ms: i64,
    extra: &'a str,
}

/// The fields of rows, by name.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a StructArray);

impl<'a> Fields<'a> {
    fn number(self, name: &str, row: usize) -> i64 {
        self.0.column_by_name(name).map_or(0, |c| c.as_primitive::<Int64Type>().value(row))
    }

    fn time(self, name: &str, row: usize) -> i64 {
        let column = self.0.column_by_name(name);
        column.map_or(0, |c| c.as_primitive::<TimestampMillisecondType>().value(row))
    }

    fn text(self, name: &str, row: usize) -> &'a str {
        self.0.column_by_name(name).map_or("", |c| c.as_string::<i32>().value(row))
    }
}

/// The rows of a kind, which are a column of the batches.
fn rows_of<'a>(events: &'a [RecordBatch], column: &str, mut each: impl FnMut(Fields<'a>, usize)) {
    for batch in events {
        let Some(rows) = batch.column_by_name(column) else { continue };
        let rows = rows.as_struct();
        for row in (0..rows.len()).filter(|row| rows.is_valid(*row)) {
            each(Fields(rows), row);
        }
    }
}

fn persons<'a>(events: &'a [RecordBatch], mut each: impl FnMut(&Person<'a>)) {
    rows_of(events, "person", |fields, row| {
        each(&Person {
            id: fields.number("id", row),
            name: fields.text("name", row),
            city: fields.text("city", row),
            state: fields.text("state", row),
            at_ms: fields.time("dateTime", row),
        });
    });
}

fn auctions<'a>(events: &'a [RecordBatch], mut each: impl FnMut(&Auction<'a>)) {
    rows_of(events, "auction", |fields, row| {
        each(&Auction {
            id: fields.number("id", row),
            name: fields.text("itemName", row),
            description: fields.text("description", row),
            initial: fields.number("initialBid", row),
            reserve: fields.number("reserve", row),
            at_ms: fields.time("dateTime", row),
            expires_ms: fields.time("expires", row),
            seller: fields.number("seller", row),
            category: fields.number("category", row),
            extra: fields.text("extra", row),
        });
    });
}

fn bids<'a>(events: &'a [RecordBatch], mut each: impl FnMut(&Bid<'a>)) {
    rows_of(events, "bid", |fields, row| {
        each(&Bid {
            auction: fields.number("auction", row),
            bidder: fields.number("bidder", row),
            price: fields.number("price", row),
            channel: fields.text("channel", row),
            url: fields.text("url", row),
            at_ms: fields.time("dateTime", row),
            extra: fields.text("extra", row),
        });
    });
}

fn window(at_ms: i64) -> i64 {
    at_ms.div_euclid(WINDOW_MS) * WINDOW_MS
}

fn local_items(events: &[RecordBatch]) -> RowSummary {
    let (mut rows, mut known) = (RowSummary::default(), HashMap::new());
    persons(events, |p| {
        if ["OR", "ID", "CA"].contains(&p.state) {
            known.insert(p.id, [Text(p.name), Text(p.city), Text(p.state)]);
        }
    });
    auctions(events, |a| {
        if let Some([name, city, state]) = known.get(&a.seller).filter(|_| a.category == 10) {
            rows.add(&[*name, *city, *state, Number(a.id)]);
        }
    });
    rows
}

fn auctions_by_id(events: &[RecordBatch]) -> HashMap<i64, Auction<'_>> {
    let mut known = HashMap::new();
    auctions(events, |a| _ = known.insert(a.id, *a));
    known
}

fn prices_of_categories(events: &[RecordBatch]) -> RowSummary {
    let known = auctions_by_id(events);
    let mut best: HashMap<i64, i64> = HashMap::new();
    bids(events, |b| {
        let open = |a: &&Auction<'_>| (a.at_ms..=a.expires_ms).contains(&b.at_ms);
        if known.get(&b.auction).filter(open).is_some() {
            let price = best.entry(b.auction).or_insert(b.price);
            *price = b.price.max(*price);
        }
    });
    let mut categories: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (auction, price) in best {
        let (sum, count) = categories.entry(known[&auction].category).or_default();
        (*sum, *count) = (*sum + price, *count + 1);
    }
    let mut rows = RowSummary::default();
    for (category, (sum, count)) in categories {
        rows.add(&[Number(category), Number(sum / count)]);
    }
    rows
}

fn winning_bids(events: &[RecordBatch]) -> RowSummary {
    let known = auctions_by_id(events);
    // By auction: the price, the time turned round, so that the greatest wins, and the rest.
    let mut best: HashMap<i64, (i64, i64, i64, &str)> = HashMap::new();
    bids(events, |b| {
        let open = |a: &&Auction<'_>| (a.at_ms..=a.expires_ms).contains(&b.at_ms);
        if known.get(&b.auction).filter(open).is_some() {
            let bid = (b.price, -b.at_ms, b.bidder, b.extra);
            let winning = best.entry(b.auction).or_insert(bid);
            if (bid.0, bid.1) > (winning.0, winning.1) {
                *winning = bid;
            }
        }
    });
    let mut rows = RowSummary::default();
    for (auction, (price, before_ms, bidder, extra)) in best {
        let a = &known[&auction];
        let bid = [Number(auction), Number(bidder), Number(price), Number(-before_ms), Text(extra)];
        rows.add(&[&of_auction(a)[..], &bid[..]].concat());
    }
    rows
}

/// All columns of an auction.
fn of_auction<'a>(a: &Auction<'a>) -> [Value<'a>; 10] {
    [
        Number(a.id),
        Text(a.name),
        Text(a.description),
        Number(a.initial),
        Number(a.reserve),
        Number(a.at_ms),
        Number(a.expires_ms),
        Number(a.seller),
        Number(a.category),
        Text(a.extra),
    ]
}

fn hot_items(events: &[RecordBatch]) -> RowSummary {
    let mut windows: HashMap<i64, HashMap<i64, i64>> = HashMap::new();
    bids(events, |b| {
        let last = b.at_ms.div_euclid(SLIDE_MS) * SLIDE_MS;
        let mut start = last;
        while start > b.at_ms - WINDOW_MS {
            *windows.entry(start).or_default().entry(b.auction).or_default() += 1;
            start -= SLIDE_MS;
        }
    });
    let mut rows = RowSummary::default();
    for counts in windows.values() {
        let most = counts.values().max().copied().unwrap_or_default();
        for (auction, count) in counts.iter().filter(|(_, count)| **count == most) {
            rows.add(&[Number(*auction), Number(*count)]);
        }
    }
    rows
}

fn highest_bids(events: &[RecordBatch]) -> RowSummary {
    let mut highest: HashMap<i64, i64> = HashMap::new();
    bids(events, |b| {
        let price = highest.entry(window(b.at_ms)).or_insert(b.price);
        *price = b.price.max(*price);
    });
    let mut rows = RowSummary::default();
    bids(events, |b| {
        let own = window(b.at_ms);
        // The end of a window belongs to it here, too.
        let before = (own == b.at_ms).then_some(own - WINDOW_MS);
        for window in [Some(own), before].into_iter().flatten() {
            if highest.get(&window) == Some(&b.price) {
                rows.add(&[
                    Number(b.auction),
                    Number(b.bidder),
                    Number(b.price),
                    Number(b.at_ms),
                    Text(b.extra),
                ]);
            }
        }
    });
    rows
}

fn new_users(events: &[RecordBatch]) -> RowSummary {
    let (mut rows, mut sellers, mut seen) = (RowSummary::default(), HashSet::new(), HashSet::new());
    auctions(events, |a| _ = sellers.insert((a.seller, window(a.at_ms))));
    persons(events, |p| {
        let start = window(p.at_ms);
        if sellers.contains(&(p.id, start)) && seen.insert((p.id, p.name, start)) {
            rows.add(&[Number(p.id), Text(p.name), Number(start)]);
        }
    });
    rows
}

fn user_sessions(events: &[RecordBatch]) -> RowSummary {
    let mut times: HashMap<i64, Vec<i64>> = HashMap::new();
    bids(events, |b| times.entry(b.bidder).or_default().push(b.at_ms));
    let mut rows = RowSummary::default();
    for (bidder, mut times) in times {
        times.sort_unstable();
        for session in times.chunk_by(|before, after| after - before <= WINDOW_MS) {
            let (first, last) = (session[0], session[session.len() - 1]);
            let count = session.len() as i64;
            rows.add(&[Number(bidder), Number(count), Number(first), Number(last + WINDOW_MS)]);
        }
    }
    rows
}

fn calculated(b: &Bid<'_>, rows: &mut RowSummary) {
    let euros = b.price * 908;
    if !(1_000_000_001..50_000_000_000).contains(&euros) {
        return;
    }
    let time = match b.at_ms.rem_euclid(DAY_MS) / 3_600_000 {
        8..=18 => "dayTime",
        0..=6 | 20..=23 => "nightTime",
        _ => "otherTime",
    };
    rows.add(&[
        Number(b.auction),
        Number(b.bidder),
        Number(euros),
        Text(time),
        Number(b.at_ms),
        Text(b.extra),
        Number(b.extra.bytes().filter(|byte| *byte == b'c').count() as i64),
    ]);
}

/// To which of three levels a price belongs.
fn level(price: i64) -> usize {
    usize::from(price >= 10_000) + usize::from(price >= 1_000_000)
}

/// A day as `yyyy-MM-dd`, of the years 1970 to 2099.
fn day_text(at_ms: i64) -> String {
    let mut day = at_ms.div_euclid(DAY_MS);
    let mut year = 1970;
    let leap = |year: i64| i64::from(year % 4 == 0);
    while day >= 365 + leap(year) {
        day -= 365 + leap(year);
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[derive(Default)]
struct Statistics {
    bids: [i64; 4],
    bidders: [HashSet<i64>; 4],
    auctions: [HashSet<i64>; 4],
}

impl Statistics {
    fn add(&mut self, b: &Bid<'_>) {
        for place in [0, 1 + level(b.price)] {
            self.bids[place] += 1;
            self.bidders[place].insert(b.bidder);
            self.auctions[place].insert(b.auction);
        }
    }

    fn values(&self) -> Vec<Value<'static>> {
        let bids = self.bids.map(Number);
        let bidders = self.bidders.iter().map(|set| Number(set.len() as i64));
        let auctions = self.auctions.iter().map(|set| Number(set.len() as i64));
        bids.into_iter().chain(bidders).chain(auctions).collect()
    }
}

fn statistics_of_days(events: &[RecordBatch]) -> RowSummary {
    let mut days: BTreeMap<i64, Statistics> = BTreeMap::new();
    bids(events, |b| days.entry(b.at_ms.div_euclid(DAY_MS)).or_default().add(b));
    let mut rows = RowSummary::default();
    for (day, statistics) in days {
        let name = day_text(day * DAY_MS);
        rows.add(&[&[Text(&name)], &statistics.values()[..]].concat());
    }
    rows
}

fn statistics_of_channels(events: &[RecordBatch]) -> RowSummary {
    let mut days: BTreeMap<(&str, i64), (i64, Statistics)> = BTreeMap::new();
    bids(events, |b| {
        let key = (b.channel, b.at_ms.div_euclid(DAY_MS));
        let (minute, statistics) = days.entry(key).or_default();
        *minute = (b.at_ms.rem_euclid(DAY_MS) / 60_000).max(*minute);
        statistics.add(b);
    });
    let mut rows = RowSummary::default();
    for ((channel, day), (minute, statistics)) in days {
        let name = day_text(day * DAY_MS);
        let minute = format!("{:02}:{:02}", minute / 60, minute % 60);
        let keys = [Text(channel), Text(&name), Text(&minute)];
        rows.add(&[&keys[..], &statistics.values()[..]].concat());
    }
    rows
}

fn statistics_of_auctions(events: &[RecordBatch]) -> RowSummary {
    let mut prices: HashMap<(i64, i64), Vec<i64>> = HashMap::new();
    bids(events, |b| {
        prices.entry((b.auction, b.at_ms.div_euclid(DAY_MS))).or_default().push(b.price);
    });
    let mut rows = RowSummary::default();
    for ((auction, day), prices) in prices {
        let of = |wanted| prices.iter().filter(|price| level(**price) == wanted).count() as i64;
        let (count, sum) = (prices.len() as i64, prices.iter().sum::<i64>());
        let (least, most) = (prices.iter().min().copied(), prices.iter().max().copied());
        rows.add(&[
            Number(auction),
            Text(&day_text(day * DAY_MS)),
            Number(count),
            Number(of(0)),
            Number(of(1)),
            Number(of(2)),
            Number(least.unwrap_or_default()),
            Number(most.unwrap_or_default()),
            Number(sum / count),
            Number(sum),
        ]);
    }
    rows
}
