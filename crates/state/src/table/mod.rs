//! Tables: rows of a layout in a log, an index over them, and the keys' partitions (paper, section
//! 7.2).

pub(crate) mod buckets;
pub(crate) mod compact;
pub(crate) mod direct;
pub(crate) mod filling;
pub(crate) mod find;
pub(crate) mod hot;
pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod keyed;
pub(crate) mod layout;
pub(crate) mod logs;
pub(crate) mod merge;
pub(crate) mod partition;
pub(crate) mod prefix;
pub(crate) mod rows;
pub(crate) mod segment;
pub(crate) mod split;
pub(crate) mod value;
