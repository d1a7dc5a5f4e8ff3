//! The program's allocator. It is the system's, except that it keeps what is freed, and that a
//! refused allocation ends the program with a message and exit code 1, where Rust's default would
//! abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

#[global_allocator]
static ALLOCATOR: Reporting = Reporting;

struct Reporting;

/// What each thread's allocator keeps of what was freed, at the most.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 64 << 20;
/// What is larger comes from the system itself, and goes back to it.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 4 << 20;

/// Keeps memory that is freed for what comes next. A batch's columns are made and freed batch by
/// batch: as pages that come from the system anew each time, they cost a join a sixth of its time.
pub(crate) fn keep_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time; what it cannot do, it leaves.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

// SAFETY: all is left to the system's allocator, whose contract it is; what it refuses is not
// returned from.
unsafe impl GlobalAlloc for Reporting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.realloc(start, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

#[inline(always)]
fn given(start: *mut u8, bytes: usize) -> *mut u8 {
    if start.is_null() {
        refused(bytes);
    }
    start
}

/// Ends the program, which has been refused so many bytes. Nothing is allocated here, and nothing
/// cleaned up.
#[cold]
pub(crate) fn refused(bytes: usize) -> ! {
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
