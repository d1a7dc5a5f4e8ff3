//! Reading: a worker reads chunks of splits and prepares them at once. They are stamped in the
//! order of their split, whichever worker or process has prepared them.

use std::sync::{Arc, PoisonError};

use millstream_contract::decoding;

use super::source::REACHED_MAX;
use super::split::Chunk;
use super::{Intake, IntakeState, SplitIn};
use crate::error::{Error, Result};
use crate::network::{self, Head};
use crate::roles::Reading;
use crate::table::{self, Position, SplitPoll};
use millstream_operators::budget::Kind;
use millstream_operators::event_time::{BEGINNING, END};

/// Reading a chunk takes less, unless the source is slow.
const READ_US: i64 = 2_000;

pub(super) enum Read {
    /// Another worker reads from the split just now, and wakes the others afterwards. Waiting pays
    /// until this moment.
    Busy {
        until_us: i64,
    },
    Prepared,
    /// A chunk of another process.
    Skipped,
    Pending(Option<i64>),
    Ended,
}

impl Intake {
    /// Whether this process has chunk `sequence` of `split`.
    pub(crate) fn has_chunk(&self, split: usize, sequence: u64) -> bool {
        match self.splits[split].by_chunk {
            true => sequence % self.reading.processes as u64 == self.reading.process as u64,
            false => !self.lock().splits[split].elsewhere,
        }
    }

    /// Reads on, over chunks of other processes, in a split that all processes read: only so does
    /// this process notice that the split has ended before chunk `sequence` of another process.
    /// Returns whether there was anything to read.
    pub(crate) fn look_for_end(&self, split: usize, sequence: u64) -> Result<bool> {
        let now = self.env.now_us();
        {
            let state = self.lock();
            let s = &state.splits[split];
            if s.ended || s.elsewhere || s.read > sequence || s.retry_at_us > now {
                return Ok(false);
            }
        }
        Ok(!matches!(self.read(split, now)?, Read::Pending(_) | Read::Busy { .. }))
    }

    /// Looks at idle splits, while all other splits have to wait: another process may have noticed
    /// new records of an idle split, and wait for this process's chunks. Returns whether a split
    /// goes on.
    pub(crate) fn look_at_idle(&self) -> Result<bool> {
        let now = self.env.now_us();
        for split in 0..self.splits.len() {
            let looks = {
                let s = &self.lock().splits[split];
                s.idle && !s.ended && !s.elsewhere && s.outstanding() == 0 && s.retry_at_us <= now
            };
            if looks && !matches!(self.read(split, now)?, Read::Pending(_) | Read::Busy { .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that this worker reads from a split, unless there is nothing to read or another worker
    /// is reading: workers do not wait for a slow source.
    fn begin_to_read(&self, split: usize, now: i64) -> Option<Read> {
        let mut state = self.lock();
        let s = &mut state.splits[split];
        if s.ended {
            return Some(Read::Ended);
        }
        if s.is_held() {
            return Some(Read::Pending(None));
        }
        s.has_waiting |= s.reading;
        if s.reading {
            return Some(Read::Busy { until_us: s.reading_since_us.saturating_add(READ_US) });
        }
        (s.reading, s.reading_since_us) = (true, now);
        None
    }

    pub(super) fn read(&self, split: usize, now: i64) -> Result<Read> {
        let SplitIn { reader, .. } = &self.splits[split];
        if let Some(nothing) = self.begin_to_read(split, now) {
            return Ok(nothing);
        }
        // Nobody else does meanwhile.
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes_max = decoding::bytes_max(self.budget.limit_bytes());
        let poll = decoding::within(bytes_max, || reader.poll_next(now, &self.waker))?;
        while let Some(notice) = reader.notice() {
            self.tell_notice(split, notice)?;
        }
        let progress = reader.progress();
        let position = matches!(poll, SplitPoll::Chunk(_)).then(|| reader.position());
        let is_pending = matches!(poll, SplitPoll::Pending { .. });
        let has_more = is_pending && !reader.caught_up();
        let is_absent = is_pending && reader.is_absent();
        drop(reader);
        let mut state = self.lock();
        let s = &mut state.splits[split];
        // The chunk's number is fixed before anybody else reads from the split.
        s.reading = false;
        s.absent = is_absent;
        s.vacated |= is_absent;
        s.progress = progress;
        if std::mem::take(&mut s.has_waiting) {
            self.wake_all();
        }
        match poll {
            SplitPoll::Chunk(chunk) => {
                let position = position.unwrap_or_default();
                let own = self.note_chunk(&mut state, split, now, position)?;
                drop(state);
                let Some((sequence, now)) = own else { return Ok(Read::Skipped) };
                self.prepare(split, sequence, chunk, now)?;
                Ok(Read::Prepared)
            }
            SplitPoll::Pending { retry_at_us } => {
                s.retry_at_us = retry_at_us.unwrap_or(i64::MIN);
                (s.pending, s.nothing_until_us) = (true, retry_at_us.map_or(now, |at| at.max(now)));
                if has_more {
                    // The idle time begins when all has come.
                    s.last_data_us = s.last_data_us.max(now);
                }
                self.settle(&mut state, split)?;
                if state.splits[split].ended {
                    drop(state);
                    self.wake_all();
                    return Ok(Read::Ended);
                }
                Ok(Read::Pending(retry_at_us))
            }
            SplitPoll::Ended => {
                s.ended = true;
                self.settle(&mut state, split)?;
                drop(state);
                self.wake_all();
                Ok(Read::Ended)
            }
        }
    }

    /// Notes that a chunk of a split has come: its number, and when it has come, if this process
    /// is to decode it.
    fn note_chunk(
        &self,
        state: &mut IntakeState,
        split: usize,
        now: i64,
        position: Position,
    ) -> Result<Option<(u64, i64)>> {
        let SplitIn { by_chunk, source, .. } = &self.splits[split];
        // A cut may be behind any chunk that has been taken.
        let done = state.chunks_done(split).min(state.splits[split].taken);
        let low = state.sources[*source].low;
        let s = &mut state.splits[split];
        let sequence = s.read;
        s.wake_up(low);
        s.read += 1;
        // Only now, as the watermark of a source of which the clock decides goes on until there is
        // something.
        let has_clock = self.sources[*source].preparer.has_clock();
        let came_us = if has_clock { self.env.now_us() } else { now };
        let clock_us = s.clock(came_us);
        s.note_position(position, done);
        // Silence lasts as long as the present clock says, also if that has been put back.
        (s.retry_at_us, s.last_data_us, s.pending) = (i64::MIN, came_us, false);
        let Reading { process, processes, .. } = self.reading;
        if *by_chunk && sequence % processes as u64 != process as u64 {
            // It may have been prepared already.
            s.stamp_ready(split);
            self.settle(state, split)?;
            return Ok(None);
        }
        self.settle(state, split)?;
        Ok(Some((sequence, clock_us)))
    }

    /// Decodes a chunk and completes it.
    fn prepare(
        &self,
        split: usize,
        sequence: u64,
        chunk: Box<dyn table::Chunk>,
        now: i64,
    ) -> Result<()> {
        let source = &self.sources[self.splits[split].source];
        // During decoding, the chunk and its batch.
        let mut held = self.budget.hold(Kind::Input, 2 * chunk.bytes());
        let bytes_max = decoding::bytes_max(self.budget.limit_bytes());
        let mut prepared = decoding::within(bytes_max, || source.preparer.prepare(chunk, now))?;
        std::mem::take(&mut prepared.notices).into_iter().for_each(|line| self.notices.tell(line));
        held.resize(prepared.bytes());
        prepared.held = Some(Arc::new(held));
        if let Some(net) = self.others_of(split) {
            let (greatest, records) = prepared.summary();
            net.broadcast(Head {
                id: split as u32,
                number: sequence,
                count: records,
                watermark: greatest,
                ..Head::new(network::Kind::Stamp)
            })?;
        }
        self.stamp(split, sequence, Chunk::Own(Box::new(prepared)));
        Ok(())
    }

    /// Another process has prepared a chunk of a split that all read.
    pub(crate) fn stamp_other(&self, head: &Head) -> Result<()> {
        let split = self.checked(head)?;
        if self.reads_nothing() {
            return Ok(());
        }
        if self.has_chunk(split, head.number) {
            return Err(Error::Internal("word of a chunk that is ours".into()));
        }
        let other = Chunk::Other { greatest: head.watermark, records: head.count };
        self.stamp(split, head.number, other);
        // Wakes workers that wait for the chunk, or for the low watermark, which may have risen.
        self.wake_all();
        Ok(())
    }

    /// Another process has come to the end of a split.
    pub(crate) fn ended_elsewhere(&self, head: &Head) -> Result<()> {
        let split = self.checked(head)?;
        self.lock().splits[split].ended_elsewhere = Some(head.count);
        Ok(())
    }

    /// The split that a message is about, if there is such a one.
    pub(crate) fn checked(&self, head: &Head) -> Result<usize> {
        let split = head.id as usize;
        let unknown = || Error::Internal(format!("word of split {split}, which is not there"));
        (split < self.splits.len()).then_some(split).ok_or_else(unknown)
    }

    /// Notes when the stamped watermark of a source lets a window fire.
    fn note_reached(&self, state: &mut IntakeState, source: usize) {
        let of = &self.sources[source];
        if of.reach_us().is_none() {
            return;
        }
        let splits = self.splits.iter().zip(&state.splits);
        let active =
            splits.filter(|(split, s)| split.source == source && !s.exhausted() && !s.idle);
        let stamped = active.map(|(_, s)| s.watermark).min().unwrap_or(END);
        let reached = &mut state.sources[source].reached;
        if of.passes(reached.back().map_or(BEGINNING, |(w, _)| *w), stamped) {
            reached.push_back((stamped, self.env.now_us()));
            if reached.len() > REACHED_MAX {
                reached.pop_front();
            }
        }
    }

    fn stamp(&self, split: usize, sequence: u64, chunk: Chunk) {
        let mut state = self.lock();
        let s = &mut state.splits[split];
        s.prepared.insert(sequence, chunk);
        let before = s.ready.len();
        s.stamp_ready(split);
        let several = s.ready.len() > before + 1;
        self.note_reached(&mut state, self.splits[split].source);
        drop(state);
        if several {
            self.wake_all();
        }
    }
}
