//! Decoding a block: first the values of the members of each line, then column by column.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{FieldRef, SchemaRef};
use memchr::memchr;
use millstream_contract::table::Decoded;
use millstream_contract::{Error, Result};

use super::fault::Wrong;
use super::members::{Slot, find};
use super::names::Names;
use super::value;
use crate::csv::Why;
use crate::input::Name;
use crate::records::{Block, Decode, Lines, place};

/// What is the same for all blocks of a split.
#[derive(Debug)]
pub(super) struct Plan {
    path: Name,
    /// Of the projected columns.
    schema: SchemaRef,
    names: Names,
    skip_errors: bool,
}

/// The lines of a block that are objects, and the values of the columns in them.
struct Found<'a> {
    /// By record, offset of its line.
    starts: Vec<u32>,
    /// By column and record.
    values: Vec<Vec<Option<&'a str>>>,
    /// Lines left out.
    left_out: u64,
    first: Option<Wrong>,
}

impl Plan {
    pub(super) fn new(
        path: &Name,
        schema: &SchemaRef,
        projection: &[usize],
        skip_errors: bool,
    ) -> Result<Plan> {
        let names = Names::new(schema.fields(), projection);
        let schema = schema.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        Ok(Plan { path: path.clone(), schema: Arc::new(schema), names, skip_errors })
    }

    /// The members of each line.
    fn find<'a>(&self, data: &'a [u8]) -> std::result::Result<Found<'a>, Wrong> {
        let columns = self.schema.fields().len();
        let mut found = Found {
            starts: Vec::new(),
            values: vec![Vec::new(); columns],
            left_out: 0,
            first: None,
        };
        let mut slots = vec![Slot::default(); columns];
        let mut start = 0;
        while start < data.len() {
            let end = memchr(b'\n', &data[start..]).map_or(data.len(), |at| start + at);
            let line = &data[start..end];
            if !line.trim_ascii().is_empty() {
                match find(&self.names, line, start, &mut slots) {
                    Ok(()) => {
                        // A block is far below 4 GiB.
                        found.starts.push(start as u32);
                        for (values, slot) in found.values.iter_mut().zip(&mut slots) {
                            values.push(slot.value.take());
                        }
                    }
                    Err(wrong) if self.skip_errors => {
                        found.left_out += 1;
                        found.first.get_or_insert(wrong);
                    }
                    Err(wrong) => return Err(wrong),
                }
            }
            start = end + 1;
        }
        Ok(found)
    }

    fn error(&self, block: &Block, wrong: Wrong) -> Error {
        let place = place(&self.path, &block.data, block.line, wrong.at);
        Error::Data { place, message: wrong.message, help: wrong.help }
    }

    /// The columns; and by record, whether it is left out.
    fn columns(&self, block: &Block, found: &mut Found<'_>) -> Result<(Vec<ArrayRef>, Vec<bool>)> {
        let mut arrays = Vec::with_capacity(found.values.len());
        let mut keep = vec![true; found.starts.len()];
        let mut first: Option<Wrong> = None;
        for (field, values) in self.schema.fields().iter().zip(&found.values) {
            let mut fault = |row: usize, why: Why| {
                keep[row] = false;
                // The text is part of the block.
                let at = values[row]
                    .filter(|text| *text != "null")
                    .map_or(found.starts[row] as usize, |text| {
                        (text.as_ptr() as usize).saturating_sub(block.data.as_ptr() as usize)
                    });
                let text = values[row].map(str::as_bytes);
                let wrong = Wrong::misfit(field, at, text, why);
                if first.as_ref().is_none_or(|first| wrong.at < first.at) {
                    first = Some(wrong);
                }
                self.skip_errors
            };
            let column = value::column(values, field.data_type(), field.is_nullable(), &mut fault)?;
            arrays.extend(column);
        }
        match first {
            Some(wrong) if !self.skip_errors => Err(self.error(block, wrong)),
            first => {
                let before = |other: &Wrong| first.as_ref().is_some_and(|w| w.at < other.at);
                if found.first.as_ref().is_none_or(before) {
                    found.first = first.or(found.first.take());
                }
                Ok((arrays, keep))
            }
        }
    }
}

impl Decode for Plan {
    fn decode(&self, block: Block) -> Result<Decoded> {
        let mut found = match self.find(&block.data) {
            Ok(found) => found,
            Err(wrong) => {
                // A value of a record before it may be wrong, too, and comes first.
                let before = Block { data: block.data[..wrong.at].to_vec(), ..block };
                let end =
                    before.data.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let mut before = before;
                before.data.truncate(end);
                if let Ok(mut found) = self.find(&before.data) {
                    self.columns(&before, &mut found)?;
                }
                return Err(self.error(&block, wrong));
            }
        };
        let (arrays, keep) = self.columns(&block, &mut found)?;
        let rows = found.starts.len();
        let internal = |error: arrow::error::ArrowError| {
            Error::Internal(format!("an NDJSON batch does not fit its schema: {error}"))
        };
        // Of records that are left out, a column that is NOT NULL may hold a NULL here.
        let nullable: Vec<FieldRef> = self
            .schema
            .fields()
            .iter()
            .map(|f| Arc::new((**f).clone().with_nullable(true)))
            .collect();
        let open = Arc::new(arrow::datatypes::Schema::new(nullable));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let mut batch =
            RecordBatch::try_new_with_options(open, arrays, &options).map_err(internal)?;
        let mut starts = found.starts;
        if keep.contains(&false) {
            let mut kept = keep.iter();
            starts.retain(|_| *kept.next().unwrap_or(&true));
            batch = filter_record_batch(&batch, &BooleanArray::from(keep)).map_err(internal)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let left_out = found.left_out + (rows - batch.num_rows()) as u64;
        let columns = batch.columns().to_vec();
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(internal)?;
        let first_left_out = found.first.map(|wrong| {
            let place = place(&self.path, &block.data, block.line, wrong.at);
            format!("{place}: {} ('json.ignore-parse-errors')", wrong.message)
        });
        let places = Box::new(Lines::new(&self.path, &block, &starts));
        Ok(Decoded { batch, left_out, first_left_out, places: Some(places) })
    }
}
