//! What a job runs: one source, one pipeline up to its soft breaker, one pipeline after it.
//!
//! The SQL crate produces a [`Query`]; nothing here knows SQL text.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};

use crate::aggregates::Aggregates;
use crate::expr::Expr;
use crate::table::Table;

/// A continuous query in executable form.
#[derive(Debug, Clone)]
pub struct Query {
    /// Where records come from.
    pub source: Arc<dyn Table>,
    /// Physical columns read, as indices into the table's schema. Batch column `i` of the first
    /// pipeline is `projection[i]`; derived columns follow.
    pub projection: Vec<usize>,
    /// Computed columns of the table that the query needs, appended to each batch in this order;
    /// each may use the physical columns and the derived ones before it.
    pub derived: Vec<Expr>,
    /// Schema of a batch once derived columns are appended.
    pub input: SchemaRef,
    /// Event time, if the table declares a watermark.
    pub event_time: Option<EventTime>,
    /// WHERE, over `input`.
    pub filter: Option<Expr>,
    /// What happens to the records that pass.
    pub body: Body,
    /// Schema of the result rows.
    pub output: SchemaRef,
}

/// A table's event time and watermark.
#[derive(Debug, Clone)]
pub struct EventTime {
    /// Index into [`Query::input`]; a `Timestamp` of any unit.
    pub column: usize,
    /// How watermarks follow from records.
    pub watermark: Watermark,
    /// After this long without a record a split no longer holds back the others. `None`: never.
    pub idle_timeout_us: Option<i64>,
}

/// The watermark strategy of `WATERMARK FOR ts AS …`.
#[derive(Debug, Clone)]
pub enum Watermark {
    /// `ts - INTERVAL …`: the running maximum of event time, less a constant (microseconds).
    Delay(i64),
    /// Any other expression over [`Query::input`]: the running maximum of its values (a
    /// `Timestamp` of any unit).
    Expr(Expr),
}

/// The rest of a query after WHERE.
#[derive(Debug, Clone)]
pub enum Body {
    /// No state: rows go through `project` to the sink.
    Stateless {
        /// Output columns over [`Query::input`].
        project: Vec<Expr>,
        /// LIMIT.
        limit: Option<u64>,
        /// OFFSET.
        offset: u64,
    },
    /// Grouped aggregation.
    Aggregate(Aggregate),
}

/// A grouped aggregation, per tumbling window or over the whole bounded input.
///
/// What a window's state yields when it fires is a batch with the columns `window_start`,
/// `window_end`, `window_time` (each `Timestamp(Millisecond)`, only when `window` is set), then the
/// keys, then the aggregates; `having` and `project` are over that batch ([`Aggregate::fired`]).
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// The window, or `None` to fire once at the end of the input.
    pub window: Option<Tumble>,
    /// GROUP BY keys besides the window; may be empty.
    pub keys: Vec<Key>,
    /// Aggregate calls; may be empty (SELECT DISTINCT).
    pub aggregates: Vec<AggregateCall>,
    /// Schema of the batch that a fired window yields.
    pub fired: SchemaRef,
    /// HAVING, over `fired`.
    pub having: Option<Expr>,
    /// Output columns, over `fired`.
    pub project: Vec<Expr>,
}

/// Values of aggregates that can be NULL: the state of a key has a bit for each. Calls share
/// values, and AVG has two.
pub const NULLABLE_VALUES_MAX: usize = 64;

impl Aggregate {
    /// The first of [`Aggregate::aggregates`] that goes beyond [`NULLABLE_VALUES_MAX`]. No job runs
    /// such a plan.
    pub fn first_without_bit(&self) -> Option<usize> {
        Aggregates::first_without_bit(&self.aggregates, self.has_empty_group())
    }

    /// Whether there is a group without any record: over nothing, a global aggregate has a row.
    pub(crate) fn has_empty_group(&self) -> bool {
        self.keys.is_empty() && self.window.is_none()
    }
}

/// `TUMBLE(TABLE t, DESCRIPTOR(ts), size [, offset])`: windows `[k·size + offset, (k+1)·size +
/// offset)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tumble {
    /// Microseconds, a positive multiple of 1000.
    pub size_us: i64,
    /// Microseconds, a multiple of 1000 with `0 <= offset < size`.
    pub offset_us: i64,
}

/// One GROUP BY key.
#[derive(Debug, Clone)]
pub struct Key {
    /// For messages and `explain`.
    pub name: String,
    /// Over [`Query::input`].
    pub expr: Expr,
    /// Its type. Dictionaries are unpacked before they get here.
    pub data_type: DataType,
    /// Whether NULL can occur; NULLs are one group.
    pub nullable: bool,
}

/// One aggregate call.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// As SQL text, for messages and `explain`.
    pub name: String,
    /// Which function.
    pub function: AggregateFunction,
    /// Its argument over [`Query::input`]; `None` only for `COUNT(*)`.
    pub argument: Option<Expr>,
    /// The argument's type (`Null` for `COUNT(*)`).
    pub argument_type: DataType,
    /// Whether the argument can be NULL.
    pub argument_nullable: bool,
    /// `FILTER (WHERE …)` over [`Query::input`].
    pub filter: Option<Expr>,
    /// The type of the result column.
    pub result_type: DataType,
    /// Where the call stands, for [`crate::Error::Overflow`]; may be empty.
    pub frame: String,
}

/// The aggregate functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// `COUNT(*)` and `COUNT(x)`; `BIGINT`.
    Count,
    /// Of integers (result `BIGINT`, or `BIGINT UNSIGNED` of unsigned), decimals and floats.
    Sum,
    /// Of anything ordered: numbers, booleans, dates, times, timestamps, strings, binary.
    Min,
    /// As `Min`.
    Max,
    /// Of integers and floats (`DOUBLE`), and decimals.
    Avg,
}
