//! Aggregates: from SQL's functions to mergeable values, and from merged values to result columns.
//!
//! Calls share values: `AVG(x)`, `SUM(x)` and `COUNT(x)` over the same argument keep one sum and
//! one count.

mod so_far;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringBuilder, UInt64Array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::*;

use millstream_state::{
    BLOCK_ROWS, Block, RowLayout, RowsRef, ValueKind, ValueSlot, float_from_ordered, float_sum,
    prefetch_block, read_bytes, read_decimal_sum, read_i128,
};

use crate::columns::decimal;
use crate::columns::elements::Made;
use crate::columns::inputs::{Columns, Feed, Input, View};
pub(crate) use crate::columns::inputs::{TIMES, TIMES_COLUMN};
use crate::columns::keys::{VarColumn, primitive_from_words, range_of};
use crate::columns::lists;
use crate::columns::moments::Feeds;
use crate::columns::order::Ordering;
use crate::columns::records::{self, Reading, RecordsOfGroups};
use crate::columns::value::{Likeness, Value};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::{AggregateCall, AggregateFunction, Argument, Bits, Moment};

/// The aggregate calls of one operator, laid out as values.
#[derive(Debug, Clone, Default)]
pub struct Aggregates {
    calls: Vec<AggregateCall>,
    /// By call.
    parts: Vec<Parts>,
    values: Vec<Value>,
}

/// Numbers of the values that a call's result is made of.
#[derive(Debug, Clone)]
enum Parts {
    One(usize),
    /// An AVG.
    Mean {
        sum: usize,
        count: usize,
    },
    Moment {
        moment: Moment,
        sums: Feeds<usize>,
        count: usize,
    },
}

impl Parts {
    fn values(&self) -> Vec<usize> {
        match self {
            Parts::One(value) => vec![*value],
            Parts::Mean { sum, count } => vec![*sum, *count],
            Parts::Moment { sums, count, .. } => sums.iter().chain([count]).copied().collect(),
        }
    }
}

impl Aggregates {
    /// `empty_group`: whether a group may exist without any record (a global aggregate over
    /// nothing).
    pub fn new(calls: &[AggregateCall], empty_group: bool) -> Result<Aggregates> {
        let (mut aggregates, mut known) = (Aggregates::default(), HashMap::new());
        for call in calls {
            aggregates.add(call, empty_group, &mut known)?;
        }
        Ok(aggregates)
    }

    /// `known`: where the values stand that there are.
    fn add(
        &mut self,
        call: &AggregateCall,
        empty_group: bool,
        known: &mut HashMap<Likeness, usize>,
    ) -> Result<()> {
        let values = &mut self.values;
        let mut intern = |kind: ValueKind, argument: Option<&Argument>| {
            let made = Made::of_value(kind, call.function);
            let value = Value::new(kind, argument, made, &call.filter, empty_group);
            *known.entry(value.likeness()).or_insert_with(|| {
                values.push(value);
                values.len() - 1
            })
        };
        let argument = call.arguments.first();
        self.parts.push(match call.function {
            AggregateFunction::Count => Parts::One(intern(ValueKind::Count, argument)),
            AggregateFunction::Sum => Parts::One(intern(sum_kind(call)?, argument)),
            AggregateFunction::Avg => Parts::Mean {
                sum: intern(sum_kind(call)?, argument),
                count: intern(ValueKind::Count, argument),
            },
            AggregateFunction::Min | AggregateFunction::Max => {
                Parts::One(intern(extreme_kind(call)?, argument))
            }
            AggregateFunction::Bits(bits) => Parts::One(intern(bits_kind(bits, call)?, argument)),
            AggregateFunction::Moment(moment) => Parts::Moment {
                moment,
                sums: Feeds::new(moment, call)?
                    .map(|argument| intern(ValueKind::SumFloat, Some(&argument))),
                count: intern(ValueKind::Count, argument),
            },
            function => {
                let kind = lists::kind_of(function).ok_or_else(|| unsupported(call))?;
                Parts::One(intern(kind, argument))
            }
        });
        self.calls.push(call.clone());
        Ok(())
    }

    /// Adds two values that no call uses: the least and the greatest time ([`TIMES`]); which they
    /// are.
    pub(crate) fn add_times(&mut self) -> [usize; 2] {
        let expr = Expr::Column(TIMES_COLUMN);
        let time = Argument { expr, data_type: DataType::Int64, nullable: false };
        [ValueKind::Min64, ValueKind::Max64].map(|kind| {
            self.values.push(Value::new(kind, Some(&time), Made::AsIs, &None, false));
            self.values.len() - 1
        })
    }

    /// Kinds of the values, as arguments of [`RowLayout::new`].
    pub(crate) fn layout_values(&self) -> Vec<(ValueKind, bool)> {
        self.values.iter().map(|v| (v.kind, v.optional)).collect()
    }

    /// The values, in the order of [`Aggregates::inputs`].
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// Arguments whose texts are kept.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Expr> {
        let kept = |value: &&Value| {
            matches!(value.kind, ValueKind::MinBytes | ValueKind::MaxBytes)
                && !value.made.is_ordered()
        };
        self.values.iter().filter(kept).filter_map(|value| value.argument.as_ref())
    }

    /// Arguments that are made into byte strings.
    pub(crate) fn encoded(&self) -> impl Iterator<Item = &Expr> {
        let encoded = self.values.iter().filter(|value| value.made.encodes());
        encoded.filter_map(|value| value.argument.as_ref())
    }

    /// Per value, the names of the calls that use it.
    pub(crate) fn users(&self) -> Vec<Vec<&str>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for (call, parts) in self.calls.iter().zip(&self.parts) {
            parts.values().iter().for_each(|value| users[*value].push(call.name.as_str()));
        }
        users
    }

    /// Texts of the calls, with the types of arguments and results.
    pub(crate) fn texts_of_calls(&self, type_name: &dyn Fn(&DataType) -> String) -> Vec<String> {
        let text = |call: &AggregateCall| {
            let arguments = call.arguments.iter().map(|argument| type_name(&argument.data_type));
            let arguments = arguments.collect::<Vec<_>>().join(", ");
            format!("{} of ({arguments}) as {}", call.name, type_name(&call.result_type))
        };
        self.calls.iter().map(text).collect()
    }

    /// Whether arguments or filters have to be computed (rather than read from a column or a row).
    pub(crate) fn is_computed(&self) -> bool {
        let exprs = self.values.iter().flat_map(|v| v.argument.iter().chain(&v.filter));
        exprs.into_iter().any(|e| !e.is_there())
    }

    /// How far batches must say where their records stand in the order of all.
    pub(crate) fn order(&self) -> Ordering {
        let wanted = |value: &Value| match (value.made.is_ordered(), value.kind) {
            (false, _) => Ordering::Nothing,
            (true, ValueKind::Best(_)) => Ordering::Heads,
            (true, _) => Ordering::Whole,
        };
        self.values.iter().map(wanted).max().unwrap_or(Ordering::Nothing)
    }

    /// First rows of each group, as far as they are to be read now; `None` if no call gives the
    /// first rows.
    pub(crate) fn best(
        &self,
        rows: &RowsRef<'_>,
        reading: &mut Reading,
    ) -> Result<Option<RecordsOfGroups>> {
        let best = self
            .best_call()
            .map(|(call, value)| records::read(call, rows.layout().values()[value], rows, reading));
        best.transpose()
    }

    /// Whether each group gives several rows.
    pub(crate) fn gives_several(&self) -> bool {
        self.best_call().is_some()
    }

    /// Whether a call keeps all rows of a group.
    pub(crate) fn keeps_records(&self) -> bool {
        self.values.iter().any(|value| value.kind == ValueKind::Chain)
    }

    /// How many rows a group has, and how many bytes they take, if a call keeps all of them.
    pub(crate) fn records_of(&self, rows: &RowsRef<'_>, group: usize) -> Option<(usize, usize)> {
        let (_, value) = self.best_call()?;
        records::size_of(rows.layout().values()[value], rows, group)
    }

    /// The call that gives the first rows of each group, and its value.
    fn best_call(&self) -> Option<(&AggregateCall, usize)> {
        let mut calls = self.calls.iter().zip(&self.parts);
        calls.find_map(|(call, parts)| match (call.function, parts) {
            (AggregateFunction::Best(_), Parts::One(value)) => Some((call, *value)),
            _ => None,
        })
    }

    /// Evaluates all arguments and filters for a batch.
    pub fn inputs(&self, batch: &RecordBatch) -> Result<Vec<Input>> {
        let mut columns = Columns::default();
        self.values.iter().map(|value| Input::new(value, batch, &mut columns)).collect()
    }

    /// Updates the rows of a block; `rows[k]` is the position in the inputs of the block's `k`-th
    /// key.
    pub(crate) fn update<F: Feed>(
        &self,
        layout: &RowLayout,
        inputs: &[F],
        rows: &[u32],
        block: &mut Block<'_>,
        picks: &mut Vec<u32>,
    ) -> Result<()> {
        let mut values = layout.values().iter().zip(inputs).peekable();
        while let Some((slot, input)) = values.next() {
            // A count behind a sum of floats goes with it, if both take all rows: as for a mean.
            let counts = |(count, counted): &(&ValueSlot, &F)| {
                count.kind == ValueKind::Count && counted.takes_all() && input.takes_all()
            };
            let count = match slot.kind {
                ValueKind::SumFloat => values.next_if(counts).map(|(count, _)| *count),
                _ => None,
            };
            let picks = input.pick(rows, picks);
            match input.view() {
                View::Elements(elements) => elements.enter(*slot, rows, picks, block)?,
                view => update_value(*slot, count, view, rows, picks, block),
            }
        }
        Ok(())
    }

    /// The result columns for some rows of state.
    pub fn finish(&self, rows: &RowsRef<'_>) -> Result<Vec<ArrayRef>> {
        let calls = self.calls.iter().zip(&self.parts);
        calls.map(|(call, parts)| finish_call(call, parts, rows)).collect()
    }
}

fn finish_call(call: &AggregateCall, parts: &Parts, rows: &RowsRef<'_>) -> Result<ArrayRef> {
    let slot = |value: usize| rows.layout().values()[value];
    let slot = match parts {
        Parts::One(value) => slot(*value),
        Parts::Mean { sum, count } => return finish_avg(call, slot(*sum), slot(*count), rows),
        Parts::Moment { moment, sums, count } => {
            let words = sums.clone().map(|sum| slot(sum).word);
            return Ok(Arc::new(words.finish(*moment, slot(*count).word, rows)));
        }
    };
    if lists::kind_of(call.function).is_some() {
        return lists::finish(call, slot, rows);
    }
    let nulls = seen(slot, rows);
    let word = slot.word;
    Ok(match slot.kind {
        ValueKind::Count => {
            Arc::new(Int64Array::new(rows.collect(word, |w| w as i64).into(), None))
        }
        ValueKind::SumInt => finish_sum_int(call, word, nulls, rows)?,
        ValueKind::SumDecimal => {
            let sum = |row| {
                let words = decimal_words(rows, row, word);
                read_decimal_sum(words).or_else(|_| narrow(call, decimal::wide(words)))
            };
            let values = (0..rows.len()).map(sum).collect::<Result<Vec<i128>>>()?;
            decimal_array(call, values, nulls)?
        }
        ValueKind::SumFloat => {
            let values = (0..rows.len()).map(|row| float_total(rows, row, word)).collect();
            Arc::new(Float64Array::new(values, nulls))
        }
        ValueKind::Min64 | ValueKind::Max64 => {
            let values: ScalarBuffer<i64> = rows.collect(word, |w| w as i64).into();
            from_ordered(&call.result_type, values, nulls)?
        }
        ValueKind::Min128 | ValueKind::Max128 => {
            let words = rows.words(word).zip(rows.words(word + 1));
            let values: Vec<i128> = words.map(|(low, high)| read_i128(low, high)).collect();
            decimal_array(call, values, nulls)?
        }
        ValueKind::MinBytes | ValueKind::MaxBytes => finish_bytes(call, word, rows)?,
        ValueKind::BitAnd | ValueKind::BitOr | ValueKind::BitXor => {
            primitive_from_words(&call.result_type, rows.words(word), nulls)?
        }
        kind => return Err(Error::Internal(format!("{} of {kind:?}", call.name))),
    })
}

fn unsupported(call: &AggregateCall) -> Error {
    Error::Evaluation {
        expression: call.name.clone(),
        message: format!("there is no such aggregate of values of type {}", call.argument_type()),
        frame: call.frame.clone(),
        help: "cast the argument to a number or a string".into(),
    }
}

fn sum_kind(call: &AggregateCall) -> Result<ValueKind> {
    use DataType::*;
    match call.argument_type() {
        Float32 | Float64 => Ok(ValueKind::SumFloat),
        Decimal128(..) => Ok(ValueKind::SumDecimal),
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Null => {
            Ok(ValueKind::SumInt)
        }
        _ => Err(unsupported(call)),
    }
}

fn extreme_kind(call: &AggregateCall) -> Result<ValueKind> {
    use DataType::*;
    let (k64, k128, bytes) = match call.function {
        AggregateFunction::Min => (ValueKind::Min64, ValueKind::Min128, ValueKind::MinBytes),
        _ => (ValueKind::Max64, ValueKind::Max128, ValueKind::MaxBytes),
    };
    match call.argument_type() {
        Decimal128(..) => Ok(k128),
        Utf8 | Binary => Ok(bytes),
        Boolean | Null | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) => Ok(k64),
        Duration(_) => Ok(k64),
        t if t.is_integer() || matches!(t, Float32 | Float64) => Ok(k64),
        _ => Err(unsupported(call)),
    }
}

fn bits_kind(bits: Bits, call: &AggregateCall) -> Result<ValueKind> {
    match bits {
        _ if !call.argument_type().is_integer() => Err(unsupported(call)),
        Bits::And => Ok(ValueKind::BitAnd),
        Bits::Or => Ok(ValueKind::BitOr),
        Bits::Xor => Ok(ValueKind::BitXor),
    }
}

fn update_value(
    slot: ValueSlot,
    count: Option<ValueSlot>,
    input: View<'_>,
    rows: &[u32],
    picks: Option<&[u32]>,
    block: &mut Block<'_>,
) {
    let row = |k: usize| rows[k] as usize;
    // Without a look at `rows` where they follow each other, as they do without a filter.
    macro_rules! feed {
        ($update:ident, $values:expr, $from:expr) => {
            match range_of(rows) {
                Some(range) => {
                    prefetch_block($values, range.end);
                    let values = &$values[range];
                    block.$update(slot, picks, |k| $from(values[k]))
                }
                None => block.$update(slot, picks, |k| $from($values[row(k)])),
            }
        };
    }
    let pair = |[low, high]: [u64; 2]| read_i128(low, high);
    match (input, slot.kind) {
        (_, ValueKind::Count) => block.count(slot, picks),
        (View::Signed(v), ValueKind::SumInt) => feed!(sum_int, v, i128::from),
        (View::Unsigned(v), ValueKind::Registers | ValueKind::Histogram) => {
            block.blob_words(slot, picks, |k| v[row(k)]);
        }
        (View::Unsigned(v), _) => feed!(sum_int, v, i128::from),
        (View::Signed(v), ValueKind::BitAnd | ValueKind::BitOr | ValueKind::BitXor) => {
            feed!(bits, v, |v| v);
        }
        (View::Signed(v), _) => feed!(extreme64, v, |v| v),
        (View::Float(v), _) => sum_floats(slot, count, v, rows, picks, block),
        (View::Wide(v), ValueKind::SumDecimal) => block.sum_decimal(slot, picks, |k| v[row(k)]),
        (View::Wide(v), _) => block.extreme128(slot, picks, |k| v[row(k)]),
        (View::Pairs(v), ValueKind::SumDecimal) => {
            block.sum_decimal(slot, picks, |k| pair(v[row(k)]));
        }
        (View::Pairs(v), _) => block.extreme128(slot, picks, |k| pair(v[row(k)])),
        (View::Column(v), _) => {
            if let Some(column) = VarColumn::new(v) {
                match slot.kind.has_any_size() {
                    true => block.blob_bytes(slot, picks, |k| column.bytes(row(k))),
                    false => block.extreme_bytes(slot, picks, |k| column.bytes(row(k))),
                }
            }
        }
        (View::Packed(v), kind) if kind.has_any_size() => {
            block.blob_bytes(slot, picks, |k| v.bytes(row(k)));
        }
        (View::Packed(v), _) => block.extreme_bytes(slot, picks, |k| v.bytes(row(k))),
        (View::None | View::Elements(_), _) => {}
    }
}

/// Adds the doubles of some rows of a column.
fn sum_floats(
    slot: ValueSlot,
    count: Option<ValueSlot>,
    column: &[f64],
    rows: &[u32],
    picks: Option<&[u32]>,
    block: &mut Block<'_>,
) {
    if let Some(range) = range_of(rows) {
        prefetch_block(column, range.end);
        return block.sum_float(slot, count, picks, &column[range]);
    }
    let mut values = [0.0; BLOCK_ROWS];
    let values = &mut values[..rows.len()];
    values.iter_mut().zip(rows).for_each(|(value, row)| *value = column[*row as usize]);
    block.sum_float(slot, count, picks, values);
}

/// NULL where a value has met no input.
fn seen(slot: ValueSlot, rows: &RowsRef<'_>) -> Option<NullBuffer> {
    let (word, bit) = rows.layout().seen(slot)?;
    let nulls = NullBuffer::from_iter(rows.words(word).map(|bits| bits & bit != 0));
    (nulls.null_count() > 0).then_some(nulls)
}

fn overflow(call: &AggregateCall, value: String) -> Error {
    Error::Overflow {
        aggregate: call.name.clone(),
        value,
        result_type: match &call.result_type {
            DataType::Int64 => "BIGINT".into(),
            DataType::UInt64 => "BIGINT UNSIGNED".into(),
            DataType::Decimal128(p, s) => format!("DECIMAL({p}, {s})"),
            other => other.to_string(),
        },
        frame: call.frame.clone(),
    }
}

fn finish_sum_int(
    call: &AggregateCall,
    word: usize,
    nulls: Option<NullBuffer>,
    rows: &RowsRef<'_>,
) -> Result<ArrayRef> {
    let sums = rows.words(word).zip(rows.words(word + 1)).map(|(l, h)| read_i128(l, h));
    if call.result_type == DataType::UInt64 {
        let values = sums.map(|v| u64::try_from(v).map_err(|_| overflow(call, v.to_string())));
        let values: Vec<u64> = values.collect::<Result<_>>()?;
        return Ok(Arc::new(UInt64Array::new(values.into(), nulls)));
    }
    let values = sums.map(|v| i64::try_from(v).map_err(|_| overflow(call, v.to_string())));
    let values: Vec<i64> = values.collect::<Result<_>>()?;
    let array: ArrayRef = Arc::new(Int64Array::new(values.into(), nulls));
    if call.result_type == DataType::Int64 {
        Ok(array)
    } else {
        Ok(cast(&array, &call.result_type)?)
    }
}

fn float_total(rows: &RowsRef<'_>, row: usize, word: usize) -> f64 {
    let words = [rows.word(row, word), rows.word(row, word + 1), rows.word(row, word + 2)];
    float_sum::finish(words, rows.arena())
}

fn decimal_words(rows: &RowsRef<'_>, row: usize, word: usize) -> [u64; 3] {
    [rows.word(row, word), rows.word(row, word + 1), rows.word(row, word + 2)]
}

/// A decimal result in 128 bits.
#[cold]
fn narrow(call: &AggregateCall, value: i256) -> Result<i128> {
    let DataType::Decimal128(_, scale) = call.result_type else {
        return Err(Error::Internal(format!("{} has type {}", call.name, call.result_type)));
    };
    value.to_i128().ok_or_else(|| overflow(call, decimal::text(value, scale)))
}

fn decimal_array(
    call: &AggregateCall,
    values: Vec<i128>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = call.result_type else {
        return Err(Error::Internal(format!("{} has type {}", call.name, call.result_type)));
    };
    let limit = 10i128.pow(u32::from(precision));
    let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
    let too_wide = |(row, v): &(usize, &i128)| valid(*row) && v.unsigned_abs() >= limit as u128;
    if let Some((_, value)) = values.iter().enumerate().find(too_wide) {
        return Err(overflow(call, decimal::text(i256::from_i128(*value), scale)));
    }
    let array = Decimal128Array::new(values.into(), nulls);
    Ok(Arc::new(array.with_data_type(call.result_type.clone())))
}

fn finish_avg(
    call: &AggregateCall,
    sum: ValueSlot,
    count: ValueSlot,
    rows: &RowsRef<'_>,
) -> Result<ArrayRef> {
    let counts: Vec<u64> = rows.collect(count.word, |w| w);
    let nulls =
        counts.contains(&0).then(|| NullBuffer::from_iter(counts.iter().map(|count| *count > 0)));
    let word = sum.word;
    match sum.kind {
        ValueKind::SumDecimal => {
            let (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) =
                (call.argument_type(), &call.result_type)
            else {
                return Err(Error::Internal(format!(
                    "{} has type {}",
                    call.name, call.result_type
                )));
            };
            let digits = (to - from).max(0) as u32;
            let factor = 10i128.pow(digits);
            let average = |row: usize| {
                let (words, count) = (decimal_words(rows, row, word), counts[row]);
                if count == 0 {
                    return Ok(0);
                }
                let sum = read_decimal_sum(words).ok();
                match sum.and_then(|sum| decimal_average(sum, factor, count.into())) {
                    Some(average) => Ok(average),
                    None => narrow(call, decimal::average(decimal::wide(words), digits, count)),
                }
            };
            let values = (0..rows.len()).map(average).collect::<Result<Vec<i128>>>()?;
            decimal_array(call, values, nulls)
        }
        // Without the fraction.
        ValueKind::SumInt if call.result_type == DataType::Int64 => {
            let mean = |row: usize| {
                let sum = read_i128(rows.word(row, word), rows.word(row, word + 1));
                let mean = sum / i128::from(counts[row].max(1));
                i64::try_from(mean).map_err(|_| overflow(call, mean.to_string()))
            };
            let means = (0..rows.len()).map(mean).collect::<Result<Vec<i64>>>()?;
            Ok(Arc::new(Int64Array::new(means.into(), nulls)))
        }
        kind => {
            let average = |row: usize| {
                let (low, high) = (rows.word(row, word), rows.word(row, word + 1));
                let count = counts[row].max(1);
                match kind {
                    ValueKind::SumFloat => {
                        float_sum::mean([low, high, rows.word(row, word + 2)], rows.arena(), count)
                    }
                    _ => float_sum::mean_of_integers(read_i128(low, high), count),
                }
            };
            let values: Vec<f64> = (0..rows.len()).map(average).collect();
            Ok(Arc::new(Float64Array::new(values.into(), nulls)))
        }
    }
}

/// `sum * factor / count`, rounded half away from zero; `None` if it does not fit.
fn decimal_average(sum: i128, factor: i128, count: i128) -> Option<i128> {
    let (whole, rest) = (sum / count, sum % count);
    let scaled = rest.checked_mul(factor)?;
    let (mut part, rest) = (scaled / count, scaled % count);
    if rest.unsigned_abs() * 2 >= count as u128 {
        part += if rest < 0 { -1 } else { 1 };
    }
    whole.checked_mul(factor)?.checked_add(part)
}

/// The inverse of what `Values::new` does to arguments of MIN and MAX.
fn from_ordered(
    data_type: &DataType,
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let floats = || values.iter().map(|v| float_from_ordered(*v));
    Ok(match data_type {
        DataType::Boolean => {
            Arc::new(BooleanArray::new(values.iter().map(|v| *v == 1).collect(), nulls))
        }
        DataType::Float64 => Arc::new(Float64Array::new(floats().collect(), nulls)),
        DataType::Float32 => {
            let values = floats().map(|v| v as f32).collect();
            Arc::new(arrow::array::Float32Array::new(values, nulls))
        }
        DataType::UInt64 => {
            let values = values.iter().map(|v| *v as u64 ^ 1 << 63).collect();
            Arc::new(UInt64Array::new(values, nulls))
        }
        DataType::Null => arrow::array::new_null_array(data_type, values.len()),
        _ => {
            let words = values.iter().map(|v| *v as u64);
            return primitive_from_words(data_type, words, nulls);
        }
    })
}

fn finish_bytes(call: &AggregateCall, word: usize, rows: &RowsRef<'_>) -> Result<ArrayRef> {
    let values = rows.words(word).map(|w| read_bytes(w, rows.arena()));
    if call.result_type == DataType::Binary {
        let mut builder = BinaryBuilder::new();
        values.for_each(|v| builder.append_option(v));
        return Ok(Arc::new(builder.finish()));
    }
    let mut builder = StringBuilder::new();
    values.for_each(|v| {
        builder.append_option(v.map(|b| std::str::from_utf8(b).unwrap_or("\u{FFFD}")));
    });
    Ok(Arc::new(builder.finish()))
}
