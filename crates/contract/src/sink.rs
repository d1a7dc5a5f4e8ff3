//! Sinks: where result rows go.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::{Error, Result};

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
}

/// Takes result rows. Called from worker threads; a slow `write` slows the job, which is how
/// back-pressure reaches the source. A method with a default that is added here has to be passed
/// on in [`crate::wrapped`], too.
pub trait Sink: Send + Sync + Debug {
    /// Called once, before the first row.
    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()>;
    /// The order this sink needs.
    fn order(&self) -> RowOrder;
    /// Takes rows from the worker with this number, below [`Writers::workers`]. When it returns,
    /// rows of a fired window are on their way: a sink that buffers must flush before it returns if
    /// `flush` is set (the last batch of a window). [`crate::Error::OutputClosed`] ends the job
    /// quietly, unless it comes from the local sink of another process than the first.
    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()>;
    /// Whether each process of a job writes its own rows to a sink of its own; otherwise all rows
    /// come to the sink of the process that was asked. Only sinks of [`RowOrder::Any`] can.
    fn is_local(&self) -> bool {
        false
    }
    /// Called once after the last row, on success only. What was written should outlast a crash
    /// from now on.
    fn finish(&self) -> Result<()>;
    /// Called once after all processes of the job have finished their sinks, also of a sink that
    /// was not opened since another process's took its rows: the result is complete, and may be
    /// shown as such.
    fn commit(&self) -> Result<()> {
        Ok(())
    }
}

/// Commits the sinks of a job, one after the other. If one of several fails, the error says which
/// results have been published before it: `names` are those of the tables that they go to.
pub fn commit_all(sinks: &[Arc<dyn Sink>], names: &[String]) -> Result<()> {
    for (number, sink) in sinks.iter().enumerate() {
        let Err(error) = sink.commit() else { continue };
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
