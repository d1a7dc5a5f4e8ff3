//! A batch as it lies in slots: a table of lengths, and the columns' buffers as they are in memory.
//!
//! The table has, for each array in the order of the schema, parents before children: its length,
//! the number of its buffers, whether the first is a validity bitmap, and the length of each buffer
//! in bytes; all as little-endian words of 8 bytes. Buffers follow in the same order, where
//! [`Placement`] says. Types that have no layout here go as one buffer with an Arrow IPC stream.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions,
    make_array,
};
use datafusion::arrow::buffer::{Buffer, MutableBuffer};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;

use crate::frame::Kind;
use crate::placement::{Piece, Placement};

/// A batch's buffers, ready to be copied into slots.
pub(crate) struct Image {
    pub(crate) kind: Kind,
    pub(crate) rows: usize,
    table: Vec<u64>,
    buffers: Vec<Buffer>,
    /// Bytes of buffers that had to be made for this.
    pub(crate) rewritten_bytes: u64,
}

/// Content of one slot: places and bytes.
#[derive(Default)]
pub(crate) struct Part<'a> {
    pub(crate) pieces: Vec<(usize, &'a [u8])>,
    pub(crate) bytes: usize,
}

/// A type that has no layout here.
struct NoLayout;

impl Image {
    pub(crate) fn of(batch: &RecordBatch) -> Result<Image, ArrowError> {
        let mut image = Image {
            kind: Kind::Batch,
            rows: batch.num_rows(),
            table: Vec::new(),
            buffers: Vec::new(),
            rewritten_bytes: 0,
        };
        for column in batch.columns() {
            let column = image.compact(column)?;
            if image.array(&column.to_data()).is_err() {
                return Image::serialised(batch);
            }
        }
        Ok(image)
    }

    fn serialised(batch: &RecordBatch) -> Result<Image, ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
        writer.write(batch)?;
        let bytes = writer.into_inner()?;
        Ok(Image {
            kind: Kind::Serialised,
            rows: batch.num_rows(),
            table: vec![bytes.len() as u64],
            rewritten_bytes: bytes.len() as u64,
            buffers: vec![Buffer::from_vec(bytes)],
        })
    }

    /// Bytes of the table.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.table.len() as u64 * 8
    }

    /// Where everything goes, in slots with so much room.
    pub(crate) fn parts<'a>(&'a self, table: &'a [u8], room: usize) -> Vec<Part<'a>> {
        let mut placement = Placement::new(room);
        let mut parts = vec![Part::default()];
        let sections = [table].into_iter().chain(self.buffers.iter().map(Buffer::as_slice));
        for section in sections {
            let mut from = 0;
            for piece in placement.place(section.len()) {
                parts.resize_with(placement.parts(), Part::default);
                let bytes = &section[from..from + piece.bytes];
                parts[piece.part].pieces.push((piece.at, bytes));
                parts[piece.part].bytes = piece.at + piece.bytes;
                from += piece.bytes;
            }
        }
        parts
    }

    /// The table's bytes.
    pub(crate) fn table(&self) -> Vec<u8> {
        self.table.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A column without unreferenced values.
    fn compact(&mut self, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let compact: ArrayRef = if let Some(dictionary) = column.as_any_dictionary_opt() {
            if dictionary.values().len() <= dictionary.len() {
                return Ok(column.clone());
            }
            arrow_select::dictionary::garbage_collect_any_dictionary(dictionary)?
        } else if let Some(views) = column.as_string_view_opt() {
            if is_dense(views.total_buffer_bytes_used(), views.data_buffers()) {
                return Ok(column.clone());
            }
            Arc::new(views.gc())
        } else if let Some(views) = column.as_binary_view_opt() {
            if is_dense(views.total_buffer_bytes_used(), views.data_buffers()) {
                return Ok(column.clone());
            }
            Arc::new(views.gc())
        } else {
            return Ok(column.clone());
        };
        self.rewritten_bytes += compact.get_buffer_memory_size() as u64;
        Ok(compact)
    }

    /// Appends an array and its children.
    fn array(&mut self, data: &ArrayData) -> Result<(), NoLayout> {
        let (offset, len) = (data.offset(), data.len());
        let validity = data.nulls().map(|nulls| {
            let bits = nulls.inner();
            self.bits(bits.inner(), bits.offset(), len)
        });
        let mut children = Vec::new();
        let buffers = match data.data_type() {
            DataType::Null => vec![],
            DataType::Boolean => vec![self.bits(&data.buffers()[0], offset, len)],
            DataType::Utf8 | DataType::Binary => {
                let (offsets, from, to) = self.offsets::<i32>(data);
                vec![offsets, data.buffers()[1].slice_with_length(from, to - from)]
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                let (offsets, from, to) = self.offsets::<i64>(data);
                vec![offsets, data.buffers()[1].slice_with_length(from, to - from)]
            }
            DataType::Utf8View | DataType::BinaryView => {
                let (views, values) = data.buffers().split_first().ok_or(NoLayout)?;
                let views = views.slice_with_length(offset * 16, len * 16);
                [views].into_iter().chain(values.iter().cloned()).collect()
            }
            DataType::FixedSizeBinary(width) => vec![fixed(data, *width as usize)],
            DataType::Dictionary(key, _) => {
                children.push(data.child_data()[0].clone());
                vec![fixed(data, key.primitive_width().ok_or(NoLayout)?)]
            }
            DataType::List(_) | DataType::Map(_, _) => {
                let (offsets, from, to) = self.offsets::<i32>(data);
                children.push(data.child_data()[0].slice(from, to - from));
                vec![offsets]
            }
            DataType::LargeList(_) => {
                let (offsets, from, to) = self.offsets::<i64>(data);
                children.push(data.child_data()[0].slice(from, to - from));
                vec![offsets]
            }
            DataType::FixedSizeList(_, width) => {
                let width = *width as usize;
                children.push(data.child_data()[0].slice(offset * width, len * width));
                vec![]
            }
            // Slicing the struct has sliced its children.
            DataType::Struct(_) if data.child_data().iter().all(|child| child.len() == len) => {
                children.extend(data.child_data().iter().cloned());
                vec![]
            }
            other => vec![fixed(data, other.primitive_width().ok_or(NoLayout)?)],
        };
        let count = buffers.len() + usize::from(validity.is_some());
        self.table.extend([len as u64, count as u64, u64::from(validity.is_some())]);
        for buffer in validity.into_iter().chain(buffers) {
            self.table.push(buffer.len() as u64);
            self.buffers.push(buffer);
        }
        children.iter().try_for_each(|child| self.array(child))
    }

    /// So many bits from `offset` on, from a byte's first bit on.
    fn bits(&mut self, bits: &Buffer, offset: usize, len: usize) -> Buffer {
        if !offset.is_multiple_of(8) {
            self.rewritten_bytes += len.div_ceil(8) as u64;
        }
        bits.bit_slice(offset, len)
    }

    /// An array's offsets, beginning at 0, and the range of values that they point to.
    fn offsets<T: OffsetSizeTrait>(&mut self, data: &ArrayData) -> (Buffer, usize, usize) {
        if data.is_empty() {
            return (Buffer::from_vec(vec![T::zero()]), 0, 0);
        }
        let (offset, count) = (data.offset(), data.len() + 1);
        let offsets = &data.buffers()[0].typed_data::<T>()[offset..offset + count];
        let (from, to) = (offsets[0], offsets[count - 1]);
        let buffer = if from == T::zero() {
            let width = size_of::<T>();
            data.buffers()[0].slice_with_length(offset * width, count * width)
        } else {
            self.rewritten_bytes += size_of_val(offsets) as u64;
            Buffer::from_vec(offsets.iter().map(|at| *at - from).collect::<Vec<T>>())
        };
        (buffer, from.as_usize(), to.as_usize())
    }
}

/// Whether at least half of what views' buffers have is pointed to.
fn is_dense(used: usize, buffers: &[Buffer]) -> bool {
    buffers.iter().map(Buffer::len).sum::<usize>() <= 2 * used
}

/// The buffer of an array of values of this width.
fn fixed(data: &ArrayData, width: usize) -> Buffer {
    data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width)
}

/// Received parts of a batch.
pub(crate) struct Parts<'a> {
    /// Content behind the header, of each message of the batch.
    pub(crate) parts: &'a [Buffer],
    pub(crate) room: usize,
    pub(crate) kind: Kind,
    pub(crate) rows: u64,
    pub(crate) table_bytes: u64,
}

impl Parts<'_> {
    /// The batch, whose columns are slices of the parts, and how many bytes had to be joined. It is
    /// checked as data of strangers are: lengths, offsets, and that texts are UTF-8.
    pub(crate) fn batch(&self, schema: &SchemaRef) -> Result<(RecordBatch, u64), ArrowError> {
        let mut taking =
            Taking { parts: self, placement: Placement::new(self.room), joined: 0, at: 0 };
        let bytes =
            usize::try_from(self.table_bytes).map_err(|_| wrong("its table is too long"))?;
        let table = taking.section(bytes)?;
        let (words, []) = table.as_slice().as_chunks::<8>() else {
            return Err(wrong("its table has no whole words"));
        };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let batch = if self.kind == Kind::Serialised {
            let stream = taking.buffer(&words)?;
            let mut reader = StreamReader::try_new(stream.as_slice(), None)?;
            reader.next().ok_or_else(|| wrong("its stream is empty"))??
        } else {
            let mut columns = Vec::with_capacity(schema.fields().len());
            for field in schema.fields() {
                columns.push(make_array(taking.array(&words, field.data_type())?));
            }
            let rows = usize::try_from(self.rows).map_err(|_| wrong("it has too many rows"))?;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(schema.clone(), columns, &options)?
        };
        Ok((batch, taking.joined))
    }
}

/// Takes arrays from the parts, in the order in which they were put.
struct Taking<'a> {
    parts: &'a Parts<'a>,
    placement: Placement,
    joined: u64,
    /// The next word of the table.
    at: usize,
}

impl Taking<'_> {
    fn word(&mut self, words: &[u64]) -> Result<usize, ArrowError> {
        let word = words.get(self.at).ok_or_else(|| wrong("its table is too short"))?;
        self.at += 1;
        usize::try_from(*word).map_err(|_| wrong("a length is too long"))
    }

    /// The next buffer, whose length is the table's next word.
    fn buffer(&mut self, words: &[u64]) -> Result<Buffer, ArrowError> {
        let bytes = self.word(words)?;
        self.section(bytes)
    }

    /// The next so many bytes: a slice of the slot that they are in, or put together from several.
    fn section(&mut self, bytes: usize) -> Result<Buffer, ArrowError> {
        let Parts { parts, room, .. } = self.parts;
        if bytes > parts.len() * room {
            return Err(wrong("a buffer is longer than all its messages"));
        }
        let mut pieces = self.placement.place(bytes);
        let find = |at: Piece| {
            let part = parts.get(at.part).filter(|part| at.at + at.bytes <= part.len());
            let part = part.ok_or_else(|| wrong("a buffer ends behind its messages"))?;
            Ok::<_, ArrowError>(part.slice_with_length(at.at, at.bytes))
        };
        let Some(first) = pieces.next() else { return Ok(MutableBuffer::new(0).into()) };
        if first.bytes == bytes {
            return find(first);
        }
        self.joined += bytes as u64;
        let mut joined = MutableBuffer::new(bytes);
        joined.extend_from_slice(find(first)?.as_slice());
        for piece in pieces {
            joined.extend_from_slice(find(piece)?.as_slice());
        }
        Ok(joined.into())
    }

    fn array(&mut self, words: &[u64], kind: &DataType) -> Result<ArrayData, ArrowError> {
        let len = self.word(words)?;
        let count = self.word(words)?;
        let has_validity = self.word(words)? != 0;
        if count > words.len() {
            return Err(wrong("it has more buffers than its table lengths"));
        }
        let mut buffers = Vec::with_capacity(count);
        for _ in 0..count {
            buffers.push(self.buffer(words)?);
        }
        let validity = if has_validity && count > 0 { Some(buffers.remove(0)) } else { None };
        if validity.as_ref().is_some_and(|bits| bits.len() < len.div_ceil(8)) {
            return Err(wrong("a validity bitmap is too short"));
        }
        let first = buffers.first().map(Buffer::len);
        if first_bytes(kind, len).is_some_and(|bytes| first != Some(bytes)) {
            return Err(wrong("a buffer does not have the length that its array needs"));
        }
        let mut builder =
            ArrayData::builder(kind.clone()).len(len).null_bit_buffer(validity).buffers(buffers);
        for child in children(kind) {
            builder = builder.add_child_data(self.array(words, child)?);
        }
        builder.build()
    }
}

/// Bytes of the first buffer behind the validity, of types whose buffers have values or offsets of
/// a width; Arrow's own check relies on whole ones.
fn first_bytes(kind: &DataType, len: usize) -> Option<usize> {
    let (count, width) = match kind {
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(_, _) => {
            (len.saturating_add(1), 4)
        }
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => {
            (len.saturating_add(1), 8)
        }
        DataType::Utf8View | DataType::BinaryView => (len, 16),
        DataType::FixedSizeBinary(width) => (len, *width as usize),
        DataType::Dictionary(key, _) => (len, key.primitive_width()?),
        other => (len, other.primitive_width()?),
    };
    Some(count.saturating_mul(width))
}

/// Types of an array's children.
fn children(kind: &DataType) -> Vec<&DataType> {
    match kind {
        DataType::Dictionary(_, values) => vec![values],
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        _ => vec![],
    }
}

fn wrong(what: &str) -> ArrowError {
    ArrowError::IpcError(format!("what has arrived is no batch: {what}"))
}

/// A schema in the format of Arrow IPC.
pub(crate) fn encode_schema(schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
    StreamWriter::try_new(Vec::new(), schema)?.into_inner()
}

/// The schema of [`encode_schema`].
pub(crate) fn decode_schema(bytes: &[u8]) -> Result<SchemaRef, ArrowError> {
    Ok(StreamReader::try_new(bytes, None)?.schema())
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
