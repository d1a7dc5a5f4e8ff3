//! Messages as they are: each is the value of a single column.
//!
//! | type | bytes of a message |
//! |---|---|
//! | STRING | UTF-8 |
//! | BYTES | any |
//! | BOOLEAN | one byte; 0 is FALSE |
//! | TINYINT, SMALLINT, INT, BIGINT | 1, 2, 4, 8 bytes: two's complement |
//! | FLOAT, DOUBLE | 4, 8 bytes: IEEE 754 |
//!
//! As in Flink, the highest byte of a number comes first, unless `raw.endianness` is
//! `little-endian`. An empty message is the empty text. A message that is no UTF-8, or has another
//! length, is malformed.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringBuilder,
};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    SchemaRef,
};
use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use crate::input::Name;
use crate::options::OnError;
use crate::records::{Block, Decode, MessageBounds};
use crate::types::sql_name;

/// Types of the column, for messages about others.
pub(crate) const RAW_MESSAGE_TYPES: &str =
    "STRING, BYTES, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT or DOUBLE";

const SKIP_HELP: &str = "'on_error' = 'skip' leaves such messages out, and 'table:NAME' keeps them";

/// Whether a message can be a value of this type.
pub(crate) fn is_message_type(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(
        data_type,
        D::Utf8
            | D::Binary
            | D::Boolean
            | D::Int8
            | D::Int16
            | D::Int32
            | D::Int64
            | D::Float32
            | D::Float64
    )
}

/// Decoder of messages.
#[derive(Debug)]
pub(super) struct RawMessages {
    source: Name,
    /// Projected columns: one or none.
    schema: SchemaRef,
    on_error: OnError,
    little_endian: bool,
}

/// Values of messages, and the malformed messages.
struct Values<'a> {
    plan: &'a RawMessages,
    block: &'a Block,
    messages: &'a MessageBounds,
    /// By value, the offset of its message.
    starts: Vec<u32>,
    left_out: u64,
    first_left_out: Option<LeftOut>,
}

impl RawMessages {
    /// Decoder into the columns of `schema`, one or none.
    pub(super) fn new(
        source: &Name,
        schema: Schema,
        on_error: OnError,
        little_endian: bool,
    ) -> RawMessages {
        RawMessages { source: source.clone(), schema: Arc::new(schema), on_error, little_endian }
    }
}

impl Values<'_> {
    /// Reads the message at each offset with `read`. A fault is a byte of the message, and text.
    fn each(
        &mut self,
        mut read: impl FnMut(usize, &[u8]) -> std::result::Result<(), (usize, String)>,
    ) -> Result<()> {
        for index in 0..self.messages.len() {
            let range = self.messages.range(index);
            let start = range.start;
            let Err((at, message)) = read(start, &self.block.data[range]) else {
                self.starts.push(start as u32);
                continue;
            };
            let place = self.block.place(&self.plan.source, start + at);
            if self.plan.on_error == OnError::Fail {
                return Err(Error::Data { place, message, help: SKIP_HELP.into() });
            }
            self.left_out += 1;
            let before = self.starts.len();
            self.first_left_out.get_or_insert(LeftOut { place, message, before });
        }
        Ok(())
    }

    fn texts(&mut self) -> Result<ArrayRef> {
        let data = &self.block.data;
        let mut texts = StringBuilder::with_capacity(self.messages.len(), data.len());
        // The line feeds between messages keep half a character from being completed by the next.
        match simdutf8::basic::from_utf8(data) {
            Ok(all) => self.each(|start, message| {
                texts.append_value(&all[start..start + message.len()]);
                Ok(())
            })?,
            Err(_) => self.each(|_, message| match simdutf8::compat::from_utf8(message) {
                Ok(text) => {
                    texts.append_value(text);
                    Ok(())
                }
                Err(error) => {
                    Err((error.valid_up_to(), "the message is not valid UTF-8".to_string()))
                }
            })?,
        }
        Ok(Arc::new(texts.finish()))
    }

    fn bytes(&mut self) -> Result<ArrayRef> {
        let mut bytes = BinaryBuilder::with_capacity(self.messages.len(), self.block.data.len());
        self.each(|_, message| {
            bytes.append_value(message);
            Ok(())
        })?;
        Ok(Arc::new(bytes.finish()))
    }

    fn booleans(&mut self) -> Result<ArrayRef> {
        let values = self.fixed(&DataType::Boolean, |[byte]: [u8; 1]| byte != 0)?;
        Ok(Arc::new(BooleanArray::from(values)))
    }

    fn numbers<T: ArrowPrimitiveType, const N: usize>(
        &mut self,
        read: impl Fn([u8; N]) -> T::Native,
    ) -> Result<ArrayRef> {
        let little_endian = self.plan.little_endian;
        let values = self.fixed(&T::DATA_TYPE, |mut bytes: [u8; N]| {
            if little_endian {
                bytes.reverse();
            }
            read(bytes)
        })?;
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), None)))
    }

    /// Values of `N` bytes.
    fn fixed<V, const N: usize>(
        &mut self,
        data_type: &DataType,
        read: impl Fn([u8; N]) -> V,
    ) -> Result<Vec<V>> {
        let mut values = Vec::with_capacity(self.messages.len());
        self.each(|_, message| match <[u8; N]>::try_from(message) {
            Ok(bytes) => {
                values.push(read(bytes));
                Ok(())
            }
            Err(_) => {
                let (name, length) = (sql_name(data_type), message.len());
                let s = if N == 1 { "" } else { "s" };
                Err((0, format!("expected {N} byte{s} for {name}, found {length}")))
            }
        })?;
        Ok(values)
    }
}

impl Decode for RawMessages {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        use DataType as D;
        let Some(messages) = block.messages.as_deref() else {
            return Err(Error::Internal("lines are no messages".into()));
        };
        let mut values = Values {
            plan: self,
            block,
            messages,
            starts: Vec::with_capacity(messages.len()),
            left_out: 0,
            first_left_out: None,
        };
        let mut columns = Vec::with_capacity(1);
        match self.schema.fields().first().map(|field| field.data_type()) {
            None => values.each(|_, _| Ok(()))?,
            Some(data_type) => columns.push(match data_type {
                D::Utf8 => values.texts()?,
                D::Binary => values.bytes()?,
                D::Boolean => values.booleans()?,
                D::Int8 => values.numbers::<Int8Type, 1>(i8::from_be_bytes)?,
                D::Int16 => values.numbers::<Int16Type, 2>(i16::from_be_bytes)?,
                D::Int32 => values.numbers::<Int32Type, 4>(i32::from_be_bytes)?,
                D::Int64 => values.numbers::<Int64Type, 8>(i64::from_be_bytes)?,
                D::Float32 => values.numbers::<Float32Type, 4>(f32::from_be_bytes)?,
                D::Float64 => values.numbers::<Float64Type, 8>(f64::from_be_bytes)?,
                other => return Err(Error::Internal(format!("raw column of type {other}"))),
            }),
        }
        let Values { starts, left_out, first_left_out, .. } = values;
        let options = RecordBatchOptions::new().with_row_count(Some(starts.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let places = block.places(&self.source, &starts);
        Ok(Decoded { left_out, first_left_out, ..Decoded::whole(batch, Some(places)) })
    }
}
