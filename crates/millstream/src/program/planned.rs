//! Results of statements, and planned queries ready to run.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_connect::BlackholeSink;
use millstream_contract::plan::Plan;
use millstream_contract::settings::Settings;
use millstream_contract::sink::Sink;
use millstream_sql::PlannedQuery;

/// Result of a statement.
pub enum Executed {
    /// The statement declared, dropped or set something.
    Done,
    /// A query that is ready to run.
    Query(Box<Planned>),
    /// `EXPLAIN`'s answer.
    Explained(String),
    /// The rows of `DESCRIBE` or `SHOW`.
    Listed(RecordBatch),
}

/// A query that is ready to run.
#[derive(Debug)]
pub struct Planned {
    /// For the engine.
    pub plan: Plan,
    /// The sinks that it names (`INSERT INTO`), one for each output of the plan; none for a query
    /// whose rows the caller takes.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// The names of the tables that it inserts into, in the order of its outputs.
    pub targets: Vec<String>,
    /// Of a query whose rows the caller takes: the sinks of the plan's outputs behind the first,
    /// which records go to that do not count.
    pub left_out: Vec<Arc<dyn Sink>>,
    /// The plan as `EXPLAIN` prints it.
    pub explain: String,
    /// The logical plan with its types, some of which `explain` does not show.
    pub logical: String,
    /// The value of `NOW()` in the query, microseconds since 1970.
    pub started_us: i64,
    /// `EXPLAIN ANALYZE`: not the rows of a query are wanted but its plan, with what came of it:
    /// [`analyzed`].
    pub analyze: bool,
}

impl Planned {
    pub(crate) fn new(planned: PlannedQuery, sinks: Vec<Arc<dyn Sink>>) -> Planned {
        let PlannedQuery {
            plan,
            targets,
            left_out_sinks: left_out,
            logical,
            explain,
            started_us,
            ..
        } = planned;
        Planned { plan, sinks, targets, left_out, explain, logical, started_us, analyze: false }
    }

    pub(crate) fn analyzed(self) -> Planned {
        Planned { analyze: true, ..self }
    }

    /// The settings of its job, of a session with these.
    pub fn settings(&self, session: &Settings) -> Settings {
        Settings { timed: self.analyze, ..session.clone() }
    }

    /// The sinks of all outputs; `show` makes the sink of the rows for the caller. The rows of an
    /// analyzed query are dropped.
    pub fn take_sinks(&mut self, show: impl FnOnce() -> Arc<dyn Sink>) -> Vec<Arc<dyn Sink>> {
        let mut sinks = std::mem::take(&mut self.sinks);
        match self.analyze {
            _ if !sinks.is_empty() => {}
            true => sinks.push(Arc::new(BlackholeSink::new())),
            false => sinks.push(show()),
        }
        sinks.append(&mut self.left_out);
        sinks
    }
}
