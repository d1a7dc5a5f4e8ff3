//! Sinks: where result rows go.
//!
//! **Intervals.** Rows become visible interval by interval. [`Sink::prepare`] ends an interval,
//! after its last row and before the first row of the next interval. [`Sink::seal`] completes the
//! interval, while the next one goes on. [`Sink::commit`] shows the interval. A job may end many
//! intervals, and has said so before ([`Manner::intervals`]); any other job has a single interval,
//! the whole job. Intervals are committed in order, but the next
//! may be prepared before. After a crash, a new sink commits again what was prepared last, and is
//! opened then. No row of an interval without a commit is visible, prepared or not.
//!
//! A sink that cannot take rows back (a terminal, a pipe, a socket, the memory of a program) shows
//! rows when they are written, or at the latest in `prepare`. Its [`Prepared`] has no parts. After
//! a crash such a sink gets the rows of the last interval again: each row at least once. Every
//! other sink shows each row exactly once.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::rows::changes_refused;

/// Order of the rows that a sink receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// Any: workers write at the same time, a window's rows as soon as each leader has them.
    Any,
    /// The same bytes whatever the parallelism: windows in order of event time, the rows of a
    /// window sorted by their columns from left to right (NULLs last); rows of a stateless query in
    /// the order (batch number within the split, split). One call at a time.
    Deterministic,
}

/// The writers of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writers {
    /// The process of the job.
    pub process: usize,
    /// How many workers of it write.
    pub workers: usize,
    /// The job's setting `memory`, in bytes. Rows that wait in the sink are not counted there, so
    /// they should be a small part of it.
    pub memory_bytes: u64,
}

impl Writers {
    /// A single worker of a single process, with any memory.
    pub const fn alone() -> Writers {
        Writers { process: 0, workers: 1, memory_bytes: u64::MAX }
    }
}

/// How the rows of an INSERT come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// They take the place of what is there, once all have come: `INSERT OVERWRITE`.
    pub overwrites: bool,
    /// The rows come from an endless query.
    pub endless: bool,
    /// The job ends many intervals, and no row is to be visible before the commit of its interval.
    pub intervals: bool,
    /// Why the rows, or their order, may be others when a job that goes on computes them again;
    /// `None`: they depend on the input alone.
    pub varies: Option<&'static str>,
    /// The job goes on from a checkpoint of an earlier job, which may have been killed. What the
    /// checkpoint names as prepared is committed before any process opens its sink. Other rows that
    /// the earlier job left unfinished come again: opening the sink removes these rows.
    pub resumes: bool,
}

/// Number of the interval of a job that has no other.
pub const ONLY_INTERVAL: u64 = 1;

/// Sealed rows of [`Sink::prepare`]: small enough to be kept in a checkpoint, and sufficient for
/// [`Sink::commit`], also in another process after a crash. Empty for a sink whose rows are visible
/// as soon as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepared {
    /// The number of the interval.
    pub interval: u64,
    /// In the order of sealing.
    pub sealed: Vec<Sealed>,
}

/// Rows that are complete, and not visible yet. What the names mean is the sink's affair: paths
/// within its directory, for example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    /// Name until the commit.
    pub from: String,
    /// Name after the commit. The same as `from`, if the rows are to be shown later: those of a job
    /// that overwrites ([`Manner::overwrites`]), before the job's end.
    pub to: String,
}

/// Takes news for the user while a job runs, a line each.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// Takes result rows. Called from worker threads; a slow `write` slows the job, which is how
/// back-pressure reaches the source. A method with a default that is added here has to be passed
/// on in [`crate::wrapped`], too.
pub trait Sink: Send + Sync + Debug {
    /// Called at most once, before the sink is opened. Whether rows may come so.
    fn expect(&self, manner: Manner) -> bool {
        !manner.overwrites
    }
    /// Called at most once, before the sink is opened: all intervals up to this number are those of
    /// earlier jobs. A name that this job gives should be none of theirs, though a reader may have
    /// moved their rows away.
    fn follow(&self, _interval: u64) {}
    /// Called at most once, before the sink is opened or commits: the directory or the bucket of
    /// the job's checkpoints. A sink may keep rows there, in `spool/`.
    fn keep_in(&self, _path: &Path) {}
    /// Called at most once, before the sink is opened: where the sink's news go.
    fn listen(&self, _tell: Tell) {}
    /// The job is to end. Where the receiver of the rows is away, calls that wait for it end soon,
    /// with [`Error::Interrupted`], now or later. Whether it is away now.
    fn interrupt(&self) -> bool {
        false
    }
    /// Called once, before the first row.
    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()>;
    /// The order this sink needs.
    fn order(&self) -> RowOrder;
    /// Takes rows from the worker with this number, below [`Writers::workers`]. When it returns,
    /// rows of a fired window are on their way: a sink that buffers must flush before it returns if
    /// `flush` is set (the last batch of a window). [`crate::Error::OutputClosed`] ends the job
    /// quietly, unless it comes from the local sink of another process than the first.
    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()>;
    /// Takes rows that change earlier ones, as [`Sink::write`] takes final rows
    /// ([`RowsKind`](crate::rows::RowsKind)). A sink of final rows only refuses them.
    fn write_changes(&self, _worker: usize, _rows: &RecordBatch, _flush: bool) -> Result<()> {
        Err(changes_refused("the sink of the result"))
    }
    /// Whether each process of a job writes its own rows to a sink of its own; otherwise all rows
    /// come to the sink of the process that was asked. Only sinks of [`RowOrder::Any`] can.
    fn is_local(&self) -> bool {
        false
    }
    /// Whether rows become visible with [`Sink::commit`] alone: with checkpoints, each row once.
    fn commits(&self) -> bool {
        false
    }
    /// How often each row comes, where [`Sink::commits`] does not say it. Known before the sink is
    /// opened.
    fn promise(&self) -> Option<String> {
        None
    }
    /// Whether rows wait for the job's first checkpoint, which is then taken before the job reads.
    fn waits_for_checkpoint(&self) -> bool {
        false
    }
    /// Whether the next rows were written by an earlier run, and are left out. Computed again, rows
    /// have to be the same, so meanwhile nothing may change the computation.
    fn replays(&self) -> bool {
        false
    }
    /// Remark for the user on the opened sink, or on the manner of its rows, which is known before.
    fn remark(&self) -> Option<String> {
        None
    }
    /// Called once after the last row, on success only. What was written should outlast a crash
    /// from now on. It does the slow part of the last [`Sink::prepare`], while the job can still
    /// fail.
    fn finish(&self) -> Result<()>;
    /// Ends an interval, which grows no further, and returns its parts. All workers stand, so this
    /// should be quick: slow work is left to [`Sink::seal`]. Later rows belong to the next
    /// interval. The end of a job is the end of its last interval. `interval` is a number above
    /// those of all intervals that the job, or the job before its restart, has committed. If the
    /// job overwrites, the parts are those of all intervals so far. A sink that was not opened,
    /// since another process's sink took its rows, has nothing to seal.
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        Ok(Prepared { interval, sealed: Vec::new() })
    }
    /// Makes prepared rows durable, and says under which names. Called after `prepare` and before
    /// `commit`, by another thread than those that write.
    fn seal(&self, _prepared: &mut Prepared) -> Result<()> {
        Ok(())
    }
    /// Makes prepared and sealed rows visible. A second call changes nothing, also by a sink that
    /// was made again after a crash and commits its job's prepared rows before the sink is opened.
    /// At the end of a job this is called after all processes have finished their sinks.
    fn commit(&self, _prepared: &Prepared) -> Result<()> {
        Ok(())
    }
    /// Marks the result of a successful job as complete, where readers look for the mark. Called
    /// once the sinks of all processes have committed, only for the sink of the coordinating
    /// process.
    fn mark(&self) -> Result<()> {
        Ok(())
    }
}

/// Shows the result of a job of a single process as complete: commits and marks the sinks.
pub fn publish_all(sinks: &[Arc<dyn Sink>], names: &[String]) -> Result<()> {
    commit_all(sinks, names)?;
    mark_all(sinks)
}

/// Marks the results of sinks as complete.
pub fn mark_all(sinks: &[Arc<dyn Sink>]) -> Result<()> {
    sinks.iter().try_for_each(|sink| sink.mark())
}

/// Ends the last interval of a job's sinks, in order: their rows become visible. If a sink fails,
/// the error lists the results that were published before; `names` are the names of the sinks'
/// tables.
pub fn commit_all(sinks: &[Arc<dyn Sink>], names: &[String]) -> Result<()> {
    for (number, sink) in sinks.iter().enumerate() {
        let prepared = sink.prepare(ONLY_INTERVAL);
        let committed = prepared.and_then(|mut prepared| {
            sink.seal(&mut prepared)?;
            sink.commit(&prepared).map(|()| prepared)
        });
        let error = match committed {
            Ok(prepared) => {
                let table = names.get(number).map_or("", String::as_str);
                let files = prepared.sealed.iter().map(|sealed| &sealed.to);
                files.for_each(|file| tracing::info!(table, file, "a file has its final name"));
                continue;
            }
            Err(error) => error,
        };
        if sinks.len() == 1 {
            return Err(error);
        }
        let name = |number: usize| match names.get(number) {
            Some(name) => format!("'{name}'"),
            None => format!("number {}", number + 1),
        };
        let named = |numbers: Range<usize>| match numbers.is_empty() {
            true => "none".to_string(),
            false => numbers.map(name).collect::<Vec<_>>().join(", "),
        };
        let (before, from) = (named(0..number), named(number..sinks.len()));
        let which = format!("of the job's results, published: {before}; not yet: {from}");
        return Err(match error {
            Error::Io { place, message, help } => {
                Error::Io { place, message: format!("{message} ({which})"), help }
            }
            error => {
                let (place, help) = (format!("result {}", name(number)), String::new());
                Error::Io { place, message: format!("{error} ({which})"), help }
            }
        });
    }
    Ok(())
}
