//! The allocator of both programs, `millstream` and `millstream-lab`: mimalloc, and the system's
//! allocator for large memory. A program that links this crate uses this allocator.
//!
//! Columns are made by one worker and freed by another, and most are aligned to cache lines. The
//! allocator of glibc takes a lock for both. What is large grows in the system's allocator without
//! being copied.
//!
//! A refused allocation ends the program with a message and exit code 1, where Rust's default would
//! abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::ptr::copy_nonoverlapping;

use libmimalloc_sys as mimalloc;

#[global_allocator]
static ALLOCATOR: Reporting = Reporting;

struct Reporting;

/// Least size of memory that comes from the system's allocator, and goes back to the system.
const LARGE_BYTES: usize = 4 << 20;

/// `mi_option_purge_delay`: after so many milliseconds freed memory goes back to the system. The
/// next batch, or the next window, would get it from there page by page.
const PURGE_DELAY: mimalloc::mi_option_t = 15;
const PURGE_DELAY_MS: i64 = 1000;
/// `mi_option_arena_reserve`: address space that is taken at a time, in KiB. The default, 1 GiB, is
/// much where that is limited.
const ARENA_RESERVE: mimalloc::mi_option_t = 23;
const ARENA_RESERVE_KIB: i64 = 64 << 10;

/// Sets these before anything is allocated, unless the environment does (`MIMALLOC_…`).
extern "C" fn begin() {
    // SAFETY: options may be set at any time.
    unsafe {
        mimalloc::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
        mimalloc::mi_option_set_default(ARENA_RESERVE, ARENA_RESERVE_KIB);
    }
}

// SAFETY: the functions of this section are called once, without arguments that they need, before
// the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

// SAFETY: all calls go to two allocators, which keep the contract; the layout of memory determines
// its allocator. A refusal ends the program instead of returning.
unsafe impl GlobalAlloc for Reporting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let start = unsafe {
            match is_large(layout.size()) {
                true => System.alloc(layout),
                false => mimalloc::mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        };
        given(start, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let start = unsafe {
            match is_large(layout.size()) {
                true => System.alloc_zeroed(layout),
                false => mimalloc::mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        };
        given(start, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        let moved = unsafe {
            match (is_large(layout.size()), is_large(new_size)) {
                (true, true) => System.realloc(start, layout, new_size),
                (false, false) => {
                    mimalloc::mi_realloc_aligned(start.cast(), new_size, layout.align()).cast()
                }
                _ => self.move_to_other(start, layout, new_size),
            }
        };
        given(moved, new_size)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe {
            match is_large(layout.size()) {
                true => System.dealloc(start, layout),
                false => mimalloc::mi_free(start.cast()),
            }
        }
    }
}

impl Reporting {
    /// Memory of another size, from the other allocator, with the same contents.
    ///
    /// # Safety
    ///
    /// As of [`GlobalAlloc::realloc`].
    unsafe fn move_to_other(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size is possible with this alignment; both
        // pieces have as many bytes as are copied.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            copy_nonoverlapping(start, moved, layout.size().min(new_size));
            self.dealloc(start, layout);
            moved
        }
    }
}

/// Has the system's allocator ask the system for whatever is large.
pub fn keep_large_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call is allowed at any time; without effect, it returns 0.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES as libc::c_int);
    }
}

#[inline(always)]
fn given(start: *mut u8, bytes: usize) -> *mut u8 {
    if start.is_null() {
        refused(bytes);
    }
    start
}

/// Ends the program, which has been refused so many bytes. Allocates no memory, and cleans up
/// nothing.
#[cold]
pub fn refused(bytes: usize) -> ! {
    let mut message = [0; 512];
    let room = message.len();
    let mut rest = &mut message[..];
    let _ = writeln!(
        rest,
        "error: out of memory: the system has refused {bytes} bytes\n  \
         help: let the job use less with --set memory='...' (a budget for state, buffers and \
         queues; the rest of the program comes on top), or give the process more: see ulimit -v \
         and the limit of its cgroup"
    );
    let written = room - rest.len();
    // SAFETY: the message is initialised memory of at least that length; `_exit` returns from
    // nothing.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), written);
        libc::_exit(1)
    }
}
