//! A split of records: blocks of a [`Reader`], each with how it is decoded.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::pruning::Pruning;
use millstream_contract::table::{Chunk, Decoded, Extent, Position, Sharing, Split, SplitPoll};

use super::long::decode_too_long;
use super::malformed::decode_as;
use super::reader::{LOOK, Ready};
use super::{Block, Decode, Reader, RecordFormat};
use crate::input::{Input, Name};
use crate::options::OnError;

/// Bytes of a chunk of a large file.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a chunk at least, unless the batch size asks for less.
const CHUNK_BYTES_MIN: usize = 4 << 10;

/// Chunks that a small file is cut into, so that windows fire while it is read. Not by the number
/// of workers: chunks of a file are always the same.
const CHUNKS: u64 = 64;

/// Bytes of a chunk of what has no length.
const CHUNK_BYTES_UNKNOWN: usize = 64 << 10;

/// Bytes of the first chunk of a file that is one of many: it is read to see at which time the file
/// begins, and waits for its turn.
const FIRST_BYTES: usize = 16 << 10;

/// Length of lines as long as none is known.
const LINE_BYTES: f64 = 64.0;

/// Reading plan of a file.
pub(crate) struct Reading<'a> {
    pub(crate) path: Name,
    pub(crate) schema: &'a SchemaRef,
    pub(crate) projection: &'a [usize],
    /// Rows a batch should have at most.
    pub(crate) batch_rows: usize,
    /// Where to begin.
    pub(crate) from: Position,
    /// Bytes of the file when the job began, if that is known.
    pub(crate) length: Option<u64>,
    pub(crate) sharing: Sharing,
    /// True for one of many files of a table.
    pub(crate) one_of_many: bool,
    /// Conditions on rows, for pruning.
    pub(crate) pruning: &'a Pruning,
    /// Columns, as places in the projection, that may come as dictionaries of texts.
    pub(crate) dictionaries: &'a [usize],
    /// Whether the offsets of records are wanted.
    pub(crate) offsets: bool,
    /// For tests: bytes of each chunk.
    pub(crate) chunk_bytes: Option<usize>,
}

/// A file being read.
pub(crate) struct RecordSplit {
    path: Name,
    reader: Reader,
    format: Arc<dyn RecordFormat>,
    decode: Arc<dyn Decode>,
    /// Bytes that the first chunk and the later ones should have, as long as that is not too many
    /// rows.
    first_bytes: usize,
    chunk_bytes: usize,
    batch_rows: usize,
    /// Mean length of the lines in the last chunk: from it follows how much to read for a batch.
    line_bytes: f64,
    length: Option<u64>,
    sharing: Sharing,
    remark: Option<String>,
}

impl RecordSplit {
    /// Opens a file at a position: the offset of a record, the number of its line, and the mean
    /// length of lines before it as the bits of a float, from which the next chunk's end follows.
    pub(crate) fn open(
        format: Arc<dyn RecordFormat>,
        input: Input,
        reading: &Reading<'_>,
    ) -> Result<RecordSplit> {
        let reader = Reader::new(input, reading.path.clone(), format.clone());
        let mut reader = reader.with_offsets(reading.offsets);
        reader.start()?;
        let started = format.start(&mut reader, reading.schema, reading.projection)?;
        let chunk_bytes = reading.chunk_bytes.unwrap_or_else(|| {
            reading.length.map_or(CHUNK_BYTES_UNKNOWN, |length| {
                // At most 1 MiB, so it fits.
                (length / CHUNKS).clamp(CHUNK_BYTES_MIN as u64, CHUNK_BYTES as u64) as usize
            })
        });
        let mut first_bytes = chunk_bytes;
        if reading.one_of_many && reading.chunk_bytes.is_none() {
            first_bytes = first_bytes.min(FIRST_BYTES);
        }
        let mut line_bytes = LINE_BYTES;
        if let [offset, line, bits] = reading.from.0[..] {
            reader.seek(offset, line)?;
            (first_bytes, line_bytes) = (chunk_bytes, f64::from_bits(bits));
        }
        Ok(RecordSplit {
            path: reading.path.clone(),
            reader,
            format,
            decode: started.decode,
            first_bytes,
            chunk_bytes,
            batch_rows: reading.batch_rows.max(1),
            line_bytes,
            length: reading.length,
            sharing: reading.sharing,
            remark: started.remark,
        })
    }
}

/// Whether the job's clock is another one than the machine's: in simulation time flies.
pub(crate) fn is_virtual(now_us: i64) -> bool {
    let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now_us.abs_diff(machine.as_micros() as i64) > 1_000_000
}

impl Split for RecordSplit {
    fn name(&self) -> &str {
        &self.path
    }

    fn extent(&self) -> Option<u64> {
        self.length.filter(|_| self.sharing == Sharing::ByChunk)
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn position(&self) -> Position {
        let (offset, line) = self.reader.place();
        Position(vec![offset, line, self.line_bytes.to_bits()])
    }

    fn progress(&self) -> Option<Extent> {
        let (done, _) = self.reader.place();
        let of = self.length?;
        Some(Extent { done: done.min(of), of, bytes: true })
    }

    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        // A saturating cast: a batch of any number of rows is allowed.
        let batch_bytes = (self.line_bytes * self.batch_rows as f64) as usize;
        let bytes = self.first_bytes.min(batch_bytes).max(1);
        match self.reader.ready(bytes, waker)? {
            Ready::Now => {}
            Ready::Called => return Ok(SplitPoll::Pending { retry_at_us: None }),
            Ready::Later => {
                if is_virtual(now_us) {
                    // Whoever writes the file does so in real time.
                    thread::sleep(LOOK);
                }
                let retry_at_us = Some(now_us.saturating_add(LOOK.as_micros() as i64));
                return Ok(SplitPoll::Pending { retry_at_us });
            }
        }
        let Some(block) = self.reader.next(bytes, self.batch_rows)? else {
            return Ok(SplitPoll::Ended);
        };
        self.first_bytes = self.chunk_bytes;
        self.line_bytes = block.data.len() as f64 / block.lines.max(1) as f64;
        let (format, decode) = (self.format.clone(), self.decode.clone());
        Ok(SplitPoll::Chunk(Box::new(RecordChunk { format, decode, block })))
    }
}

/// A block and how to decode it.
#[derive(Debug, Clone)]
pub(crate) struct RecordChunk {
    pub(super) format: Arc<dyn RecordFormat>,
    pub(super) decode: Arc<dyn Decode>,
    pub(super) block: Block,
}

impl Chunk for RecordChunk {
    fn bytes(&self) -> usize {
        self.block.data.len()
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(mut self: Box<Self>) -> Result<Decoded> {
        if let Some(left_out) = self.block.too_long.take() {
            let keep = self.format.on_error() == OnError::Keep;
            return decode_too_long(&*self.decode, self.block, left_out, keep);
        }
        decode_as(self.format, self.decode, self.block)
    }
}
