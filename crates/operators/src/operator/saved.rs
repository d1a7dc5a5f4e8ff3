//! Saved state: batches of rows, made by one operator and restored by others.
//!
//! The state of an operator has *parts*: the rows of an aggregate, the two sides of a join. Every
//! batch of a part has the same columns. Columns for readers come first. Of an aggregate, they may
//! be left out, or be wrong, without harm: restoring reads the columns whose names begin with `$`.
//!
//! Rows of state (of an aggregate) have such columns:
//!
//! | column | type | content |
//! |---|---|---|
//! | `$slice` | `Int64` | the name of the slice ([`SliceId`]) |
//! | `$row0`, `$row1`, … | `Int64` | the words of the row |
//! | `$values` | `Binary` | the words of the arena that this row has added, if rows may use one |
//!
//! The column `$values`, end to end, is the arena of the batch, so a batch is restored whole: it
//! must be neither divided nor joined with another. Checkpoints of format 1 have all words of a
//! row in a column `$row` of type `FixedSizeBinary`, little-endian, and always `$values`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, RecordBatchOptions,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use millstream_state::{Arena, RowGroup, RowLayout, RowsRef};

use crate::error::{Error, Result};
use crate::windowing::SliceId;

/// The names of columns that restoring reads. Rows of every part have a slice.
pub const SLICE: &str = "$slice";
const ROW: &str = "$row";
const VALUES: &str = "$values";

/// A part of an operator's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedPart {
    /// Its name within the state: `rows`, `left`, `right`.
    pub name: String,
    /// Columns of its batches. All types are types of Parquet, given Arrow's schema beside it.
    pub schema: SchemaRef,
}

/// Rows that a checkpoint saves.
#[derive(Debug, Clone)]
pub struct SavedBatch {
    /// The number of their part among [`Program::saved_parts`](super::Program::saved_parts).
    pub part: usize,
    /// The rows, one at least.
    pub rows: RecordBatch,
}

/// A slice that has not changed is saved again after so many cuts, so that files are few.
const CUTS_MAX: u64 = 64;

/// A cut at which state is set aside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cut {
    /// A number above the numbers of earlier cuts; the first is 1.
    pub number: u64,
    /// The last durable cut, whose slices need not be saved again; 0: everything is saved.
    pub durable: u64,
}

/// The first cut that has a slice's rows as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(u64);

impl Since {
    /// A slice has changed since the last cut.
    pub(crate) const CHANGED: Since = Since(u64::MAX);
}

impl Default for Since {
    fn default() -> Since {
        Since::CHANGED
    }
}

impl Cut {
    /// Whether a slice is left out, as the durable cut has its rows. Otherwise this cut has them.
    pub(crate) fn leaves_out(&self, since: &mut Since) -> bool {
        if self.number >= since.0.saturating_add(CUTS_MAX) || since.0 == u64::MAX {
            since.0 = self.number;
        }
        since.0 <= self.durable
    }
}

/// Slices whose rows are not saved again, as an earlier cut has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unchanged {
    /// The number of the earlier cut.
    pub durable: u64,
    /// Numbers of parts, and slices of these.
    pub slices: Vec<(usize, SliceId)>,
}

/// State set aside for a checkpoint. Later changes by the operator do not show here. Another thread
/// makes batches. Saved rows are dropped, and the operator may go on with
/// [shared](super::Operator::thaw) tables.
pub trait SetAside: Send {
    /// The next rows: a bounded number, from `at` on, which moves behind them. `None`: there are no
    /// more.
    fn save(&mut self, at: &mut SavePoint) -> Result<Option<SavedBatch>>;

    /// Bytes of copies.
    fn copied_bytes(&self) -> usize;

    /// Bytes of copies that [`SetAside::copy_shared`] would add.
    fn shared_bytes(&self) -> usize {
        0
    }

    /// Copies shared tables, so that the operator has its tables back before rows are saved.
    fn copy_shared(&mut self) {}

    /// Slices that are left out.
    fn unchanged(&self) -> Unchanged {
        Unchanged::default()
    }
}

/// How far state has been saved, and how large batches may be.
#[derive(Debug, Clone)]
pub struct SavePoint {
    rows_max: usize,
    bytes_max: usize,
    /// A number of the operator's own.
    pub(crate) step: usize,
    /// The next block, and the next row of it.
    pub(crate) block: usize,
    pub(crate) row: usize,
}

impl Default for SavePoint {
    /// Nothing has been saved. Batches have at most 16,384 rows, and mostly at most 8 MiB.
    fn default() -> SavePoint {
        SavePoint::new(1 << 14, 8 << 20)
    }
}

impl SavePoint {
    /// Nothing has been saved. A batch gets no further row once it has so many rows or bytes of
    /// state; a row alone may have more bytes.
    pub fn new(rows_max: usize, bytes_max: usize) -> SavePoint {
        let (rows_max, bytes_max) = (rows_max.max(1), bytes_max.max(1));
        SavePoint { rows_max, bytes_max, step: 0, block: 0, row: 0 }
    }

    /// Whether a batch of so many rows and bytes is full: an empty one never is.
    pub(crate) fn is_full(&self, rows: usize, bytes: usize) -> bool {
        rows >= self.rows_max || rows > 0 && bytes >= self.bytes_max
    }

    /// Goes on with what comes next.
    pub(crate) fn next_step(&mut self) {
        (self.step, self.block, self.row) = (self.step + 1, 0, 0);
    }

    /// Copies rows of a block, from the next on; whether that were all.
    pub(crate) fn copy(&mut self, slice: SliceId, rows: &RowsRef<'_>, to: &mut StateRows) -> bool {
        self.row += to.group.copy(&rows.slice(self.row..rows.len()), self.rows_max, self.bytes_max);
        to.slices.resize(to.group.rows(), slice.word() as i64);
        let is_over = self.row == rows.len();
        if is_over {
            (self.block, self.row) = (self.block + 1, 0);
        }
        is_over
    }
}

/// Rows of state that become a batch.
#[derive(Debug, Default)]
pub(crate) struct StateRows {
    slices: Vec<i64>,
    group: RowGroup,
}

impl StateRows {
    /// The slice of each row.
    pub(crate) fn slices(&self) -> &[i64] {
        &self.slices
    }

    /// The rows.
    pub(crate) fn rows<'s>(&'s self, layout: &'s RowLayout) -> RowsRef<'s> {
        self.group.as_rows(layout)
    }

    /// The batch of a part, with these columns for readers; `None` of no rows.
    pub(crate) fn finish(
        self,
        part: &SavedPart,
        mut columns: Vec<ArrayRef>,
    ) -> Result<Option<RecordBatch>> {
        let count = self.slices.len();
        if count == 0 {
            return Ok(None);
        }
        let (words, arena, ends) = self.group.finish();
        columns.push(Arc::new(Int64Array::from(self.slices)));
        columns.extend(words_columns(&words, words.len() / count));
        if part.schema.column_with_name(VALUES).is_some() {
            let values = Buffer::from(bytes_of(arena.all_words()));
            let mut offsets = vec![0];
            for end in ends {
                offsets.push(i32::try_from(8 * end).map_err(|_| too_large(values.len()))?);
            }
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            columns.push(Arc::new(BinaryArray::try_new(offsets, values, None)?));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(part.schema.clone(), columns, &options)?;
        Ok(Some(batch))
    }
}

fn too_large(bytes: usize) -> Error {
    Error::Io {
        place: "checkpoint".into(),
        message: format!("the state of a key takes {bytes} bytes, and a file can have 2 GiB of it"),
        help: "use a shorter window or gap, or take fewer columns of the records".into(),
    }
}

/// The columns of rows of state, behind these.
pub(crate) fn state_schema(shown: Vec<FieldRef>, layout: &RowLayout) -> SchemaRef {
    let mut hidden = vec![Field::new(SLICE, DataType::Int64, false)];
    hidden.extend(words_fields(ROW, layout.row_words()));
    hidden.extend(layout.uses_arena().then(|| Field::new(VALUES, DataType::Binary, false)));
    schema_of(shown, hidden)
}

/// Columns for readers, then columns for restoring. Names may be equal before, and differ then.
pub(crate) fn schema_of(shown: Vec<FieldRef>, hidden: Vec<Field>) -> SchemaRef {
    let mut fields: Vec<FieldRef> = Vec::new();
    for field in shown {
        let is_known = |name: &String| {
            let names = fields.iter().map(|field| field.name());
            names.chain(hidden.iter().map(Field::name)).any(|known| known == name)
        };
        let numbered = (2..).map(|number| format!("{} {number}", field.name()));
        let mut names = std::iter::once(field.name().clone()).chain(numbered);
        let name = names.find(|name| !is_known(name)).unwrap_or_default();
        fields.push(Arc::new(field.as_ref().clone().with_name(name)));
    }
    fields.extend(hidden.into_iter().map(Arc::new));
    Arc::new(Schema::new(fields))
}

/// Fields of words of rows, so many of each: the name of each ends with its number.
pub(crate) fn words_fields(name: &str, width: usize) -> impl Iterator<Item = Field> {
    (0..width).map(move |word| Field::new(format!("{name}{word}"), DataType::Int64, false))
}

/// Words of rows as columns, so many of each.
pub(crate) fn words_columns(words: &[u64], width: usize) -> impl Iterator<Item = ArrayRef> {
    (0..width).map(move |word| -> ArrayRef {
        let column = words.chunks_exact(width).map(|row| row[word] as i64);
        Arc::new(Int64Array::from_iter_values(column))
    })
}

/// Words in the order of bytes that files have.
fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().map(|word| word.to_le_bytes()).collect::<Vec<_>>().into_flattened()
}

/// The other way round.
fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Whose rows are restored, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restoring<'a> {
    /// The operator.
    pub(crate) name: &'a str,
    pub(crate) part: &'a SavedPart,
}

impl Restoring<'_> {
    /// The error of a batch that cannot be restored.
    pub(crate) fn damaged(&self, message: impl std::fmt::Display) -> Error {
        Error::Io {
            place: format!("saved state of '{}', part '{}'", self.name, self.part.name),
            message: message.to_string(),
            help: "it is damaged, or was saved by another query: go on from another checkpoint"
                .into(),
        }
    }

    /// The column of this name, as it was saved: of its type, without NULL where there are none.
    pub(crate) fn column<'b>(&self, rows: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
        let field = self.part.schema.field_with_name(name)?;
        let lacks = || self.damaged(format_args!("there is no column '{name}'"));
        let column = rows.column_by_name(name).ok_or_else(lacks)?;
        if column.data_type() != field.data_type() {
            let (is, should_be) = (column.data_type(), field.data_type());
            let message = format_args!("column '{name}' has type {is}, not {should_be}");
            return Err(self.damaged(message));
        }
        if !field.is_nullable() && column.logical_null_count() > 0 {
            return Err(self.damaged(format_args!("column '{name}' has NULLs")));
        }
        Ok(column)
    }

    /// The words of rows, so many of each, from columns of this name.
    pub(crate) fn words(&self, rows: &RecordBatch, name: &str, width: usize) -> Result<Vec<u64>> {
        if let Some(column) = rows.column_by_name(name) {
            return self.words_of_format_1(column, name, width);
        }
        if rows.column_by_name(&format!("{name}{width}")).is_some() {
            return Err(self.damaged(format_args!("there is a column '{name}{width}'")));
        }
        let mut words = vec![0; rows.num_rows() * width];
        for (word, field) in words_fields(name, width).enumerate() {
            let column = self.column(rows, field.name())?.as_primitive::<Int64Type>();
            let to = words.chunks_exact_mut(width);
            to.zip(column.values()).for_each(|(to, from)| to[word] = *from as u64);
        }
        Ok(words)
    }

    fn words_of_format_1(&self, column: &ArrayRef, name: &str, width: usize) -> Result<Vec<u64>> {
        let of_width = column.as_fixed_size_binary_opt().filter(|column| {
            column.value_length() as usize == 8 * width && column.null_count() == 0
        });
        let wrong = || self.damaged(format_args!("column '{name}' does not have {width} words"));
        let column = of_width.ok_or_else(wrong)?;
        Ok((0..column.len()).flat_map(|row| words_of(column.value(row))).collect())
    }

    /// Consecutive rows of a slice that counts: from the first to behind the last.
    pub(crate) fn slices(
        &self,
        rows: &RecordBatch,
        counting: Option<&[i64]>,
    ) -> Result<Vec<(SliceId, std::ops::Range<usize>)>> {
        let names = self.column(rows, SLICE)?.as_primitive::<Int64Type>().values();
        let mut first = 0;
        let runs = names.chunk_by(|a, b| a == b).map(|run| {
            first += run.len();
            (run[0], first - run.len()..first)
        });
        let counts = |name: &i64| counting.is_none_or(|names| names.binary_search(name).is_ok());
        let runs = runs.filter(|(name, _)| counts(name));
        Ok(runs.map(|(name, range)| (SliceId::from_word(name as u64), range)).collect())
    }

    /// Words of rows of state, so many of each, and the arena that they refer to.
    pub(crate) fn state_rows(
        &self,
        rows: &RecordBatch,
        layout: &RowLayout,
    ) -> Result<(Vec<u64>, Arena)> {
        let words = self.words(rows, ROW, layout.row_words())?;
        if !layout.uses_arena() {
            return Ok((words, Arena::default()));
        }
        let values = self.column(rows, VALUES)?.as_binary::<i32>();
        let (first, last) = match values.value_offsets() {
            [first, .., last] => (*first as usize, *last as usize),
            _ => (0, 0),
        };
        let arena = Arena::from_words(words_of(&values.value_data()[first..last]));
        let is_whole = RowGroup::check(&arena, rows.num_rows());
        is_whole.map_err(|malformed| self.damaged(malformed.what))?;
        Ok((words, arena))
    }
}
