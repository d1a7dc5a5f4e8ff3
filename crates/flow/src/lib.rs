//! Flow: the movement of data between workers and between nodes, over any fabric.
//!
//! - [`link`]: one end of a reliable connection, which channels, the shuffle and the flows of
//!   `millstream-dfi` are made of.
//! - [`channel`]: streams of messages between two workers, which the engine's deltas and rows take.
//! - [`shuffle`]: the operator that moves the rows of a query to the nodes of their keys, in eight
//!   designs. The engine does not use it.

pub mod channel;
pub mod link;
pub mod shuffle;
