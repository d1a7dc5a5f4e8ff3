//! The bound on the strings that expressions produce for one batch. It covers all strings of the
//! batch together, however many columns and calls there are.
//!
//! Code that evaluates a batch starts with [`begin`]. Expressions ask for the [`room`] that is
//! left, and note the bytes that they have produced. All of this happens on one thread, so the
//! count belongs to the thread.

use std::cell::Cell;

/// Bytes of text that expressions may make of one batch.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Begins a batch: no text of earlier batches counts.
pub fn begin() {
    MADE.set(0);
}

/// Bytes of text made of the batch at hand that are still there.
pub fn made() -> u64 {
    MADE.get()
}

/// So many bytes are there now.
pub fn set_made(bytes: u64) {
    MADE.set(bytes);
}

/// Bytes that may still be made.
pub fn room() -> u64 {
    TEXT_BYTES_MAX.saturating_sub(MADE.get())
}
