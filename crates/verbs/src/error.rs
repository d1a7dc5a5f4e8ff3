//! The crate's errors: why there is no RDMA here, and which call failed for which reason.

use std::fmt;
use std::io;

/// Why there is no RDMA on this machine, or not for this process. Its text begins with "RDMA: not
/// available" and says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// `libibverbs.so.1` is not installed, or cannot be loaded.
    Library {
        /// The dynamic linker's words.
        reason: String,
    },
    /// The installed library lacks a function.
    Symbol {
        /// The function.
        name: String,
        /// The required version of the library.
        version: String,
    },
    /// The library works, but there is no device.
    NoDevice,
    /// There are devices, but not the one asked for.
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        present: Vec<String>,
    },
    /// The device exists, but this process may not open it.
    Permission {
        /// The device.
        name: String,
        /// Its file, such as `/dev/infiniband/uverbs0`.
        file: String,
    },
    /// The device exists, but the file through which it is opened does not.
    NoFile {
        /// The device.
        name: String,
        /// The file.
        file: String,
    },
    /// The device cannot be listed or opened for another reason.
    Failed(Error),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RDMA: not available: {}", Reason(self))
    }
}

impl Unavailable {
    /// The text without its beginning: the reason alone.
    pub fn reason(&self) -> String {
        Reason(self).to_string()
    }
}

struct Reason<'a>(&'a Unavailable);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unavailable::Library { reason } => write!(
                f,
                "libibverbs.so.1 cannot be opened ({reason}); install rdma-core's libibverbs \
                 (Debian: libibverbs1 and ibverbs-providers)"
            ),
            Unavailable::Symbol { name, version } => write!(
                f,
                "the installed libibverbs has no {name}@{version}; rdma-core 32 or newer is needed"
            ),
            Unavailable::NoDevice => write!(
                f,
                "no device; is the driver loaded, and its user-space provider installed \
                 (Debian: ibverbs-providers)? Soft-RoCE: rdma link add rxe0 type rxe netdev eth0"
            ),
            Unavailable::UnknownDevice { name, present } => {
                write!(f, "no device \"{name}\"; there is {}", present.join(", "))
            }
            Unavailable::Permission { name, file } => write!(
                f,
                "no permission to open device {name}: this user needs read and write access to \
                 {file}"
            ),
            Unavailable::NoFile { name, file } => write!(
                f,
                "device {name} has no file {file}; is the module ib_uverbs loaded, and has a \
                 container been given the device?"
            ),
            Unavailable::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unavailable {}

/// A verb that failed: the call and the reason the system gave. Two words, so that a failing post
/// allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The function of libibverbs (or the system) that failed.
    pub call: &'static str,
    /// The reason, as in `errno.h`.
    pub errno: i32,
}

impl Error {
    /// The error that the call just left in `errno`.
    pub(crate) fn last(call: &'static str) -> Error {
        Error { call, errno: io::Error::last_os_error().raw_os_error().unwrap_or(0) }
    }

    /// Whether a queue had no room: what was posted can be posted again later.
    ///
    /// Providers say this with `ENOMEM` (libibverbs' documentation) or `EAGAIN`.
    pub fn is_queue_full(&self) -> bool {
        matches!(self.call, "ibv_post_send" | "ibv_post_recv")
            && matches!(self.errno, libc::ENOMEM | libc::EAGAIN)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, io::Error::from_raw_os_error(self.errno))?;
        if self.call == "ibv_reg_mr" && self.errno == libc::ENOMEM {
            write!(f, "; the limit of locked memory may be too low (ulimit -l)")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(error.errno).kind(), error)
    }
}

/// For calls that return 0, an error number, or -1 and the error in `errno`.
pub(crate) fn check(call: &'static str, code: i32) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        -1 => Err(Error::last(call)),
        code => Err(Error { call, errno: code.abs() }),
    }
}

/// For calls that return a pointer, or null and the error in `errno`.
pub(crate) fn non_null<T>(
    call: &'static str,
    pointer: *mut T,
) -> Result<std::ptr::NonNull<T>, Error> {
    std::ptr::NonNull::new(pointer).ok_or_else(|| Error::last(call))
}

/// A list of work of which only the beginning was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError {
    /// How many requests of the list were posted, and will complete.
    pub posted: usize,
    /// Why the next one was not.
    pub error: Error,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (after {} of the list were posted)", self.error, self.posted)
    }
}

impl std::error::Error for PostError {}

impl From<PostError> for Error {
    fn from(error: PostError) -> Error {
        error.error
    }
}
