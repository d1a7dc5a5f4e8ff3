//! More of the answers.

use std::collections::HashMap;

use arrow_array::RecordBatch;

use super::Value::{Number, Text};
use super::{Auction, Bid, DAY_MS, auctions_by_id, bids, day_text, of_auction};
use crate::nexmark::rows::{RowSummary, Value};

/// A bid behind its rank: the price, negated, and the time.
type Ranked<'a> = (i64, i64, [Value<'a>; 7]);

/// All columns of a bid.
fn of_bid<'a>(b: &Bid<'a>) -> [Value<'a>; 7] {
    [
        Number(b.auction),
        Number(b.bidder),
        Number(b.price),
        Text(b.channel),
        Text(b.url),
        Number(b.at_ms),
        Text(b.extra),
    ]
}

/// Rows of q10: a bid, with day and minute.
pub(super) fn logged(b: &Bid<'_>, rows: &mut RowSummary) {
    let minute = b.at_ms.rem_euclid(DAY_MS) / 60_000;
    rows.add(&[
        Number(b.auction),
        Number(b.bidder),
        Number(b.price),
        Number(b.at_ms),
        Text(b.extra),
        Text(&day_text(b.at_ms)),
        Text(&format!("{:02}:{:02}", minute / 60, minute % 60)),
    ]);
}

/// q13: a bid with what [`crate::nexmark::queries::side_input`] says of its auction.
pub(super) fn with_side_input(b: &Bid<'_>, rows: &mut RowSummary) {
    let key = b.auction % 10_000;
    if key % 3 == 0 {
        let value = format!("value {key}");
        let own = [Number(b.auction), Number(b.bidder), Number(b.price), Number(b.at_ms)];
        rows.add(&[&own[..], &[Text(&value)]].concat());
    }
}

/// q18: of each bidder and auction the last bid.
pub(super) fn last_bids(events: &[RecordBatch]) -> RowSummary {
    let mut last: HashMap<(i64, i64), (i64, [Value<'_>; 7])> = HashMap::new();
    bids(events, |b| {
        let bid = last.entry((b.bidder, b.auction)).or_insert_with(|| (b.at_ms, of_bid(b)));
        if b.at_ms >= bid.0 {
            *bid = (b.at_ms, of_bid(b));
        }
    });
    let mut rows = RowSummary::default();
    last.values().for_each(|(_, bid)| rows.add(bid));
    rows
}

/// q19: of each auction the ten highest bids, the earlier first of those that are alike.
pub(super) fn highest_of_auctions(events: &[RecordBatch]) -> RowSummary {
    let mut all: HashMap<i64, Vec<Ranked<'_>>> = HashMap::new();
    bids(events, |b| {
        let of_auction = all.entry(b.auction).or_default();
        of_auction.push((-b.price, b.at_ms, of_bid(b)));
    });
    let mut rows = RowSummary::default();
    for mut of_auction in all.into_values() {
        // Sorting is stable.
        of_auction.sort_by_key(|(before, at_ms, _)| (*before, *at_ms));
        for (rank, (.., bid)) in (1..=10).zip(of_auction) {
            rows.add(&[&bid[..], &[Number(rank)]].concat());
        }
    }
    rows
}

/// Rows of q20: bids of a category with their auctions.
pub(super) fn expanded_bids(events: &[RecordBatch]) -> RowSummary {
    let (mut rows, known) = (RowSummary::default(), auctions_by_id(events));
    bids(events, |b| {
        let Some(a) = known.get(&b.auction).filter(|a: &&Auction<'_>| a.category == 10) else {
            return;
        };
        rows.add(&[&of_bid(b)[..], &of_auction(a)[1..]].concat());
    });
    rows
}

/// q21: a bid with the number of its channel.
pub(super) fn channel_id(b: &Bid<'_>, rows: &mut RowSummary) {
    let hot = ["apple", "google", "facebook", "baidu"];
    let place = hot.iter().position(|hot| *hot == b.channel.to_lowercase());
    let named = b.url.split_once("&channel_id=").map(|(_, rest)| rest);
    let id = match place {
        Some(place) => ["0", "1", "2", "3"][place],
        None => match named {
            Some(rest) => rest.split('&').next().unwrap_or_default(),
            None => return,
        },
    };
    let own = [Number(b.auction), Number(b.bidder), Number(b.price), Text(b.channel)];
    rows.add(&[&own[..], &[Text(id)]].concat());
}
