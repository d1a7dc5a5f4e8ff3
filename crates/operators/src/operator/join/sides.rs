//! The sides of a join: what is kept of a row of each.
//!
//! A row is kept as its key and the columns that nothing but their own values can tell: a column
//! that is a key, and whose values a key says exactly, is not kept twice.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use millstream_state::Leaders;

use crate::columns::inputs::Input;
use crate::columns::keys::{KeyCodec, VarColumn, is_variable};
use crate::columns::stored::{self, Stored};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::operator::counted::take_out;
use crate::operator::{BySlice, Leadership};
use crate::passed::{Format, ReadRows};
use crate::plan::{self, Key};
use crate::texts;

/// One side, in executable form.
#[derive(Debug)]
pub(super) struct JoinSide {
    pub(super) codec: KeyCodec,
    pub(super) format: Arc<Format>,
    pub(super) keys: Vec<Key>,
    /// Columns that a row is rebuilt from: the columns of the side; then further key texts.
    pub(super) columns: Vec<Column>,
    /// Number of the side's own columns.
    pub(super) shown: usize,
    /// For each key that is a text, the column of `columns` that it is.
    pub(super) text_keys: Vec<usize>,
    /// Columns of a batch whose values are kept beside the keys.
    values: Vec<(usize, Stored)>,
    /// Whether a row with NULL for a key is of no use: it has no partner, and rows without one are
    /// not given.
    drops_nulls: bool,
    /// Of a temporal join, the column behind these that has the time of the row, or the place of
    /// the version in the order of all.
    pub(super) hidden: Option<usize>,
    /// Columns of a batch whose texts are kept, and whether others are computed.
    pub(super) texts: Vec<usize>,
    pub(super) computes_texts: bool,
    /// Whether a key must be computed, which may fail on rows that do not count.
    computed: bool,
}

/// A column that is made of what is kept.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) data_type: DataType,
    pub(super) kept: Kept,
}

/// Kept values of a temporal join's rows: the event time; of a version, also its place in the order
/// of all records, as comparable bytes.
const HIDDEN: [DataType; 2] = [DataType::Int64, DataType::Binary];

/// Where a column's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Key(usize),
    /// A value beside the keys, by number.
    Value(usize),
}

/// Whether a key of this type says exactly what it was.
fn is_exact(data_type: &DataType) -> bool {
    use DataType::*;
    let normalised = matches!(data_type, Float16 | Float32 | Float64 | Null);
    !normalised && !matches!(data_type, LargeUtf8 | LargeBinary)
}

impl JoinSide {
    /// The sides of a join.
    pub(super) fn both(join: &plan::Join) -> Result<[JoinSide; 2]> {
        let keeps = [join.kind.keeps_left(), join.kind.keeps_right()];
        let drops_nulls = keeps.map(|keeps| !join.nulls_are_equal && !keeps);
        // Keys are compared as they are encoded, so both sides have room for NULL if one has it.
        let nullable = |keys: &[Key; 2]| {
            let mut sides = keys.iter().zip(drops_nulls);
            sides.any(|(key, drops_nulls)| key.nullable && !drops_nulls)
        };
        let keys_of = |side: usize| -> Vec<Key> {
            let key = |keys: &[Key; 2]| Key { nullable: nullable(keys), ..keys[side].clone() };
            join.keys.iter().map(key).collect()
        };
        let windowed = join.window.is_some_and(|window| window.has_columns());
        let windows = join.pair.fields().len().min(if windowed { 3 } else { 0 });
        let fields: Vec<_> = join.pair.fields().iter().skip(windows).collect();
        let (left, right) = fields.split_at(join.left_columns.min(fields.len()));
        let types = [left, right].map(|fields| {
            let column =
                |f: &&Arc<arrow::datatypes::Field>| (f.data_type().clone(), f.is_nullable());
            fields.iter().map(column).collect::<Vec<_>>()
        });
        let mut made = Vec::new();
        for (number, types) in types.into_iter().enumerate() {
            let drops_nulls = drops_nulls[number];
            let hidden = join.as_of.then(|| HIDDEN[number].clone());
            made.push(SideDraft::new(keys_of(number), types, drops_nulls, hidden)?);
        }
        let [left, right] = [0, 1].map(|number| &made[number]);
        let side = |made: &SideDraft| made.forms.clone();
        let forms = [side(left), side(right)];
        let formats = Format::of_sides([(&left.side.0, &forms[0]), (&right.side.0, &forms[1])]);
        let mut sides = made.into_iter().zip(formats).map(|(made, format)| made.with(format));
        match (sides.next(), sides.next()) {
            (Some(left), Some(right)) => Ok([left, right]),
            _ => Err(Error::Internal("a join of one side".into())),
        }
    }

    /// Keys and kept values for the rows of a batch that count, which stand at the positions in
    /// `by_slice` then; `None` if there are none.
    pub(super) fn evaluate(
        &self,
        rows: &RecordBatch,
        by_slice: &mut BySlice,
    ) -> Result<Option<Evaluated>> {
        let counted: usize = by_slice.iter().map(|(_, rows)| rows.len()).sum();
        if counted == 0 {
            return Ok(None);
        }
        texts::begin();
        let taken;
        // A row that is in several windows is taken out for each.
        let all = counted == rows.num_rows() && by_slice.len() == 1;
        let rows = if self.computed && !all {
            taken = take_out(rows, by_slice, counted)?;
            &taken
        } else {
            rows
        };
        let keys = self.keys.iter().map(|key| key.expr.evaluate(rows));
        let keys = keys.collect::<Result<Vec<ArrayRef>>>()?;
        if self.drops_nulls {
            let nulls = keys.iter().map(|key| key.logical_nulls().filter(|n| n.null_count() > 0));
            let nulls = nulls.fold(None, |all, own| NullBuffer::union(all.as_ref(), own.as_ref()));
            if let Some(nulls) = nulls {
                let valid = |row: &u32| nulls.is_valid(*row as usize);
                by_slice.iter_mut().for_each(|(_, rows)| rows.retain(valid));
            }
        }
        let value =
            |(column, stored): &(usize, Stored)| stored::input(*stored, rows.column(*column));
        let arguments = self.values.iter().map(value).collect::<Result<Vec<_>>>()?;
        let column = |column: &Column| match column.kept {
            Kept::Key(key) => keys[key].clone(),
            Kept::Value(value) => rows.column(self.values[value].0).clone(),
        };
        let columns = self.columns.iter().map(column).collect();
        Ok(Some(Evaluated { keys, arguments, columns }))
    }

    /// The kept values of rows that were read.
    pub(super) fn inputs(&self, columns: &[ArrayRef]) -> Result<Vec<Input>> {
        let input = |(number, (_, stored)): (usize, &(usize, Stored))| {
            let kept = self.columns.iter().position(|column| column.kept == Kept::Value(number));
            let column = kept.and_then(|column| columns.get(column));
            let unknown = || Error::Internal("a value without a column".into());
            stored::input(*stored, column.ok_or_else(unknown)?)
        };
        self.values.iter().enumerate().map(input).collect()
    }

    /// The texts among the keys, in columns in the order of [`JoinSide::columns`].
    pub(super) fn texts_in<'c>(&self, columns: &'c [ArrayRef]) -> Vec<VarColumn<'c>> {
        self.text_keys.iter().filter_map(|column| VarColumn::new(&columns[*column])).collect()
    }

    /// Whether the first of some rows is of a key that a worker leads.
    pub(super) fn are_led(&self, rows: &ReadRows<'_>, leadership: &Leadership) -> bool {
        if leadership.leaders == 1 {
            return true;
        }
        let mut hashes = Vec::new();
        self.codec.hash(&rows.keys()[..self.codec.words()], 1, &mut hashes);
        Leaders::even(leadership.leaders).of(hashes[0]) == leadership.me
    }

    /// The first word of a key where some key is NULL has a bit; whether rows with one can be told.
    pub(super) fn has_null_word(&self) -> bool {
        !self.keys.is_empty() && self.codec.null_bit(0).is_some()
    }
}

/// Rows of a batch as a side of a join sees them.
pub(super) struct Evaluated {
    pub(super) keys: Vec<ArrayRef>,
    /// The kept values beside the keys.
    pub(super) arguments: Vec<Input>,
    /// Columns in the order of [`JoinSide::columns`].
    pub(super) columns: Vec<ArrayRef>,
}

/// A side without its format.
struct SideDraft {
    side: (KeyCodec, Vec<Key>),
    columns: Vec<Column>,
    shown: usize,
    text_keys: Vec<usize>,
    values: Vec<(usize, Stored)>,
    forms: Vec<(Stored, bool)>,
    hidden: Option<usize>,
    drops_nulls: bool,
}

impl SideDraft {
    /// Of rows whose columns have these types. A batch has a `hidden` column of that type behind
    /// them.
    fn new(
        keys: Vec<Key>,
        types: Vec<(DataType, bool)>,
        drops_nulls: bool,
        hidden: Option<DataType>,
    ) -> Result<SideDraft> {
        let codec = KeyCodec::new(&keys)?;
        let (mut columns, mut values, mut forms) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (data_type, nullable)) in types.iter().enumerate() {
            let is_key = |key: &Key| {
                matches!(key.expr, Expr::Column(column) if column == number)
                    && key.data_type == *data_type
                    && is_exact(data_type)
            };
            let kept = match keys.iter().position(is_key) {
                Some(key) => Kept::Key(key),
                None => {
                    let stored = Stored::of(data_type);
                    values.push((number, stored));
                    forms.push((stored, *nullable && stored.has_bit()));
                    Kept::Value(forms.len() - 1)
                }
            };
            columns.push(Column { data_type: data_type.clone(), kept });
        }
        let shown = columns.len();
        let mut text_keys = Vec::new();
        for (number, key) in keys.iter().enumerate().filter(|(_, k)| is_variable(&k.data_type)) {
            let kept = Kept::Key(number);
            let known = columns.iter().position(|column| column.kept == kept);
            text_keys.push(known.unwrap_or(columns.len()));
            if known.is_none() {
                columns.push(Column { data_type: key.data_type.clone(), kept });
            }
        }
        let hidden = hidden.map(|data_type| {
            let stored = Stored::of(&data_type);
            values.push((shown, stored));
            forms.push((stored, false));
            columns.push(Column { data_type, kept: Kept::Value(forms.len() - 1) });
            columns.len() - 1
        });
        let side = (codec, keys);
        Ok(SideDraft { side, columns, shown, text_keys, values, forms, hidden, drops_nulls })
    }

    fn with(self, format: Arc<Format>) -> JoinSide {
        let SideDraft { side: (codec, keys), columns, shown, text_keys, values, hidden, .. } = self;
        let mut texts: Vec<usize> = Vec::new();
        let mut computes_texts = false;
        for key in keys.iter().filter(|key| is_variable(&key.data_type)) {
            match key.expr {
                Expr::Column(column) => texts.push(column),
                Expr::Computed(_) => computes_texts = true,
            }
        }
        for (column, _) in values.iter().filter(|(_, stored)| *stored == Stored::Text) {
            match hidden.is_some() && *column == shown {
                true => computes_texts = true,
                false => texts.push(*column),
            }
        }
        let computed = keys.iter().any(|key| !key.expr.is_there());
        let drops_nulls = self.drops_nulls;
        JoinSide {
            codec,
            format,
            keys,
            columns,
            shown,
            text_keys,
            values,
            drops_nulls,
            hidden,
            texts,
            computes_texts,
            computed,
        }
    }
}

/// Rows of a side that have been read.
#[derive(Default, Clone)]
pub(super) struct SideColumns {
    pub(super) rows: usize,
    /// Their keys, row after row.
    pub(super) keys: Vec<u64>,
    /// The hashes of these.
    pub(super) hashes: Vec<u64>,
    /// Columns in the order of [`JoinSide::columns`].
    pub(super) columns: Vec<ArrayRef>,
    /// Positions of the rows in the columns; `None`: the columns have these rows alone.
    pub(super) places: Option<Vec<u32>>,
}

impl SideColumns {
    /// The place of a row in the columns.
    pub(super) fn place(&self, row: usize) -> usize {
        self.places.as_ref().map_or(row, |places| places[row] as usize)
    }

    /// The places of rows in the columns.
    pub(super) fn places_of(&self, rows: &UInt32Array) -> UInt32Array {
        match &self.places {
            None => rows.clone(),
            Some(places) => rows.values().iter().map(|row| places[*row as usize]).collect(),
        }
    }

    /// The texts among the keys.
    pub(super) fn texts(&self, side: &JoinSide) -> Vec<VarColumn<'_>> {
        side.texts_in(&self.columns)
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.get_buffer_memory_size());
        let places = self.places.as_ref().map_or(0, |places| 4 * places.capacity());
        8 * (self.keys.capacity() + self.hashes.capacity()) + columns.sum::<usize>() + places
    }
}
