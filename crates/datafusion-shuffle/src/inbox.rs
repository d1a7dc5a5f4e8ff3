//! Received messages of a stream, before they are read, in the order of sending.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use datafusion::arrow::buffer::Buffer;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::error::{Error, Result};
use crate::frame::{Frame, HEADER_BYTES, Kind};
use crate::mover::lock;

/// The next of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    /// All parts of a batch: the first one's header, and what is behind each header.
    Batch(Frame, Vec<Buffer>),
    End,
    /// The writer's error.
    Failed(String),
}

impl Item {
    /// Bytes that the stream's window counts.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Item::Batch(_, parts) => parts.iter().map(|part| message_bytes(part.len())).sum(),
            _ => 0,
        }
    }

    /// Bytes that count as memory.
    fn payload(&self) -> usize {
        match self {
            Item::Batch(_, parts) => parts.iter().map(Buffer::len).sum(),
            _ => 0,
        }
    }
}

/// Bytes of a message that count as memory: those of batches.
fn counted(frame: &Frame, payload: &Buffer) -> usize {
    match frame.kind {
        Kind::Batch | Kind::Serialised => payload.len(),
        Kind::End | Kind::Failed => 0,
    }
}

/// Bytes of a message that a stream's window counts.
pub(crate) fn message_bytes(behind_header: usize) -> u64 {
    (HEADER_BYTES + behind_header) as u64
}

/// One stream's inbox. The link puts in, the stream's reader takes out.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Reservation in the reader's memory pool, if there is a pool.
    memory: Option<Arc<MemoryReservation>>,
}

#[derive(Default)]
struct State {
    /// The number of the next message.
    next: u64,
    /// Messages that came too early, which designs over datagrams allow.
    early: BTreeMap<u64, (Frame, Buffer)>,
    /// The batch that is not whole yet.
    begun: Option<(Frame, Vec<Buffer>)>,
    ready: VecDeque<Item>,
    failed: Option<Error>,
    reader: Option<Waker>,
}

impl Inbox {
    /// An inbox whose content counts as memory of its reader.
    pub(crate) fn new(memory: &Arc<MemoryReservation>) -> Inbox {
        Inbox { state: Mutex::default(), memory: Some(memory.clone()) }
    }

    fn count(&self, bytes: usize) {
        if let Some(memory) = &self.memory {
            memory.grow(bytes);
        }
    }

    fn discount(&self, bytes: usize) {
        if let Some(memory) = &self.memory {
            memory.shrink(bytes);
        }
    }

    /// A message has arrived. An error is the peer's.
    pub(crate) fn put(&self, frame: Frame, payload: Buffer) -> std::result::Result<(), String> {
        let mut state = lock(&self.state);
        if frame.sequence < state.next || state.early.contains_key(&frame.sequence) {
            return Err(format!("message {} of a stream came twice", frame.sequence));
        }
        self.count(counted(&frame, &payload));
        state.early.insert(frame.sequence, (frame, payload));
        let before = state.ready.len();
        loop {
            let next = state.next;
            let Some((frame, payload)) = state.early.remove(&next) else { break };
            state.next += 1;
            state.append(frame, payload)?;
        }
        let woken = if state.ready.len() > before { state.reader.take() } else { None };
        drop(state);
        if let Some(reader) = woken {
            reader.wake();
        }
        Ok(())
    }

    /// The link is broken: an error after what has arrived.
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = lock(&self.state);
        state.failed.get_or_insert_with(|| error.clone());
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// The next item.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Item>> {
        let mut state = lock(&self.state);
        if let Some(item) = state.ready.pop_front() {
            self.discount(item.payload());
            return Poll::Ready(Ok(item));
        }
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(error.clone()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let state = lock(&self.state);
        let early: usize =
            state.early.values().map(|(frame, payload)| counted(frame, payload)).sum();
        let begun = state.begun.iter().flat_map(|(_, parts)| parts).map(Buffer::len).sum::<usize>();
        let ready: usize = state.ready.iter().map(Item::payload).sum();
        drop(state);
        self.discount(early + begun + ready);
    }
}

impl State {
    fn append(&mut self, frame: Frame, payload: Buffer) -> std::result::Result<(), String> {
        match frame.kind {
            Kind::Batch | Kind::Serialised => {
                let (first, mut parts) = self.begun.take().unwrap_or((frame, Vec::new()));
                if first.parts != frame.parts || first.kind != frame.kind {
                    return Err("parts of a batch do not fit together".into());
                }
                parts.push(payload);
                if parts.len() < first.parts as usize {
                    self.begun = Some((first, parts));
                } else {
                    self.ready.push_back(Item::Batch(first, parts));
                }
            }
            Kind::End | Kind::Failed if self.begun.is_some() => {
                return Err("a stream ends within a batch".into());
            }
            Kind::End => self.ready.push_back(Item::End),
            Kind::Failed => {
                let text = String::from_utf8_lossy(&payload).into_owned();
                self.ready.push_back(Item::Failed(text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, sequence: u64, parts: u32) -> Frame {
        Frame { kind, stream: 1, sequence, bytes: 1, parts, table_bytes: 0, rows: 0 }
    }

    fn take(inbox: &Inbox) -> Option<Result<Item>> {
        match inbox.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => Some(item),
            Poll::Pending => None,
        }
    }

    fn byte(value: u8) -> Buffer {
        Buffer::from_vec(vec![value])
    }

    #[test]
    fn messages_that_overtake_wait_for_those_before() {
        let inbox = Inbox::default();
        inbox.put(frame(Kind::End, 3, 1), byte(0)).unwrap();
        inbox.put(frame(Kind::Batch, 1, 2), byte(1)).unwrap();
        assert!(take(&inbox).is_none());
        inbox.put(frame(Kind::Batch, 0, 2), byte(0)).unwrap();
        let Some(Ok(Item::Batch(_, parts))) = take(&inbox) else { panic!("a batch") };
        assert_eq!(parts, [byte(0), byte(1)]);
        assert!(take(&inbox).is_none(), "message 2 is missing");
        inbox.put(frame(Kind::Batch, 2, 1), byte(2)).unwrap();
        assert_eq!(take(&inbox).unwrap().unwrap().bytes(), 65);
        assert!(matches!(take(&inbox), Some(Ok(Item::End))));
        assert!(inbox.put(frame(Kind::End, 3, 1), byte(0)).is_err(), "twice");
    }

    #[test]
    fn what_is_in_an_inbox_counts_as_memory() {
        use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let memory = Arc::new(MemoryConsumer::new("exchange").register(&pool));
        let inbox = Inbox::new(&memory);
        for (sequence, parts) in [(0, 1), (1, 1), (2, 2), (4, 1)] {
            let payload = Buffer::from_vec(vec![0_u8; 10]);
            inbox.put(frame(Kind::Batch, sequence, parts), payload).unwrap();
        }
        assert_eq!(pool.reserved(), 40);
        drop(take(&inbox));
        assert_eq!(pool.reserved(), 30);
        drop(inbox);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn an_error_comes_after_what_has_arrived_and_stays() {
        let inbox = Inbox::default();
        inbox.put(frame(Kind::Batch, 0, 1), byte(0)).unwrap();
        inbox.fail(&Error::Batch("gone".into()));
        assert!(matches!(take(&inbox), Some(Ok(Item::Batch(..)))));
        assert!(take(&inbox).unwrap().is_err() && take(&inbox).unwrap().is_err());
    }

    #[test]
    fn a_stream_that_ends_within_a_batch_is_refused() {
        let inbox = Inbox::default();
        inbox.put(frame(Kind::Batch, 0, 2), byte(0)).unwrap();
        assert!(inbox.put(frame(Kind::End, 1, 1), byte(0)).is_err());
        let inbox = Inbox::default();
        inbox.put(frame(Kind::Batch, 0, 2), byte(0)).unwrap();
        assert!(inbox.put(frame(Kind::Serialised, 1, 2), byte(0)).is_err());
    }
}
