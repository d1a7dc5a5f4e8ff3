//! The input of aggregates from one batch: the values of their arguments, and which rows take part.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::compute::{cast, prep_null_mask_filter};
use arrow::datatypes::*;

use millstream_state::{ValueKind, float_to_ordered};

use crate::columns::elements::{self, Elements, Made};
pub(crate) use crate::columns::order::TIMES;
use crate::columns::order::order_of;
pub(crate) use crate::columns::payload::Packed;
use crate::columns::value::Value;
use crate::dictionary;
use crate::error::{Error, Result};
use crate::expr::Expr;

/// Number of the column of event times, which is not in the batch.
pub(crate) const TIMES_COLUMN: usize = usize::MAX;

/// Elements of more bytes than this are made at once, where an error for too many leaves state as
/// it is. A fraction of what Arrow's offsets count.
const LATE_BYTES_MAX: usize = 256 << 20;

/// An argument's values for one batch, converted for the argument's value.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    None,
    Signed(ScalarBuffer<i64>),
    Unsigned(ScalarBuffer<u64>),
    Float(ScalarBuffer<f64>),
    Wide(ScalarBuffer<i128>),
    Bytes(ArrayRef),
    Elements(Arc<Elements>),
}

/// Input of a value from a batch.
#[derive(Debug, Clone)]
pub struct Input {
    pub(crate) values: Values,
    /// Which rows take part; `None`: all.
    mask: Option<BooleanBuffer>,
}

/// The column of a batch that says of each row what is known of its time ([`TIMES`]).
pub(crate) fn times_in(batch: &RecordBatch) -> Result<ArrayRef> {
    let times = batch.column_by_name(TIMES).cloned();
    times.ok_or_else(|| Error::Internal("a batch without times".into()))
}

/// Columns computed from one batch. Several aggregates may be over the same.
#[derive(Default)]
pub(crate) struct Columns {
    computed: Vec<(*const (), ArrayRef)>,
    /// Rows that pass filters.
    masks: Vec<(*const (), BooleanBuffer)>,
}

impl Columns {
    fn evaluate(&mut self, expr: &Expr, batch: &RecordBatch) -> Result<ArrayRef> {
        let computed = match expr {
            Expr::Computed(computed) => computed,
            Expr::Column(TIMES_COLUMN) => return times_in(batch),
            Expr::Column(_) => return expr.evaluate(batch),
        };
        let key = Arc::as_ptr(computed).cast();
        if let Some((_, column)) = self.computed.iter().find(|(known, _)| *known == key) {
            return Ok(column.clone());
        }
        let column = expr.evaluate(batch)?;
        self.computed.push((key, column.clone()));
        Ok(column)
    }

    /// The rows that pass a filter.
    fn mask(&mut self, filter: &Expr, batch: &RecordBatch) -> Result<BooleanBuffer> {
        let Expr::Computed(computed) = filter else { return true_mask(filter, batch) };
        let key = Arc::as_ptr(computed).cast();
        if let Some((_, mask)) = self.masks.iter().find(|(known, _)| *known == key) {
            return Ok(mask.clone());
        }
        let mask = true_mask(filter, batch)?;
        self.masks.push((key, mask.clone()));
        Ok(mask)
    }
}

impl Input {
    /// An input of `values`, of which the valid ones take part; `None`: all.
    pub(crate) fn of(values: Values, valid: Option<BooleanBuffer>) -> Input {
        Input { values, mask: valid }
    }

    pub(crate) fn new(value: &Value, batch: &RecordBatch, columns: &mut Columns) -> Result<Input> {
        let mut mask = None;
        if let Some(filter) = &value.filter {
            mask = Some(columns.mask(filter, batch)?);
        }
        let mut values = Values::None;
        if let Some(argument) = &value.argument {
            let array = columns.evaluate(argument, batch)?;
            let array = match value.made {
                Made::Element(form) => {
                    let elements = Elements::new(form, &array, batch)?;
                    let few = array.get_array_memory_size() < LATE_BYTES_MAX;
                    if matches!(value.kind, ValueKind::Best(_)) && few {
                        let valid = elements.valid().map(|nulls| nulls.inner().clone());
                        let mask =
                            mask.map(|mask| valid.as_ref().map_or(mask.clone(), |v| &mask & v));
                        return Ok(Input {
                            mask: mask.or(valid),
                            values: Values::Elements(Arc::new(elements)),
                        });
                    }
                    elements.column(None)?
                }
                Made::Row => elements::rows(&array)?,
                Made::Drawn => elements::drawn(&array, order_of(batch)?)?,
                _ => array,
            };
            if let Some(nulls) = array.logical_nulls().filter(|n| n.null_count() > 0) {
                mask = Some(mask.map_or(nulls.inner().clone(), |m| &m & nulls.inner()));
            }
            if value.kind != ValueKind::Count {
                values = Values::new(value, &array)?;
            }
        }
        Ok(Input { values, mask })
    }
}

/// The inputs with made elements, of some rows, which ascend, or of all rows; `None` without
/// elements to be made.
pub(crate) fn made(inputs: &[Input], rows: Option<&[u32]>) -> Result<Option<Vec<Input>>> {
    let is_late = |input: &Input| matches!(input.values, Values::Elements(_));
    if !inputs.iter().any(is_late) {
        return Ok(None);
    }
    let made = |input: &Input| match &input.values {
        Values::Elements(elements) => {
            let values = Values::Bytes(elements.column(rows)?);
            Ok(Input { values, mask: input.mask.clone() })
        }
        _ => Ok(input.clone()),
    };
    inputs.iter().map(made).collect::<Result<_>>().map(Some)
}

/// Input of a value, either in a batch ([`Input`]) or in rows received from another worker.
pub(crate) trait Feed {
    /// Whether every row takes part.
    fn takes_all(&self) -> bool;
    /// Whether the row at a position takes part.
    fn takes(&self, row: u32) -> bool;
    /// The values.
    fn view(&self) -> View<'_>;

    /// The positions of the block that take part.
    fn pick<'p>(&self, rows: &[u32], picks: &'p mut Vec<u32>) -> Option<&'p [u32]> {
        if self.takes_all() {
            return None;
        }
        picks.clear();
        for (k, row) in rows.iter().enumerate() {
            if self.takes(*row) {
                picks.push(k as u32);
            }
        }
        Some(picks)
    }
}

/// An argument's values, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum View<'a> {
    None,
    Signed(&'a [i64]),
    Unsigned(&'a [u64]),
    Float(&'a [f64]),
    Wide(&'a [i128]),
    /// As `Wide`, the lower half first.
    Pairs(&'a [[u64; 2]]),
    Column(&'a ArrayRef),
    Packed(Packed<'a>),
    Elements(&'a Elements),
}

impl Feed for Input {
    fn takes_all(&self) -> bool {
        self.mask.is_none()
    }

    #[inline]
    fn takes(&self, row: u32) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.value(row as usize))
    }

    fn view(&self) -> View<'_> {
        match &self.values {
            Values::None => View::None,
            Values::Signed(values) => View::Signed(values),
            Values::Unsigned(values) => View::Unsigned(values),
            Values::Float(values) => View::Float(values),
            Values::Wide(values) => View::Wide(values),
            Values::Bytes(column) => View::Column(column),
            Values::Elements(elements) => View::Elements(elements),
        }
    }
}

/// For which of a batch's records a condition holds: NULL is false.
pub(crate) fn true_mask(condition: &Expr, records: &RecordBatch) -> Result<BooleanBuffer> {
    if records.num_rows() == 0 {
        // Constants may fail, too, and nobody asks for them.
        return Ok(BooleanBuffer::new_unset(0));
    }
    let array = dictionary::evaluate(condition, records)?;
    let Some(booleans) = array.as_boolean_opt() else {
        if *array.data_type() == DataType::Null {
            return Ok(BooleanBuffer::new_unset(array.len()));
        }
        return Err(Error::Internal(format!("a filter of type {}", array.data_type())));
    };
    let mask = match booleans.null_count() {
        0 => booleans.values().clone(),
        _ => prep_null_mask_filter(booleans).values().clone(),
    };
    Ok(mask)
}

impl Values {
    fn new(value: &Value, array: &ArrayRef) -> Result<Values> {
        use ValueKind::*;
        let data_type = &value.argument_type;
        let as_type = |to: DataType| -> Result<ArrayRef> {
            if *array.data_type() == to { Ok(array.clone()) } else { Ok(cast(array, &to)?) }
        };
        let signed = |array: ArrayRef| array.as_primitive::<Int64Type>().values().clone();
        Ok(match value.kind {
            Count => Values::None,
            SumInt if *data_type == DataType::UInt64 => {
                Values::Unsigned(array.as_primitive::<UInt64Type>().values().clone())
            }
            SumInt => Values::Signed(signed(as_type(DataType::Int64)?)),
            SumFloat => {
                let array = as_type(DataType::Float64)?;
                Values::Float(array.as_primitive::<Float64Type>().values().clone())
            }
            SumDecimal | Min128 | Max128 => {
                Values::Wide(array.as_primitive::<Decimal128Type>().values().clone())
            }
            MinBytes | MaxBytes | List | Chain | Set | Best(_) | Frequent => {
                Values::Bytes(array.clone())
            }
            Registers => Values::Unsigned(elements::hashes(array)?),
            Histogram => Values::Unsigned(elements::buckets(array)?),
            BitAnd | BitOr | BitXor if *data_type == DataType::UInt64 => {
                let values = array.as_primitive::<UInt64Type>().values();
                Values::Signed(ScalarBuffer::new(values.inner().clone(), 0, values.len()))
            }
            BitAnd | BitOr | BitXor => Values::Signed(signed(as_type(DataType::Int64)?)),
            Min64 | Max64 => Values::Signed(match data_type {
                DataType::UInt64 => {
                    let values = array.as_primitive::<UInt64Type>().values();
                    values.iter().map(|v| (v ^ 1 << 63) as i64).collect()
                }
                DataType::Float32 | DataType::Float64 => {
                    let array = as_type(DataType::Float64)?;
                    let values = array.as_primitive::<Float64Type>().values();
                    values.iter().map(|v| float_to_ordered(*v)).collect()
                }
                DataType::Date32 | DataType::Time32(_) => {
                    signed(cast(&as_type(DataType::Int32)?, &DataType::Int64)?)
                }
                _ => signed(as_type(DataType::Int64)?),
            }),
        })
    }
}
