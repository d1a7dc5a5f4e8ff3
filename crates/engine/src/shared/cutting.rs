//! Begin and completion of a cut.

use super::Shared;
use crate::checkpoint::{CutTaken, OutputMark};
use crate::error::Result;
use crate::gather::Gather;

impl Shared {
    /// Begins a cut with a number above those before; not while another one is being taken, nor
    /// when all input has been read. Whether it has begun.
    pub(crate) fn begin_cut(&self, number: u64) -> bool {
        // At the end workers may be gone already.
        if self.cuts.has_begun() || !self.intake.has_more() {
            return false;
        }
        self.cuts.begin(number);
        self.intake.begin_cut();
        true
    }

    /// All workers have saved their state: outputs end their interval, the cut is handed over, and
    /// the job goes on.
    pub(crate) fn complete_cut(&self) -> Result<()> {
        let number = self.cuts.number();
        let prepare = |gather: &Gather| gather.sink().prepare(number);
        let prepared = self.gathers.iter().map(prepare).collect::<Result<_>>()?;
        let (marks, frontiers) = (self.intake.marks()?, self.cuts.frontiers()?);
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.complete(CutTaken {
                number,
                started_us: self.started_us,
                marks,
                frontiers,
                layouts: self.layouts.clone(),
                outputs: vec![OutputMark::default(); self.gathers.len()],
                prepared,
            })?;
        }
        self.cuts.end();
        self.intake.end_cut();
        Ok(())
    }
}
