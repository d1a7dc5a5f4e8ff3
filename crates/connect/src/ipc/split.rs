//! Arrow IPC as a split: chunks are record batches, or ranges of rows of large ones.
//!
//! A position is the number of a record batch, that of a row in it, and how many rows come before
//! the batch.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::table::{Chunk, Decoded, Position, Sharing, Split, SplitPoll};
use millstream_contract::{Error, Result};

use super::message::{BatchLayout, Dictionaries, Message, MessageKind};
use super::source::{Body, NextMessage, Source, take};
use crate::columns::{Columns, Span, damaged};
use crate::input::{Input, Name};
use crate::records::Reading;

/// Rows of a chunk at most.
const ROWS_MAX: u64 = 64 << 10;

/// Bytes that a chunk should have once it is decoded.
const CHUNK_BYTES: u64 = 4 << 20;

/// Rows of the first chunk of a file that is one of many: it is read to see at which time the file
/// begins, and waits for its turn.
const FIRST_ROWS: u64 = 1 << 10;

/// How much smaller compressed buffers are taken to be.
const PACKED_TIMES: u64 = 3;

/// Arrow IPC being read.
pub(crate) struct IpcSplit {
    path: Name,
    source: Source,
    what: Option<Arc<IpcPlan>>,
    dictionaries: Arc<Dictionaries>,
    /// The record batch that is being handed out, or comes next, and the next row in it.
    batch: u64,
    row: u64,
    /// Rows of the record batches before record batch `batch`.
    before: u64,
    current: Option<Current>,
    /// Where to begin.
    from: Option<Start>,
    first_rows: u64,
    reading: IpcReading,
}

/// Where to begin: a record batch, a row in it, and how many rows come before the batch.
#[derive(Debug, Clone, Copy)]
struct Start {
    batch: u64,
    row: u64,
    before: u64,
}

/// Reading plan; for a pipe, kept until its schema has come.
struct IpcReading {
    schema: SchemaRef,
    projection: Vec<usize>,
    dictionaries: Vec<usize>,
    length: Option<u64>,
    sharing: Sharing,
}

/// Schema of a file, and its columns to be read.
pub(super) struct IpcPlan {
    pub(super) schema: SchemaRef,
    pub(super) columns: Columns,
}

/// The record batch that is being handed out.
pub(super) struct Current {
    batch: Arc<Batch>,
    pub(super) rows: u64,
    /// Rows of each chunk, but for the last; and about how many bytes each takes.
    chunk_rows: u64,
    row_bytes: u64,
}

/// A record batch that is decoded when its first chunk is.
struct Batch {
    what: Arc<IpcPlan>,
    message: Message,
    layout: BatchLayout,
    body: Body,
    dictionaries: Arc<Dictionaries>,
    /// For messages.
    place: Arc<str>,
    /// Rows of the record batches before this one.
    before: u64,
    columns: OnceLock<Result<Vec<ArrayRef>>>,
}

impl IpcSplit {
    /// Opens a file or a pipe at a position ([`Start`]).
    pub(crate) fn open(input: Input, reading: &Reading<'_>) -> Result<IpcSplit> {
        let path = reading.path.clone();
        let source = Source::open(input, path.clone())?;
        let from = match reading.from.0[..] {
            [batch, row, before] => Some(Start { batch, row, before }),
            _ => None,
        };
        if from.is_some() && source.is_pipe() {
            return Err(Error::Io {
                place: path.to_string(),
                message: "a pipe cannot be read on from a position".into(),
                help: "write to a file, and read that".into(),
            });
        }
        let few = reading.one_of_many && from.is_none();
        let mut split = IpcSplit {
            path,
            source,
            what: None,
            dictionaries: Arc::default(),
            batch: 0,
            row: 0,
            before: 0,
            current: None,
            from,
            first_rows: if few { FIRST_ROWS } else { u64::MAX },
            reading: IpcReading {
                schema: reading.schema.clone(),
                projection: reading.projection.to_vec(),
                dictionaries: reading.dictionaries.to_vec(),
                length: reading.length,
                sharing: reading.sharing,
            },
        };
        if !split.source.is_pipe() {
            let schema = split.source.schema()?;
            split.set_schema(schema)?;
        }
        Ok(split)
    }

    fn set_schema(&mut self, schema: SchemaRef) -> Result<Arc<IpcPlan>> {
        let IpcReading { schema: declared, projection, dictionaries, .. } = &self.reading;
        let columns = Columns::find(&self.path, declared, projection, &schema.fields)?
            .with_dictionaries(dictionaries);
        let what = Arc::new(IpcPlan { schema, columns });
        self.what = Some(what.clone());
        Ok(what)
    }

    /// Takes in a message.
    fn take_in(&mut self, message: Message, body: Body) -> Result<()> {
        let Some(what) = self.what.clone() else {
            let schema = message.schema().map_err(|message| damaged(&self.path, message))?;
            return self.set_schema(Arc::new(schema)).map(drop);
        };
        match message.kind {
            MessageKind::Schema => Err(damaged(&self.path, "it has a second schema")),
            MessageKind::Dictionary => {
                let (known, place) = (&self.dictionaries, || self.place());
                let (all, _) = with_dictionary(known, &message, &body, &what.schema, place)?;
                self.dictionaries = all;
                Ok(())
            }
            MessageKind::Batch(rows) => self.begin_batch(what, message, body, rows),
        }
    }

    fn begin_batch(
        &mut self,
        what: Arc<IpcPlan>,
        message: Message,
        body: Body,
        rows: u64,
    ) -> Result<()> {
        match self.from {
            Some(from) if self.batch < from.batch => {
                self.batch += 1;
                return Ok(());
            }
            Some(from) => (self.row, self.before, self.from) = (from.row, from.before, None),
            None => self.row = 0,
        }
        let place: Arc<str> = self.place().into();
        let dictionaries = self.dictionaries.clone();
        let current = Current::new(what, (message, body, rows), dictionaries, place, self.before)?;
        self.current = Some(current);
        Ok(())
    }

    fn place(&self) -> String {
        format!("{}, batch {}", self.path, self.batch.saturating_add(1))
    }

    /// The next chunk of the record batch at hand.
    fn chunk(&mut self) -> Option<Box<dyn Chunk>> {
        let chunk = self.current.as_ref()?.chunk(self.row, self.first_rows)?;
        (self.row, self.first_rows) = (chunk.rows.end, u64::MAX);
        Some(Box::new(chunk))
    }
}

impl Current {
    /// A record batch with so many rows. `before` it there are so many.
    pub(super) fn new(
        what: Arc<IpcPlan>,
        (message, body, rows): (Message, Body, u64),
        dictionaries: Arc<Dictionaries>,
        place: Arc<str>,
        before: u64,
    ) -> Result<Current> {
        let layout = message.layout(&what.schema.fields, what.columns.read());
        let layout = layout.map_err(|message| damaged(&place, message))?;
        let mut row_bytes = row_bytes(&what, &layout, &dictionaries, rows);
        let chunks = rows.saturating_mul(row_bytes).div_ceil(CHUNK_BYTES);
        let chunks = chunks.max(rows.div_ceil(ROWS_MAX)).clamp(1, rows.max(1));
        if let Body::Here(body) = &body {
            // A chunk keeps all of it, also the columns that are not read.
            row_bytes = row_bytes.max((body.len() as u64).div_ceil(rows.max(1)));
        }
        let columns = OnceLock::new();
        let batch = Batch { what, message, layout, body, dictionaries, place, before, columns };
        let chunk_rows = rows.div_ceil(chunks).max(1);
        Ok(Current { batch: Arc::new(batch), rows, chunk_rows, row_bytes })
    }

    /// About how many bytes all chunks take.
    pub(super) fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.row_bytes)
    }

    /// The chunk that begins with `row`, of at most so many rows; `None` behind the last.
    pub(super) fn chunk(&self, row: u64, rows_max: u64) -> Option<IpcChunk> {
        if row >= self.rows {
            return None;
        }
        let to = (row / self.chunk_rows + 1).saturating_mul(self.chunk_rows).min(self.rows);
        let rows = row..to.min(row.saturating_add(rows_max));
        let bytes = (rows.end - rows.start).saturating_mul(self.row_bytes);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX / 4);
        Some(IpcChunk { batch: self.batch.clone(), rows, bytes })
    }
}

/// The dictionaries with the dictionary of a message, and the number of the latter.
pub(super) fn with_dictionary(
    dictionaries: &Dictionaries,
    message: &Message,
    body: &Body,
    schema: &SchemaRef,
    place: impl Fn() -> String,
) -> Result<(Arc<Dictionaries>, i64)> {
    let body = message.whole(body)?;
    let mut dictionaries = dictionaries.clone();
    let number = message
        .add_dictionary(&body, schema, &mut dictionaries)
        .map_err(|message| damaged(&place(), format!("a dictionary: {message}")))?;
    Ok((Arc::new(dictionaries), number))
}

/// About how many bytes a row takes once it is decoded. Of texts in dictionaries, the mean is
/// taken, of the dictionary that has the longest.
fn row_bytes(what: &IpcPlan, layout: &BatchLayout, dictionaries: &Dictionaries, rows: u64) -> u64 {
    let fields = what.columns.read().iter().filter_map(|column| what.schema.fields.get(*column));
    let (mut fixed, mut unpacked) = (0, 0);
    for field in fields {
        match field.data_type() {
            DataType::Dictionary(_, _) => unpacked += 1,
            other => fixed += other.primitive_width().unwrap_or(0) as u64,
        }
    }
    let packed: u64 = layout.spans.iter().map(|span| span.end - span.start).sum();
    let times = if layout.compressed { PACKED_TIMES } else { 1 };
    let stored = packed.saturating_mul(times).div_ceil(rows.max(1));
    let mean = |values: &ArrayRef| values.get_array_memory_size().div_ceil(values.len().max(1));
    let mean = dictionaries.values().map(mean).max().unwrap_or(0) as u64;
    fixed.max(stored).saturating_add(mean.saturating_mul(unpacked)).max(1)
}

impl Split for IpcSplit {
    fn name(&self) -> &str {
        &self.path
    }

    fn extent(&self) -> Option<u64> {
        self.reading.length.filter(|_| self.reading.sharing == Sharing::ByChunk)
    }

    fn sharing(&self) -> Sharing {
        self.reading.sharing
    }

    fn position(&self) -> Position {
        match self.from {
            Some(Start { batch, row, before }) => Position(vec![batch, row, before]),
            None => Position(vec![self.batch, self.row, self.before]),
        }
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        loop {
            if let Some(chunk) = self.chunk() {
                return Ok(SplitPoll::Chunk(chunk));
            }
            if let Some(Current { rows, .. }) = self.current.take() {
                self.before = self.before.saturating_add(rows);
                (self.batch, self.row) = (self.batch + 1, 0);
            }
            if let Some(Start { batch, .. }) = self.from
                && self.batch < batch
                && self.source.go_to(batch)
            {
                self.batch = batch;
            }
            match self.source.next(waker)? {
                NextMessage::Message(message, body) => self.take_in(message, body)?,
                NextMessage::Pending => return Ok(SplitPoll::Pending { retry_at_us: None }),
                NextMessage::Ended if self.what.is_none() => {
                    return Err(damaged(self.source.name(), "it has no schema"));
                }
                NextMessage::Ended => return Ok(SplitPoll::Ended),
            }
        }
    }
}

impl Batch {
    /// The columns to be read, as the file has them. The first caller decodes them.
    fn columns(&self) -> Result<Vec<ArrayRef>> {
        self.columns.get_or_init(|| self.decode()).clone()
    }

    fn decode(&self) -> Result<Vec<ArrayRef>> {
        let read = self.what.columns.read();
        if read.is_empty() {
            return Ok(Vec::new());
        }
        let body = self.needed()?;
        self.message
            .columns(&body, &self.what.schema, read, &self.layout, &self.dictionaries)
            .map(|batch| batch.columns().to_vec())
            .map_err(|message| damaged(&self.place, message))
    }

    /// The body, with only the needed spans read. The other bytes have no influence.
    fn needed(&self) -> Result<Buffer> {
        let (bytes, offset) = match &self.body {
            Body::Here(buffer) => return Ok(buffer.clone()),
            Body::At(bytes, offset) => (bytes, *offset),
        };
        let length = usize::try_from(self.message.body_bytes).unwrap_or(usize::MAX);
        let read: u64 = self.layout.spans.iter().map(|span| span.end - span.start).sum();
        if read >= self.message.body_bytes / 8 * 7 {
            return self.message.whole(&self.body);
        }
        take(read, &self.place)?;
        Ok(Buffer::from(bytes.read_spans(offset, length, &self.layout.spans)?))
    }
}

/// Some rows of a record batch.
pub(super) struct IpcChunk {
    batch: Arc<Batch>,
    pub(super) rows: Range<u64>,
    bytes: usize,
}

impl Chunk for IpcChunk {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let (first, rows) = (self.rows.start as usize, (self.rows.end - self.rows.start) as usize);
        let columns = self.batch.columns()?;
        let all = self.batch.message.rows().unwrap_or(0);
        let whole = columns.iter().all(|column| column.len() as u64 == all);
        if !whole {
            return Err(damaged(&self.batch.place, "a column has another number of rows"));
        }
        let columns: Vec<ArrayRef> = columns.iter().map(|c| c.slice(first, rows)).collect();
        let Batch { place, before, .. } = &*self.batch;
        let places = Span { prefix: place.clone(), first: self.rows.start, before: *before };
        let batch = self.batch.what.columns.batch(&columns, rows, &places)?;
        Ok(Decoded::whole(batch, Some(Box::new(places))))
    }
}
