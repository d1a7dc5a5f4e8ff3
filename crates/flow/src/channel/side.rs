//! The common part of both ends of a channel: a link, a completion queue and counters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{
    Access, Completion, CompletionQueue, Fabric, Kind, QueuePair, Receive, Region, RemoteRegion,
    WorkRequest,
};

use crate::channel::error::{Error, Result};
use crate::channel::settings::Settings;
use crate::channel::stats::Stats;
use crate::link::{BLOCK_BYTES, Block, CONTROL, Event, Link, PEER_COUNT, check_region};

/// Where polling does the card's work a side spins so many times as long.
const SPIN_BY_POLLING: u32 = 10;

pub(crate) struct Side<F: Fabric> {
    fabric: F,
    pub(crate) settings: Settings,
    queue: F::CompletionQueue,
    pub(crate) link: Link<F>,
    /// The peer's block, where this process can reach it.
    window: Option<Region>,
    pub(crate) stats: Stats,
    /// Immediate values that came with slots.
    pub(crate) arrived: u64,
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
        let control = fabric.allocate(BLOCK_BYTES, Access::REMOTE_ALL)?;
        let receives = vec![Receive { id: 0, buffer: None }; sizes.receive as usize];
        pair.post_receive(&receives)?;
        Ok(Fresh { fabric: fabric.clone(), settings, queue, pair, control })
    }

    pub(crate) fn connect(self, peer: &Hello, peer_block: RemoteRegion) -> Result<Side<F>> {
        check_region(&peer_block, BLOCK_BYTES)?;
        let blocks = (Block::new(self.control, 0), peer_block);
        let queue = (self.settings.queue_sizes().send, true);
        let mut link = Link::<F>::connect(self.pair, peer, blocks, queue, self.fabric.now())?;
        Ok(Side {
            window: link.pair.window(&peer_block)?,
            fabric: self.fabric,
            settings: self.settings,
            queue: self.queue,
            link,
            stats: Stats::default(),
            arrived: 0,
        })
    }
}

impl<F: Fabric> Side<F> {
    /// Counters.
    pub(crate) fn stats(&self) -> Stats {
        let posted = &self.link.counts;
        Stats { writes: posted.writes, immediates: posted.immediates, ..self.stats }
    }

    /// Puts our counter into the peer's block; a peer that is asleep is woken. With `confirm` the
    /// write is signalled.
    pub(crate) fn tell_count(&mut self, count: u64, asleep: bool, confirm: bool) -> Result<()> {
        if self.window.is_some() && !asleep && self.may_store()? {
            if let Some(window) = &self.window {
                window.word(PEER_COUNT).store(count, Ordering::Release);
            }
            return Ok(());
        }
        let count = count.to_ne_bytes();
        let write = self.link.word(PEER_COUNT, &count, asleep.then_some(CREDIT))?;
        self.post(&mut [write], confirm || asleep || self.window.is_some())
    }

    /// Whether a store through a window comes in order: nothing that was posted is still to be
    /// done.
    #[inline]
    pub(crate) fn may_store(&mut self) -> Result<bool> {
        if !self.link.is_done() {
            self.poll()?;
        }
        Ok(self.link.is_done())
    }

    /// Whether so many more requests can be posted; polls if it does not look so.
    #[inline]
    pub(crate) fn room(&mut self, requests: u64) -> Result<bool> {
        if !self.link.room(requests) {
            self.poll()?;
        }
        Ok(self.link.room(requests))
    }

    /// Posts a list of writes, for which there is room. The last is signalled if that is due.
    #[inline]
    pub(crate) fn post(&mut self, list: &mut [WorkRequest<'_>], signal: bool) -> Result<()> {
        self.link.post(list, signal.then_some(CONTROL))?;
        match self.link.failure() {
            Some(status) => Err(Error::PeerLost { status }),
            None => Ok(()),
        }
    }

    /// Takes completions, and posts the receives again that were used.
    pub(crate) fn poll(&mut self) -> Result<()> {
        self.stats.polls += 1;
        let mut some = [Completion::default(); 16];
        loop {
            let count = self.queue.poll(&mut some)?;
            if count > 0 {
                let now = self.now();
                for completion in &some[..count] {
                    let slot =
                        completion.kind == Kind::ReceiveWrite && completion.immediate == Some(SLOT);
                    if let Event::Arrived = self.link.absorb(completion, now) {
                        self.arrived += u64::from(slot);
                    }
                }
            }
            if count < some.len() {
                break;
            }
        }
        self.check()?;
        Ok(self.link.refill()?)
    }

    /// Whether the connection is known to have failed.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.link.look_for_failure() {
            Some(status) => Err(Error::PeerLost { status }),
            None => Ok(()),
        }
    }

    /// One step towards sleep; `count` is how much of the peer's has been seen. Returns whether the
    /// thread may sleep at its events now, for at most [`HEARTBEAT`](crate::link::HEARTBEAT);
    /// whatever comes wakes it.
    pub(crate) fn park(&mut self, count: u64) -> Result<bool> {
        self.stats.parks += u64::from(self.link.is_awake());
        if !self.room(2)? {
            return Ok(false);
        }
        self.link.park(self.fabric.now())?;
        self.poll()?;
        if !self.link.may_sleep(count) {
            return Ok(false);
        }
        self.queue.arm()?;
        self.poll()?;
        Ok(self.link.may_sleep(count))
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
}

/// The immediate value of a slot.
pub(crate) const SLOT: u32 = 1;
/// The immediate value of a credit.
pub(crate) const CREDIT: u32 = 2;
