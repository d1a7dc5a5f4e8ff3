//! Where the files of a sink go: a directory of this machine, or a prefix of a bucket.

use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use millstream_contract::Result;
use millstream_contract::sink::Sealed;

use super::output::Output;

/// Beginning of a file's name, before the numbers of process and worker.
pub(super) const PART: &str = "part-";

/// End of a file's name until the file is committed.
pub(super) const UNFINISHED: &str = ".inprogress";

/// Files that a message names.
const NAMED: usize = 20;

/// Files that former jobs have left in a directory.
#[derive(Debug, Default)]
pub(super) struct FormerFiles {
    /// Files with their final names.
    pub(super) complete: Vec<PathBuf>,
    /// Files that will never be finished: no job holds a lock on them.
    pub(super) unfinished: Vec<PathBuf>,
    /// Above the numbers of all files, by process and worker.
    next: HashMap<(usize, usize), u64>,
}

impl FormerFiles {
    /// A file of this name is there.
    pub(super) fn note(&mut self, process: usize, name: &str) {
        if let Some((of, worker, number)) = numbers(name).filter(|numbers| numbers.0 == process) {
            let next = self.next.entry((of, worker)).or_default();
            *next = (*next).max(number.saturating_add(1));
        }
    }

    /// The number of a worker's next file.
    pub(super) fn next(&self, process: usize, worker: usize) -> u64 {
        self.next.get(&(process, worker)).copied().unwrap_or(0)
    }
}

/// Says that a process of a job writes to the directory, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) path: PathBuf,
    pub(super) _file: File,
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

/// The name that a sealed file gets in the end.
pub(super) fn final_name(unfinished: &str) -> String {
    let (partition, name) = unfinished.rsplit_once('/').unwrap_or(("", unfinished));
    let name = name.strip_prefix('.').unwrap_or(name);
    names(partition, name.strip_suffix(UNFINISHED).unwrap_or(name)).to
}

/// The numbers of process, worker and file in a name; the first file of a worker may have none.
/// Before the number of a file may be that of an interval.
pub(super) fn numbers(name: &str) -> Option<(usize, usize, u64)> {
    let mut parts = name.strip_prefix(PART)?.split('-');
    let (process, worker) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let rest = parts.map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
    (rest.len() <= 2).then(|| (process, worker, rest.last().copied().unwrap_or(0)))
}

/// Where files are written. Names are within the folder.
pub(super) trait Folder: Debug + Send + Sync {
    /// Its place, for messages.
    fn path(&self) -> &Path;
    /// How deep its partitions are: none, if 0.
    fn depth(&self) -> usize;
    /// Files that may be open at once, of all workers of a process.
    fn open_max(&self) -> usize;
    /// Whether a job's files can take the place of those of former jobs.
    fn is_replaceable(&self) -> bool;
    /// Makes the folder, if it is not there.
    fn make(&self) -> Result<()>;
    /// Finds out what former jobs have left, before this process writes its first file.
    ///
    /// # Errors
    ///
    /// If a job is writing files of this process's number.
    fn find(&self, process: usize) -> Result<FormerFiles>;
    /// Removes the unfinished files that [`Folder::find`] has found, except for those of a process
    /// that has locked the folder: that process may be going to commit its sealed files.
    fn sweep(&self, found: &mut FormerFiles, process: usize) -> Result<()>;
    /// Locks the folder for this process of the job; `None` if it has no locks, or is not there.
    fn lock(&self, process: usize) -> Result<Option<Lock>>;
    /// Fails if a running job has locked the folder; removes the lock of a killed job.
    fn check_unlocked(&self, process: usize) -> Result<()>;
    /// Creates an unfinished file, and never writes to a file that exists.
    fn create(&self, names: &Sealed) -> Result<Output>;
    /// Gives sealed files their final names, which outlast a crash from then on. Doing so again
    /// changes nothing. Returns the files that are not there any more, under neither name: a reader
    /// has moved them away. That is an error, unless they may have been committed `before`.
    fn commit(&self, sealed: &[Sealed], before: bool) -> Result<Vec<PathBuf>>;
    /// From now on sealed files outlast a crash, under their unfinished names.
    fn sync(&self, sealed: &[Sealed]) -> Result<()>;
    /// Removes files that [`Folder::find`] has found: all unfinished ones, and if this job
    /// `overwrites`, the complete ones too; with partitions, only in partitions that have new
    /// files.
    fn remove(&self, found: &FormerFiles, overwrites: bool) -> Result<()>;
    /// Marks the partitions that have files; all files have their final names by now.
    fn mark(&self) -> Result<()>;

    /// Names a few files.
    fn named(&self, paths: &[PathBuf]) -> String {
        let within =
            |path: &PathBuf| path.strip_prefix(self.path()).unwrap_or(path).display().to_string();
        let few: Vec<String> = paths.iter().take(NAMED).map(within).collect();
        match paths.len() - few.len() {
            0 => few.join(", "),
            more => format!("{} and {more} more", few.join(", ")),
        }
    }
}
