//! Batches of a producer until a worker decodes them, and notices for the user.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::table::{Chunk, Decoded};
use millstream_contract::{Error, Result};

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
}

impl Stream {
    pub(crate) fn new(name: &str, schema: SchemaRef, notices: Arc<Notices>) -> Arc<Stream> {
        Arc::new(Stream { name: name.into(), schema, notices, damage: OnceLock::new() })
    }

    /// Why the stream is at its end, if a batch could not be decoded.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.get()
    }

    fn note_damage(&self, error: Error) {
        self.notices.push(format!("a batch is left out: {error}"));
        // The first error counts.
        let _ = self.damage.set(error);
    }

    fn nothing(&self) -> Decoded {
        Decoded::whole(RecordBatch::new_empty(self.schema.clone()), None)
    }
}

/// A chunk of a producer, or a watermark alone.
pub(crate) struct Sent {
    pub(crate) chunk: Option<Box<dyn Chunk>>,
    pub(crate) watermark_us: Option<i64>,
    pub(crate) stream: Arc<Stream>,
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
        let decoded = match self.chunk.take().map(|chunk| chunk.decode_reporting()) {
            None => self.stream.nothing(),
            Some(Ok(decoded)) => decoded,
            Some(Err(error)) => {
                self.stream.note_damage(error);
                Decoded { left_out: 1, ..self.stream.nothing() }
            }
        };
        Ok(Decoded { sent_watermark_us: self.watermark_us, ..decoded })
    }
}
