//! The exchanged baseline: records are repartitioned, as most engines do it. Late merge is measured
//! against this (*RDMA UpPar* in the paper's section 8).
//!
//! Senders filter, project, assign windows and partition. They write what a record's key and
//! aggregates need straight into the open slot of the channel to the worker that owns the key
//! (`sender`, `route`, `millstream_operators::passed`). Receivers own disjoint partitions and
//! update their tables from the slot, without a copy (`crate::delivery`). Channels, tables and
//! aggregates are those of late merge.
//!
//! **Instructions per exchanged row** of one key word and one argument, for two receivers. The
//! lower limit with AVX-512, eight rows at a time: 16 instructions to hash, 11 to find the
//! receivers, and for each receiver and word a compression and a store. That is (16 + 11 + 2·2·2) /
//! 8, about 4.5, if nothing were stored in between. For the two passes here, which first list
//! positions and then gather values, 7 are expected. With AVX2 the hash alone takes 8, because
//! 64-bit products must be put together from parts; 15 are expected.
//!
//! Counted (callgrind) on rows like those of `nb7`, for 1, 2, 4 and 8
//! receivers: 2.2, 6.4, 7.8 and 10.8 with AVX-512; 3.7, 14.5, 17.8 and 19.8 with AVX2. Of the
//! latter, 7.8 are for the hash and, with two receivers, 2.8 for routing and 3.2 for gathering. A
//! single receiver needs no hash.

mod route;
mod sender;
#[cfg(test)]
mod tests;

pub use crate::roles::reader;
pub(crate) use sender::Sender;
