//! Zeroed memory for a table. Its greatest size is reserved at once, and it is used from the front
//! as the table grows.
//!
//! Reserved addresses cost nothing until they are touched, so a table can grow in place. Huge pages
//! are requested, because otherwise every access to a large table would miss the processor's cache
//! of address translations.

use crate::error::{Error, Result};

/// A value for which all bits zero is valid, needs no drop, and means an empty slot.
///
/// # Safety
///
/// The type must be valid when all of its bytes are zero.
pub(super) unsafe trait Zeroed: Copy {}

/// Reserved memory of `slots` values, all zero at first.
#[derive(Debug)]
pub(super) struct Reserved<T: Zeroed> {
    base: *mut T,
    slots: usize,
    mapping: *mut u8,
    mapping_bytes: usize,
}

// SAFETY: the memory is owned by this value alone, like a boxed slice's.
unsafe impl<T: Zeroed + Send> Send for Reserved<T> {}

/// Size and alignment of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl<T: Zeroed> Reserved<T> {
    /// Reserves room for `slots` values, of which a few take up 2 MiB at once if `huge_pages`.
    pub(super) fn new(slots: usize, huge_pages: bool) -> Result<Reserved<T>> {
        let too_much = Error::Memory { bytes: usize::MAX };
        let bytes = slots.checked_mul(size_of::<T>()).ok_or(too_much)?;
        let mapping_bytes = bytes + HUGE_PAGE_BYTES;
        let mapping = map(mapping_bytes, huge_pages)?;
        let base = mapping.wrapping_add(mapping.align_offset(HUGE_PAGE_BYTES)).cast();
        Ok(Reserved { base, slots, mapping, mapping_bytes })
    }

    /// The first `slots` values.
    ///
    /// # Panics
    ///
    /// If that is more than is reserved.
    #[inline]
    pub(super) fn first(&mut self, slots: usize) -> &mut [T] {
        assert!(slots <= self.slots, "a table stays within what was reserved for it");
        // SAFETY: `base` is aligned to a huge page and followed by `self.slots` values inside the
        // mapping, which was zero when it was made; zero is a valid `T`. The memory is borrowed
        // through `&mut self` alone.
        unsafe { std::slice::from_raw_parts_mut(self.base, slots) }
    }

    /// Where the values begin; all that are reserved may be reached from it.
    #[inline]
    pub(super) fn base(&mut self) -> *mut T {
        self.base
    }

    /// How many values are reserved.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }
}

#[cfg(unix)]
fn map(bytes: usize, huge_pages: bool) -> Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    #[cfg(target_os = "linux")]
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    #[cfg(not(target_os = "linux"))]
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
    // SAFETY: a new private mapping at an address of the system's choice touches nothing of ours.
    let mapping = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if mapping == libc::MAP_FAILED {
        return Err(Error::Memory { bytes });
    }
    #[cfg(target_os = "linux")]
    if huge_pages {
        // SAFETY: the range is the mapping just made. Advice does not change contents, and being
        // refused is no failure.
        unsafe { libc::madvise(mapping, bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = huge_pages;
    Ok(mapping.cast())
}

#[cfg(not(unix))]
fn layout(bytes: usize) -> Result<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(bytes, 4096).map_err(|_| Error::Memory { bytes })
}

#[cfg(not(unix))]
fn map(bytes: usize, _huge_pages: bool) -> Result<*mut u8> {
    // SAFETY: the layout's size is not zero, since a huge page is always added to it.
    let memory = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    if memory.is_null() { Err(Error::Memory { bytes }) } else { Ok(memory) }
}

impl<T: Zeroed> Drop for Reserved<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and is not used after this.
        #[cfg(unix)]
        unsafe {
            libc::munmap(self.mapping.cast(), self.mapping_bytes);
        }
        #[cfg(not(unix))]
        if let Ok(layout) = layout(self.mapping_bytes) {
            // SAFETY: allocated by `map` with this layout and not used after this.
            unsafe { std::alloc::dealloc(self.mapping, layout) }
        }
    }
}
