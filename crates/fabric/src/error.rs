//! Errors of the crate. Their texts name the expectation and the remedy.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Result of a fabric's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a call. What goes wrong later, with work that was accepted, is a
/// [`Status`](crate::Status) of its completion.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The provider cannot be used here.
    #[error("{what}: not available: {reason}")]
    Unavailable {
        /// Which provider or device.
        what: &'static str,
        /// Why, and what would help.
        reason: String,
    },
    /// A system call or library call failed.
    #[error("{call} failed: {source}{}", probable_reason(call, source))]
    Os {
        /// The call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// More was asked for than the device gives.
    #[error("{asked} {what} were asked for, at most {max} are to be had")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The amount asked for.
        asked: u64,
        /// The most there is.
        max: u64,
    },
    /// A range does not lie inside its region.
    #[error("{bytes} bytes at offset {offset} do not lie inside a region of {region_bytes} bytes")]
    OutOfBounds {
        /// First byte, counted from the region's start.
        offset: u64,
        /// Length of the range.
        bytes: u64,
        /// Length of the region.
        region_bytes: u64,
    },
    /// An 8-byte atomic at an address that is not a multiple of 8.
    #[error("address {address:#x} of an atomic operation is not a multiple of 8")]
    Unaligned {
        /// The address.
        address: u64,
    },
    /// The queue has no free entry. Poll the completion queue, then post again.
    #[error("the queue is full; poll its completion queue, then post again")]
    QueueFull,
    /// The queue pair is not connected yet.
    #[error("the queue pair is not connected")]
    NotConnected,
    /// The queue pair is connected already; each is connected once.
    #[error("the queue pair is connected already")]
    AlreadyConnected,
    /// The queue pair has failed; what was posted is flushed, nothing more is accepted.
    #[error("the queue pair has failed and accepts no more work")]
    Failed,
    /// More completions arrived than the completion queue has entries; completions are lost and
    /// its queue pairs have failed. Make it as large as all work that can be outstanding.
    #[error(
        "the completion queue overflowed and completions are lost; it needs as many entries as \
         work can be outstanding"
    )]
    CompletionOverflow,
    /// A region, queue or address of another device was given.
    #[error("the {what} belongs to another device")]
    ForeignObject {
        /// Kind of object.
        what: &'static str,
    },
    /// This provider cannot do it.
    #[error("not supported: {what}")]
    Unsupported {
        /// The operation, and the reason.
        what: &'static str,
    },
    /// An address of another provider, or without a meaning for this provider.
    #[error("the peer's address is unusable: {reason}")]
    BadEndpoint {
        /// Fault of the address.
        reason: &'static str,
    },
    /// The peer refused, or was refused.
    #[error("setting up the connection: {0}")]
    Setup(#[from] SetupError),
}

/// Which of the process's limits is probably too low.
fn probable_reason(call: &str, source: &io::Error) -> &'static str {
    match (call, source.raw_os_error()) {
        ("ibv_reg_mr", Some(libc::ENOMEM)) => {
            "; the limit of locked memory may be too low (ulimit -l)"
        }
        (_, Some(libc::EMFILE)) => "; may this process open more (ulimit -n)?",
        _ => "",
    }
}

/// `call` failed and left its reason in `errno`.
pub(crate) fn last_os_error(call: &'static str) -> Error {
    Error::Os { call, source: io::Error::last_os_error() }
}

/// The descriptor that `call` has opened.
pub(crate) fn opened(call: &'static str, file: RawFd) -> Result<OwnedFd> {
    if file < 0 {
        return Err(last_os_error(call));
    }
    // SAFETY: just opened, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Arming of a completion queue without events.
pub(crate) const NO_EVENTS: Error = Error::Unsupported { what: "arming a queue without events" };

/// Why a set-up message was refused.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The stream ended or failed.
    #[error("the peer's stream failed: {0}")]
    Stream(#[from] io::Error),
    /// The first bytes are not ours: something else is talking to this port.
    #[error("the peer does not speak Millstream's protocol")]
    Magic,
    /// Another version.
    #[error("the peer speaks version {theirs}, this program version {ours}")]
    Version {
        /// The peer's version.
        theirs: u32,
        /// This program's.
        ours: u32,
    },
    /// The token is not this job's.
    #[error("the peer does not hold this job's token")]
    Token,
    /// A field is impossible.
    #[error("the peer's message is malformed: {what}")]
    Field {
        /// The fault.
        what: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_process_are_named() {
        let text = |call, errno| {
            Error::Os { call, source: io::Error::from_raw_os_error(errno) }.to_string()
        };
        assert!(text("ibv_reg_mr", libc::ENOMEM).ends_with("(ulimit -l)"));
        assert!(!text("ibv_reg_mr", libc::EINVAL).contains("ulimit"));
        assert!(!text("mmap", libc::ENOMEM).contains("ulimit"));
        assert!(text("connecting to a peer", libc::EMFILE).contains("ulimit -n"));
    }
}
