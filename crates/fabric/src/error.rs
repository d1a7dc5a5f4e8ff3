//! Errors of the crate. Their texts name the expectation and the remedy.

use std::{error, fmt, io};

/// Result of a fabric's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a call. What goes wrong later, with work that was accepted, is a
/// [`Status`](crate::Status) of its completion.
#[derive(Debug)]
pub enum Error {
    /// The provider cannot be used here.
    Unavailable {
        /// Which provider or device.
        what: &'static str,
        /// Why, and what would help.
        reason: String,
    },
    /// A system call or library call failed.
    Os {
        /// The call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// More was asked for than the device gives.
    Limit {
        /// Of what.
        what: &'static str,
        /// The amount asked for.
        asked: u64,
        /// The most there is.
        max: u64,
    },
    /// A range does not lie inside its region.
    OutOfBounds {
        /// First byte, counted from the region's start.
        offset: u64,
        /// Length of the range.
        bytes: u64,
        /// Length of the region.
        region_bytes: u64,
    },
    /// An 8-byte atomic at an address that is not a multiple of 8.
    Unaligned {
        /// The address.
        address: u64,
    },
    /// The queue has no free entry. Poll the completion queue, then post again.
    QueueFull,
    /// The queue pair is not connected yet.
    NotConnected,
    /// The queue pair is connected already; each is connected once.
    AlreadyConnected,
    /// The queue pair has failed; what was posted is flushed, nothing more is accepted.
    Failed,
    /// More completions arrived than the completion queue has entries; completions are lost and
    /// its queue pairs have failed. Make it as large as all work that can be outstanding.
    CompletionOverflow,
    /// A region, queue or address of another device was given.
    ForeignObject {
        /// Kind of object.
        what: &'static str,
    },
    /// This provider cannot do it.
    Unsupported {
        /// The operation, and the reason.
        what: &'static str,
    },
    /// An address of another provider, or without a meaning for this provider.
    BadEndpoint {
        /// Fault of the address.
        reason: &'static str,
    },
    /// The peer refused, or was refused.
    Setup(SetupError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unavailable { what, reason } => write!(f, "{what}: not available: {reason}"),
            Error::Os { call, source } => {
                write!(f, "{call} failed: {source}{}", probable_reason(call, source))
            }
            Error::Limit { what, asked, max } => {
                write!(f, "{asked} {what} were asked for, at most {max} are to be had")
            }
            Error::OutOfBounds { offset, bytes, region_bytes } => write!(
                f,
                "{bytes} bytes at offset {offset} do not lie inside a region of {region_bytes} bytes"
            ),
            Error::Unaligned { address } => {
                write!(f, "address {address:#x} of an atomic operation is not a multiple of 8")
            }
            Error::QueueFull => {
                write!(f, "the queue is full; poll its completion queue, then post again")
            }
            Error::NotConnected => write!(f, "the queue pair is not connected"),
            Error::AlreadyConnected => write!(f, "the queue pair is connected already"),
            Error::Failed => write!(f, "the queue pair has failed and accepts no more work"),
            Error::CompletionOverflow => write!(
                f,
                "the completion queue overflowed and completions are lost; it needs as many \
                 entries as work can be outstanding"
            ),
            Error::ForeignObject { what } => write!(f, "the {what} belongs to another device"),
            Error::Unsupported { what } => write!(f, "not supported: {what}"),
            Error::BadEndpoint { reason } => write!(f, "the peer's address is unusable: {reason}"),
            Error::Setup(error) => write!(f, "setting up the connection: {error}"),
        }
    }
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

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Os { source, .. } => Some(source),
            Error::Setup(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SetupError> for Error {
    fn from(error: SetupError) -> Self {
        Error::Setup(error)
    }
}

/// `call` failed and left its reason in `errno`.
pub(crate) fn last_os_error(call: &'static str) -> Error {
    Error::Os { call, source: io::Error::last_os_error() }
}

/// Posting receives at a pair that takes those of a shared queue.
pub(crate) const NO_OWN_RECEIVES: Error =
    Error::Unsupported { what: "receives of its own at a pair that takes shared ones" };

/// Arming of a completion queue without events.
pub(crate) const NO_EVENTS: Error = Error::Unsupported { what: "arming a queue without events" };

/// Why a set-up message was refused.
#[derive(Debug)]
pub enum SetupError {
    /// The stream ended or failed.
    Stream(io::Error),
    /// The first bytes are not ours: something else is talking to this port.
    Magic,
    /// Another version.
    Version {
        /// The peer's version.
        theirs: u32,
        /// This program's.
        ours: u32,
    },
    /// The token is not this job's.
    Token,
    /// A field is impossible.
    Field {
        /// The fault.
        what: &'static str,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Stream(error) => write!(f, "the peer's stream failed: {error}"),
            SetupError::Magic => write!(f, "the peer does not speak Millstream's protocol"),
            SetupError::Version { theirs, ours } => {
                write!(f, "the peer speaks version {theirs}, this program version {ours}")
            }
            SetupError::Token => write!(f, "the peer does not hold this job's token"),
            SetupError::Field { what } => write!(f, "the peer's message is malformed: {what}"),
        }
    }
}

impl error::Error for SetupError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            SetupError::Stream(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        SetupError::Stream(error)
    }
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
