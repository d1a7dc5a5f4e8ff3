//! The observer: what a running job is doing, as plain data ([`Snapshot`]).
//!
//! Everything that shows a job to people reads this: the progress line, `millstream why`, metrics,
//! the page. Nothing is published for a record. A worker adds up its time once a step
//! ([`cells`]); all else that only the worker knows is told when somebody asks: who asks wakes all
//! workers, and each of them tells between two steps. So a job that nobody looks at pays for a look
//! at a flag and at the clock in each step.
//!
//! Times are microseconds. A watermark, and the end of a window, are microseconds of event time
//! since 1970; `None` stands for one that is not there yet, or that is over.

mod cells;
mod merged;

use serde::{Deserialize, Serialize};

pub use crate::checkpoint::{Awaited, CheckpointStatus};

use crate::table::Extent;
use millstream_operators::event_time::{BEGINNING, END};

pub use crate::obstacle::Obstacle;
pub(crate) use cells::{Cells, Report, StageReport};

/// Snapshot of a job, in a single process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process of the snapshot.
    pub process: usize,
    /// The job's clock, microseconds since 1970.
    pub now_us: i64,
    /// How long the job has been running.
    pub elapsed_us: u64,
    /// How far it is.
    pub phase: Phase,
    /// Records read, by this run and those that it goes on from, like the next three.
    pub records: u64,
    /// Input bytes read.
    pub input_bytes: u64,
    /// Records that were left out: malformed, without an event time, or with one that no window can
    /// hold.
    pub bad_records: u64,
    /// Records that came too late for all of their windows.
    pub late_records: u64,
    /// The tables that it reads, in the plan's order.
    pub sources: Vec<Source>,
    /// The parts of these tables.
    pub splits: Vec<Split>,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
    /// Its stages that keep state, in the plan's order.
    pub stages: Vec<StageStatus>,
    /// Where its rows go.
    pub outputs: Vec<Output>,
    /// Channels to other processes.
    pub channels: Vec<Channel>,
    /// Its memory.
    pub memory: Memory,
    /// How long windows take from being complete to being written.
    pub latency: Latency,
    /// The job's checkpoints, if there are any.
    #[serde(default)]
    pub checkpoints: Option<CheckpointStatus>,
    /// How long workers stood for checkpoints.
    #[serde(default)]
    pub stops: Stops,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The job reads its sources.
    #[default]
    Reading,
    /// Somebody has asked it to read no more, and to fire what is open.
    Draining,
    /// All sources have ended: what is left is fired and written.
    Ending,
    /// All workers have ended.
    Ended,
}

/// A table that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The table's name.
    pub name: String,
    /// The table as `EXPLAIN` describes it.
    pub about: String,
    /// Whether the source ends by itself.
    pub bounded: bool,
    /// Whether records come as they happen, so that the clock is related to their times.
    pub live: bool,
    /// Its low watermark.
    pub watermark_us: Option<i64>,
    /// After this long without a record a split no longer holds back the others; `None`: never.
    pub idle_timeout_us: Option<i64>,
    /// Why no worker reads it now.
    pub obstacle: Option<Obstacle>,
    /// The source has no readers any more, or all of its records have been taken.
    pub ended: bool,
}

/// A part of a table, which one reader reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Its own name: a path, or `generator ysb, shard 3`.
    pub name: String,
    /// Its source, by number.
    pub source: usize,
    /// Its watermark.
    pub watermark_us: Option<i64>,
    /// Bound that the split sets for firing: its watermark before the first batch that has not been
    /// taken.
    pub holds_us: Option<i64>,
    /// Records read, and the bytes that they stand for.
    pub records: u64,
    /// See `records`.
    pub bytes: u64,
    /// How much of it has been read, where that is known.
    pub progress: Option<Extent>,
    /// How long ago its last record came, or how long it has been open without one.
    pub silent_us: u64,
    /// The last look found nothing to read.
    pub waits: bool,
    /// Batches that have not been taken yet.
    pub ready: usize,
    /// The split has been without records for so long that others no longer wait for it.
    pub idle: bool,
    /// The split has no more records.
    pub ended: bool,
    /// Another process reads it.
    pub elsewhere: bool,
}

/// Activities of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Doing {
    /// Works on a step.
    #[default]
    Step,
    /// Waits for input, or for announcements of others.
    Input,
    /// Waits for leaders to merge the worker's deltas.
    Credit,
    /// Waits for memory.
    Memory,
    /// Waits for result rows to be written.
    Output,
    /// Has no work left.
    Done,
}

impl From<Obstacle> for Doing {
    fn from(obstacle: Obstacle) -> Doing {
        match obstacle {
            Obstacle::Memory => Doing::Memory,
            Obstacle::Output | Obstacle::Checkpoint => Doing::Output,
            Obstacle::Credit | Obstacle::Slot => Doing::Credit,
            Obstacle::NoInput | Obstacle::Unwanted => Doing::Input,
        }
    }
}

impl Doing {
    /// All of them.
    pub const ALL: [Doing; 6] =
        [Doing::Step, Doing::Input, Doing::Credit, Doing::Memory, Doing::Output, Doing::Done];
}

/// A worker, and what its time has gone into.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its process.
    pub process: usize,
    /// Its number there.
    pub worker: usize,
    /// Steps that did something.
    pub busy_us: u64,
    /// Waiting for input, or for others to announce.
    pub idle_us: u64,
    /// Waiting for credit, memory or room at an output.
    pub blocked_us: u64,
    /// Current activity, and its duration.
    pub doing: Doing,
    /// See `doing`.
    pub since_us: u64,
}

/// Where rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// A source, by number.
    Source(usize),
    /// A stage with state, by its place in [`Snapshot::stages`].
    Stage(usize),
}

/// A stage that keeps state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// Its number among all stages of the plan, from 1, as `EXPLAIN` has it.
    pub stage: usize,
    /// Name of the operator.
    pub name: String,
    /// Whose rows it takes.
    pub inputs: Vec<Input>,
    /// Windows that fire up to here have fired, at all workers.
    pub frontier_us: Option<i64>,
    /// Progress of each worker, and then of each process, as known by the leaders: the least of all
    /// vector clocks. `None`: nothing yet; the greatest number: the end.
    pub clock_us: Vec<Option<i64>>,
    /// Windows that have rows and have not fired; of very many, some.
    pub open: Vec<OpenWindow>,
    /// Whether there are more of them.
    pub open_more: bool,
    /// A window is firing.
    pub firing: bool,
    /// Why the rows of this window do not go on.
    pub obstacle: Option<Obstacle>,
    /// Its watermarks: what each source has to reach for the first open window to fire.
    pub needs: Vec<Need>,
    /// Taken rows, which have passed the conditions, and fired rows.
    pub rows_in: u64,
    /// See `rows_in`.
    pub rows_out: u64,
    /// Keys in state, over all workers.
    pub state_rows: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Records that came too late for all of its windows.
    pub late_records: u64,
    /// Records that came too late for some of them.
    pub partly_late_records: u64,
}

/// A window that has not fired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpenWindow {
    /// The watermark at which the window fires: its end, and the allowed lateness; `None`: the end
    /// of the input.
    pub fires_at_us: Option<i64>,
    /// When it begins; `None` for the one window of the whole input.
    pub start_us: Option<i64>,
    /// When it ends.
    pub end_us: Option<i64>,
}

/// The watermark that a source has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The source, by number.
    pub source: usize,
    /// The watermark; `None`: its end.
    pub watermark_us: Option<i64>,
}

/// Where rows go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Inputs of the output.
    pub inputs: Vec<Input>,
    /// Rows written.
    pub rows: u64,
    /// Windows fired that had rows.
    pub windows: u64,
    /// Bytes of rows that wait for the sink.
    pub queued_bytes: u64,
    /// Whether the output receives left-out records.
    pub side: bool,
    /// The output takes no more rows.
    pub ended: bool,
}

/// Counters of a channel to another process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// From which process.
    pub from: usize,
    /// To which process.
    pub to: usize,
    /// Bytes of rows.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Rows.
    pub rows: u64,
    /// How often a slot was wanted and there was no credit.
    pub credit_stalls: u64,
}

/// The memory of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Its budget, the setting `memory`.
    pub limit_bytes: u64,
    /// State: tables, fragments, and what is kept for later windows.
    pub state_bytes: u64,
    /// Input that waits.
    pub input_bytes: u64,
    /// Sealed rows that no leader has merged yet.
    pub segment_bytes: u64,
    /// Result rows in wait for their turn.
    pub output_bytes: u64,
    /// The most that was counted at once.
    pub peak_bytes: u64,
    /// Above three quarters of the budget, or while somebody waits for room.
    pub tight: bool,
}

impl Memory {
    /// All that is held now.
    pub fn used_bytes(&self) -> u64 {
        self.state_bytes + self.input_bytes + self.segment_bytes + self.output_bytes
    }
}

/// The stops of workers for checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stops {
    /// How long single workers stood still in single cuts (`windows`).
    pub pauses: Latency,
    /// The last cut: from its begin until all workers stood.
    pub drain_us: u64,
    /// From then until all state was saved.
    pub save_us: u64,
    /// From then until all workers went on: outputs ended their interval.
    pub complete_us: u64,
}

/// From the watermark passing a window's end until its last row has been written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Windows measured, and the sum of their times.
    pub windows: u64,
    /// See `windows`.
    pub sum_us: u64,
    /// Of the latest thousand windows: half of them took no longer.
    pub p50_us: u64,
    /// Of these, 99 in 100.
    pub p99_us: u64,
    /// Of these, all.
    pub max_us: u64,
}

impl Latency {
    /// Of the latest ones, in any order, and how many there were of all.
    pub(crate) fn of(mut latest: Vec<u64>, windows: u64, sum_us: u64) -> Latency {
        latest.sort_unstable();
        let share = |percent: usize| {
            let at = (latest.len() * percent).div_ceil(100).saturating_sub(1);
            latest.get(at).copied().unwrap_or(0)
        };
        Latency { windows, sum_us, p50_us: share(50), p99_us: share(99), max_us: share(100) }
    }
}

/// A time that is there: neither before all records nor after them.
pub(crate) fn time(us: i64) -> Option<i64> {
    (us != BEGINNING && us != END).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_latencies_are_those_of_their_order() {
        let latency = Latency::of((1..=200).rev().collect(), 300, 7);
        assert_eq!((latency.p50_us, latency.p99_us, latency.max_us), (100, 198, 200));
        assert_eq!((latency.windows, latency.sum_us), (300, 7));
        assert_eq!(Latency::of(vec![5], 1, 5).p50_us, 5);
        assert_eq!(Latency::of(vec![], 0, 0), Latency::default());
    }
}
