//! Splits that join a running job ([`Table::added_splits`]).
//!
//! A source whose table may grow has *spare* splits, which stand behind the splits of all sources.
//! A spare split counts as read elsewhere until it is given to a process, which opens the new split
//! ([`Intake::install`]). Without checkpoints the split is read from then on. With checkpoints its
//! mark is part of the next cut, and it is read once that cut is durable: a job that goes on from
//! an earlier cut has not read any of its records.
//!
//! The split begins with the low watermark of its process, as windows up to there may have fired.
//! So only a process that reads the source takes new splits of it: another one has announced the
//! end of the source.
//!
//! [`Table::added_splits`]: crate::table::Table::added_splits

use std::sync::PoisonError;

use super::split::Joining;
use super::{Intake, IntakeState};
use crate::error::Result;
use crate::network::{self, Head};
use crate::table::{Sharing, Split};
use millstream_operators::event_time::END;

impl Intake {
    /// A source's table.
    pub(crate) fn table(&self, source: usize) -> &str {
        &self.sources[source].name
    }

    /// The spare splits of a source.
    pub(crate) fn spare_splits(&self, source: usize) -> impl Iterator<Item = usize> {
        self.splits_of(source).filter(|split| *split >= self.spare_from)
    }

    /// The process that is to read a spare split, in turn of those that read its source; `None` if
    /// nothing of the source is read any more.
    pub(crate) fn reader_of(&self, spare: usize) -> Option<usize> {
        let state = self.lock();
        let source = self.splits[spare].source;
        if state.sources[source].closed || state.splits.iter().any(|s| s.draining.requested) {
            return None;
        }
        let is_read = |split: &usize| {
            let s = &state.splits[*split];
            *split < self.spare_from && !s.ended && s.ended_elsewhere.is_none()
        };
        let mut readers: Vec<usize> =
            self.splits_of(source).filter(is_read).map(|s| s % self.reading.processes).collect();
        readers.sort_unstable();
        readers.dedup();
        let turn = spare.checked_rem(readers.len())?;
        readers.get(turn).copied()
    }

    /// A spare split of this process is being opened. False if nothing more is to be read.
    pub(crate) fn begin_to_open(&self, split: usize) -> Result<bool> {
        let mut state = self.lock();
        let s = &mut state.splits[split];
        if s.draining.requested {
            return self.tell_without_chunks(&mut state, split).map(|()| false);
        }
        s.joining = Some(Joining::Opening);
        Ok(true)
    }

    /// Gives a spare split that was opened to its readers: at once, or with the next cut (`waits`).
    pub(crate) fn install(&self, split: usize, new: Box<dyn Split>, waits: bool) -> Result<()> {
        debug_assert_eq!(new.sharing(), Sharing::Whole);
        let spare = &self.splits[split];
        let position = new.position();
        *spare.reader.lock().unwrap_or_else(PoisonError::into_inner) = new;
        let mut state = self.lock();
        // Nothing more may be read by now.
        if state.splits[split].joining != Some(Joining::Opening) {
            return Ok(());
        }
        state.splits[split].open(position);
        if !waits {
            self.record(&mut state, split)?;
            state.splits[split].join(self.env.now_us());
        }
        drop(state);
        self.wake_all();
        Ok(())
    }

    /// A spare split has been given to a process.
    pub(crate) fn note_joined(&self, split: usize, name: &str) {
        self.splits[split].name.get_or_init(|| name.to_string());
    }

    /// Fixes where a split begins that was opened.
    fn record(&self, state: &mut IntakeState, split: usize) -> Result<()> {
        let source = self.splits[split].source;
        let low = self.low_of(state, source);
        let clocks = self.splits_of(source).map(|split| state.splits[split].latest_clock());
        let clock_us = clocks.max().unwrap_or(i64::MIN);
        let s = &mut state.splits[split];
        if low == END {
            // The source has ended for this process: nothing joins any more.
            s.joining = None;
            return self.tell_without_chunks(state, split);
        }
        s.joining = Some(Joining::Recorded);
        s.begin_at(low, clock_us);
        Ok(())
    }

    /// The splits that were opened are part of the cut at which all workers stand, if it may have
    /// any. Whether there are such splits.
    pub(crate) fn record_joins(&self) -> Result<bool> {
        let mut state = self.lock();
        let opened = |split: &usize| state.splits[*split].joining == Some(Joining::Opened);
        let opened: Vec<usize> = (self.spare_from..self.splits.len()).filter(opened).collect();
        if opened.is_empty() || !state.cut_has_joins {
            return Ok(false);
        }
        opened.iter().try_for_each(|split| self.record(&mut state, *split))?;
        let recorded = |split: &usize| state.splits[*split].joining == Some(Joining::Recorded);
        Ok(opened.iter().any(recorded))
    }

    /// The cut with the marks of new splits is durable, and their readers may begin; or it is not.
    pub(super) fn end_joins(&self, state: &mut IntakeState, is_durable: bool) {
        let now_us = self.env.now_us();
        for s in &mut state.splits[self.spare_from..] {
            if s.joining == Some(Joining::Recorded) {
                match is_durable {
                    true => s.join(now_us),
                    false => s.joining = Some(Joining::Opened),
                }
            }
        }
    }

    /// Nothing more is to be read: spare splits have no chunks.
    pub(super) fn drain_spare(&self, state: &mut IntakeState) -> Result<()> {
        for split in self.spare_from..self.splits.len() {
            let is_given = self.splits[split].name.get().is_some();
            let s = &mut state.splits[split];
            if std::mem::take(&mut s.joining).is_some() {
                self.tell_without_chunks(state, split)?;
            } else if s.elsewhere && !is_given {
                s.ended_elsewhere = Some(0);
            }
        }
        Ok(())
    }

    /// Tells the other processes that a split of this process ends before its first chunk.
    fn tell_without_chunks(&self, state: &mut IntakeState, split: usize) -> Result<()> {
        state.splits[split].ended_elsewhere = Some(0);
        match &self.net {
            Some(net) => {
                net.broadcast(Head { id: split as u32, ..Head::new(network::Kind::Ended) })
            }
            None => Ok(()),
        }
    }
}
