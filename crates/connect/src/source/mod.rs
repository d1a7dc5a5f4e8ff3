//! Files as tables: `'connector' = 'file', 'format' = '…', 'path' = '…'`.
//!
//! A file is a split; `path` may name several files, by a pattern or by their directory
//! ([`paths::Files`]), in the order of their names. A [`Format`] gives the bytes their meaning.
//!
//! A file is read in chunks of about 1 MiB (less for small files, so that windows fire while the
//! file is read), which end with whole records. Any worker can decode a chunk; only used columns
//! are decoded. A pipe is read while it is written: a record is available as soon as it is
//! complete. The processes of a job share a file by chunks. A pipe, or a file that does not report
//! its length (as in `/proc`), is read by the coordinator.
//!
//! A file is read up to where it ended when the job opened it. It may grow meanwhile. If the last
//! line has no line end at that moment, reading goes on until the line end has been written. If
//! nothing is written for a quarter of a second, the line is complete as it is. A file that becomes
//! shorter, or is not the same in all processes, is an error.
//!
//! Files that grow are followed with `'follow' = 'true'` ([`follow`]).
//!
//! Of many files, each is opened to see at which time it begins, and closed again until its turn
//! comes ([`many`]).

mod file;
mod follow;
mod format;
mod many;
mod paths;
mod pattern;

use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::Result;
use millstream_contract::nested::is_nested;
use millstream_contract::table::{
    OpenOptions, Position, ReadOnce, Sharing, Split, SplitPoll, SplitSpec, Table, TableOptions,
};
use millstream_contract::wording::counted;

#[cfg(test)]
use self::file::Bytes;
pub(crate) use self::file::OneFile;
pub(crate) use self::follow::{FollowTable, is_followed};
pub(crate) use self::format::{ReadFormat, is_foreign, lines_from_options};
use self::many::LaterSplit;
pub(crate) use self::paths::Files;
pub use self::paths::standard_input;
use crate::beside::{Beside, SideValues};
use crate::files::{ask_written, check_partitions};
use crate::input::Name;
use crate::options::Options;
use crate::records::Reading;

/// A file or several, in one format.
#[derive(Debug, Clone)]
pub struct FileTable {
    /// The table's name.
    name: Name,
    files: Files,
    beside: Beside,
    format: Arc<dyn ReadFormat>,
}

impl FileTable {
    /// A table from `WITH` options. Checks that the files are there; their content is looked at
    /// when the table is opened.
    ///
    /// # Errors
    ///
    /// [`millstream_contract::Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<FileTable> {
        let (format, given) = FileTable::checked(table, &|_, _| false)?;
        let files = Files::resolve(&Options::new(table), given)?;
        Ok(FileTable {
            name: table.name.as_str().into(),
            files,
            beside: Beside::new(table)?,
            format,
        })
    }

    /// A table of a file that an earlier statement makes, to plan with.
    pub(crate) fn not_yet(table: &TableOptions) -> Result<FileTable> {
        let (format, given) = FileTable::checked(table, &|_, _| false)?;
        let path = Options::new(table).path(given.unwrap_or_default());
        let files = Files::One(OneFile::at(path));
        Ok(FileTable {
            name: table.name.as_str().into(),
            files,
            beside: Beside::new(table)?,
            format,
        })
    }

    /// For tests.
    #[cfg(test)]
    pub(crate) fn in_memory(
        name: &str,
        bytes: &[u8],
        schema: SchemaRef,
        format: Arc<dyn ReadFormat>,
    ) -> FileTable {
        let bytes = Bytes::Memory(bytes.into());
        let beside = Beside::none(schema);
        FileTable {
            name: name.into(),
            files: Files::One(OneFile::new(bytes, name)),
            beside,
            format,
        }
    }

    /// For tests: the same of the bytes of a file, with its name as it is.
    #[cfg(test)]
    pub(crate) fn of_file(mut self, path: &std::path::Path) -> FileTable {
        if let Files::One(file) = &mut self.files {
            file.bytes = Bytes::File(path.to_path_buf());
        }
        self
    }

    /// Whether the options are those of a file, which need not exist, and may be one that is only
    /// written.
    pub(crate) fn check(table: &TableOptions) -> Result<()> {
        match is_followed(table)? {
            true => FollowTable::check(table).map(drop),
            false => FileTable::checked(table, &is_written_as_json).map(drop),
        }
    }

    /// The format, and the path as it is given. Columns of types that the format cannot hold are
    /// refused, but for those that can be `written` in it.
    fn checked<'t>(
        table: &'t TableOptions,
        written: &dyn Fn(&str, &DataType) -> bool,
    ) -> Result<(Arc<dyn ReadFormat>, Option<&'t str>)> {
        let options = Options::new(table);
        let given = options.text("path").map(str::trim);
        if options.flag("follow")? {
            let message = "standard input comes as it is written anyway".to_string();
            return Err(options.error("follow", message, "leave it out"));
        }
        let format = format::from_options(&options)?;
        if options.text("connector") != Some("stdin") {
            ask_written(&options)?;
        }
        let article = if matches!(format.name(), "arrow" | "ndjson") { "an" } else { "a" };
        options.finish(&format!("{article} {} file", format.name()))?;
        check_partitions(&options, &table.schema)?;
        format::check_columns(&options, &*format, &Beside::new(table)?.data, written)?;
        Ok((format, given))
    }

    /// Opens a file; `number` is its place among those of the table.
    fn open_file(
        &self,
        file: &OneFile,
        place: FileSlot,
        projection: &[usize],
        options: &OpenOptions,
    ) -> Result<Box<dyn Split>> {
        let (input, length) = file.input()?;
        let read = self.beside.read(projection)?;
        let values = read.values(|| file.facts())?;
        let reading = Reading {
            path: file.name.clone(),
            schema: &self.beside.data,
            projection: &read.data,
            batch_rows: options.batch_rows,
            from: options.from(&file.name),
            length,
            sharing: place.sharing.unwrap_or_else(|| file.sharing(length)),
            one_of_many: place.one_of_many,
            pruning: &read.pruning(&options.pruning),
            dictionaries: read.dictionaries(&options.dictionaries),
            offsets: read.offsets(),
            chunk_bytes: None,
        };
        Ok(SideValues::split(values, self.format.open(input, &reading)?))
    }

    /// The files that there are now and count, each of which is read up to where it ends.
    fn files_now(&self, counts: &dyn Fn(&OneFile) -> bool) -> Result<Vec<(OneFile, SplitSpec)>> {
        let mut files = self.files.list()?;
        files.retain(counts);
        let spec = |file: OneFile| match file.given_spec() {
            Some(spec) => Ok((file, spec)),
            None => file.spec_of_many().map(|spec| (file, spec)),
        };
        files.into_iter().map(spec).collect()
    }
}

/// Which file of a table is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileSlot {
    pub(crate) one_of_many: bool,
    /// How processes share it; `None`: by its length.
    pub(crate) sharing: Option<Sharing>,
}

/// So many files for each process and they need not be shared by chunks.
const FILES_PER_PROCESS: usize = 4;

/// Whether values of a type are written as JSON in the midst of a format that is not read so.
fn is_written_as_json(format: &str, data_type: &DataType) -> bool {
    matches!(format, "csv" | "ndjson") && is_nested(data_type)
}

impl Table for FileTable {
    fn schema(&self) -> SchemaRef {
        self.beside.schema.clone()
    }

    fn bounded(&self) -> bool {
        true
    }

    fn live(&self) -> bool {
        self.files.single().is_some_and(OneFile::live)
    }

    fn read_once(&self) -> Option<ReadOnce> {
        self.files.single()?.read_once()
    }

    fn begin(&self, options: &OpenOptions) -> Option<Arc<dyn Table>> {
        let begun = self.files.single()?.begin(&self.name, options)?;
        Some(Arc::new(FileTable { files: Files::One(begun), ..self.clone() }))
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        // Those are not opened on whose rows a condition of the query does not hold.
        let read = self.beside.read(projection)?;
        let counts = |file: &OneFile| read.may_count(&options.conditions, || file.facts());
        if let Some(file) = self.files.single() {
            if !counts(file) {
                return Ok(vec![Box::new(Elsewhere(file.name.clone()))]);
            }
            if file.is_elsewhere(options)? {
                return Ok(vec![Box::new(Elsewhere(file.name.clone()))]);
            }
            let place = FileSlot { one_of_many: false, sharing: None };
            if file.given_spec().is_some_and(|spec| spec.packed) {
                let (table, file, whole) = (self.clone(), file.clone(), Sharing::Whole);
                let split = LaterSplit::new(table, file, place, projection, options, whole);
                return Ok(vec![Box::new(split)]);
            }
            return Ok(vec![self.open_file(file, place, projection, options)?]);
        }
        let files = self.files_now(&counts)?;
        let whole = files.len() >= FILES_PER_PROCESS * options.processes;
        let several = files.len() > 1;
        let open = |(file, spec): (OneFile, SplitSpec)| -> Box<dyn Split> {
            let sharing = whole.then_some(Sharing::Whole);
            let place = FileSlot { one_of_many: several, sharing };
            let file = file.told(&spec);
            let sharing = sharing.unwrap_or_else(|| file.sharing(spec.length));
            let later = LaterSplit::new(self.clone(), file, place, projection, options, sharing);
            Box::new(later)
        };
        let mut splits: Vec<_> = files.into_iter().map(open).collect();
        if splits.is_empty() {
            splits.push(Box::new(Elsewhere(self.name.clone())));
        }
        Ok(splits)
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.beside.schema.fields().len());
        let all = counted(all as u64, "column");
        format!("{} ({}, {read} of {all})", self.files.describe(), self.format.name())
    }

    fn splits(&self) -> Result<Vec<SplitSpec>> {
        match self.files.single() {
            Some(file) => Ok(vec![file.spec()?]),
            None => self.files.list()?.iter().map(OneFile::spec_of_many).collect(),
        }
    }

    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        let files = match self.files.single() {
            Some(file) => Files::One(file.told(splits.first()?)),
            None => Files::listed(splits),
        };
        Some(Arc::new(FileTable { files, ..self.clone() }))
    }
}

/// A pipe, or what else the coordinator reads.
pub(crate) struct Elsewhere(pub(crate) Name);

impl Split for Elsewhere {
    fn name(&self) -> &str {
        &self.0
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
    }

    fn position(&self) -> Position {
        Position::default()
    }

    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        Ok(SplitPoll::Ended)
    }
}

#[cfg(test)]
mod tests;
