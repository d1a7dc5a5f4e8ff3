//! Memory that state stands in: ranges of addresses, arenas, words, logs of rows, and the hashes
//! and numbers of bytes.

pub(crate) mod arena;
pub(crate) mod cache;
pub(crate) mod hash;
pub(crate) mod heap;
pub(crate) mod lanes;
pub(crate) mod log;
pub(crate) mod numbers;
pub(crate) mod pages;
pub(crate) mod prefetch;
pub(crate) mod refused;
pub(crate) mod rooms;
pub(crate) mod runs;
pub(crate) mod scratch;
pub(crate) mod words;
