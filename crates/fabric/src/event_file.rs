//! An eventfd, which wakes a thread that polls file descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use crate::error::{Result, opened};

/// A file that becomes readable when somebody wakes (an eventfd).
pub(crate) struct EventFile(OwnedFd);

impl EventFile {
    pub(crate) fn new() -> Result<EventFile> {
        // SAFETY: a plain call.
        let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        opened("eventfd", file).map(EventFile)
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        let one = 1_u64;
        // SAFETY: 8 bytes are read from a local; a full counter wakes as well.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Forgets past wake-ups.
    pub(crate) fn hear(&self) {
        let mut count = 0_u64;
        // SAFETY: 8 bytes are written to a local.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for EventFile {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for EventFile {
    fn wake(self: Arc<Self>) {
        self.signal();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signal();
    }
}
