//! A link: one end of a reliable connection, and a block of words for the peer. Channels and the
//! shuffle are made of links.
//!
//! # Signals
//!
//! A completion is asked for now and then only. Its id has the count of requests posted so far, so
//! it frees the send queue's entries of all of them, and a token of the poster.
//!
//! # Sleeping
//!
//! A side that wants to sleep raises a flag in its peer's memory. A peer that sees the flag sends
//! its next message with an immediate value, which wakes the sleeper. That alone would lose
//! wake-ups: a message posted before the flag arrived may still be on its way when the sleeper
//! looks for the last time. So each side *announces* in its own memory how much it has sent, before
//! it looks at the flag. The sleeper reads that announcement with a one-sided read after writing
//! its flag. The flag is in place before the read is executed. So either the peer sees the flag, or
//! the read sees the announcement, and then the sleeper stays awake for what is on its way.
//!
//! A flag is a number, which grows from sleep to sleep, and has one wake-up. So nobody lowers it,
//! and no more wake-ups come than a side has receives for.

mod block;
pub(crate) mod handover;
mod position;

use std::time::Duration;

use millstream_fabric::Rejected;
use millstream_fabric::setup::Hello;
use millstream_fabric::{
    Completion, Destination, Error, Fabric, Kind, Operation, QueuePair, Receive, RemoteRegion,
    Result, Source, State, Status, WorkRequest,
};

pub use self::block::{BLOCK_BYTES, Block, LINE, Misfit, PEER_COUNT, check_region};
use self::block::{OWN_COUNT, PEER_FLAG};
pub use self::position::Position;
pub use self::position::{lap_after, lap_name};

/// An idle side proves so often that its peer still answers: a network card notices a peer's end
/// only when it waits for an answer.
pub const HEARTBEAT: Duration = Duration::from_millis(250);

/// The token of work whose completion frees entries of the send queue and tells nothing else.
pub const CONTROL: u32 = u32::MAX;
/// The token of the read that asks for the peer's announcement.
const QUESTION: u32 = u32::MAX - 1;

/// Receives that a side needs for wake-ups, if it posts spent ones again whenever it polls.
pub const WAKES: u32 = 4;

/// How far a side is on its way to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parking {
    Awake,
    /// The flag is on its way, and the question behind it.
    Asked,
    /// The flag is raised, and the question is answered.
    Parked,
}

/// News from a completion.
pub enum Event {
    /// Only the link is concerned.
    Nothing,
    /// Work with this token, and all before it, is done.
    Done(u32),
    /// Something has come: a send, or a write with an immediate value.
    Arrived,
}

/// Counts of posted requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Posted {
    /// Writes.
    pub writes: u64,
    /// Of the writes, those with an immediate value.
    pub immediates: u64,
    /// Sends.
    pub sends: u64,
    /// Reads.
    pub reads: u64,
    /// Of the writes and reads, those by which a side asks whether its peer is alive, or goes to
    /// sleep.
    pub probes: u64,
}

/// One end of a connection.
pub struct Link<F: Fabric> {
    /// The queue pair. Post work with [`Link::post`], for the counts.
    pub pair: F::QueuePair,
    number: u32,
    /// This side's block.
    pub block: Block,
    peer_block: RemoteRegion,
    /// Entries of the send queue.
    entries: u64,
    /// Requests posted, signalled and done; a count includes all requests before.
    posted: u64,
    signalled: u64,
    completed: u64,
    /// Counts of posted requests.
    pub counts: Posted,
    /// Whether receives have no buffers, and are posted again here; how many were used.
    refills: bool,
    spent: usize,
    parking: Parking,
    /// This side's flag, and the peer's that has had its wake-up.
    flag: u64,
    woken: u64,
    /// The peer's announcement, when it last answered.
    answer: u64,
    /// When something completed last.
    heard: Duration,
    failed: Option<Status>,
}

impl<F: Fabric> Link<F> {
    /// Connects to the peer. The send queue has so many `entries`; with `refills` receives have no
    /// buffers.
    pub fn connect(
        mut pair: F::QueuePair,
        peer: &Hello,
        (block, peer_block): (Block, RemoteRegion),
        (entries, refills): (u32, bool),
        now: Duration,
    ) -> Result<Link<F>> {
        pair.connect(&peer.endpoint)?;
        Ok(Link {
            number: pair.number(),
            pair,
            block,
            peer_block,
            entries: entries.into(),
            posted: 0,
            signalled: 0,
            completed: 0,
            counts: Posted::default(),
            refills,
            spent: 0,
            parking: Parking::Awake,
            flag: 0,
            woken: 0,
            answer: 0,
            heard: now,
            failed: None,
        })
    }

    /// Number of the queue pair.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How the connection has failed, as far as is known.
    pub fn failure(&self) -> Option<Status> {
        self.failed
    }

    /// Looks at the queue pair, too, which may know before a completion tells.
    pub fn look_for_failure(&mut self) -> Option<Status> {
        if self.failed.is_none() && self.pair.state() == State::Failed {
            self.failed = Some(Status::Flushed);
        }
        self.failed
    }

    /// Ends the connection, so that the peer notices.
    pub fn fail(&mut self) {
        self.failed.get_or_insert(Status::Flushed);
        self.pair.fail();
    }

    /// Whether so many more requests can be posted.
    #[inline]
    pub fn room(&self, requests: u64) -> bool {
        self.posted - self.completed + requests <= self.entries
    }

    /// Whether everything posted is known to be done.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.posted == self.completed
    }

    /// Requests posted since the beginning.
    #[inline]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Requests known to be done since the beginning: with each all before it.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether no completion is still to come.
    pub fn is_quiet(&self) -> bool {
        self.signalled == self.completed
    }

    /// Requests posted behind the last signalled one.
    pub fn unsignalled(&self) -> u64 {
        self.posted - self.signalled
    }

    /// Posts requests, for which there is room. With a token the last is signalled. A failed
    /// connection is no error here: [`Link::failure`] tells.
    #[inline]
    pub fn post(&mut self, list: &mut [WorkRequest<'_>], token: Option<u32>) -> Result<()> {
        self.posted += list.len() as u64;
        for request in &*list {
            match request.operation {
                Operation::Write { immediate, .. } => {
                    self.counts.writes += 1;
                    self.counts.immediates += u64::from(immediate.is_some());
                }
                Operation::Send { .. } => self.counts.sends += 1,
                Operation::Read { .. } => self.counts.reads += 1,
                Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {}
            }
        }
        if let (Some(token), Some(last)) = (token, list.last_mut()) {
            *last = last.signalled(self.posted << 32 | u64::from(token));
            self.signalled = self.posted;
        }
        let done = self.pair.post(list);
        self.judge(done)
    }

    /// Posts receives. A failed connection is no error here.
    pub fn post_receives(&mut self, receives: &[Receive<'_>]) -> Result<()> {
        let done = self.pair.post_receive(receives);
        self.judge(done)
    }

    #[inline]
    fn judge(&mut self, done: std::result::Result<(), Rejected>) -> Result<()> {
        match done {
            Err(Rejected { reason: Error::Failed, .. }) => {
                self.failed.get_or_insert(Status::Flushed);
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// A write of a word of the peer's block.
    #[inline]
    pub fn word<'a>(
        &self,
        at: usize,
        value: &'a [u8; 8],
        immediate: Option<u32>,
    ) -> Result<WorkRequest<'a>> {
        let to = self.peer_block.at(at as u64, 8)?;
        Ok(WorkRequest::new(Operation::Write { source: Source::Inline(value), to, immediate }))
    }

    /// Takes note of a completion of this link.
    pub fn absorb(&mut self, completion: &Completion, now: Duration) -> Event {
        if completion.status != Status::Success {
            if self.failed.is_none_or(|status| status == Status::Flushed) {
                self.failed = Some(completion.status);
            }
            return Event::Nothing;
        }
        self.heard = now;
        match completion.kind {
            Kind::Receive => return Event::Arrived,
            Kind::ReceiveWrite => {
                if self.refills {
                    self.spent += 1;
                    // The flag has had its wake-up.
                    self.parking = Parking::Awake;
                }
                return Event::Arrived;
            }
            Kind::Write | Kind::Send | Kind::Read | Kind::FetchAdd | Kind::CompareSwap => {}
        }
        let (count, token) = ((completion.id >> 32) as u32, completion.id as u32);
        self.completed += u64::from(count.wrapping_sub(self.completed as u32));
        if token != QUESTION {
            return Event::Done(token);
        }
        self.answer = self.block.answer();
        if self.parking == Parking::Asked {
            self.parking = Parking::Parked;
        }
        Event::Nothing
    }

    /// Posts receives again that were used.
    pub fn refill(&mut self) -> Result<()> {
        let receives = [Receive { id: 0, buffer: None }; 8];
        while self.spent > 0 {
            let count = self.spent.min(receives.len());
            self.post_receives(&receives[..count])?;
            self.spent -= count;
        }
        Ok(())
    }

    /// Announces how much this side has sent, and returns whether the peer has to be woken for it.
    #[inline]
    pub fn announce(&mut self, count: u64) -> bool {
        let flag = handover::announce(&self.block, count);
        flag != std::mem::replace(&mut self.woken, flag)
    }

    /// Whether no flag is raised that still has its wake-up.
    pub fn is_awake(&self) -> bool {
        self.parking == Parking::Awake
    }

    /// One step towards sleep, if there is room for two requests.
    pub fn park(&mut self, now: Duration) -> Result<()> {
        let late = now.saturating_sub(self.heard) >= HEARTBEAT;
        if self.room(2) && (self.parking == Parking::Awake || late) {
            if self.parking == Parking::Awake {
                self.flag += 1;
                self.parking = Parking::Asked;
            }
            self.heard = now;
            let flag = self.flag.to_ne_bytes();
            let (region, offset) = self.block.answer_place();
            let into = Destination { region: &region, offset, bytes: 8 };
            let from = self.peer_block.at(OWN_COUNT as u64, 8)?;
            let ask = WorkRequest::new(Operation::Read { into, from });
            let mut list = [self.word(PEER_FLAG, &flag, None)?, ask];
            self.counts.probes += 2;
            self.post(&mut list, Some(QUESTION))?;
        }
        Ok(())
    }

    /// Whether the side may sleep for at most [`HEARTBEAT`] if its completion queue is armed and
    /// empty: whatever comes wakes it. `seen` is how much of the peer's has been seen.
    pub fn may_sleep(&self, seen: u64) -> bool {
        match self.parking {
            Parking::Awake => false,
            // The answer wakes it.
            Parking::Asked => true,
            // Otherwise more is on its way than was seen, which may come without waking.
            Parking::Parked => handover::may_sleep(self.answer, seen),
        }
    }

    /// Asks the peer whether it is there, if nothing was heard for a while and no answer is due.
    pub fn probe(&mut self, now: Duration) -> Result<()> {
        let late = now.saturating_sub(self.heard) >= HEARTBEAT;
        if self.look_for_failure().is_none() && late && self.is_quiet() && self.room(1) {
            self.heard = now;
            self.counts.probes += 1;
            let flag = self.flag.to_ne_bytes();
            self.post(&mut [self.word(PEER_FLAG, &flag, None)?], Some(CONTROL))?;
        }
        Ok(())
    }
}
