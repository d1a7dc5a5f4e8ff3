//! Epochs: when one ends, what is sealed and shipped then, and how a leader merges what it receives
//! (paper, section 7.2.2).

use std::collections::VecDeque;

use millstream_state::Segment;

use super::state::Owed;
use super::{Message, State, Worker};
use crate::budget::{Held, Kind};
use crate::cluster::{GO_ON, MERGED, Sealed};
use crate::error::{Error, Result};
use crate::event_time::END;
use crate::meter;
use crate::slices::{Parcel, PassedRows, SealSlice};

/// The changes of one epoch of a stage for one leader.
pub(crate) struct Delta {
    stage: usize,
    from: usize,
    /// Deltas of a helper are merged in order, each once.
    epoch: u64,
    watermark: i64,
    segments: VecDeque<(i64, Segment)>,
    passed: VecDeque<PassedRows>,
    /// Its part of the job's budget, if it holds any segment: an empty one needs no credit.
    held: Option<Held>,
}

impl Delta {
    /// The number of its stage.
    pub(super) fn stage(&self) -> usize {
        self.stage
    }

    /// Where the windows begin that it has rows of.
    pub(super) fn starts(&self) -> impl Iterator<Item = i64> {
        let passed = self.passed.iter().map(|rows| rows.start);
        self.segments.iter().map(|(start, _)| *start).chain(passed)
    }
}

/// What is sealed at the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seal {
    /// All there is.
    Everything,
    /// Windows that the watermark has passed. What later windows have so far would be shipped in
    /// two parts, and merged twice, for nothing: it stays until its own window is complete, or the
    /// epoch long enough.
    Complete,
    /// Those, and what later windows have passed through: it gains nothing by waiting, and is
    /// merged while it lies in a cache.
    PassedThrough,
}

impl Worker {
    /// Whether the epoch is over, and what is to be sealed then.
    pub(super) fn epoch_is_over(&self, state: &State) -> Option<Seal> {
        let settings = &self.shared.settings;
        let limits = &state.stage.limits;
        if state.low == END {
            return (state.announced != END).then_some(Seal::Everything);
        }
        let changed = state.changed_at_us.is_some_and(|at| {
            let idle_us = settings.epoch_max_idle_us();
            state.epoch_input_bytes >= settings.epoch_bytes
                || state.usage.largest_fragment_bytes >= limits.fragment_bytes
                || self.shared.env.now_us() >= at + idle_us
                || self.shared.env.choose(16) == Some(0)
        });
        if changed {
            return Some(Seal::Everything);
        }
        if state.usage.largest_passed_bytes >= limits.passed_bytes()
            || state.usage.largest_kept_bytes >= limits.kept_bytes()
        {
            return Some(Seal::PassedThrough);
        }
        // A window may fire.
        (state.passed(state.low) > state.passed(state.announced)).then_some(Seal::Complete)
    }

    /// Ends the epoch: seals fragments and ships them to their leaders, with the watermark that
    /// this brings the leaders up to. Leaders without changes get the header alone.
    pub(super) fn end_epoch(
        &mut self,
        state: &mut State,
        watermark: i64,
        seal: Seal,
    ) -> Result<()> {
        let windowing = *state.stage.windowing();
        let how = |slice| match seal {
            Seal::Everything => SealSlice::EndEpoch,
            _ if windowing.closes_at(slice) <= watermark => SealSlice::EndEpoch,
            Seal::PassedThrough => SealSlice::PassedThrough,
            Seal::Complete => SealSlice::Nothing,
        };
        let _span = meter::span(meter::Kind::Seal);
        let mut shipped = 0;
        if state.slices.may_join()
            && let Some(choice) = self.shared.env.choose(8)
        {
            state.slices.join(choice);
        }
        let parcels = state.slices.seal(how, self.shared.budget.tight());
        // What has been sealed counts as segments from now on, all of it before any is sent.
        self.note_usage(state);
        let held = |parcel: Parcel| {
            let credited = !parcel.is_empty();
            (credited.then(|| self.shared.budget.hold(Kind::Segments, parcel.bytes())), parcel)
        };
        let deltas: Vec<_> = parcels.into_iter().map(held).collect();
        for (leader, (held, parcel)) in deltas.into_iter().enumerate() {
            if leader == self.leader {
                continue;
            }
            self.stats.segments_shipped += parcel.segments.len() as u64;
            let Some(local) = self.shared.local(leader) else {
                // Those that are passed through are counted when they are sent.
                let rows = parcel.segments.iter().map(|(_, segment)| segment.rows() as u64);
                shipped += rows.sum::<u64>();
                let worker = self.id;
                let sealed = Sealed { worker, parcel, held, watermark };
                self.ship(state, leader, sealed)?;
                continue;
            };
            shipped += parcel.rows() as u64;
            state.in_flight[local] += usize::from(held.is_some());
            let (from, epoch, stage) = (self.id, state.epoch, state.stage.number);
            let (segments, passed) = (parcel.segments.into(), parcel.passed.into());
            let delta = Delta { stage, from, epoch, watermark, segments, passed, held };
            self.shared.send(local, Message::Delta(delta));
        }
        self.stats.rows_shipped += shipped;
        self.stats.epochs += 1;
        self.stats.empty_epochs += u64::from(state.changed_at_us.is_none());
        state.clock.advance(self.id, watermark);
        state.epoch += 1;
        state.announced = state.announced.max(watermark);
        let nothing_left = seal == Seal::Everything || !state.slices.has_fragment_rows();
        if nothing_left {
            state.changed_at_us = None;
        }
        if nothing_left && seal != Seal::PassedThrough {
            state.epoch_input_bytes = 0;
        }
        Ok(())
    }

    /// Merges one received segment; true if there was anything to do.
    pub(super) fn merge_one(&mut self, stages: &mut [State]) -> Result<bool> {
        let Some(message) = self.inbox.front_mut() else { return Ok(false) };
        let delta = match message {
            Message::Credit { stage, leader } => {
                stages[*stage].in_flight[*leader] -= 1;
                self.inbox.pop_front();
                return Ok(true);
            }
            Message::Delta(delta) => delta,
        };
        let state = &mut stages[delta.stage];
        if delta.epoch != state.expected[delta.from] {
            let (from, expected) = (delta.from, state.expected[delta.from]);
            let message = format!("epoch {} of worker {from}, not {expected}", delta.epoch);
            return Err(Error::Internal(message));
        }
        if let Some((start, segment)) = delta.segments.pop_front() {
            if state.stage.windowing().drops_at(start) <= state.frontier {
                return Err(Error::Internal(format!("state for the fired window {start}")));
            }
            let mut span = meter::span(meter::Kind::Merge);
            span.add(segment.rows());
            match state.slices.merge(start, segment) {
                true => self.stats.adoptions += 1,
                false => self.stats.merges += 1,
            }
            state.uncounted += 1;
            if state.uncounted >= state.stage.limits.tables_max {
                self.note_usage(state);
            }
            return Ok(true);
        }
        if let Some(rows) = delta.passed.pop_front() {
            let announced = state.clock.of(delta.from);
            let bytes = rows.bytes();
            state.take_passed(rows, announced)?;
            self.note_merge(bytes, state)?;
            return Ok(true);
        }
        state.expected[delta.from] += 1;
        state.clock.advance(delta.from, delta.watermark);
        let changed = delta.held.take().is_some();
        if changed {
            state.owed.push(Owed { helper: delta.from, told: false });
        }
        self.inbox.pop_front();
        if changed {
            self.note_usage(state);
            // The next delta may open as many windows as this one, not as all since the last batch.
            state.slices.begin_batch();
        }
        Ok(true)
    }

    /// Returns credit for what has been merged, unless windows wait to be fired: their state would
    /// pile up if the others went on. So it would, under scarce memory, if processes did that are
    /// windows ahead of the slowest one, which alone lets windows fire; that one always gets its
    /// credit. Other processes are told at once that the memory is free: they may need it to fire.
    pub(super) fn return_credit(&self, state: &mut State) -> Result<()> {
        if state.owed.is_empty() {
            return Ok(());
        }
        let low = state.clock.min();
        let fires = state.complete().is_some();
        let (workers, tight) = (self.shared.settings.workers, self.shared.budget.tight());
        let (mut result, clock, stage) = (Ok(()), &state.clock, &state.stage);
        let passed = |watermark| stage.windowing().passed(watermark);
        state.owed.retain_mut(|owed| {
            let process = owed.helper.checked_sub(workers);
            let is_ahead = || passed(clock.of(owed.helper)) > passed(low);
            let waits = fires || process.is_some() && tight && is_ahead();
            let flags = if owed.told { 0 } else { MERGED } | if waits { 0 } else { GO_ON };
            match process {
                Some(process) if flags != 0 && result.is_ok() => {
                    result = self.return_credit_to(process, stage.number, flags);
                }
                None if !waits => {
                    let credit = Message::Credit { stage: stage.number, leader: self.id };
                    self.shared.send(owed.helper, credit);
                }
                _ => {}
            }
            owed.told = true;
            waits
        });
        result
    }
}
