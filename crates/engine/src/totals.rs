//! Totals: counts of a job over all its runs. Checkpoints keep them.

use serde::{Deserialize, Serialize};

/// Counts of a job since its first start, up to a cut. Each record counts once, however often the
/// job is restarted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Records read.
    pub records: u64,
    /// Input bytes read.
    pub input_bytes: u64,
    /// Result rows written, of all outputs except outputs of left-out records.
    pub rows: u64,
    /// Records that came too late for all of their windows.
    pub late_records: u64,
    /// Records that came too late for some of their windows.
    pub partly_late_records: u64,
    /// Malformed records that were left out.
    pub malformed_records: u64,
    /// Records without an event time.
    pub null_time_records: u64,
    /// Records whose event time no window can hold.
    pub unusable_time_records: u64,
    /// Records too far ahead of the clock to advance the watermark.
    pub ahead_records: u64,
}

impl Totals {
    /// Adds the counts of another worker, process or run.
    pub fn add(&mut self, other: &Totals) {
        self.records += other.records;
        self.input_bytes += other.input_bytes;
        self.rows += other.rows;
        self.late_records += other.late_records;
        self.partly_late_records += other.partly_late_records;
        self.malformed_records += other.malformed_records;
        self.null_time_records += other.null_time_records;
        self.unusable_time_records += other.unusable_time_records;
        self.ahead_records += other.ahead_records;
    }

    /// Records that do not count: malformed, or without a usable event time.
    pub fn bad_records(&self) -> u64 {
        self.malformed_records + self.null_time_records + self.unusable_time_records
    }
}
