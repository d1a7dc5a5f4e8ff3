//! Results of aggregates whose values have any size, or that depend on the order of records.

use std::cmp::Reverse;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, StructArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;

use millstream_state::{
    Counted, RowsRef, ValueKind, ValueSlot, Wanted, blob_bytes, frequent_values,
    histogram_quantile, list_elements, read_bytes, registers_estimate, set_elements,
};

use crate::columns::elements::{comparable, payload_of};
use crate::columns::payload::{decode, null_of, offset, text_array};
use crate::error::{Error, Result};
use crate::plan::{AggregateCall, AggregateFunction, Best, Directions, Ranking};

/// Default separator of a LISTAGG, as in Flink.
const SEPARATOR: &str = ",";

/// Kind of a function's value; `None` for functions of other modules.
pub(super) fn kind_of(function: AggregateFunction) -> Option<ValueKind> {
    use AggregateFunction::*;
    Some(match function {
        First { .. } | MinBy | MaxBy => ValueKind::MinBytes,
        Last { .. } => ValueKind::MaxBytes,
        ArrayAgg { distinct: true, .. } | ListAgg { distinct: true, .. } => ValueKind::Set,
        ArrayAgg { .. } | ListAgg { .. } => ValueKind::List,
        ApproxCountDistinct => ValueKind::Registers,
        ApproxPercentile(_) => ValueKind::Histogram,
        ApproxTopK(_) => ValueKind::Frequent,
        Best(best) if best.ranking == Ranking::All => ValueKind::Chain,
        Best(best) => ValueKind::Best(wanted(best)),
        Count | Sum | Min | Max | Avg | Bits(_) | Moment(_) => return None,
    })
}

fn wanted(best: Best) -> Wanted {
    let counted = match best.ranking {
        Ranking::RowNumber | Ranking::All => Counted::Elements,
        Ranking::Rank => Counted::Lesser,
        Ranking::DenseRank => Counted::Keys,
    };
    Wanted { limit: best.limit.max(1), counted }
}

/// The results of a call for some rows of state.
pub(super) fn finish(
    call: &AggregateCall,
    slot: ValueSlot,
    rows: &RowsRef<'_>,
) -> Result<ArrayRef> {
    let blobs = || rows.words(slot.word).map(|word| blob_bytes(word, rows.arena()));
    Ok(match call.function {
        AggregateFunction::ApproxCountDistinct => {
            Arc::new(blobs().map(|b| Some(registers_estimate(b) as i64)).collect::<Int64Array>())
        }
        AggregateFunction::ApproxPercentile(share) => {
            Arc::new(blobs().map(|b| histogram_quantile(b, share.get())).collect::<Float64Array>())
        }
        AggregateFunction::ApproxTopK(most) => finish_frequent(call, most as usize, slot, rows)?,
        AggregateFunction::ArrayAgg { .. } => finish_array(call, slot, rows)?,
        AggregateFunction::ListAgg { separated, .. } => finish_text(slot, separated, rows)?,
        _ => finish_element(call, slot, rows)?,
    })
}

/// Returned values of each row's element.
fn finish_element(call: &AggregateCall, slot: ValueSlot, rows: &RowsRef<'_>) -> Result<ArrayRef> {
    let null = null_of(&call.result_type)?;
    let element = |word| read_bytes(word, rows.arena()).map_or(Ok(&null[..]), payload_of);
    let mut values = rows.words(slot.word).map(element).collect::<Result<Vec<_>>>()?;
    decode(&call.result_type, &mut values)
}

/// Returned values of each row's elements, in order; and the beginnings of the rows, with the end
/// of all as the last. Of a set, each value once, at its first place.
fn all_elements<'r>(slot: ValueSlot, rows: &'r RowsRef<'_>) -> Result<(Vec<&'r [u8]>, Vec<usize>)> {
    let (mut all, mut starts) = (Vec::new(), vec![0]);
    for word in rows.words(slot.word) {
        let bytes = blob_bytes(word, rows.arena());
        let elements = match slot.kind {
            ValueKind::Set => set_elements(bytes),
            _ => {
                let mut elements: Vec<&[u8]> = list_elements(bytes).collect();
                elements.sort_unstable();
                elements
            }
        };
        for element in elements {
            all.push(payload_of(element)?);
        }
        starts.push(all.len());
    }
    Ok((all, starts))
}

fn finish_array(call: &AggregateCall, slot: ValueSlot, rows: &RowsRef<'_>) -> Result<ArrayRef> {
    let DataType::List(field) = &call.result_type else {
        return Err(Error::Internal(format!("{} has type {}", call.name, call.result_type)));
    };
    let (mut elements, starts) = all_elements(slot, rows)?;
    let offsets = starts.iter().map(|start| offset(*start)).collect::<Result<Vec<_>>>()?;
    let values = decode(field.data_type(), &mut elements)?;
    let nulls = given(&starts);
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Arc::new(ListArray::try_new(field.clone(), offsets, values, nulls)?))
}

/// The most frequent values of each row of state, and their counts. Of those with equal counts the
/// least come first.
fn finish_frequent(
    call: &AggregateCall,
    most: usize,
    slot: ValueSlot,
    rows: &RowsRef<'_>,
) -> Result<ArrayRef> {
    let wrong = || Error::Internal(format!("{} has type {}", call.name, call.result_type));
    let DataType::List(field) = &call.result_type else { return Err(wrong()) };
    let DataType::Struct(fields) = field.data_type() else { return Err(wrong()) };
    let [value_field, _] = &fields[..] else { return Err(wrong()) };
    let (mut counts, mut values, mut starts) = (Vec::new(), Vec::new(), vec![0]);
    for word in rows.words(slot.word) {
        let mut found = frequent_values(blob_bytes(word, rows.arena()));
        // Ties with the last value are decided by the values below.
        let least = found.get(most.saturating_sub(1)).map_or(0, |(count, _)| *count);
        found.retain(|(count, _)| *count >= least);
        counts.extend(found.iter().map(|(count, _)| *count as i64));
        values.extend(found.iter().map(|(_, value)| *value));
        starts.push(values.len());
    }
    let values = decode(value_field.data_type(), &mut values)?;
    let sorted = comparable(std::slice::from_ref(&values), Directions::default())?;
    let (mut picks, mut offsets) = (Vec::new(), vec![0]);
    for ends in starts.windows(2) {
        let mut group: Vec<u32> = (ends[0] as u32..ends[1] as u32).collect();
        group.sort_by_key(|at| (Reverse(counts[*at as usize]), sorted.row(*at as usize)));
        picks.extend(group.into_iter().take(most));
        offsets.push(offset(picks.len())?);
    }
    let picks = UInt32Array::from(picks);
    let counts: ArrayRef = Arc::new(Int64Array::from(counts));
    let columns = vec![take(&values, &picks, None)?, take(&counts, &picks, None)?];
    let pairs = StructArray::try_new(fields.clone(), columns, None)?;
    let nulls = given(&starts);
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Arc::new(ListArray::try_new(field.clone(), offsets, Arc::new(pairs), nulls)?))
}

/// Groups with elements: groups without elements have no list. `None`: all groups.
fn given(starts: &[usize]) -> Option<NullBuffer> {
    let nulls = NullBuffer::from_iter(starts.windows(2).map(|ends| ends[1] > ends[0]));
    (nulls.null_count() > 0).then_some(nulls)
}

fn finish_text(slot: ValueSlot, separated: bool, rows: &RowsRef<'_>) -> Result<ArrayRef> {
    use arrow::array::{Array, AsArray};
    let (mut elements, starts) = all_elements(slot, rows)?;
    let texts = decode(&DataType::Utf8, &mut elements)?;
    let separators = if separated { Some(decode(&DataType::Utf8, &mut elements)?) } else { None };
    let (texts, separators) =
        (texts.as_string::<i32>(), separators.as_ref().map(|s| s.as_string::<i32>()));
    let mut joined = Vec::new();
    for ends in starts.windows(2) {
        let mut text = String::new();
        for at in ends[0]..ends[1] {
            if at > ends[0] {
                text.push_str(match separators {
                    None => SEPARATOR,
                    Some(separators) if separators.is_null(at) => "",
                    Some(separators) => separators.value(at),
                });
            }
            text.push_str(texts.value(at));
        }
        joined.push((ends[1] > ends[0]).then_some(text));
    }
    let joined: Vec<Option<&[u8]>> =
        joined.iter().map(|text| text.as_deref().map(str::as_bytes)).collect();
    text_array(&DataType::Utf8, &joined)
}
