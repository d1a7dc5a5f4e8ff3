//! Batches of a producer until a worker decodes them, and notices for the user.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_connect::ArrowBatch;
use millstream_contract::table::{Chunk, Decoded};
use millstream_contract::{Error, Result};
use tokio::sync::Notify;

/// Bytes of a queued batch or watermark, apart from the batch's own.
const QUEUED_BYTES: u64 = 512;

/// Notices for the user, and the readers that pass them on.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    notices: VecDeque<String>,
    /// Waiting readers, by slot.
    readers: Vec<Option<Waker>>,
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, notice: String) {
        let mut waiting = self.lock();
        waiting.notices.push_back(notice);
        let readers = std::mem::take(&mut waiting.readers);
        drop(waiting);
        readers.into_iter().flatten().for_each(Waker::wake);
    }

    pub(crate) fn pop(&self) -> Option<String> {
        self.lock().notices.pop_front()
    }

    /// The next notice wakes the reader of this slot. A job may leave some readers alone for long,
    /// so a notice wakes all.
    pub(crate) fn wake(&self, slot: usize, reader: &Waker) {
        let readers = &mut self.lock().readers;
        let slots = readers.len().max(slot + 1);
        readers.resize(slots, None);
        match &mut readers[slot] {
            Some(one) => one.clone_from(reader),
            none => *none = Some(reader.clone()),
        }
    }
}

/// The stream of a producer, as the producer's batches know it.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The producer, in messages.
    pub(crate) name: Box<str>,
    /// The columns that the job reads.
    schema: SchemaRef,
    notices: Arc<Notices>,
    /// A batch could not be decoded.
    damage: OnceLock<Error>,
    /// Rows that were decoded or left out, and those that were left out.
    settled: AtomicU64,
    left_out: AtomicU64,
    /// Called when rows are settled.
    settles: Notify,
}

impl Stream {
    pub(crate) fn new(name: &str, schema: SchemaRef, notices: Arc<Notices>) -> Arc<Stream> {
        Arc::new(Stream {
            name: name.into(),
            schema,
            notices,
            damage: OnceLock::new(),
            settled: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            settles: Notify::new(),
        })
    }

    /// Why the stream is at its end, if a batch could not be decoded.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.get()
    }

    /// Whether the first `rows` rows of the stream have been decoded or left out.
    pub(crate) fn is_settled(&self, rows: u64) -> bool {
        self.settled.load(Ordering::Acquire) >= rows
    }

    /// Waits until [`Stream::is_settled`]. Called by one task.
    pub(crate) async fn settled(&self, rows: u64) {
        while !self.is_settled(rows) {
            self.settles.notified().await;
        }
    }

    /// Rows that were left out so far.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Acquire)
    }

    fn settle(&self, rows: u64, are_left_out: bool) {
        if are_left_out {
            self.left_out.fetch_add(rows, Ordering::AcqRel);
        }
        self.settled.fetch_add(rows, Ordering::AcqRel);
        self.settles.notify_one();
    }

    /// Only the first error is told: the other chunks of its batch have the same.
    fn note_damage(&self, error: Error) {
        let notice = format!("a batch is left out: {error}");
        if self.damage.set(error).is_ok() {
            self.notices.push(notice);
        }
    }

    fn nothing(&self) -> Decoded {
        Decoded::whole(RecordBatch::new_empty(self.schema.clone()), None)
    }
}

/// A record batch of a producer that waits for the job, or a watermark alone.
pub(crate) struct Queued {
    batch: Option<ArrowBatch>,
    watermark_us: Option<i64>,
    stream: Arc<Stream>,
    /// Bytes in memory.
    pub(crate) bytes: u64,
}

impl Queued {
    /// The watermark counts behind the batch.
    pub(crate) fn new(
        batch: Option<ArrowBatch>,
        watermark_us: Option<i64>,
        stream: &Arc<Stream>,
    ) -> Queued {
        let bytes = batch.as_ref().map_or(0, ArrowBatch::bytes).saturating_add(QUEUED_BYTES);
        Queued { batch, watermark_us, stream: stream.clone(), bytes }
    }

    /// Puts a later watermark in place of this one, if this is a watermark alone.
    pub(crate) fn join_watermark(&mut self, later_us: i64) -> bool {
        let is_alone = self.batch.is_none() && self.watermark_us.is_some();
        if is_alone {
            self.watermark_us = self.watermark_us.max(Some(later_us));
        }
        is_alone
    }

    /// Whether the next queued batch may be in a chunk with this one.
    pub(crate) fn merges(&self) -> bool {
        self.watermark_us.is_none()
            && self.batch.as_ref().is_some_and(|one| !one.has_dictionaries())
    }

    /// The next chunk, and whether it is the last.
    pub(crate) fn next(&mut self) -> (Sent, bool) {
        let chunk = self.batch.as_mut().and_then(ArrowBatch::next_chunk);
        let (chunk, rows) = chunk.map_or((None, 0), |(chunk, rows)| (Some(chunk), rows));
        let is_last = self.rows() == 0;
        let watermark_us = self.watermark_us.filter(|_| is_last);
        (Sent { chunk, rows, watermark_us, stream: self.stream.clone() }, is_last)
    }

    /// Rows that were not handed out.
    pub(crate) fn rows(&self) -> u64 {
        self.batch.as_ref().map_or(0, ArrowBatch::rows)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // The job has ended before it took these.
        let rows = self.rows();
        if rows > 0 {
            self.stream.settle(rows, true);
        }
    }
}

/// A chunk of a producer, or a watermark alone.
pub(crate) struct Sent {
    chunk: Option<Box<dyn Chunk>>,
    rows: u64,
    watermark_us: Option<i64>,
    stream: Arc<Stream>,
}

impl Chunk for Sent {
    fn bytes(&self) -> usize {
        self.chunk.as_ref().map_or(0, |chunk| chunk.bytes())
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    /// A batch that cannot be decoded is left out, and its producer learns of it.
    fn decode_reporting(mut self: Box<Self>) -> Result<Decoded> {
        let Some(chunk) = self.chunk.take() else {
            return Ok(Decoded { sent_watermark_us: self.watermark_us, ..self.stream.nothing() });
        };
        let decoded = chunk.decode_reporting();
        let are_left_out = decoded.is_err();
        let decoded = decoded.unwrap_or_else(|error| {
            self.stream.note_damage(error);
            Decoded { left_out: self.rows, ..self.stream.nothing() }
        });
        self.stream.settle(self.rows, are_left_out);
        Ok(Decoded { sent_watermark_us: self.watermark_us, ..decoded })
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // The job has ended before it decoded the chunk.
        if self.chunk.is_some() {
            self.stream.settle(self.rows, true);
        }
    }
}
