//! Recognition of a file in another run of the program: by its name, length and first bytes, not by
//! its inode.

use millstream_contract::table::Position;
use millstream_contract::{Error, Result};

use crate::input::Regular;

/// Description of the file in a position: the first numbers. The other numbers belong to the
/// format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileMark {
    /// Bytes that are read: the file had so many when the first job opened it.
    pub(super) length: u64,
    /// Fingerprint of the first bytes.
    head: u64,
    /// When it was last written before: seconds since the epoch, and nanoseconds.
    pub(super) modified: (i64, i64),
}

impl FileMark {
    /// The mark of a file of which `length` bytes are read.
    pub(super) fn new(file: &Regular, length: u64, modified: (i64, i64)) -> Result<FileMark> {
        Ok(FileMark { length, head: file.head(length)?, modified })
    }

    /// The mark in a position, and the format's part of the position; `None` in a position at the
    /// beginning, and of an input without length.
    pub(super) fn of(position: &Position) -> Option<(FileMark, Position)> {
        let ([length, head, seconds, nanos], rest) = position.0.split_first_chunk()?;
        let modified = (seconds.cast_signed(), nanos.cast_signed());
        Some((FileMark { length: *length, head: *head, modified }, Position(rest.to_vec())))
    }

    /// A format's position with this mark.
    pub(super) fn with(&self, rest: Position) -> Position {
        let (seconds, nanos) = self.modified;
        let mut numbers =
            vec![self.length, self.head, seconds.cast_unsigned(), nanos.cast_unsigned()];
        numbers.extend(rest.0);
        Position(numbers)
    }

    /// Checks that `file`, which has `found` bytes, begins with the bytes that the first job has
    /// read or was to read.
    pub(super) fn check(&self, file: &Regular, found: u64, name: &str) -> Result<()> {
        let changed = if found < self.length {
            format!("it has {found} bytes, and had {} when the job began", self.length)
        } else if file.head(self.length)? != self.head {
            "it has other first bytes than when the job began".to_string()
        } else {
            return Ok(());
        };
        Err(Error::Io {
            place: name.to_string(),
            message: format!("{changed}: the job cannot go on in it"),
            help: "put the file back as it was, or begin anew".into(),
        })
    }
}
