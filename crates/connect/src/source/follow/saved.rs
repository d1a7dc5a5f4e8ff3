//! Positions in followed files: how a file is found again in another run of the program.
//!
//! The file may have another name by then, or another inode, if the files were copied. So a
//! position says both, and the bytes around the place: a file counts as the same if its first bytes
//! and the last bytes before the place are the same.

use std::fs::{self, DirEntry, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millstream_contract::table::{Position, ShownName};

use super::super::paths::split_name;
use crate::input::{HEAD_BYTES, fingerprint, read_at};

/// Numbers of a file, before its name.
const NUMBERS: usize = 7;

/// Identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// A file at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: Id,
    /// Bytes.
    pub(super) length: u64,
    /// When it was last written: seconds since the epoch, and nanoseconds.
    pub(super) modified: (i64, i64),
}

impl Seen {
    pub(super) fn new(metadata: &Metadata) -> Seen {
        Seen {
            id: Id { device: metadata.dev(), inode: metadata.ino() },
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Where to go on in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) inode: u64,
    /// Of the first bytes before `offset`, and of the last, at most [`HEAD_BYTES`] each.
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) offset: u64,
    pub(super) line: u64,
    /// Bytes that the file had.
    pub(super) length: u64,
    /// Its name.
    pub(super) name: String,
}

/// Names of files, the same in another working directory, and without secrets.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    pub(super) base: PathBuf,
    pub(super) shown: ShownName,
}

impl Naming {
    pub(super) fn of(&self, path: &Path) -> String {
        self.shown.of(&split_name(&self.base, &path.display().to_string()))
    }
}

impl Saved {
    /// Appends the numbers to a position's: those of the place, the length of the name, and the
    /// name, eight bytes to a number.
    pub(super) fn put(&self, numbers: &mut Vec<u64>) {
        let Saved { inode, head, tail, offset, line, length, name } = self;
        numbers.extend([*inode, *head, *tail, *offset, *line, *length, name.len() as u64]);
        numbers.extend(name.as_bytes().chunks(8).map(|part| {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(bytes)
        }));
    }

    /// The files of a position, in the order in which they are read.
    pub(super) fn all_of(position: &Position) -> Vec<Saved> {
        let (mut rest, mut all) = (&position.0[..], Vec::new());
        while let Some((numbers, after)) = rest.split_first_chunk::<NUMBERS>() {
            let [inode, head, tail, offset, line, length, name_bytes] = *numbers;
            let words = usize::try_from(name_bytes.div_ceil(8)).unwrap_or(usize::MAX);
            let Some((name, after)) = after.split_at_checked(words) else { break };
            let mut name: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
            name.truncate(name_bytes as usize);
            let name = String::from_utf8_lossy(&name).into_owned();
            all.push(Saved { inode, head, tail, offset, line, length, name });
            rest = after;
        }
        all
    }

    /// Whether a file has the bytes around the place, so that it goes on there.
    pub(super) fn is_in(&self, file: &File) -> io::Result<bool> {
        let head = self.offset.min(HEAD_BYTES as u64);
        Ok(file.metadata()?.len() >= self.offset
            && fingerprint(&before(file, head)?) == self.head
            && fingerprint(&before(file, self.offset)?) == self.tail)
    }

    /// The file, if the table's path does not name it: a file of the saved name, or a file of the
    /// saved inode in the same directory.
    pub(super) fn renamed(&self, naming: &Naming) -> Option<(PathBuf, Seen)> {
        let path = naming.base.join(&self.name);
        let entries = fs::read_dir(path.parent()?).ok()?;
        let found = |entry: DirEntry| {
            let metadata = entry.metadata().ok().filter(|found| found.is_file())?;
            let (at, seen) = (entry.path(), Seen::new(&metadata));
            let same = (seen.id.inode == self.inode || at == path)
                && File::open(&at).and_then(|file| self.is_in(&file)).unwrap_or(false);
            same.then_some((at, seen))
        };
        entries.flatten().find_map(found)
    }
}

/// The last bytes before an offset, at most [`HEAD_BYTES`].
pub(super) fn before(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let most = offset.min(HEAD_BYTES as u64);
    let mut bytes = vec![0; most as usize];
    let got = read_at(file, &mut bytes, offset - most)?;
    bytes.truncate(got);
    Ok(bytes)
}
