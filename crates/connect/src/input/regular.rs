//! A regular file as input, up to the length that it had when the job opened it.
//!
//! This length is the file's *extent*, the same in all processes of a job. A file may grow
//! meanwhile. Bytes behind the extent belong to no record of this job, except for the end of the
//! record that the extent cuts. A file may not shrink or be replaced.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use millstream_contract::table::{FileId, SplitSpec};
use millstream_contract::{Error, Result};

use super::{Packing, Unpacked, io_error};

/// A file whose last line has no end is taken for complete when nothing has been written for so
/// long.
const QUIET: Duration = Duration::from_millis(250);

/// Bytes at a file's beginning by which it is known again.
pub(crate) const HEAD_BYTES: usize = 256;

/// Fingerprint of bytes, FNV-1a: the same in each version of the program.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// As many bytes as there are, from this offset.
pub(crate) fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < out.len() {
        match file.read_at(&mut out[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(got) => read += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// A file, up to its extent.
#[derive(Debug)]
pub(crate) struct Regular {
    file: File,
    name: Arc<str>,
    /// Bytes to read, and read so far.
    extent: u64,
    read: u64,
}

/// Extent and identity of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileExtent {
    /// Bytes.
    pub(crate) length: u64,
    pub(crate) file: FileId,
}

/// Opens a file; with its length and identity, if it can be read again and anywhere: neither a pipe
/// nor a file whose length is unknown before reading.
pub(crate) fn open(path: &Path) -> Result<(File, Option<FileExtent>)> {
    let failed = |error: io::Error| io_error(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    if let Some(offset) = begun_at(path) {
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        return Ok((file, None));
    }
    opened(file, path)
}

/// How far a regular file has been read already that this process was given open, as
/// `/dev/stdin`; `None` for another path, and if nothing has been. To open it again is to begin at
/// its first byte.
pub(crate) fn begun_at(path: &Path) -> Option<u64> {
    let number = match path.to_str()? {
        "/dev/stdin" => "0",
        path => ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|dir| path.strip_prefix(dir))?,
    };
    let number: u32 = number.parse().ok()?;
    let information = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let offset = information.lines().find_map(|line| line.strip_prefix("pos:"))?;
    let offset = offset.trim().parse::<u64>().ok().filter(|offset| *offset > 0)?;
    path.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(offset)
}

/// As [`open`], of a file that is open.
pub(crate) fn opened(file: File, path: &Path) -> Result<(File, Option<FileExtent>)> {
    let extent = extent_of(&file).map_err(|error| io_error(path, &error))?;
    Ok((file, extent))
}

/// Finds the length by reading the last byte: files of `/proc` claim to be empty, files of `/sys`
/// to have a page.
fn extent_of(file: &File) -> io::Result<Option<FileExtent>> {
    // Again where the length has just changed.
    for _ in 0..100 {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let length = metadata.len();
        let mut last = [0];
        let found = match file.read_at(&mut last, length.saturating_sub(1)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::EIO) => return Err(error),
            // Some of those files cannot be read from just anywhere.
            found => found.ok(),
        };
        if found == Some(usize::from(length > 0)) {
            return Ok(Some(FileExtent {
                length,
                file: identity(&metadata, content(file, length)?),
            }));
        }
        if file.metadata()?.len() == length {
            return Ok(None);
        }
    }
    Err(io::Error::other("its length changes all the time"))
}

/// Fingerprint of this host's boot.
fn host() -> u64 {
    static HOST: OnceLock<u64> = OnceLock::new();
    let read = || std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    *HOST.get_or_init(|| fingerprint(&read()))
}

/// Fingerprint of the first and the last bytes of so many.
fn content(file: &File, length: u64) -> io::Result<u64> {
    let mut bytes = [0; 2 * HEAD_BYTES];
    let most = length.min(HEAD_BYTES as u64);
    let (head, tail) = bytes.split_at_mut(HEAD_BYTES);
    let (head, tail) = (&mut head[..most as usize], &mut tail[..most as usize]);
    read_at(file, head, 0)?;
    read_at(file, tail, length - most)?;
    Ok(fingerprint(&bytes))
}

fn identity(metadata: &Metadata, content: u64) -> FileId {
    FileId {
        host: host(),
        content,
        device: metadata.dev(),
        inode: metadata.ino(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    }
}

/// Checks that a process has found the file that process 0 has found before, perhaps on another
/// host.
pub(crate) fn check_same(
    name: &str,
    told: &SplitSpec,
    (file, found): (&File, Option<&FileExtent>),
) -> Result<()> {
    let help = "run it again when the file is complete".to_string();
    let Some(found) = found else {
        let message = "it was replaced by what is no regular file while the job started".into();
        return Err(Error::Io { place: name.to_string(), message, help });
    };
    let Some(told_file) = told.file else { return Ok(()) };
    let (told, found, found_file) = (told.length.unwrap_or(0), found.length, found.file);
    let is_in = |one: FileId| (one.host, one.device);
    let same = match is_in(told_file) == is_in(found_file) {
        true => told_file.inode == found_file.inode,
        // The hosts or the mounts differ.
        false => found < told || content(file, told).is_ok_and(|here| here == told_file.content),
    };
    if same && found < told {
        return Err(shrunk(name, told, found));
    }
    let changed = found == told && told_file.modified != found_file.modified;
    if same && !changed {
        return Ok(());
    }
    let what = if same { "was written anew" } else { "was replaced by another file" };
    Err(Error::Io {
        place: name.to_string(),
        message: format!(
            "it {what} while the processes of the job opened it: expected {told_file} of {told} \
             bytes, found {found_file} of {found} bytes"
        ),
        help,
    })
}

fn shrunk(name: &str, expected: u64, found: u64) -> Error {
    Error::Io {
        place: name.to_string(),
        message: format!(
            "it became shorter while it was read: expected {expected} bytes, found {found}"
        ),
        help: "leave a file as it is while a job reads it: write a new one and rename it, rather \
               than truncating this one"
            .into(),
    }
}

impl Regular {
    pub(crate) fn new(file: File, name: Arc<str>, extent: u64) -> Regular {
        Regular { file, name, extent, read: 0 }
    }

    /// Where it ended when the job opened it, in bytes.
    pub(crate) fn extent(&self) -> u64 {
        self.extent
    }

    /// Reads what is at this offset, wherever other reads are.
    pub(crate) fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(bytes, offset);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let length = self.file.metadata().map_or(offset, |metadata| metadata.len());
                shrunk(&self.name, self.extent, length)
            }
            _ => self.failed(&error),
        })
    }

    /// Packing shown by the file's first bytes.
    ///
    /// # Errors
    ///
    /// If the name promises a packing that the bytes do not have.
    pub(crate) fn packing(&self) -> Result<Option<Packing>> {
        let mut start = [0; 4];
        let known = read_at(&self.file, &mut start, 0).map_err(|e| self.failed(&e))?;
        let found = Packing::of_bytes(&start[..known]);
        match (found, Packing::of_name(&self.name)) {
            (None, Some(promised)) => Err(Error::Io {
                place: self.name.to_string(),
                message: format!("it is no {promised} file, as its name says"),
                help: "it may have been cut off, or never been packed: rename it".into(),
            }),
            (found, _) => Ok(found),
        }
    }

    /// Fingerprint of the first bytes, at most of so many and of [`HEAD_BYTES`].
    pub(crate) fn head(&self, bytes_max: u64) -> Result<u64> {
        let mut head = [0; HEAD_BYTES];
        let most = bytes_max.min(HEAD_BYTES as u64) as usize;
        let known = read_at(&self.file, &mut head[..most], 0).map_err(|e| self.failed(&e))?;
        Ok(fingerprint(&head[..known]))
    }

    /// Goes on at this offset.
    pub(crate) fn seek(&mut self, offset: u64) -> Result<()> {
        (&self.file).seek(SeekFrom::Start(offset)).map_err(|e| self.failed(&e))?;
        self.read = offset;
        Ok(())
    }

    /// Appends what comes next, `bytes_max` bytes unless the extent ends before.
    pub(crate) fn read(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) -> Result<usize> {
        let left = self.extent.saturating_sub(self.read);
        let wanted = left.min(bytes_max as u64);
        buffer.reserve_exact(wanted as usize);
        let got = (&self.file).take(wanted).read_to_end(buffer).map_err(|e| self.failed(&e))?;
        self.read += got as u64;
        if (got as u64) < wanted {
            let length = self.file.metadata().map_err(|e| self.failed(&e))?.len();
            return Err(shrunk(&self.name, self.extent, length.min(self.read)));
        }
        Ok(got)
    }

    /// Appends what is behind the extent, as far as it has been written, and says whether more of
    /// it may come soon.
    pub(crate) fn read_beyond(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) -> Result<bool> {
        // Asked before, so that nothing can be written between the two.
        let metadata = self.file.metadata().map_err(|e| self.failed(&e))?;
        let before = buffer.len();
        let read = (&self.file).take(bytes_max as u64).read_to_end(buffer);
        read.map_err(|e| self.failed(&e))?;
        if buffer.len() > before {
            return Ok(true);
        }
        let written = metadata.modified().ok();
        // What was written in the future is of another clock, which cannot be asked.
        let age = written.and_then(|written| SystemTime::now().duration_since(written).ok());
        Ok(age.is_some_and(|age| age < QUIET))
    }

    /// The unpacked file.
    pub(crate) fn unpacked(self, packing: Packing) -> Result<Unpacked> {
        let failed = |error| io_error(Path::new(&*self.name), &error);
        let file = self.file.try_clone().map_err(|error| self.failed(&error))?;
        Unpacked::new(packing, file.take(self.extent)).map_err(failed)
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::Io { place: self.name.to_string(), message: error.to_string(), help: String::new() }
    }
}
