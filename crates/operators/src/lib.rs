//! Operators: what a stage of a plan computes, apart from who moves rows.
//!
//! Batches come in and rows go out, on one thread, without a network and without a scheduler.
//! [`operator`] is the contract, with the aggregate, the join and the passes. [`windowing`] answers
//! all questions about windows, [`columns`] turns columns into keys and values of rows of state and
//! back, [`passed`] is the form of rows that go to their leader as keys and arguments. [`prepare`]
//! makes batches of chunks.
//!
//! Promises: an operator's rows depend on its input alone, not on the sizes of batches, the order
//! of deltas or the number of leaders. Not here: watermarks of other workers, channels and files.

pub mod budget;
pub mod columns;
pub mod dictionary;
pub mod env;
pub mod event_time;
pub mod failing;
pub mod incomplete;
pub mod operator;
pub mod passed;
pub mod prepare;
pub mod skipped;
pub mod stamped;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
pub mod windowing;

use millstream_contract::{error, expr, plan, reads, rows, settings, table, texts, zone};
