//! The directory that a job writes: what it finds there, and how files get their names.
//!
//! A file that is being written is called `.part-….inprogress`, and `part-…` from the moment at
//! which it is complete and on the disk. Whoever writes a file has it locked. A job that writes
//! many, one after the other, has `.part-<process>.lock` locked beside: there are moments at which
//! it has no other file.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use millstream_contract::sink::Sealed;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::text::write_error;

/// What files are called, in front of the numbers of process and worker.
pub(super) const PART: &str = "part-";

/// What a file is called until it is committed.
const UNFINISHED: &str = ".inprogress";

/// Opens no symbolic link, and waits for nobody at a pipe.
const NO_LINKS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Where files are written.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// How deep its partitions are: none, if 0.
    pub(super) depth: usize,
    /// The file that says of a partition that it has all its rows, if there is to be one.
    pub(super) marker: Option<String>,
}

/// Says that a process of a job writes to the directory, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If it stays, the next job takes it over.
        _ = fs::remove_file(&self.path);
    }
}

/// The names of a file, within the directory.
pub(super) fn names(partition: &str, name: &str) -> Sealed {
    let slash = if partition.is_empty() { "" } else { "/" };
    Sealed {
        from: format!("{partition}{slash}.{name}{UNFINISHED}"),
        to: format!("{partition}{slash}{name}"),
    }
}

impl Directory {
    /// Makes the directory, if it is not there.
    pub(super) fn make(&self) -> Result<()> {
        if self.path.exists() && !self.path.is_dir() {
            return Err(Error::Io {
                place: self.path.display().to_string(),
                message: "it is not a directory".into(),
                help: format!("results are written as {PART}* files into a directory: name one"),
            });
        }
        fs::create_dir_all(&self.path).map_err(|error| self.failed(&error))
    }

    /// Fails if there are results already.
    pub(super) fn check_free(&self) -> Result<()> {
        let (mut results, mut unfinished) = (Vec::new(), 0_u64);
        self.look(&self.path, self.depth, &mut |path| {
            let Some(name) = path.file_name().map(|name| name.as_encoded_bytes()) else { return };
            let within = path.strip_prefix(&self.path).unwrap_or(path);
            let is_marker = self.marker.as_ref().is_some_and(|marker| marker.as_bytes() == name);
            if name.starts_with(PART.as_bytes()) || is_marker {
                results.push(within.to_path_buf());
            } else if is_unfinished(name, None) {
                unfinished += 1;
            }
        })?;
        let Some(first) = results.iter().min() else { return Ok(()) };
        let mut message = format!("it holds the result of a job already: {}", first.display());
        if results.len() > 1 {
            message += &format!(" and {} more", results.len() - 1);
        }
        if unfinished > 0 {
            let files = counted(unfinished, "unfinished file");
            message += &format!("; with {files} (.{PART}*{UNFINISHED}): that job did not end");
        }
        let marker = self.marker.as_ref().map(|name| format!(" and {name}")).unwrap_or_default();
        Err(Error::Io {
            place: self.path.display().to_string(),
            message,
            help: format!("write to another path, or remove {PART}*{marker} from it"),
        })
    }

    /// Removes the files that this process of a job before has not finished, and says how many.
    pub(super) fn clear_unfinished(&self, process: usize) -> Result<u64> {
        let mut left = Vec::new();
        self.look(&self.path, self.depth, &mut |path| {
            let name = path.file_name().map(|name| name.as_encoded_bytes());
            if name.is_some_and(|name| is_unfinished(name, Some(process))) {
                left.push(path.to_path_buf());
            }
        })?;
        left.iter().try_for_each(|path| self.clear(path))?;
        Ok(left.len() as u64)
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

    /// Locks the directory for this process of the job.
    pub(super) fn lock(&self, process: usize) -> Result<Lock> {
        let path = self.lock_path(process);
        let failed = |error| write_error(&path.display().to_string(), &error);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).custom_flags(NO_LINKS);
        let file = options.open(&path).map_err(failed)?;
        lock(&file, &path)?;
        // Whoever had it before may have removed it just now.
        let (own, now) = (file.metadata().map_err(failed)?, fs::symlink_metadata(&path));
        match now {
            Ok(now) if (now.dev(), now.ino()) == (own.dev(), own.ino()) => {
                Ok(Lock { path, _file: file })
            }
            _ => Err(busy(&path)),
        }
    }

    /// Fails if a job has locked the directory.
    pub(super) fn check_unlocked(&self, process: usize) -> Result<()> {
        let path = self.lock_path(process);
        match File::options().read(true).custom_flags(NO_LINKS).open(&path) {
            Ok(file) => lock(&file, &path),
            Err(_) => Ok(()),
        }
    }

    fn lock_path(&self, process: usize) -> PathBuf {
        self.path.join(format!(".{PART}{process}.lock"))
    }

    /// Creates a file and locks it.
    pub(super) fn create(&self, name: &str) -> Result<(String, File)> {
        let path = self.within(name)?;
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
        self.clear(&path)?;
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => busy(&path),
            _ => write_error(&place, &error),
        })?;
        lock(&file, &path)?;
        Ok((place, file))
    }

    /// Removes what a job that failed has left at `path`. Whatever else is there stays: nothing
    /// that exists is written to, so that a link leads nowhere, and nothing is waited for.
    fn clear(&self, path: &Path) -> Result<()> {
        let failed = |error| write_error(&path.display().to_string(), &error);
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?,
        };
        if !found.is_file() {
            return Err(Error::Io {
                place: path.display().to_string(),
                message: "it is not a plain file, and no job has left it there".into(),
                help: "remove it, or write to another path".into(),
            });
        }
        let open = File::options().read(true).custom_flags(NO_LINKS).open(path);
        let left = open.map_err(failed)?;
        lock(&left, path)?;
        // Whoever removes a file has locked it: if it is still there, so it will be below.
        let (same, now) = (left.metadata().map_err(failed)?, fs::symlink_metadata(path));
        match now {
            Ok(now) if (now.dev(), now.ino()) == (same.dev(), same.ino()) => {
                fs::remove_file(path).map_err(failed)
            }
            _ => Err(busy(path)),
        }
    }

    /// Gives sealed files their final names, which outlast a crash from then on. Doing so again
    /// changes nothing.
    pub(super) fn commit(&self, sealed: &[Sealed]) -> Result<()> {
        let mut changed: BTreeSet<PathBuf> = BTreeSet::new();
        for Sealed { from, to } in sealed {
            let (from, to) = (self.within(from)?, self.within(to)?);
            give_name(&from, &to)?;
            // Each of these directories may be new.
            let above = to.ancestors().skip(1).take_while(|path| path.starts_with(&self.path));
            changed.extend(above.map(Path::to_path_buf));
            let parent = self.path.parent().filter(|path| !path.as_os_str().is_empty());
            changed.extend(parent.map(Path::to_path_buf));
        }
        let sync = |path: &PathBuf| {
            let synced = File::open(path).and_then(|directory| directory.sync_all());
            synced.map_err(|error| write_error(&path.display().to_string(), &error))
        };
        changed.iter().rev().try_for_each(sync)
    }

    /// Marks the partitions that have files, all of which have their names.
    pub(super) fn mark(&self) -> Result<()> {
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
            let made = File::options().write(true).create_new(true).open(&path);
            let synced = made.and_then(|_| File::open(partition)?.sync_all());
            synced.map_err(|error| write_error(&path.display().to_string(), &error))?;
        }
        Ok(())
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

    pub(super) fn failed(&self, error: &io::Error) -> Error {
        write_error(&self.path.display().to_string(), error)
    }
}

/// Whether a file is called as one that is not finished, of any process or of this one.
fn is_unfinished(name: &[u8], process: Option<usize>) -> bool {
    let start = match process {
        Some(process) => format!(".{PART}{process}-"),
        None => format!(".{PART}"),
    };
    name.starts_with(start.as_bytes()) && name.ends_with(UNFINISHED.as_bytes())
}

/// Locks a file for as long as it is open.
fn lock(file: &File, path: &Path) -> Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => busy(path),
        TryLockError::Error(error) => write_error(&path.display().to_string(), &error),
    })
}

/// Gives a file its name, which no other file may have got meanwhile. A file that has its name
/// already is left as it is.
fn give_name(from: &Path, to: &Path) -> Result<()> {
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
        (None, Some(_)) => return Ok(()),
        (None, None) => {
            return Err(Error::Io {
                place: from.display().to_string(),
                message: "it was sealed, and is gone".into(),
                help: "its rows are lost: start the job again from the beginning".into(),
            });
        }
        // A crash came between the two steps below.
        (Some(own), Some(named)) if own == named => return fs::remove_file(from).map_err(failed),
        (Some(_), Some(_)) => return Err(taken()),
        (Some(_), None) => {}
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken()),
        // A file system without hard links: there is no more than a look.
        Err(_) => fs::rename(from, to).map_err(failed),
    }
}

fn busy(path: &Path) -> Error {
    Error::Io {
        place: path.display().to_string(),
        message: "another job is writing it".into(),
        help: "wait for it, or write to another path".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> Directory {
        let name = format!("millstream-directory-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        _ = fs::remove_dir_all(&path);
        let made = Directory { path, depth: 1, marker: None };
        made.make().unwrap();
        made
    }

    fn written(directory: &Directory, partition: &str, name: &str) -> Sealed {
        let sealed = names(partition, name);
        let (_, file) = directory.create(&sealed.from).unwrap();
        io::Write::write_all(&mut &file, name.as_bytes()).unwrap();
        sealed
    }

    #[test]
    fn committing_again_is_harmless_at_any_point() {
        let directory = directory("again");
        let sealed = [written(&directory, "a=1", "part-0-0-0"), written(&directory, "", "part-1")];
        let (from, to) = (directory.path.join(&sealed[0].from), directory.path.join(&sealed[0].to));
        // As a crash between the two steps leaves it.
        fs::hard_link(&from, &to).unwrap();
        for _ in 0..3 {
            directory.commit(&sealed).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "part-0-0-0");
            assert_eq!(fs::read_to_string(directory.path.join("part-1")).unwrap(), "part-1");
            assert!(!from.exists());
        }
        fs::remove_file(&to).unwrap();
        let error = directory.commit(&sealed).unwrap_err().to_string();
        assert!(
            error.contains("a=1/.part-0-0-0.inprogress: it was sealed, and is gone"),
            "{error}"
        );
        fs::remove_dir_all(&directory.path).unwrap();
    }

    #[test]
    fn nothing_outside_is_named() {
        let directory = directory("outside");
        for name in ["../x", "/tmp/x", "a/../../x"] {
            let sealed = [Sealed { from: name.into(), to: "part-0".into() }];
            let error = directory.commit(&sealed).unwrap_err().to_string();
            assert!(error.contains("is no file in this directory"), "{error}");
        }
        fs::remove_dir_all(&directory.path).unwrap();
    }

    #[test]
    fn what_is_there_is_found_in_partitions_too() {
        let directory = directory("found");
        written(&directory, "a=1", ".x");
        written(&directory, "a=1", "part-0-0-7");
        written(&directory, "a=2", "part-1-0-7");
        directory.check_free().unwrap();
        assert_eq!(directory.clear_unfinished(0).unwrap(), 1);
        assert_eq!(directory.clear_unfinished(0).unwrap(), 0);
        assert!(directory.path.join("a=2/.part-1-0-7.inprogress").exists(), "another process's");
        directory.commit(&[written(&directory, "a=3", "part-0-0-1")]).unwrap();
        let error = directory.check_free().unwrap_err().to_string();
        assert!(error.contains("a job already: a=3/part-0-0-1; with 1 unfinished file"), "{error}");
        fs::remove_dir_all(&directory.path).unwrap();
    }
}
