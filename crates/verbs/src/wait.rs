//! Waiting on file descriptors.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::Error;

/// Waits until the descriptor can be read, for at most that long; whether it can. A signal does
/// not end the wait.
pub(crate) fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> Result<bool, Error> {
    let deadline = Instant::now().checked_add(timeout);
    loop {
        let left = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        // Rounded up, so that a wait of less than a millisecond does not spin.
        let milliseconds = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, writable.
        match unsafe { libc::poll(&mut entry, 1, milliseconds) } {
            0 if left.as_millis() <= i32::MAX as u128 => return Ok(false),
            0 => {}
            -1 => {
                let error = Error::last("poll");
                if error.errno != libc::EINTR {
                    return Err(error);
                }
            }
            _ => return Ok(true),
        }
    }
}

/// Makes reads of the descriptor fail with `EAGAIN` instead of waiting.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Error> {
    // SAFETY: these commands take and return an integer, and the descriptor is open.
    let code = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if code < 0 { Err(Error::last("fcntl")) } else { Ok(()) }
}
