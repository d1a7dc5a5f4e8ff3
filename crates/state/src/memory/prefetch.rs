//! Hints to the processor, which loads cache lines ahead.

use crate::memory::log::BLOCK_ROWS;

/// Asks for the cache line at `place`.
#[inline(always)]
pub(crate) fn prefetch(place: *const u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Asks for the cache lines of a column's next block: the values from `start` on. A processor's own
/// prefetcher stops at the end of a page, where a block may wait for memory.
#[inline(always)]
pub fn prefetch_block<T>(column: &[T], start: usize) {
    const LINE_BYTES: usize = 64;
    let count = BLOCK_ROWS.min(column.len().saturating_sub(start));
    let first = column.as_ptr().wrapping_add(start).cast::<u8>();
    for offset in (0..count * size_of::<T>()).step_by(LINE_BYTES) {
        prefetch(first.wrapping_add(offset).cast());
    }
}
