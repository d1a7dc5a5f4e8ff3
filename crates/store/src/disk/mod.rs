//! Steps of a file system, below [`LocalStore`](crate::LocalStore): the machine's, and a
//! simulated file system that crashes.
//!
//! A step says no more than POSIX does. What was written is durable after [`DiskFile::sync`], a
//! name after [`Disk::sync_dir`] of its directory, and nothing else is.

mod crash;
mod real;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;

pub use crash::{CrashDisk, Fault, Step, StepKind, Survival};
pub use real::RealDisk;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name.
    pub name: String,
    /// The length of a file; `None`: a directory.
    pub bytes: Option<u64>,
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Makes a new file and locks it until the result is dropped. An error of kind `AlreadyExists`
    /// if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file a second name, which must be free (`AlreadyExists`).
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file another name, and takes the name from the file that had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name of a file.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Removes a name of a file that nobody has locked. False if the file is locked or gone.
    fn unlink_abandoned(&self, path: &Path) -> io::Result<bool>;
    /// Makes a directory; its parent must be there.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Files and directories, in any order; others (links, pipes) are left out.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Bytes of a file: all, or those of a range (`UnexpectedEof` if the file is shorter).
    fn read(&self, path: &Path, range: Option<Range<u64>>) -> io::Result<Vec<u8>>;
}

/// A file that is being written, and locked meanwhile.
pub trait DiskFile: Send + Debug {
    /// Appends all these bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes all written bytes durable. After an error the file must be written anew: a later call
    /// may succeed without the lost bytes, since Linux forgets which bytes were not written.
    fn sync(&mut self) -> io::Result<()>;
}
