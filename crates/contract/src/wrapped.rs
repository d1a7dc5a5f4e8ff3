//! A table or a sink with other words: its messages and descriptions are changed, its records are
//! not.
//!
//! Everything else is passed on to what is inside. A method that is added to [`Table`], [`Split`],
//! [`Chunk`] or [`Sink`] with a default has to be added here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;

use crate::error::{Error, Result};
use crate::plan::PLACE;
use crate::sink::{Manner, Prepared, RowOrder, Sink, Tell, Writers};
use crate::table::{
    AddedSplits, Chunk, Decoded, Extent, LeftOut, OpenOptions, Places, Position, Positions,
    ReadOnce, Senders, Sharing, ShownName, Split, SplitPoll, SplitSpec, Table,
};

/// Replaced texts. Defaults leave a text as it is.
pub trait Words: Send + Sync + Debug {
    /// Remark for the user on a split. `first`: the split is the table's first.
    fn remark(&self, _first: bool, inner: Option<&str>) -> Option<String> {
        inner.map(str::to_string)
    }
    /// News for the user from a split.
    fn notice(&self, inner: String) -> String {
        inner
    }
    /// Why it cannot be read.
    fn error(&self, error: Error) -> Error {
        error
    }
    /// The line for `explain`.
    fn describe(&self, inner: String) -> String {
        inner
    }
    /// A split's name, and where a record stands.
    fn place(&self, inner: String) -> String {
        inner
    }
}

/// A table with other words.
pub struct Wrapped<W> {
    inner: Arc<dyn Table>,
    words: Arc<W>,
    /// Own names of the opened splits, by their names in other words; also of splits that came
    /// later.
    names: Arc<Mutex<BTreeMap<String, String>>>,
}

/// Hides the inner table, whose debug text may show words that are to stay hidden.
impl<W: Words> Debug for Wrapped<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("words", &self.words).finish_non_exhaustive()
    }
}

impl<W: Words + 'static> Wrapped<W> {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Table>, words: Arc<W>) -> Wrapped<W> {
        Wrapped { inner, words, names: Arc::default() }
    }

    fn around(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Wrapped { inner, words: self.words.clone(), names: self.names.clone() })
    }
}

impl<W: Words + 'static> Table for Wrapped<W> {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn bounded(&self) -> bool {
        self.inner.bounded()
    }

    fn live(&self) -> bool {
        self.inner.live()
    }

    fn splits_are_apart(&self) -> bool {
        self.inner.splits_are_apart()
    }

    fn varies(&self) -> Option<&'static str> {
        self.inner.varies()
    }

    fn has_senders(&self) -> bool {
        self.inner.has_senders()
    }

    fn read_once(&self) -> Option<ReadOnce> {
        let ReadOnce { id, name } = self.inner.read_once()?;
        Some(ReadOnce { id, name: self.words.place(name) })
    }

    fn check_resumable(&self) -> Result<()> {
        self.inner.check_resumable().map_err(|e| self.words.error(e))
    }

    fn begin(&self, options: &OpenOptions) -> Option<Arc<dyn Table>> {
        Some(self.around(self.inner.begin(options)?))
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let (words, outer) = (self.words.clone(), options.shown.clone());
        let shown = ShownName::by(move |name| outer.of(&words.place(name)));
        let options = OpenOptions { shown, ..options.clone() };
        let splits = self.inner.open(projection, &options).map_err(|e| self.words.error(e))?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let wrap = |(number, inner): (usize, Box<dyn Split>)| -> Box<dyn Split> {
            let name = self.words.place(inner.name().to_string());
            names.insert(name.clone(), inner.name().to_string());
            Box::new(WrappedSplit {
                name,
                remark: self.words.remark(number == 0, inner.remark()),
                words: self.words.clone(),
                inner,
            })
        };
        Ok(splits.into_iter().enumerate().map(wrap).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        self.words.describe(self.inner.describe(projection))
    }

    fn splits(&self) -> Result<Vec<SplitSpec>> {
        self.inner.splits().map_err(|e| self.words.error(e))
    }

    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        Some(self.around(self.inner.with_splits(splits)?))
    }

    fn added_splits(&self, is_known: &dyn Fn(&str) -> bool) -> Result<AddedSplits> {
        let is_known = |name: &str| is_known(&self.words.place(name.to_string()));
        self.inner.added_splits(&is_known).map_err(|e| self.words.error(e))
    }

    fn committed(&self, positions: &Positions, ended: &BTreeSet<String>) -> Result<()> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = |shown: &String| names.get(shown).unwrap_or(shown).clone();
        let positions = positions.iter().map(|(name, position)| (own(name), position.clone()));
        let ended = ended.iter().map(own).collect();
        self.inner.committed(&positions.collect(), &ended).map_err(|e| self.words.error(e))
    }
}

struct WrappedSplit<W> {
    inner: Box<dyn Split>,
    name: String,
    remark: Option<String>,
    words: Arc<W>,
}

impl<W: Words + 'static> Split for WrappedSplit<W> {
    fn name(&self) -> &str {
        &self.name
    }

    fn extent(&self) -> Option<u64> {
        self.inner.extent()
    }

    fn sharing(&self) -> Sharing {
        self.inner.sharing()
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn notice(&mut self) -> Option<String> {
        self.inner.notice().map(|notice| self.words.notice(notice))
    }

    fn position(&self) -> Position {
        self.inner.position()
    }

    fn progress(&self) -> Option<Extent> {
        self.inner.progress()
    }

    fn caught_up(&self) -> bool {
        self.inner.caught_up()
    }

    fn is_absent(&self) -> bool {
        self.inner.is_absent()
    }

    fn senders(&self) -> Option<Arc<dyn Senders>> {
        self.inner.senders()
    }

    fn drain(&mut self) -> bool {
        self.inner.drain()
    }

    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        Ok(match self.inner.poll_next(now_us, waker).map_err(|e| self.words.error(e))? {
            SplitPoll::Chunk(inner) => {
                SplitPoll::Chunk(Box::new(WrappedChunk { inner, words: self.words.clone() }))
            }
            other => other,
        })
    }
}

struct WrappedChunk<W> {
    inner: Box<dyn Chunk>,
    words: Arc<W>,
}

impl<W: Words + 'static> Chunk for WrappedChunk<W> {
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        self.inner.decode().map_err(|error| self.words.error(error))
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let words = self.words;
        let mut decoded = self.inner.decode_reporting().map_err(|error| words.error(error))?;
        decoded.first_left_out = decoded
            .first_left_out
            .map(|left_out| LeftOut { place: words.place(left_out.place), ..left_out });
        decoded.notices = decoded.notices.into_iter().map(|line| words.notice(line)).collect();
        decoded.malformed = decoded.malformed.map(|rows| placed(&rows, &*words)).transpose()?;
        decoded.places = decoded
            .places
            .map(|inner| -> Box<dyn Places> { Box::new(WrappedPlaces { inner, words }) });
        Ok(decoded)
    }
}

/// Malformed records, whose places are said in other words.
fn placed(rows: &RecordBatch, words: &impl Words) -> Result<RecordBatch> {
    let mut columns = rows.columns().to_vec();
    if let Ok(place) = rows.schema_ref().index_of(PLACE) {
        let places = columns[place].as_string::<i32>().iter().flatten();
        let places = places.map(|place| words.place(place.to_string()));
        columns[place] = Arc::new(StringArray::from_iter_values(places));
    }
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// A sink with other words.
pub struct WrappedSink<W> {
    inner: Arc<dyn Sink>,
    words: Arc<W>,
}

impl<W: Words> Debug for WrappedSink<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedSink").field("words", &self.words).finish_non_exhaustive()
    }
}

impl<W: Words + 'static> WrappedSink<W> {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Sink>, words: Arc<W>) -> WrappedSink<W> {
        WrappedSink { inner, words }
    }
}

impl<W: Words + 'static> Sink for WrappedSink<W> {
    fn expect(&self, manner: Manner) -> bool {
        self.inner.expect(manner)
    }

    fn follow(&self, interval: u64) {
        self.inner.follow(interval);
    }

    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()> {
        self.inner.open(schema, writers).map_err(|error| self.words.error(error))
    }

    fn keep_in(&self, path: &Path) {
        self.inner.keep_in(path);
    }

    fn listen(&self, tell: Tell) {
        let words = self.words.clone();
        self.inner.listen(Arc::new(move |line| tell(words.notice(line))));
    }

    fn interrupt(&self) -> bool {
        self.inner.interrupt()
    }

    fn promise(&self) -> Option<String> {
        self.inner.promise()
    }

    fn order(&self) -> RowOrder {
        self.inner.order()
    }

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.inner.write(worker, rows, flush).map_err(|error| self.words.error(error))
    }

    fn write_changes(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.inner.write_changes(worker, rows, flush).map_err(|error| self.words.error(error))
    }

    fn commits(&self) -> bool {
        self.inner.commits()
    }

    fn waits_for_checkpoint(&self) -> bool {
        self.inner.waits_for_checkpoint()
    }

    fn replays(&self) -> bool {
        self.inner.replays()
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn finish(&self) -> Result<()> {
        self.inner.finish().map_err(|error| self.words.error(error))
    }

    fn remark(&self) -> Option<String> {
        self.words.remark(true, self.inner.remark().as_deref())
    }

    fn prepare(&self, interval: u64) -> Result<Prepared> {
        self.inner.prepare(interval).map_err(|error| self.words.error(error))
    }

    fn seal(&self, prepared: &mut Prepared) -> Result<()> {
        self.inner.seal(prepared).map_err(|error| self.words.error(error))
    }

    fn commit(&self, prepared: &Prepared) -> Result<()> {
        self.inner.commit(prepared).map_err(|error| self.words.error(error))
    }

    fn mark(&self) -> Result<()> {
        self.inner.mark().map_err(|error| self.words.error(error))
    }
}

#[derive(Debug)]
struct WrappedPlaces<W> {
    inner: Box<dyn Places>,
    words: Arc<W>,
}

impl<W: Words> Places for WrappedPlaces<W> {
    fn place(&self, row: usize) -> String {
        self.words.place(self.inner.place(row))
    }

    fn offset(&self, row: usize) -> Option<u64> {
        self.inner.offset(row)
    }

    fn appended_us(&self) -> Option<&[i64]> {
        self.inner.appended_us()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of::<Self>()
    }
}
