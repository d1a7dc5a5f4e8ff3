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
//! What it promises: an error names the place in the text, says what is wrong and what to write
//! instead; nothing that a statement says is silently ignored; names keep their case; arithmetic on
//! integers fails instead of wrapping around; planning the same text twice gives the same plan.
//! What it does not do: it reads no records, and it keeps no state beyond the session's names and
//! settings.

mod aggregates;
mod alike;
mod arguments;
mod as_of;
mod assemble;
mod blame;
mod by_clock;
mod by_parts;
mod call_text;
mod calls;
mod case_values;
mod catalog;
mod check;
mod coercion;
mod collected;
mod collecting;
mod compiler;
mod completed;
mod computed;
mod condition;
mod constants;
mod convert;
mod counted;
mod create;
mod create_table;
mod dialect;
mod durations;
mod each_window;
mod elements;
mod endless;
mod ends;
mod error;
mod evaluate;
mod event_time;
mod expanded;
mod explain;
mod files;
mod frame;
mod functions;
mod fuzz;
mod given;
mod grammar;
mod graph;
mod group_windows;
mod handles;
mod hints;
mod implied;
mod in_some_window;
mod indexed;
mod insert;
mod instants;
mod interval_literals;
mod joined;
mod joins;
mod json_calls;
mod json_syntax;
mod lazy;
mod left_out;
mod like;
mod listed;
mod located;
mod lower;
mod lowered;
mod mended;
mod nearest;
mod nest;
mod nested_casts;
mod no_time;
mod numbers;
mod one_form;
mod ordering;
mod outer_names;
mod passes;
mod pattern;
mod pieces;
mod places;
mod planner;
#[cfg(test)]
mod precedence_tests;
mod ranking;
mod readings;
mod references;
mod refusals;
mod repeats;
mod rewrite;
mod safe;
#[cfg(test)]
mod scalar_forms;
#[cfg(test)]
mod scalar_tests;
mod scalars;
mod scan;
mod schemas;
mod script;
mod session_records;
mod sessions;
mod sets;
mod simplified;
#[cfg(test)]
mod simplify_tests;
mod size;
mod source;
mod stack;
mod stage_windows;
mod stand_ins;
mod statement;
mod statement_set;
mod subscripts;
mod syntax;
mod text;
mod texts;
mod time_literals;
mod type_grammar;
mod types;
mod unavailable;
mod union;
mod union_columns;
mod unnest;
mod user_functions;
mod views;
mod walk;
mod watermarks;
mod whole_rows;
mod widest;
mod window_functions;
mod window_kinds;
mod window_node;
mod windows;
mod with_names;
mod wording;
mod words;
mod written;

pub use error::{ErrorKind, Result, Source, Span, SqlError};
#[doc(hidden)]
pub use fuzz::fuzz_sql;
pub use mended::Mended;
pub use planner::{EventTimeSpec, Outcome, PlannedQuery, Planner};
pub use script::{MISTAKES_MAX, Mistake, Statement, parse_all, parse_script};
pub use types::sql_type_name;
