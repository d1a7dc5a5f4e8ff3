//! The directory that a job writes: files of former jobs, and names of new files.
//!
//! An unfinished file is called `.part-….inprogress`, and `part-…` as soon as it is complete and on
//! the disk. The writer of a file holds a lock on the file. A job that writes many files, one after
//! the other, also holds a lock on `.part-<process>.lock`, for the moments without an open file.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use millstream_contract::sink::Sealed;
use millstream_contract::{Error, Result};

use super::folder::{Folder, FormerFiles, Lock, PART, UNFINISHED, final_name, numbers};
use super::output::{Output, sync};
use crate::text::write_error;

/// The end of a lock's name.
const LOCK: &str = ".lock";

/// Files that are open at once, of all workers of a process.
pub(super) const OPEN_FILES: usize = 256;

/// Opens no symbolic link, and waits for nobody at a pipe.
const NO_LINKS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Where files are written.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// How deep its partitions are: none, if 0.
    pub(super) depth: usize,
    /// Name of the marker file of a complete partition, if wanted.
    pub(super) marker: Option<String>,
}

impl Folder for Directory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn open_max(&self) -> usize {
        OPEN_FILES
    }

    fn is_replaceable(&self) -> bool {
        true
    }

    fn make(&self) -> Result<()> {
        if self.path.exists() && !self.path.is_dir() {
            return Err(Error::Io {
                place: self.path.display().to_string(),
                message: "it is not a directory".into(),
                help: format!("results are written as {PART}* files into a directory: name one"),
            });
        }
        let is_new = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let new: Vec<&Path> = self.path.ancestors().take_while(is_new).collect();
        fs::create_dir_all(&self.path).map_err(|error| self.failed(&error))?;
        new.iter().filter_map(|path| path.parent()).try_for_each(sync_directory)
    }

    fn find(&self, process: usize) -> Result<FormerFiles> {
        let mut found = FormerFiles::default();
        let mut seen = Vec::new();
        self.look(&self.path, self.depth, &mut |path| seen.push(path.to_path_buf()))?;
        for path in seen {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let whole = name.strip_prefix('.').and_then(|name| name.strip_suffix(UNFINISHED));
            found.note(process, whole.unwrap_or(name));
            match (whole, numbers(whole.unwrap_or(name))) {
                // Several processes may look at the same moment.
                (Some(_), Some((of, ..))) if of == process => {
                    self.left(&path)?.try_lock_shared().map_err(|error| refused(error, &path))?;
                    found.unfinished.push(path);
                }
                // Unfinished files may belong to this job's other processes.
                (Some(_), Some(_))
                    if process == 0
                        && self.left(&path).is_ok_and(|file| file.try_lock_shared().is_ok()) =>
                {
                    found.unfinished.push(path);
                }
                (None, _) if name.starts_with(PART) && !path.is_dir() => found.complete.push(path),
                _ => {}
            }
        }
        found.unfinished.sort();
        found.complete.sort();
        Ok(found)
    }

    fn sweep(&self, found: &mut FormerFiles, process: usize) -> Result<()> {
        let unfinished = std::mem::take(&mut found.unfinished);
        for path in unfinished {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let of = numbers(&final_name(name)).map_or(process, |numbers| numbers.0);
            match of != process && self.is_locked(of) {
                true => found.unfinished.push(path),
                false => self.clear(&path)?,
            }
        }
        Ok(())
    }

    fn lock(&self, process: usize) -> Result<Option<Lock>> {
        if !self.path.is_dir() {
            return Ok(None);
        }
        let path = self.lock_path(process);
        let failed = |error| write_error(&path.display().to_string(), &error);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).custom_flags(NO_LINKS);
        let file = options.open(&path).map_err(failed)?;
        lock(&file, &path)?;
        // The previous owner may have removed the file just now.
        let (own, now) = (file.metadata().map_err(failed)?, fs::symlink_metadata(&path));
        match now {
            Ok(now) if (now.dev(), now.ino()) == (own.dev(), own.ino()) => {
                Ok(Some(Lock { path, _file: file }))
            }
            _ => Err(busy(&path)),
        }
    }

    fn check_unlocked(&self, process: usize) -> Result<()> {
        match fs::symlink_metadata(self.lock_path(process)) {
            Ok(_) => self.lock(process).map(drop),
            Err(_) => Ok(()),
        }
    }

    fn create(&self, names: &Sealed) -> Result<Output> {
        let path = self.within(&names.from)?;
        let place = path.display().to_string();
        if let Some(parent) = path.parent().filter(|_| self.depth > 0) {
            fs::create_dir_all(parent).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidFilename => Error::Io {
                    place: place.clone(),
                    message: error.to_string(),
                    help: "a value that is longer than a file's name may be cannot be one of \
                           PARTITIONED BY"
                        .into(),
                },
                _ => write_error(&place, &error),
            })?;
        }
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => busy(&path),
            _ => write_error(&place, &error),
        })?;
        // Another process may be testing the lock at this moment.
        file.lock().map_err(|error| write_error(&place, &error))?;
        // Another job may have ended since this one looked.
        match fs::symlink_metadata(self.within(&names.to)?) {
            Ok(_) => Err(busy(&path)),
            Err(_) => Ok(Output::file(place, file)),
        }
    }

    fn commit(&self, sealed: &[Sealed], before: bool) -> Result<Vec<PathBuf>> {
        let (mut gone, mut there) = (Vec::new(), Vec::new());
        for file in sealed {
            let (from, to) = (self.within(&file.from)?, self.within(&file.to)?);
            match give_name(&from, &to)? {
                true => there.push(file.clone()),
                false => gone.push(to),
            }
        }
        match gone.first() {
            Some(file) if !before => Err(Error::Io {
                place: file.display().to_string(),
                message: "it was sealed, and is gone".into(),
                help: "its rows are lost: start the job again from the beginning".into(),
            }),
            // Directories may be gone with their files.
            _ => self.sync(&there).map(|()| gone),
        }
    }

    fn sync(&self, sealed: &[Sealed]) -> Result<()> {
        let mut changed: BTreeSet<PathBuf> = BTreeSet::new();
        for Sealed { to, .. } in sealed {
            // Each of these directories may be new.
            let path = self.within(to)?;
            let above = path.ancestors().skip(1).take_while(|path| path.starts_with(&self.path));
            changed.extend(above.map(Path::to_path_buf));
            changed.extend(self.path.parent().map(Path::to_path_buf));
        }
        changed.iter().rev().try_for_each(|path| sync_directory(path))
    }

    fn remove(&self, found: &FormerFiles, overwrites: bool) -> Result<()> {
        for path in &found.unfinished {
            self.clear(path)?;
        }
        self.look(&self.path, 0, &mut |path| {
            let name = path.file_name().map_or(&b""[..], |name| name.as_encoded_bytes());
            if name.starts_with(format!(".{PART}").as_bytes()) && name.ends_with(LOCK.as_bytes()) {
                // A killed job's lock file: a running job would hold the lock.
                _ = self.clear(path);
            }
        })?;
        if !overwrites {
            return Ok(());
        }
        let old: HashSet<&PathBuf> = found.complete.iter().collect();
        let mut renewed = HashSet::from([self.path.clone()]);
        self.look(&self.path, self.depth, &mut |path| {
            let name = path.file_name().map_or(&b""[..], |name| name.as_encoded_bytes());
            if name.starts_with(PART.as_bytes()) && !old.contains(&path.to_path_buf()) {
                renewed.extend(path.parent().map(Path::to_path_buf));
            }
        })?;
        for path in &found.complete {
            if path.parent().is_some_and(|partition| renewed.contains(partition)) {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(write_error(&path.display().to_string(), &error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn mark(&self) -> Result<()> {
        let Some(marker) = &self.marker else { return Ok(()) };
        let mut partitions = BTreeSet::new();
        self.look(&self.path, self.depth, &mut |path| {
            let name = path.file_name().map(|name| name.as_encoded_bytes());
            if name.is_some_and(|name| name.starts_with(PART.as_bytes())) {
                partitions.extend(path.parent().map(Path::to_path_buf));
            }
        })?;
        for partition in partitions.iter().filter(|partition| **partition != self.path) {
            let path = partition.join(marker);
            // That of a former job stays.
            let made = File::options().write(true).create_new(true).open(&path).map(drop);
            let made = made.or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(error),
            });
            let synced = made.and_then(|()| sync(&File::open(partition)?, partition));
            synced.map_err(|error| write_error(&path.display().to_string(), &error))?;
        }
        Ok(())
    }
}

impl Directory {
    /// Whether a running job has locked the directory for a process.
    fn is_locked(&self, process: usize) -> bool {
        let lock = self.left(&self.lock_path(process));
        lock.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Shows all files, those of the partitions included.
    fn look(&self, path: &Path, depth: usize, see: &mut dyn FnMut(&Path)) -> Result<()> {
        let failed = |error| write_error(&path.display().to_string(), &error);
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_partition = depth > 0
                && entry.file_name().as_encoded_bytes().contains(&b'=')
                && entry.file_type().map_err(failed)?.is_dir();
            match is_partition {
                true => self.look(&entry.path(), depth - 1, see)?,
                false => see(&entry.path()),
            }
        }
        Ok(())
    }

    fn lock_path(&self, process: usize) -> PathBuf {
        self.path.join(format!(".{PART}{process}{LOCK}"))
    }

    /// Opens what a former job has left at `path`.
    fn left(&self, path: &Path) -> Result<File> {
        let failed = |error| write_error(&path.display().to_string(), &error);
        if !fs::symlink_metadata(path).map_err(failed)?.is_file() {
            return Err(Error::Io {
                place: path.display().to_string(),
                message: "it is not a plain file, and no job has left it there".into(),
                help: "remove it, or write to another path".into(),
            });
        }
        File::options().read(true).custom_flags(NO_LINKS).open(path).map_err(failed)
    }

    /// Removes a failed job's file at `path`, unless the file has gone or a job holds its lock.
    fn clear(&self, path: &Path) -> Result<()> {
        let Ok(left) = self.left(path) else { return Ok(()) };
        let failed = |error| write_error(&path.display().to_string(), &error);
        // Removal needs the lock: a file that is still there now stays until the lock is released.
        let (same, now) = (left.metadata().map_err(failed)?, fs::symlink_metadata(path));
        match now {
            Ok(now) if (now.dev(), now.ino()) == (same.dev(), same.ino()) => {
                if left.try_lock().is_ok() { fs::remove_file(path).map_err(failed) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// A path within the directory. What was prepared comes back from a checkpoint, and is not
    /// trusted to stay there.
    fn within(&self, name: &str) -> Result<PathBuf> {
        let name = Path::new(name);
        match name.components().all(|part| matches!(part, Component::Normal(_))) {
            true => Ok(self.path.join(name)),
            false => Err(Error::Io {
                place: self.path.display().to_string(),
                message: format!("'{}' is no file in this directory", name.display()),
                help: "what was prepared is damaged, or belongs to another sink".into(),
            }),
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        write_error(&self.path.display().to_string(), error)
    }
}

fn sync_directory(path: &Path) -> Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let synced = File::open(path).and_then(|directory| sync(&directory, path));
    synced.map_err(|error| write_error(&path.display().to_string(), &error))
}

/// Locks a file for as long as it is open.
fn lock(file: &File, path: &Path) -> Result<()> {
    file.try_lock().map_err(|error| refused(error, path))
}

fn refused(error: TryLockError, path: &Path) -> Error {
    match error {
        TryLockError::WouldBlock => busy(path),
        TryLockError::Error(error) => write_error(&path.display().to_string(), &error),
    }
}

/// Gives a file its final name, unless another file has got that name meanwhile. A file that has
/// its final name already is left alone. False if it has neither name.
fn give_name(from: &Path, to: &Path) -> Result<bool> {
    let failed = |error: io::Error| write_error(&to.display().to_string(), &error);
    let file = |path: &Path| match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(write_error(&path.display().to_string(), &error)),
    };
    let taken = || Error::Io {
        place: to.display().to_string(),
        message: "somebody else has made it while the job ran".into(),
        help: format!("the job's own file is {}: rename it", from.display()),
    };
    match (file(from)?, file(to)?) {
        (None, there) => return Ok(there.is_some()),
        // A crash came between the two steps below.
        (Some(own), Some(named)) if own == named => {
            return fs::remove_file(from).map(|()| true).map_err(failed);
        }
        (Some(_), Some(_)) => return Err(taken()),
        (Some(_), None) => {}
    }
    let named = match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken()),
        // A file system without hard links: there is no more than a look.
        Err(_) => fs::rename(from, to),
    };
    named.map(|()| true).map_err(failed)
}

fn busy(path: &Path) -> Error {
    Error::Io {
        place: path.display().to_string(),
        message: "another job is writing it".into(),
        help: "wait for it, or write to another path".into(),
    }
}

#[cfg(test)]
mod tests;
