//! Columns: how those of a batch become the keys and the values of rows of state, and back.

pub(crate) mod aggregates;
mod decimal;
pub(crate) mod elements;
pub(crate) mod inputs;
pub(crate) mod keys;
mod lists;
mod moments;
mod payload;
pub(crate) mod select;
pub(crate) mod value;
