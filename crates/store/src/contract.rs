//! The contract of stores: named objects that outlast a crash.

use std::fmt::Debug;
use std::ops::Range;

use crate::error::Result;

/// Outcome of [`Store::put_if_absent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The object is there now, with the given bytes.
    Created,
    /// An object of this name was there before, and has not changed. It need not be durable: its
    /// writer may have been killed, or have met an error.
    Exists,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its name within the store.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// A place for objects, shared by the processes of a job and by jobs that follow each other.
///
/// A name has parts between slashes. A part has ASCII letters, digits, `-`, `_`, `.` and `=`, at
/// most 200, and does not begin with a dot; so no name leads out of the store.
///
/// Every call waits until it is done. **`Ok` means durable**: no crash of the program, the system
/// or the power undoes the call. **After an error the object is there whole, or it is as before**,
/// but which is not known; the call may be made again. Nobody sees a part of an object.
pub trait Store: Send + Sync + Debug {
    /// Where an object is, for messages: a path, for example.
    fn place(&self, name: &str) -> String;
    /// Writes an object, unless one of this name exists. Of several callers at the same time,
    /// exactly one gets [`Put::Created`].
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Put>;
    /// Begins an object that is written piece by piece.
    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>>;
    /// Writes an object, in place of one of this name.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut writer = self.create(name)?;
        writer.write(bytes)?;
        writer.finish()
    }
    /// Makes an object durable that was found: its writer may have been killed before it was. The
    /// store needs no room for that.
    fn settle(&self, name: &str) -> Result<()>;
    /// The bytes of an object, or those of a range, which the object must have.
    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>>;
    /// All objects whose names begin with `prefix`, by name. An object that is written or deleted
    /// meanwhile may be among them or not. An object in the list need not be durable: a writer that
    /// was killed may have left it so.
    fn list(&self, prefix: &str) -> Result<Vec<Object>>;
    /// Deletes an object. No error if there is none.
    fn delete(&self, name: &str) -> Result<()>;
    /// Removes what writers that were killed have left unfinished, and returns how many pieces they
    /// were. Writers that live are not disturbed, in this process or another.
    fn sweep(&self) -> Result<u64>;
}

/// Writes an object. The object becomes visible with [`ObjectWriter::finish`]; a writer
/// dropped before leaves nothing.
pub trait ObjectWriter: Send + Debug {
    /// Appends bytes. After an error the writer is of no use.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the object durable and visible, in place of one of the same name.
    fn finish(self: Box<Self>) -> Result<()>;
}
