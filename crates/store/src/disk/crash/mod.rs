//! A file system in memory that crashes, for tests and simulations.
//!
//! A crash loses everything that POSIX allows a file system to lose: any part of a file's bytes
//! since the last sync of the file, and any of a directory's changed names since the last sync of
//! the directory. After a failed sync of a file no later sync helps, since Linux forgets which
//! bytes were not written. Names are in the file system's journal and can be synced again.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirEntry, Disk, DiskFile};
use state::{FileNode, Node, State, crashed};

mod state;

pub use state::Survival;

/// Kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// [`Disk::create`].
    Create,
    /// [`DiskFile::write`].
    Write,
    /// [`DiskFile::sync`].
    Sync,
    /// [`Disk::link`].
    Link,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::unlink`] and [`Disk::unlink_abandoned`].
    Unlink,
    /// [`Disk::make_dir`].
    MakeDir,
    /// [`Disk::sync_dir`].
    SyncDir,
    /// [`Disk::read_dir`].
    ReadDir,
    /// [`Disk::read`].
    Read,
}

/// A step that a disk is about to carry out.
#[derive(Debug, Clone)]
pub struct Step {
    /// Number of steps before it.
    pub number: u64,
    /// Kind of the step.
    pub kind: StepKind,
    /// The file or directory; of two names the new one.
    pub path: PathBuf,
}

/// Fate of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step is carried out.
    None,
    /// The step fails with this error of the system, say `libc::ENOSPC`. A failed write has written
    /// one half.
    Error(i32),
    /// The program ends, before or after the step. Every later step fails until
    /// [`CrashDisk::restart`].
    Crash {
        /// Whether the step is carried out before.
        after: bool,
    },
}

type Hook = Box<dyn FnMut(&Step) -> Fault + Send>;

/// A file system in memory that crashes. Clones are the same disk.
#[derive(Clone)]
pub struct CrashDisk {
    state: Arc<Mutex<State>>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Default for CrashDisk {
    fn default() -> CrashDisk {
        CrashDisk::of(State::new())
    }
}

impl CrashDisk {
    fn of(state: State) -> CrashDisk {
        CrashDisk { state: Arc::new(Mutex::new(state)), hook: Arc::default() }
    }

    /// Another disk in the same state, without a hook.
    pub fn copy(&self) -> CrashDisk {
        CrashDisk::of(lock(&self.state).clone())
    }

    /// Calls `hook` before each step, which says what happens to the step. The hook may use the
    /// disk, as another program would, or sleep; its own steps are carried out.
    pub fn on_step(&self, hook: impl FnMut(&Step) -> Fault + Send + 'static) {
        *lock(&self.hook) = Some(Box::new(hook));
    }

    /// How many steps there have been.
    pub fn steps(&self) -> u64 {
        lock(&self.state).steps
    }

    /// Whether a step has crashed.
    pub fn has_crashed(&self) -> bool {
        lock(&self.state).crashed
    }

    /// Starts again after a crash, without a hook. Files that were being written are unlocked, and
    /// can be written no further.
    pub fn restart(&self, survival: Survival) {
        *lock(&self.hook) = None;
        lock(&self.state).restart(survival);
    }

    /// Carries out a step, unless the hook decides otherwise.
    fn step<T>(
        &self,
        kind: StepKind,
        path: &Path,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.step_or(kind, path, act, |_| {})
    }

    /// As [`CrashDisk::step`], with the effect of a failure.
    fn step_or<T>(
        &self,
        kind: StepKind,
        path: &Path,
        act: impl FnOnce(&mut State) -> io::Result<T>,
        fail: impl FnOnce(&mut State),
    ) -> io::Result<T> {
        let number = {
            let mut state = lock(&self.state);
            state.alive()?;
            state.steps += 1;
            state.steps - 1
        };
        // Taken out, since it may make steps.
        let hook = lock(&self.hook).take();
        let fault = hook.map_or(Fault::None, |mut hook| {
            let fault = hook(&Step { number, kind, path: path.to_path_buf() });
            *lock(&self.hook) = Some(hook);
            fault
        });
        let mut state = lock(&self.state);
        match fault {
            Fault::None => act(&mut state),
            Fault::Error(code) => {
                fail(&mut state);
                Err(io::Error::from_raw_os_error(code))
            }
            Fault::Crash { after } => {
                if after {
                    _ = act(&mut state);
                }
                state.crashed = true;
                Err(crashed())
            }
        }
    }
}

impl Disk for CrashDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let (node, restarts) = self.step(StepKind::Create, path, |state| {
            Ok((state.make(path, Node::File(FileNode::new()))?, state.restarts))
        })?;
        Ok(Box::new(CrashFile { disk: self.clone(), path: path.to_path_buf(), node, restarts }))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(StepKind::Link, to, |state| state.link(from, to))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(StepKind::Rename, to, |state| state.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.step(StepKind::Unlink, path, |state| state.unlink(path))
    }

    fn unlink_abandoned(&self, path: &Path) -> io::Result<bool> {
        self.step(StepKind::Unlink, path, |state| match state.find(path) {
            Ok(node) if !state.file(node)?.locked => state.unlink(path).map(|()| true),
            _ => Ok(false),
        })
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.step(StepKind::MakeDir, path, |state| {
            state.make(path, Node::Directory(BTreeMap::new())).map(|_| ())
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step(StepKind::SyncDir, path, |state| state.sync_dir(path))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.step(StepKind::ReadDir, path, |state| state.list(path))
    }

    fn read(&self, path: &Path, range: Option<Range<u64>>) -> io::Result<Vec<u8>> {
        self.step(StepKind::Read, path, |state| {
            let node = state.find(path)?;
            let bytes = &state.file(node)?.now;
            let range =
                range.map_or(0..bytes.len(), |range| range.start as usize..range.end as usize);
            bytes.get(range).map(<[u8]>::to_vec).ok_or(ErrorKind::UnexpectedEof.into())
        })
    }
}

#[derive(Debug)]
struct CrashFile {
    disk: CrashDisk,
    path: PathBuf,
    node: usize,
    restarts: u64,
}

impl CrashFile {
    fn step(
        &self,
        kind: StepKind,
        act: impl FnOnce(&mut FileNode),
        fail: impl FnOnce(&mut FileNode),
    ) -> io::Result<()> {
        let lives = |state: &State| state.restarts == self.restarts;
        self.disk.step_or(
            kind,
            &self.path,
            |state| {
                if !lives(state) {
                    return Err(crashed());
                }
                state.file(self.node).map(act)
            },
            |state| {
                if lives(state) {
                    _ = state.file(self.node).map(fail);
                }
            },
        )
    }
}

impl DiskFile for CrashFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let half = &bytes[..bytes.len() / 2];
        self.step(StepKind::Write, |file| file.write(bytes), |file| file.write(half))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.step(StepKind::Sync, |file| file.sync(true), |file| file.sync(false))
    }
}

impl Drop for CrashFile {
    fn drop(&mut self) {
        let mut state = lock(&self.disk.state);
        if state.restarts == self.restarts && !state.crashed {
            _ = state.file(self.node).map(|file| file.locked = false);
        }
    }
}

impl fmt::Debug for CrashDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashDisk").field("steps", &self.steps()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
