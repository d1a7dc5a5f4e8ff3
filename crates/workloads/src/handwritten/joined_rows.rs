//! The loop for `nb8_rows`: as that for `nb8`, but rows are copied whole, when they come and when
//! they go out. Per window, sellers and auctions are listed with the bytes of their rows. When the
//! window has passed, a table chains the sellers of a key, and every auction is looked up.

use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{RecordBatch, StringArray};

use super::columns::{numbers, texts};
use crate::error::{Error, Result};
use crate::rows::{RowData, string_key};
use crate::spec::Spec;
use crate::verify::{Bounds, Verifier};

/// Records looked up together.
const BLOCK: usize = 512;

/// Pairs handed out together.
const PAIRS: usize = 1024;

/// No seller.
const NONE: u32 = u32::MAX;

/// Rows of one side, each with as many bytes of `data`.
#[derive(Default)]
struct Rows {
    keys: Vec<i64>,
    ids: Vec<i64>,
    data: Vec<u8>,
}

impl Rows {
    fn clear(&mut self) {
        self.keys.clear();
        self.ids.clear();
        self.data.clear();
    }
}

/// A window whose end the watermark has not passed: auctions, and sellers.
struct Open {
    start: i64,
    sides: [Rows; 2],
}

/// Pairs that go out.
#[derive(Default)]
struct Out {
    keys: Vec<i64>,
    ids: Vec<i64>,
    data: [Vec<u8>; 2],
}

struct Loop {
    length: i64,
    row_data: RowData,
    open: Vec<Open>,
    /// A window that has passed: its lists are used again.
    spare: Option<Open>,
    /// By place in the table, the last seller there; by seller, the one before.
    first: Vec<u32>,
    next: Vec<u32>,
    out: Out,
    verifier: Verifier,
}

/// Runs the workload over the batches of one split, which must be in order.
pub(super) fn run(spec: &Spec, batches: &[RecordBatch]) -> Result<Verifier> {
    let (open, spare, first, next, out) = Default::default();
    let length = spec.window_ms.max(1) as i64;
    let Some(row_data) = RowData::of(spec.workload) else {
        return Err(Error::Batch("a workload without whole rows".into()));
    };
    let verifier = Verifier::new(spec);
    let mut this = Loop { length, row_data, open, spare, first, next, out, verifier };
    for batch in batches {
        let ts = numbers::<TimestampMillisecondType>(batch, "ts")?;
        let keys = numbers::<Int64Type>(batch, "key")?;
        let types = numbers::<Int32Type>(batch, "event_type")?;
        let ids = numbers::<Int64Type>(batch, "id")?;
        let data = texts(batch, "data")?;
        let mut at = 0;
        while at < ts.len() {
            let start = ts[at].saturating_sub(ts[at].rem_euclid(length));
            let end = start.saturating_add(length);
            let count = ts[at..].iter().take_while(|t| (start..end).contains(*t)).count().max(1);
            let open = this.window(start);
            for row in at..at + count {
                let side = &mut this.open[open].sides[usize::from(types[row] == 0)];
                side.keys.push(keys[row]);
                side.ids.push(ids[row]);
                side.data.extend_from_slice(bytes_of(data, row));
            }
            at += count;
        }
        if let Some(last) = ts.iter().max() {
            this.fire(*last)?;
        }
    }
    this.fire(i64::MAX)?;
    Ok(this.verifier)
}

fn bytes_of(data: &StringArray, row: usize) -> &[u8] {
    data.value(row).as_bytes()
}

impl Loop {
    /// The open window that starts then, which is opened if it is not there.
    fn window(&mut self, start: i64) -> usize {
        self.open.iter().position(|open| open.start == start).unwrap_or_else(|| {
            let open = self.spare.take().map(|spare| Open { start, ..spare });
            let at = self.open.partition_point(|open| open.start < start);
            self.open.insert(at, open.unwrap_or_else(|| Open { start, sides: Default::default() }));
            at
        })
    }

    /// Emits the windows that end at or before `watermark`.
    fn fire(&mut self, watermark: i64) -> Result<()> {
        while self.open.first().is_some_and(|w| w.start.saturating_add(self.length) <= watermark) {
            let mut window = self.open.remove(0);
            self.pairs(&window)?;
            window.sides.iter_mut().for_each(Rows::clear);
            self.spare = Some(window);
        }
        Ok(())
    }

    /// The pairs of a window.
    fn pairs(&mut self, window: &Open) -> Result<()> {
        let [auctions, sellers] = &window.sides;
        let bytes = [false, true].map(|seller| self.row_data.bytes(seller));
        let places = (2 * sellers.keys.len()).next_power_of_two().max(2);
        let shift = 64 - places.trailing_zeros();
        let place = |key: i64| ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize;
        self.first.clear();
        self.first.resize(places, NONE);
        self.next.clear();
        for (number, key) in sellers.keys.iter().enumerate() {
            let first = &mut self.first[place(*key)];
            self.next.push(std::mem::replace(first, number as u32));
        }
        let bounds = Bounds { start: window.start, end: window.start.saturating_add(self.length) };
        let mut firsts = [NONE; BLOCK];
        for (block, keys) in auctions.keys.chunks(BLOCK).enumerate() {
            // All places first: what is looked at there does not wait for one after the other.
            for (key, first) in keys.iter().zip(&mut firsts) {
                *first = self.first[place(*key)];
            }
            for (row, (key, mut seller)) in (block * BLOCK..).zip(keys.iter().zip(firsts)) {
                while seller != NONE {
                    let number = seller as usize;
                    if sellers.keys[number] == *key {
                        self.out.keys.push(*key);
                        self.out.ids.push(auctions.ids[row]);
                        let [own, other] = &mut self.out.data;
                        own.extend_from_slice(&auctions.data[row * bytes[0]..][..bytes[0]]);
                        other.extend_from_slice(&sellers.data[number * bytes[1]..][..bytes[1]]);
                    }
                    seller = self.next[number];
                    if self.out.keys.len() == PAIRS {
                        self.hand_out(bounds)?;
                    }
                }
            }
        }
        self.hand_out(bounds)
    }

    /// Hands pairs out: they are checked.
    fn hand_out(&mut self, bounds: Bounds) -> Result<()> {
        let ([own, other], of) = (&mut self.out.data, self.row_data);
        let data = own.chunks(of.bytes(false)).zip(other.chunks(of.bytes(true)));
        let is_right = |(key, (own, other)): (&i64, (&[u8], &[u8]))| {
            let text = string_key(*key as u64);
            of.is(own, &text, false) && of.is(other, &text, true)
        };
        if !self.out.keys.iter().zip(data).all(is_right) {
            return Err(Error::Batch("the data of a row is not that of its key".into()));
        }
        own.clear();
        other.clear();
        self.verifier.add_rows(bounds, &self.out.keys, &self.out.ids);
        self.out.keys.clear();
        self.out.ids.clear();
        Ok(())
    }
}
