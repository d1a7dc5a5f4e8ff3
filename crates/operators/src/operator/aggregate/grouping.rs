//! Grouping: which records of a batch count, in which slice, and what their keys and arguments are
//! (paper, section 5.2).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};

use millstream_state::{ChunkPool, Keys, NoVarKeys, RowLayout, Scratch, Table, hash_words};

use crate::columns::aggregates::{Aggregates, TIMES_COLUMN};
use crate::columns::inputs::{Input, times_in, true_mask};
use crate::columns::keys::{KeyCodec, is_variable};
use crate::columns::order::{Ordering, of_heads};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::failing::first_failing;
use crate::operator::aggregate::timed::{Timed, with_times};
use crate::operator::counted::{Buffers, assign_rows, take_out, within};
use crate::operator::record_order::with_order;
use crate::operator::{Batch, BySlice, Passing};
use crate::plan::{Aggregate, Key, Window};
use crate::reads::Reads;
use crate::texts;
use crate::windowing::{Bounds, Packing, Windowing};

/// Grouping and aggregation in executable form.
#[derive(Debug)]
pub struct Grouping {
    /// The codec of keys.
    pub codec: KeyCodec,
    /// The aggregates.
    pub aggregates: Aggregates,
    /// The layout of rows of state.
    pub layout: Arc<RowLayout>,
    pub(crate) windowing: Windowing,
    /// [`Aggregate::has_empty_group`].
    pub(crate) has_empty_group: bool,
    pub(super) keys: Vec<Key>,
    /// Where slices pack windows or parts of them, the word of a row that says of which it is.
    pub(super) window_word: Option<usize>,
    /// Columns of a batch whose texts state keeps as they are, and whether others are computed.
    pub(crate) texts: Vec<usize>,
    pub(crate) computes_texts: bool,
    /// The order of rows that arguments need.
    pub(super) order: Ordering,
    /// Whether keys or arguments must be computed, for which rows that do not count are taken out
    /// first: an expression may fail on them.
    computed: bool,
    /// Columns and fields that keys and arguments read; `None`: unknown.
    reads: Option<Reads>,
    /// Of sessions: which values are the times of the first and the last record.
    pub(super) session_times: Option<[usize; 2]>,
}

/// Rows of a batch that update one slice.
#[derive(Debug)]
pub struct Selected<'a> {
    /// Columns of keys.
    pub keys: &'a [ArrayRef],
    /// Arguments of the aggregates.
    pub arguments: &'a [Input],
    /// Positions in `keys` and `arguments`.
    pub rows: &'a [u32],
}

impl Grouping {
    /// The grouping of an aggregation whose windows wait so long for late records, microseconds.
    pub fn new(aggregate: &Aggregate, lateness_us: i64) -> Result<Grouping> {
        let windowing = Windowing::new(aggregate.window, lateness_us);
        let windowing = windowing.packed(aggregate.windows_in_slice);
        let mut codec_keys = aggregate.keys.clone();
        let packing = windowing.packing();
        match packing {
            Packing::Nothing => {}
            Packing::Windows => codec_keys.insert(0, window_key()),
            Packing::Parts => codec_keys.push(window_key()),
        }
        let mut codec = KeyCodec::new(&codec_keys)?;
        let window_word = match packing {
            Packing::Nothing => None,
            Packing::Windows => Some(codec.word_of(0)),
            Packing::Parts => {
                // Who leads a key has it of all panes.
                codec = codec.led_by(aggregate.keys.len());
                Some(codec.word_of(aggregate.keys.len()))
            }
        };
        let has_empty_group = aggregate.has_empty_group();
        let mut aggregates = Aggregates::new(&aggregate.aggregates, has_empty_group)?;
        let session_times = match aggregate.window {
            Some(Window::Session(session)) => {
                // Whoever says how long a session is has all of its rows.
                codec = codec.led_by(session.partition);
                Some(aggregates.add_times())
            }
            _ => None,
        };
        let values = aggregates.layout_values();
        let mut layout = RowLayout::new(codec.words(), codec.var_words(), &values);
        if packing == Packing::Parts && layout.row_words() == 1 {
            // Without the word of its part, a row is still something.
            layout = layout.with_note();
        }
        let layout = Arc::new(layout.led_by(codec.prefix()));
        let keys = aggregate.keys.clone();
        let computed = aggregates.is_computed() || keys.iter().any(|k| !k.expr.is_there());
        let key_texts = keys.iter().filter(|key| is_variable(&key.data_type));
        let kept: Vec<&Expr> = key_texts.map(|key| &key.expr).chain(aggregates.texts()).collect();
        let column = |expr: &&Expr| match expr {
            Expr::Column(index) => Some(*index),
            Expr::Computed(_) => None,
        };
        let mut texts: Vec<usize> = kept.iter().filter_map(column).collect();
        let computes_texts = texts.len() < kept.len();
        // Of a row of arguments, what it is made of.
        texts.extend(aggregates.encoded().filter_map(Expr::columns).flatten());
        let calls = aggregate.aggregates.iter();
        let read = calls.flat_map(|call| {
            call.arguments.iter().map(|argument| &argument.expr).chain(&call.filter)
        });
        Ok(Grouping {
            order: aggregates.order(),
            window_word,
            codec,
            aggregates,
            layout,
            windowing,
            has_empty_group,
            keys,
            texts,
            computes_texts,
            computed,
            reads: Expr::reads(aggregate.keys.iter().map(|key| &key.expr).chain(read)),
            session_times,
        })
    }

    /// Of what part each row is, where slices pack parts.
    fn parts(&self, records: &RecordBatch) -> Result<ArrayRef> {
        let times = times_in(records)?;
        if self.session_times.is_none() {
            return Ok(times);
        }
        let mut part = Bounds::NOTHING;
        let starts = times.as_primitive::<Int64Type>().values().iter().map(|time| {
            if !part.contains(*time) {
                part = self.windowing.slice_of(*time);
            }
            part.start
        });
        Ok(Arc::new(Int64Array::from_iter_values(starts)))
    }

    /// State of the group of no columns that has met no record.
    pub(super) fn empty_table(&self) -> Table {
        let mut table = Table::new(self.layout.clone());
        let (mut pool, mut scratch) =
            (ChunkPool::new(self.layout.row_words(), 0, None), Scratch::default());
        let keys = Keys { hashes: &[hash_words(&[])], ahead: &[], words: &[], vars: NoVarKeys };
        table.update(&keys, &mut pool, &mut scratch);
        table
    }

    /// Where the keys of the query stand among those of a row.
    pub fn own_keys(&self) -> Range<usize> {
        let first = usize::from(self.windowing.packing() == Packing::Windows);
        first..first + self.keys.len()
    }

    /// The first row with which evaluating what it needs fails, and the error; `None` if it fails
    /// with no row alone.
    #[cold]
    pub(crate) fn first_failing(&self, batch: &Batch<'_>) -> Option<(usize, Error)> {
        let rows = batch.columns();
        if let Some(filter) = batch.filter {
            let alone = |range: Range<usize>| {
                true_mask(filter, &rows.slice(range.start, range.len())).map(|_| ())
            };
            if alone(0..rows.num_rows()).is_err() {
                return first_failing(rows.num_rows(), alone);
            }
        }
        let mut by_slice = BySlice::new();
        self.assign(batch, &mut Buffers::default(), &mut by_slice).ok()?;
        let rows = self.columns(batch).ok()?;
        first_failing(rows.num_rows(), |range| {
            self.evaluate(&rows, &mut within(&by_slice, &range)).map(|_| ())
        })
    }

    /// A batch's columns, and what is computed of where its rows stand in time and in the order of
    /// all, as far as it is wanted.
    pub(crate) fn columns<'b>(&self, batch: &'b Batch<'_>) -> Result<Cow<'b, RecordBatch>> {
        let wanted = match self.session_times {
            Some(_) => Timed::Time,
            None if self.window_word.is_some() => Timed::WindowStart,
            None => Timed::Nothing,
        };
        let rows = with_times(batch, &self.windowing, wanted)?;
        with_order(rows, batch, self.order)
    }

    /// Finds the rows of a batch that pass a filter and count, slice by slice; see
    /// [`assign_rows`].
    pub(crate) fn assign(
        &self,
        batch: &Batch<'_>,
        buffers: &mut Buffers,
        by_slice: &mut BySlice,
    ) -> Result<Passing> {
        assign_rows(&self.windowing, batch, buffers, by_slice)
    }

    /// Keys and arguments for the rows of a batch that count, which stand at the positions in
    /// `by_slice` then; `None` if there are none.
    pub(crate) fn evaluate(
        &self,
        records: &RecordBatch,
        by_slice: &mut BySlice,
    ) -> Result<Option<(Vec<ArrayRef>, Vec<Input>)>> {
        let counted: usize = by_slice.iter().map(|(_, rows)| rows.len()).sum();
        if counted == 0 {
            return Ok(None);
        }
        texts::begin();
        let taken;
        let few = self.order != Ordering::Nothing && 4 * counted < records.num_rows();
        let records = if few || self.computed && counted < records.num_rows() {
            // The order of fired rows goes by all columns in the end.
            let reads = self.reads.as_ref().filter(|_| of_heads(records).is_none());
            let read = reads.map(|reads| reads.of(records)).transpose()?;
            taken = take_out(read.as_ref().unwrap_or(records), by_slice, counted)?;
            &taken
        } else {
            records
        };
        // For all slices at once: there may be many, with few rows each.
        let mut keys = Vec::with_capacity(self.keys.len() + 1);
        for key in &self.keys {
            keys.push(key.expr.evaluate(records)?);
        }
        match self.windowing.packing() {
            Packing::Nothing => {}
            Packing::Windows => keys.insert(0, times_in(records)?),
            Packing::Parts => keys.push(self.parts(records)?),
        }
        Ok(Some((keys, self.aggregates.inputs(records)?)))
    }
}

/// When a row's window begins, which comes before the other keys where slices pack windows, or the
/// part, which comes after them.
fn window_key() -> Key {
    let expr = Expr::Column(TIMES_COLUMN);
    Key { name: "window_start".into(), expr, data_type: DataType::Int64, nullable: false }
}
