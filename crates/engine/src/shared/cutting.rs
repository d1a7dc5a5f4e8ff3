//! Begin and completion of a cut.

use super::Shared;
use crate::checkpoint::{CutTaken, OutputMark};
use crate::error::Result;
use crate::gather::Gather;

impl Shared {
    /// Begins a cut with a number above those before; not while another one is being taken, nor
    /// when all input has been read. Whether it has begun.
    pub(crate) fn begin_cut(&self, number: u64) -> bool {
        let begins =
            self.checkpoints.is_some() && self.intake.has_more() && self.cuts.begin(number);
        if begins {
            self.stops.begin(self.env.now_us());
            self.intake.begin_cut();
        }
        begins
    }

    /// All workers have saved their state: outputs end their interval, the cut is handed over, and
    /// the job goes on.
    pub(crate) fn complete_cut(&self) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        self.stops.end_part(1, self.env.now_us());
        let completed = match self.gathers.iter().any(Gather::fails_later) {
            true => {
                checkpoints.given_up(self.cuts.number());
                Ok(())
            }
            false => checkpoints.complete(self.cut_taken()?),
        };
        self.gathers.iter().for_each(Gather::go_on);
        self.intake.end_cut();
        self.stops.end(self.cuts.number(), self.env.now_us());
        self.cuts.end();
        // A split may have ended meanwhile, and a worker may have waited with its end.
        self.queue_batches();
        self.wake_all();
        completed
    }

    fn cut_taken(&self) -> Result<CutTaken> {
        let number = self.cuts.number();
        let names = self.intake.split_names();
        let outputs = self.gathers.iter().map(|gather| gather.mark(&names));
        let outputs: Vec<OutputMark> = outputs.collect::<Result<_>>()?;
        let prepared = self.gathers.iter().map(|gather| gather.sink().prepare(number));
        Ok(CutTaken {
            number,
            started_us: self.started_us,
            marks: self.intake.marks()?,
            frontiers: self.cuts.frontiers()?,
            layouts: self.layouts.clone(),
            outputs,
            prepared: prepared.collect::<Result<_>>()?,
        })
    }
}
