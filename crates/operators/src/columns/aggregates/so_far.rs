//! Aggregates of the records so far, as columns for readers of saved state.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, StructArray, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef};
use millstream_state::RowsRef;

use super::{Aggregates, finish_call};
use crate::columns::plain::shown;
use crate::columns::records::{PORTION_BYTES, PORTION_ROWS, Portion, Reading};
use crate::error::{Error, Result};

impl Aggregates {
    /// As [`Aggregates::finish`], with NULL where a result does not fit its type.
    pub(crate) fn so_far(&self, rows: &RowsRef<'_>) -> Result<Vec<ArrayRef>> {
        let calls = self.calls.iter().zip(&self.parts);
        let column = |(call, parts)| match finish_call(call, parts, rows) {
            Ok(column) => Ok(column),
            Err(_) => {
                let null = new_null_array(&call.result_type, 1);
                let value = |row| finish_call(call, parts, &rows.slice(row..row + 1));
                let values = (0..rows.len()).map(|row| value(row).unwrap_or(null.clone()));
                let values: Vec<ArrayRef> = values.collect();
                let values: Vec<&dyn Array> = values.iter().map(|value| &**value).collect();
                Ok(concat(&values)?)
            }
        };
        calls.map(column).collect()
    }

    /// The rows that each group has, where groups have several: lists of `row`, NULL of groups with
    /// very many rows.
    pub(crate) fn rows_so_far(&self, rows: &RowsRef<'_>, row: &FieldRef) -> Result<ArrayRef> {
        let DataType::Struct(fields) = row.data_type() else {
            return Err(Error::Internal(format!("rows of type {}", row.data_type())));
        };
        let is_small = |group| {
            let (rows, bytes) = self.records_of(rows, group).unwrap_or_default();
            rows <= PORTION_ROWS && bytes <= PORTION_BYTES
        };
        let small: Vec<bool> = (0..rows.len()).map(is_small).collect();
        let (mut lengths, mut parts, mut first) = (vec![0; rows.len()], Vec::new(), 0);
        for run in small.chunk_by(|a, b| a == b) {
            let of_run = first..first + run.len();
            first = of_run.end;
            if !run[0] {
                continue;
            }
            let mut reading = Reading::by(Portion::All);
            if let Some(found) = self.best(&rows.slice(of_run.clone()), &mut reading)? {
                for group in &found.groups {
                    lengths[of_run.start + *group as usize] += 1;
                }
                parts.push(found.columns);
            }
        }
        let column = |(at, field): (usize, &FieldRef)| -> Result<ArrayRef> {
            if parts.is_empty() {
                return Ok(new_null_array(field.data_type(), 0));
            }
            let all: Vec<&dyn Array> = parts.iter().map(|columns| &*columns[at]).collect();
            shown(concat(&all)?)
        };
        let columns = fields.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        let values = StructArray::try_new(fields.clone(), columns, None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls = NullBuffer::from(small);
        Ok(Arc::new(ListArray::try_new(row.clone(), offsets, Arc::new(values), Some(nulls))?))
    }
}
