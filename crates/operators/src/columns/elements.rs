//! Conversion of arguments for values of variable size: to a hash, the number of a bucket, a value
//! with a number drawn for the record, the values of a row, or an *element*.
//!
//! An element is bytes that compare like the order in which an aggregate wants its records: a sort
//! key, if there is one, in the form of [`arrow::row`]; the record's place in the order of all
//! records ([`order_of`]); and then the values that the aggregate returns ([`payload`]), with their
//! length in the last four bytes. So `FIRST_VALUE`, `LAST_VALUE`, `MIN_BY` and `MAX_BY` are the
//! least or the greatest of byte strings; a list is sorted by its elements alone, and a set keeps
//! the least of all elements with the same returned values.

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, RecordBatch};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::row::{RowConverter, Rows, SortField};

use millstream_contract::floats::one_form;
use millstream_state::{
    Block, ValueKind, ValueSlot, bucket_of, hash_bytes, hash_each_word, hash_word,
};

use crate::columns::order::{of_heads, order_of, values_in_order};
use crate::columns::payload::{self, Encoder, Packed};
use crate::error::{Error, Result};
use crate::plan::{AggregateFunction, Directions, Ranking};

/// Conversion of an argument for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Made {
    AsIs,
    Hash,
    Bucket,
    Element(Element),
    /// The values of a row of arguments, one after the other ([`payload`]).
    Row,
    /// A number drawn for the record, and its value.
    Drawn,
}

/// Form of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Element {
    /// The argument is a row: so many of its fields are the sort key, the others are given back.
    /// `None`: the argument is no row of arguments, and is given back itself.
    keys: Option<usize>,
    directions: Directions,
    /// A record whose first argument is NULL makes none.
    skips_nulls: bool,
    /// The length of the sort key comes first.
    measured: bool,
    /// Of equal sort keys, the last record comes first.
    last_first: bool,
    /// Values count once; all NaNs are equal, and both zeros.
    distinct: bool,
}

impl Made {
    pub(crate) fn of(function: AggregateFunction) -> Made {
        use AggregateFunction::*;
        let ascending = Directions::default();
        let element = |keys, directions, skips_nulls, measured| {
            let distinct = matches!(
                function,
                ArrayAgg { distinct: true, .. } | ListAgg { distinct: true, .. }
            );
            let last_first = matches!(function, Best(best) if best.keeps_last && best.limit == 1);
            Made::Element(Element { keys, directions, skips_nulls, measured, last_first, distinct })
        };
        match function {
            First { nulls } | Last { nulls } | ArrayAgg { nulls, .. } => {
                element(None, ascending, !nulls, false)
            }
            ListAgg { separated: false, .. } => element(None, ascending, true, false),
            ListAgg { separated: true, .. } => element(Some(0), ascending, true, false),
            MinBy => element(Some(1), ascending, true, false),
            MaxBy => element(Some(1), Directions { descending: 1, ..ascending }, true, false),
            Best(best) if best.ranking == Ranking::All => Made::Row,
            Best(best) => element(Some(best.keys as usize), best.directions, false, true),
            ApproxCountDistinct => Made::Hash,
            ApproxPercentile(_) => Made::Bucket,
            ApproxTopK(_) => Made::Drawn,
            _ => Made::AsIs,
        }
    }

    /// Conversion for a value of this kind, as part of a function.
    pub(super) fn of_value(kind: ValueKind, function: AggregateFunction) -> Made {
        if kind == ValueKind::Count { Made::AsIs } else { Made::of(function) }
    }

    /// Whether it needs to know where records stand in the order of all.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(self, Made::Element(_) | Made::Drawn)
    }

    /// Whether values are made into byte strings.
    pub(crate) fn encodes(self) -> bool {
        self.is_ordered() || self == Made::Row
    }

    /// Whether records may be left out that the argument itself does not leave out.
    pub(crate) fn may_skip(self) -> bool {
        matches!(self, Made::Element(Element { keys: Some(_), skips_nulls: true, .. }))
    }

    /// Whether NULL is a value like others.
    pub(crate) fn takes_nulls(self) -> bool {
        matches!(self, Made::Element(Element { skips_nulls: false, .. }) | Made::Row)
    }
}

/// Hashes of the values of a column. Values that are equal have the same.
pub(crate) fn hashes(column: &ArrayRef) -> Result<ScalarBuffer<u64>> {
    let column = one_form(column);
    Ok(match column.data_type() {
        DataType::Int64 => {
            let values = column.as_primitive::<Int64Type>().values();
            let words = ScalarBuffer::<u64>::new(values.inner().clone(), 0, values.len());
            let mut hashes = vec![0; words.len()];
            hash_each_word(&words, &mut hashes);
            hashes.into()
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>().values();
            values.iter().map(|v| hash_word(v.to_bits())).collect()
        }
        _ => {
            let (encoder, mut bytes) = (Encoder::new(&column)?, Vec::new());
            let hash = |row| {
                bytes.clear();
                encoder.put(row, &mut bytes);
                hash_bytes(&bytes)
            };
            (0..column.len()).map(hash).collect()
        }
    })
}

/// The buckets of the values of a column of numbers.
pub(crate) fn buckets(column: &ArrayRef) -> Result<ScalarBuffer<u64>> {
    let column = cast(column, &DataType::Float64)?;
    let values = column.as_primitive::<Float64Type>().values();
    Ok(values.iter().map(|value| bucket_of(*value).into()).collect())
}

/// Room for elements before their lengths are known.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// Elements of a batch's records, which are made when they are wanted.
#[derive(Debug)]
pub(crate) struct Elements {
    form: Element,
    records: usize,
    /// Sort keys, if elements have any.
    keys: Option<Rows>,
    values: Vec<ArrayRef>,
    order: Order,
    /// Records that make an element; `None`: all.
    valid: Option<NullBuffer>,
}

/// Places of records in the order of all.
#[derive(Debug)]
enum Order {
    Whole(BinaryArray),
    /// Beginnings of the order, and the columns that decide between equal beginnings.
    Heads(BinaryArray, Vec<ArrayRef>),
}

/// Elements of some records, consecutively.
#[derive(Debug)]
pub(crate) struct PackedElements {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl PackedElements {
    /// The elements, and where each ends, from 0 on.
    pub(crate) fn packed(&self) -> Packed<'_> {
        Packed { offsets: &self.ends, bytes: &self.bytes }
    }
}

impl Elements {
    pub(crate) fn new(form: Element, argument: &ArrayRef, batch: &RecordBatch) -> Result<Elements> {
        let columns = match (form.keys, argument.as_struct_opt()) {
            (None, _) => vec![argument.clone()],
            (Some(_), Some(row)) => row.columns().to_vec(),
            (Some(_), None) => return Err(Error::Internal("arguments that are no row".into())),
        };
        let (keys, values) = columns.split_at(form.keys.unwrap_or(0).min(columns.len()));
        let first = columns.first().filter(|_| form.skips_nulls);
        let skipped = first.and_then(|column| column.logical_nulls());
        // A row of arguments is NULL where a filter has left it out.
        let left_out = form.keys.and_then(|_| argument.logical_nulls());
        let valid = NullBuffer::union(skipped.as_ref(), left_out.as_ref());
        let keys = match keys.is_empty() {
            true => None,
            false => Some(comparable(keys, form.directions)?),
        };
        let values = match form.distinct {
            true => values.iter().map(one_form).collect(),
            false => values.to_vec(),
        };
        let order = match of_heads(batch) {
            Some((heads, columns)) => Order::Heads(heads.clone(), columns),
            None => Order::Whole(order_of(batch)?.clone()),
        };
        let valid = valid.filter(|nulls| nulls.null_count() > 0);
        Ok(Elements { form, records: argument.len(), keys, values, order, valid })
    }

    /// Records that make an element; `None`: all.
    pub(crate) fn valid(&self) -> Option<&NullBuffer> {
        self.valid.as_ref()
    }

    /// The sort key of a record.
    #[inline]
    pub(crate) fn sort_key(&self, record: usize) -> &[u8] {
        // The data of a row live as long as the rows.
        self.keys.as_ref().map_or(&[], |keys| keys.row(record).data())
    }

    /// The elements of some records.
    pub(crate) fn make(&self, records: &[u32]) -> Result<PackedElements> {
        let encoders = self.values.iter().map(Encoder::new).collect::<Result<Vec<_>>>()?;
        let (heads, values) = match &self.order {
            Order::Whole(order) => (order, None),
            Order::Heads(heads, columns) => (heads, values_in_order(columns, Some(records))?),
        };
        let mut made =
            PackedElements { bytes: Vec::new(), ends: Vec::with_capacity(records.len() + 1) };
        made.ends.push(0);
        for (at, record) in records.iter().enumerate() {
            let (record, bytes) = (*record as usize, &mut made.bytes);
            let key = self.sort_key(record);
            if self.form.measured {
                bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            }
            bytes.extend_from_slice(key);
            let start = bytes.len();
            bytes.extend_from_slice(heads.value(record));
            if let Some(values) = &values {
                bytes.extend_from_slice(values.row(at).data());
            }
            if self.form.last_first {
                bytes[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
            let start = bytes.len();
            encoders.iter().for_each(|encoder| encoder.put(record, bytes));
            let length = (bytes.len() - start) as u32;
            bytes.extend_from_slice(&length.to_le_bytes());
            if at == 0 {
                // Others are about as long, unless this one is very long.
                bytes.reserve((records.len() * bytes.len()).min(ROOM_BYTES_MAX));
            }
            made.ends.push(made.bytes.len());
        }
        Ok(made)
    }

    /// Makes elements of the rows of a block, as far as they may be among the best, and takes them
    /// in.
    pub(crate) fn enter(
        &self,
        slot: ValueSlot,
        rows: &[u32],
        picks: Option<&[u32]>,
        block: &mut Block<'_>,
    ) -> Result<()> {
        let mut entering = Vec::new();
        block.entering(slot, picks, |k| self.sort_key(rows[k] as usize), &mut entering);
        if entering.is_empty() {
            return Ok(());
        }
        let records: Vec<u32> = entering.iter().map(|k| rows[*k as usize]).collect();
        let (made, next) = (self.make(&records)?, Cell::new(0));
        // The block takes the elements in their order.
        block.blob_bytes(slot, Some(&entering), |_| {
            made.packed().bytes(next.replace(next.get() + 1))
        });
        Ok(())
    }

    /// A column of the elements of all records, or of `records`, which ascend. Other records have
    /// empty elements.
    pub(crate) fn column(&self, records: Option<&[u32]>) -> Result<ArrayRef> {
        let all: Vec<u32>;
        let records = match (records, &self.valid) {
            (Some(records), _) => records,
            (None, valid) => {
                let makes = |row: &u32| valid.as_ref().is_none_or(|v| v.is_valid(*row as usize));
                all = (0..self.records as u32).filter(makes).collect();
                &all
            }
        };
        let made = self.make(records)?;
        let mut ends = Vec::with_capacity(self.records + 1);
        for (record, end) in records.iter().zip(&made.ends) {
            // The element before ends where this one begins.
            ends.resize(*record as usize + 1, payload::offset(*end)?);
        }
        ends.resize(self.records + 1, payload::offset(made.bytes.len())?);
        let ends = OffsetBuffer::new(ends.into());
        Ok(Arc::new(BinaryArray::try_new(ends, made.bytes.into(), self.valid.clone())?))
    }
}

/// The values of rows of arguments, NULL where a filter has left the row out.
pub(crate) fn rows(argument: &ArrayRef) -> Result<ArrayRef> {
    let row = argument.as_struct_opt();
    let row = row.ok_or_else(|| Error::Internal("arguments that are no row".into()))?;
    let encoders = row.columns().iter().map(Encoder::new).collect::<Result<Vec<_>>>()?;
    let nulls = argument.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(argument.len() + 1));
    ends.push(0);
    for at in 0..argument.len() {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at)) {
            encoders.iter().for_each(|encoder| encoder.put(at, &mut bytes));
        }
        ends.push(payload::offset(bytes.len())?);
    }
    Ok(Arc::new(BinaryArray::try_new(OffsetBuffer::new(ends.into()), bytes.into(), nulls)?))
}

/// The values of a column, each behind a random number that depends on the record alone, wherever
/// it is read; NULL where it is NULL.
pub(crate) fn drawn(column: &ArrayRef, order: &BinaryArray) -> Result<ArrayRef> {
    let column = one_form(column);
    let (encoder, nulls) = (Encoder::new(&column)?, column.logical_nulls());
    let (mut made, mut bytes) = (BinaryBuilder::new(), Vec::new());
    let mut total = 0;
    for row in 0..column.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            made.append_null();
            continue;
        }
        bytes.clear();
        bytes.extend_from_slice(&hash_bytes(order.value(row)).to_le_bytes());
        encoder.put(row, &mut bytes);
        total += bytes.len();
        payload::offset(total)?;
        made.append_value(&bytes);
    }
    Ok(Arc::new(made.finish()))
}

/// Sort keys as bytes in the keys' order.
pub(crate) fn comparable(keys: &[ArrayRef], directions: Directions) -> Result<Rows> {
    let field = |(at, key): (usize, &ArrayRef)| {
        let (descending, nulls_first) = directions.of(at);
        let options = SortOptions { descending, nulls_first };
        SortField::new_with_options(key.data_type().clone(), options)
    };
    let converter = RowConverter::new(keys.iter().enumerate().map(field).collect())?;
    let keys: Vec<ArrayRef> = keys.iter().map(one_form).collect();
    Ok(converter.convert_columns(&keys)?)
}

/// Returned values of an element.
pub(crate) fn payload_of(element: &[u8]) -> Result<&[u8]> {
    let damaged = || Error::Internal("a damaged element".into());
    let (rest, length) = element.split_last_chunk().ok_or_else(damaged)?;
    let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize);
    Ok(&rest[start.ok_or_else(damaged)?..])
}
