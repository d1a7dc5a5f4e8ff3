//! File of a table: its properties and bytes.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_contract::table::{OpenOptions, ReadOnce, Sharing, SplitSpec};
use millstream_contract::{Error, Result};

use super::mark::FileMark;
use super::paths;
use crate::beside::FileFacts;
use crate::input::{self, FileExtent, Input, MaybePacked, Name, Pipe, Regular};

/// A file, or an input in place of a file.
#[derive(Debug, Clone)]
pub(crate) struct OneFile {
    pub(super) bytes: Bytes,
    /// For messages; the same in all processes.
    pub(crate) name: Name,
    /// Properties found by process 0, in a job of several processes.
    told: Option<SplitSpec>,
    /// In process 0, the open file: as long as it is open, no new file can get its inode number.
    kept: Arc<Mutex<Option<File>>>,
    /// A pipe whose opening has begun.
    begun: Arc<Mutex<Option<Pipe>>>,
}

/// An opened file.
pub(super) struct OpenedFile {
    pub(super) input: Input,
    /// Length in bytes of an unpacked file, if the length is known.
    pub(super) length: Option<u64>,
    /// How it is known again.
    pub(super) mark: Option<FileMark>,
}

/// Where the bytes come from.
#[derive(Debug, Clone)]
pub(crate) enum Bytes {
    File(PathBuf),
    /// For tests and fuzzing.
    #[cfg(test)]
    Memory(Arc<[u8]>),
}

/// True if a path names an open file of the process itself, as its standard input: the same path
/// names another file in another process.
fn is_own(path: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir))
}

/// Locks, also after a panic: the value is either there or not.
fn locked<T>(kept: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OneFile {
    pub(super) fn new(bytes: Bytes, name: impl Into<Name>) -> OneFile {
        let name = name.into();
        OneFile { bytes, name, told: None, kept: Arc::default(), begun: Arc::default() }
    }

    pub(crate) fn at(path: PathBuf) -> OneFile {
        let name = path.display().to_string();
        OneFile::new(Bytes::File(path), name)
    }

    /// This file, of which no more is read than that.
    pub(super) fn told(&self, spec: &SplitSpec) -> OneFile {
        OneFile { told: Some(spec.clone()), ..self.clone() }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match &self.bytes {
            Bytes::File(path) => Some(path),
            #[cfg(test)]
            Bytes::Memory(_) => None,
        }
    }

    /// Facts about the file beside its records.
    pub(super) fn facts(&self) -> FileFacts {
        let told = self.told.as_ref().and_then(|told| told.file).map(|file| file.modified);
        let found = || {
            let metadata = self.path()?.metadata().ok().filter(Metadata::is_file)?;
            Some((metadata.mtime(), metadata.mtime_nsec()))
        };
        FileFacts { path: self.name.clone(), modified: told.or_else(found) }
    }

    /// Properties found by process 0.
    pub(super) fn given_spec(&self) -> Option<SplitSpec> {
        self.told.clone()
    }

    /// Its bytes.
    pub(crate) fn input(&self) -> Result<Input> {
        Ok(self.open(None)?.input)
    }

    /// Opens it; up to the length of a mark, if one is given.
    #[cfg_attr(
        not(test),
        expect(clippy::infallible_destructuring_match, reason = "tests read from memory, too")
    )]
    pub(super) fn open(&self, mark: Option<FileMark>) -> Result<OpenedFile> {
        let path = match &self.bytes {
            #[cfg(test)]
            Bytes::Memory(bytes) => {
                let input = Input::Memory(std::io::Cursor::new(bytes.clone()));
                return Ok(OpenedFile { input, length: Some(bytes.len() as u64), mark: None });
            }
            Bytes::File(path) => path,
        };
        if let Some(pipe) = locked(&self.begun).take() {
            return Ok(OpenedFile { input: Input::Pipe(pipe), length: None, mark: None });
        }
        let told = self.told.as_ref().filter(|told| told.length.is_some());
        let kept = locked(&self.kept).take().filter(|_| told.is_some());
        let (file, found) = match kept {
            Some(file) => input::opened(file, path)?,
            None => input::open(path)?,
        };
        if let Some(told) = told {
            input::check_same(&self.name, told, (&file, found.as_ref()))?;
        }
        let Some(found) = found else {
            let stream = MaybePacked::new(Box::new(file));
            let input = Input::Pipe(Pipe::new(Box::new(stream)));
            return Ok(OpenedFile { input, length: None, mark: None });
        };
        let length = told.and_then(|told| told.length).unwrap_or(found.length);
        let modified = told.and_then(|told| told.file).unwrap_or(found.file).modified;
        let regular = Regular::new(file, self.name.clone(), mark.map_or(length, |m| m.length));
        let mark = match mark {
            Some(mark) => {
                mark.check(&regular, length, &self.name)?;
                mark
            }
            None => FileMark::new(&regular, length, modified)?,
        };
        let (length, mark) = (mark.length, Some(mark));
        match regular.packing()? {
            Some(packing) => {
                let bytes = Box::new(regular.unpacked(packing)?);
                Ok(OpenedFile { input: Input::Packed { bytes, read: 0 }, length: None, mark })
            }
            None => Ok(OpenedFile { input: Input::File(regular), length: Some(length), mark }),
        }
    }

    /// Properties of the part that a job reads, the same in all its processes; without length if
    /// only one process can read it.
    #[cfg_attr(
        not(test),
        expect(clippy::infallible_destructuring_match, reason = "tests read from memory, too")
    )]
    pub(super) fn spec(&self) -> Result<SplitSpec> {
        let name = self.name.to_string();
        let spec = |length, file| SplitSpec { name, length, file, packed: false };
        let path = match &self.bytes {
            #[cfg(test)]
            Bytes::Memory(bytes) => return Ok(spec(Some(bytes.len() as u64), None)),
            Bytes::File(path) => path,
        };
        // To open a pipe is to wait for its writer.
        let is_file = !is_own(path) && path.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_file {
            return Ok(spec(None, None));
        }
        let (file, found) = input::open(path)?;
        let Some(FileExtent { length, file: id }) = found else { return Ok(spec(None, None)) };
        let again = file.try_clone().map_err(|error| input::io_error(path, &error))?;
        let packed = Regular::new(again, self.name.clone(), length).packing()?.is_some();
        *locked(&self.kept) = Some(file);
        Ok(SplitSpec { packed, ..spec(Some(length), Some(id)) })
    }

    /// As [`OneFile::spec`], of one file of many, which are not all kept open.
    pub(super) fn spec_of_many(&self) -> Result<SplitSpec> {
        let spec = self.spec();
        locked(&self.kept).take();
        spec
    }

    /// How the processes of a job share it, if its length is as found here.
    pub(super) fn sharing(&self, found: Option<u64>) -> Sharing {
        let (length, packed) = match (&self.told, &self.bytes) {
            // All processes go by what process 0 has found, whatever has become of the file.
            (Some(told), _) => (told.length, told.packed),
            (None, Bytes::File(path)) if is_own(path) => (None, false),
            (None, _) => (found, false),
        };
        match length {
            Some(_) if packed => Sharing::Whole,
            Some(_) => Sharing::ByChunk,
            None => Sharing::Coordinator,
        }
    }

    /// Whether only the coordinator can read it.
    pub(super) fn is_elsewhere(&self, options: &OpenOptions) -> Result<bool> {
        if options.process == 0 {
            return Ok(false);
        }
        let found = if self.told.is_none() { self.spec()?.length } else { None };
        Ok(self.sharing(found) == Sharing::Coordinator)
    }

    /// Whether records come as they happen.
    pub(super) fn live(&self) -> bool {
        match &self.bytes {
            #[cfg(test)]
            Bytes::Memory(_) => false,
            Bytes::File(path) => path.metadata().is_ok_and(|metadata| !metadata.is_file()),
        }
    }

    pub(super) fn read_once(&self) -> Option<ReadOnce> {
        match &self.bytes {
            #[cfg(test)]
            Bytes::Memory(_) => None,
            Bytes::File(path) => paths::read_once(path),
        }
    }

    /// Whether it is a regular file that another process can read as well. A missing file counts as
    /// regular: an earlier statement may write the file.
    pub(super) fn is_regular(&self) -> Result<bool> {
        match self.path() {
            Some(path) if path.exists() => Ok(self.spec_of_many()?.length.is_some()),
            _ => Ok(true),
        }
    }

    /// How many bytes it has now, as far as is known.
    pub(super) fn length_now(&self) -> Option<u64> {
        let told = self.told.as_ref().and_then(|told| told.length);
        told.or_else(|| Some(self.path()?.metadata().ok()?.len()))
    }

    /// Whether it is a file now, by whatever path.
    pub(super) fn is_file(&self) -> bool {
        self.path().is_none_or(|path| path.metadata().is_ok_and(|metadata| metadata.is_file()))
    }

    /// Whether its path names an open file of the process, as its standard input.
    pub(super) fn is_own(&self) -> bool {
        self.path().is_some_and(is_own)
    }

    /// A pipe, which may have been begun.
    pub(super) fn pipe(&self) -> Result<Pipe> {
        match self.open(None)?.input {
            Input::Pipe(pipe) => Ok(pipe),
            _ => Err(Error::Internal(format!("{} is no pipe", self.name))),
        }
    }

    /// Begins to open a pipe, of this table.
    pub(super) fn begin(&self, table: &str, options: &OpenOptions) -> Option<OneFile> {
        let path = self.path()?;
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        // Where process 0 has found a file, a pipe is an error.
        let told = self.told.as_ref().is_some_and(|told| told.length.is_some());
        if !is_pipe || told || options.process != 0 {
            return None;
        }
        let begun = Arc::new(Mutex::new(Some(Pipe::open(path.to_path_buf(), table))));
        Some(OneFile { begun, ..self.clone() })
    }
}
