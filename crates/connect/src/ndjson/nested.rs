//! Types made of others: ROW is an object, ARRAY an array, MAP an object whose names are keys.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;
use millstream_contract::decoding::{TOO_MUCH_HELP, take_of_record, value_bytes};

use super::column::{Accepted, Build, Column, Strings, Text};
use super::fault::{Fault, Read, SKIP_HELP, Wrong};
use super::members::DEPTH_MAX;
use super::names::Names;
use super::object::Object;
use super::scan::{self, blanks, byte};
use crate::records::{Unit, shown};

/// Keys of a map that are compared each with each; more are looked up.
const KEYS_COMPARED: usize = 8;

/// Elements that are counted at once.
const ELEMENTS_COUNTED: usize = 64;

/// `ROW<…>`.
pub(super) struct Row {
    object: Object,
    rows: usize,
}

impl Row {
    pub(super) fn new(fields: &Fields, taken: Accepted) -> Option<Row> {
        let all: Vec<usize> = (0..fields.len()).collect();
        let object = Object::new(fields, Names::new(fields, &all).noting(taken.exact), taken)?;
        Some(Row { object, rows: 0 })
    }
}

impl Build for Row {
    fn fresh(&self, rows: usize) -> Box<dyn Build> {
        Box::new(Row { object: self.object.fresh(rows), rows: 0 })
    }

    fn value(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        if byte(text.data, at) != b'{' {
            return Err(Fault::malformed(at));
        }
        let end = if text.careful {
            let end = scan::skip(text.data, at, depth).ok_or_else(|| Fault::syntax(at))?;
            // The record is known to be JSON, so no fault is about its container.
            self.object.read_carefully(text.data, &text.data[at..end], at, Unit::Line)?;
            end
        } else {
            self.object.read(text, at, depth)?
        };
        self.rows += 1;
        Ok(end)
    }

    fn placeholder(&mut self) {
        self.object.absent();
        self.rows += 1;
    }

    fn len(&self) -> usize {
        self.rows
    }

    fn truncate(&mut self, rows: usize) {
        self.object.truncate(rows);
        self.rows = self.rows.min(rows);
    }

    fn strange(&self, path: &str, found: &mut Vec<(usize, String)>) {
        self.object.strange(path, found);
    }

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let DataType::Struct(fields) = data_type else { return Err(unlike(data_type)) };
        let columns = self.object.finish()?;
        let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, self.rows)?;
        Ok(Arc::new(array))
    }
}

/// Elements of arrays and maps, counted before there are too many of them.
#[derive(Debug, Clone, Copy)]
struct Elements {
    /// Of each, with NULL and the spare room of vectors that grow.
    bytes: u64,
}

impl Elements {
    fn new(item: &Field) -> Elements {
        Elements { bytes: 2 * value_bytes(item.data_type()) }
    }

    /// Notes that there are so many now; `last`: there will be no more.
    fn note(self, count: usize, last: bool, at: usize) -> Result<(), Box<Fault>> {
        let new = count % ELEMENTS_COUNTED;
        let new = match (new, last) {
            (0, false) => ELEMENTS_COUNTED,
            (_, false) => return Ok(()),
            (new, true) => new,
        };
        take_of_record(self.bytes.saturating_mul(new as u64))
            .map_err(|too_much| Fault::said(Wrong::new(at, too_much.to_string(), TOO_MUCH_HELP)))
    }
}

/// `ARRAY<…>`.
pub(super) struct List {
    item: Column,
    elements: Elements,
    /// Where each ends.
    offsets: Vec<i32>,
}

impl List {
    pub(super) fn new(item: &Field, taken: Accepted) -> Option<List> {
        let elements = Elements::new(item);
        Some(List { item: Column::new(item, taken)?, elements, offsets: vec![0] })
    }
}

impl Build for List {
    fn fresh(&self, rows: usize) -> Box<dyn Build> {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Box::new(List { item: self.item.fresh(rows), elements: self.elements, offsets })
    }

    fn value(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        let (data, start) = (text.data, at);
        if byte(data, at) != b'[' || depth >= DEPTH_MAX {
            return Err(Fault::malformed(at));
        }
        let first = self.item.len();
        let mut at = blanks(data, at + 1);
        let mut more = byte(data, at) != b']';
        while more {
            at = self.item.value(text, at, depth + 1).map_err(|fault| {
                let index = self.item.len() - first;
                fault.inside(&format!("[{}]", index + 1))
            })?;
            self.elements.note(self.item.len() - first, false, start)?;
            at = blanks(data, at);
            match byte(data, at) {
                b',' => at = blanks(data, at + 1),
                b']' => more = false,
                _ => return Err(Fault::syntax(at)),
            }
        }
        self.elements.note(self.item.len() - first, true, start)?;
        // A block is far below 2 GiB.
        self.offsets.push(self.item.len() as i32);
        Ok(at + 1)
    }

    fn placeholder(&mut self) {
        self.offsets.push(self.item.len() as i32);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.item.truncate(self.offsets.last().map_or(0, |end| *end as usize));
    }

    fn strange(&self, path: &str, found: &mut Vec<(usize, String)>) {
        self.item.strange(path, found);
    }

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let DataType::List(item) = data_type else { return Err(unlike(data_type)) };
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let array = ListArray::try_new(item.clone(), offsets, self.item.finish()?, nulls)?;
        Ok(Arc::new(array))
    }
}

/// `MAP<STRING, …>`.
pub(super) struct Map {
    keys: Strings,
    values: Column,
    elements: Elements,
    /// Where each ends.
    offsets: Vec<i32>,
}

impl Map {
    pub(super) fn new(entries: &Field, taken: Accepted) -> Option<Map> {
        let (key, value) = entry(entries)?;
        let values = Column::new(value, taken)?;
        let keys = Strings::new(false);
        let elements = Elements::new(entries);
        (*key.data_type() == DataType::Utf8).then(|| Map {
            keys,
            values,
            elements,
            offsets: vec![0],
        })
    }
}

/// The fields of a map's entries.
fn entry(entries: &Field) -> Option<(&FieldRef, &FieldRef)> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => Some((&fields[0], &fields[1])),
        _ => None,
    }
}

impl Map {
    /// Whether the last key is new among those from `first` on.
    fn is_new(&self, first: usize) -> bool {
        let last = self.keys.len().saturating_sub(1);
        let key = self.keys.get(last);
        (first..last).all(|other| self.keys.get(other) != key)
    }

    /// The first key from `first` on that was there before.
    fn again(&self, first: usize) -> Option<&[u8]> {
        let mut seen = HashSet::new();
        let mut keys = (first..self.keys.len()).filter_map(|key| self.keys.get(key));
        keys.find(|key| !seen.insert(*key))
    }
}

impl Build for Map {
    fn fresh(&self, rows: usize) -> Box<dyn Build> {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        let (keys, values) = (Strings::new(false), self.values.fresh(rows));
        Box::new(Map { keys, values, elements: self.elements, offsets })
    }

    fn value(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        let data = text.data;
        if byte(data, at) != b'{' || depth >= DEPTH_MAX {
            return Err(Fault::malformed(at));
        }
        let (start, first) = (at, self.values.len());
        let mut at = blanks(data, at + 1);
        let mut more = byte(data, at) != b'}';
        while more {
            let (name, value) = scan::name(data, at).ok_or_else(|| Fault::syntax(at))?;
            self.keys.push(name).map_err(|why| Fault::misfit(at, why))?;
            if self.keys.len() - first <= KEYS_COMPARED && !self.is_new(first) {
                return Err(Fault::said(twice(at, name.text)));
            }
            at = self
                .values
                .value(text, value, depth + 1)
                .map_err(|fault| fault.inside(&format!("['{}']", shown(name.text))))?;
            self.elements.note(self.values.len() - first, false, start)?;
            at = blanks(data, at);
            match byte(data, at) {
                b',' => at = blanks(data, at + 1),
                b'}' => more = false,
                _ => return Err(Fault::syntax(at)),
            }
        }
        self.elements.note(self.values.len() - first, true, start)?;
        if self.keys.len() - first > KEYS_COMPARED
            && let Some(key) = self.again(first)
        {
            return Err(Fault::said(twice(start, key)));
        }
        self.offsets.push(self.keys.len() as i32);
        Ok(at + 1)
    }

    fn placeholder(&mut self) {
        self.offsets.push(self.keys.len() as i32);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        let entries = self.offsets.last().map_or(0, |end| *end as usize);
        self.keys.truncate(entries);
        self.values.truncate(entries);
    }

    fn strange(&self, path: &str, found: &mut Vec<(usize, String)>) {
        self.values.strange(path, found);
    }

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let DataType::Map(entries, sorted) = data_type else { return Err(unlike(data_type)) };
        let DataType::Struct(fields) = entries.data_type() else { return Err(unlike(data_type)) };
        let keys = Box::new(self.keys).finish(&DataType::Utf8, None)?;
        let pairs = StructArray::try_new(fields.clone(), vec![keys, self.values.finish()?], None)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(Arc::new(MapArray::try_new(entries.clone(), offsets, pairs, nulls, *sorted)?))
    }
}

fn twice(at: usize, key: &[u8]) -> Wrong {
    Wrong::new(at, format!("the key '{}' is given twice", shown(key)), SKIP_HELP)
}

fn unlike(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a column was built for another type than {data_type}"))
}
