//! Low watermarks: per source the least stamp of anything not yet taken or not yet finished.

use super::cut::Cut;
use super::source::{REACHED_MAX, SourceIn};
use super::split::SplitState;
use super::{Admitted, Intake, IntakeState, SplitIn};
use crate::error::{Error, Result};
use crate::network::{self, Head, IDLE};
use millstream_operators::event_time::{BEGINNING, END};

/// The clock is not looked at more often.
const AGAIN_US: i64 = 1_000;

impl Intake {
    /// Notes that `worker` has finished the batch it had taken, and tells the low watermark of
    /// each source. If one has passed the end of a window, all workers are woken to announce it.
    pub(crate) fn finish(&self, worker: usize, lows: &mut Vec<i64>) -> Result<()> {
        let mut state = self.lock();
        state.current[worker] = None;
        self.note_idle(&mut state);
        self.note_clock(&mut state);
        lows.clear();
        let (mut wakes, mut ended) = (self.note_cut(&mut state), Vec::new());
        for (source, of) in self.sources.iter().enumerate() {
            let low = self.low_of(&state, source);
            lows.push(low);
            let s = &mut state.sources[source];
            s.low = low;
            if low == END && !std::mem::replace(&mut s.logged, true) {
                ended.push(source);
            }
            if of.passes(s.woken, low) {
                s.woken = low;
                wakes = true;
            }
        }
        if let Some(net) = &self.net {
            self.tell(&mut state)?;
            self.tell_senders(net)?;
        }
        drop(state);
        ended.into_iter().for_each(|source| self.tell_end(source));
        if wakes {
            self.wake_all();
        }
        Ok(())
    }

    /// Splits that have been without data for their idle time.
    fn note_idle(&self, state: &mut IntakeState) {
        if self.sources.iter().all(|of| of.idle_timeout_us.is_none()) {
            return;
        }
        let now = self.env.now_us();
        for (split, s) in self.splits.iter().zip(&mut state.splits) {
            if let Some(timeout) = self.sources[split.source].idle_timeout_us {
                s.idle |= s.has_been_idle(timeout, now);
            }
        }
    }

    /// Of sources whose event time is the clock, the watermark goes on without records.
    fn note_clock(&self, state: &mut IntakeState) {
        if !self.sources.iter().any(|of| of.preparer.has_clock()) {
            return;
        }
        let now = self.env.now_us();
        for (split, s) in self.splits.iter().zip(&mut state.splits) {
            let preparer = &self.sources[split.source].preparer;
            if preparer.has_clock() {
                s.tick(now, |us| preparer.watermark_of_clock(us));
            }
        }
    }

    /// When the watermark of a source may go on although nothing comes.
    pub(super) fn changes_at(&self, state: &IntakeState, admitted: &[Admitted]) -> Option<i64> {
        [self.idle_at(state, admitted), self.clock_at(state)].into_iter().flatten().min()
    }

    /// When the clock will next let a window fire, of sources whose event time it is.
    fn clock_at(&self, state: &IntakeState) -> Option<i64> {
        let now = self.env.now_us();
        let clocks = self.sources.iter().enumerate().filter(|(_, of)| of.preparer.has_clock());
        let next = clocks.filter_map(|(source, of)| {
            let reads = self.splits_in(state, source).any(|s| !s.exhausted());
            let low = state.sources[source].low;
            let fires = of.windowings.iter().filter_map(|windowing| windowing.next_after(low));
            let at = fires.map(|watermark| of.preparer.clock_at(watermark)).min();
            // While an hour comes again, the clock is there before the watermark is.
            at.map(|at| at.max(now.saturating_add(AGAIN_US))).filter(|_| reads)
        });
        next.min()
    }

    /// When the next of the splits that may go on will count as idle if nothing comes.
    fn idle_at(&self, state: &IntakeState, admitted: &[Admitted]) -> Option<i64> {
        let idle_at = |(number, split): (usize, &SplitIn)| {
            let timeout_us = self.sources[split.source].idle_timeout_us?;
            let at = state.splits[number].idle_at(timeout_us);
            at.filter(|_| self.may_go_on(state, number, admitted))
        };
        self.splits.iter().enumerate().filter_map(idle_at).min()
    }

    fn splits_in<'s>(
        &'s self,
        state: &'s IntakeState,
        source: usize,
    ) -> impl Iterator<Item = &'s SplitState> + Clone {
        let splits = self.splits.iter().zip(&state.splits);
        splits.filter(move |(split, _)| split.source == source).map(|(_, s)| s)
    }

    pub(super) fn low_of(&self, state: &IntakeState, source: usize) -> i64 {
        let of = &state.sources[source];
        if let Cut::Reached { lows, .. } = &state.cut {
            return lows[source];
        }
        if of.closed {
            return END;
        }
        let low = match self.own_low(state, source) {
            // Only idle splits are left: they do not hold the watermark back, but only mates of the
            // source move it on.
            (low, true) => low.max(self.mates_low(state, source).unwrap_or(BEGINNING)),
            (low, false) => low,
        };
        // A split that was idle and has data again stands at or above what was announced.
        low.max(of.low)
    }

    /// How far this process has got with a source, and whether only idle splits are left.
    fn own_low(&self, state: &IntakeState, source: usize) -> (i64, bool) {
        let splits = self.splits_in(state, source);
        let active = splits.clone().filter(|s| !s.idle && !s.exhausted());
        let current = state.current.iter().flatten().filter(|current| current.source == source);
        let current = current.map(|current| current.holds);
        if let Some(low) = active.map(SplitState::low).chain(current).min() {
            return (low, false);
        }
        if splits.clone().all(SplitState::exhausted) {
            return (END, false);
        }
        (splits.map(|s| s.watermark).max().unwrap_or(BEGINNING), true)
    }

    /// Low watermark of the others: for `source` the other processes, and for further sources of
    /// the group all processes. The least among processes neither idle nor at their end; without
    /// such processes, the greatest of the idle.
    fn mates_low(&self, state: &IntakeState, source: usize) -> Option<i64> {
        let group = self.sources[source].group;
        let mates = (0..self.sources.len()).filter(|mate| self.sources[*mate].group == group);
        let lows = mates.flat_map(|mate| {
            let own = (mate != source).then(|| {
                let (low, idle) = self.own_low(state, mate);
                (low.max(state.sources[mate].low), idle)
            });
            own.into_iter().chain(self.others_lows(state, mate))
        });
        let lows = lows.filter(|(low, _)| *low < END);
        let active = lows.clone().filter(|(_, idle)| !idle).map(|(low, _)| low).min();
        active.or_else(|| lows.map(|(low, _)| low).max())
    }

    /// How far the other processes have got with a source, and whether they are idle.
    fn others_lows<'s>(
        &self,
        state: &'s IntakeState,
        source: usize,
    ) -> impl Iterator<Item = (i64, bool)> + Clone + 's {
        let own = self.net.as_ref().map(|net| net.place.process);
        let others = state.sources[source].others.iter().enumerate();
        others
            .filter(move |(process, _)| own.is_some_and(|own| *process != own))
            .map(|(_, low)| *low)
    }

    /// The least low watermark of the sources that feed, in the end, a common stage with this one.
    pub(super) fn low_of_group(&self, state: &IntakeState, source: usize) -> i64 {
        let group = self.sources[source].group;
        let sources = self.sources.iter().enumerate().filter(|(_, of)| of.group == group);
        sources.map(|(source, _)| self.low_of(state, source)).min().unwrap_or(END)
    }

    /// Tells the other processes how far this one is with sources that may be idle, and with those
    /// that are combined with such.
    fn tell(&self, state: &mut IntakeState) -> Result<()> {
        let Some(net) = &self.net else { return Ok(()) };
        for (source, of) in self.sources.iter().enumerate() {
            let may_be_idle = |mate: &SourceIn| mate.idle_timeout_us.is_some();
            if !self.sources.iter().any(|mate| mate.group == of.group && may_be_idle(mate)) {
                continue;
            }
            let idle = self.is_idle(state, source);
            let s = &mut state.sources[source];
            let (low, was_idle) = s.told;
            if idle != was_idle || of.passes(low, s.low) {
                s.told = (s.low, idle);
                net.broadcast(Head {
                    id: source as u32,
                    watermark: s.low,
                    flags: if idle { IDLE } else { 0 },
                    ..Head::new(network::Kind::Progress)
                })?;
            }
        }
        Ok(())
    }

    /// Another process tells how far it is with a source.
    pub(crate) fn note_progress(&self, process: usize, head: &Head) -> Result<()> {
        let mut state = self.lock();
        let source = state.sources.get_mut(head.id as usize);
        let unknown = || Error::Internal(format!("word of source {}, which is not there", head.id));
        let source = source.ok_or_else(unknown)?;
        let low = source.others[process].0.max(head.watermark);
        source.others[process] = (low, head.has(IDLE));
        drop(state);
        self.wake_all();
        Ok(())
    }

    /// The clock when the watermark of what was read of a source reached `watermark_us`, if it is
    /// known.
    pub(crate) fn reached_at(&self, source: usize, watermark_us: i64) -> Option<i64> {
        let state = self.lock();
        let reached = &state.sources[source].reached;
        let at = reached.partition_point(|(watermark, _)| *watermark < watermark_us);
        if at == 0 && reached.len() >= REACHED_MAX {
            return None;
        }
        reached.get(at).map(|(_, clock)| *clock)
    }

    /// Whether of a source only splits are left that have been without data for their idle time.
    pub(super) fn is_idle(&self, state: &IntakeState, source: usize) -> bool {
        if self.sources[source].idle_timeout_us.is_none() {
            return false;
        }
        let mut left = self.splits_in(state, source).filter(|s| !s.exhausted()).peekable();
        left.peek().is_some() && left.all(|s| s.idle)
    }
}
