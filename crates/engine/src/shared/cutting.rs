//! Begin and completion of a cut, in one process or several.
//!
//! The coordinator tells all processes that a cut begins. Each of them takes what comes before the
//! cut, seals, merges and fires it, and sets its state aside. No process takes a record behind the
//! cut before all have done so. Rows for the coordinator's outputs come over the same channel as
//! the notice that the process has set its state aside, and before it. The state is written when
//! the job goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Shared;
use crate::checkpoint::{Checkpoints, CutPart, CutTaken, OutputMark, add_marks};
use crate::error::{Error, Result};
use crate::gather::Gather;
use crate::network::{Head, JOINS, Kind, Net};
use crate::totals::Totals;
use millstream_operators::operator::saved::Cut;

/// The error of a message of another process that cannot be read.
fn unreadable(error: serde_json::Error) -> Error {
    Error::Internal(format!("a part of a cut: {error}"))
}

/// The error of a message that comes at the wrong time.
fn out_of_turn(kind: Kind) -> Error {
    Error::Internal(format!("a message of kind {kind:?} out of turn"))
}

impl Shared {
    /// The network of a job of several processes with checkpoints.
    fn partners(&self) -> Option<&Net> {
        let net = self.net.as_deref().filter(|net| net.place.processes > 1);
        net.filter(|_| self.checkpoints.is_some())
    }

    /// Begins a cut with a number above those before; not while another one is being taken, nor
    /// when all input has been read, nor in another process than the coordinator. Whether it has
    /// begun.
    pub(crate) fn begin_cut(&self, number: u64) -> Result<bool> {
        let partners = self.partners();
        let may = match partners {
            Some(net) => net.is_coordinator(),
            None => self.checkpoints.is_some() && self.intake.has_more(),
        };
        let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| may) else { return Ok(false) };
        let durable = checkpoints.durable();
        if !self.cuts.begin(Cut { number, durable }) {
            return Ok(false);
        }
        self.stops.begin(self.env.now_us());
        let joins = self.cut_has_joins();
        self.intake.begin_cut(partners.map_or(0, |net| net.place.processes - 1), joins);
        if let Some(net) = partners {
            let flags = if joins { JOINS } else { 0 };
            net.broadcast(Head { number, count: durable, flags, ..Head::new(Kind::Cut) })?;
        }
        Ok(true)
    }

    /// A worker has the state that the job before has saved, or, in the coordinator, all workers of
    /// another process have.
    pub(crate) fn note_restored(&self) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        if !self.cuts.note_restored() {
            return Ok(());
        }
        match self.partners().filter(|net| !net.is_coordinator()) {
            Some(net) => net.post(0, Head::new(Kind::Restored), Vec::new())?,
            None => {
                let news = checkpoints.restored().into_iter();
                news.for_each(|line| self.intake.notices().tell(line));
            }
        }
        Ok(())
    }

    /// Takes in a message about a cut.
    pub(super) fn take_cut_message(&self, process: usize, head: &Head, body: &[u8]) -> Result<()> {
        let (kind, number) = (head.kind, head.number);
        let net = self.partners().ok_or_else(|| out_of_turn(kind))?;
        let is_now = self.cuts.current() == Some(number);
        let cut = Cut { number, durable: head.count };
        match (kind, net.is_coordinator()) {
            (Kind::Cut, false) if process == 0 && self.cuts.begin(cut) => {
                self.stops.begin(self.env.now_us());
                let body = self.intake.begin_cut(1, head.has(JOINS));
                net.post(0, Head { number, ..Head::new(Kind::CutAt) }, body)?;
            }
            (Kind::CutAt, coordinates) if is_now && (coordinates || process == 0) => {
                let all = self.intake.note_cut_at(body)?.filter(|_| coordinates);
                for to in (1..net.place.processes).filter(|_| all.is_some()) {
                    net.post(to, *head, all.clone().unwrap_or_default())?;
                }
            }
            (Kind::Saved, true) if is_now => {
                let part = serde_json::from_slice(body).map_err(unreadable)?;
                self.cuts.note_part(process, part);
                self.wake_all();
            }
            (Kind::PartSaved, true) => {
                let mut checkpoints = self.checkpoints.iter();
                checkpoints.try_for_each(|of| of.part_written(number, process, body))?;
            }
            (Kind::EndCut, false) if process == 0 && is_now => {
                self.end_cut(head.has(JOINS));
            }
            (Kind::Restored, true) => self.note_restored()?,
            (Kind::Over, true) => {
                self.cuts.note_other_over(number);
                self.wake_all();
            }
            (Kind::Over, false) if process == 0 => {
                self.cuts.close();
                self.wake_all();
            }
            _ => return Err(out_of_turn(kind)),
        }
        Ok(())
    }

    /// A worker has nothing left to do. Whether it may end: not while cuts may still come.
    pub(crate) fn may_end(&self, worker: usize) -> Result<bool> {
        let Some(net) = self.partners() else { return Ok(self.cuts.may_end()) };
        if let Some(number) = self.cuts.note_over(worker) {
            let head = Head { number, ..Head::new(Kind::Over) };
            match net.is_coordinator() {
                true => net.broadcast(head)?,
                false => net.post(0, head, Vec::new())?,
            }
            self.wake_all();
        }
        Ok(self.cuts.is_closed())
    }

    /// All workers have set their state aside, and the other processes: outputs end their interval,
    /// and the cut is handed over. Then the job goes on, when the coordinator says so.
    pub(crate) fn complete_cut(self: &Arc<Shared>, number: u64) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        self.stops.end_part(1, self.env.now_us());
        let partners = self.partners();
        if let Some(net) = partners.filter(|net| !net.is_coordinator()) {
            return self.write_part(number, net, &**checkpoints);
        }
        let parts = self.cuts.take_parts();
        let others = parts.len();
        let cut = match self.gathers.iter().any(Gather::fails_later) {
            true => None,
            false => Some(self.cut_taken(number, parts)?),
        };
        self.cuts.note_handed();
        // A job that stops at the cut, or has new splits from the cut on, computes no row behind it
        // before it is written.
        self.cuts.begin_write();
        let goes_on = match cut {
            Some(cut) => checkpoints.complete(cut)?,
            None => {
                checkpoints.given_up(number, others);
                true
            }
        };
        if goes_on { self.go_on(number, false) } else { Ok(()) }
    }

    /// The job goes on behind a cut that has been handed over. `joins`: new splits are part of the
    /// cut, and it is durable.
    pub(crate) fn go_on(&self, number: u64, joins: bool) -> Result<()> {
        self.cuts.end_write();
        if self.cuts.current() != Some(number) {
            // The job has ended.
            return Ok(());
        }
        if let Some(net) = self.partners() {
            let flags = if joins { JOINS } else { 0 };
            net.broadcast(Head { number, flags, ..Head::new(Kind::EndCut) })?;
        }
        self.end_cut(joins);
        Ok(())
    }

    /// The job goes on behind a cut.
    fn end_cut(&self, joins: bool) {
        self.gathers.iter().for_each(Gather::go_on);
        self.intake.end_cut(joins);
        if let Some(number) = self.cuts.current() {
            self.stops.end(number, self.env.now_us());
        }
        self.cuts.end();
        // A split may have ended meanwhile, and a worker may have waited with its end.
        self.queue_batches();
        self.wake_all();
    }

    /// The part of this process in a cut: the coordinator is told where the process stands, and
    /// later that the state is written.
    fn write_part(
        self: &Arc<Shared>,
        number: u64,
        net: &Net,
        checkpoints: &dyn Checkpoints,
    ) -> Result<()> {
        let prepared = self.gathers.iter().map(|gather| gather.sink().prepare(number));
        let prepared = prepared.collect::<Result<_>>()?;
        let joins = self.intake.record_joins()?;
        let (marks, frontiers) = (self.intake.marks()?, self.cuts.frontiers()?);
        let part = CutPart { marks, frontiers, totals: self.totals_at_cut(), joins };
        let part = serde_json::to_vec(&part).map_err(unreadable)?;
        self.cuts.begin_write();
        net.post(0, Head { number, ..Head::new(Kind::Saved) }, part)?;
        let shared = self.clone();
        let written = move |part: Result<Vec<u8>>| {
            let head = Head { number, ..Head::new(Kind::PartSaved) };
            let posted = match (part, &shared.net) {
                (Ok(part), Some(net)) => net.post(0, head, part),
                (part, _) => part.map(|_| ()),
            };
            // The job may have ended: then its end takes the part along.
            if let Err(error) = posted
                && !shared.stopping.load(Relaxed)
            {
                shared.stop(Some(error));
            }
            shared.cuts.end_write();
            shared.wake_all();
        };
        self.cuts.note_handed();
        checkpoints.part(number, prepared, Box::new(written))
    }

    /// Counts of this process up to the cut, and of the runs before.
    fn totals_at_cut(&self) -> Totals {
        let mut totals = self.cuts.totals();
        totals.rows = self.counted().rows;
        totals.add(&self.before);
        totals
    }

    fn cut_taken(&self, number: u64, parts: Vec<CutPart>) -> Result<CutTaken> {
        let names = self.intake.split_names();
        let outputs = self.gathers.iter().map(|gather| gather.mark(&names));
        let outputs: Vec<OutputMark> = outputs.collect::<Result<_>>()?;
        let prepared = self.gathers.iter().map(|gather| gather.sink().prepare(number));
        let joins = self.intake.record_joins()? || parts.iter().any(|part| part.joins);
        let mut cut = CutTaken {
            number,
            joins,
            started_us: self.started_us,
            marks: self.intake.marks()?,
            frontiers: self.cuts.frontiers()?,
            windowings: self.stages.iter().map(|of| of.program.shown_windowing()).collect(),
            layouts: self.layouts.clone(),
            outputs,
            prepared: prepared.collect::<Result<_>>()?,
            others: parts.len(),
            lookups: self.edges.side_files(),
            totals: self.totals_at_cut(),
        };
        for part in parts {
            if part.frontiers != cut.frontiers {
                let (own, theirs) = (&cut.frontiers, part.frontiers);
                let message = format!("processes at a cut have fired up to {own:?} and {theirs:?}");
                return Err(Error::Internal(message));
            }
            add_marks(&mut cut.marks, part.marks)?;
            cut.totals.add(&part.totals);
        }
        Ok(cut)
    }
}
