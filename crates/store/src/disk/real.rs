//! The file system of the machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{DirEntry, Disk, DiskFile};

/// Opens no symbolic link, and waits for nobody at a pipe.
const NO_LINKS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        loop {
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            // On a file system without locks no file looks abandoned.
            _ = file.lock();
            // A sweep just before the lock may have removed the file as abandoned.
            if has_name(&file, path)? {
                return Ok(Box::new(file));
            }
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn unlink_abandoned(&self, path: &Path) -> io::Result<bool> {
        let mut options = OpenOptions::new();
        let file = match options.write(true).custom_flags(NO_LINKS).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        // Another sweep may have removed it, and the name may be a new file's.
        if file.try_lock().is_err() || !has_name(&file, path)? {
            return Ok(false);
        }
        fs::remove_file(path).map(|()| true)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                // It has been removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            // A name that is not UTF-8 is no object's.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if metadata.is_dir() || metadata.is_file() {
                let bytes = metadata.is_file().then_some(metadata.len());
                entries.push(DirEntry { name, bytes });
            }
        }
        Ok(entries)
    }

    fn read(&self, path: &Path, range: Option<Range<u64>>) -> io::Result<Vec<u8>> {
        let mut file = OpenOptions::new().read(true).custom_flags(NO_LINKS).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut bytes = Vec::new();
        match range {
            None => {
                file.read_to_end(&mut bytes)?;
            }
            // Before room is made for what is not there.
            Some(range) if range.end > metadata.len() => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Some(range) => {
                bytes.resize((range.end.saturating_sub(range.start)) as usize, 0);
                file.read_exact_at(&mut bytes, range.start)?;
            }
        }
        Ok(bytes)
    }
}

/// Whether the name is still the file's.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => Ok(found?.ino() == file.metadata()?.ino()),
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
