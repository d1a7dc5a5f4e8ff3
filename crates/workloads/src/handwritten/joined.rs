//! The loop for `nb8`: per window, sellers' keys and auctions are listed as they come. When the
//! window has passed, a table of as many slots as the sellers need counts them by key, and every
//! auction is looked up: block by block, so that cache misses overlap.

use arrow_array::RecordBatch;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};

use super::columns::numbers;
use crate::error::Result;
use crate::spec::Spec;
use crate::verify::{Bounds, Verifier};

/// Records looked up together.
const BLOCK: usize = 512;

/// A window whose end the watermark has not passed.
struct Open {
    start: i64,
    sellers: Vec<i64>,
    auctions: Vec<i64>,
    ids: Vec<i64>,
}

/// How many sellers there are of a key; no seller where there is none.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: i64,
    count: i64,
}

struct Loop {
    length: i64,
    open: Vec<Open>,
    /// A window that has passed: its lists are used again.
    spare: Option<Open>,
    slots: Vec<Slot>,
    keys: Vec<i64>,
    values: Vec<i64>,
    verifier: Verifier,
}

/// Runs the workload over the batches of one split, which must be in order.
pub(super) fn run(spec: &Spec, batches: &[RecordBatch]) -> Result<Verifier> {
    let (open, spare, slots, keys, values) = Default::default();
    let length = spec.window_ms.max(1) as i64;
    let mut this = Loop { length, open, spare, slots, keys, values, verifier: Verifier::new(spec) };
    for batch in batches {
        let ts = numbers::<TimestampMillisecondType>(batch, "ts")?;
        let keys = numbers::<Int64Type>(batch, "key")?;
        let types = numbers::<Int32Type>(batch, "event_type")?;
        let ids = numbers::<Int64Type>(batch, "id")?;
        let mut at = 0;
        while at < ts.len() {
            let start = ts[at].saturating_sub(ts[at].rem_euclid(length));
            let end = start.saturating_add(length);
            let count = ts[at..].iter().take_while(|t| (start..end).contains(*t)).count().max(1);
            let range = at..at + count;
            this.add(start, &keys[range.clone()], &types[range.clone()], &ids[range]);
            at += count;
        }
        if let Some(last) = ts.iter().max() {
            this.fire(*last);
        }
    }
    this.fire(i64::MAX);
    Ok(this.verifier)
}

impl Loop {
    /// Takes records of the window at `start`.
    fn add(&mut self, start: i64, keys: &[i64], types: &[i32], ids: &[i64]) {
        let at = self.open.iter().position(|open| open.start == start).unwrap_or_else(|| {
            let empty = || Open { start, sellers: vec![], auctions: vec![], ids: vec![] };
            let open = self.spare.take().map(|spare| Open { start, ..spare });
            let at = self.open.partition_point(|open| open.start < start);
            self.open.insert(at, open.unwrap_or_else(empty));
            at
        });
        let open = &mut self.open[at];
        // Both lists are written, and one of them goes on: no branch depends on the record.
        let (mut seller, mut auction) = (open.sellers.len(), open.auctions.len());
        open.sellers.resize(seller + keys.len() + 1, 0);
        open.auctions.resize(auction + keys.len() + 1, 0);
        open.ids.resize(auction + keys.len() + 1, 0);
        for ((key, event_type), id) in keys.iter().zip(types).zip(ids) {
            let is_seller = usize::from(*event_type == 0);
            open.sellers[seller] = *key;
            (open.auctions[auction], open.ids[auction]) = (*key, *id);
            (seller, auction) = (seller + is_seller, auction + 1 - is_seller);
        }
        open.sellers.truncate(seller);
        open.auctions.truncate(auction);
        open.ids.truncate(auction);
    }

    /// Emits the windows that end at or before `watermark`.
    fn fire(&mut self, watermark: i64) {
        while self.open.first().is_some_and(|w| w.start.saturating_add(self.length) <= watermark) {
            let mut window = self.open.remove(0);
            self.pairs(&window);
            window.sellers.clear();
            window.auctions.clear();
            window.ids.clear();
            self.spare = Some(window);
        }
    }

    fn pairs(&mut self, window: &Open) {
        let slots = (2 * window.sellers.len()).next_power_of_two().max(2);
        self.slots.clear();
        self.slots.resize(slots, Slot::default());
        let (shift, mask) = (64 - slots.trailing_zeros(), slots - 1);
        let place = |key: i64| ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize;
        let mut places = [0; BLOCK];
        for sellers in window.sellers.chunks(BLOCK) {
            // All places first: what is looked at there does not wait for one after the other.
            for (key, at) in sellers.iter().zip(&mut places) {
                *at = place(*key);
            }
            for (key, at) in sellers.iter().zip(places) {
                let mut at = at;
                while self.slots[at].count != 0 && self.slots[at].key != *key {
                    at = (at + 1) & mask;
                }
                self.slots[at].key = *key;
                self.slots[at].count += 1;
            }
        }
        let bounds = Bounds { start: window.start, end: window.start.saturating_add(self.length) };
        for (auctions, ids) in window.auctions.chunks(BLOCK).zip(window.ids.chunks(BLOCK)) {
            for (key, at) in auctions.iter().zip(&mut places) {
                *at = place(*key);
            }
            for ((key, id), at) in auctions.iter().zip(ids).zip(places) {
                let mut at = at;
                while self.slots[at].count != 0 && self.slots[at].key != *key {
                    at = (at + 1) & mask;
                }
                for _ in 0..self.slots[at].count {
                    self.keys.push(*key);
                    self.values.push(*id);
                }
            }
            if self.keys.len() >= 8 * BLOCK {
                self.verifier.add_rows(bounds, &self.keys, &self.values);
                self.keys.clear();
                self.values.clear();
            }
        }
        self.verifier.add_rows(bounds, &self.keys, &self.values);
        self.keys.clear();
        self.values.clear();
    }
}
