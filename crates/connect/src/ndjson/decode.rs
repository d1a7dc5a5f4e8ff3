//! Decoding a block: first the values of the members of each line, then column by column.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use memchr::memchr;
use millstream_contract::table::Decoded;
use millstream_contract::{Error, Result};
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::value::{self, Strings};
use crate::csv::Why;
use crate::input::Name;
use crate::records::{Block, Decode, Lines, place, shown};
use crate::types::{integer_range, sql_name};

/// What to do about an object over several lines.
pub(super) const LINES_HELP: &str = "NDJSON has one object per line: 'jq -c .' writes them so";
const ARRAY_HELP: &str = "NDJSON has one object per line: 'jq -c .[]' takes them out of an array";
const SKIP_HELP: &str = "'json.ignore-parse-errors' = 'true' leaves such records out";

/// What is the same for all blocks of a split.
#[derive(Debug)]
pub(super) struct Plan {
    path: Name,
    /// Of the projected columns.
    schema: SchemaRef,
    skip_errors: bool,
    any_as_string: bool,
}

/// Something wrong with a record.
struct Wrong {
    /// Offset in the block.
    at: usize,
    message: String,
    help: String,
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
        let schema = schema.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        let schema = Arc::new(schema);
        Ok(Plan { path: path.clone(), schema, skip_errors, any_as_string: false })
    }

    /// Whether a STRING takes any value, as it is written.
    pub(super) fn with_any_as_string(self, any_as_string: bool) -> Plan {
        Plan { any_as_string, ..self }
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
        let mut slots = vec![None; columns];
        let mut start = 0;
        while start < data.len() {
            let end = memchr(b'\n', &data[start..]).map_or(data.len(), |at| start + at);
            let line = &data[start..end];
            if !line.trim_ascii().is_empty() {
                match self.line(line, start, &mut slots) {
                    Ok(()) => {
                        // A block is far below 4 GiB.
                        found.starts.push(start as u32);
                        for (values, slot) in found.values.iter_mut().zip(&mut slots) {
                            values.push(slot.take());
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

    /// The values of a line's members, into `slots`.
    fn line<'a>(
        &self,
        line: &'a [u8],
        start: usize,
        slots: &mut [Option<&'a str>],
    ) -> std::result::Result<(), Wrong> {
        slots.fill(None);
        let text = std::str::from_utf8(line).map_err(|error| Wrong {
            at: start + error.valid_up_to(),
            message: "the line is not valid UTF-8".into(),
            help: "convert the file, for example with iconv -f ISO-8859-1 -t UTF-8".into(),
        })?;
        let first = line.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let members = Members { fields: self.schema.fields(), slots, hint: 0 };
        let read = members.deserialize(&mut deserializer).and_then(|()| deserializer.end());
        let Err(error) = read else { return Ok(()) };
        let at = start + error.column().saturating_sub(1).min(line.len());
        let wrong = |at, message: &str, help: &str| {
            Err(Wrong { at, message: message.into(), help: help.into() })
        };
        match line[first] {
            b'[' => wrong(start + first, "expected an object, found an array", ARRAY_HELP),
            b'{' if error.is_eof() => wrong(
                start + first,
                "the object that starts here does not end on its line",
                LINES_HELP,
            ),
            b'{' => {
                // Without the line, which is always 1, and the column, which the place has.
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default();
                wrong(at, message, SKIP_HELP)
            }
            _ => {
                let message = format!("expected an object, found '{}'", shown(&line[first..]));
                wrong(start + first, &message, LINES_HELP)
            }
        }
    }

    fn error(&self, block: &Block, wrong: Wrong) -> Error {
        let place = place(&self.path, &block.data, block.line, wrong.at);
        Error::Data { place, message: wrong.message, help: wrong.help }
    }

    /// What is wrong with the value of a column in a record.
    #[cold]
    fn misfit(
        &self,
        block: &Block,
        field: &FieldRef,
        start: u32,
        text: Option<&str>,
        why: Why,
    ) -> Wrong {
        let name = field.name();
        let wanted = sql_name(field.data_type());
        let text = text.filter(|text| *text != "null");
        // The text is part of the block.
        let at = text.map_or(start as usize, |text| {
            (text.as_ptr() as usize).saturating_sub(block.data.as_ptr() as usize)
        });
        let found = text.map_or_else(String::new, |text| shown(text.as_bytes()));
        let message = match (why, text) {
            (Why::Null, _) | (_, None) => format!("column '{name}' is NOT NULL, found NULL"),
            (Why::OutOfRange, _) => {
                let range = integer_range(field.data_type())
                    .map_or(String::new(), |(min, max)| format!(" ({min} to {max})"));
                format!(
                    "expected {wanted}{range} for column '{name}', found {found}, which does not fit"
                )
            }
            _ => format!("expected {wanted} for column '{name}', found {found}"),
        };
        let is_number = text.is_some_and(|text| text.as_bytes()[0].is_ascii_digit());
        let help = match field.data_type() {
            DataType::Timestamp(_, _) if is_number => {
                "declare the column BIGINT and compute the time from it, for example \
                 to_timestamp_millis(x)"
            }
            DataType::Utf8 if text.is_some_and(|text| !text.starts_with('"')) => {
                "a STRING is written in quotes; declare the column with the type that the value has"
            }
            data_type if integer_range(data_type).is_some() && found.contains(['.', 'e', 'E']) => {
                "declare the column DOUBLE or DECIMAL"
            }
            _ => SKIP_HELP,
        };
        Wrong { at, message, help: help.into() }
    }

    /// The columns; and by record, whether it is left out.
    fn columns(&self, block: &Block, found: &mut Found<'_>) -> Result<(Vec<ArrayRef>, Vec<bool>)> {
        let mut arrays = Vec::with_capacity(found.values.len());
        let mut keep = vec![true; found.starts.len()];
        let mut first: Option<Wrong> = None;
        for (field, values) in self.schema.fields().iter().zip(&found.values) {
            let mut fault = |row: usize, why: Why| {
                keep[row] = false;
                let wrong = self.misfit(block, field, found.starts[row], values[row], why);
                if first.as_ref().is_none_or(|first| wrong.at < first.at) {
                    first = Some(wrong);
                }
                self.skip_errors
            };
            let strings = match self.any_as_string {
                true => Strings::Any,
                false => Strings::Quoted,
            };
            let nullable = field.is_nullable();
            let column = value::column(values, field.data_type(), nullable, strings, &mut fault)?;
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
            format!("{place}: {}", wrong.message)
        });
        let places = Box::new(Lines::new(&self.path, &block, &starts));
        Ok(Decoded { batch, left_out, first_left_out, places: Some(places) })
    }
}

/// Takes the members of an object that are columns.
struct Members<'s, 'a> {
    fields: &'s [FieldRef],
    slots: &'s mut [Option<&'a str>],
    /// The column that is expected next: members mostly come in the same order.
    hint: usize,
}

impl<'a> DeserializeSeed<'a> for Members<'_, 'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(
        self,
        deserializer: D,
    ) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Members<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut members: M) -> std::result::Result<(), M::Error> {
        while let Some(name) = members.next_key_seed(MemberName)? {
            let expected = self.fields.get(self.hint).is_some_and(|field| *field.name() == *name);
            let column = match expected {
                true => Some(self.hint),
                false => self.fields.iter().position(|field| *field.name() == *name),
            };
            let Some(column) = column else {
                members.next_value::<serde::de::IgnoredAny>()?;
                continue;
            };
            if self.slots[column].is_some() {
                let twice = format!("the member '{}' is given twice", name.escape_debug());
                return Err(serde::de::Error::custom(twice));
            }
            self.slots[column] = Some(members.next_value::<&RawValue>()?.get());
            self.hint = column + 1;
        }
        Ok(())
    }
}

/// A member's name, borrowed where it has no escapes.
struct MemberName;

impl<'a> DeserializeSeed<'a> for MemberName {
    type Value = Cow<'a, str>;

    fn deserialize<D: serde::Deserializer<'a>>(
        self,
        d: D,
    ) -> std::result::Result<Cow<'a, str>, D::Error> {
        d.deserialize_str(MemberName)
    }
}

impl<'a> Visitor<'a> for MemberName {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_borrowed_str<E>(self, name: &'a str) -> std::result::Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> std::result::Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(name.to_string()))
    }
}
