//! Filling the buckets of an index while it grows. What bounds growing is memory traffic, so each
//! bucket is assembled apart and written once, whole.

use crate::memory::pages::Line;

/// Entries in a bucket.
pub(crate) const BUCKET: usize = 8;

/// Buckets that are being filled at once while an index grows.
const FILLING: usize = 64;
/// How many of them are kept, for entries whose home is full, behind the last that is a home now.
pub(crate) const MARGIN: usize = 8;

/// The last buckets of a growing index that are not written yet: `top - FILLING .. top`.
pub(crate) struct Filling {
    start: *mut Line,
    /// All buckets from this one on are written.
    top: usize,
    lines: [Line; FILLING],
    filled: [u8; FILLING],
}

impl Filling {
    pub(crate) fn new(start: *mut Line, count: usize) -> Filling {
        Filling { start, top: count, lines: [[0; BUCKET]; FILLING], filled: [0; FILLING] }
    }

    /// Puts an entry into its home or the next bucket that is not full; false if no bucket being
    /// filled has room.
    #[inline(always)]
    pub(crate) fn put(&mut self, entry: u64, home: usize) -> bool {
        self.put_into(entry, home) || self.put_behind(entry, home)
    }

    /// Puts an entry into a bucket if it is being filled and not full.
    #[inline(always)]
    fn put_into(&mut self, entry: u64, bucket: usize) -> bool {
        let at = bucket % FILLING;
        let filled = usize::from(self.filled[at]);
        if !self.is_filling(bucket) || filled == BUCKET {
            return false;
        }
        // SAFETY: one of the lines, which has that many entries and is not full.
        unsafe { self.lines.as_mut_ptr().cast::<u64>().add(at * BUCKET + filled).write(entry) };
        self.filled[at] += 1;
        true
    }

    #[cold]
    #[inline(never)]
    fn put_behind(&mut self, entry: u64, home: usize) -> bool {
        let mut buckets = (home..).take_while(|bucket| self.is_filling(*bucket));
        let free = buckets.find(|bucket| usize::from(self.filled[bucket % FILLING]) < BUCKET);
        free.is_some_and(|bucket| self.put_into(entry, bucket))
    }

    #[inline(always)]
    fn is_filling(&self, bucket: usize) -> bool {
        // As unsigned numbers, those at or behind `top` are far away too.
        self.top.wrapping_sub(bucket + 1) < FILLING
    }

    /// Writes all buckets from number `from` on that are not written yet.
    #[inline(always)]
    pub(crate) fn write_from(&mut self, from: usize) {
        while self.top > from {
            self.top -= 1;
            let line = &mut self.lines[self.top % FILLING];
            // SAFETY: one of the index's buckets: `top` started at their count.
            unsafe { write_line(self.start.add(self.top), line) };
            *line = [0; BUCKET];
            self.filled[self.top % FILLING] = 0;
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence()
        };
    }
}

/// Writes a whole line past the caches, which would have to read it first.
///
/// # Safety
/// `place` must be a line to be written. Nobody, not even this thread, may look at it before a
/// fence.
#[inline(always)]
unsafe fn write_line(place: *mut Line, line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promises; lines are aligned to 64 bytes, and SSE2 is part of x86-64.
    unsafe {
        use std::arch::x86_64::*;
        let from = line.as_ptr().cast::<__m128i>();
        let to = place.cast::<__m128i>();
        for i in 0..4 {
            _mm_stream_si128(to.add(i), _mm_loadu_si128(from.add(i)));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        place.write(*line)
    };
}
