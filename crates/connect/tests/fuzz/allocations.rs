//! The most memory that is asked for at once: a short file must not make room for gigabytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that an input of some kilobytes may ask for at once. A page that claims to be packed as
/// well as can be may unpack to 32,768 times its bytes.
pub(crate) const MOST: usize = 256 << 20;

static MOST_ASKED_FOR: AtomicUsize = AtomicUsize::new(0);

/// Of all threads.
pub(crate) fn most_since_the_last_look() -> usize {
    MOST_ASKED_FOR.swap(0, Ordering::Relaxed)
}

struct Noting;

// SAFETY: everything is the system allocator's; noting changes nothing.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST_ASKED_FOR.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        MOST_ASKED_FOR.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        MOST_ASKED_FOR.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static NOTING: Noting = Noting;
