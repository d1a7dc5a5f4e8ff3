//! The aggregate: rows of the same key and window become one row of state.

pub(crate) mod assign;
pub(crate) mod fire;
mod joint;
pub(crate) mod pipeline;
mod receiver;
mod routed;
pub(crate) mod slices;

pub(crate) use receiver::Receiver;
