//! Files as sinks: `'connector' = 'file', 'format' = 'csv', 'path' = '…'`, as the target of `INSERT
//! INTO`.
//!
//! `path` is a directory, which is created if it does not exist. Each worker writes a file of its
//! own in it, `part-<process>-<worker>`, without waiting for the others. So the rows of a window
//! are in as many files as there are leaders, and only all files together are the same whatever the
//! number of workers. A query with `LIMIT` or `OFFSET`, or with a single group for all rows, writes
//! one file.
//!
//! While a job runs, its files are called `.part-<process>-<worker>.inprogress`. They get their
//! final names only when all processes have written and synced their files. So a file called
//! `part-…` is complete, and if the job ended well there is one for each worker. (Files are renamed
//! one after the other. A process that is killed at that moment has renamed only some of them, and
//! the job ends with an error.)
//!
//! Files that a failed job has written stay where they are; the next job replaces those of the same
//! name. A job never writes to a file that it has not created: a link, a pipe or the like under
//! such a name is refused. Complete files are never written to: a directory that has any is
//! refused.
//!
//! | option | default | |
//! |---|---|---|
//! | `path` | required | a directory, relative to the SQL file; `file://` may stand in front |
//! | `format` | required | `csv` or `ndjson` |
//! | `csv.header` | `true` | `false`: no line with the columns' names |
//! | `csv.field-delimiter` | `,` | one ASCII character; `\t` is the tabulator |
//! | `csv.quote-character` | `"` | one ASCII character |
//! | `csv.null-literal` | | how NULL is written; without it as an empty field |

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::sink::{RowOrder, Sink, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use crate::csv::Header;
use crate::options::Options;
use crate::text::{Format, PLAIN, TextOptions, TextSink, write_error};

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
        let text = match format {
            Format::Csv => text_options(&options)?,
            _ => TextOptions::default(),
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
            text,
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
        self.clear(&path)?;
        let file =
            File::options().write(true).create_new(true).open(&path).map_err(
                |error| match error.kind() {
                    io::ErrorKind::AlreadyExists => busy(&path),
                    _ => failed(error),
                },
            )?;
        lock(&file, &path)?;
        let out = file.try_clone().map_err(failed)?;
        let rows = TextSink::named(place.clone(), self.format, Box::new(out), self.text.clone());
        Ok(Part { name, path, file, rows })
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

/// The `csv.*` options, which mean what they mean to the source.
fn text_options(options: &Options<'_>) -> Result<TextOptions> {
    let header = options.parsed("csv.header", "'true', 'false' or 'auto'", Header::parse)?;
    let (delimiter, quote) =
        (options.ascii_char("csv.field-delimiter")?, options.ascii_char("csv.quote-character")?);
    let between = delimiter.unwrap_or(b',');
    let around = quote.unwrap_or(b'"');
    if around == between {
        let message = "the same character is the field delimiter".into();
        return Err(options.error("csv.quote-character", message, ""));
    }
    if PLAIN.contains(&around) {
        let message = format!("numbers and times have '{}' in them", char::from(around));
        return Err(options.error("csv.quote-character", message, "choose another character"));
    }
    let null_literal = options.text("csv.null-literal").map(str::to_string);
    let special = |byte: &u8| [between, around, b'\n', b'\r'].contains(byte);
    if null_literal.as_ref().is_some_and(|text| text.as_bytes().iter().any(special)) {
        let message = "it must do without quotes, and has such a character in it".into();
        return Err(options.error("csv.null-literal", message, "choose another text"));
    }
    let without_header = header == Some(Header::Absent);
    Ok(TextOptions { without_header, delimiter, quote, null_literal, ..TextOptions::default() })
}

/// Locks a file for as long as it is open.
fn lock(file: &File, path: &Path) -> Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => busy(path),
        TryLockError::Error(error) => write_error(&path.display().to_string(), &error),
    })
}

/// Gives a file its name, which no other file may have got meanwhile.
fn give_name(from: &Path, to: &Path) -> Result<()> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::Io {
            place: to.display().to_string(),
            message: "somebody else has made it while the job ran".into(),
            help: format!("the job's own file is {}: rename it", from.display()),
        },
        _ => write_error(&to.display().to_string(), &error),
    };
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(failed(error)),
        // A file system without hard links: there is no more than a look.
        Err(_) if fs::symlink_metadata(to).is_ok() => {
            Err(failed(io::ErrorKind::AlreadyExists.into()))
        }
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

/// Opens no symbolic link, and waits for nobody at a pipe.
const NO_LINKS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

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
            give_name(&part.path, &path)?;
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
