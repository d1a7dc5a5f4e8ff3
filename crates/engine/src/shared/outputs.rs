//! Outputs as all workers see them: rows that are written, and outputs that have ended.

use std::sync::PoisonError;

use super::Shared;
use crate::edges::{Feeds, Root};
use crate::error::{Error, Result};
use crate::gather::{Gather, OutputWindow};
use crate::network::{Head, Kind as MessageKind, LAST};
use crate::stats::{OutputStats, Stats};
use millstream_operators::budget::Kind;

impl Shared {
    /// Handles the result of giving rows to an output, whose reader may have gone. In a process
    /// that writes its own rows this is an error, since no message can tell the other processes.
    pub(crate) fn ends(&self, output: usize, came: Result<()>) -> Result<()> {
        let is_coordinator = self.net.as_ref().is_none_or(|net| net.is_coordinator());
        match came {
            Err(Error::OutputClosed) if is_coordinator => self.end_output(output),
            came => came,
        }
    }

    /// An output takes no more rows. Sources that only it wanted are not read any further, and when
    /// all outputs have ended the job does. The coordinator tells the others.
    pub(crate) fn end_output(&self, output: usize) -> Result<()> {
        if !self.gathers[output].end() {
            return Ok(());
        }
        if let Some(net) = self.net.as_ref().filter(|net| net.is_coordinator()) {
            let all = self.has_ended();
            let (output, flags) = (output as u16, if all { LAST } else { 0 });
            net.broadcast(Head { output, flags, ..Head::new(MessageKind::Enough) })?;
        }
        self.close_unwanted();
        Ok(())
    }

    /// No output takes any more rows, so the job ends.
    pub(crate) fn end_outputs(&self) -> Result<()> {
        (0..self.gathers.len()).try_for_each(|output| self.end_output(output))
    }

    /// Closes sources without an output that needs more rows; without such sources, ends the job.
    pub(crate) fn close_unwanted(&self) {
        if self.has_ended() {
            return self.stop(None);
        }
        for (source, feeds) in self.edges.sources.iter().enumerate() {
            if !self.is_wanted(feeds) {
                self.intake.close(source);
            }
        }
    }

    /// Whether all outputs have ended but those for whose sake nothing is read.
    fn has_ended(&self) -> bool {
        self.gathers.iter().filter(|gather| !gather.is_side()).all(Gather::has_ended)
    }

    /// Whether some output wants what comes of some rows.
    pub(crate) fn is_wanted(&self, feeds: &Feeds) -> bool {
        feeds.serves.iter().any(|output| !self.gathers[*output].has_ended())
    }

    /// Counters of written rows so far.
    pub(crate) fn counted(&self) -> Stats {
        let of = |gather: &Gather| OutputStats {
            rows: gather.rows(),
            windows: gather.windows(),
            side: gather.is_side(),
        };
        Stats::of_outputs(self.gathers.iter().map(of).collect())
    }

    /// Queues rows of records whose turn it is, which may be since a split has ended.
    pub(crate) fn queue_batches(&self) {
        let mut takes = self.gathers.iter().filter(|gather| gather.takes_batches()).peekable();
        if takes.peek().is_some() {
            let ended = self.intake.ended_splits();
            takes.for_each(|gather| gather.queue_batches(&ended));
        }
    }

    /// Whether rows of some output have their turn, and no worker writes.
    pub(crate) fn needs_writer(&self) -> bool {
        self.gathers.iter().any(Gather::needs_writer)
    }

    /// Bytes of rows that are being written or about to be.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.gathers.iter().map(Gather::queued_bytes).sum()
    }

    /// Writes a share of each output's rows that have their turn; returns how many windows every
    /// leader's rows have been written of now, or `None` if nothing waited for a writer.
    pub(crate) fn write_shares(&self, worker: usize) -> Result<Option<u64>> {
        let mut windows = None;
        for gather in self.gathers.iter().filter(|gather| gather.needs_writer()) {
            let windows = windows.get_or_insert(0);
            match gather.write_share(worker) {
                Ok(written) => {
                    *windows += written.windows.len() as u64;
                    self.note_windows(gather.output(), &written.windows);
                    if written.enough {
                        self.end_output(gather.output())?;
                    }
                }
                Err(error) => self.ends(gather.output(), Err(error))?,
            }
        }
        Ok(windows)
    }

    /// Checks the room for rows that wait for their turn, also for rows of other processes. Stages
    /// check the room for growing tables.
    pub(crate) fn check_gathered(&self) -> Result<()> {
        // What is being written will be free.
        let exceeded = self.budget.is_exceeded_beside(self.queued_bytes());
        if !exceeded || self.budget.held(Kind::Segments) > 0 {
            return Ok(());
        }
        self.budget.check().map(|_| ())
    }

    /// Windows of an output have been written.
    fn note_windows(&self, output: usize, windows: &[OutputWindow]) {
        if !windows.is_empty() && self.budget.tight() {
            // Wakes workers that wait for the memory.
            self.wake_all();
        }
        for OutputWindow { fires_at, input, .. } in windows {
            let Some(Root::Stage(stage)) = self.edges.outputs[output].get(*input) else { continue };
            let Some(at) = self.reached_at(*stage, *fires_at) else { continue };
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.add((self.env.now_us() - at).max(0) as u64);
        }
    }

    /// When the records had been read that let a stage fire up to a watermark, if it is known.
    fn reached_at(&self, stage: usize, watermark: i64) -> Option<i64> {
        let reached = |root: &Root| match root {
            Root::Source(source) => self.intake.reached_at(*source, watermark),
            Root::Stage(before) => {
                let frontier = self.stages[*before].windowing().frontier_for(watermark);
                self.reached_at(*before, frontier)
            }
        };
        let all: Option<Vec<i64>> = self.stages[stage].inputs.iter().map(reached).collect();
        all?.into_iter().max()
    }
}
