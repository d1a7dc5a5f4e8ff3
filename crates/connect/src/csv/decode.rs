//! Second pass over a chunk: decodes one column after the other into Arrow arrays.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, NullBufferBuilder, PrimitiveArray,
    StringArray,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use base64::Engine as _;
use memchr::memchr;
use millstream_contract::Error;
use millstream_contract::nested::is_nested;

use super::dialect::Dialect;
use super::index::Index;
use crate::datetime::parse_date;
use crate::ndjson::{NdjsonFormat, Texts};
use crate::number::{parse_f32, parse_f64, parse_i64, parse_u64};
use crate::scalar::{BASE64, Why, decimal, is_plain_number, not_rounded, stamp, time, time32};

/// A column to decode.
#[derive(Debug, Clone)]
pub(crate) struct CsvColumn {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) nullable: bool,
    /// Which field of a record.
    pub(crate) field: usize,
}

/// The first field of a column that cannot be decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldFault {
    pub(crate) row: usize,
    pub(crate) why: Why,
}

/// Decodes the columns of one chunk.
pub(crate) struct Decoder<'a> {
    data: &'a [u8],
    index: &'a Index,
    dialect: &'a Dialect,
    /// Rows to leave out, if the dialect says so; may hold a row more than once.
    pub(crate) skipped: Vec<usize>,
    /// The first of them in the column decoded last.
    pub(crate) first_skipped: Option<FieldFault>,
}

/// A field's text.
enum FieldText<'a> {
    Plain(&'a [u8]),
    /// Without the quotes around it; quotes within are still doubled.
    Quoted(&'a [u8]),
}

/// Whether a type can be read from CSV.
pub(crate) fn supported(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(_, _)
            | DataType::Utf8
            | DataType::Binary
            | DataType::Date32
            | DataType::Timestamp(_, _)
            | DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond)
            | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
    ) || is_nested(data_type) && NdjsonFormat::supported(data_type)
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(data: &'a [u8], index: &'a Index, dialect: &'a Dialect) -> Decoder<'a> {
        Decoder { data, index, dialect, skipped: Vec::new(), first_skipped: None }
    }

    /// Decodes one column; the outer error is a bug, the inner one a field that does not fit.
    pub(crate) fn column(&mut self, column: &CsvColumn) -> Result<Decoded, Error> {
        use DataType as D;
        use TimeUnit as U;
        let exact = self.dialect.exact;
        Ok(match &column.data_type {
            D::Boolean => self.booleans(column),
            D::Int8 => self.primitive::<Int8Type>(column, signed),
            D::Int16 => self.primitive::<Int16Type>(column, signed),
            D::Int32 => self.primitive::<Int32Type>(column, signed),
            D::Int64 if exact => self.primitive::<Int64Type>(column, plain(signed)),
            D::Int64 => self.primitive::<Int64Type>(column, parse_i64),
            D::UInt8 => self.primitive::<UInt8Type>(column, unsigned),
            D::UInt16 => self.primitive::<UInt16Type>(column, unsigned),
            D::UInt32 => self.primitive::<UInt32Type>(column, unsigned),
            D::UInt64 => self.primitive::<UInt64Type>(column, parse_u64),
            D::Float32 => self.primitive::<Float32Type>(column, |text| match parse_f32(text) {
                Some(value) if value.is_infinite() => infinity(value, text),
                value => value.ok_or(Why::Malformed),
            }),
            D::Float64 if exact => {
                let double = plain(double);
                self.primitive::<Float64Type>(column, |text| not_rounded(text, double(text)?))
            }
            D::Float64 => self.primitive::<Float64Type>(column, double),
            D::Decimal128(precision, scale) if exact => {
                self.primitive::<Decimal128Type>(column, plain(decimal(*precision, *scale, true)))
            }
            D::Decimal128(precision, scale) => {
                self.primitive::<Decimal128Type>(column, decimal(*precision, *scale, false))
            }
            D::Date32 => {
                self.primitive::<Date32Type>(column, |text| parse_date(text).ok_or(Why::Malformed))
            }
            D::Time32(U::Second) => {
                self.primitive::<Time32SecondType>(column, time32(U::Second, exact))
            }
            D::Time32(U::Millisecond) => {
                self.primitive::<Time32MillisecondType>(column, time32(U::Millisecond, exact))
            }
            D::Time64(U::Microsecond) => {
                self.primitive::<Time64MicrosecondType>(column, time(U::Microsecond, exact))
            }
            D::Time64(U::Nanosecond) => {
                self.primitive::<Time64NanosecondType>(column, time(U::Nanosecond, exact))
            }
            D::Timestamp(unit @ U::Second, zone) => {
                self.primitive::<TimestampSecondType>(column, stamp(*unit, zone.is_some(), exact))
            }
            D::Timestamp(unit @ U::Millisecond, zone) => self
                .primitive::<TimestampMillisecondType>(column, stamp(*unit, zone.is_some(), exact)),
            D::Timestamp(unit @ U::Microsecond, zone) => self
                .primitive::<TimestampMicrosecondType>(column, stamp(*unit, zone.is_some(), exact)),
            D::Timestamp(unit @ U::Nanosecond, zone) => self
                .primitive::<TimestampNanosecondType>(column, stamp(*unit, zone.is_some(), exact)),
            D::Utf8 => return self.strings(column),
            D::Binary => return self.binary(column),
            other if is_nested(other) => return self.nested(column),
            other => return Err(Error::Internal(format!("CSV column of type {other}"))),
        })
    }

    #[inline]
    fn text(&self, row: usize, field: usize) -> FieldText<'a> {
        let (start, end) = self.index.field(row, field);
        let text = &self.data[start..end];
        match (text, self.dialect.quote) {
            ([first, inner @ .., _], Some(quote)) if *first == quote => FieldText::Quoted(inner),
            _ => FieldText::Plain(text),
        }
    }

    /// A field of a type other than string: empty means NULL, quoted or not.
    #[inline]
    fn value(&self, row: usize, field: usize) -> Option<&'a [u8]> {
        let text = match self.text(row, field) {
            FieldText::Quoted(text) => text,
            FieldText::Plain(text) => match &self.dialect.null_literal {
                Some(literal) if literal.as_bytes() == text => return None,
                _ => text,
            },
        };
        (!text.is_empty()).then_some(text)
    }

    /// Notes a field that does not fit: the row is left out, or all ends here.
    #[cold]
    fn fault(&mut self, row: usize, why: Why) -> Result<(), FieldFault> {
        if !self.dialect.skip_errors {
            return Err(FieldFault { row, why });
        }
        self.skipped.push(row);
        if self.first_skipped.is_none_or(|first| row < first.row) {
            self.first_skipped = Some(FieldFault { row, why });
        }
        Ok(())
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        column: &CsvColumn,
        parse: impl Fn(&[u8]) -> Result<T::Native, Why>,
    ) -> Result<ArrayRef, FieldFault> {
        let rows = self.index.rows();
        let mut values: Vec<T::Native> = Vec::with_capacity(rows);
        let mut nulls = NullBufferBuilder::new(rows);
        for row in 0..rows {
            let parsed = match self.value(row, column.field) {
                Some(text) => match parse(text) {
                    Ok(value) => Ok(Some(value)),
                    Err(why) => without_blanks(text, why, &parse),
                },
                None => Ok(None),
            };
            match parsed {
                Ok(Some(value)) => {
                    values.push(value);
                    nulls.append_non_null();
                }
                Ok(None) if column.nullable => {
                    values.push(T::Native::default());
                    nulls.append_null();
                }
                wrong => {
                    self.fault(row, wrong.err().unwrap_or(Why::Null))?;
                    values.push(T::Native::default());
                    nulls.append_non_null();
                }
            }
        }
        let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls.finish());
        Ok(Arc::new(array.with_data_type(column.data_type.clone())))
    }

    fn booleans(&mut self, column: &CsvColumn) -> Result<ArrayRef, FieldFault> {
        let rows = self.index.rows();
        let boolean = if self.dialect.exact { named_boolean } else { boolean };
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            let parsed = match self.value(row, column.field) {
                Some(text) => match boolean(text) {
                    Ok(value) => Ok(Some(value)),
                    Err(why) => without_blanks(text, why, boolean),
                },
                None => Ok(None),
            };
            match parsed {
                Ok(Some(value)) => values.push(Some(value)),
                Ok(None) if column.nullable => values.push(None),
                wrong => {
                    self.fault(row, wrong.err().unwrap_or(Why::Null))?;
                    values.push(Some(false));
                }
            }
        }
        Ok(Arc::new(BooleanArray::from(values)))
    }

    /// Strings are checked to be UTF-8 all at once, and one by one only if that fails.
    fn strings(&mut self, column: &CsvColumn) -> Result<Decoded, Error> {
        for check in [false, true] {
            let (offsets, values, nulls) = match self.gather_strings(column, check) {
                Ok(parts) => parts,
                Err(fault) => return Ok(Err(fault)),
            };
            let nulls = nulls.clone();
            match StringArray::try_new(offsets, values, nulls) {
                Ok(array) => return Ok(Ok(Arc::new(array))),
                Err(_) if !check => {}
                Err(error) => return Err(Error::Internal(error.to_string())),
            }
        }
        Err(Error::Internal("strings were neither valid nor invalid".into()))
    }

    fn gather_strings(
        &mut self,
        column: &CsvColumn,
        check: bool,
    ) -> Result<StringParts, FieldFault> {
        let rows = self.index.rows();
        let mut values: Vec<u8> = Vec::with_capacity(rows * 8);
        let mut offsets: Vec<i32> = Vec::with_capacity(rows + 1);
        let mut nulls = NullBufferBuilder::new(rows);
        offsets.push(0);
        for row in 0..rows {
            let start = values.len();
            let null = match self.text(row, column.field) {
                FieldText::Quoted(text) => {
                    self.unquote(text, &mut values);
                    false
                }
                FieldText::Plain(text) => {
                    values.extend_from_slice(text);
                    match &self.dialect.null_literal {
                        None => text.is_empty(),
                        Some(literal) => literal.as_bytes() == text,
                    }
                }
            };
            let wrong = match null {
                true if !column.nullable => Some(Why::Null),
                false if check && std::str::from_utf8(&values[start..]).is_err() => {
                    Some(Why::NotUtf8)
                }
                _ => None,
            };
            if let Some(why) = wrong {
                self.fault(row, why)?;
            }
            if null || wrong.is_some() {
                values.truncate(start);
            }
            // The values are no longer than the chunk, which is far below 2 GiB.
            offsets.push(values.len() as i32);
            nulls.append(!null || wrong.is_some());
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok((offsets, Buffer::from_vec(values), nulls.finish()))
    }

    /// Appends the text between quotes, doubled quotes made single.
    fn unquote(&self, mut text: &[u8], out: &mut Vec<u8>) {
        let quote = self.dialect.quote.unwrap_or(b'"');
        while let Some(at) = memchr(quote, text) {
            out.extend_from_slice(&text[..=at]);
            text = text.get(at + 2..).unwrap_or_default();
        }
        out.extend_from_slice(text);
    }

    /// Values made of others are JSON, as the sink writes them.
    fn nested(&mut self, column: &CsvColumn) -> Result<Decoded, Error> {
        let field = Field::new(&column.name, column.data_type.clone(), column.nullable);
        let mut values = Texts::new(&field, self.dialect.exact)
            .ok_or_else(|| Error::Internal(format!("CSV column of type {}", column.data_type)))?;
        let mut single = Vec::new();
        for row in 0..self.index.rows() {
            let text = self.value(row, column.field).map(<[u8]>::trim_ascii);
            let taken = match (text.filter(|text| !text.is_empty()), self.text(row, column.field)) {
                (Some(text), FieldText::Quoted(_)) => {
                    single.clear();
                    self.unquote(text, &mut single);
                    values.take(&single)
                }
                (Some(text), FieldText::Plain(_)) => values.take(text),
                (None, _) if column.nullable => {
                    values.absent();
                    Ok(())
                }
                (None, _) => Err(Why::Null),
            };
            if let Err(why) = taken {
                if let Err(fault) = self.fault(row, why) {
                    return Ok(Err(fault));
                }
                values.absent();
            }
        }
        Ok(Ok(values.finish()?))
    }

    fn binary(&mut self, column: &CsvColumn) -> Result<Decoded, Error> {
        let rows = self.index.rows();
        let mut values: Vec<Option<Vec<u8>>> = Vec::with_capacity(rows);
        for row in 0..rows {
            let (text, null) = match self.text(row, column.field) {
                FieldText::Quoted(text) => (text, false),
                FieldText::Plain(text) => match &self.dialect.null_literal {
                    None => (text, text.is_empty()),
                    Some(literal) => (text, literal.as_bytes() == text),
                },
            };
            let parsed = match null {
                true if column.nullable => Ok(None),
                true => Err(Why::Null),
                false => BASE64.decode(text.trim_ascii()).map(Some).map_err(|_| Why::Malformed),
            };
            match parsed {
                Ok(value) => values.push(value),
                Err(why) => {
                    if let Err(fault) = self.fault(row, why) {
                        return Ok(Err(fault));
                    }
                    values.push(Some(Vec::new()));
                }
            }
        }
        Ok(Ok(Arc::new(BinaryArray::from_iter(values))))
    }
}

/// A column, or the first field of it that does not fit.
type Decoded = Result<ArrayRef, FieldFault>;

/// The parts of a string column.
type StringParts = (OffsetBuffer<i32>, Buffer, Option<arrow::buffer::NullBuffer>);

/// Tries once more without blanks around the text; nothing but blanks is NULL.
#[cold]
fn without_blanks<V>(
    text: &[u8],
    why: Why,
    parse: impl Fn(&[u8]) -> Result<V, Why>,
) -> Result<Option<V>, Why> {
    let trimmed = text.trim_ascii();
    if trimmed.is_empty() {
        Ok(None)
    } else if trimmed.len() < text.len() {
        parse(trimmed).map(Some)
    } else {
        Err(why)
    }
}

#[inline]
fn signed<N: TryFrom<i64>>(text: &[u8]) -> Result<N, Why> {
    N::try_from(parse_i64(text)?).map_err(|_| Why::OutOfRange)
}

#[inline]
fn unsigned<N: TryFrom<u64>>(text: &[u8]) -> Result<N, Why> {
    N::try_from(parse_u64(text)?).map_err(|_| Why::OutOfRange)
}

/// A number that is too large is read as infinity; but only the word means it.
#[cold]
fn infinity<N>(value: N, text: &[u8]) -> Result<N, Why> {
    match text.last() {
        Some(b'0'..=b'9' | b'.') => Err(Why::OutOfRange),
        _ => Ok(value),
    }
}

#[inline]
fn double(text: &[u8]) -> Result<f64, Why> {
    match parse_f64(text) {
        Some(value) if value.is_infinite() => infinity(value, text),
        value => value.ok_or(Why::Malformed),
    }
}

/// Reads numbers that are written plainly.
fn plain<N>(parse: impl Fn(&[u8]) -> Result<N, Why>) -> impl Fn(&[u8]) -> Result<N, Why> {
    move |text| if is_plain_number(text) { parse(text) } else { Err(Why::Malformed) }
}

/// As [`boolean`], by its name only.
#[inline]
fn named_boolean(text: &[u8]) -> Result<bool, Why> {
    if text.len() < 4 { Err(Why::Malformed) } else { boolean(text) }
}

#[inline]
fn boolean(text: &[u8]) -> Result<bool, Why> {
    match text {
        b"1" | b"t" | b"T" => Ok(true),
        b"0" | b"f" | b"F" => Ok(false),
        _ if text.eq_ignore_ascii_case(b"true") => Ok(true),
        _ if text.eq_ignore_ascii_case(b"false") => Ok(false),
        _ => Err(Why::Malformed),
    }
}
