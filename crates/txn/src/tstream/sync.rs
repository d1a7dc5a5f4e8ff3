//! Atomics of the parts that the model checker explores: there this file has loom's instead.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
