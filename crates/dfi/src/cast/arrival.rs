//! Segments that have arrived at a target (thesis, figure 7.6).

use std::collections::VecDeque;

/// An arrived segment and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) slot: u32,
    pub(crate) source: u16,
    pub(crate) fill: u16,
    /// Number within the source's stream.
    pub(crate) number: u64,
    /// Number in the order of the list: the flow's, or the source's.
    pub(crate) place: u64,
}

/// The *receive list*: in the order of arrival.
pub(crate) type ReceiveList = VecDeque<Arrival>;
