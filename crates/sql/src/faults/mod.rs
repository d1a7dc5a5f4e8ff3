//! Faults of a statement: checks before planning, errors of the planner reworded and placed in the
//! text.

pub(crate) mod arguments;
pub(crate) mod blame;
mod calls;
pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod hints;
pub(crate) mod limits;
pub(crate) mod unavailable;
pub(crate) mod union_columns;
