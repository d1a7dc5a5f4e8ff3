//! Files as sinks: `'connector' = 'file', 'format' = 'csv', 'path' = '…'`, as the target of `INSERT
//! INTO`.
//!
//! `path` is a directory, made if it is not there. Each worker writes a file of its own in it,
//! `part-<process>-<worker>`, without waiting for the others: rows of a window are in as many files
//! as there are leaders, and only all files together are the same whatever the number of workers. A
//! query with `LIMIT` or `OFFSET`, or with one group for all, writes one file.
//!
//! While a job runs its files are called `.part-<process>-<worker>.inprogress`. Only when all
//! processes have written and synced theirs do they get their names: a file that is called `part-…`
//! is whole, and if the job ended well there is one of each worker. What a failed job has written
//! stays where it is; the next one begins anew those files that it has, too. Files that are whole
//! are never written to: a directory with such files is refused. (Names are given one after the
//! other: a process that is killed just then leaves a part of them, and the job ends with an
//! error.)
//!
//! | option | default | |
//! |---|---|---|
//! | `path` | required | a directory, relative to the SQL file; `file://` may stand in front |
//! | `format` | required | `csv` or `ndjson` |
//! | `csv.header` | `true` | `false`: no line with the columns' names |

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::sink::{RowOrder, Sink, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use crate::csv::Header;
use crate::options::Options;
use crate::text::{Format, TextOptions, TextSink, write_error};

/// Writes a directory with a file for each worker.
#[derive(Debug)]
pub struct FileSink {
    directory: PathBuf,
    format: Format,
    text: TextOptions,
    parts: OnceLock<Vec<Part>>,
    finished: AtomicBool,
}

/// What one worker writes.
#[derive(Debug)]
struct Part {
    name: String,
    /// Where it is until the job has ended well.
    path: PathBuf,
    /// Held, with its lock, until the job ends.
    file: File,
    rows: TextSink,
}

impl FileSink {
    /// A sink from `WITH` options. The directory is looked at when the sink is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<FileSink> {
        let options = Options::new(table);
        let format = match options.text("format") {
            Some("csv") => Format::Csv,
            Some("ndjson" | "jsonl") => Format::Ndjson,
            Some(other) => {
                let message = format!("there is no format '{}'", other.escape_debug());
                return Err(options.error("format", message, FORMATS));
            }
            None => return Err(options.error("format", "a file needs a format".into(), FORMATS)),
        };
        let header = match format {
            Format::Csv => {
                options.parsed("csv.header", "'true', 'false' or 'auto'", Header::parse)?
            }
            _ => None,
        };
        let given = options.text("path").map_or("", str::trim);
        if given.is_empty() {
            let help = "write 'path' = 'results' among the options, relative to the SQL file";
            return Err(options.error("path", "files need a path to a directory".into(), help));
        }
        options.finish("a file that is written")?;
        Ok(FileSink {
            directory: options.path(given),
            format,
            text: TextOptions {
                without_header: header == Some(Header::Absent),
                ..TextOptions::default()
            },
            parts: OnceLock::new(),
            finished: AtomicBool::new(false),
        })
    }

    fn parts(&self) -> &[Part] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    fn part(&self, name: String) -> Result<Part> {
        let path = self.directory.join(format!(".{name}.inprogress"));
        let place = path.display().to_string();
        let failed = |error| write_error(&place, &error);
        // Not before the lock may what is in it be thrown away.
        let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::Io {
                place: place.clone(),
                message: "another job is writing it".into(),
                help: "wait for it, or write to another path".into(),
            },
            TryLockError::Error(error) => failed(error),
        })?;
        let out = File::options().write(true).truncate(true).open(&path).map_err(failed)?;
        let rows = TextSink::named(place, self.format, Box::new(out), self.text.clone());
        Ok(Part { name, path, file, rows })
    }

    /// Fails if there are results already.
    fn check_free(&self) -> Result<()> {
        let failed = |error| self.failed(&error);
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if name.as_encoded_bytes().starts_with(PART.as_bytes()) {
                return Err(Error::Io {
                    place: self.directory.display().to_string(),
                    message: format!("it holds the result of a job already: {}", name.display()),
                    help: format!("write to another path, or remove {PART}* from it"),
                });
            }
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Error {
        write_error(&self.directory.display().to_string(), error)
    }
}

/// What files are called, in front of the numbers of process and worker.
const PART: &str = "part-";
const FORMATS: &str = "the formats of files to write are csv and ndjson";

impl Sink for FileSink {
    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()> {
        if self.directory.exists() && !self.directory.is_dir() {
            return Err(Error::Io {
                place: self.directory.display().to_string(),
                message: "it is not a directory".into(),
                help: format!("results are written as {PART}* files into a directory: name one"),
            });
        }
        fs::create_dir_all(&self.directory).map_err(|error| self.failed(&error))?;
        self.check_free()?;
        let name = |worker| format!("{PART}{}-{worker}", writers.process);
        let parts: Vec<Part> =
            (0..writers.workers).map(|worker| self.part(name(worker))).collect::<Result<_>>()?;
        // Another job may have ended just before its files were free.
        self.check_free()?;
        for part in &parts {
            part.rows.open(schema, Writers { process: writers.process, workers: 1 })?;
        }
        let again = |_| Error::Internal("a file sink was opened twice".into());
        self.parts.set(parts).map_err(again)
    }

    fn order(&self) -> RowOrder {
        RowOrder::Any
    }

    fn is_local(&self) -> bool {
        true
    }

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        match self.parts().get(worker) {
            Some(part) => part.rows.write(worker, rows, flush),
            None => Err(Error::Internal(format!("worker {worker} has no file"))),
        }
    }

    fn finish(&self) -> Result<()> {
        for part in self.parts() {
            part.rows.finish()?;
            let failed = |error| write_error(&part.path.display().to_string(), &error);
            part.file.sync_all().map_err(failed)?;
        }
        self.finished.store(true, Ordering::Release);
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        if !self.finished.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        for part in self.parts() {
            let path = self.directory.join(&part.name);
            fs::rename(&part.path, &path)
                .map_err(|error| write_error(&path.display().to_string(), &error))?;
        }
        // So that the new names outlast a crash; the directory itself may be new, too.
        let parent = self.directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        [Some(&*self.directory), parent]
            .into_iter()
            .flatten()
            .try_for_each(|directory| File::open(directory)?.sync_all())
            .map_err(|error| self.failed(&error))
    }
}
