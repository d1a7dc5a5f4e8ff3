//! Arrow IPC that is sent message by message: a schema, then dictionaries and record batches. A
//! connector of another crate receives the messages. Any worker decodes the chunks.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::Array;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use millstream_contract::table::Chunk;
use millstream_contract::{Result, decoding};

use super::message::{Dictionaries, Message, MessageKind};
use super::source::Body;
use super::split::{Current, IpcPlan, with_dictionary};
use crate::columns::{Columns, damaged};
use crate::input::Name;

/// Rows of a message at most: as many as 64 MiB hold at a byte each. A column without buffers, such
/// as one of NULLs, may claim any number.
const MESSAGE_ROWS_MAX: u64 = 64 << 20;

/// A message's metadata, which have been checked; its body has not come.
#[derive(Debug)]
pub struct ArrowMessage(Message);

impl ArrowMessage {
    /// Metadata without the length before them, as Arrow Flight sends them.
    ///
    /// # Errors
    ///
    /// The fault of damaged metadata.
    pub fn new(metadata: Bytes) -> std::result::Result<ArrowMessage, String> {
        Message::new(metadata).map(ArrowMessage)
    }

    /// The metadata.
    pub fn metadata(&self) -> &[u8] {
        self.0.metadata.bytes()
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> u64 {
        self.0.body_bytes
    }
}

/// A record batch of a sender. Its chunks are made when they are asked for.
pub struct ArrowBatch {
    current: Current,
    row: u64,
    /// Bytes of dictionaries that this batch is the first to have.
    dictionary_bytes: u64,
    has_dictionaries: bool,
}

impl ArrowBatch {
    /// Rows that have not been handed out.
    pub fn rows(&self) -> u64 {
        self.current.rows - self.row
    }

    /// Whether columns have dictionaries.
    pub fn has_dictionaries(&self) -> bool {
        self.has_dictionaries
    }

    /// About how many bytes the batch takes, its body and new dictionaries included.
    pub fn bytes(&self) -> u64 {
        self.current.bytes().saturating_add(self.dictionary_bytes)
    }

    /// The next chunk, and its rows.
    pub fn next_chunk(&mut self) -> Option<(Box<dyn Chunk>, u64)> {
        let chunk = self.current.chunk(self.row, u64::MAX)?;
        let rows = chunk.rows.end - chunk.rows.start;
        self.row = chunk.rows.end;
        Some((Box::new(chunk), rows))
    }
}

/// Messages of one sender.
pub struct ArrowMessages {
    name: Name,
    plan: Arc<IpcPlan>,
    dictionaries: Arc<Dictionaries>,
    /// Bytes of each dictionary, and of all at most.
    dictionary_bytes: HashMap<i64, u64>,
    dictionary_bytes_max: u64,
    /// Bytes of dictionaries that have come since the last batch.
    new_bytes: u64,
    batches: u64,
    rows: u64,
}

impl ArrowMessages {
    /// Messages behind the message of a schema. `declared` is the schema of the table, and
    /// `projection` the columns of it that are read. `name` is for messages to people, for example
    /// `channel bids, producer shop-3`. All dictionaries take `dictionary_bytes_max` at most.
    ///
    /// # Errors
    ///
    /// [`Error::Data`](millstream_contract::Error::Data) if the metadata are damaged, or a column
    /// is missing or has another type.
    pub fn new(
        name: &str,
        schema: Bytes,
        (declared, projection): (&SchemaRef, &[usize]),
        dictionary_bytes_max: u64,
    ) -> Result<ArrowMessages> {
        let name: Name = name.into();
        let schema = Message::new(schema).and_then(|message| message.schema());
        let schema = Arc::new(schema.map_err(|message| damaged(&name, message))?);
        // The sender learns at once of a missing column, also of one that no query reads.
        let all: Vec<usize> = (0..declared.fields().len()).collect();
        Columns::find(&name, declared, &all, &schema.fields)?;
        let columns = Columns::find(&name, declared, projection, &schema.fields)?;
        Ok(ArrowMessages {
            name,
            plan: Arc::new(IpcPlan { schema, columns }),
            dictionaries: Arc::default(),
            dictionary_bytes: HashMap::new(),
            dictionary_bytes_max,
            new_bytes: 0,
            batches: 0,
            rows: 0,
        })
    }

    /// Takes in a message. Returns its record batch; of a dictionary, and of a batch without rows,
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Data`](millstream_contract::Error::Data) if the message is damaged, has too many
    /// rows, or is a dictionary with which all take too many bytes. Values are looked at only when
    /// a chunk is decoded.
    pub fn take(&mut self, message: ArrowMessage, body: Bytes) -> Result<Option<ArrowBatch>> {
        let ArrowMessage(message) = message;
        let place: Arc<str> = format!("{}, batch {}", self.name, self.batches + 1).into();
        if message.body_bytes != body.len() as u64 {
            let (expected, found) = (message.body_bytes, body.len());
            return Err(damaged(&place, format!("expected {expected} bytes, found {found}")));
        }
        let body = Body::Here(Buffer::from(body));
        let rows = match message.kind {
            MessageKind::Schema => return Err(damaged(&place, "a second schema")),
            MessageKind::Dictionary => return self.add_dictionary(&message, &body, &place),
            MessageKind::Batch(rows) => rows,
        };
        if rows > MESSAGE_ROWS_MAX {
            let message = format!("it has {rows} rows; a message has {MESSAGE_ROWS_MAX} at most");
            return Err(damaged(&place, message));
        }
        let (plan, dictionaries) = (self.plan.clone(), self.dictionaries.clone());
        let has_dictionaries = !dictionaries.is_empty();
        let current = Current::new(plan, (message, body, rows), dictionaries, place, self.rows)?;
        (self.batches, self.rows) = (self.batches + 1, self.rows.saturating_add(rows));
        let dictionary_bytes = std::mem::take(&mut self.new_bytes);
        let batch = ArrowBatch { current, row: 0, dictionary_bytes, has_dictionaries };
        Ok((rows > 0).then_some(batch))
    }

    /// Takes in a dictionary, unless all take too many bytes with it.
    fn add_dictionary(
        &mut self,
        message: &Message,
        body: &Body,
        place: &str,
    ) -> Result<Option<ArrowBatch>> {
        let (known, schema, max) =
            (&self.dictionaries, &self.plan.schema, self.dictionary_bytes_max);
        let place_of = || place.to_string();
        let (dictionaries, number) =
            decoding::within(max, || with_dictionary(known, message, body, schema, place_of))?;
        // Values may lie in the body, and keep all of it.
        let values = dictionaries.get(&number).map(|values| values.to_data());
        let values = values.map_or(Ok(0), |values| values.get_slice_memory_size())?;
        let bytes = message.body_bytes.max(values as u64);
        self.dictionary_bytes.insert(number, bytes);
        let all = self.dictionary_bytes.values().fold(0, |all, one| one.saturating_add(all));
        if all > max {
            let message = format!("dictionaries of {all} bytes; a sender has {max} at most");
            return Err(damaged(place, message));
        }
        self.dictionaries = dictionaries;
        self.new_bytes = self.new_bytes.saturating_add(bytes).min(all);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, DictionaryArray, NullArray, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Int32Type, Schema};
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};

    use super::*;

    /// The messages of a stream; the first is the schema.
    fn messages(batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<(Bytes, Bytes)> {
        let schema = batches[0].schema();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        let mut rest = Bytes::from(writer.into_inner().unwrap());
        let mut messages = Vec::new();
        loop {
            let head = rest.split_to(8);
            let length = u32::from_le_bytes(head[4..].try_into().unwrap()) as usize;
            if length == 0 {
                return messages;
            }
            let metadata = rest.split_to(length);
            let body = ArrowMessage::new(metadata.clone()).unwrap().body_bytes() as usize;
            messages.push((metadata, rest.split_to(body)));
        }
    }

    /// Reads the first declared column, if there is one.
    fn arrived(schema: &Bytes, declared: &[DataType], bytes_max: u64) -> ArrowMessages {
        let field = |(n, data_type): (usize, &DataType)| {
            Field::new(format!("c{n}"), data_type.clone(), true)
        };
        let fields: Vec<Field> = declared.iter().enumerate().map(field).collect();
        let declared = Arc::new(Schema::new(fields));
        let read: &[usize] = if declared.fields().is_empty() { &[] } else { &[0] };
        ArrowMessages::new("t", schema.clone(), (&declared, read), bytes_max).unwrap()
    }

    fn texts(texts: &[String]) -> RecordBatch {
        let keys = (0..texts.len() as i32).collect();
        let values = Arc::new(StringArray::from(texts.to_vec()));
        let column = DictionaryArray::<Int32Type>::new(keys, values);
        RecordBatch::try_from_iter([("c0", Arc::new(column) as ArrayRef)]).unwrap()
    }

    /// A batch of one column of NULLs, which has no buffer.
    fn nulls(rows: usize) -> RecordBatch {
        let column = Arc::new(NullArray::new(rows)) as ArrayRef;
        RecordBatch::try_from_iter_with_nullable([("c0", column, true)]).unwrap()
    }

    #[test]
    fn a_message_has_a_number_of_rows_that_memory_can_hold() {
        let allowed = 64 << 20;
        let batches = [allowed, allowed + 1, 1 << 50].map(nulls);
        let sent = messages(&batches, IpcWriteOptions::default());
        let mut arrived = arrived(&sent[0].0, &[], 1 << 20);
        let mut take = |number: usize| {
            let (metadata, body) = sent[number].clone();
            arrived.take(ArrowMessage::new(metadata).unwrap(), body)
        };
        let mut batch = take(1).unwrap().unwrap();
        assert_eq!(batch.rows(), allowed as u64);
        let (chunk, rows) = batch.next_chunk().unwrap();
        assert_eq!((chunk.decode().unwrap().num_rows() as u64, rows), (64 << 10, 64 << 10));
        for number in [2, 3] {
            let error = take(number).err().unwrap().to_string();
            assert!(error.contains("a message has 67108864 at most"), "{error}");
        }
    }

    #[test]
    fn a_batch_counts_the_columns_that_are_not_read() {
        let wide: StringArray = (0..100).map(|_| Some("x".repeat(1000))).collect();
        let narrow: StringArray = (0..100).map(|_| Some("y")).collect();
        let columns = [("c0", Arc::new(narrow) as ArrayRef), ("c1", Arc::new(wide))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let sent = messages(&[batch], IpcWriteOptions::default());
        let mut arrived = arrived(&sent[0].0, &[DataType::Utf8, DataType::Utf8], 1 << 20);
        let message = ArrowMessage::new(sent[1].0.clone()).unwrap();
        let mut batch = arrived.take(message, sent[1].1.clone()).unwrap().unwrap();
        assert!(batch.bytes() >= 100_000, "{}", batch.bytes());
        let (chunk, _) = batch.next_chunk().unwrap();
        assert!(chunk.bytes() >= 100_000, "{}", chunk.bytes());
        assert_eq!(chunk.decode().unwrap().column(0).as_string::<i32>().value(99), "y");
    }

    #[test]
    fn dictionaries_of_a_sender_have_a_bound() {
        let all: Vec<String> = (0..1000).map(|n| format!("{n:0100}")).collect();
        let batches: Vec<RecordBatch> = (1..=10).map(|n| texts(&all[..n * 100])).collect();
        let options = IpcWriteOptions::default();
        let sent = messages(&batches, options.with_dictionary_handling(DictionaryHandling::Delta));
        assert_eq!(sent.len(), 21, "a schema, and a dictionary and a batch ten times");
        let take = |bytes_max| {
            let mut arrived = arrived(&sent[0].0, &[DataType::Utf8], bytes_max);
            let mut bytes = Vec::new();
            for (metadata, body) in &sent[1..] {
                let message = ArrowMessage::new(metadata.clone()).unwrap();
                let batch = arrived.take(message, body.clone())?;
                bytes.extend(batch.map(|batch| batch.bytes()));
            }
            Ok::<_, millstream_contract::Error>(bytes)
        };
        let bytes = take(200_000).unwrap();
        assert!(bytes[9] > 100_000, "a batch counts its new dictionary: {bytes:?}");
        let error = take(50_000).unwrap_err().to_string();
        assert!(error.contains("a sender has 50000 at most"), "{error}");
    }

    #[test]
    fn a_packed_dictionary_is_refused_before_it_is_unpacked() {
        let long = texts(&["x".repeat(4 << 20), "y".into()]);
        let options = IpcWriteOptions::default();
        let options = options.try_with_compression(Some(CompressionType::ZSTD)).unwrap();
        let sent = messages(&[long], options);
        assert!(sent[1].1.len() < 100_000);
        let take = |bytes_max| {
            let mut arrived = arrived(&sent[0].0, &[DataType::Utf8], bytes_max);
            arrived.take(ArrowMessage::new(sent[1].0.clone()).unwrap(), sent[1].1.clone())
        };
        assert!(take(8 << 20).is_ok());
        let error = take(1 << 20).err().unwrap().to_string();
        assert!(error.contains("once decoded, this would take"), "{error}");
    }
}
