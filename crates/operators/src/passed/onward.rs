//! Onward: the way of rows that are passed through at once, instead of being kept.
//!
//! An operator gets it with each batch, from delivery, and gives it rows as they stand in the
//! batch's columns. They are written into a channel's open slot from there; were they returned
//! instead, each would be copied once more.

use super::{Outgoing, PassedBuffers, PassedRows};
use crate::error::Result;

/// Carrier of rows to the leaders of their keys, as soon as they come.
pub trait Onward {
    /// Whether a leader is in another process.
    fn leaves(&self, leader: usize) -> bool;

    /// Passes rows for `leader` on, from the first on, as far as there is room now; returns their
    /// number. Rows that have been `kept` before go first, in reverse order.
    fn pass(
        &self,
        leader: usize,
        rows: &Outgoing<'_>,
        passing: &mut PassedBuffers,
        kept: &mut Vec<PassedRows>,
        scratch: &mut Vec<u32>,
    ) -> Result<usize>;
}
