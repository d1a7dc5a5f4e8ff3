//! The loop for `nb11`: a table from keys to the session that is open, with the chains of its bids
//! and of its sellers, whole rows of which are copied when they come. A session that is over gives
//! each of its bids next to each of its sellers, whole again. Rows of sessions that are over make
//! room for later ones.

use arrow_array::RecordBatch;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};

use super::columns::{numbers, texts};
use crate::error::{Error, Result};
use crate::rows::{RowData, string_key};
use crate::spec::Spec;
use crate::verify::{Bounds, Verifier};

/// Slots at the start, a power of two.
const SLOTS_MIN: usize = 1024;

/// Pairs handed out together.
const PAIRS: usize = 1024;

/// No row.
const NONE: u32 = u32::MAX;

/// The session of a key that is open. A slot without a record is free.
#[derive(Clone, Copy)]
struct Open {
    key: i64,
    first: i64,
    last: i64,
    /// The last of its bids, and of its sellers.
    rows: [u32; 2],
}

const FREE: Open = Open { key: 0, first: 0, last: 0, rows: [NONE; 2] };

impl Open {
    fn is_free(&self) -> bool {
        self.rows == [NONE; 2]
    }
}

/// Rows of one side, each with as many bytes of `data`, in chains.
struct Rows {
    bytes: usize,
    ids: Vec<i64>,
    data: Vec<u8>,
    next: Vec<u32>,
    free: u32,
}

impl Rows {
    /// Adds a row in front of row `next`. Returns its place.
    #[inline]
    fn add(&mut self, id: i64, data: &[u8], next: u32) -> u32 {
        if self.free == NONE {
            self.ids.push(id);
            self.data.extend_from_slice(data);
            self.next.push(next);
            return (self.ids.len() - 1) as u32;
        }
        let (row, at) = (self.free, self.free as usize);
        self.free = std::mem::replace(&mut self.next[at], next);
        self.ids[at] = id;
        self.data[at * self.bytes..][..self.bytes].copy_from_slice(data);
        row
    }

    #[inline]
    fn data(&self, row: u32) -> &[u8] {
        &self.data[row as usize * self.bytes..][..self.bytes]
    }

    /// The rows of a chain.
    fn chain(&self, first: u32) -> impl Iterator<Item = u32> {
        let of = |row: u32| (row != NONE).then_some(row);
        std::iter::successors(of(first), move |row| of(self.next[*row as usize]))
    }

    /// Frees the rows of a chain.
    fn free(&mut self, first: u32) {
        let Some(last) = self.chain(first).last() else { return };
        self.next[last as usize] = std::mem::replace(&mut self.free, first);
    }
}

struct Loop {
    gap_ms: i64,
    /// Linear probing, at most half full.
    slots: Vec<Open>,
    live: usize,
    sides: [Rows; 2],
    row_data: RowData,
    keys: Vec<i64>,
    ids: Vec<i64>,
    /// The data of pairs that go out.
    out: [Vec<u8>; 2],
    verifier: Verifier,
}

/// Runs the workload over the batches of one split, which must be in order.
pub(super) fn run(spec: &Spec, batches: &[RecordBatch]) -> Result<Verifier> {
    let Some(row_data) = RowData::of(spec.workload) else {
        return Err(Error::Batch("a workload without whole rows".into()));
    };
    let rows = |seller| {
        let bytes = row_data.bytes(seller);
        Rows { bytes, ids: vec![], data: vec![], next: vec![], free: NONE }
    };
    let mut this = Loop {
        gap_ms: spec.window_ms as i64,
        slots: vec![FREE; SLOTS_MIN],
        live: 0,
        sides: [rows(false), rows(true)],
        row_data,
        keys: vec![],
        ids: vec![],
        out: Default::default(),
        verifier: Verifier::new(spec),
    };
    let mut swept = i64::MIN;
    for batch in batches {
        let ts = numbers::<TimestampMillisecondType>(batch, "ts")?;
        let keys = numbers::<Int64Type>(batch, "key")?;
        let types = numbers::<Int32Type>(batch, "event_type")?;
        let ids = numbers::<Int64Type>(batch, "id")?;
        let data = texts(batch, "data")?;
        for (row, ts) in ts.iter().enumerate() {
            if *ts > swept.saturating_add(this.gap_ms) {
                this.sweep(*ts)?;
                swept = *ts;
            }
            let side = usize::from(types[row] == 0);
            this.add(*ts, keys[row], side, ids[row], data.value(row).as_bytes())?;
        }
    }
    this.sweep(i64::MAX)?;
    Ok(this.verifier)
}

impl Loop {
    #[inline]
    fn add(&mut self, ts: i64, key: i64, side: usize, id: i64, data: &[u8]) -> Result<()> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while !self.slots[at].is_free() && self.slots[at].key != key {
            at = (at + 1) & mask;
        }
        let before = self.slots[at];
        let is_new = before.is_free();
        if is_new || ts.saturating_sub(before.last) > self.gap_ms {
            self.pairs(&before)?;
            self.slots[at] = Open { key, first: ts, last: ts, rows: [NONE; 2] };
        }
        let open = &mut self.slots[at];
        open.last = open.last.max(ts);
        open.rows[side] = self.sides[side].add(id, data, open.rows[side]);
        self.live += usize::from(is_new);
        if self.live * 2 > self.slots.len() {
            let twice = self.slots.len() * 2;
            for open in std::mem::replace(&mut self.slots, vec![FREE; twice]) {
                self.insert(open);
            }
        }
        Ok(())
    }

    /// The slot where the search for a key begins.
    #[inline]
    fn home(&self, key: i64) -> usize {
        let shift = 64 - self.slots.len().trailing_zeros();
        ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
    }

    fn insert(&mut self, open: Open) {
        if open.is_free() {
            return;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.home(open.key);
        while !self.slots[at].is_free() {
            at = (at + 1) & mask;
        }
        self.slots[at] = open;
    }

    /// Ends the sessions that no record at `ts` or later can reach, and forgets their keys.
    fn sweep(&mut self, ts: i64) -> Result<()> {
        let slots = self.slots.len();
        self.live = 0;
        for open in std::mem::replace(&mut self.slots, vec![FREE; slots]) {
            if open.is_free() {
                continue;
            }
            if ts.saturating_sub(open.last) > self.gap_ms {
                self.pairs(&open)?;
            } else {
                self.live += 1;
                self.insert(open);
            }
        }
        Ok(())
    }

    /// The pairs of a session that is over. Its rows are free then.
    fn pairs(&mut self, open: &Open) -> Result<()> {
        let [bids, sellers] = open.rows;
        let bounds = Bounds { start: open.first, end: open.last.saturating_add(self.gap_ms) };
        for bid in self.sides[0].chain(bids) {
            for seller in self.sides[1].chain(sellers) {
                self.keys.push(open.key);
                self.ids.push(self.sides[0].ids[bid as usize]);
                self.out[0].extend_from_slice(self.sides[0].data(bid));
                self.out[1].extend_from_slice(self.sides[1].data(seller));
                if self.keys.len() == PAIRS {
                    let pairs = (&mut self.keys, &mut self.ids, &mut self.out);
                    Self::hand_out(bounds, pairs, self.row_data, &mut self.verifier)?;
                }
            }
        }
        let pairs = (&mut self.keys, &mut self.ids, &mut self.out);
        Self::hand_out(bounds, pairs, self.row_data, &mut self.verifier)?;
        self.sides[0].free(bids);
        self.sides[1].free(sellers);
        Ok(())
    }

    /// Hands pairs of a session out: they are checked.
    fn hand_out(
        bounds: Bounds,
        (keys, ids, out): (&mut Vec<i64>, &mut Vec<i64>, &mut [Vec<u8>; 2]),
        of: RowData,
        verifier: &mut Verifier,
    ) -> Result<()> {
        let [own, other] = out;
        let data = own.chunks(of.bytes(false)).zip(other.chunks(of.bytes(true)));
        let is_right = |(key, (own, other)): (&i64, (&[u8], &[u8]))| {
            let text = string_key(*key as u64);
            of.is(own, &text, false) && of.is(other, &text, true)
        };
        if !keys.iter().zip(data).all(is_right) {
            return Err(Error::Batch("the data of a row is not that of its key".into()));
        }
        own.clear();
        other.clear();
        verifier.add_rows(bounds, keys, ids);
        keys.clear();
        ids.clear();
        Ok(())
    }
}
