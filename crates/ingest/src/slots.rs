//! Slots: where batches of producers wait until the job takes them. Each slot is a split.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::table::Chunk;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::ring::Ring;
use crate::sent::{Notices, Sent, Stream};

/// Reaction to the loss of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// The job ends with an error.
    Fail,
    /// The user is told.
    Notice,
}

/// Constant properties of the slots of a table.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// For messages, for example `channel bids`.
    pub(crate) place: Arc<str>,
    pub(crate) slots: usize,
    /// Producers that have to join before a slot without one is idle.
    pub(crate) producers: u64,
    pub(crate) bounded: bool,
    pub(crate) on_loss: OnLoss,
    /// Bytes that wait in a slot at most, apart from one message.
    pub(crate) slot_bytes_max: u64,
    /// The columns that the job reads.
    pub(crate) schema: SchemaRef,
}

/// The slots of a table.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) layout: Layout,
    notices: Arc<Notices>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    /// Producers that have joined so far.
    joined: u64,
    /// Streams that have ended well.
    ended: u64,
    is_draining: bool,
    /// The job reads no more.
    is_gone: bool,
    /// The loss of a producer that ends the job.
    failure: Option<Error>,
}

#[derive(Default)]
struct Slot {
    producer: Option<Arc<Stream>>,
    /// Chunks, each with its bytes, and the sum of these.
    waiting: VecDeque<(Box<dyn Chunk>, u64)>,
    bytes: u64,
    /// Whom to wake when something comes, and when there is room.
    reader: Option<Waker>,
    sender: Option<Waker>,
    /// The ring of the producer, until the slot's reader takes it.
    ring: Option<Box<dyn Ring>>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("producer", &self.producer).finish_non_exhaustive()
    }
}

/// Why a producer is refused, or sends no more.
#[derive(Debug, Clone)]
pub(crate) enum Refused {
    /// All slots are taken.
    Full(String),
    /// The job takes no more records.
    Over(String),
    /// A batch could not be decoded.
    Damaged(Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Full(why) | Refused::Over(why) => f.write_str(why),
            Refused::Damaged(error) => error.fmt(f),
        }
    }
}

/// Next part of a slot.
pub(crate) enum Next {
    Chunk(Box<dyn Chunk>),
    Nothing,
    Ended,
}

impl Slots {
    pub(crate) fn new(layout: Layout) -> Arc<Slots> {
        let slots = (0..layout.slots).map(|_| Slot::default()).collect();
        let state = Mutex::new(State { slots, ..State::default() });
        Arc::new(Slots { layout, notices: Arc::default(), state })
    }

    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a producer a slot.
    pub(crate) fn join(self: &Arc<Self>, name: &str) -> std::result::Result<Sender, Refused> {
        let mut state = self.lock();
        if let Some(over) = state.refusal() {
            return Err(over);
        }
        let Some(number) = state.slots.iter().position(|slot| slot.producer.is_none()) else {
            let all = counted(self.layout.slots as u64, "producer");
            return Err(Refused::Full(format!(
                "{} has {all} already; 'producers.max' is how many it takes at the same time",
                self.layout.place
            )));
        };
        state.joined += 1;
        let stream = Stream::new(name, self.layout.schema.clone(), self.notices.clone());
        let slot = &mut state.slots[number];
        slot.producer = Some(stream.clone());
        // From now on the watermark waits for the slot.
        let nothing = RecordBatch::new_empty(self.layout.schema.clone());
        slot.waiting.push_back((Box::new(nothing), 0));
        let wakers = state.readers();
        drop(state);
        self.notices.push(format!("{}: producer {name} has joined", self.layout.place));
        wakers.into_iter().for_each(Waker::wake);
        Ok(Sender { slots: self.clone(), number, stream, rows: 0, has_ended: false })
    }

    /// The oldest chunk of a slot. If the slot is empty, `waker` is called when a chunk or a notice
    /// comes.
    pub(crate) fn next(&self, number: usize, waker: &Waker) -> Result<Next> {
        let mut state = self.lock();
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        let is_over = state.is_over(&self.layout);
        let slot = &mut state.slots[number];
        let Some((chunk, bytes)) = slot.waiting.pop_front() else {
            if is_over {
                return Ok(Next::Ended);
            }
            slot.reader = Some(waker.clone());
            drop(state);
            self.notices.wake(number, waker);
            return Ok(Next::Nothing);
        };
        slot.bytes -= bytes;
        let has_room = slot.bytes < self.layout.slot_bytes_max;
        let sender = slot.sender.take_if(|_| has_room);
        drop(state);
        sender.into_iter().for_each(Waker::wake);
        Ok(Next::Chunk(chunk))
    }

    /// Gives the producer in a slot a ring.
    pub(crate) fn attach(&self, slot: usize, ring: Box<dyn Ring>) {
        let mut state = self.lock();
        // A job that reads no more drops the ring, and the producer learns of it.
        let refused = match state.is_gone {
            true => Some(ring),
            false => state.slots[slot].ring.replace(ring),
        };
        let reader = state.slots[slot].reader.take();
        drop(state);
        drop(refused);
        reader.into_iter().for_each(Waker::wake);
    }

    /// The ring of a slot that has not been taken.
    pub(crate) fn ring(&self, slot: usize) -> Option<Box<dyn Ring>> {
        self.lock().slots[slot].ring.take()
    }

    /// Whether a slot has no producer, and nobody waits for one.
    pub(crate) fn is_absent(&self, slot: usize) -> bool {
        let state = self.lock();
        let slot = &state.slots[slot];
        state.joined >= self.layout.producers && slot.producer.is_none() && slot.waiting.is_empty()
    }

    pub(crate) fn notice(&self) -> Option<String> {
        self.notices.pop()
    }

    /// Takes no more records. True if some wait for the job.
    pub(crate) fn drain(&self, slot: usize) -> bool {
        let mut state = self.lock();
        state.is_draining = true;
        let waits = !state.slots[slot].waiting.is_empty();
        let wakers = state.all_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        waits
    }

    /// The job reads no more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        let take = |slot: &mut Slot| (std::mem::take(&mut slot.waiting), slot.ring.take());
        let waiting: Vec<_> = state.slots.iter_mut().map(take).collect();
        let wakers = state.all_wakers();
        drop(state);
        // Each producer needs the lock when it goes.
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// The reason why no producer may send.
    fn refusal(&self) -> Option<Refused> {
        let why = match (self.is_gone, self.is_draining) {
            (true, _) => "the job has ended",
            (_, true) => "the job is being drained: it takes no more records",
            _ => return None,
        };
        Some(Refused::Over(why.to_string()))
    }

    /// Whether no slot gets another batch.
    fn is_over(&self, layout: &Layout) -> bool {
        let all_ended = layout.bounded && self.ended >= layout.producers;
        self.is_draining || all_ended && self.slots.iter().all(|slot| slot.producer.is_none())
    }

    fn readers(&mut self) -> Vec<Waker> {
        self.slots.iter_mut().filter_map(|slot| slot.reader.take()).collect()
    }

    fn all_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = self.readers();
        wakers.extend(self.slots.iter_mut().filter_map(|slot| slot.sender.take()));
        wakers
    }
}

/// A producer in its slot. Dropped without [`Sender::end`], it is lost.
#[derive(Debug)]
pub(crate) struct Sender {
    slots: Arc<Slots>,
    number: usize,
    stream: Arc<Stream>,
    rows: u64,
    has_ended: bool,
}

impl Sender {
    /// Whether it may send; if not, `waker` is called when there is room.
    pub(crate) fn has_room(&self, waker: &Waker) -> std::result::Result<bool, Refused> {
        let mut state = self.slots.lock();
        let refusal = state.refusal();
        if let Some(error) = self.stream.damage() {
            return Err(Refused::Damaged(error.clone()));
        }
        if let Some(over) = refusal {
            return Err(over);
        }
        let slot = &mut state.slots[self.number];
        let has_room = slot.bytes < self.slots.layout.slot_bytes_max;
        if !has_room {
            slot.sender = Some(waker.clone());
        }
        Ok(has_room)
    }

    /// Hands chunks with so many rows to the job, and a watermark behind the last.
    pub(crate) fn send(
        &mut self,
        chunks: Vec<Box<dyn Chunk>>,
        rows: u64,
        watermark: Option<i64>,
    ) -> std::result::Result<(), Refused> {
        let last = chunks.len().checked_sub(1);
        let mut sent: Vec<Sent> = Vec::with_capacity(chunks.len().max(1));
        for (number, chunk) in chunks.into_iter().enumerate() {
            let watermark_us = watermark.filter(|_| last == Some(number));
            sent.push(self.sent(Some(chunk), watermark_us));
        }
        if watermark.is_some() && last.is_none() {
            sent.push(self.sent(None, watermark));
        }
        let mut state = self.slots.lock();
        if let Some(over) = state.refusal() {
            return Err(over);
        }
        self.rows += rows;
        let slot = &mut state.slots[self.number];
        for sent in sent {
            let bytes = sent.bytes() as u64;
            slot.bytes += bytes;
            slot.waiting.push_back((Box::new(sent), bytes));
        }
        let reader = slot.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn sent(&self, chunk: Option<Box<dyn Chunk>>, watermark_us: Option<i64>) -> Sent {
        Sent { chunk, watermark_us, stream: self.stream.clone() }
    }

    /// The number of its slot.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Rows sent.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The producer has sent all that it wanted to.
    pub(crate) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Slots { layout, notices, .. } = &*self.slots;
        let name = &self.stream.name;
        let after = format!("{}: producer {name}", layout.place);
        let rows = counted(self.rows, "record");
        let mut state = self.slots.lock();
        let is_over = state.refusal().is_some();
        let is_damaged = self.stream.damage().is_some();
        state.slots[self.number].producer = None;
        let mut notice = None;
        if self.has_ended {
            state.ended += 1;
            notice = Some(format!("{after} has ended after {rows}"));
        } else if !is_over {
            let how = if is_damaged { "was sent away" } else { "was lost" };
            match layout.on_loss {
                OnLoss::Notice => notice = Some(format!("{after} {how} after {rows}, which count")),
                OnLoss::Fail => {
                    let help = "start the job and its producers anew, or say 'on_loss' = 'notice'";
                    state.failure.get_or_insert(Error::Io {
                        place: layout.place.to_string(),
                        message: format!("producer {name} {how} after {rows}"),
                        help: help.into(),
                    });
                }
            }
        }
        let wakers = state.readers();
        drop(state);
        notice.into_iter().for_each(|notice| notices.push(notice));
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    use arrow::datatypes::Schema;

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicU64);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A batch that cannot be decoded.
    struct Damaged;

    impl Chunk for Damaged {
        fn bytes(&self) -> usize {
            1
        }

        fn decode(self: Box<Self>) -> Result<RecordBatch> {
            let (place, help) = ("a batch".to_string(), "send another".into());
            Err(Error::Io { place, message: "it is damaged".into(), help })
        }
    }

    /// The reader of slot 0 may not be called for long, say because its watermark is far ahead. The
    /// readers of other slots sleep. A notice comes from a worker that decodes a batch.
    #[test]
    fn a_notice_wakes_the_readers_of_all_slots() {
        let slots = Slots::new(Layout {
            place: "channel bids".into(),
            slots: 3,
            producers: 3,
            bounded: false,
            on_loss: OnLoss::Notice,
            slot_bytes_max: 1000,
            schema: Arc::new(Schema::empty()),
        });
        let calls: [Arc<Calls>; 3] = Default::default();
        let count = || calls.each_ref().map(|one| one.0.swap(0, Ordering::Relaxed));
        let wakers = calls.clone().map(Waker::from);
        let mut sender = slots.join("p").unwrap();
        while slots.notice().is_some() {}
        assert!(matches!(slots.next(0, &wakers[0]).unwrap(), Next::Chunk(_)), "joining");
        for damaged in 0..3 {
            sender.send(vec![Box::new(Damaged)], 1, None).unwrap();
            let Next::Chunk(chunk) = slots.next(0, &wakers[0]).unwrap() else { panic!("none") };
            for slot in [1, 2] {
                assert!(matches!(slots.next(slot, &wakers[slot]).unwrap(), Next::Nothing));
            }
            count();
            assert_eq!(chunk.decode_reporting().unwrap().left_out, 1);
            assert_eq!(count(), [0, 1, 1], "notice {damaged}");
            assert!(slots.notice().is_some_and(|notice| notice.contains("it is damaged")));
        }
        // Nobody has looked since.
        slots.notices.push("more".into());
        assert_eq!(count(), [0, 0, 0]);
    }
}
