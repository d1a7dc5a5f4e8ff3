//! A run of a workload, and its result.

use arrow::array::RecordBatch;
use millstream::Stats;
use millstream_workloads::Answer;

/// Result of the run.
pub(crate) struct Run {
    pub(crate) seconds: f64,
    pub(crate) input_bytes: usize,
    /// Before the answer was checked, which takes memory, too; of all processes.
    pub(crate) peak_rss_bytes: u64,
    pub(crate) answer: Answer,
    pub(crate) ok: bool,
    pub(crate) stats: Option<Stats>,
}

/// Bytes of a batch's values.
pub(crate) fn record_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}
