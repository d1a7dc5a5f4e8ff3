//! The tables of a job, their columns and their event time.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::expr::Expr;
use crate::table::Table;
use crate::zone::Zone;

/// A table and how it is read.
#[derive(Debug, Clone)]
pub struct Source {
    /// The table's name.
    pub name: String,
    /// Where records come from.
    pub table: Arc<dyn Table>,
    /// Physical columns read, as indices into the table's schema. Column `i` of a batch is
    /// `projection[i]`; derived columns follow.
    pub projection: Vec<usize>,
    /// Computed columns of the table that are needed, appended to each batch in this order; each
    /// may use the physical columns and the derived ones before it.
    pub derived: Vec<Derived>,
    /// Schema of a batch once derived columns are appended.
    pub schema: SchemaRef,
    /// Event time, if the table declares a watermark and somebody asks for it.
    pub event_time: Option<EventTime>,
}

/// A column that is appended to each batch of a source.
#[derive(Debug, Clone)]
pub enum Derived {
    /// Computed of the columns before it.
    Computed(Expr),
    /// When the reading worker took the record from its split, in milliseconds: `PROCTIME()`. Of a
    /// split, it never goes back.
    ReadTime,
    /// The watermark of the record's split just before it, in milliseconds; NULL before the first:
    /// `CURRENT_WATERMARK(ts)`.
    Watermark,
}

impl Source {
    /// The physical columns that are looked at in every row, of those that are read; `None` if some
    /// expression does not say.
    pub(super) fn always(&self) -> Option<Vec<usize>> {
        let mut always = Vec::new();
        for derived in &self.derived {
            if let Derived::Computed(expr) = derived {
                always.extend(expr.columns()?);
            }
        }
        if let Some(event_time) = &self.event_time {
            always.push(event_time.column);
            if let Watermark::Expr(expr) = &event_time.watermark {
                always.extend(expr.columns()?);
            }
        }
        // What derived columns are computed of is among them.
        always.retain(|column| *column < self.projection.len());
        always.sort_unstable();
        always.dedup();
        Some(always)
    }
}

/// A table's event time and watermark.
#[derive(Debug, Clone)]
pub struct EventTime {
    /// Index into [`Source::schema`]; a `Timestamp` of any unit.
    pub column: usize,
    /// How watermarks follow from records.
    pub watermark: Watermark,
    /// Zone whose local time windows divide, while event times and watermarks are instants; `None`:
    /// windows divide event times as they are.
    pub zone: Option<Zone>,
    /// After this long without a record a split no longer holds back the others. `None`: never.
    pub idle_timeout_us: Option<i64>,
}

/// The watermark strategy of `WATERMARK FOR ts AS …`, or of processing time.
#[derive(Debug, Clone)]
pub enum Watermark {
    /// `ts - INTERVAL …`: the running maximum of event time, less a constant (microseconds).
    Delay(i64),
    /// The clock of the process that reads, whether or not there are records: event time is
    /// [`Derived::ReadTime`].
    Clock,
    /// The running maximum of an expression over [`Source::schema`] (a `Timestamp` of any unit).
    Expr(Expr),
}
