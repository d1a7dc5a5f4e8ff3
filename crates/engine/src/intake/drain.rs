//! Draining: nothing more is to be read, and what has been read or accepted counts.
//!
//! A split that one process reads ends there, once it has handed out what it has accepted
//! ([`Split::drain`]), and that process says after how many chunks. A split of which all processes
//! read every chunk, and decode some, has to end at the same chunk everywhere. So each of them says
//! how many it has read and stops; the most that one has read is where it ends, and the others read
//! on until there. A process whose split has come to its end by itself says so, too: it may be gone
//! when others are asked to drain.
//!
//! [`Split::drain`]: crate::table::Split::drain

use std::sync::{Arc, PoisonError};

use super::{Intake, IntakeState, SplitIn};
use crate::error::{Error, Result};
use crate::network::{self, Head, Net};

impl Intake {
    /// The other processes, if they read this split, too.
    pub(super) fn others_of(&self, split: usize) -> Option<&Arc<Net>> {
        self.net.as_ref().filter(|_| self.splits[split].by_chunk)
    }

    /// Reads no more than what has been accepted and what other processes have read: that is taken,
    /// and then every source has ended.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut state = self.lock();
        self.drain_spare(&mut state)?;
        state.splits.iter_mut().for_each(|s| s.draining.requested = true);
        let all = 0..self.splits.len();
        let settled = all.into_iter().try_for_each(|split| self.settle(&mut state, split));
        drop(state);
        self.wake_all();
        settled
    }

    /// Ends a split that is to be drained, unless a worker reads from it just now: a chunk that the
    /// worker finds still counts. Tells the other processes once the split has ended or, for a
    /// split that all processes read, how far this process has read.
    pub(super) fn settle(&self, state: &mut IntakeState, split: usize) -> Result<()> {
        let s = &mut state.splits[split];
        if s.reading || s.elsewhere || s.closed {
            return Ok(());
        }
        let head = |kind, count| Head { id: split as u32, count, ..Head::new(kind) };
        if let Some(net) = self.others_of(split) {
            let stops = s.ended || s.draining.requested;
            if stops && !std::mem::replace(&mut s.draining.told, true) {
                s.draining.note(net.place.process, s.read);
                net.broadcast(head(network::Kind::ReadTo, s.read))?;
            }
            let all = s.draining.stopped.len() == self.reading.processes;
            s.ended |= s.draining.requested && all && s.read >= s.draining.chunks;
            return Ok(());
        }
        let asks = s.draining.requested && !s.ended;
        if asks && !std::mem::replace(&mut s.draining.said, true) {
            // Nobody holds it: whoever reads has said so.
            let reader = &self.splits[split].reader;
            let goes_on = reader.lock().unwrap_or_else(PoisonError::into_inner).drain();
            s.ended = !goes_on;
            (s.retry_at_us, s.pending) = (i64::MIN, false);
            // Somebody has to look once more.
            self.wake_all();
        }
        if let Some(net) = self.net.as_ref().filter(|_| s.ended)
            && !std::mem::replace(&mut s.draining.told, true)
        {
            net.broadcast(head(network::Kind::Ended, s.read))?;
        }
        Ok(())
    }

    /// Another process has stopped to read a split that all read, after so many chunks.
    pub(crate) fn note_read_to(&self, process: usize, head: &Head) -> Result<()> {
        let split = self.checked(head)?;
        let SplitIn { by_chunk, .. } = &self.splits[split];
        let mut state = self.lock();
        let s = &mut state.splits[split];
        if !by_chunk || s.draining.stopped.contains(&process) {
            return Err(Error::Internal(format!("where it stops to read split {split}, again")));
        }
        s.draining.note(process, head.count);
        self.settle(&mut state, split)?;
        drop(state);
        self.wake_all();
        Ok(())
    }
}
