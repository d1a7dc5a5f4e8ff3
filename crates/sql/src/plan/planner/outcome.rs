//! Outcomes of executed statements.

use crate::syntax::prelude::*;

use millstream_contract::{plan::Plan, sink::Sink};

/// Outcome of an executed statement.
#[derive(Debug)]
pub enum Outcome {
    /// A table or view was created, dropped, or left as it was.
    Done,
    /// A setting was changed.
    Set {
        /// Its key.
        key: String,
    },
    /// A query whose rows the caller shows.
    Query(PlannedQuery),
    /// Queries whose rows go to sinks: one of each output of the plan.
    Insert(PlannedQuery, Vec<Arc<dyn Sink>>),
    /// `EXPLAIN`: the plan as text in [`PlannedQuery::explain`], nothing to run.
    Explain(PlannedQuery),
    /// `EXPLAIN ANALYZE`: to be run, with the sinks of its INSERTs. Shows the plan and the counts
    /// of the run rather than the rows.
    Analyze(PlannedQuery, Vec<Arc<dyn Sink>>),
    /// The statement that `SHOW CREATE` was asked for.
    Text(String),
    /// The rows of `DESCRIBE` or `SHOW`.
    Listed(RecordBatch),
}

/// A query, or those of a statement set, ready to run.
#[derive(Debug, Clone)]
pub struct PlannedQuery {
    /// For the engine.
    pub plan: Plan,
    /// The tables that receive the outputs of INSERT; empty for a query whose rows are shown.
    pub targets: Vec<String>,
    /// The targets of INSERT OVERWRITE.
    pub overwritten: Vec<String>,
    /// Of a query whose rows are shown: the tables that records are inserted into which do not
    /// count, and their sinks. They are the plan's outputs behind the first.
    pub left_out: Vec<String>,
    /// See [`PlannedQuery::left_out`].
    pub left_out_sinks: Vec<Arc<dyn Sink>>,
    /// The logical plan as text, one operator per line: not as SQL writes it, but with all types.
    pub logical: String,
    /// Text of `EXPLAIN`: the logical plan, then the pipelines.
    pub explain: String,
    /// The value of `NOW()` in the query, microseconds since 1970.
    pub started_us: i64,
}

/// The event time of a table that a program registers.
#[derive(Debug, Clone)]
pub struct EventTimeSpec {
    /// The column, a `Timestamp`.
    pub column: String,
    /// How far the watermark is behind the greatest event time, microseconds.
    pub delay_us: i64,
    /// After this long without a record a split no longer holds back the others, microseconds.
    pub idle_timeout_us: Option<i64>,
}
