//! A link's writing end: the lanes through which this worker's batches go to one reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use millstream_fabric::Fabric;
use millstream_flow::shuffle::{Sender, SenderSetup, State};
use tokio::sync::{Notify, SetOnce};

use crate::common::{Common, Registered, decode_hellos, encode_hellos};
use crate::control::Hellos;
use crate::error::{Error, Result};
use crate::frame::{Frame, HEADER_BYTES, Kind};
use crate::image::{Image, Part};
use crate::mover::{Member, Turn};

/// A task that waits for a slot looks again after this time, though it should be woken before.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

struct Lane<F: Fabric> {
    sender: Sender<F>,
    /// Number of tasks that wait for a slot, and their waker.
    waiting: AtomicUsize,
    freed: Notify,
    _registered: Registered,
}

/// The writing end.
pub(crate) struct Outbound<F: Fabric> {
    common: Arc<Common>,
    lanes: Vec<Lane<F>>,
    /// Streams that are open.
    streams: AtomicUsize,
    closed: AtomicBool,
    failed: SetOnce<Error>,
}

impl<F: Fabric> Outbound<F> {
    /// Opens lanes and connects them to the reader's. Returns what the reader has to be told.
    pub(crate) fn connect(
        fabric: &F,
        common: Arc<Common>,
        reader: &Hellos,
    ) -> Result<(Outbound<F>, Hellos)> {
        let (settings, token) = (common.config.settings(), common.token);
        let mut lanes = Vec::new();
        let mut hellos = Vec::new();
        for theirs in decode_hellos(reader, &common, "that opened the link")? {
            let setup = SenderSetup::new(fabric, common.next_id(), 1, settings)?;
            hellos.push(setup.hello(0));
            let sender = setup.connect(&[theirs])?;
            let _registered = Registered::new(&common, sender.counters().registered_bytes);
            let (waiting, freed) = (AtomicUsize::new(0), Notify::new());
            lanes.push(Lane { sender, waiting, freed, _registered });
        }
        common.count(|counters| counters.links += 1);
        let streams = AtomicUsize::new(0);
        let (closed, failed) = (AtomicBool::new(false), SetOnce::new());
        let link = Outbound { common, lanes, streams, closed, failed };
        Ok((link, encode_hellos(hellos.into_iter(), &token)?))
    }

    /// A stream of this link.
    pub(crate) fn stream(self: &Arc<Self>, number: u32) -> Outgoing<Outbound<F>> {
        self.streams.fetch_add(1, Ordering::AcqRel);
        Outgoing::new(self.clone(), number)
    }

    /// Closes the link: the other end has gone.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for lane in &self.lanes {
            lane.freed.notify_waiters();
        }
    }

    /// The link's first error, when it fails.
    pub(crate) async fn broken(&self) -> &Error {
        self.failed.wait().await
    }

    fn fail(&self, error: Error) -> Error {
        // An earlier failure keeps its error.
        drop(self.failed.set(error.clone()));
        for lane in &self.lanes {
            lane.freed.notify_waiters();
        }
        error
    }

    /// Copies a message into a slot and sends it, unless there is none.
    fn try_put(&self, lane: &Lane<F>, frame: &Frame, part: &Part<'_>) -> Result<bool> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        let buffer = lane.sender.try_acquire().map_err(|error| self.fail(error.into()))?;
        let Some(mut buffer) = buffer else { return Ok(false) };
        let slot = buffer.payload();
        slot[..HEADER_BYTES].copy_from_slice(&frame.encode());
        let room = &mut slot[HEADER_BYTES..];
        for (at, bytes) in &part.pieces {
            room[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let bytes = HEADER_BYTES + part.bytes;
        let sent = lane.sender.put(buffer, bytes, &[0], State::MoreData);
        sent.map_err(|error| self.fail(error.into()))?;
        self.common.count(|counters| {
            counters.messages_sent += 1;
            counters.bytes_sent += bytes as u64;
        });
        Ok(true)
    }
}

impl<F: Fabric> Exit for Outbound<F> {
    fn common(&self) -> &Common {
        &self.common
    }

    async fn put(&self, stream: u32, frame: &Frame, part: &Part<'_>) -> Result<()> {
        let lane = &self.lanes[stream as usize % self.lanes.len()];
        loop {
            if self.try_put(lane, frame, part)? {
                return Ok(());
            }
            let freed = lane.freed.notified();
            lane.waiting.fetch_add(1, Ordering::AcqRel);
            self.common.bell.ring();
            let waited = tokio::time::timeout(LOOK_AGAIN, freed).await;
            lane.waiting.fetch_sub(1, Ordering::AcqRel);
            // Woken or not, it looks again.
            drop(waited);
        }
    }

    fn over(&self) {
        self.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<F: Fabric> Member for Outbound<F> {
    fn turn(&self) -> Turn {
        if self.closed.load(Ordering::Acquire) || self.failed.get().is_some() {
            return Turn::Gone;
        }
        let mut turn = match self.streams.load(Ordering::Acquire) {
            0 => Turn::Quiet,
            _ => Turn::Waiting,
        };
        for lane in &self.lanes {
            let waiting = lane.waiting.load(Ordering::Acquire) > 0;
            let looked = lane.sender.try_flush().and_then(|flushed| {
                // A buffer that is not used is free again.
                Ok((flushed, waiting && lane.sender.try_acquire()?.is_some()))
            });
            match looked {
                Ok((_, true)) => {
                    lane.freed.notify_waiters();
                    turn = Turn::Moved;
                }
                Ok((false, _)) => turn = turn.max(Turn::Waiting),
                Ok(_) => {}
                Err(error) => {
                    self.fail(error.into());
                    return Turn::Gone;
                }
            }
        }
        turn
    }
}

/// The way of streams out of this process: a link's lanes, or the flow of a broadcast.
pub(crate) trait Exit: Send + Sync + 'static {
    fn common(&self) -> &Common;

    /// Sends one message of a stream, when there is room for it.
    fn put(
        &self,
        stream: u32,
        frame: &Frame,
        part: &Part<'_>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// A stream is over.
    fn over(&self);
}

/// One stream's writing end.
pub(crate) struct Outgoing<E: Exit> {
    exit: Arc<E>,
    number: u32,
    /// The number of its next message.
    sequence: u64,
    /// Bytes sent since the beginning, as the window counts them.
    pub(crate) sent: u64,
}

impl<E: Exit> Outgoing<E> {
    /// A stream. Its exit has counted the stream already.
    pub(crate) fn new(exit: Arc<E>, number: u32) -> Outgoing<E> {
        exit.common().count(|counters| counters.streams_begun += 1);
        exit.common().bell.ring();
        Outgoing { exit, number, sequence: 0, sent: 0 }
    }

    /// Puts a batch into slots.
    pub(crate) async fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let image = Image::of(batch)?;
        let table = image.table();
        let parts = image.parts(&table, self.exit.common().config.room());
        let count = u32::try_from(parts.len())
            .map_err(|_| Error::Batch("it takes more than 4 billion messages".into()))?;
        for part in &parts {
            let frame = Frame {
                kind: image.kind,
                stream: self.number,
                sequence: self.sequence,
                bytes: part.bytes as u32,
                parts: count,
                table_bytes: image.table_bytes(),
                rows: image.rows as u64,
            };
            self.put(&frame, part).await?;
        }
        self.exit.common().count(|counters| {
            counters.batches_sent += 1;
            counters.serialised += u64::from(image.kind == Kind::Serialised);
            counters.rewritten_bytes += image.rewritten_bytes;
        });
        Ok(())
    }

    /// Ends the stream, with an error if there is one.
    pub(crate) async fn end(&mut self, error: Option<String>) -> Result<()> {
        let kind = if error.is_some() { Kind::Failed } else { Kind::End };
        let text = error.unwrap_or_default();
        let bytes = text.len().min(self.exit.common().config.room());
        let pieces = vec![(0, &text.as_bytes()[..bytes])];
        let frame = Frame {
            kind,
            stream: self.number,
            sequence: self.sequence,
            bytes: bytes as u32,
            parts: 1,
            table_bytes: 0,
            rows: 0,
        };
        self.put(&frame, &Part { pieces, bytes }).await
    }

    async fn put(&mut self, frame: &Frame, part: &Part<'_>) -> Result<()> {
        self.exit.put(self.number, frame, part).await?;
        self.sequence += 1;
        self.sent += (HEADER_BYTES + part.bytes) as u64;
        Ok(())
    }
}

impl<E: Exit> Drop for Outgoing<E> {
    fn drop(&mut self) {
        self.exit.over();
        self.exit.common().count(|counters| counters.streams_over += 1);
    }
}
