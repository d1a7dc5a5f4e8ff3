//! The contract of a job with the store of its cuts.

use std::fmt::Debug;

use crate::error::Result;
use crate::sink::Prepared;
use crate::table::JobMarks;
use millstream_operators::operator::Operator;

/// Takes the cuts of a job, and makes them durable. A failure ends the job; a store that fails for
/// a while is the implementation's affair.
pub trait Checkpoints: Send + Sync + Debug {
    /// Gives a new operator the state that an earlier job has saved: that of `stage`, of the keys
    /// that `leader` leads among all. Called once for each worker and stage of a job that resumes.
    fn restore(&self, leader: usize, stage: usize, operator: &mut dyn Operator) -> Result<()>;
    /// Saves the state of `stage`, of the worker that is `leader` among all, at cut number `cut`.
    /// Called once for each worker and stage, in the threads of the workers, while all of them
    /// stand.
    fn save(
        &self,
        cut: u64,
        leader: usize,
        stage: usize,
        operator: &mut dyn Operator,
    ) -> Result<()>;
    /// All state of a cut has been saved, and all rows before the cut have been written and
    /// sealed. When this returns, the job goes on. It does not commit the sinks.
    fn complete(&self, cut: CutTaken) -> Result<()>;
}

/// Where a job goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resume {
    /// Where the earlier job stood in its input. Splits are found by the names of tables and
    /// splits, wherever a split stands now in the list of its table. A split without a mark begins
    /// with its first record and with its source's low watermark.
    pub marks: JobMarks,
    /// By stage with state: the windows that fire up to this watermark (microseconds) have fired.
    /// Empty for a job that begins.
    pub frontiers: Vec<i64>,
}

/// A cut that all workers have reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTaken {
    /// Its number.
    pub number: u64,
    /// Where the job stands in its input.
    pub marks: JobMarks,
    /// By stage with state: the windows that fire up to this watermark (microseconds) have fired.
    pub frontiers: Vec<i64>,
    /// By output: the rows since the cut before.
    pub prepared: Vec<Prepared>,
}
