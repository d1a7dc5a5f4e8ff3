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
//! A pipe may have a journal, from which a restarted job reads it ([`crate::journal`]).
//!
//! Files that grow are followed with `'follow' = 'true'` ([`follow`]).
//!
//! Of many files, each is opened to see at which time it begins, and closed again until its turn
//! comes ([`many`]).
//!
//! **Positions**: length, fingerprint of the first bytes and time of the last change as the first
//! job has found them ([`mark`]), then the numbers of the format. So chunks end where they would
//! have ended without a restart, whatever has been appended meanwhile, which is not read. A file
//! that has become shorter, begins with other bytes, or is gone is an error; but a file that had
//! been read to its end may be gone or changed. New files are read from their first record.

mod file;
mod follow;
mod format;
mod many;
mod mark;
mod paths;
mod pattern;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::nested::is_nested;
use millstream_contract::table::{
    OpenOptions, Position, Positions, ReadOnce, Sharing, Split, SplitPoll, SplitSpec, Table,
    TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

#[cfg(test)]
use self::file::Bytes;
pub(crate) use self::file::OneFile;
use self::file::OpenedFile;
pub(crate) use self::follow::{FollowTable, is_followed};
pub(crate) use self::format::{ReadFormat, is_foreign, lines_from_options};
use self::many::FileSplit;
use self::mark::FileMark;
pub(crate) use self::paths::Files;
pub use self::paths::standard_input;
use crate::beside::{Beside, FileFacts, SideValues};
use crate::files::{ask_written, check_partitions};
use crate::input::Name;
use crate::journal::Journaled;
use crate::options::Options;
use crate::records::{Reading, Wanted};

/// A file or several, in one format.
#[derive(Debug, Clone)]
pub struct FileTable {
    /// The table's name.
    name: Name,
    files: Files,
    /// Where the names of splits start.
    base: PathBuf,
    beside: Beside,
    format: Arc<dyn ReadFormat>,
    /// Of what is no file.
    journal: Option<Journaled>,
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
        let options = Options::new(table);
        let files = Files::resolve(&options, given)?;
        FileTable::of(table, files, options.base(given.unwrap_or_default()), format)
    }

    fn of(
        table: &TableOptions,
        files: Files,
        base: &Path,
        format: Arc<dyn ReadFormat>,
    ) -> Result<FileTable> {
        let (name, beside) = (table.name.as_str().into(), Beside::new(table)?);
        let journal = Journaled::from_options(&Options::new(table), 0)?;
        Ok(FileTable { name, files, base: base.to_path_buf(), beside, format, journal })
    }

    /// A table of a file that an earlier statement makes, to plan with.
    pub(crate) fn not_yet(table: &TableOptions) -> Result<FileTable> {
        let (format, given) = FileTable::checked(table, &|_, _| false)?;
        let (options, given) = (Options::new(table), given.unwrap_or_default());
        let files = Files::One(OneFile::at(options.path(given)));
        FileTable::of(table, files, options.base(given), format)
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
            base: PathBuf::new(),
            beside,
            format,
            journal: None,
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
        if Journaled::from_options(&options, 0)?.is_some() && format.records().is_none() {
            let message =
                format!("a journal has records, and {} is read as a whole", format.name());
            return Err(options.error("journal", message, "write csv, ndjson or raw"));
        }
        if options.text("connector") != Some("stdin") {
            ask_written(&options)?;
        }
        let article = if matches!(format.name(), "arrow" | "ndjson") { "an" } else { "a" };
        options.finish(&format!("{article} {} file", format.name()))?;
        check_partitions(&options, &table.schema)?;
        format::check_columns(&options, &*format, &Beside::new(table)?.data, written)?;
        Ok((format, given))
    }

    /// The name of a file's split.
    fn split_name(&self, file: &OneFile) -> Name {
        paths::split_name(&self.base, &file.name)
    }

    /// Opens a file at a position.
    fn open_file(
        &self,
        file: &OneFile,
        place: FileSlot,
        projection: &[usize],
        options: &OpenOptions,
        position: &Position,
    ) -> Result<(Box<dyn Split>, Option<FileMark>)> {
        let (mark, from) = match FileMark::of(position) {
            Some((mark, from)) => (Some(mark), from),
            None => (None, position.clone()),
        };
        let OpenedFile { input, length, mark } = file.open(mark)?;
        let read = self.beside.read(projection)?;
        let values = read.values(|| known_facts(file, mark))?;
        let reading = Reading {
            path: file.name.clone(),
            schema: &self.beside.data,
            projection: &read.data,
            batch_rows: options.batch_rows,
            from,
            length,
            sharing: place.sharing.unwrap_or_else(|| file.sharing(length)),
            one_of_many: place.one_of_many,
            pruning: &read.pruning(&options.pruning),
            dictionaries: read.dictionaries(&options.dictionaries),
            offsets: read.offsets(),
            chunk_bytes: None,
        };
        Ok((SideValues::split(values, self.format.open(input, &reading)?), mark))
    }

    /// Opens what can be read only once, through the journal.
    fn open_journaled(
        &self,
        journal: &Journaled,
        projection: &[usize],
        options: &OpenOptions,
    ) -> Result<Box<dyn Split>> {
        let file = self.files.single().filter(|file| !file.is_file());
        let (Some(file), Some(format)) = (file, self.format.records()) else {
            return Err(Error::Io {
                place: self.files.describe(),
                message: "files can be read again, so they have no journal".into(),
                help: "leave out 'journal'; name a file by its 'path', not as standard input"
                    .into(),
            });
        };
        let name = self.split_name(file);
        if options.process != 0 || options.has_ended(&name) {
            return Ok(Box::new(Elsewhere(name)));
        }
        let read = self.beside.read(projection)?;
        let values = read.values(|| file.facts())?;
        let wanted = Wanted {
            format,
            schema: self.beside.data.clone(),
            projection: read.data.clone(),
            batch_rows: options.batch_rows,
            offsets: read.offsets(),
        };
        let pipe = || Ok((file.pipe()?, Box::new(()) as _, None));
        // Standard input is given to each run by who starts it.
        let split = journal.split(&name, wanted, options, !file.is_own(), pipe)?;
        Ok(SideValues::split(values, split))
    }

    /// The splits of files that are gone, and that the job has read to their ends.
    ///
    /// # Errors
    ///
    /// If the job has not read such a file to its end.
    fn gone(&self, there: &[OneFile], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        if options.from.is_empty() {
            return Ok(Vec::new());
        }
        let shown = |file| options.shown.of(&self.split_name(file));
        let there: BTreeSet<String> = there.iter().map(shown).collect();
        let mut gone: Vec<Box<dyn Split>> = Vec::new();
        // A table none of whose files counts has a split of its own name.
        let own = options.shown.of(&self.name);
        for name in options.from.keys().filter(|name| !there.contains(*name) && **name != own) {
            if !options.ended.contains(name) {
                return Err(Error::Io {
                    place: name.clone(),
                    message: format!(
                        "the job has not read this file to its end, and it is no longer among the \
                         files of table '{}'",
                        self.name
                    ),
                    help: "put the file back where it was, or begin anew".into(),
                });
            }
            gone.push(Box::new(Elsewhere(name.as_str().into())));
        }
        Ok(gone)
    }
}

/// Facts about a file, as the first job has found it.
fn known_facts(file: &OneFile, mark: Option<FileMark>) -> FileFacts {
    match mark {
        Some(mark) => FileFacts { path: file.name.clone(), modified: Some(mark.modified) },
        None => file.facts(),
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

    fn check_resumable(&self) -> Result<()> {
        if self.journal.is_some() {
            return Ok(());
        }
        for file in self.files.list()? {
            if !file.is_regular()? {
                let place = self.read_once().map_or(file.name.to_string(), |once| once.name);
                return Err(Error::not_resumable(&place));
            }
        }
        Ok(())
    }

    fn begin(&self, options: &OpenOptions) -> Option<Arc<dyn Table>> {
        let file = self.files.single()?;
        let journal = self.journal.as_ref().filter(|_| options.checkpoints);
        if journal.is_some_and(|journal| journal.has_ended(&self.split_name(file))) {
            return None;
        }
        let begun = file.begin(&self.name, options)?;
        Some(Arc::new(FileTable { files: Files::One(begun), ..self.clone() }))
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        if let Some(journal) = &self.journal {
            return Ok(vec![self.open_journaled(journal, projection, options)?]);
        }
        // Those are not opened on whose rows a condition of the query does not hold.
        let read = self.beside.read(projection)?;
        let facts = |file: &OneFile| {
            let mark = FileMark::of(&options.from(&self.split_name(file)));
            known_facts(file, mark.map(|(mark, _)| mark))
        };
        let counts = |file: &OneFile| read.may_count(&options.conditions, || facts(file));
        let mut files = self.files.list()?;
        let mut splits = self.gone(&files, options)?;
        // The splits share them.
        let (projection, options) = (&Arc::from(projection), &Arc::new(options.clone()));
        if let Some(file) = self.files.single() {
            if !counts(file) || file.is_elsewhere(options)? {
                splits.push(Box::new(Elsewhere(self.split_name(file))));
                return Ok(splits);
            }
            let place = FileSlot { one_of_many: false, sharing: None };
            let (table, file, whole) = (self.clone(), file.clone(), Sharing::Whole);
            let packed = file.given_spec().is_some_and(|spec| spec.packed);
            let split = FileSplit::new(table, file, place, projection, options, whole);
            splits.push(Box::new(if packed { split } else { split.at_once()? }));
            return Ok(splits);
        }
        files.retain(counts);
        let whole = files.len() >= FILES_PER_PROCESS * options.processes;
        let several = files.len() > 1;
        for file in files {
            let spec = file.given_spec().map_or_else(|| file.spec_of_many(), Ok)?;
            let sharing = whole.then_some(Sharing::Whole);
            let place = FileSlot { one_of_many: several, sharing };
            let file = file.told(&spec);
            let sharing = sharing.unwrap_or_else(|| file.sharing(spec.length));
            let split = FileSplit::new(self.clone(), file, place, projection, options, sharing);
            splits.push(Box::new(split));
        }
        if splits.is_empty() {
            splits.push(Box::new(Elsewhere(self.name.clone())));
        }
        Ok(splits)
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.beside.schema.fields().len());
        let all = counted(all as u64, "column");
        let journal = Journaled::describe(self.journal.as_ref());
        format!("{} ({}, {read} of {all}{journal})", self.files.describe(), self.format.name())
    }

    fn committed(&self, positions: &Positions, ended: &BTreeSet<String>) -> Result<()> {
        let Some(file) = self.files.single() else { return Ok(()) };
        let name = self.split_name(file);
        let ended = ended.contains(&*name);
        Journaled::committed(self.journal.as_ref(), &name, positions, ended)
    }

    fn splits(&self) -> Result<Vec<SplitSpec>> {
        let named = |file: &OneFile, spec: SplitSpec| SplitSpec {
            name: self.split_name(file).to_string(),
            ..spec
        };
        match self.files.single() {
            Some(file) => Ok(vec![named(file, file.spec()?)]),
            None => {
                let files = self.files.list()?;
                files.iter().map(|file| Ok(named(file, file.spec_of_many()?))).collect()
            }
        }
    }

    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        let files = match self.files.single() {
            Some(file) => Files::One(file.told(splits.first()?)),
            None => Files::listed(splits, &self.base),
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
