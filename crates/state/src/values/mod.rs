//! Mergeable values: kinds, exact numbers, sketches, lists and sets, and their merge (paper,
//! section 7.3).

pub(crate) mod best;
pub(crate) mod blob;
pub(crate) mod blobs;
pub(crate) mod chain;
pub(crate) mod exact;
pub mod float_sum;
pub(crate) mod frequent;
pub(crate) mod histogram;
pub(crate) mod kind;
pub(crate) mod list;
pub mod moments;
pub(crate) mod registers;
pub(crate) mod set;
