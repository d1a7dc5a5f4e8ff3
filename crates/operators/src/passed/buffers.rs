//! Rows that a worker passes through and keeps until they are shipped: as keys and arguments, like
//! exchanged rows, which take less room than rows of state and are written
//! and taken in at the price of an exchange.
//!
//! Rows for leaders in other processes are kept only while they find no slot.

use std::sync::Arc;

use super::columns::BatchRows;
use super::{Format, Outgoing, ReadRows};
use crate::error::Result;
use crate::windowing::SliceId;

use millstream_state::{Load, Segment};

/// Words of a buffer at the most: as many as lie in a near cache beside what is done with them.
const BUFFER_WORDS_MAX: usize = 8 << 10;
/// A window's first buffer for a leader has so many words, each further one four times as many:
/// there may be many windows of few rows.
const FIRST_WORDS: usize = 256;
/// Fewer rows do not go into what is left of a buffer.
const SLIVER_ROWS: usize = 16;

/// A buffer of rows of one slice.
#[derive(Debug, Clone)]
pub struct PassedRows {
    /// The slice.
    pub slice: SliceId,
    /// The side of a join that they are of; 0 where there is one.
    pub(crate) side: usize,
    buffer: Vec<u64>,
    /// Words that have been written, and rows.
    used: usize,
    rows: usize,
    /// Rows that are not in the buffer but in the columns of their batch.
    in_columns: Option<Box<BatchRows>>,
}

impl PassedRows {
    /// Rows of a join's side that stay in the columns of their batch.
    pub(crate) fn in_columns(slice: SliceId, side: usize, rows: BatchRows) -> PassedRows {
        let (buffer, used, count) = (Vec::new(), 0, rows.places.len());
        PassedRows { slice, side, buffer, used, rows: count, in_columns: Some(Box::new(rows)) }
    }

    /// The rows, if they are in the columns of their batch.
    pub(crate) fn batch_rows(&self) -> Option<&BatchRows> {
        self.in_columns.as_deref()
    }

    /// In the form of [`Format`]; none of rows in the columns of their batch.
    pub fn words(&self) -> &[u64] {
        &self.buffer[..self.used]
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        8 * self.buffer.len() + self.batch_rows().map_or(0, BatchRows::bytes)
    }

    fn live_bytes(&self) -> usize {
        8 * self.used + self.batch_rows().map_or(0, BatchRows::live_bytes)
    }
}

/// Rows for one leader, of a slice or of several.
#[derive(Debug, Default)]
pub struct Parcel {
    /// Rows of state, with their slice.
    pub segments: Vec<(SliceId, Segment)>,
    /// Passed rows by slice.
    pub passed: Vec<PassedRows>,
}

impl Parcel {
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.passed.is_empty()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|(_, segment)| segment.bytes()).sum::<usize>()
            + self.passed.iter().map(PassedRows::bytes).sum::<usize>()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.segments.iter().map(|(_, segment)| segment.rows()).sum::<usize>()
            + self.passed.iter().map(PassedRows::rows).sum::<usize>()
    }
}

/// Rows of a slice for a leader; the last buffer is being filled.
#[derive(Debug, Default, Clone)]
pub struct Passed {
    buffers: Vec<PassedRows>,
    rows: usize,
    /// Bytes allocated, and those in use.
    bytes: usize,
    live_bytes: usize,
}

impl Passed {
    /// Keeps rows, from the first on; returns how many. The others are longer than a buffer.
    pub(crate) fn keep(
        &mut self,
        format: &Format,
        rows: &Outgoing<'_>,
        pool: &mut Pool,
        scratch: &mut Vec<u32>,
    ) -> Result<usize> {
        let mut kept = 0;
        while kept < rows.picked.len() {
            let rest = Outgoing { picked: &rows.picked[kept..], ..*rows };
            if let Some(open) = self.buffers.last_mut() {
                let room = open.buffer.len() - open.used;
                let (count, words) = format.fit(&rest, room);
                if count >= rest.picked.len().min(SLIVER_ROWS) {
                    let rest = Outgoing { picked: &rest.picked[..count], ..rest };
                    let place = &mut open.buffer[open.used..open.used + words];
                    format.write(&rest, place, scratch)?;
                    (open.used, open.rows) = (open.used + words, open.rows + count);
                    self.rows += count;
                    self.live_bytes += 8 * words;
                    kept += count;
                    continue;
                }
                if open.used == 0 && open.buffer.len() >= pool.words {
                    // A row is longer than a buffer.
                    return Ok(kept);
                }
            }
            self.open(rows.slice, format.side, pool);
        }
        Ok(kept)
    }

    /// Keeps all of them: a row that is longer than a buffer has one of its own.
    pub(crate) fn keep_all(
        &mut self,
        format: &Format,
        rows: &Outgoing<'_>,
        pool: &mut Pool,
        scratch: &mut Vec<u32>,
    ) -> Result<()> {
        let mut rest = *rows;
        loop {
            let kept = self.keep(format, &rest, pool, scratch)?;
            let Some(long) = rest.picked.get(kept..=kept) else { return Ok(()) };
            let one = Outgoing { picked: long, ..*rows };
            let (_, words) = format.fit(&one, usize::MAX);
            let mut buffer = vec![0; words];
            format.write(&one, &mut buffer, scratch)?;
            self.add(PassedRows {
                slice: rows.slice,
                side: format.side,
                buffer,
                used: words,
                rows: 1,
                in_columns: None,
            });
            rest = Outgoing { picked: &rest.picked[kept + 1..], ..rest };
        }
    }

    /// Keeps rows that have been read.
    pub(crate) fn keep_read(&mut self, read: &ReadRows<'_>, pool: &mut Pool) {
        let words = read.words();
        let has_room = |open: &PassedRows| open.buffer.len() - open.used >= words.len();
        if !self.buffers.last().is_some_and(has_room) {
            self.open(read.slice(), read.side(), pool);
        }
        match self.buffers.last_mut().filter(|open| has_room(open)) {
            Some(open) => {
                open.buffer[open.used..open.used + words.len()].copy_from_slice(words);
                (open.used, open.rows) = (open.used + words.len(), open.rows + read.rows());
                self.rows += read.rows();
                self.live_bytes += 8 * words.len();
            }
            None => self.add(PassedRows {
                slice: read.slice(),
                side: read.side(),
                buffer: words.to_vec(),
                used: words.len(),
                rows: read.rows(),
                in_columns: None,
            }),
        }
    }

    /// Adds a buffer of rows, before the one that is being filled.
    pub(crate) fn add(&mut self, rows: PassedRows) {
        self.rows += rows.rows;
        self.bytes += rows.bytes();
        self.live_bytes += rows.live_bytes();
        self.buffers.push(rows);
        let count = self.buffers.len();
        if count > 1 {
            self.buffers.swap(count - 2, count - 1);
        }
    }

    /// Opens the next buffer; an empty last buffer goes back to the pool.
    fn open(&mut self, slice: SliceId, side: usize, pool: &mut Pool) {
        let last = self.buffers.last().filter(|last| last.in_columns.is_none());
        let words = last.map_or(FIRST_WORDS, |last| 4 * last.buffer.len());
        let is_empty = |open: &mut PassedRows| open.rows == 0;
        if let Some(empty) = self.buffers.pop_if(is_empty) {
            self.bytes -= empty.bytes();
            pool.give(empty);
        }
        let buffer = pool.take(words);
        self.bytes += 8 * buffer.len();
        let (used, rows, in_columns) = (0, 0, None);
        self.buffers.push(PassedRows { slice, side, buffer, used, rows, in_columns });
    }

    /// Hands out what there is.
    pub(crate) fn take(&mut self) -> Vec<PassedRows> {
        std::mem::take(self).buffers
    }

    /// Puts the rest of such buffers back.
    pub(crate) fn put_back(&mut self, buffers: Vec<PassedRows>) {
        let rows = buffers.iter().map(PassedRows::rows).sum();
        let bytes = buffers.iter().map(PassedRows::bytes).sum();
        let live_bytes = buffers.iter().map(PassedRows::live_bytes).sum();
        *self = Passed { buffers, rows, bytes, live_bytes };
    }

    /// Puts earlier rows before these.
    pub(crate) fn put_before(&mut self, earlier: Passed) {
        let mut buffers = earlier.buffers;
        buffers.append(&mut self.buffers);
        self.put_back(buffers);
    }

    /// The buffers.
    pub(crate) fn buffers(&self) -> &[PassedRows] {
        &self.buffers
    }

    /// Rows that are kept.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of these, those in use.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes
    }
}

/// How rows are passed through, and the buffers in which they are kept.
#[derive(Debug)]
pub struct PassedBuffers {
    /// The format of rows.
    pub format: Arc<Format>,
    /// The pool of empty buffers.
    pub pool: Pool,
}

impl PassedBuffers {
    /// Bytes that keeping so much more for so many leaders may allocate.
    pub(crate) fn growth_bytes(&self, load: Load, leaders: usize) -> usize {
        let rows_bytes = load.rows * self.format.row_bytes() + load.text_bytes;
        // What is left of an open buffer may be too little for the first of them.
        rows_bytes + 8 * self.pool.words * load.rows.min(leaders)
    }

    /// The same where rows may stay in the columns of their batch ([`Keeping`](super::Keeping)).
    pub(crate) fn kept_growth_bytes(&self, load: Load, leaders: usize) -> usize {
        let buffer_bytes = load.rows * self.format.row_bytes() + load.text_bytes;
        self.growth_bytes(load, leaders).max(4 * buffer_bytes / 3)
    }
}

/// Buffers that are used again.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Vec<u64>>,
    /// Words of a buffer that is not one of a window's first.
    words: usize,
    /// How many are kept.
    max: usize,
}

impl Pool {
    /// Of buffers of at most so many bytes, of which so many are kept.
    pub(crate) fn new(buffer_bytes: usize, bytes_max: usize) -> Pool {
        let words = (buffer_bytes / 8).clamp(1, BUFFER_WORDS_MAX);
        Pool { free: Vec::new(), words, max: bytes_max / (8 * words) }
    }

    fn take(&mut self, words: usize) -> Vec<u64> {
        self.free.pop().unwrap_or_else(|| vec![0; words.min(self.words)])
    }

    /// Takes the buffer of rows back that have been taken in.
    pub fn give(&mut self, PassedRows { buffer, .. }: PassedRows) {
        if buffer.len() == self.words && self.free.len() < self.max {
            self.free.push(buffer);
        }
    }

    /// Gives all back.
    pub(crate) fn release(&mut self) {
        self.free = Vec::new();
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        8 * self.words * self.free.len()
    }
}
