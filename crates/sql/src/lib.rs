//! From SQL text to executable plans: Flink's dialect, planned with DataFusion's parts.
//!
//! [`parse_script`] splits a text into statements and parses them. A [`Planner`] executes the
//! statements one by one and turns a query into the engine's
//! [`Plan`](millstream_contract::plan::Plan). A query takes these steps:
//!
//! 1. sqlparser builds a syntax tree, extended by our own `CREATE TABLE` (`script`, `create_table`,
//!    `dialect`). A file in FROM becomes the table that its data declare (`files`).
//! 2. What cannot run is refused, and functions that mean something else in Flink are rewritten
//!    (`check`, `rewrite`, `group_windows`).
//! 3. DataFusion's SQL planner resolves names and types (`functions`, `window_functions`).
//! 4. The logical plans become a graph of stages, without projections and views; equal parts are
//!    shared (`lower`, `stage_windows`, `sessions`, `nest`, `union`, `joins`, `graph`, `scan`).
//! 5. The graph becomes the engine's plan, with only the columns that it needs (`assemble`,
//!    `compiler`, `evaluate`).
//!
//! Errors of the parser and of DataFusion are reworded (`grammar`, `wording`, `convert`) and placed
//! at the smallest part of the text that is at fault (`syntax`, `texts`, `blame`). Parts that may
//! fail on a value are marked with their place, so that errors of a running query show it, too
//! (`located`).
//!
//! Promises: an error names the place in the text, says what is wrong and what to write instead; no
//! part of a statement is silently ignored; names keep their case; arithmetic on integers fails
//! instead of wrapping around; planning the same text twice gives the same plan.
//! Planning reads no records and keeps no state beyond the session's names and settings.

mod expr;
mod faults;
mod names;
mod plan;
mod stages;
mod syntax;

#[cfg(test)]
mod precedence_tests;
#[cfg(test)]
mod scalar_test_forms;
#[cfg(test)]
mod scalar_tests;
#[cfg(test)]
mod simplify_tests;

pub use expr::registered::ScalarFunction;
#[doc(hidden)]
pub use plan::fuzz::fuzz_sql;
pub use plan::mended::Mended;
pub use plan::planner::{EventTimeSpec, Outcome, PlannedQuery, Planner};
pub use syntax::error::{ErrorKind, Result, Source, Span, SqlError};
pub use syntax::script::{MISTAKES_MAX, Mistake, Statement, parse_all, parse_script};
pub use syntax::types::sql_type_name;
