//! Waiting on file descriptors.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::Error;

/// Waits until one of the descriptors can be read, for at most that long; whether one can. A signal
/// does not end the wait.
///
/// A thread that waits for completions and for the device's events at once does it with this: see
/// the `AsFd` of [`Context`](crate::Context) and [`CompletionChannel`](crate::CompletionChannel).
pub fn wait_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    timeout: Duration,
) -> Result<bool, Error> {
    let deadline = Instant::now().checked_add(timeout);
    loop {
        let left = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        // Rounded up, so that a wait of less than a millisecond does not spin.
        let milliseconds = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let mut entries = descriptors.map(|descriptor| libc::pollfd {
            fd: descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: that many entries, writable.
        match unsafe { libc::poll(entries.as_mut_ptr(), N as libc::nfds_t, milliseconds) } {
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn waits_for_any_of_several() {
        let (first, _kept) = std::io::pipe().unwrap();
        let (second, mut writer) = std::io::pipe().unwrap();
        let wait = |timeout| wait_readable([first.as_fd(), second.as_fd()], timeout);
        assert_eq!(wait(Duration::from_millis(1)), Ok(false));
        writer.write_all(b"!").unwrap();
        assert_eq!(wait(Duration::MAX), Ok(true));
        set_nonblocking(first.as_fd()).unwrap();
        let error = std::io::Read::read(&mut &first, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}
