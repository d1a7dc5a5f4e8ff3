//! Sinks: where result rows go.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::rows::changes_refused;

/// In which order a sink wants its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// Any: workers write at the same time, a window's rows as soon as each leader has them.
    Any,
    /// The same bytes whatever the parallelism: windows in order of event time, the rows of a
    /// window sorted by their columns from left to right (NULLs last); rows of a stateless query in
    /// the order (batch number within the split, split). One call at a time.
    Deterministic,
}

/// Who writes to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writers {
    /// The process of the job.
    pub process: usize,
    /// How many workers of it write.
    pub workers: usize,
    /// The job's setting `memory`, in bytes, which does not count what waits in the sink: that
    /// should be a small part of it.
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
    /// They come from a query that never ends.
    pub endless: bool,
}

/// What [`Sink::prepare`] has sealed: small enough to be kept in a checkpoint, and all that
/// [`Sink::commit`] needs, also in another process after a crash. Empty for a sink whose rows are
/// visible as soon as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// In the order in which they were sealed.
    pub sealed: Vec<Sealed>,
}

/// Rows that are complete, and not visible yet. What the names mean is the sink's affair: paths
/// within its directory, for example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// What they are called until they are committed.
    pub from: String,
    /// What they are called from then on.
    pub to: String,
}

/// Takes result rows. Called from worker threads; a slow `write` slows the job, which is how
/// back-pressure reaches the source. A method with a default that is added here has to be passed
/// on in [`crate::wrapped`], too.
pub trait Sink: Send + Sync + Debug {
    /// Called at most once, before the sink is opened. Whether rows may come so.
    fn expect(&self, manner: Manner) -> bool {
        !manner.overwrites
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
    /// What the user should know of what was found when the sink was opened, or of how its rows
    /// come, which is known before.
    fn remark(&self) -> Option<String> {
        None
    }
    /// Called once after the last row, on success only. What was written should outlast a crash
    /// from now on. It does the slow part of the last [`Sink::prepare`], while the job can still
    /// fail.
    fn finish(&self) -> Result<()>;
    /// Ends an interval: seals what has been written since the interval before, so that it outlasts
    /// a crash and nothing is added to it, and says what that is. Rows that come later belong to
    /// the next interval. The end of a job is the end of its last interval. A sink that was not
    /// opened, since another process's took its rows, has nothing to seal.
    fn prepare(&self) -> Result<Prepared> {
        Ok(Prepared::default())
    }
    /// Makes visible what was prepared. Doing so again is harmless, also by a sink that has just
    /// been made again after a crash; that one commits what its job has prepared before it is
    /// opened. At the end of a job it is called after all processes have finished their sinks.
    fn commit(&self, _prepared: &Prepared) -> Result<()> {
        Ok(())
    }
    /// The sinks of all processes have committed what a job that ended well has written: says so
    /// where others look for that. Only the sink of the process that was asked is told.
    fn mark(&self) -> Result<()> {
        Ok(())
    }
}

/// Shows the result of a job of one process as complete: commits its sinks, then has them say so.
pub fn publish_all(sinks: &[Arc<dyn Sink>], names: &[String]) -> Result<()> {
    commit_all(sinks, names)?;
    mark_all(sinks)
}

/// Has sinks say that what they have written is complete.
pub fn mark_all(sinks: &[Arc<dyn Sink>]) -> Result<()> {
    sinks.iter().try_for_each(|sink| sink.mark())
}

/// Ends the last interval of a job's sinks, one after the other: what they hold gets visible. If
/// one of several fails, the error says which results have been published before it: `names` are
/// those of the tables that they go to.
pub fn commit_all(sinks: &[Arc<dyn Sink>], names: &[String]) -> Result<()> {
    for (number, sink) in sinks.iter().enumerate() {
        let prepared = sink.prepare();
        let committed = prepared.and_then(|prepared| sink.commit(&prepared).map(|()| prepared));
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
