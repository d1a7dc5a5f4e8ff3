//! The counters of a job. Tests assert on them; the closing line and `--json` print them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::network;
use crate::totals::Totals;
use millstream_operators::skipped::{Skipped, keep_first};

/// Counters of a job. Counts are totals over all workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Records read.
    pub records: u64,
    /// Input bytes read.
    pub input_bytes: u64,
    /// Windows fired with at least one group; 0 for a query without windows. Of several stages,
    /// those of the last; of all outputs.
    pub windows: u64,
    /// Start and end, in microseconds since 1970, of the windows that had records and had not
    /// fired when the job ended early; `None` if it did not, or the query has no windows.
    pub open_windows: Option<BTreeSet<(i64, i64)>>,
    /// Rows that stages have fired for the next stage.
    pub inner_rows: u64,
    /// Result rows written, of all outputs except outputs of left-out records.
    pub rows: u64,
    /// The same by output.
    pub outputs: Vec<OutputStats>,
    /// Counters of the sources, in the plan's order.
    #[serde(default)]
    pub sources: Vec<SourceStats>,
    /// Records that came too late for all of their windows and were dropped.
    pub late_records: u64,
    /// Records that came too late for some of their windows, and count for the others.
    pub partly_late_records: u64,
    /// The same by stage, of those that keep state, in the plan's order.
    pub stages: Vec<StageStats>,
    /// Per stage of the plan, if it keeps no state: the rows of each input that its conditions have
    /// let through.
    #[serde(default)]
    pub passed: Vec<Vec<u64>>,
    /// Malformed records that were left out because the table's options say so; they are not among
    /// `records`.
    pub malformed_records: u64,
    /// The first of them.
    pub first_malformed: Option<Skipped>,
    /// Records without an event time, which belong to no window and were dropped.
    pub null_time_records: u64,
    /// The first of them.
    pub first_null_time: Option<Skipped>,
    /// Records whose event time is so far from 1970 (146,000 years) that no window can hold it, and
    /// which were dropped.
    pub unusable_time_records: u64,
    /// The first of them.
    pub first_unusable_time: Option<Skipped>,
    /// Records too far ahead of the clock to advance the watermark (they still count).
    pub ahead_records: u64,
    /// The first of them.
    pub first_ahead: Option<Skipped>,
    /// Epochs ended, over all workers.
    pub epochs: u64,
    /// Epochs that ended without changes (their header still shipped).
    pub empty_epochs: u64,
    /// Rows that went into fragments.
    pub fragment_rows_in: u64,
    /// Rows that went into tables joint for all leaders, where keys repeat often.
    pub joint_rows_in: u64,
    /// Rows of fragments shipped to leaders.
    pub rows_shipped: u64,
    /// Sealed segments shipped.
    pub segments_shipped: u64,
    /// Rows of `rows_shipped` that went to leaders in other processes, after what several workers
    /// of a process held for the same leader was merged.
    pub rows_sent: u64,
    /// Of these, rows that were passed through as they came, without being kept first.
    pub rows_passed: u64,
    /// Bytes of rows, and of what they refer to, sent to leaders in other processes.
    pub bytes_sent: u64,
    /// Of these, bytes that were copied to be sent: few rows at a time (less than 4 KB), and those
    /// for which the memory of the state had no place. All else is sent from where it stands, or
    /// was written straight into a slot.
    pub bytes_copied: u64,
    /// Messages that carried them.
    pub messages_sent: u64,
    /// Rows for leaders in other processes that were merged with rows of other workers before.
    pub rows_combined: u64,
    /// Segments that leaders merged row by row; from other processes, messages.
    pub merges: u64,
    /// Times a fragment changed between aggregating and passing through.
    pub mode_switches: u64,
    /// Times a hash index grew.
    pub index_growths: u64,
    /// Windows that every leader had fired while the source still had records.
    pub windows_fired_early: u64,
    /// Steps in which a split was parked because its worker's segments were not yet merged, or
    /// there was no slot for passed rows. The worker may have merged deltas meanwhile.
    pub credit_stalls: u64,
    /// Times a split was parked because state was at its budget.
    pub memory_stalls: u64,
    /// Times a worker waited for an output without room: earlier rows had to be written first.
    pub output_stalls: u64,
    /// Batches processed by a worker other than the reader of their split.
    pub batches_stolen: u64,
    /// Largest number of bytes of state held at once between two steps: tables with their indexes,
    /// fragments, sealed segments on their way, and what is kept for later windows.
    pub state_bytes_peak: u64,
    /// Live keys and values at that time, in bytes.
    pub state_live_bytes_at_peak: u64,
    /// Largest number of bytes of state *at rest*: a window is complete and about to fire, so all
    /// that belongs to it has been merged, and no segment is on its way. What is kept for later
    /// counts.
    pub state_bytes_rest: u64,
    /// Live keys and values at that time, in bytes.
    pub state_live_bytes_rest: u64,
    /// Largest number of bytes that counted against the memory budget at once: state, input, sealed
    /// segments and output that waits.
    pub memory_bytes_peak: u64,
    /// Remains when the input had been taken and all windows had fired: none.
    #[serde(default)]
    pub left: Leftover,
    /// From the watermark passing a window's end until its last row has been written, microseconds,
    /// one entry per window (the latest 65,536).
    pub fire_latency_us: Vec<u64>,
    /// Wall-clock (or virtual) microseconds from start to finish.
    pub elapsed_us: u64,
    /// Of all workers together, microseconds in which they read and decoded records; like the times
    /// of stages and outputs 0 unless [`Settings::timed`](crate::settings::Settings::timed) is set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read_us: u64,
    /// Likewise, in which workers gave rows to outputs: sorting and writing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub write_us: u64,
    /// Counts of earlier runs, up to the checkpoint that this run goes on from. The other counters
    /// leave earlier runs out.
    #[serde(default)]
    pub before: Totals,
}

/// Remains of a job that has ended well. Not counted for a job that ended early, by a LIMIT or an
/// error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Keys and rows: of slices, of what is combined of panes and sessions, of bags and versions.
    pub rows: u64,
    /// Bytes of these keys and values, of sealed rows that nobody has merged, of input that nobody
    /// has taken and of result rows that nobody has written.
    pub bytes: u64,
    /// Slices that hold rows, and windows that fire, or would fire if time went on.
    pub windows: u64,
    /// Credit that leaders owe for merged deltas.
    pub credit: u64,
}

impl Leftover {
    /// Adds the remains of another worker, stage or process.
    pub(crate) fn add(&mut self, other: &Leftover) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.windows += other.windows;
        self.credit += other.credit;
    }
}

/// Adds numbers to those at the same places.
fn add_each(own: &mut Vec<u64>, others: &[u64]) {
    own.resize(own.len().max(others.len()), 0);
    own.iter_mut().zip(others).for_each(|(own, other)| *own += other);
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Counters of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStats {
    /// Its number among all sources of the plan, from 1, as `EXPLAIN` has it.
    pub source: usize,
    /// Records read.
    pub records: u64,
    /// Input bytes read.
    pub input_bytes: u64,
    /// Of all workers together, microseconds in which they read and decoded its records.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read_us: u64,
}

/// Counters of a stage: taken, dropped and fired rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StageStats {
    /// Its number among all stages of the plan, from 1, as `EXPLAIN` has it.
    pub stage: usize,
    /// Records, or rows of other stages, that its conditions (WHERE, or HAVING of the stage before)
    /// have let through: late ones, too.
    #[serde(default)]
    pub rows_in: u64,
    /// The same by input, in the order in which `EXPLAIN` shows them; of a join, the left side's
    /// inputs come first.
    #[serde(default)]
    pub rows_in_by_input: Vec<u64>,
    /// Records that came too late for all of its windows.
    pub late_records: u64,
    /// Records that came too late for some of them.
    pub partly_late_records: u64,
    /// Fired rows, before the conditions of their readers.
    #[serde(default)]
    pub rows_out: u64,
    /// Of all workers together, microseconds in which they brought rows into its state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub update_us: u64,
    /// Likewise, in which workers made rows of the state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fire_us: u64,
    /// Modes of rows for other leaders, by worker, where there is a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<ModeStats>,
}

/// A worker's mode for rows of other leaders at the end, and its measured costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModeStats {
    /// Number of the worker among all workers of the job, from 1.
    pub worker: usize,
    /// `joint`, `aggregate` or `pass-through`.
    pub mode: String,
    /// Nanoseconds of a record of the worker in each of these modes, of a merged row of state, and
    /// of a passed row that its leader takes in; `None`: not measured.
    pub ns: [Option<f64>; 5],
    /// Number of changes of the mode.
    pub switches: u64,
    /// Number of records before the last change.
    pub switched_at: u64,
}

/// Counters of an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputStats {
    /// Result rows written.
    pub rows: u64,
    /// Windows fired with at least one group; 0 if there are no windows.
    pub windows: u64,
    /// Whether the output receives left-out records.
    pub side: bool,
}

impl Stats {
    /// Counters of outputs alone.
    pub(crate) fn of_outputs(outputs: Vec<OutputStats>) -> Stats {
        let mut stats = Stats { outputs, ..Stats::default() };
        stats.sum_outputs();
        stats
    }

    /// Counts of the job over all its runs.
    pub fn totals(&self) -> Totals {
        let mut totals = self.before;
        totals.add(&self.of_run());
        totals
    }

    /// Counts of this run alone.
    pub(crate) fn of_run(&self) -> Totals {
        Totals {
            records: self.records,
            input_bytes: self.input_bytes,
            rows: self.rows,
            late_records: self.late_records,
            partly_late_records: self.partly_late_records,
            malformed_records: self.malformed_records,
            null_time_records: self.null_time_records,
            unusable_time_records: self.unusable_time_records,
            ahead_records: self.ahead_records,
        }
    }

    /// Rows and windows of all outputs.
    fn sum_outputs(&mut self) {
        let outputs = || self.outputs.iter().filter(|output| !output.side);
        (self.rows, self.windows) = (
            outputs().map(|output| output.rows).sum(),
            outputs().map(|output| output.windows).sum(),
        );
    }

    /// Adds what another process of the same job did: counts and bytes add up; windows of an output
    /// are those of the process that saw the most, which is all of them where rows come to one;
    /// time is the longest.
    pub fn add_process(&mut self, other: &Stats) {
        self.add(other);
        let outputs = self.outputs.len().max(other.outputs.len());
        self.outputs.resize(outputs, OutputStats::default());
        for (output, other) in self.outputs.iter_mut().zip(&other.outputs) {
            output.rows += other.rows;
            output.side |= other.side;
            output.windows = output.windows.max(other.windows);
        }
        self.sum_outputs();
        if let Some(open) = &other.open_windows {
            self.open_windows.get_or_insert_default().extend(open);
        }
        self.state_bytes_peak += other.state_bytes_peak;
        self.state_live_bytes_at_peak += other.state_live_bytes_at_peak;
        self.state_bytes_rest += other.state_bytes_rest;
        self.state_live_bytes_rest += other.state_live_bytes_rest;
        self.memory_bytes_peak += other.memory_bytes_peak;
        self.fire_latency_us.extend_from_slice(&other.fire_latency_us);
        self.elapsed_us = self.elapsed_us.max(other.elapsed_us);
    }

    /// Adds counters of shipments to leaders in other processes.
    pub(crate) fn note_shipped(&mut self, shipped: &network::Shipped) {
        self.rows_sent += shipped.rows;
        self.rows_shipped += shipped.passed;
        self.rows_passed += shipped.passed;
        self.bytes_sent += shipped.bytes;
        self.bytes_copied += shipped.copied;
        self.messages_sent += shipped.messages;
        self.rows_combined = shipped.combined;
    }

    /// Counts rows that the conditions of a stage without state have let through.
    pub(crate) fn note_passed(&mut self, stage: usize, input: usize, rows: usize) {
        self.passed.resize(self.passed.len().max(stage + 1), Vec::new());
        let by_input = &mut self.passed[stage];
        by_input.resize(by_input.len().max(input + 1), 0);
        by_input[input] += rows as u64;
    }

    /// Adds another worker's counts.
    pub(crate) fn add(&mut self, other: &Stats) {
        self.records += other.records;
        self.input_bytes += other.input_bytes;
        self.late_records += other.late_records;
        self.partly_late_records += other.partly_late_records;
        let sources = self.sources.len().max(other.sources.len());
        self.sources.resize(sources, SourceStats::default());
        for (own, other) in self.sources.iter_mut().zip(&other.sources) {
            own.source = other.source;
            own.records += other.records;
            own.input_bytes += other.input_bytes;
            own.read_us += other.read_us;
        }
        let stages = self.stages.len().max(other.stages.len());
        self.stages.resize(stages, StageStats::default());
        for (own, other) in self.stages.iter_mut().zip(&other.stages) {
            own.stage = other.stage;
            own.rows_in += other.rows_in;
            add_each(&mut own.rows_in_by_input, &other.rows_in_by_input);
            own.late_records += other.late_records;
            own.partly_late_records += other.partly_late_records;
            own.rows_out += other.rows_out;
            own.update_us += other.update_us;
            own.fire_us += other.fire_us;
            own.modes.extend(other.modes.iter().cloned());
        }
        self.passed.resize(self.passed.len().max(other.passed.len()), Vec::new());
        for (own, other) in self.passed.iter_mut().zip(&other.passed) {
            add_each(own, other);
        }
        self.inner_rows += other.inner_rows;
        self.malformed_records += other.malformed_records;
        self.null_time_records += other.null_time_records;
        self.unusable_time_records += other.unusable_time_records;
        self.ahead_records += other.ahead_records;
        keep_first(&mut self.first_malformed, &other.first_malformed);
        keep_first(&mut self.first_ahead, &other.first_ahead);
        keep_first(&mut self.first_null_time, &other.first_null_time);
        keep_first(&mut self.first_unusable_time, &other.first_unusable_time);
        self.epochs += other.epochs;
        self.empty_epochs += other.empty_epochs;
        self.fragment_rows_in += other.fragment_rows_in;
        self.joint_rows_in += other.joint_rows_in;
        self.rows_shipped += other.rows_shipped;
        self.segments_shipped += other.segments_shipped;
        self.rows_sent += other.rows_sent;
        self.rows_passed += other.rows_passed;
        self.bytes_sent += other.bytes_sent;
        self.bytes_copied += other.bytes_copied;
        self.messages_sent += other.messages_sent;
        self.rows_combined += other.rows_combined;
        self.merges += other.merges;
        self.mode_switches += other.mode_switches;
        self.index_growths += other.index_growths;
        self.windows_fired_early += other.windows_fired_early;
        self.credit_stalls += other.credit_stalls;
        self.memory_stalls += other.memory_stalls;
        self.output_stalls += other.output_stalls;
        self.batches_stolen += other.batches_stolen;
        self.left.add(&other.left);
        self.read_us += other.read_us;
        self.write_us += other.write_us;
        self.before.add(&other.before);
    }
}
