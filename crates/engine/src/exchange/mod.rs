//! Repartitioning: the traditional way, which late merge is measured against (*RDMA UpPar* in the
//! paper's section 8).
//!
//! Senders filter, project, assign windows and partition: what a record's key and aggregates need
//! is written straight into the open slot of the channel to the worker that owns the key
//! ([`sender`], [`route`], [`format`](mod@format)). Receivers own disjoint partitions and update
//! their tables from where the rows stand in the slot ([`receiver`]). Channels, tables and
//! aggregates are those of late merge.
//!
//! What it costs, per exchanged row of one key word and one argument. The limit for two receivers,
//! with AVX-512 and eight rows at a time: 16 instructions to hash, 11 to say who gets what, and for
//! each receiver and word a compression and a store; so (16 + 11 + 2·2·2) / 8, about 4.5, if
//! nothing were stored in between. Expected for the two passes here, which list positions first and
//! then pick: 7. With AVX2 the hash alone takes 8, for 64-bit products are put together from parts,
//! and 15 were expected. Counted (`crates/engine/examples/exchange.rs`), as `nb7`, for 1, 2, 4 and
//! 8 receivers: 2.2, 6.4, 7.8 and 10.8 with AVX-512; 3.7, 14.5, 17.8 and 19.8 with AVX2, of which
//! 7.8 hash, and for two receivers 2.8 route and 3.2 pick. A single receiver needs no hash.

pub mod bench;
mod format;
mod gather;
mod receiver;
mod roles;
mod route;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use format::{Format, Outgoing};
pub(crate) use receiver::Receiver;
pub(crate) use roles::Roles;
pub use roles::reader;
pub(crate) use sender::{Outlet, Sender, fill};
