//! Taking: the next batch for a worker, of the splits that may go on, or a chunk to read.

use super::order::{Taking, ToRead};
use super::read::Read;
use super::split::SplitState;
use super::{Admitted, Current, Intake, SplitIn};
use crate::error::Result;
use millstream_operators::stamped::Stamped;

/// Work that intake has for a worker.
pub(crate) enum Offer {
    /// A batch; [`Intake::finish`] when it is done.
    Batch(Box<Stamped>),
    /// A chunk was prepared, or a split was put aside: look again.
    Again,
    /// Nothing before `until_us`, or before somebody wakes the worker.
    Wait { until_us: Option<i64> },
    /// Nothing now: the splits with batches must wait for other splits.
    Held,
    /// All splits have ended and every batch has been taken.
    Ended,
}

impl Intake {
    /// Finds the next thing to do for `worker`, of the splits that may go on; `only` is by source.
    /// `of` becomes the source that was read, or of which there was a batch.
    pub(crate) fn take(
        &self,
        worker: usize,
        admitted: &[Admitted],
        of: &mut Option<usize>,
    ) -> Result<Offer> {
        let mut offer = self.take_next(worker, admitted, of)?;
        if let (Offer::Batch(batch), None) = (&offer, &of) {
            *of = Some(self.splits[batch.split].source);
        }
        if let Offer::Batch(batch) = &mut offer
            && let source = &self.sources[self.splits[batch.split].source]
            && let Some(column) = source.preparer.watermark_column()
        {
            batch.fill_in_watermarks(column)?;
        }
        Ok(offer)
    }

    fn take_next(
        &self,
        worker: usize,
        admitted: &[Admitted],
        of: &mut Option<usize>,
    ) -> Result<Offer> {
        // In simulation, sometimes read on although batches are ready, so that they can be
        // shuffled.
        let read_first = self.env.choose(2) == Some(1);
        if !read_first && let Some(batch) = self.take_ready(worker, admitted, Taking::Near) {
            return Ok(Offer::Batch(batch));
        }
        let mut until: Option<i64> = None;
        let (mut held, mut busy_until) = (false, None);
        for ToRead { split, is_ahead } in self.to_read(worker) {
            let now = self.env.now_us();
            {
                let state = self.lock();
                let s = &state.splits[split];
                if s.ended || s.elsewhere {
                    continue;
                }
                if s.retry_at_us > now {
                    until = Some(until.map_or(s.retry_at_us, |u| u.min(s.retry_at_us)));
                    continue;
                }
                if s.outstanding() >= self.ahead_max(is_ahead) {
                    continue;
                }
                if !self.may_go_on(&state, split, admitted) {
                    held |= admitted[self.splits[split].source] != Admitted::Nothing;
                    continue;
                }
            }
            match self.read_noting(split, now, of)? {
                Read::Prepared => {
                    return Ok(match self.take_ready(worker, admitted, Taking::Near) {
                        Some(batch) if !read_first => Offer::Batch(batch),
                        Some(batch) if self.env.choose(2) == Some(0) => Offer::Batch(batch),
                        Some(batch) => {
                            self.put_back(worker, batch);
                            Offer::Again
                        }
                        None => Offer::Again,
                    });
                }
                Read::Ended | Read::Skipped => return Ok(Offer::Again),
                Read::Busy { until_us } if !is_ahead && until_us > now => {
                    busy_until = [busy_until, Some(until_us)].into_iter().flatten().min();
                }
                Read::Busy { .. } => {}
                Read::Pending(retry) => until = [until, retry].into_iter().flatten().min(),
            }
        }
        // Rather than open a window far ahead, wait for who reads from a split that is not.
        if let Some(until) = busy_until {
            return Ok(Offer::Wait { until_us: Some(until) });
        }
        if let Some(batch) = self.take_ready(worker, admitted, Taking::Any) {
            return Ok(Offer::Batch(batch));
        }
        Ok(self.nothing_offered(admitted, held, until))
    }

    /// The offer where there is no batch; `held` if a split with records has to wait for others.
    fn nothing_offered(&self, admitted: &[Admitted], held: bool, until: Option<i64>) -> Offer {
        let state = self.lock();
        if state.splits.iter().all(SplitState::exhausted) {
            return Offer::Ended;
        }
        let waits = |split: &SplitIn| {
            matches!(admitted[split.source], Admitted::Lowest | Admitted::Awaited(_))
        };
        let mut splits = self.splits.iter().zip(&state.splits);
        if held || splits.any(|(split, s)| !s.ready.is_empty() && waits(split)) {
            return Offer::Held;
        }
        let until_us = [until, self.changes_at(&state, admitted)].into_iter().flatten().min();
        Offer::Wait { until_us }
    }

    /// Chunks of a split that may be read ahead. One at least, or a split that may go on could not.
    fn ahead_max(&self, is_ahead: bool) -> u64 {
        match is_ahead || self.budget.input_full() {
            true => 1,
            // Of those that all processes read, only some are ours.
            false => ((2 * self.workers + 2) * self.reading.processes) as u64,
        }
    }

    /// Reads a split; `of` becomes its source if it was read indeed.
    fn read_noting(&self, split: usize, now: i64, of: &mut Option<usize>) -> Result<Read> {
        let read = self.read(split, now)?;
        if let Read::Prepared | Read::Ended | Read::Skipped = read {
            *of = Some(self.splits[split].source);
        }
        Ok(read)
    }

    fn take_ready(
        &self,
        worker: usize,
        admitted: &[Admitted],
        taking: Taking,
    ) -> Option<Box<Stamped>> {
        let mut state = self.lock();
        let split = self.next_ready(&state, worker, admitted, taking)?;
        let source = self.splits[split].source;
        let limit = state.cut.limit(split);
        let s = &mut state.splits[split];
        let pick = match admitted[source] {
            // The batch that holds the low watermark, or windows could not fire; or the batch with
            // the awaited rows.
            Admitted::Lowest | Admitted::Awaited(_) => Some(0),
            _ => {
                let before_cut = s.ready.partition_point(|batch| batch.sequence < limit);
                self.env.choose(before_cut as u64).map(|pick| pick as usize)
            }
        };
        let batch = s.ready.remove(pick.unwrap_or(0))?;
        let (sequence, holds) = (batch.sequence, batch.holds);
        s.taken = s.taken.max(sequence + 1);
        state.current[worker] = Some(Current { source, split, sequence, holds });
        state.turns[worker] += 1;
        Some(Box::new(batch))
    }

    pub(crate) fn put_back(&self, worker: usize, batch: Box<Stamped>) {
        let mut state = self.lock();
        state.current[worker] = None;
        // It may have been taken for idle while its last batch was away: it holds the low watermark
        // again.
        state.splits[batch.split].idle = false;
        let ready = &mut state.splits[batch.split].ready;
        let place = |b: &Stamped| (b.sequence, b.first_row);
        let at = ready.partition_point(|b| place(b) < place(&batch));
        ready.insert(at, *batch);
    }
}
