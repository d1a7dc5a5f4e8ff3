//! Operators: the contract, and a folder or file for each.

pub mod aggregate;
mod aside;
pub mod assign;
mod contract;
mod counted;
pub mod expansion;
mod finish;
pub mod identity;
mod input;
pub mod join;
pub mod late;
pub mod lookup;
mod paired;
mod record_order;
mod routed;
pub mod saved;
pub mod stateless;
#[cfg(test)]
mod tally_tests;
pub mod unnest;

pub use contract::{
    Counters, Delta, Firing, Leadership, MergeTimes, ModeReport, Operator, Program, Room,
    SealSlice, Step,
};
pub use input::{
    Batch, BySlice, Dropped, Keyed, Passing, Records, RowTimes, Rows, Updated, rows_of,
};
