//! Zeroed memory in units of cache lines, which can grow in place.
//!
//! Small memory comes from the allocator. Large memory is mapped, on huge pages where the system
//! has them. It grows by moving its pages to a longer range of addresses: nothing is copied, and
//! only the new part has to be cleared. The system clears a page when it is first touched, which is
//! the cost of new memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::{io, ptr};

use crate::memory::refused::refused;

/// A cache line of eight words.
pub(crate) type Line = [u64; 8];

/// From this size on memory is mapped: two huge pages, so that rounding up costs at most a half.
#[cfg(target_os = "linux")]
const MAP_BYTES_MIN: usize = 4 << 20;
#[cfg(not(target_os = "linux"))]
const MAP_BYTES_MIN: usize = usize::MAX;

/// Size and alignment of a huge page. Mapped memory is whole huge pages: the rest of the last one
/// could not be used otherwise.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed cache lines, owned.
#[derive(Debug)]
pub(crate) struct Lines {
    start: *mut Line,
    count: usize,
}

// SAFETY: the memory is owned by this value alone, like a boxed slice's.
unsafe impl Send for Lines {}
// SAFETY: as above; it is only written through `&mut`.
unsafe impl Sync for Lines {}

impl Lines {
    /// No memory.
    pub(crate) fn empty() -> Lines {
        Lines { start: ptr::dangling_mut(), count: 0 }
    }

    /// So many lines, zero, in a mapping of their own if they are enough for one. The system's
    /// refusal is an error then, where other memory ends the program.
    pub(crate) fn map(count: usize) -> io::Result<Lines> {
        let bytes = bytes_of(count);
        if bytes >= MAP_BYTES_MIN {
            return Ok(Lines { start: map::try_new(bytes)?.cast(), count });
        }
        let mut lines = Lines::empty();
        lines.grow(count);
        Ok(lines)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(crate) fn start(&self) -> *const Line {
        self.start
    }

    #[inline(always)]
    pub(crate) fn start_mut(&mut self) -> *mut Line {
        self.start
    }

    /// All lines in parts.
    ///
    /// # Safety
    /// `T` must be an unsigned number whose size divides that of a line.
    pub(crate) unsafe fn parts_mut<T>(&mut self) -> &mut [T] {
        let parts = self.count * (size_of::<Line>() / size_of::<T>());
        // SAFETY: so many lines are written and this value's own; any bits are a number.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), parts) }
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        allocated(bytes_of(self.count))
    }

    /// Bytes to be allocated, beside the present ones, for a length of `count` lines.
    pub(crate) fn growth_bytes(&self, count: usize) -> usize {
        let (old, new) = (bytes_of(self.count), bytes_of(count));
        if old >= MAP_BYTES_MIN { allocated(new) - allocated(old) } else { allocated(new) }
    }

    /// Makes it `count` lines long, at least as long as it is; what is new is zero.
    pub(crate) fn grow(&mut self, count: usize) {
        assert!(count >= self.count, "lines only grow");
        let (old, new) = (bytes_of(self.count), bytes_of(count));
        let start = if count == self.count {
            self.start
        } else if old >= MAP_BYTES_MIN {
            map::grow(self.start.cast(), old, new).cast()
        } else {
            let start = allocate(new);
            // SAFETY: both are allocations of at least `self.count` lines, and different ones.
            unsafe { ptr::copy_nonoverlapping(self.start, start, self.count) };
            free(self.start, self.count);
            start
        };
        (self.start, self.count) = (start, count);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        free(self.start, self.count);
    }
}

/// Bytes allocated to hold `bytes` bytes.
fn allocated(bytes: usize) -> usize {
    if bytes >= MAP_BYTES_MIN { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes }
}

fn bytes_of(count: usize) -> usize {
    count.checked_mul(size_of::<Line>()).expect("memory for fewer than 2^58 lines")
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, size_of::<Line>()).expect("memory of less than 2^63 bytes")
}

fn allocate(bytes: usize) -> *mut Line {
    if bytes >= MAP_BYTES_MIN {
        return map::new(bytes).cast();
    }
    // SAFETY: the size is not zero: memory only grows.
    let start = unsafe { alloc_zeroed(layout(bytes)) };
    if start.is_null() {
        refused(layout(bytes));
    }
    start.cast()
}

fn free(start: *mut Line, count: usize) {
    let bytes = bytes_of(count);
    if bytes >= MAP_BYTES_MIN {
        map::free(start.cast(), bytes);
    } else if bytes > 0 {
        // SAFETY: allocated by `allocate` with this layout, and not used after this.
        unsafe { dealloc(start.cast(), layout(bytes)) };
    }
}

/// Asks for huge pages in a range of memory of the caller's. The advice changes no contents, and
/// that it fails where they are not to be had is all right.
pub(crate) fn advise_huge(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: advice about pages has no effect on what they hold.
    unsafe {
        libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// Asks for pages of the usual size, so that what uses little of a range takes little.
pub(crate) fn advise_small(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: as above.
    unsafe {
        libc::madvise(start.cast(), bytes, libc::MADV_NOHUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// Gives the pages of a range back to the system, which has zeroes for it when it is used again.
///
/// # Safety
/// The range is readable and writable memory, and nobody relies on what it holds.
pub(crate) unsafe fn give_back(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: as the caller promises. If it fails, the pages stay.
    unsafe {
        libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// Private anonymous mappings at multiples of the huge page size.
#[cfg(target_os = "linux")]
mod map {
    use std::{io, ptr};

    use super::{HUGE_PAGE_BYTES, advise_huge, allocated, layout, refused};

    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

    /// A range of addresses, aligned to a huge page, with nothing behind it yet.
    fn reserve(bytes: usize) -> io::Result<*mut u8> {
        let length = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a new mapping at an address of the system's choice touches nothing of ours; only
        // the two ends of the new mapping are unmapped again.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, FLAGS, -1, 0);
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = start.cast::<u8>();
            let before = start.align_offset(HUGE_PAGE_BYTES);
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            let aligned = start.wrapping_add(before);
            libc::munmap(aligned.wrapping_add(bytes).cast(), length - before - bytes);
            Ok(aligned)
        }
    }

    pub(super) fn new(bytes: usize) -> *mut u8 {
        try_new(bytes).unwrap_or_else(|_| refused(layout(bytes)))
    }

    pub(super) fn try_new(bytes: usize) -> io::Result<*mut u8> {
        let (bytes, access) = (allocated(bytes), libc::PROT_READ | libc::PROT_WRITE);
        let start = reserve(bytes)?;
        // SAFETY: the range was reserved for this just now, and nothing uses it.
        if unsafe { libc::mprotect(start.cast(), bytes, access) } != 0 {
            return Err(io::Error::last_os_error());
        }
        advise_huge(start, bytes);
        Ok(start)
    }

    pub(super) fn grow(start: *mut u8, old: usize, new: usize) -> *mut u8 {
        let (old, new) = (allocated(old), allocated(new));
        if old == new {
            return start;
        }
        let to = reserve(new).unwrap_or_else(|_| refused(layout(new)));
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: `start` is a mapping of `old` bytes that its owner gives up; `to` was reserved
        // for this just now, and nothing uses it. Pages that are added are zero.
        let moved = unsafe { libc::mremap(start.cast(), old, new, flags, to) };
        if moved == libc::MAP_FAILED {
            refused(layout(new));
        }
        advise_huge(to, new);
        to
    }

    pub(super) fn free(start: *mut u8, bytes: usize) {
        // SAFETY: a mapping of this size that its owner gives up.
        unsafe { libc::munmap(start.cast(), allocated(bytes)) };
    }
}

/// Elsewhere the allocator does it all: no memory is as large as `MAP_BYTES_MIN`.
#[cfg(not(target_os = "linux"))]
mod map {
    pub(super) fn new(_: usize) -> *mut u8 {
        unreachable!("memory is not mapped on this system")
    }
    pub(super) fn try_new(_: usize) -> std::io::Result<*mut u8> {
        unreachable!("memory is not mapped on this system")
    }
    pub(super) fn grow(_: *mut u8, _: usize, _: usize) -> *mut u8 {
        unreachable!("memory is not mapped on this system")
    }
    pub(super) fn free(_: *mut u8, _: usize) {
        unreachable!("memory is not mapped on this system")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_keeps_what_is_there_and_adds_zeroes() {
        let mut lines = Lines::empty();
        let line = size_of::<Line>();
        for bytes in [8 << 10, 3 << 20, 5 << 20, 5 << 20, 6 << 20, 19 << 20] {
            let before = lines.count();
            lines.grow(bytes / line);
            assert_eq!(lines.start() as usize % line, 0);
            for i in 0..lines.count() {
                // SAFETY: `i` is one of the lines, which are zero or were written below.
                let line = unsafe { &mut *lines.start_mut().add(i) };
                let expected = if i < before { i as u64 + 1 } else { 0 };
                assert_eq!(*line, [expected; 8], "line {i} of {bytes} bytes");
                *line = [i as u64 + 1; 8];
            }
        }
    }

    /// Small memory is copied when it grows, so that for a moment both are held; mapped memory is
    /// not.
    #[test]
    fn growth_counts_what_is_held_meanwhile() {
        let (mut lines, line) = (Lines::empty(), size_of::<Line>());
        for (bytes, growth) in
            [(8 << 10, 8 << 10), (3 << 20, 3 << 20), (5 << 20, 6 << 20), (7 << 20, 2 << 20)]
        {
            assert_eq!(lines.growth_bytes(bytes / line), growth, "to {bytes} bytes");
            lines.grow(bytes / line);
        }
        assert_eq!(lines.bytes(), 8 << 20);
    }
}
