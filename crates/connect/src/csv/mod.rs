//! CSV files as tables: `'connector' = 'file', 'format' = 'csv', 'path' = '…'`.
//!
//! One file is one split. Its reader takes the file in chunks of about 1 MiB (less for small files,
//! so that windows fire while the file is read), which end with whole records. Any worker can
//! decode a chunk; it decodes only the columns that are used. A pipe is read as it is written: a
//! record is available as soon as its line is complete. The processes of a job share a file by
//! chunks. A pipe, or a file that does not report its length (as in `/proc`), is read by the
//! coordinator.
//!
//! A file is read up to where it ended when the job opened it. It may grow meanwhile. If the last
//! line has no line end at that moment, reading goes on until the line end has been written. If
//! nothing is written for a quarter of a second, the line is complete as it is. A file that becomes
//! shorter, or is not the same in all processes, is an error.
//!
//! | option | default | |
//! |---|---|---|
//! | `path` | required | relative to the SQL file; `file://` may stand in front |
//! | `csv.field-delimiter` | `,` | one ASCII character; `\t` is the tabulator |
//! | `csv.quote-character` | `"` | one ASCII character |
//! | `csv.disable-quote-character` | `false` | quotes are ordinary characters |
//! | `csv.header` | `auto` | `true`: the first record names the columns; `auto`: see below |
//! | `csv.null-literal` | | an unquoted field with this text is NULL |
//! | `csv.ignore-parse-errors` | `false` | leave malformed records out: see below |
//! | `csv.allow-comments` | `false` | lines that start with `#` are no records |
//!
//! With `auto`, the first record is the header if all declared columns are among its fields,
//! whatever their case. It is a record if it contains a value that cannot be a column's name. What
//! is neither is refused ([`header`] has the whole rule).
//!
//! With a header, columns are found by name, whatever the case, and other fields are ignored.
//! Without a header, they are found by position. Each record must have as many fields as the
//! header, or as there are columns. Blank lines are skipped, unless records have a single field;
//! then they are NULL.
//!
//! **NULL**: An empty unquoted field is NULL. A quoted empty field is the empty string in a STRING
//! or BYTES column, and NULL in others. With `csv.null-literal`, an unquoted empty field is the
//! empty string in a STRING or BYTES column, too, and still NULL in others.
//!
//! **Types**: BOOLEAN is `true`, `false`, `t`, `f`, `1` or `0`. DECIMAL rounds digits beyond its
//! scale half away from zero. BYTES is base64, as in Flink. Timestamps are ISO 8601, with `T` or a
//! blank between date and time. An offset is converted to UTC; without one, the time is in UTC.
//! Digits beyond the type's precision are cut off, that is, rounded towards the past. Blanks around
//! a value are ignored, except in strings; blanks inside a timestamp are not.
//!
//! **Malformed records** end the job, or are skipped with `csv.ignore-parse-errors`. With that
//! option, a quote that is never closed costs only its own line. It counts as never closed if the
//! field goes on for more than 1 MiB, to the end of the file, or to a quote on a later line after
//! which text follows. Then the line in which the quote opens is skipped, and the next line is read
//! as a record.
//!
//! A value is checked only where its column is read: an unused column may hold anything.

mod chunk;
mod cut;
mod decode;
mod dialect;
mod fuzz;
mod header;
mod index;
mod open;
mod pipe;
mod reader;
mod regular;

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::table::{
    Extent, OpenOptions, ReadOnce, Sharing, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;

use self::chunk::{CsvChunk, Plan};
use self::dialect::Dialect;
use self::pipe::Pipe;
use self::reader::{Input, LOOK, Reader, Ready};
use self::regular::Regular;
use crate::options::Options;
use crate::types::sql_name;

pub(crate) use self::dialect::Header;
pub use self::fuzz::fuzz_csv;
pub use self::open::standard_input;

/// Bytes of a chunk of a large file.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a chunk at least, unless the batch size asks for less.
const CHUNK_BYTES_MIN: usize = 4 << 10;

/// Chunks per worker that a small file is cut into.
const CHUNKS_PER_WORKER: u64 = 16;

/// A CSV file.
#[derive(Debug, Clone)]
pub struct CsvTable {
    source: Source,
    path: Arc<str>,
    schema: SchemaRef,
    dialect: Arc<Dialect>,
    /// What process 0 has found, in a job of several.
    told: Option<Extent>,
    /// There, the file that it has found: as long as it is open no other can get its number.
    kept: Arc<Mutex<Option<File>>>,
    /// A pipe whose opening has begun.
    begun: Arc<Mutex<Option<Pipe>>>,
}

/// Where the bytes come from.
#[derive(Debug, Clone)]
enum Source {
    File(PathBuf),
    /// For tests and fuzzing.
    Memory(Arc<[u8]>),
}

/// Whether a path names what a process has open itself, as its standard input: it is not the same
/// in another.
fn is_own(path: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir))
}

/// A panic elsewhere leaves something or nothing.
fn locked<T>(kept: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CsvTable {
    /// A table from `WITH` options. Checks that the file is there; its content is looked at when
    /// the table is opened.
    ///
    /// # Errors
    ///
    /// [`millstream_contract::Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<CsvTable> {
        let (dialect, given) = CsvTable::checked(table)?;
        let path = open::resolve(&Options::new(table), given)?;
        Ok(CsvTable::at(path, table, dialect))
    }

    /// A table of a file that an earlier statement makes, to plan with.
    pub(crate) fn not_yet(table: &TableOptions) -> Result<CsvTable> {
        let (dialect, given) = CsvTable::checked(table)?;
        let path = Options::new(table).path(given.unwrap_or_default());
        Ok(CsvTable::at(path, table, dialect))
    }

    fn at(path: PathBuf, table: &TableOptions, dialect: Dialect) -> CsvTable {
        CsvTable {
            path: path.display().to_string().into(),
            source: Source::File(path),
            schema: table.schema.clone(),
            dialect: Arc::new(dialect),
            told: None,
            kept: Arc::default(),
            begun: Arc::default(),
        }
    }

    /// Whether the options are those of a file, which need not exist.
    pub(crate) fn check(table: &TableOptions) -> Result<()> {
        CsvTable::checked(table).map(drop)
    }

    /// The dialect, and the path as it is given.
    fn checked(table: &TableOptions) -> Result<(Dialect, Option<&str>)> {
        let options = Options::new(table);
        let format = options.text("format");
        let given = options.text("path").map(str::trim);
        open::check_format(&options, format)?;
        let dialect = Dialect::from_options(&options)?;
        options.finish("a csv file")?;
        for field in table.schema.fields() {
            if !decode::supported(field.data_type()) {
                let message = format!(
                    "csv cannot hold column '{}' of type {}",
                    field.name(),
                    sql_name(field.data_type())
                );
                return Err(options.error("format", message, ""));
            }
        }
        Ok((dialect, given))
    }

    /// For tests and fuzzing.
    fn in_memory(path: &str, bytes: &[u8], schema: SchemaRef, dialect: Arc<Dialect>) -> CsvTable {
        let source = Source::Memory(bytes.into());
        CsvTable {
            source,
            path: path.into(),
            schema,
            dialect,
            told: None,
            kept: Arc::default(),
            begun: Arc::default(),
        }
    }

    /// The input and its length, if that is known.
    fn input(&self) -> Result<(Input, Option<u64>)> {
        match &self.source {
            Source::Memory(bytes) => {
                let input = Input::Memory(Box::new(Cursor::new(bytes.clone())));
                Ok((input, Some(bytes.len() as u64)))
            }
            Source::File(path) => {
                if let Some(pipe) = locked(&self.begun).take() {
                    return Ok((Input::Pipe(pipe), None));
                }
                let told = self.told.as_ref().filter(|told| told.length.is_some());
                let kept = locked(&self.kept).take().filter(|_| told.is_some());
                let (file, found) = match kept {
                    Some(file) => regular::opened(file, path)?,
                    None => regular::open(path)?,
                };
                if let Some(told) = told {
                    regular::check_same(&self.path, told, found.as_ref())?;
                }
                let length = told.or(found.as_ref()).and_then(|extent| extent.length);
                let input = match length {
                    Some(length) => Input::File(Regular::new(file, self.path.clone(), length)),
                    None => Input::Pipe(Pipe::new(Box::new(file))),
                };
                Ok((input, length))
            }
        }
    }

    /// What all processes of a job may read; without length if only one can.
    fn extent(&self) -> Result<Extent> {
        let alone = Extent { length: None, file: None };
        match &self.source {
            Source::Memory(bytes) => Ok(Extent { length: Some(bytes.len() as u64), file: None }),
            Source::File(path) => {
                // To open a pipe is to wait for its writer.
                let file =
                    !is_own(path) && path.metadata().is_ok_and(|metadata| metadata.is_file());
                let (file, found) = if file {
                    regular::open(path)?
                } else {
                    return Ok(alone);
                };
                *locked(&self.kept) = found.is_some().then_some(file);
                Ok(found.unwrap_or(alone))
            }
        }
    }

    /// How the processes of a job share it, if its length is as found here.
    fn sharing(&self, found: Option<u64>) -> Sharing {
        let length = match (&self.told, &self.source) {
            (Some(told), _) => told.length,
            (None, Source::File(path)) if is_own(path) => None,
            (None, _) => found,
        };
        if length.is_some() { Sharing::ByChunk } else { Sharing::Coordinator }
    }

    fn open_split(
        &self,
        projection: &[usize],
        chunk_bytes: Option<usize>,
        options: &OpenOptions,
    ) -> Result<CsvSplit> {
        let (input, length) = self.input()?;
        let mut reader = Reader::new(input, self.path.clone(), self.dialect.clone());
        reader.start()?;
        let layout = header::read(&mut reader, &self.dialect, &self.schema, &self.path)?;
        let remark = layout.unsure.as_ref().map(|place| {
            format!(
                "{place}: read as a record; if it is a header, say so with 'csv.header' = 'true' \
                 (or 'false')"
            )
        });
        let plan = Plan::new(&self.path, &self.dialect, &self.schema, layout, projection)?;
        let automatic = length.map_or(64 << 10, |length| {
            let chunks = CHUNKS_PER_WORKER * options.workers.max(1) as u64;
            // At most 1 MiB, so it fits.
            (length / chunks).clamp(CHUNK_BYTES_MIN as u64, CHUNK_BYTES as u64) as usize
        });
        Ok(CsvSplit {
            path: self.path.clone(),
            reader,
            plan: Arc::new(plan),
            chunk_bytes: chunk_bytes.unwrap_or(automatic),
            batch_rows: options.batch_rows.max(1),
            line_bytes: 64.0,
            length,
            sharing: self.sharing(length),
            remark,
        })
    }
}

impl Table for CsvTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        true
    }

    fn live(&self) -> bool {
        match &self.source {
            Source::Memory(_) => false,
            Source::File(path) => path.metadata().is_ok_and(|metadata| !metadata.is_file()),
        }
    }

    fn read_once(&self) -> Option<ReadOnce> {
        match &self.source {
            Source::Memory(_) => None,
            Source::File(path) => open::read_once(path),
        }
    }

    fn begin(&self, options: &OpenOptions) -> Option<Arc<dyn Table>> {
        let Source::File(path) = &self.source else { return None };
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        // Where process 0 has found a file, a pipe is an error.
        let told = self.told.as_ref().is_some_and(|told| told.length.is_some());
        if !is_pipe || told || options.process != 0 {
            return None;
        }
        let begun = Arc::new(Mutex::new(Some(Pipe::open(path.clone()))));
        Some(Arc::new(CsvTable { begun, ..self.clone() }))
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        if options.process != 0 {
            let found = if self.told.is_none() { self.extent()?.length } else { None };
            if self.sharing(found) == Sharing::Coordinator {
                return Ok(vec![Box::new(Elsewhere(self.path.clone()))]);
            }
        }
        Ok(vec![Box::new(self.open_split(projection, None, options)?)])
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.schema.fields().len());
        format!("file {} (csv, {read} of {})", self.path, counted(all as u64, "column"))
    }

    fn extents(&self) -> Result<Vec<Extent>> {
        Ok(vec![self.extent()?])
    }

    fn up_to(&self, extents: &[Extent]) -> Option<Arc<dyn Table>> {
        let told = Some(extents.first()?.clone());
        Some(Arc::new(CsvTable { told, ..self.clone() }))
    }
}

/// A file being read.
struct CsvSplit {
    path: Arc<str>,
    reader: Reader,
    plan: Arc<Plan>,
    /// Bytes a chunk should have, as long as that is not too many rows.
    chunk_bytes: usize,
    batch_rows: usize,
    /// Mean length of the lines in the last chunk: from it follows how much to read for a batch.
    line_bytes: f64,
    /// Of a file, when it was opened.
    length: Option<u64>,
    sharing: Sharing,
    /// What was decided about the header, where that is open to doubt.
    remark: Option<String>,
}

/// A pipe that the coordinator reads.
struct Elsewhere(Arc<str>);

impl Split for Elsewhere {
    fn name(&self) -> &str {
        &self.0
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
    }

    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        Ok(SplitPoll::Ended)
    }
}

/// Whether the job's clock is another one than the machine's: in simulation time flies.
fn is_virtual(now_us: i64) -> bool {
    let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now_us.abs_diff(machine.as_micros() as i64) > 1_000_000
}

impl Split for CsvSplit {
    fn name(&self) -> &str {
        &self.path
    }

    fn extent(&self) -> Option<u64> {
        self.length.filter(|_| self.sharing == Sharing::ByChunk)
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        // A saturating cast: a batch of any number of rows is allowed.
        let batch_bytes = (self.line_bytes * self.batch_rows as f64) as usize;
        let bytes = self.chunk_bytes.min(batch_bytes).max(1);
        match self.reader.ready(bytes, waker)? {
            Ready::Now => {}
            Ready::Called => return Ok(SplitPoll::Pending { retry_at_us: None }),
            Ready::Later => {
                if is_virtual(now_us) {
                    // Whoever writes the file does so in real time.
                    thread::sleep(LOOK);
                }
                let retry_at_us = Some(now_us.saturating_add(LOOK.as_micros() as i64));
                return Ok(SplitPoll::Pending { retry_at_us });
            }
        }
        let Some(block) = self.reader.next(bytes, self.batch_rows)? else {
            return Ok(SplitPoll::Ended);
        };
        self.line_bytes = block.data.len() as f64 / block.lines.max(1) as f64;
        Ok(SplitPoll::Chunk(Box::new(CsvChunk { plan: self.plan.clone(), block })))
    }
}

/// The line of offset `at` in `data`, which starts on `first_line`.
fn line(data: &[u8], first_line: u64, at: usize) -> u64 {
    let before = &data[..at.min(data.len())];
    first_line + memchr::memchr_iter(b'\n', before).count() as u64
}

/// `path:line:column` of offset `at` in `data`, which starts on `first_line`. The column counts
/// characters from 1.
fn place(path: &str, data: &[u8], first_line: u64, at: usize) -> String {
    let before = &data[..at.min(data.len())];
    let line = line(data, first_line, at);
    let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
    // Every byte that does not continue a character starts one.
    let column = before[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
    format!("{path}:{line}:{column}")
}

#[cfg(test)]
mod tests;
