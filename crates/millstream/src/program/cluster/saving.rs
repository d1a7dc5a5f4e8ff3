//! The checkpoints of a query, in one of its processes.

use std::sync::Arc;
use std::time::Duration;

use millstream_checkpoint::{Opened, Others, Saver, Timer};
use millstream_contract::Result;
use millstream_contract::table::JobMarks;
use millstream_engine::{Checkpoints, Resume, Stopper};

/// The checkpoints of a query that is about to run.
pub(super) struct Saving {
    pub(super) saver: Arc<Saver>,
    resume: Resume,
    pub(super) every: Duration,
    /// The query's part here, once it is connected.
    pub(super) stopper: Option<Stopper>,
    /// Reports of the other processes at the end.
    pub(super) others: Vec<Others>,
    pub(super) remarks: Vec<String>,
}

impl Saving {
    pub(super) fn new(opened: Opened, every: Duration) -> Saving {
        let Opened { saver, resume, remarks, .. } = opened;
        Saving { saver, resume, every, stopper: None, others: Vec::new(), remarks }
    }

    pub(super) fn from(&self) -> (&Resume, Option<Arc<dyn Checkpoints>>) {
        (&self.resume, Some(self.saver.clone()))
    }

    pub(super) fn timer(&self, stopper: Stopper) -> Result<Timer> {
        Timer::start(self.saver.clone(), stopper, self.every)
    }

    pub(super) fn marks(&self) -> Result<JobMarks> {
        self.stopper.as_ref().map_or_else(|| Ok(JobMarks::new()), Stopper::marks)
    }
}
