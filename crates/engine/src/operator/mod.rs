//! Operators: what a stage does with rows. Those that keep state stand for a stage with its own
//! epochs and windows (`aggregate`); the others are passes on the way (`stateless`).

pub(crate) mod aggregate;
pub(crate) mod stateless;
