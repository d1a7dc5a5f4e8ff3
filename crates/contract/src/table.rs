//! Sources of records: connectors implement tables, and jobs read them.
//!
//! A table is a set of *splits* (the paper's physical data flows, section 5.1). A split is an
//! ordered sequence of records. It belongs to the source (a file, a shard of a generator), never to
//! a worker. Its reader hands out *chunks*, in order and cheaply. Decoding a chunk into a record
//! batch is a pure function that workers may run at the same time on different chunks.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::declaration::{Declaration, DeclaredTime};
use crate::decoding::value_bytes;
use crate::error::{Error, Result};
use crate::expr::Evaluate;
pub use crate::position::{
    JobMarks, Position, Positions, ShownName, SideFile, SideFiles, SourceMarks, SplitMark,
};
use crate::pruning::Pruning;
pub use crate::senders::Senders;
pub use crate::split_spec::{FileId, SplitSpec};
pub use crate::table_options::TableOptions;

/// A named collection of splits with one schema.
///
/// A method with a default that is added here, or to [`Split`] or [`Chunk`], has to be passed on in
/// [`crate::wrapped`], too.
pub trait Table: Send + Sync + Debug {
    /// The physical columns, in order.
    fn schema(&self) -> SchemaRef;
    /// Whether every split ends by itself.
    fn bounded(&self) -> bool;
    /// Whether records come as they happen, so that the clock is related to their times: pipes, and
    /// endless tables.
    fn live(&self) -> bool {
        !self.bounded()
    }
    /// Whether splits are independent, as partitions of a log are: a split may have no records for
    /// hours, and the other splits go on. Records of different splits then have no order.
    fn splits_are_apart(&self) -> bool {
        false
    }
    /// Why records that are read again may be others; `None`: they are the same.
    fn varies(&self) -> Option<&'static str> {
        None
    }
    /// Whether senders of its splits come and go ([`Split::is_absent`]).
    fn has_senders(&self) -> bool {
        false
    }
    /// The input, if it can be read only once: afterwards its data are gone for other tables too.
    fn read_once(&self) -> Option<ReadOnce> {
        None
    }
    /// Whether another run of the program can go on in the middle of this table, from the positions
    /// of its splits. A job with checkpoints is refused a table that cannot.
    ///
    /// # Errors
    ///
    /// The reason, and what to do instead.
    fn check_resumable(&self) -> Result<()> {
        self.read_once().map_or(Ok(()), |once| Err(Error::not_resumable(&once.name)))
    }
    /// Begins to open an input that may have to wait, as a pipe waits for its writer, and returns
    /// this table with the begun input; `None` if the table need not wait. All tables of a job are
    /// begun before any is opened: a program that writes to several pipes may open them in any
    /// order.
    fn begin(&self, _options: &OpenOptions) -> Option<Arc<dyn Table>> {
        None
    }
    /// Opens all splits at the positions of [`OpenOptions::from`], or at their first records.
    /// Batches carry only the columns of `projection` (indices into [`Table::schema`]), in that
    /// order; with an empty projection they carry only a row count. Calling it again starts again
    /// from there.
    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>>;
    /// One line for `explain`, for example `file data/events.csv (csv, 2 of 12 columns)`.
    fn describe(&self, projection: &[usize]) -> String;
    /// The splits that there are now, before any is opened, where that can change from one look to
    /// the next: the files of a directory, the length of a file. Whoever starts a job asks, and
    /// tells all its processes: all read just that. Empty for a table whose splits are always the
    /// same.
    fn splits(&self) -> Result<Vec<SplitSpec>> {
        Ok(Vec::new())
    }
    /// This table, of which just these splits are read; `None` if its splits are always the same.
    fn with_splits(&self, _splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        None
    }
    /// Splits that have come since the table was opened, apart from the splits that `is_known` by
    /// name. The process that starts a job asks now and then while the job runs, and tells all
    /// processes. Each process opens the new splits with [`Table::with_splits`] and
    /// [`Table::open`]. A split keeps its name and never goes. Must not wait.
    fn added_splits(&self, _is_known: &dyn Fn(&str) -> bool) -> Result<AddedSplits> {
        Ok(AddedSplits::Never)
    }
    /// Tells the table that a restarted job will not ask for the records before these positions,
    /// by the names of splits: all that came of these records is durable. A source outside may
    /// forget the records, or answer their senders. Called with the splits that this process has
    /// opened, any number of times: positions never go back, and the same may come again. No record
    /// of the splits in `ended` will be asked for.
    fn committed(&self, _positions: &Positions, _ended: &BTreeSet<String>) -> Result<()> {
        Ok(())
    }
}

/// Answer of a table to the question for new splits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddedSplits {
    /// The splits that were opened are all that there will be.
    Never,
    /// These are new, if any; others may follow.
    New(Vec<SplitSpec>),
}

/// An input that can be read only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnce {
    /// Equal for all tables that read the same input.
    pub id: String,
    /// For messages, for example `standard input`.
    pub name: String,
}

/// Parameters of the job for opening its sources.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Rows a batch should have at most.
    pub batch_rows: usize,
    /// The job's start time, microseconds since the epoch, the same for every split. A resumed job
    /// has the start time of the first.
    pub start_time_us: i64,
    /// Number of workers, of all processes: a hint for how finely to cut chunks, never for the
    /// number of splits.
    pub workers: usize,
    /// Which of the job's processes opens the table.
    pub process: usize,
    /// How many processes the job has.
    pub processes: usize,
    /// This process's number among the processes that read, and how many these are. Both are equal
    /// if this process reads nothing.
    pub reader: (usize, usize),
    /// By split name: the position where reading begins, from [`Split::position`]. Other splits
    /// begin with their first records.
    pub from: Positions,
    /// Whether the job has checkpoints: only then [`Table::committed`] is called.
    pub checkpoints: bool,
    /// The splits of `from` that have no more records: their inputs need not be there.
    pub ended: BTreeSet<String>,
    /// The names of splits in `from` and `ended`.
    pub shown: ShownName,
    /// Which rows count: a hint that changes no result.
    pub pruning: Pruning,
    /// Conditions over the columns that are read, all of which are TRUE on each row that counts. A
    /// hint that changes no result: files on whose rows one is not need not be read.
    pub conditions: Vec<Arc<dyn Evaluate>>,
    /// Columns of texts, as places in the projection, of which batches may hold dictionaries
    /// (`Dictionary(Int32, Utf8)`, no value of which is NULL), where the source has them so. A hint
    /// that changes no result.
    pub dictionaries: Vec<usize>,
    /// The job's setting `memory`, in bytes. Chunks are counted against it once they are handed
    /// out; what waits in the source before that is not, and should be a small part of it.
    pub memory_bytes: u64,
}

impl OpenOptions {
    /// For a job of one process.
    pub fn alone(batch_rows: usize, start_time_us: i64, workers: usize) -> OpenOptions {
        OpenOptions {
            batch_rows,
            start_time_us,
            workers,
            process: 0,
            processes: 1,
            reader: (0, 1),
            from: Positions::new(),
            checkpoints: false,
            ended: BTreeSet::new(),
            shown: ShownName::default(),
            pruning: Pruning::default(),
            conditions: Vec::new(),
            dictionaries: Vec::new(),
            memory_bytes: u64::MAX,
        }
    }

    /// Rows that a batch should have at most where each takes so many bytes at least: a batch takes
    /// a 16th of the job's memory, or a megabyte.
    pub fn batch_rows_of(&self, row_bytes: u64) -> usize {
        let batch_bytes = (self.memory_bytes / 16).max(1 << 20);
        let rows = usize::try_from(batch_bytes / row_bytes.max(1)).unwrap_or(usize::MAX);
        self.batch_rows.min(rows.max(1))
    }

    /// The same, with fewer rows to a batch where these columns are wide.
    pub fn for_columns(self, schema: &SchemaRef, projection: &[usize]) -> OpenOptions {
        let field = |column: &usize| schema.fields().get(*column);
        let bytes = |column| field(column).map_or(0, |field| value_bytes(field.data_type()));
        let batch_rows = self.batch_rows_of(projection.iter().map(bytes).sum());
        OpenOptions { batch_rows, ..self }
    }

    /// The position where the split of this name begins.
    pub fn from(&self, name: &str) -> Position {
        self.from.get(&self.shown.of(name)).cloned().unwrap_or_default()
    }

    /// Whether the split of this name has no more records.
    pub fn has_ended(&self, name: &str) -> bool {
        self.ended.contains(&self.shown.of(name))
    }
}

/// How the processes of a job share a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Split `i` is read by process `i % P`. The other processes open it and never ask for a chunk.
    Whole,
    /// All processes read it and find the same chunks; chunk `n` is decoded by process `n % P`. For
    /// what can be read several times, where cutting is cheap beside decoding.
    ByChunk,
    /// Only the coordinator can read it (a pipe).
    Coordinator,
    /// Only this one among the processes that read ([`OpenOptions::reader`]).
    Reader(usize),
}

/// How much of a split has been handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Amount handed out so far.
    pub done: u64,
    /// All that there is.
    pub of: u64,
    /// Whether these are bytes; otherwise rows, or batches.
    pub bytes: bool,
}

/// An ordered sequence of records.
pub trait Split: Send {
    /// Name of the split, for messages and positions: a path, or `generator ysb, shard 3`. Unique
    /// within the table, and the same from one start to the next, whatever other splits there are
    /// and wherever the program is started: a path is relative to the directory of the SQL file.
    fn name(&self) -> &str;
    /// How much there is, for example in bytes, if all processes of a job have to find as much.
    fn extent(&self) -> Option<u64> {
        None
    }
    /// How the processes of a job share it.
    fn sharing(&self) -> Sharing {
        Sharing::Whole
    }
    /// Remark for the user on the reading of the split, in a single line.
    fn remark(&self) -> Option<&str> {
        None
    }
    /// News for the user, in a single line, since the last call. Called after each
    /// [`Split::poll_next`], until there is no more.
    fn notice(&mut self) -> Option<String> {
        None
    }
    /// The position after the last chunk that was handed out; before the first, the position where
    /// the split was opened. A split opened there continues with the next chunk.
    fn position(&self) -> Position;
    /// How much has been handed out, and how much there is; `None` if that is not known. Asked
    /// after each [`Split::poll_next`], for reports to people, so it must be cheap.
    fn progress(&self) -> Option<Extent> {
        None
    }
    /// Whether a pending split has handed out all that there is. If not, or if the source cannot be
    /// asked at the moment, the split does not become idle, however long nothing comes.
    fn caught_up(&self) -> bool {
        true
    }
    /// Whether a pending split has no sender now ([`Table::has_senders`]). Such a split is idle
    /// without waiting for the idle time.
    fn is_absent(&self) -> bool {
        false
    }
    /// The senders of the table in this process, if other processes have senders of the table, too.
    fn senders(&self) -> Option<Arc<dyn Senders>> {
        None
    }
    /// Drains the split: it accepts no more from outside. True if the split has accepted data, and
    /// confirmed the acceptance to the sender, that have not been handed out. The split then hands
    /// them out, and [`SplitPoll::Ended`] follows. If false, the job requests no more chunks. Must
    /// not wait. Only the process that reads the split calls this.
    fn drain(&mut self) -> bool {
        false
    }
    /// The next chunk in split order. Must be cheap: parsing belongs in [`Chunk::decode`].
    /// `now_us` is the job's clock (microseconds since the epoch; virtual in simulation).
    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll>;
}

/// Answer of a split to a poll.
pub enum SplitPoll {
    /// The next chunk.
    Chunk(Box<dyn Chunk>),
    /// Nothing now. Ask again at `retry_at_us`, or when the waker was called.
    Pending {
        /// The job's clock at which to ask again, if the split knows.
        retry_at_us: Option<i64>,
    },
    /// No further records, ever.
    Ended,
}

/// Raw records of one split, not yet decoded.
pub trait Chunk: Send {
    /// Input bytes this chunk stands for; epochs and memory are counted in them.
    fn bytes(&self) -> usize;
    /// Decodes into the projected columns. Pure, may run on any worker and in any order.
    fn decode(self: Box<Self>) -> Result<RecordBatch>;
    /// As [`Chunk::decode`], with what the closing report says of records that do not count.
    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        Ok(Decoded::whole(self.decode()?, None))
    }
}

/// A decoded chunk.
#[derive(Debug)]
pub struct Decoded {
    /// Its records.
    pub batch: RecordBatch,
    /// Malformed records that were left out, where the table's options ask for that.
    pub left_out: u64,
    /// The first of them.
    pub first_left_out: Option<LeftOut>,
    /// All malformed records, with the columns of [`crate::plan::malformed_schema`], where the
    /// table's options keep malformed records.
    pub malformed: Option<RecordBatch>,
    /// Where the records of `batch` stand, if the source can say.
    pub places: Option<Box<dyn Places>>,
    /// Treatment of records whose computed columns cannot be evaluated.
    pub failing: Failing,
    /// News for the user, a line each.
    pub notices: Vec<String>,
    /// A watermark that the sender has sent behind these records, in microseconds of event time.
    /// No later record of the split is earlier.
    pub sent_watermark_us: Option<i64>,
}

/// Treatment of records for which a computed column of the table, or its watermark, cannot be
/// evaluated.
#[derive(Debug)]
pub enum Failing {
    /// The first ends the job.
    Fails,
    /// They are malformed, and left out.
    LeftOut,
    /// As `LeftOut`, and kept in [`Decoded::malformed`], with their bytes.
    Kept(Box<dyn Raw>),
}

/// The records of a batch as they stood in their chunk.
pub trait Raw: Send + Debug {
    /// The bytes of those at `rows`, ascending, each without its line end.
    fn bytes_of(&self, rows: &[usize]) -> Result<Vec<Vec<u8>>>;
    /// By record of [`Decoded::malformed`], how many records of the batch stand before it.
    fn malformed_before(&self) -> &[usize];
}

impl Decoded {
    /// Records, all of them well-formed.
    pub fn whole(batch: RecordBatch, places: Option<Box<dyn Places>>) -> Decoded {
        Decoded {
            batch,
            left_out: 0,
            first_left_out: None,
            malformed: None,
            places,
            failing: Failing::Fails,
            notices: Vec::new(),
            sent_watermark_us: None,
        }
    }
}

/// A malformed record that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Where it stands.
    pub place: String,
    /// Description of the mistake.
    pub message: String,
    /// How many records of its batch stand before it.
    pub before: usize,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// The log has not noted when it took in a record.
pub const NOT_APPENDED: i64 = i64::MIN;

/// Where the records of a batch stand in their source.
///
/// A method with a default that is added here has to be passed on in [`crate::wrapped`], too.
pub trait Places: Send + Sync + Debug {
    /// For people, for example `events.csv:17`. `row` is one of the batch's.
    fn place(&self, row: usize) -> String;
    /// For queries: the offset of a record's first byte, or its number in its file, if that was
    /// asked for.
    fn offset(&self, _row: usize) -> Option<u64> {
        None
    }
    /// By row, when a log has taken in the record, by the log's clock in microseconds;
    /// [`NOT_APPENDED`] if the log has not noted that. It is the same whenever the record is read,
    /// and stands for the clock where a watermark is compared with it (`watermark.max_ahead`).
    fn appended_us(&self) -> Option<&[i64]> {
        None
    }
    /// Bytes it takes in memory.
    fn bytes(&self) -> usize;
}

/// A batch already in memory is its own chunk.
impl Chunk for RecordBatch {
    fn bytes(&self) -> usize {
        // Logical bytes of the slice, not of the buffers it shares with its neighbours.
        self.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum()
    }
    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(*self)
    }
}

/// Makes tables and sinks from options: implemented by the connector crate, called by the SQL
/// crate.
pub trait Connectors: Send + Sync {
    /// A table to read from. Errors are [`crate::Error::Option`] with the option at fault.
    fn table(&self, options: &TableOptions) -> Result<Arc<dyn Table>>;
    /// A table to read from once the earlier statements have run, which insert into `written`:
    /// their files need not exist yet.
    fn table_after(
        &self,
        options: &TableOptions,
        _written: &[TableOptions],
    ) -> Result<Arc<dyn Table>> {
        self.table(options)
    }
    /// A sink to `INSERT INTO`.
    fn sink(&self, options: &TableOptions) -> Result<Arc<dyn crate::sink::Sink>>;
    /// Looks at the options when a table is declared, without opening anything: a table may be
    /// declared and never used. Errors are those of [`Connectors::table`].
    fn check(&self, _options: &TableOptions) -> Result<()> {
        Ok(())
    }
    /// Whether the connector is there. A table of a missing connector may be declared; an error
    /// follows when the table is used.
    fn knows(&self, _options: &TableOptions) -> bool {
        true
    }
    /// The keys of metadata columns that there are for the records of a table with these options,
    /// and their types. A column may have another type: [`crate::metadata::may_hold`].
    fn metadata(&self, _options: &TableOptions) -> Vec<(&'static str, DataType)> {
        Vec::new()
    }
    /// Which of these keys a sink writes. Others are only read.
    fn written_metadata(&self, _options: &TableOptions) -> Vec<&'static str> {
        Vec::new()
    }
    /// A table of files that a query names instead of a table, as their data declare it: a path, or
    /// a pattern of paths, relative to `base_dir`. The same files give the same declaration. Errors
    /// are [`Error::Option`] of the option `path`, or say where the data cannot be understood.
    fn declaration(&self, path: &str, _base_dir: &Path) -> Result<Declaration> {
        Err(Error::Option {
            table: path.to_string(),
            option: "path".into(),
            message: "no connector here reads files".into(),
            help: "declare a table: CREATE TABLE name (…) WITH ('connector' = …)".into(),
        })
    }
    /// The event time of a table that files declare, with a watermark so far behind that no record
    /// is late: all times are read. `None` if `found` has it already.
    fn time_of_all(
        &self,
        _table: &dyn Table,
        _found: &Declaration,
    ) -> Result<Option<DeclaredTime>> {
        Ok(None)
    }
}
