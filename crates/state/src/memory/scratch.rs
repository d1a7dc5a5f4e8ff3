//! Buffers of block operations.

/// Buffers that block operations use again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) places: Vec<*mut u64>,
    pub(crate) hashes: Vec<u64>,
    pub(crate) words: Vec<u64>,
}

// SAFETY: the raw pointers in a scratch are only used within one call on the thread that owns it.
unsafe impl Send for Scratch {}
