//! Files as sinks: `'connector' = 'file', 'format' = '…', 'path' = '…'`, as the target of `INSERT
//! INTO`.
//!
//! `path` is a directory, which is created if it does not exist. Each worker writes files of its
//! own in it, without waiting for the others. So the rows of a window are in as many files as there
//! are leaders, and only all files together are the same whatever the number of workers. A query
//! with `LIMIT` or `OFFSET`, or with a single group for all rows, is written by one worker.
//!
//! **Names.** A worker's file is `part-<process>-<worker>`. A worker of a table with rolled files
//! or partitions writes several: `part-<process>-<worker>-<number>`, each created with its first
//! row. In a job of many intervals the number of the interval before stands before that number: no
//! later run of the job gives the name again, also if a reader has moved the file away. An
//! incomplete file is called `.part-….inprogress`.
//!
//! **Visibility.** A complete file is sealed (written to its end, and synced), and then gets its
//! final name. Without a rolling policy, files are renamed when all processes have sealed all files
//! at the end of the job, so that a result is either complete or absent. (Files are renamed in
//! sequence. A process that is killed at that moment has renamed only some of them, and the job
//! ends with an error.) With a rolling policy, a file is renamed as soon as it is rolled; files
//! that are open at the end of the job are renamed when the job ends well. A job of many intervals
//! completes its files at the end of each interval and renames them when the interval is committed,
//! with or without a rolling policy.
//!
//! **Files of former jobs.** Complete files stay, and are never written to: a job adds files of
//! higher numbers. `INSERT OVERWRITE` removes complete files when all new files have their final
//! names; with partitions, only in partitions that get rows. Unfinished files of a failed job are
//! named when the next job begins, and removed when that job has ended well. A job writes only to
//! its own files.
//!
//! **Jobs with checkpoints** end many intervals. When `prepare` returns, the files of the interval
//! and their names are synced; `commit` renames them and syncs the directories. A resumed job first
//! commits what its checkpoint names, and removes other unfinished files when it opens the
//! directory, unless a running job has them: then opening and committing fail. With `INSERT
//! OVERWRITE` all files keep their unfinished names until the end of the job.
//!
//! **Memory.** Rows of Parquet and Arrow files wait until there are enough for a row group or a
//! batch. All waiting rows of a process take at most an eighth of the setting `memory`, at most 128
//! MB, or a megabyte per worker; beyond that, the largest file's rows are written early. This
//! memory comes on top of the job's budget.
//!
//! **Buckets.** A file in a bucket of S3 is an upload in parts, and visible once it is complete.
//! Each open file takes up to 8 MB of memory. Nothing can be overwritten, and there are no locks.
//!
//! **Marks.** Partitions are marked, if the table wants that, when the job has ended well and all
//! files of all processes have their names.
//!
//! | option | default | |
//! |---|---|---|
//! | `path` | required | a directory, relative to the SQL file, or `s3://bucket/prefix` |
//! | `format` | required | `csv`, `ndjson`, `parquet` or `arrow` |
//! | `csv.header` | `true` | `false`: no line with the columns' names |
//! | `csv.field-delimiter` | `,` | one ASCII character; `\t` is the tabulator |
//! | `csv.quote-character` | `"` | one ASCII character |
//! | `csv.null-literal` | | how NULL is written; without it as an empty field |
//! | `parquet.compression` | `snappy` | `zstd`, `gzip`, `lz4`, `none` |
//! | `parquet.block.size` | `32 MB` | of a row group, encoded |
//! | `arrow.compression` | `none` | `lz4`, `zstd` |
//! | `sink.rolling-policy.file-size` | | a file is rolled when it is so long |
//! | `sink.rolling-policy.rows` | | … has so many rows |
//! | `sink.rolling-policy.rollover-interval` | | … has been open for so long |
//! | `sink.rolling-policy.window` | `false` | … has the last row of a window |
//! | `sink.partition-commit.policy.kind` | | `success-file`: an empty file in each partition |
//! | `sink.partition-commit.success-file.name` | `_SUCCESS` | its name |

mod directory;
mod encode;
mod folder;
#[cfg(test)]
mod format_tests;
mod ipc;
mod keys;
mod options;
mod output;
mod parquet;
mod partition;
mod rolling;
#[cfg(test)]
mod synced;
#[cfg(test)]
mod tests;
mod upload;
mod worker;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::sink::{Manner, Prepared, RowOrder, Sealed, Sink, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use self::folder::{FormerFiles, Lock, final_name};
use self::options::Settings;
pub(crate) use self::options::{
    ask_written, check_partitions, csv_text_options, is_only_written, refuse_partitions,
};
use self::partition::Partitions;
pub(crate) use self::partition::{misplaced, partition_in, value_in, value_of};
use self::rolling::RollingClock;
use self::worker::{Common, Worker};

/// Files that each worker may have open, at least.
const OPEN_FILES_MIN: usize = 8;

/// Memory of rows that wait in files, of all workers of a process: at most this, and at most this
/// part of the job's memory; and what each worker has at least.
const HELD_BYTES: u64 = 128 << 20;
const HELD_PART: u64 = 8;
const HELD_BYTES_MIN: usize = 1 << 20;

/// Warning for an endless query whose files are not rolled.
const ENDLESS: &str = "the query never ends, and its files get their names when it has ended: until \
     then nobody reads its rows, and it has to be ended with `millstream stop --drain`\n  \
     help: say in WITH (…) when a file is complete, for example by \
     'sink.rolling-policy.rollover-interval' = '1 min'";

/// Writes a directory of files.
#[derive(Debug)]
pub struct FileSink {
    settings: Settings,
    manner: OnceLock<Manner>,
    opened: OnceLock<OpenSink>,
    own: Mutex<OwnFiles>,
}

/// Files of this job and of the job that it goes on from.
#[derive(Debug, Default)]
struct OwnFiles {
    /// Final names of files that were committed before this sink was opened.
    committed: BTreeSet<PathBuf>,
    /// Committed files that somebody has moved away or deleted.
    gone: Vec<PathBuf>,
    /// The last interval of earlier jobs.
    after: u64,
    /// Where rows replace what is there: unfinished names of all sealed files, within the
    /// directory, and whether the last row has come, so that the files can be shown.
    held: BTreeSet<String>,
    ended: bool,
    /// Prepared files whose names have not been synced.
    to_sync: Vec<Sealed>,
}

/// Parts that exist once the job has begun.
struct OpenSink {
    /// Stops before the workers' files are closed.
    _clock: Option<RollingClock>,
    workers: Workers,
    /// Where files come and go, the directory is locked by this one.
    _lock: Option<Lock>,
    /// Files of former jobs, reported by the first process.
    found: FormerFiles,
    is_first: bool,
}

/// The clock looks at them, too.
type Workers = Arc<[Mutex<Worker>]>;

impl FileSink {
    /// A sink from `WITH` options. The directory is looked at when the sink is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<FileSink> {
        let (manner, opened, own) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Ok(FileSink { settings: Settings::from_options(table)?, manner, opened, own })
    }

    fn own(&self) -> MutexGuard<'_, OwnFiles> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files of former jobs.
    fn found(&self, process: usize) -> Result<FormerFiles> {
        let folder = &self.settings.folder;
        let (mut found, own) = (folder.find(process)?, self.own());
        let held: BTreeSet<PathBuf> =
            own.held.iter().map(|name| folder.path().join(name)).collect();
        found.complete.retain(|path| !own.committed.contains(path));
        found.unfinished.retain(|path| !held.contains(path));
        Ok(found)
    }

    /// Takes note of files of an earlier job that this one goes on from.
    fn take_over(&self, prepared: &Prepared) {
        let mut own = self.own();
        for Sealed { from, to } in &prepared.sealed {
            match from == to {
                true => drop(own.held.insert(from.clone())),
                false => drop(own.committed.insert(self.settings.folder.path().join(to))),
            }
        }
    }

    fn manner(&self) -> Manner {
        self.manner.get().copied().unwrap_or_default()
    }

    fn workers(&self) -> &[Mutex<Worker>] {
        self.opened.get().map_or(&[], |opened| &opened.workers)
    }

    fn seal_all(&self) -> Result<()> {
        self.workers().iter().try_for_each(|worker| locked(worker).seal_all())
    }

    /// Settings common to all workers of a job.
    fn common(&self, schema: &SchemaRef, writers: Writers) -> Result<Common> {
        let workers = writers.workers.max(1);
        // At most 128 MiB, so it fits.
        let held = (writers.memory_bytes / HELD_PART).min(HELD_BYTES) as usize;
        Ok(Common {
            folder: self.settings.folder.clone(),
            encoding: self.settings.encoding.clone(),
            rolling: self.settings.rolling,
            intervals: self.manner().intervals,
            partitions: Partitions::new(&self.settings.partitioned_by, schema)?,
            open_max: (self.settings.folder.open_max() / workers).max(OPEN_FILES_MIN),
            held_max: (held / workers).max(HELD_BYTES_MIN),
        })
    }
}

/// A worker that panics ends the job, and its files stay unfinished.
fn locked(worker: &Mutex<Worker>) -> MutexGuard<'_, Worker> {
    worker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for FileSink {
    fn expect(&self, manner: Manner) -> bool {
        let may = self.settings.folder.is_replaceable() || !manner.overwrites;
        may && self.manner.set(manner).is_ok()
    }

    fn follow(&self, interval: u64) {
        self.own().after = interval;
    }

    fn commits(&self) -> bool {
        true
    }

    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()> {
        let folder = &self.settings.folder;
        let common = Arc::new(self.common(schema, writers)?);
        folder.make()?;
        let lock = match common.is_plain() {
            true => {
                folder.check_unlocked(writers.process)?;
                None
            }
            false => folder.lock(writers.process)?,
        };
        let mut found = self.found(writers.process)?;
        // With OVERWRITE only the coordinator knows which files are still wanted.
        if self.manner().resumes && (writers.process == 0 || !self.manner().overwrites) {
            folder.sweep(&mut found, writers.process)?;
        }
        let after = self.own().after;
        let new = |worker| {
            let numbers = (found.next(writers.process, worker), after);
            let mut new = Worker::new(common.clone(), (writers.process, worker), numbers);
            if common.is_plain() {
                new.open_only()?;
            }
            Ok(Mutex::new(new))
        };
        let workers: Workers = (0..writers.workers).map(new).collect::<Result<_>>()?;
        let interval = common.rolling.and_then(|rolling| rolling.interval);
        let watched = workers.clone();
        let look = move || watched.iter().for_each(|worker| locked(worker).look_at_the_clock());
        let clock = interval.map(|interval| RollingClock::start(interval, look)).transpose()?;
        let is_first = writers.process == 0;
        let opened = OpenSink { _clock: clock, workers, _lock: lock, found, is_first };
        let again = |_| Error::Internal("a file sink was opened twice".into());
        self.opened.set(opened).map_err(again)
    }

    fn order(&self) -> RowOrder {
        RowOrder::Any
    }

    fn is_local(&self) -> bool {
        true
    }

    fn remark(&self) -> Option<String> {
        let folder = &self.settings.folder;
        let mut remarks = Vec::new();
        let is_shown_late = self.settings.rolling.is_none() && !self.manner().intervals;
        if self.manner().endless && is_shown_late {
            remarks.push(ENDLESS.to_string());
        }
        if let Some(OpenSink { found, is_first: true, .. }) = self.opened.get() {
            let FormerFiles { complete, unfinished, .. } = found;
            let (files, named) = (counted(complete.len() as u64, "file"), folder.named(complete));
            match (complete.is_empty(), self.manner().overwrites, folder.depth()) {
                (true, ..) => {}
                (_, false, _) if self.manner().resumes => {}
                (_, false, _) => {
                    remarks.push(format!("{files} of former jobs stay beside the new ones"))
                }
                (_, true, 0) => {
                    remarks.push(format!("it replaces {files} of former jobs: {named}"))
                }
                (_, true, _) => remarks.push(format!(
                    "it replaces those of {files} of former jobs whose partitions get rows: {named}"
                )),
            }
            if !unfinished.is_empty() {
                let files = counted(unfinished.len() as u64, "unfinished file");
                let named = folder.named(unfinished);
                remarks.push(format!(
                    "{files} of a job that did not end well will be removed when this one has ended \
                     well: {named}"
                ));
            }
        }
        let gone = &self.own().gone;
        if !gone.is_empty() {
            let files = counted(gone.len() as u64, "file");
            let named = folder.named(gone);
            remarks.push(format!(
                "since the last checkpoint, somebody has moved or deleted {files}: {named}"
            ));
        }
        let place = folder.path().display();
        let lines = remarks.iter().map(|remark| format!("{place}: {remark}"));
        (!remarks.is_empty()).then(|| lines.collect::<Vec<_>>().join("\n"))
    }

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        match self.workers().get(worker) {
            Some(worker) => locked(worker).write(rows, flush),
            None => Err(Error::Internal(format!("worker {worker} has no file"))),
        }
    }

    fn finish(&self) -> Result<()> {
        self.seal_all()?;
        self.own().ended = true;
        Ok(())
    }

    fn prepare(&self, interval: u64) -> Result<Prepared> {
        let mut sealed: Vec<Sealed> = Vec::new();
        for worker in self.workers() {
            sealed.extend(locked(worker).end_interval(interval)?);
        }
        let Manner { intervals, overwrites, .. } = self.manner();
        let mut own = self.own();
        if intervals {
            own.to_sync.extend_from_slice(&sealed);
        }
        if intervals && overwrites {
            own.held.extend(sealed.drain(..).map(|sealed| sealed.from));
            let to = |from: &String| if own.ended { final_name(from) } else { from.clone() };
            let held = own.held.iter();
            sealed = held.map(|from| Sealed { from: from.clone(), to: to(from) }).collect();
        }
        Ok(Prepared { interval, sealed })
    }

    /// A checkpoint will name the files before they are committed, so files and names are synced.
    fn seal(&self, prepared: &mut Prepared) -> Result<()> {
        let mut names = HashMap::new();
        for worker in self.workers() {
            for part in locked(worker).take_ended() {
                let Sealed { from, to } = part.seal()?;
                names.insert(to, from);
            }
        }
        for sealed in &mut prepared.sealed {
            if sealed.from != sealed.to
                && let Some(from) = names.remove(&sealed.to)
            {
                sealed.from = from;
            }
        }
        let to_sync = std::mem::take(&mut self.own().to_sync);
        self.settings.folder.sync(&to_sync)
    }

    fn commit(&self, prepared: &Prepared) -> Result<()> {
        let folder = &self.settings.folder;
        let shown = prepared.sealed.iter().filter(|sealed| sealed.from != sealed.to);
        let shown: Vec<Sealed> = shown.cloned().collect();
        if self.opened.get().is_some() || prepared.sealed.is_empty() {
            return folder.commit(&shown, false).map(drop);
        }
        // The job that has prepared them may be running.
        let lock = folder.lock(0)?;
        self.take_over(prepared);
        let gone = folder.commit(&shown, true)?;
        self.own().gone.extend(gone);
        drop(lock);
        Ok(())
    }

    fn mark(&self) -> Result<()> {
        let (folder, manner) = (&self.settings.folder, self.manner());
        match self.opened.get() {
            Some(opened) => folder.remove(&opened.found, manner.overwrites)?,
            // The job had ended when it was killed.
            None if manner.resumes => {
                folder.check_unlocked(0)?;
                folder.remove(&self.found(0)?, manner.overwrites)?;
            }
            None => {}
        }
        folder.mark()
    }
}

impl fmt::Debug for OpenSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSink").field("found", &self.found).finish_non_exhaustive()
    }
}
