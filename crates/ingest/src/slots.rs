//! Slots: where batches of producers wait until the job takes them. Each slot is a split.
//! [`crate::elsewhere`] is about the slots of the job's other processes.

mod slot;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_connect::ArrowBatch;
use millstream_contract::table::{Chunk, Senders};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use self::slot::Slot;
use crate::elsewhere::{Elsewhere, Word};
use crate::ring::Ring;
use crate::sent::{Notices, Queued, Stream};

/// Answer to producers of a job that is being drained.
pub(crate) const DRAINED: &str = "the job is being drained: it takes no more records";

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
    /// In this process, and in all processes.
    pub(crate) slots: usize,
    pub(crate) producers_max: u64,
    /// Producers that have to join, in all processes, before a slot without one is idle.
    pub(crate) producers: u64,
    /// Whether producers of all processes come here first.
    pub(crate) is_coordinator: bool,
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
    /// Whether the other processes have to be told something.
    news: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    /// The producers of this process, and those of the other processes.
    here: Word,
    elsewhere: Elsewhere,
    /// As many producers as `producers` says had joined at some time.
    has_started: bool,
    /// A bounded table has had all its producers.
    is_complete: bool,
    is_draining: bool,
    /// The job reads no more.
    is_gone: bool,
    /// The loss of a producer that ends the job.
    failure: Option<Error>,
}

/// Where a producer sends its batches.
pub(crate) enum Placed {
    Here(Sender),
    /// To the process that listens at this port.
    Elsewhere(u16),
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
        let here = Word { slots: layout.slots as u64, ..Word::default() };
        let state = Mutex::new(State { slots, here, ..State::default() });
        Arc::new(Slots { layout, notices: Arc::default(), state, news: AtomicBool::new(false) })
    }

    /// The port of this process is known.
    pub(crate) fn listens(&self, port: u16) {
        self.lock().here.port = port;
        self.news.store(true, Ordering::Release);
    }

    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a producer a slot. The producer counts from [`Sender::begin`].
    pub(crate) fn join(self: &Arc<Self>, name: &str) -> std::result::Result<Sender, Refused> {
        self.take_slot(self.lock(), name)
    }

    /// As [`Slots::join`], in the process of the job that has the fewest producers.
    pub(crate) fn place(self: &Arc<Self>, name: &str) -> std::result::Result<Placed, Refused> {
        let mut state = self.lock();
        if self.layout.is_coordinator && state.refusal().is_none() {
            let taken = state.slots.iter().filter(|slot| slot.producer.is_some()).count();
            let here = (taken < self.layout.slots).then_some(taken as u64);
            if let Some(port) = state.elsewhere.send(here) {
                return Ok(Placed::Elsewhere(port));
            }
        }
        self.take_slot(state, name).map(Placed::Here)
    }

    fn take_slot(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        name: &str,
    ) -> std::result::Result<Sender, Refused> {
        if let Some(over) = state.refusal() {
            return Err(over);
        }
        let Some(number) = state.slots.iter().position(|slot| slot.producer.is_none()) else {
            let all = counted(self.layout.producers_max, "producer");
            return Err(Refused::Full(format!(
                "{} has {all} already; 'producers.max' is how many it takes at the same time",
                self.layout.place
            )));
        };
        let stream = Stream::new(name, self.layout.schema.clone(), self.notices.clone());
        state.slots[number].producer = Some(stream.clone());
        drop(state);
        let slots = self.clone();
        Ok(Sender { slots, number, stream, rows: 0, has_ended: false, fault: None })
    }

    /// The oldest chunk of a slot. If the slot is empty, `waker` is called when a chunk or a notice
    /// comes.
    pub(crate) fn next(&self, number: usize, waker: &Waker) -> Result<Next> {
        let mut state = self.lock();
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        let is_over = state.is_draining || state.is_complete;
        let slot = &mut state.slots[number];
        let Some(chunk) = slot.take_chunk() else {
            if is_over {
                return Ok(Next::Ended);
            }
            slot.reader = Some(waker.clone());
            drop(state);
            self.notices.wake(number, waker);
            return Ok(Next::Nothing);
        };
        let has_room = slot.bytes < self.layout.slot_bytes_max;
        let sender = slot.sender.take_if(|_| has_room);
        drop(state);
        sender.into_iter().for_each(Waker::wake);
        Ok(Next::Chunk(chunk))
    }

    /// Gives the producer in a slot a ring.
    pub(crate) fn attach(&self, slot: usize, mut ring: Box<dyn Ring>) {
        let mut state = self.lock();
        if let Some(over) = state.refusal() {
            drop(state);
            return ring.refuse(&over.to_string());
        }
        let before = state.slots[slot].ring.replace(ring);
        let reader = state.slots[slot].reader.take();
        drop(state);
        drop(before);
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
        state.has_started && !slot.has_begun && slot.waiting.is_empty()
    }

    pub(crate) fn notice(&self) -> Option<String> {
        self.notices.pop()
    }

    /// Takes no more records. True if some wait for the job, or may lie in a ring.
    pub(crate) fn drain(&self, slot: usize) -> bool {
        let mut state = self.lock();
        state.is_draining = true;
        let waits = state.slots[slot].has_ring || !state.slots[slot].waiting.is_empty();
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

impl Senders for Slots {
    fn word(&self) -> Option<Vec<u8>> {
        let tells = self.news.load(Ordering::Acquire) && self.news.swap(false, Ordering::AcqRel);
        tells.then(|| self.lock().here.encode())
    }

    fn hear(&self, process: usize, word: &[u8]) -> Result<()> {
        let word = Word::decode(word)?;
        let mut state = self.lock();
        state.elsewhere.hear(process, word);
        state.settle(&self.layout);
        Ok(())
    }
}

impl State {
    /// Notes whether as many producers as there have to be have joined, or ended.
    fn settle(&mut self, layout: &Layout) {
        let (joined, ended) = self.elsewhere.with(&self.here);
        self.has_started |= joined >= layout.producers;
        let have_ended = ended >= layout.producers && ended == joined;
        self.is_complete |= layout.bounded && have_ended;
    }

    /// The reason why no producer may send.
    fn refusal(&self) -> Option<Refused> {
        let why = match self {
            State { is_gone: true, .. } => "the job has ended",
            State { is_draining: true, .. } => DRAINED,
            State { is_complete: true, .. } => "the table has ended: all its producers have ended",
            _ => return None,
        };
        Some(Refused::Over(why.to_string()))
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
    /// Why it is sent away.
    fault: Option<String>,
}

impl Sender {
    /// The producer counts from now on, and the watermark waits for its slot.
    pub(crate) fn begin(&mut self, has_ring: bool) -> std::result::Result<(), Refused> {
        let Slots { layout, notices, .. } = &*self.slots;
        let mut state = self.slots.lock();
        if let Some(over) = state.refusal() {
            return Err(over);
        }
        state.here.joined += 1;
        state.here.arrived += 1;
        state.settle(layout);
        self.slots.news.store(true, Ordering::Release);
        let slot = &mut state.slots[self.number];
        (slot.has_begun, slot.has_ring) = (true, has_ring);
        slot.queue(Queued::new(None, None, &self.stream));
        let wakers = state.readers();
        drop(state);
        notices.push(format!("{}: producer {} has joined", layout.place, self.stream.name));
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Whether it may send; if not, `waker` is called when there is room.
    pub(crate) fn has_room(&self, waker: &Waker) -> std::result::Result<bool, Refused> {
        let mut state = self.slots.lock();
        self.check()?;
        if let Some(over) = state.refusal() {
            return Err(over);
        }
        let slot = &mut state.slots[self.number];
        let has_room = slot.bytes < self.slots.layout.slot_bytes_max;
        if !has_room {
            slot.sender = Some(waker.clone());
        }
        Ok(has_room)
    }

    /// Refuses a producer that has sent a damaged batch.
    pub(crate) fn check(&self) -> std::result::Result<(), Refused> {
        self.stream.damage().map_or(Ok(()), |error| Err(Refused::Damaged(error.clone())))
    }

    /// Hands a record batch to the job, and a watermark behind it.
    pub(crate) fn send(
        &mut self,
        batch: Option<ArrowBatch>,
        watermark: Option<i64>,
    ) -> std::result::Result<(), Refused> {
        let rows = batch.as_ref().map_or(0, ArrowBatch::rows);
        if batch.is_none() && watermark.is_none() {
            return Ok(());
        }
        let mut state = self.slots.lock();
        // The reader of a ring sends by itself, and knows when the ring has been drained.
        let has_ring = state.slots[self.number].has_ring && !state.is_gone;
        if let Some(over) = state.refusal().filter(|_| !has_ring) {
            return Err(over);
        }
        self.rows += rows;
        let slot = &mut state.slots[self.number];
        let alone = watermark.filter(|_| batch.is_none());
        let last = slot.waiting.back_mut().zip(alone);
        if !last.is_some_and(|(last, later_us)| last.join_watermark(later_us)) {
            slot.queue(Queued::new(batch, watermark, &self.stream));
        }
        let reader = slot.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The number of its slot.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Rows that were taken so far. Some may not have been decoded.
    pub(crate) fn rows(&self) -> u64 {
        self.rows - self.stream.left_out().min(self.rows)
    }

    /// Whether all rows have been decoded, or left out.
    pub(crate) fn is_settled(&self) -> bool {
        self.stream.is_settled(self.rows)
    }

    /// Waits for [`Sender::is_settled`].
    pub(crate) async fn settled(&self) {
        self.stream.settled(self.rows).await;
    }

    /// The producer is sent away for this reason.
    pub(crate) fn blame(&mut self, fault: &str) {
        self.fault.get_or_insert_with(|| fault.to_string());
    }

    /// The producer has sent all that it wanted to, and that is settled. Returns the number of
    /// rows.
    pub(crate) fn end(mut self) -> std::result::Result<u64, Refused> {
        self.check()?;
        if self.stream.left_out() > 0 {
            return Err(Refused::Over("the job has ended".to_string()));
        }
        self.has_ended = true;
        Ok(self.rows)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Slots { layout, notices, .. } = &*self.slots;
        let name = &self.stream.name;
        let rows = counted(self.rows(), "record");
        let fault = self.fault.take().or_else(|| self.stream.damage().map(Error::to_string));
        let (how, why) = match fault {
            Some(fault) => ("was sent away", format!(": {fault}")),
            None => ("was lost", String::new()),
        };
        let mut state = self.slots.lock();
        let is_over = state.refusal().is_some();
        let slot = &mut state.slots[self.number];
        slot.producer = None;
        slot.has_ring = false;
        self.slots.news.store(true, Ordering::Release);
        if !std::mem::take(&mut slot.has_begun) {
            state.here.arrived += 1;
            return;
        }
        let after = format!("{}: producer {name}", layout.place);
        let mut notice = None;
        if self.has_ended {
            state.here.ended += 1;
            notice = Some(format!("{after} has ended after {rows}"));
        } else {
            // So the same program, started again, is one producer.
            state.here.joined -= 1;
            if !is_over && layout.on_loss == OnLoss::Notice {
                notice = Some(format!("{after} {how} after {rows}, which count{why}"));
            } else if !is_over {
                let help = "start the job and its producers anew, or say 'on_loss' = 'notice'";
                state.failure.get_or_insert(Error::Io {
                    place: layout.place.to_string(),
                    message: format!("producer {name} {how} after {rows}{why}"),
                    help: help.into(),
                });
            }
        }
        // Before the end of the table is seen.
        notice.into_iter().for_each(|notice| notices.push(notice));
        state.settle(layout);
        let wakers = state.readers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
