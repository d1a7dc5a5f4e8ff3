//! SQL text to executable queries: Flink's dialect, planned through DataFusion's parts.
//!
//! [`parse_script`] splits and parses a text; a [`Planner`] executes its statements one by one and
//! turns a query into the engine's [`Plan`](millstream_contract::plan::Plan). The way of a query:
//! sqlparser's syntax tree with our own `CREATE TABLE` (`script`, `create_table`, `dialect`); what
//! cannot run is refused, and functions that mean something else in Flink are rewritten (`check`,
//! `rewrite`); DataFusion's SQL planner resolves names and makes types agree (`functions`,
//! `tumble`); the logical plan becomes one stage without projections and views (`lower`); the stage
//! becomes the engine's query, with only the columns it needs (`assemble`, `evaluate`).
//!
//! Messages: what the parser and DataFusion say is put in our words (`grammar`, `wording`,
//! `convert`) and placed at the smallest part of the text that is at fault (`syntax`, `texts`,
//! `blame`); parts that may fail on a value are marked with their place, so that errors while a
//! query runs show it, too (`located`).
//!
//! What it promises: an error names the place in the text, says what is wrong and what to write
//! instead; nothing that a statement says is silently ignored; names keep their case; arithmetic on
//! integers fails instead of wrapping around; planning the same text twice gives the same query.
//! What it does not: it reads no records and keeps no state beyond the session's names and
//! settings.

mod aggregates;
mod assemble;
mod blame;
mod catalog;
mod check;
mod computed;
mod constants;
mod convert;
mod create;
mod create_table;
mod dialect;
mod error;
mod evaluate;
mod explain;
mod frame;
mod functions;
mod fuzz;
mod grammar;
mod insert;
mod lazy;
mod located;
mod lower;
mod nest;
mod one_row;
mod pattern;
mod planner;
#[cfg(test)]
mod precedence_tests;
mod readings;
mod refusals;
mod rewrite;
#[cfg(test)]
mod scalar_tests;
mod scalars;
mod script;
#[cfg(test)]
mod simplify_tests;
mod size;
mod source;
mod stack;
mod syntax;
mod text;
mod texts;
mod tumble;
mod types;
mod whole_rows;
mod widest;
mod wording;

pub use error::{ErrorKind, Result, Source, Span, SqlError};
#[doc(hidden)]
pub use fuzz::fuzz_sql;
pub use planner::{EventTimeSpec, Outcome, PlannedQuery, Planner};
pub use script::{Statement, parse_script};
pub use types::sql_type_name;
