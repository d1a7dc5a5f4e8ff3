//! Files as sinks: `'connector' = 'file', 'format' = '…', 'path' = '…'`, as the target of `INSERT
//! INTO`.
//!
//! `path` is a directory, which is created if it does not exist. Each worker writes files of its
//! own in it, without waiting for the others. So the rows of a window are in as many files as there
//! are leaders, and only all files together are the same whatever the number of workers. A query
//! with `LIMIT` or `OFFSET`, or with a single group for all rows, is written by one worker.
//!
//! **Names.** A worker's file is `part-<process>-<worker>`. A worker of a table that rolls its
//! files, or has partitions, writes several: `part-<process>-<worker>-<number>`, the first one with
//! its first row. A file that is not complete is called `.part-….inprogress`.
//!
//! **What is visible when.** A file is complete: it is sealed (written to its end, and synced), and
//! gets its name after that. Without a rolling policy this is when all processes have sealed all
//! their files at the end of the job, so that a result is there, or it is not. (Files are renamed
//! one after the other. A process that is killed at that moment has renamed only some of them, and
//! the job ends with an error.) With one, a file gets its name as soon as it is rolled; the files
//! that are open at the end of the job get theirs when the job ends well.
//!
//! **What the next job finds.** Unfinished files of a job that failed are removed, and it is said
//! how many. A job never writes to a file that it has not created: a link, a pipe or the like under
//! such a name is refused. Complete files are never written to: a directory that has any is
//! refused.
//!
//! **Memory.** Rows of Parquet and Arrow files wait until there are enough for a row group or a
//! batch. Those of a process take an eighth of the setting `memory` at most, 128 MB at most, or a
//! megabyte per worker; then what there is of the largest file is written. This comes on top of the
//! job's budget.
//!
//! **Marks.** Partitions are marked, if the table wants that, when the job has ended well and all
//! files of all processes have their names.
//!
//! | option | default | |
//! |---|---|---|
//! | `path` | required | a directory, relative to the SQL file; `file://` may stand in front |
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
#[cfg(test)]
mod format_tests;
mod ipc;
mod options;
mod output;
mod parquet;
mod partition;
mod rolling;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use self::directory::Lock;
use self::options::Settings;
pub(crate) use self::options::{ask_written, check_partitions, is_only_written, refuse_partitions};
use self::partition::Partitions;
pub(crate) use self::partition::{misplaced, partition_in, value_in, value_of};
use self::rolling::Clock;
use self::worker::{Common, Worker};

/// Files that are open at once, of all workers of a process; and what each worker has at least.
const OPEN_FILES: usize = 256;
const OPEN_FILES_MIN: usize = 8;

/// Memory of rows that wait in files, of all workers of a process: at most this, and at most this
/// part of the job's memory; and what each worker has at least.
const HELD_BYTES: u64 = 128 << 20;
const HELD_PART: u64 = 8;
const HELD_BYTES_MIN: usize = 1 << 20;

/// Writes a directory of files.
#[derive(Debug)]
pub struct FileSink {
    settings: Settings,
    opened: OnceLock<Opened>,
}

/// What there is once the job has begun.
struct Opened {
    /// Stops before the workers' files are closed.
    _clock: Option<Clock>,
    workers: Workers,
    /// Where files come and go, the directory is locked by this one.
    _lock: Option<Lock>,
    /// Unfinished files that were removed.
    removed: u64,
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
        Ok(FileSink { settings: Settings::from_options(table)?, opened: OnceLock::new() })
    }

    fn workers(&self) -> &[Mutex<Worker>] {
        self.opened.get().map_or(&[], |opened| &opened.workers)
    }

    /// What the workers of a job have in common.
    fn common(&self, schema: &SchemaRef, writers: Writers) -> Result<Common> {
        let workers = writers.workers.max(1);
        // At most 128 MiB, so it fits.
        let held = (writers.memory_bytes / HELD_PART).min(HELD_BYTES) as usize;
        Ok(Common {
            directory: self.settings.directory.clone(),
            encoding: self.settings.encoding.clone(),
            rolling: self.settings.rolling,
            partitions: Partitions::new(&self.settings.partitioned_by, schema)?,
            open_max: (OPEN_FILES / workers).max(OPEN_FILES_MIN),
            held_max: (held / workers).max(HELD_BYTES_MIN),
        })
    }
}

/// A worker that panics ends the job, and its files stay unfinished.
fn locked(worker: &Mutex<Worker>) -> MutexGuard<'_, Worker> {
    worker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for FileSink {
    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()> {
        let directory = &self.settings.directory;
        let common = Arc::new(self.common(schema, writers)?);
        directory.make()?;
        directory.check_free()?;
        let lock = match common.is_plain() {
            true => {
                directory.check_unlocked(writers.process)?;
                None
            }
            false => Some(directory.lock(writers.process)?),
        };
        let removed = directory.clear_unfinished(writers.process)?;
        let new = |worker| {
            let mut new = Worker::new(common.clone(), writers.process, worker);
            if common.is_plain() {
                new.open_only()?;
            }
            Ok(Mutex::new(new))
        };
        let workers: Workers = (0..writers.workers).map(new).collect::<Result<_>>()?;
        // Another job may have ended just before its files were free.
        directory.check_free()?;
        let interval = common.rolling.and_then(|rolling| rolling.interval);
        let watched = workers.clone();
        let look = move || watched.iter().for_each(|worker| locked(worker).look_at_the_clock());
        let clock = interval.map(|interval| Clock::start(interval, look)).transpose()?;
        let opened = Opened { _clock: clock, workers, _lock: lock, removed };
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
        let removed = self.opened.get()?.removed;
        let files = counted(removed, "unfinished file");
        let place = self.settings.directory.path.display();
        (removed > 0).then(|| format!("{place}: removed {files} of a job that did not end well"))
    }

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        match self.workers().get(worker) {
            Some(worker) => locked(worker).write(rows, flush),
            None => Err(Error::Internal(format!("worker {worker} has no file"))),
        }
    }

    fn finish(&self) -> Result<()> {
        self.workers().iter().try_for_each(|worker| locked(worker).seal_all())
    }

    fn prepare(&self) -> Result<Prepared> {
        self.finish()?;
        let sealed = self.workers().iter().flat_map(|worker| locked(worker).take_sealed());
        Ok(Prepared { sealed: sealed.collect() })
    }

    fn commit(&self, prepared: &Prepared) -> Result<()> {
        self.settings.directory.commit(&prepared.sealed)
    }

    fn mark(&self) -> Result<()> {
        self.settings.directory.mark()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("removed", &self.removed).finish_non_exhaustive()
    }
}
