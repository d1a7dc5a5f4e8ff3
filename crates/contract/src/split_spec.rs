//! Splits before they are opened.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A split, before it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitSpec {
    /// Name of the split within its table, for example a path. The name stays the same from one
    /// start to the next.
    pub name: String,
    /// How much there is of it, for example in bytes; `None` if only the process that was asked can
    /// read it.
    pub length: Option<u64>,
    /// Identity of the file, if the split is a file.
    pub file: Option<FileId>,
    /// Whether it can only be read from front to back, which one process does.
    #[serde(default)]
    pub packed: bool,
}

/// Identity of a file, and of its contents, which changes when the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// The file system's device.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// When it was last written: seconds since the epoch, and nanoseconds.
    pub modified: (i64, i64),
    /// Fingerprint of the host's boot. Another host may see the same file with another device and
    /// number.
    pub host: u64,
    /// Fingerprint of the first and last bytes.
    pub content: u64,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = self.modified;
        let FileId { device, inode, .. } = self;
        write!(f, "inode {inode} on device {device}, written at {seconds}.{nanos:09}")
    }
}
