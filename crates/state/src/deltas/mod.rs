//! Deltas between workers: fragments, rows from other processes, the vector clock (paper, section
//! 7.2.1).

pub(crate) mod clock;
pub(crate) mod foreign;
pub(crate) mod fragment;
pub(crate) mod saved;
