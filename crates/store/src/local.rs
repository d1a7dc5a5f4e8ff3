//! A directory as a store.
//!
//! An object is written to a temporary file beside it, `.<name>.<process>-<n>.tmp`, which is
//! synced, then linked (if absent) or renamed to the object's name, and the directory is synced. A
//! temporary file is locked while its writer lives, so that [`Store::sweep`] finds the others.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::contract::{Object, ObjectWriter, Put, Store};
use crate::disk::{DirEntry, Disk, DiskFile, RealDisk};
use crate::error::{Error, Result};
use crate::names;

/// The end of a temporary file's name.
const TEMPORARY: &str = ".tmp";

/// A directory as a store. The directory, and those above it, are made with the first object.
///
/// The file system must have hard links, and syncing a file or a directory there must make it
/// durable. Several processes may use the directory at the same time.
#[derive(Debug, Clone)]
pub struct LocalStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    /// Number of the next temporary file.
    next: AtomicU64,
    /// Directories that are there, and durable.
    made: Mutex<HashSet<PathBuf>>,
}

impl LocalStore {
    /// A directory of the machine.
    pub fn new(root: impl Into<PathBuf>) -> LocalStore {
        LocalStore::on(Arc::new(RealDisk), root)
    }

    /// A directory of a disk.
    pub fn on(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> LocalStore {
        let (next, made) = (AtomicU64::new(0), Mutex::default());
        LocalStore(Arc::new(Inner { root: root.into(), disk, next, made }))
    }
}

impl Store for LocalStore {
    fn place(&self, name: &str) -> String {
        self.0.root.join(name).display().to_string()
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        let mut writer = Writer::new(&self.0, name)?;
        writer.write(bytes)?;
        writer.link()
    }

    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(Writer::new(&self.0, name)?))
    }

    /// An object gets its name when its bytes are durable, so what may be missing are names.
    fn settle(&self, name: &str) -> Result<()> {
        names::check(name)?;
        let path = self.0.root.join(name);
        let folder = folder_of(&path);
        let synced = self.0.make(folder).and_then(|()| self.0.disk.sync_dir(folder));
        synced.map_err(|error| self.0.failed(&path, &error))
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        names::check(name)?;
        let path = self.0.root.join(name);
        self.0.disk.read(&path, range.clone()).map_err(|error| match (error.kind(), range) {
            (ErrorKind::NotFound, _) => Error::Missing { object: self.place(name) },
            (ErrorKind::UnexpectedEof, Some(range)) => Error::Damaged {
                object: self.place(name),
                message: format!("it ends before byte {}", range.end),
                before: None,
            },
            _ => refused(&path, &error),
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let mut found = Vec::new();
        let enters = |folder: &str| {
            let folder = format!("{folder}/");
            folder.starts_with(prefix) || prefix.starts_with(&folder)
        };
        self.0.walk(&enters, &mut |name, bytes| {
            if name.starts_with(prefix) && names::check(name).is_ok() {
                found.push(Object { name: name.to_string(), bytes });
            }
            Ok(())
        })?;
        found.sort();
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        names::check(name)?;
        let path = self.0.root.join(name);
        let absent = |error: &io::Error| error.kind() == ErrorKind::NotFound;
        match self.0.disk.unlink(&path) {
            Err(error) if !absent(&error) => return Err(refused(&path, &error)),
            _ => {}
        }
        // Also if it was gone: who removed it may have been killed before this step.
        match self.0.disk.sync_dir(folder_of(&path)) {
            Err(error) if !absent(&error) => Err(refused(&path, &error)),
            _ => Ok(()),
        }
    }

    fn sweep(&self) -> Result<u64> {
        let mut swept = 0;
        self.0.walk(&|_| true, &mut |name, _| {
            let path = self.0.root.join(name);
            if is_temporary(&path) {
                let removed = self.0.disk.unlink_abandoned(&path);
                swept += u64::from(removed.map_err(|error| refused(&path, &error))?);
            }
            Ok(())
        })?;
        Ok(swept)
    }
}

impl Inner {
    /// Visits all files, each with its path within the root and its length, in folders that the
    /// walk `enters`.
    fn walk(
        &self,
        enters: &dyn Fn(&str) -> bool,
        visit: &mut dyn FnMut(&str, u64) -> Result<()>,
    ) -> Result<()> {
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let path = self.root.join(&folder);
            let entries = match self.disk.read_dir(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| refused(&path, &error))?,
            };
            for DirEntry { name, bytes } in entries {
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                match bytes {
                    Some(bytes) => visit(&name, bytes)?,
                    None if names::check(&name).is_ok() && enters(&name) => folders.push(name),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Makes a temporary file for the object at a path.
    fn begin(&self, path: &Path) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
        let folder = folder_of(path);
        self.make(folder)?;
        let name = path.file_name().unwrap_or_default().display();
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let temporary = folder.join(format!(".{name}.{}-{n}{TEMPORARY}", std::process::id()));
            match self.disk.create(&temporary) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created.map(|file| (temporary, file)),
            }
        }
    }

    /// Makes a directory, and the directories above, durable.
    fn make(&self, directory: &Path) -> io::Result<()> {
        let above = folder_of(directory);
        if above == directory || self.made().contains(directory) {
            return Ok(());
        }
        self.make(above)?;
        let was_there = match self.disk.make_dir(directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => true,
            made => made.map(|()| false)?,
        };
        // Also if it was there: the program that made it may have been killed before this step. But
        // a directory of others need not be one that this user can open.
        match self.disk.sync_dir(above) {
            Err(error) if was_there && error.kind() == ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
        self.made().insert(directory.to_path_buf());
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error, after which no directory counts as made: the disk may be another when it comes
    /// back.
    fn failed(&self, path: &Path, error: &io::Error) -> Error {
        self.made().clear();
        refused(path, error)
    }
}

/// An object that is being written to its temporary file.
#[derive(Debug)]
struct Writer {
    store: Arc<Inner>,
    path: PathBuf,
    temporary: PathBuf,
    file: Box<dyn DiskFile>,
    /// The temporary file has become the object.
    renamed: bool,
}

impl Writer {
    fn new(store: &Arc<Inner>, name: &str) -> Result<Writer> {
        names::check(name)?;
        let path = store.root.join(name);
        let (temporary, file) = store.begin(&path).map_err(|error| store.failed(&path, &error))?;
        Ok(Writer { store: store.clone(), path, temporary, file, renamed: false })
    }

    /// Carries out a step on the disk.
    fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> io::Result<T>) -> Result<T> {
        step(self).map_err(|error| self.store.failed(&self.path, &error))
    }

    /// Makes the object durable, unless one of its name exists.
    fn link(mut self) -> Result<Put> {
        self.step(|writer| {
            writer.file.sync()?;
            match writer.store.disk.link(&writer.temporary, &writer.path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Put::Exists),
                linked => linked?,
            }
            writer.store.disk.sync_dir(folder_of(&writer.path))?;
            Ok(Put::Created)
        })
    }
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.step(|writer| writer.file.write(bytes))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.step(|writer| {
            writer.file.sync()?;
            writer.store.disk.rename(&writer.temporary, &writer.path)?;
            writer.renamed = true;
            writer.store.disk.sync_dir(folder_of(&writer.path))
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.renamed {
            // A temporary file that stays is swept later.
            _ = self.store.disk.unlink(&self.temporary);
        }
    }
}

/// The directory with this path in it.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => path,
    }
}

/// Whether a file has the name of a temporary file of a store: others may keep files here, too.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map_or("".into(), |name| name.to_string_lossy());
    let inner = name.strip_prefix('.').and_then(|name| name.strip_suffix(TEMPORARY));
    let numbers = inner.and_then(|inner| inner.rsplit_once('.')?.1.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// The error of the store for an error of the disk.
fn refused(path: &Path, error: &io::Error) -> Error {
    let (object, message) = (path.display().to_string(), error.to_string());
    let help = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            return Error::Full { object, message };
        }
        _ if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
            "the file system must have hard links: name a directory on another one"
        }
        ErrorKind::PermissionDenied => "let this user write to the directory, or name another one",
        ErrorKind::ReadOnlyFilesystem => "name a directory that can be written to",
        ErrorKind::NotADirectory => "name a directory",
        _ => "see whether the disk works; checkpoints go on when it does again",
    };
    Error::Unavailable { object, message, help: help.into() }
}
