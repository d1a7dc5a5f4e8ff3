//! What both ends of a channel have: a connection, and a block of words that the peer writes and
//! reads.
//!
//! # Sleeping
//!
//! A side that wants to sleep raises a flag in its peer's memory. A peer that sees the flag sends
//! its next message with an immediate value, which wakes the sleeper. That alone would lose
//! wake-ups: a slot posted before the flag arrived may still be on its way when the sleeper looks
//! for the last time. So each side *announces* in its own memory how much it has sent, before it
//! looks at the flag. The sleeper reads that announcement with a one-sided read after writing its
//! flag. The flag is in place before the read is executed. So either the peer sees the flag, or the
//! read sees the announcement, and then the sleeper stays awake for what is on its way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_fabric::{
    Access, Completion, CompletionQueue, Destination, Fabric, Kind, Operation, QueuePair, Receive,
    Region, RemoteRegion, Source, State, Status, WorkRequest,
};

use crate::channel::error::{Error, Result};
use crate::channel::handover::{self, Words};
use crate::channel::settings::Settings;
use crate::channel::stats::Stats;

/// Words of the block, a cache line apart since different sides write them.
const LINE: usize = 64;
const PEER_COUNT: usize = 0;
const PEER_PARKED: usize = LINE;
const OWN_COUNT: usize = 2 * LINE;
const ANSWER: usize = 3 * LINE;
/// Length of the block.
pub(crate) const CONTROL_BYTES: usize = 4 * LINE;

/// Marks the id of the read that asks for the peer's count.
const ASKING: u64 = 1 << 63;

/// A parked side proves so often that its peer still answers: a sleeper posts nothing otherwise,
/// and a network card notices a peer's end only when it waits for an answer.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(250);

/// Where polling does the card's work a side spins so many times as long.
const SPIN_BY_POLLING: u32 = 10;

/// How far a side is on its way to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parking {
    Awake,
    /// The flag is on its way, and the question behind it.
    Asked,
    /// The flag is raised, and nothing was on its way.
    Parked,
}

pub(crate) struct Side<F: Fabric> {
    fabric: F,
    pub(crate) settings: Settings,
    queue: F::CompletionQueue,
    pub(crate) pair: F::QueuePair,
    control: Region,
    peer_control: RemoteRegion,
    /// The peer's block, where this process can reach it.
    window: Option<Region>,
    pub(crate) stats: Stats,
    /// Requests posted, and how many of them are known to be done.
    posted: u64,
    completed: u64,
    /// Receives to post again.
    taken: usize,
    /// Immediate values that came with slots.
    pub(crate) arrived: u64,
    parking: Parking,
    /// The peer's count, when it last answered.
    answer: u64,
    answered: Duration,
    failed: Option<Status>,
}

/// That a peer's region begins at a cache line: words in it are read and written whole.
pub(crate) fn check_alignment(region: &RemoteRegion) -> Result<()> {
    match region.address % LINE as u64 {
        0 => Ok(()),
        over => Err(Error::Mismatch { what: "bytes beyond a cache line", ours: 0, theirs: over }),
    }
}

/// The block's words, as the hand-over wants them.
struct Block<'a>(&'a Region);

impl Words for Block<'_> {
    #[inline]
    fn announce(&self, count: u64) {
        self.0.word(OWN_COUNT).store(count, Ordering::Relaxed);
    }

    #[inline]
    fn fence(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline]
    fn peer_parked(&self) -> bool {
        self.0.word(PEER_PARKED).load(Ordering::Relaxed) != 0
    }
}

/// A side before it is connected.
pub(crate) struct Fresh<F: Fabric> {
    fabric: F,
    pub(crate) settings: Settings,
    queue: F::CompletionQueue,
    pub(crate) pair: F::QueuePair,
    pub(crate) control: Region,
}

impl<F: Fabric> Fresh<F> {
    pub(crate) fn new(fabric: &F, events: &F::Events, settings: Settings) -> Result<Fresh<F>> {
        settings.check()?;
        let queue = fabric.completion_queue(settings.completions(), Some(events))?;
        let sizes = settings.queue_sizes();
        let mut pair = fabric.queue_pair(&queue, &queue, sizes, settings.timing)?;
        let control = fabric.allocate(CONTROL_BYTES, Access::REMOTE_ALL)?;
        let receives = vec![Receive { id: 0, buffer: None }; sizes.receive as usize];
        pair.post_receive(&receives)?;
        Ok(Fresh { fabric: fabric.clone(), settings, queue, pair, control })
    }

    pub(crate) fn connect(
        mut self,
        peer: &millstream_fabric::setup::Hello,
        peer_control: RemoteRegion,
    ) -> Result<Side<F>> {
        if peer_control.bytes < CONTROL_BYTES as u64 {
            return Err(Error::Mismatch {
                what: "length of the control block",
                ours: CONTROL_BYTES as u64,
                theirs: peer_control.bytes,
            });
        }
        check_alignment(&peer_control)?;
        self.pair.connect(&peer.endpoint)?;
        let window = self.pair.window(&peer_control)?;
        let answered = self.fabric.now();
        Ok(Side {
            fabric: self.fabric,
            settings: self.settings,
            queue: self.queue,
            pair: self.pair,
            control: self.control,
            peer_control,
            window,
            stats: Stats::default(),
            posted: 0,
            completed: 0,
            taken: 0,
            arrived: 0,
            parking: Parking::Awake,
            answer: 0,
            answered,
            failed: None,
        })
    }
}

impl<F: Fabric> Side<F> {
    /// The counter that the peer writes here.
    #[inline]
    pub(crate) fn peer_count(&self) -> u64 {
        self.peer_count_word().load(Ordering::Acquire)
    }

    #[inline]
    fn peer_count_word(&self) -> &AtomicU64 {
        self.control.word(PEER_COUNT)
    }

    /// Puts our counter into the peer's block; a peer that is asleep is woken. With `confirm` its
    /// completion will tell that it is there.
    pub(crate) fn tell_count(&mut self, count: u64, asleep: bool, confirm: bool) -> Result<()> {
        if self.window.is_some() && !asleep && self.may_store()? {
            if let Some(window) = &self.window {
                window.word(PEER_COUNT).store(count, Ordering::Release);
            }
            return Ok(());
        }
        let count = count.to_ne_bytes();
        let write = WorkRequest::new(Operation::Write {
            source: Source::Inline(&count),
            to: self.peer_control.at(PEER_COUNT as u64, 8)?,
            immediate: asleep.then_some(CREDIT),
        });
        self.post(&mut [write], confirm || asleep || self.window.is_some())
    }

    /// Whether a store through a window comes in order: nothing that was posted is still to be
    /// done.
    #[inline]
    pub(crate) fn may_store(&mut self) -> Result<bool> {
        if !self.is_quiet() {
            self.poll()?;
        }
        Ok(self.is_quiet())
    }

    /// Announces the count and returns whether the peer has to be woken for it.
    #[inline]
    pub(crate) fn announce(&self, count: u64) -> bool {
        handover::announce(&Block(&self.control), count)
    }

    /// Whether so many more requests can be posted; polls if it does not look so.
    #[inline]
    pub(crate) fn room(&mut self, requests: u64) -> Result<bool> {
        let entries = u64::from(self.settings.queue_sizes().send);
        if self.posted - self.completed + requests <= entries {
            return Ok(true);
        }
        self.poll()?;
        Ok(self.posted - self.completed + requests <= entries)
    }

    /// Posts a list of writes, for which there is room. The last is signalled if that is due.
    #[inline]
    pub(crate) fn post(&mut self, list: &mut [WorkRequest<'_>], signal: bool) -> Result<()> {
        self.posted += list.len() as u64;
        self.stats.writes += list.len() as u64;
        if let Some(last) = list.last_mut() {
            if matches!(last.operation, Operation::Write { immediate: Some(_), .. }) {
                self.stats.immediates += 1;
            }
            if signal {
                *last = last.signalled(self.posted);
            }
        }
        self.pair.post(list)?;
        Ok(())
    }

    /// Takes completions, and posts the receives again that were used.
    pub(crate) fn poll(&mut self) -> Result<()> {
        self.stats.polls += 1;
        let mut some = [Completion::default(); 16];
        loop {
            let count = self.queue.poll(&mut some)?;
            for completion in &some[..count] {
                self.absorb(completion);
            }
            if count < some.len() {
                break;
            }
        }
        self.check()?;
        if self.taken > 0 {
            self.post_receives()?;
        }
        Ok(())
    }

    fn absorb(&mut self, completion: &Completion) {
        if completion.status != Status::Success {
            if self.failed.is_none_or(|status| status == Status::Flushed) {
                self.failed = Some(completion.status);
            }
            return;
        }
        match completion.kind {
            Kind::Write => self.completed = self.completed.max(completion.id),
            Kind::Read => {
                self.completed = self.completed.max(completion.id & !ASKING);
                self.answer = self.control.word(ANSWER).load(Ordering::Acquire);
                self.answered = self.now();
                if self.parking == Parking::Asked {
                    self.parking = Parking::Parked;
                }
            }
            Kind::ReceiveWrite => {
                self.taken += 1;
                self.arrived += u64::from(completion.immediate == Some(SLOT));
            }
            Kind::Send | Kind::Receive | Kind::FetchAdd | Kind::CompareSwap => {}
        }
    }

    /// Whether the connection is known to have failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failed {
            Some(status) => Err(Error::PeerLost { status }),
            None if self.pair.state() == State::Failed => {
                Err(Error::PeerLost { status: Status::Flushed })
            }
            None => Ok(()),
        }
    }

    fn post_receives(&mut self) -> Result<()> {
        let receives = [Receive { id: 0, buffer: None }; 8];
        while self.taken > 0 {
            let count = self.taken.min(receives.len());
            self.pair.post_receive(&receives[..count])?;
            self.taken -= count;
        }
        Ok(())
    }

    /// One step towards sleep; `count` is how much of the peer's has been seen. Returns whether the
    /// thread may sleep at its events now, for at most [`HEARTBEAT`]; whatever comes wakes it.
    pub(crate) fn park(&mut self, count: u64) -> Result<bool> {
        if self.parking == Parking::Awake {
            self.stats.parks += 1;
            if !self.ask()? {
                return Ok(false);
            }
            self.parking = Parking::Asked;
        } else if self.parking == Parking::Parked && self.since(self.answered) >= HEARTBEAT {
            self.ask()?;
            self.answered = self.now();
        }
        self.poll()?;
        if self.parking == Parking::Parked && !handover::may_sleep(self.answer, count) {
            // More is on its way than we have seen: it may come without waking us.
            return Ok(false);
        }
        self.queue.arm()?;
        self.poll()?;
        Ok(self.parking == Parking::Asked || handover::may_sleep(self.answer, count))
    }

    /// Raises the flag and asks for the peer's count. Returns false if there is no room to post.
    fn ask(&mut self) -> Result<bool> {
        if !self.room(2)? {
            return Ok(false);
        }
        let flag = self.peer_control.at(PEER_PARKED as u64, 8)?;
        let from = self.peer_control.at(OWN_COUNT as u64, 8)?;
        let one = 1_u64.to_ne_bytes();
        self.posted += 2;
        self.stats.writes += 1;
        let into = Destination { region: &self.control, offset: ANSWER, bytes: 8 };
        self.pair.post(&[
            WorkRequest::write(Source::Inline(&one), flag),
            WorkRequest::new(Operation::Read { into, from }).signalled(self.posted | ASKING),
        ])?;
        Ok(true)
    }

    /// Lowers the flag, if it is raised: there is something to do.
    #[inline]
    pub(crate) fn unpark(&mut self) -> Result<()> {
        if self.parking == Parking::Awake {
            return Ok(());
        }
        self.lower()
    }

    fn lower(&mut self) -> Result<()> {
        if !self.room(1)? {
            // The flag stays up; the peer wakes us needlessly until the next time.
            return Ok(());
        }
        let flag = self.peer_control.at(PEER_PARKED as u64, 8)?;
        let zero = 0_u64.to_ne_bytes();
        self.post(&mut [WorkRequest::write(Source::Inline(&zero), flag)], true)?;
        self.parking = Parking::Awake;
        Ok(())
    }

    /// How long to look again and again before sleeping. Where polling does the card's work, going
    /// to sleep means to wait for a thread that does it.
    pub(crate) fn spin(&self) -> Duration {
        let by_polling = self.fabric.limits().progress_by_polling;
        self.settings.spin * if by_polling { SPIN_BY_POLLING } else { 1 }
    }

    /// Looks between two polls of the completion queue, while there is nothing.
    pub(crate) fn looks_per_poll(&self, usual: u32) -> u32 {
        if self.fabric.limits().progress_by_polling { 1 } else { usual }
    }

    /// Between two looks. Where polling does the card's work other threads go first: with fewer
    /// cores than threads the peer's may be among them.
    #[inline]
    pub(crate) fn pause(&self) {
        if self.fabric.limits().progress_by_polling {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.fabric.now()
    }

    pub(crate) fn since(&self, start: Duration) -> Duration {
        self.now().saturating_sub(start)
    }

    /// Whether everything posted is known to be done.
    pub(crate) fn is_quiet(&self) -> bool {
        self.posted == self.completed
    }
}

/// The immediate value of a slot.
pub(crate) const SLOT: u32 = 1;
/// The immediate value of a credit.
pub(crate) const CREDIT: u32 = 2;
