//! Messages: records that come one by one from a source outside, say as values of Kafka.
//!
//! A message is one record of a format, of any bytes. A connector reads the format of a table from
//! its options ([`MessageFormat`]), collects messages ([`Messages`]) and decodes many of them at
//! once ([`MessageDecoder`]). The decoders are those of files; differences are these:
//!
//! - **json**: a message is one object, also over several lines. An empty message is malformed. A
//!   line feed between values is read as a carriage return, which shows only in a STRING that takes
//!   an object or array as it is written (`json.any-as-string`).
//! - **csv**: a message is one record without a header, and may end with a line end. An open quote
//!   spoils only its own message. An empty message is malformed, except where records have a single
//!   field: then it is NULL. A message of comments alone gives no record (`csv.allow-comments`).
//! - **raw**: a message is the value of a single column.
//! - **avro**, **avro-confluent**: a message is a record; its schema is the table's, or has its
//!   number in the message ([`SchemaRegistry`]).
//! - **debezium-json**, **debezium-avro-confluent**: a message is the envelope of a change.
//!
//! Faults name the source, the message's number and the column in the message: `topic 'clicks',
//! partition 3, offset 1234: column 17`.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use arrow::datatypes::{DataType, Field, Schema};
//! use millstream_connect::messages::{MessageFormat, Messages};
//! use millstream_contract::table::TableOptions;
//!
//! # fn main() -> millstream_contract::Result<()> {
//! let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
//! let options = [("format", "json"), ("on_error", "skip")];
//! let table = TableOptions {
//!     name: "clicks".into(),
//!     schema: schema.clone(),
//!     metadata: BTreeMap::new(),
//!     options: options.map(|(key, value)| (key.into(), value.into())).into(),
//!     partitioned_by: Vec::new(),
//!     primary_key: Vec::new(),
//!     base_dir: ".".into(),
//!     exact: false,
//! };
//! let format = MessageFormat::from_options(&table, &schema, None)?;
//! let decoder = format.decoder(&"topic 'clicks', partition 3".into(), &schema, &[0])?;
//! let mut messages = Messages::with_capacity(64, 2);
//! messages.push(1234, b"{\"k\": \"one\"}");
//! messages.push(1240, b"{\n  \"k\": 1\n}");
//! let found = decoder.decode(messages)?;
//! assert_eq!(found.message_of_row, [1]);
//! let first = found.decoded.first_left_out.unwrap().to_string();
//! assert!(first.starts_with("topic 'clicks', partition 3, offset 1234: column 7: expected"));
//! # Ok(())
//! # }
//! ```

mod envelope;
mod format;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;

use millstream_contract::table::{Decoded, Places};
use millstream_contract::{Error, Result};

pub use self::format::MessageFormat;
pub use self::writer::MessageWriter;
pub use crate::avro::SchemaRegistry;
pub use crate::options::OnError;
use crate::records::{Block, Decode, MessageBounds, RecordFormat, decode_as};

/// Bytes of messages that are decoded at once: offsets of texts have 32 bits.
const BYTES_MAX: usize = i32::MAX as usize;

/// Consecutive messages of a source, to be decoded at once.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    /// A line feed follows each message.
    data: Vec<u8>,
    bounds: MessageBounds,
}

impl Messages {
    /// None, with room for so many messages of so many bytes in all.
    pub fn with_capacity(bytes: usize, messages: usize) -> Messages {
        let data = Vec::with_capacity(bytes.saturating_add(messages));
        Messages { data, bounds: MessageBounds::with_capacity(messages) }
    }

    /// Appends a message. Its `number` in the source, say a Kafka offset, is higher than the number
    /// of the message before it.
    pub fn push(&mut self, number: u64, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        self.bounds.push(number, self.data.len());
        self.data.push(b'\n');
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.data.len() - self.len()
    }
}

/// Decoder of a source's messages. Decoding is pure, and may run on any worker.
#[derive(Debug, Clone)]
pub struct MessageDecoder {
    format: Arc<dyn RecordFormat>,
    decode: Arc<dyn Decode>,
    registry: Option<Arc<dyn SchemaRegistry>>,
    /// Whether the format reads lines, so that a message has to be one.
    joins_lines: bool,
}

/// Decoded messages.
#[derive(Debug)]
pub struct DecodedMessages {
    /// Rows, and the malformed messages among the others. [`Places::offset`] of a row is its
    /// message's number.
    pub decoded: Decoded,
    /// By row of the batch, the index of its message among those that were pushed.
    pub message_of_row: Vec<u32>,
}

impl MessageDecoder {
    /// A line for the user, once: that decoding waits for a registry of schemas.
    pub fn news(&self) -> Option<String> {
        self.registry.as_ref()?.news()
    }

    /// Decodes messages into the projected columns.
    ///
    /// # Errors
    ///
    /// The fault of the first malformed message, if the format's `on_error` is `fail`. With `skip`
    /// and `table:NAME`, malformed messages are left out, and with the latter they are in
    /// [`Decoded::malformed`], with all their bytes.
    pub fn decode(&self, messages: Messages) -> Result<DecodedMessages> {
        let Messages { mut data, mut bounds } = messages;
        if data.len() > BYTES_MAX {
            let message = format!("{} bytes of messages at once, at most {BYTES_MAX}", data.len());
            return Err(Error::Internal(message));
        }
        if self.joins_lines {
            bounds.join_lines(&mut data);
        }
        let block = Block::of_messages(data, bounds);
        let messages = block.messages.clone().unwrap_or_default();
        let decoded = decode_as(self.format.clone(), self.decode.clone(), block)?;
        let message_of_row = message_of_row(&decoded, &messages)?;
        Ok(DecodedMessages { decoded, message_of_row })
    }
}

/// By row, the index of its message.
fn message_of_row(decoded: &Decoded, messages: &MessageBounds) -> Result<Vec<u32>> {
    let (rows, mut index) = (decoded.batch.num_rows(), 0);
    if rows == messages.len() {
        return Ok((0..rows as u32).collect());
    }
    let places: Option<&dyn Places> = decoded.places.as_deref();
    let of_row = |row| {
        let number = places.and_then(|places| places.offset(row));
        while index < messages.len() && Some(messages.number(index)) != number {
            index += 1;
        }
        (index < messages.len()).then_some(index as u32)
    };
    let found = (0..rows).map(of_row).collect::<Option<Vec<u32>>>();
    found.ok_or_else(|| Error::Internal("the numbers of messages do not ascend".into()))
}
