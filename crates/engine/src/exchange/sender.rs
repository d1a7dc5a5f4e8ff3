//! The sending role: the records of a batch become rows in the slots of their receivers.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::ArrayRef;

use millstream_state::Leaders;

use crate::error::{Error, Result};
use millstream_operators::columns::keys::KeyBlock;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::operator::Keyed;
use millstream_operators::passed::{
    self, Filled, Format, HEAD_WORDS, Outgoing, Outlet, SECTION_ROWS_MAX, fill, gather,
};

use super::route::Routes;

/// Rows encoded at a time, for each receiver: so many that sections have a few blocks, so few that
/// a near cache holds them.
const GROUP_ROWS: usize = 1024;
const GROUP_ROWS_MAX: usize = 1 << 14;
const _: () = assert!(GROUP_ROWS_MAX <= SECTION_ROWS_MAX);

/// One worker's sending role.
pub(crate) struct Sender {
    format: Arc<Format>,
    receivers: Leaders,
    lanes: Vec<LaneBuffer>,
    batches: VecDeque<Batch>,
    block: KeyBlock,
    routes: Routes,
    scratch: Vec<u32>,
}

/// State of the channel to a receiver.
#[derive(Debug, Default)]
struct LaneBuffer {
    /// Words written into the open slot.
    used: usize,
    /// Rows of the present group that have been written.
    written: usize,
    /// A section longer than a slot, and how much of it has been written.
    long: Vec<u64>,
    long_written: usize,
    /// The last watermark written.
    marked: i64,
    /// Rows written so far.
    rows: u64,
}

/// A batch that is being partitioned.
struct Batch {
    rows: Keyed,
    /// The current slice.
    slice: usize,
    /// Partitioned rows of the slice, and rows of the present group behind them.
    done: usize,
    group: usize,
}

impl Sender {
    /// A sender to as many receivers as there are leaders.
    pub(crate) fn new(format: Arc<Format>, receivers: Leaders) -> Sender {
        let lane = || LaneBuffer { marked: BEGINNING, ..LaneBuffer::default() };
        let lanes = (0..receivers.count()).map(|_| lane()).collect();
        let (block, routes, scratch) = Default::default();
        Sender { format, receivers, lanes, batches: VecDeque::new(), block, routes, scratch }
    }

    /// Rows written into slots so far.
    pub(crate) fn rows_sent(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.rows).sum()
    }

    /// Of these, to one receiver.
    pub(crate) fn rows_sent_to(&self, receiver: usize) -> u64 {
        self.lanes[receiver].rows
    }

    /// Begins a batch, to be written after earlier batches. (Both sides of a join may share a
    /// batch.)
    pub(crate) fn begin(&mut self, rows: Keyed) -> Result<()> {
        let format = self.format.of_side(rows.side);
        if !format.is_some_and(|format| format.is_for(&rows.arguments)) {
            return Err(Error::Internal("a batch that cannot be exchanged".into()));
        }
        self.batches.push_back(Batch { rows, slice: 0, done: 0, group: 0 });
        Ok(())
    }

    /// Goes on with what has begun as far as there is credit; true when all of it has been written.
    /// What does not fill a slot stays there until [`Sender::mark`] or more rows come.
    pub(crate) fn advance<O: Outlet>(&mut self, outlets: &mut [O]) -> Result<bool> {
        while let Some(mut batch) = self.batches.pop_front() {
            if !self.advance_with(&mut batch, outlets)? {
                self.batches.push_front(batch);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same with a batch.
    // Profiles count the cost of a function with a name.
    #[inline(never)]
    fn advance_with<O: Outlet>(&mut self, batch: &mut Batch, outlets: &mut [O]) -> Result<bool> {
        let group_rows = (GROUP_ROWS * self.lanes.len()).min(GROUP_ROWS_MAX);
        let format = self.format.clone();
        let format = format.of_side(batch.rows.side).unwrap_or(&format);
        while let Some((slice, rows)) = batch.rows.by_slice.get(batch.slice) {
            let rest = &rows[batch.done..];
            if rest.is_empty() {
                (batch.slice, batch.done) = (batch.slice + 1, 0);
                continue;
            }
            if batch.group == 0 {
                // Groups of about the same size.
                batch.group = rest.len().div_ceil(rest.len().div_ceil(group_rows));
                self.partition(&batch.rows.keys, &rest[..batch.group]);
            }
            let vars = format.vars_of(&batch.rows.keys, &batch.rows.arguments);
            let rows = &rest[..batch.group];
            let words = format.codec.words_in_place(&batch.rows.keys, rows);
            let group = Outgoing {
                slice: *slice,
                picked: &[],
                words: words.unwrap_or(&self.block.words),
                rows,
                vars: &vars,
                arguments: &batch.rows.arguments,
            };
            let mut all = true;
            for (receiver, (lane, outlet)) in self.lanes.iter_mut().zip(&mut *outlets).enumerate() {
                let picked = self.routes.of(receiver);
                let before = lane.written;
                all &= lane.write(format, &group, picked, outlet, &mut self.scratch)?;
                lane.rows += (lane.written - before) as u64;
            }
            if !all {
                return Ok(false);
            }
            self.lanes.iter_mut().for_each(|lane| lane.written = 0);
            batch.done += std::mem::take(&mut batch.group);
        }
        Ok(true)
    }

    fn partition(&mut self, keys: &[ArrayRef], rows: &[u32]) {
        let codec = &self.format.codec;
        let KeyBlock { words, hashes } = &mut self.block;
        let words = match codec.words_in_place(keys, rows) {
            Some(words) => words,
            None => {
                words.resize(rows.len() * codec.words(), 0);
                match codec.plain_words(keys) {
                    Some(column) => gather(column, rows, words),
                    None => codec.encode_words(keys, rows, words),
                }
                words
            }
        };
        if self.lanes.len() == 1 {
            self.routes.all_to_one(rows.len());
        } else {
            codec.hash(words, rows.len(), hashes);
            self.routes.sort(&self.receivers, hashes);
        }
    }

    /// Tells every receiver that no row of an earlier time follows, behind all rows written so far,
    /// and sends what has not been sent; true when all have been told, false if credit is missing.
    pub(crate) fn mark<O: Outlet>(&mut self, watermark: i64, outlets: &mut [O]) -> Result<bool> {
        let mut all = true;
        for (lane, outlet) in self.lanes.iter_mut().zip(outlets) {
            all &= lane.marked >= watermark || lane.mark(watermark, outlet)?;
        }
        Ok(all)
    }

    /// Sends what has been written, full slot or not.
    pub(crate) fn flush<O: Outlet>(&mut self, outlets: &mut [O]) -> Result<()> {
        for (lane, outlet) in self.lanes.iter_mut().zip(outlets) {
            if lane.used > 0 {
                outlet.send(std::mem::take(&mut lane.used))?;
            }
        }
        Ok(())
    }
}

impl LaneBuffer {
    /// Writes what is left of a group's rows for this receiver; false if credit ran out before.
    fn write<O: Outlet>(
        &mut self,
        format: &Format,
        group: &Outgoing<'_>,
        picked: &[u32],
        outlet: &mut O,
        scratch: &mut Vec<u32>,
    ) -> Result<bool> {
        while self.write_long(outlet)? {
            let rows = Outgoing { picked: &picked[self.written..], ..*group };
            let (count, stop) = fill(format, &rows, &mut self.used, outlet, scratch)?;
            self.written += count;
            match stop {
                Filled::All => return Ok(true),
                Filled::NoCredit => return Ok(false),
                Filled::TooLong => {}
            }
            let row = Outgoing { picked: &rows.picked[count..=count], ..rows };
            let (_, words) = format.fit(&row, usize::MAX);
            self.long.resize(words, 0);
            format.write(&row, &mut self.long, scratch)?;
            self.written += 1;
        }
        Ok(false)
    }

    /// Writes what is left of a section longer than a slot, in parts that fill a slot each.
    fn write_long<O: Outlet>(&mut self, outlet: &mut O) -> Result<bool> {
        while self.long_written < self.long.len() {
            let Some(slot) = outlet.slot()? else { return Ok(false) };
            let room = (slot.len() - self.used).saturating_sub(HEAD_WORDS);
            let rest = &self.long[self.long_written..];
            let here = room.min(rest.len()).min(u32::MAX as usize);
            if here == 0 {
                if self.used == 0 {
                    return Err(Error::Internal("slots too short for any word".into()));
                }
                outlet.send(std::mem::take(&mut self.used))?;
                continue;
            }
            let slot = &mut slot[self.used..];
            slot[..HEAD_WORDS].copy_from_slice(&passed::part(self.long.len(), here as u32));
            slot[HEAD_WORDS..HEAD_WORDS + here].copy_from_slice(&rest[..here]);
            self.used += HEAD_WORDS + here;
            self.long_written += here;
        }
        self.long.clear();
        self.long_written = 0;
        Ok(true)
    }

    fn mark<O: Outlet>(&mut self, watermark: i64, outlet: &mut O) -> Result<bool> {
        loop {
            let Some(slot) = outlet.slot()? else { return Ok(false) };
            if let Some(place) = slot.get_mut(self.used..self.used + HEAD_WORDS) {
                place.copy_from_slice(&passed::mark(watermark, self.rows));
                outlet.send(std::mem::take(&mut self.used) + HEAD_WORDS)?;
                self.marked = watermark;
                return Ok(true);
            }
            outlet.send(std::mem::take(&mut self.used))?;
        }
    }
}
