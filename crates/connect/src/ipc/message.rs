//! Message of Arrow IPC. Its metadata are checked against the bytes of its body before use.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, UnionMode};
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow::ipc::{
    self, MessageHeader, MetadataVersion, root_as_message, root_as_message_unchecked,
};
use bytes::Bytes;
use millstream_contract::decoding;

use crate::guard::guarded;
use crate::input::may_unpack_to;

/// Bytes of a buffer at most, once it is unpacked: offsets of texts reach no further.
const BUFFER_BYTES_MAX: u64 = i32::MAX as u64;

/// Dictionaries by their numbers, as they are when a record batch comes.
pub(super) type Dictionaries = HashMap<i64, ArrayRef>;

/// A message without its body.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// As they stand in the file; [`Message::new`] has verified them.
    pub(super) metadata: VerifiedMetadata,
    pub(super) kind: MessageKind,
    pub(super) body_bytes: u64,
}

/// Metadata that [`root_as_message`] has verified.
#[derive(Debug, Clone)]
pub(super) struct VerifiedMetadata(Bytes);

impl VerifiedMetadata {
    fn new(metadata: Bytes) -> Result<VerifiedMetadata, String> {
        root_as_message(&metadata).map_err(|error| error.to_string())?;
        Ok(VerifiedMetadata(metadata))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn message(&self) -> ipc::Message<'_> {
        // SAFETY: `new` has verified these bytes, and nobody can write them: a `Bytes` gives only
        // shared access, and its owners here hand their buffers out again only when it is dropped.
        unsafe { root_as_message_unchecked(&self.0) }
    }
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    Schema,
    Dictionary,
    /// With so many rows.
    Batch(u64),
}

/// Layout of a record batch's columns.
#[derive(Debug, Clone)]
pub(super) struct BatchLayout {
    /// Where the buffers of the columns that are read lie in the body, ascending, apart from each
    /// other.
    pub(super) spans: Vec<Range<u64>>,
    pub(super) compressed: bool,
}

impl Message {
    /// Reads the metadata of a message, without the length before them.
    pub(super) fn new(metadata: Bytes) -> Result<Message, String> {
        let metadata = VerifiedMetadata::new(metadata)?;
        let message = metadata.message();
        let not_negative = |number: i64| u64::try_from(number).map_err(|_| "a negative length");
        let body_bytes = not_negative(message.bodyLength())?;
        let kind = match message.header_type() {
            MessageHeader::Schema => MessageKind::Schema,
            MessageHeader::DictionaryBatch => MessageKind::Dictionary,
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or("a batch without columns")?;
                MessageKind::Batch(not_negative(batch.length())?)
            }
            other => return Err(format!("expected a record batch, found a message {other:?}")),
        };
        Ok(Message { metadata, kind, body_bytes })
    }

    /// The schema, if this is a message of one.
    pub(super) fn schema(&self) -> Result<Schema, String> {
        guarded(|| {
            let message = self.metadata.message();
            let schema = message.header_as_schema().ok_or("expected a schema")?;
            schema_of(schema)
        })
    }

    /// Checks what a record batch says of itself, and where the columns `read` lie.
    pub(super) fn layout(&self, fields: &Fields, read: &[usize]) -> Result<BatchLayout, String> {
        let message = self.metadata.message();
        let batch = message.header_as_record_batch().ok_or("expected a record batch")?;
        check_lengths(&batch, self.body_bytes)?;
        let buffers = batch.buffers().ok_or("a batch without buffers")?;
        let mut variadic = batch.variadicBufferCounts().into_iter().flatten();
        let (mut next, mut first_node, mut spans) = (0, 0, Vec::new());
        let nodes = batch.nodes().ok_or("a batch without columns")?;
        let mut read = read.iter().peekable();
        for (number, field) in fields.iter().enumerate() {
            if first_node >= nodes.len() || nodes.get(first_node).length() != batch.length() {
                return Err(format!("column '{}' has another number of rows", field.name()));
            }
            let mut counted = BufferCounts { buffers: 0, nodes: 0, version: message.version() };
            counted.add(field.data_type(), &mut variadic)?;
            let end = next + counted.buffers;
            if end > buffers.len() {
                return Err("it has fewer buffers than its columns".to_string());
            }
            if read.next_if_eq(&&number).is_some() {
                spans.extend((next..end).map(|at| {
                    let buffer = buffers.get(at);
                    let start = buffer.offset() as u64;
                    start..start + buffer.length() as u64
                }));
            }
            (next, first_node) = (end, first_node + counted.nodes);
        }
        if next != buffers.len() || first_node != nodes.len() {
            return Err("it has other buffers than its columns".to_string());
        }
        Ok(BatchLayout { spans: joined(spans), compressed: batch.compression().is_some() })
    }

    /// The columns `read` of a record batch, whose layout has been checked and says where they lie.
    pub(super) fn columns(
        &self,
        body: &Buffer,
        schema: &SchemaRef,
        read: &[usize],
        layout: &BatchLayout,
        dictionaries: &Dictionaries,
    ) -> Result<RecordBatch, String> {
        guarded(|| {
            let message = self.metadata.message();
            let batch = message.header_as_record_batch().ok_or("expected a record batch")?;
            check_packed(&batch, body, &layout.spans)?;
            let version = message.version();
            RecordBatchDecoder::try_new(body, batch, schema.clone(), dictionaries, &version)
                .and_then(|decoder| decoder.with_projection(Some(read)).read_record_batch())
                .map_err(|error| error.to_string())
        })
    }

    /// Adds the values of a dictionary to those that are known, or puts them in place of them.
    /// Returns the dictionary's number.
    pub(super) fn add_dictionary(
        &self,
        body: &Buffer,
        schema: &Schema,
        dictionaries: &mut Dictionaries,
    ) -> Result<i64, String> {
        guarded(|| -> Result<i64, String> {
            let message = self.metadata.message();
            let dictionary = message.header_as_dictionary_batch().ok_or("expected a dictionary")?;
            let batch = dictionary.data().ok_or("a dictionary without values")?;
            check_lengths(&batch, self.body_bytes)?;
            let whole = 0..self.body_bytes;
            check_packed(&batch, body, std::slice::from_ref(&whole))?;
            read_dictionary(body, dictionary, schema, dictionaries, &message.version())
                .map_err(|error| error.to_string())?;
            Ok(dictionary.id())
        })
    }
}

/// The schema in a message or in a footer.
pub(super) fn schema_of(schema: ipc::Schema<'_>) -> Result<Schema, String> {
    if !schema.endianness().equals_to_target_endianness() {
        return Err("its numbers have their bytes in the other order".to_string());
    }
    if schema.fields().is_none() {
        return Err("a schema without columns".to_string());
    }
    Ok(ipc::convert::fb_to_schema(schema))
}

/// Checks that buffers lie within the body, and that no length is negative.
fn check_lengths(batch: &ipc::RecordBatch<'_>, body_bytes: u64) -> Result<(), String> {
    let within = |buffer: &ipc::Buffer| {
        let (offset, length) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
        let (Ok(offset), Ok(length)) = (offset, length) else { return false };
        offset.checked_add(length).is_some_and(|end| end <= body_bytes)
    };
    if !batch.buffers().into_iter().flatten().all(within) {
        return Err("a buffer lies outside of its message".to_string());
    }
    let sound = |node: &ipc::FieldNode| (0..=node.length()).contains(&node.null_count());
    match batch.nodes().into_iter().flatten().all(sound) {
        true => Ok(()),
        false => Err("a column has a negative length, or more NULLs than rows".to_string()),
    }
}

/// Checks what packed buffers say they unpack to, for which room is made before they are looked at.
/// Those outside of `spans` have not been read from the file.
fn check_packed(
    batch: &ipc::RecordBatch<'_>,
    body: &Buffer,
    spans: &[Range<u64>],
) -> Result<(), String> {
    if batch.compression().is_none() {
        return Ok(());
    }
    let is_read = |buffer: &&ipc::Buffer| {
        let (start, end) = (buffer.offset() as u64, (buffer.offset() + buffer.length()) as u64);
        spans.iter().any(|span| span.start <= start && end <= span.end)
    };
    let mut unpacked = 0u64;
    for buffer in batch.buffers().into_iter().flatten().filter(is_read) {
        let start = buffer.offset() as usize;
        let packed = body.get(start..start + buffer.length() as usize).unwrap_or_default();
        let Some(length) = packed.first_chunk::<8>() else { continue };
        let length = i64::from_le_bytes(*length);
        let may = may_unpack_to(packed.len() as u64).min(BUFFER_BYTES_MAX);
        if length > 0 && length as u64 > may {
            return Err(format!("a buffer would have {length} bytes once it is unpacked"));
        }
        unpacked = unpacked.saturating_add(length.max(0) as u64);
    }
    decoding::take(unpacked).map_err(|too_much| too_much.to_string())
}

/// The buffers and nodes that columns have.
struct BufferCounts {
    buffers: usize,
    nodes: usize,
    version: MetadataVersion,
}

impl BufferCounts {
    /// Adds those of a column of this type; `variadic` has the numbers of buffers of views.
    fn add(
        &mut self,
        data_type: &DataType,
        variadic: &mut impl Iterator<Item = i64>,
    ) -> Result<(), String> {
        use DataType::*;
        self.nodes += 1;
        self.buffers += match data_type {
            Null | RunEndEncoded(_, _) => 0,
            Utf8 | LargeUtf8 | Binary | LargeBinary | ListView(_) | LargeListView(_) => 3,
            Utf8View | BinaryView => {
                let count = variadic.next().ok_or("a view without a number of buffers")?;
                // Checked against the number of buffers in the message before any is read.
                2 + usize::try_from(count.clamp(0, 1 << 32)).unwrap_or(usize::MAX / 2)
            }
            Struct(_) | FixedSizeList(_, _) => 1,
            Union(_, mode) => {
                let nulls = usize::from(self.version < MetadataVersion::V5);
                nulls + 1 + usize::from(*mode == UnionMode::Dense)
            }
            _ => 2,
        };
        let mut of = |field: &Field| self.add(field.data_type(), variadic);
        match data_type {
            List(item)
            | LargeList(item)
            | ListView(item)
            | LargeListView(item)
            | FixedSizeList(item, _)
            | Map(item, _) => of(item),
            Struct(fields) => fields.iter().try_for_each(|field| of(field)),
            RunEndEncoded(ends, values) => of(ends).and_then(|()| of(values)),
            Union(fields, _) => fields.iter().try_for_each(|(_, field)| of(field)),
            _ => Ok(()),
        }
    }
}

/// Bytes between two spans that are read with them rather than left out.
const GAP_BYTES: u64 = 4 << 10;

/// Sorted spans; spans close to each other are joined.
fn joined(mut spans: Vec<Range<u64>>) -> Vec<Range<u64>> {
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable_by_key(|span| span.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(span.end);
            }
            _ => joined.push(span),
        }
    }
    joined
}
