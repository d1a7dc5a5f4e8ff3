//! Columns as they are filled, value by value, from JSON text.
//!
//! A [`Column`] knows of NULL; what else a type reads is a [`Build`]: [`Vector`] for numbers and
//! times, [`Strings`] for STRING and BYTES, and [`super::nested`] for types made of others. All of
//! them can be cut back to the rows before a record that turns out not to fit.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Field, TimeUnit};
use arrow::error::ArrowError;
use base64::Engine as _;

use super::fault::{Fault, Read};
use super::nested::{List, Map, Row};
use super::scan::{self, Quoted};
use super::value;
use crate::datetime::parse_date;
use crate::scalar::{BASE64, Why, stamp, time, time32};

/// A block's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) data: &'a [u8],
    /// Whether what is read is known to be JSON, and one member of each name is to be chosen by all
    /// the rules, with exact errors. Otherwise any doubt is an error.
    pub(super) careful: bool,
}

/// Which values columns take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// A STRING takes any value, as it is written.
    pub(super) any_as_string: bool,
    /// Values have to be held as they stand.
    pub(super) exact: bool,
    /// A missing member is a fault, not NULL.
    pub(super) fails_on_missing: bool,
}

/// Reads values of one type.
pub(super) trait Build: Send + Sync {
    /// The same without values, with room for so many.
    fn fresh(&self, rows: usize) -> Box<dyn Build>;

    /// Takes the value that begins at `at`, which is not `null`, inside of so many objects and
    /// arrays. Returns the offset behind it. After an error, some of it may have been taken.
    fn value(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read;

    /// Stands for a value that there is none of.
    fn placeholder(&mut self);

    /// Whole values.
    fn len(&self) -> usize;

    /// Back to so many, where there are more.
    fn truncate(&mut self, rows: usize);

    /// Adds members of objects within that are no fields, behind `path`; see [`Object::strange`].
    ///
    /// [`Object::strange`]: super::object::Object::strange
    fn strange(&self, _path: &str, _found: &mut Vec<(usize, String)>) {}

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError>;
}

/// A column being filled.
pub(super) struct Column {
    build: Box<dyn Build>,
    /// The rows that are NULL.
    nulls: Vec<u32>,
    nullable: bool,
    fails_on_missing: bool,
    data_type: DataType,
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("data_type", &self.data_type).finish_non_exhaustive()
    }
}

impl Column {
    /// Of a type that can be read; `None` if it cannot.
    pub(super) fn new(field: &Field, taken: Accepted) -> Option<Column> {
        let data_type = field.data_type().clone();
        let build = build(&data_type, taken)?;
        Some(Column {
            build,
            nulls: Vec::new(),
            nullable: field.is_nullable(),
            fails_on_missing: taken.fails_on_missing,
            data_type,
        })
    }

    /// The same without values, with room for so many.
    pub(super) fn fresh(&self, rows: usize) -> Column {
        Column {
            build: self.build.fresh(rows),
            nulls: Vec::new(),
            nullable: self.nullable,
            fails_on_missing: self.fails_on_missing,
            data_type: self.data_type.clone(),
        }
    }

    /// Takes the value that begins at `at`; see [`Build::value`].
    #[inline]
    pub(super) fn value(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        if scan::byte(text.data, at) == b'n' {
            return self.null(text, at);
        }
        self.build.value(text, at, depth).map_err(|fault| fault.of_type(&self.data_type))
    }

    fn null(&mut self, text: Text<'_>, at: usize) -> Read {
        let why = match scan::literal(text.data, at) {
            Some(end) if self.nullable => {
                self.absent();
                return Ok(end);
            }
            Some(_) => Why::Null,
            None => Why::Malformed,
        };
        Err(Fault::misfit(at, why).of_type(&self.data_type))
    }

    /// The object that begins at `at` lacks this member.
    pub(super) fn missing(&mut self, at: usize) -> Result<(), Box<Fault>> {
        if self.fails_on_missing {
            return Err(Fault::no_member(at));
        }
        if !self.nullable {
            return Err(Fault::missing(at));
        }
        self.absent();
        Ok(())
    }

    /// Appends NULL for a value within a NULL; a column that is not nullable gets a default value,
    /// which is never read.
    pub(super) fn absent(&mut self) {
        if self.nullable {
            // A block is far below 4 GiB.
            self.nulls.push(self.build.len() as u32);
        }
        self.build.placeholder();
    }

    /// Whole values, NULL included.
    pub(super) fn len(&self) -> usize {
        self.build.len()
    }

    /// Back to so many, where there are more.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.build.truncate(rows);
        while self.nulls.pop_if(|row| *row as usize >= rows).is_some() {}
    }

    /// See [`Build::strange`].
    pub(super) fn strange(&self, path: &str, found: &mut Vec<(usize, String)>) {
        self.build.strange(path, found);
    }

    pub(super) fn finish(self) -> Result<ArrayRef, ArrowError> {
        let rows = self.build.len();
        let nulls = (!self.nulls.is_empty()).then(|| {
            let mut valid = vec![true; rows];
            for row in self.nulls {
                valid[row as usize] = false;
            }
            NullBuffer::from(valid)
        });
        self.build.finish(&self.data_type, nulls)
    }
}

/// How values of a type are read; `None`: they cannot be.
fn build(data_type: &DataType, taken: Accepted) -> Option<Box<dyn Build>> {
    use DataType as D;
    use TimeUnit as U;
    let Accepted { any_as_string: any, exact, .. } = taken;
    Some(match data_type {
        D::Boolean => Box::new(Booleans(Vec::new())),
        D::Int8 => vector(value::signed::<i8>),
        D::Int16 => vector(value::signed::<i16>),
        D::Int32 => vector(value::signed::<i32>),
        D::Int64 => vector(value::signed::<i64>),
        D::UInt8 => vector(value::unsigned::<u8>),
        D::UInt16 => vector(value::unsigned::<u16>),
        D::UInt32 => vector(value::unsigned::<u32>),
        D::UInt64 => vector(value::unsigned::<u64>),
        D::Float32 => vector(value::float),
        D::Float64 if exact => vector(value::exact_double),
        D::Float64 => vector(value::double),
        D::Decimal128(precision, scale) => vector(value::decimal(*precision, *scale, exact)),
        D::Date32 => vector(value::quoted(|text: &[u8]| parse_date(text).ok_or(Why::Malformed))),
        D::Time32(unit @ (U::Second | U::Millisecond)) => {
            vector(value::quoted(time32(*unit, exact)))
        }
        D::Time64(unit @ (U::Microsecond | U::Nanosecond)) => {
            vector(value::quoted(time(*unit, exact)))
        }
        D::Timestamp(unit, zone) => vector(value::quoted(stamp(*unit, zone.is_some(), exact))),
        D::Utf8 => Box::new(Strings { any, ..Strings::new(false) }),
        D::Binary => Box::new(Strings::new(true)),
        D::Struct(fields) => Box::new(Row::new(fields, taken)?),
        D::List(item) => Box::new(List::new(item, taken)?),
        D::Map(entries, false) => Box::new(Map::new(entries, taken)?),
        _ => return None,
    })
}

/// Values of fixed width, each read by a function.
struct Vector<N, F> {
    values: Vec<N>,
    read: F,
}

fn vector<N, F>(read: F) -> Box<dyn Build>
where
    N: ArrowNativeType,
    F: Fn(&[u8], usize) -> Result<(N, usize), Why> + Clone + Send + Sync + 'static,
{
    Box::new(Vector { values: Vec::new(), read })
}

impl<N, F> Build for Vector<N, F>
where
    N: ArrowNativeType,
    F: Fn(&[u8], usize) -> Result<(N, usize), Why> + Clone + Send + Sync + 'static,
{
    fn fresh(&self, rows: usize) -> Box<dyn Build> {
        Box::new(Vector { values: Vec::with_capacity(rows), read: self.read.clone() })
    }

    fn value(&mut self, text: Text<'_>, at: usize, _depth: usize) -> Read {
        match (self.read)(text.data, at) {
            Ok((value, end)) => {
                self.values.push(value);
                Ok(end)
            }
            Err(why) => Err(Fault::misfit(at, why)),
        }
    }

    fn placeholder(&mut self) {
        self.values.push(N::default());
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
    }

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let data = ArrayData::builder(data_type.clone())
            .len(self.values.len())
            .add_buffer(Buffer::from_vec(self.values))
            .nulls(nulls);
        Ok(make_array(data.build()?))
    }
}

struct Booleans(Vec<bool>);

impl Build for Booleans {
    fn fresh(&self, rows: usize) -> Box<dyn Build> {
        Box::new(Booleans(Vec::with_capacity(rows)))
    }

    fn value(&mut self, text: Text<'_>, at: usize, _depth: usize) -> Read {
        let end = scan::literal(text.data, at).ok_or_else(|| Fault::malformed(at))?;
        self.0.push(scan::byte(text.data, at) == b't');
        Ok(end)
    }

    fn placeholder(&mut self) {
        self.0.push(false);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }

    fn finish(
        self: Box<Self>,
        _data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(self.0), nulls)))
    }
}

/// STRING and BYTES.
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// Where each ends.
    offsets: Vec<i32>,
    base64: bool,
    /// True if the column takes values of any type, as written.
    any: bool,
}

impl Strings {
    pub(super) fn new(base64: bool) -> Strings {
        Strings { bytes: Vec::new(), offsets: vec![0], base64, any: false }
    }

    /// The text of row `row`, if there are so many rows.
    pub(super) fn get(&self, row: usize) -> Option<&[u8]> {
        let (start, end) = (*self.offsets.get(row)?, *self.offsets.get(row + 1)?);
        self.bytes.get(start as usize..end as usize)
    }

    /// Takes a value that is no string, as it is written.
    #[cold]
    fn written(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        let end = scan::skip(text.data, at, depth).filter(|_| self.any);
        let end = end.ok_or_else(|| Fault::malformed(at))?;
        self.bytes.extend_from_slice(&text.data[at..end]);
        self.offsets.push(self.bytes.len() as i32);
        Ok(end)
    }

    /// Takes what is between the quotes.
    #[inline]
    pub(super) fn push(&mut self, quoted: Quoted<'_>) -> Result<(), Why> {
        match (self.base64, quoted.escapes) {
            (false, false) => self.bytes.extend_from_slice(quoted.text),
            (false, true) => {
                scan::unescape(quoted.text, &mut self.bytes).ok_or(Why::Malformed)?;
            }
            (true, _) => {
                let text = quoted.unescaped().ok_or(Why::Malformed)?;
                let decoded = BASE64.decode_vec(text.trim_ascii(), &mut self.bytes);
                decoded.map_err(|_| Why::Malformed)?;
            }
        }
        // The values are no longer than the block, which is far below 2 GiB.
        self.offsets.push(self.bytes.len() as i32);
        Ok(())
    }
}

impl Build for Strings {
    fn fresh(&self, rows: usize) -> Box<dyn Build> {
        let mut strings = Strings { any: self.any, ..Strings::new(self.base64) };
        strings.offsets.reserve(rows);
        strings.bytes.reserve(rows * 8);
        Box::new(strings)
    }

    fn value(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        if scan::byte(text.data, at) != b'"' {
            return self.written(text, at, depth);
        }
        let string = scan::string(text.data, at + 1);
        let (quoted, end) = string.ok_or_else(|| Fault::malformed(at))?;
        let length = quoted.text.len();
        match text.data.get(at + 1..).and_then(<[u8]>::first_chunk::<16>) {
            // A copy of a fixed length is quicker than one of the right length.
            Some(more) if length <= 16 && !quoted.escapes && !self.base64 => {
                let end = self.bytes.len() + length;
                self.bytes.extend_from_slice(more);
                self.bytes.truncate(end);
                self.offsets.push(end as i32);
            }
            _ => self.push(quoted).map_err(|why| Fault::misfit(at, why))?,
        }
        Ok(end)
    }

    fn placeholder(&mut self) {
        self.offsets.push(self.bytes.len() as i32);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.bytes.truncate(self.offsets.last().map_or(0, |end| *end as usize));
    }

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let data = ArrayData::builder(data_type.clone())
            .len(self.offsets.len() - 1)
            .add_buffer(Buffer::from_vec(self.offsets))
            .add_buffer(Buffer::from_vec(self.bytes))
            .nulls(nulls);
        Ok(make_array(data.build()?))
    }
}

/// Whether a type can be read from NDJSON.
pub(super) fn supported(data_type: &DataType) -> bool {
    build(data_type, Accepted::default()).is_some()
}
