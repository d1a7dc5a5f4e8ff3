//! The source's end of a pair: permission to write, and the requests (thesis, sections 7.5.2 and
//! 7.5.3).

use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_fabric::{
    Completion, Destination, Fabric, Operation, Region, RemoteRegion, Source as Bytes, WorkRequest,
};
use millstream_flow::link::{CONTROL, Event, Link, Position};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::farewell::{CONFIRMED, WAKE};
use crate::ring::{Shape, is_free};
use crate::sequencer::NUMBER;
use crate::thread::Peer;

/// The token of a READ of a footer or a count.
const ANSWER: u32 = 1;
/// Most requests of a segment: payload, footer, READ.
pub(crate) const REQUESTS: u64 = 3;

/// Longest back-off before a READ is repeated.
const BACK_OFF_NS_MAX: u64 = 16_000;
/// Shortest back-off.
const BACK_OFF_NS_MIN: u64 = 1_000;

/// The READ that asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// None is under way.
    Idle,
    /// The answer has not come.
    Pending,
    /// The answer was no: the READ is repeated at this time.
    Later(Duration),
}

/// A segment of the source's ring, ready to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealed {
    /// Its index in the source's ring.
    pub(crate) slot: usize,
    /// Bytes of payload.
    pub(crate) fill: usize,
    /// Whether it ends the pair.
    pub(crate) end: bool,
}

/// Where a lane's peer has its memory, and where its answers land.
pub(crate) struct Places {
    /// The target's ring.
    pub(crate) ring: RemoteRegion,
    /// The target's count of consumed segments plus the ring's length.
    pub(crate) count: RemoteRegion,
    /// Where READs land.
    pub(crate) landing: (Region, usize),
}

/// The source's end of a pair.
pub(crate) struct Lane<F: Fabric> {
    pub(crate) link: Link<F>,
    pub(crate) peer: Peer,
    places: Places,
    asking: Asking,
    /// Segments posted since the beginning, and how many may be.
    pub(crate) sent: u64,
    limit: u64,
    /// By slot of the source's ring: the link's count of requests after the slot was last posted.
    /// 0 if the fabric copied it.
    posted_at: Box<[u64]>,
    /// Of the next segment in the target's ring.
    at: Position,
    chance: u64,
    pub(crate) lost: bool,
}

impl<F: Fabric> Lane<F> {
    pub(crate) fn new(link: Link<F>, peer: Peer, places: Places, shape: &Shape) -> Lane<F> {
        // The ring is fresh: its first segment is free, and with credit all are.
        let limit = if shape.ask_below.is_some() { shape.segments as u64 } else { 1 };
        Lane {
            chance: u64::from(link.number()) << 32 | u64::from(peer.index),
            link,
            peer,
            places,
            asking: Asking::Idle,
            sent: 0,
            limit,
            posted_at: vec![0; shape.source_segments].into(),
            at: shape.start(),
            lost: false,
        }
    }

    /// Whether the fabric is done with the slot of the source's ring that held segment `number`.
    #[inline]
    pub(crate) fn is_done_with(&self, number: u64, slot: usize) -> bool {
        self.lost || (self.sent > number && self.link.completed() >= self.posted_at[slot])
    }

    /// Whether the next segment may be written now. If not, asks for it when that is due.
    #[inline]
    pub(crate) fn may_write(
        &mut self,
        shape: &Shape,
        now: impl FnOnce() -> Duration,
        counters: &mut Counters,
    ) -> Result<bool> {
        if self.lost || self.link.failure().is_some() || !self.link.room(REQUESTS) {
            return Ok(false);
        }
        if self.sent < self.limit {
            return Ok(true);
        }
        let due = match self.asking {
            Asking::Pending => false,
            Asking::Later(at) => now() >= at,
            Asking::Idle => true,
        };
        if due {
            counters.repeated_reads += 1;
            self.ask(shape, counters)?;
        }
        Ok(false)
    }

    /// Whether the target was reached. Before, the fabric may keep requests until this end calls
    /// again (`shm` does until the peer has connected); so asks, where no READ is under way.
    pub(crate) fn is_reached(&mut self, shape: &Shape, counters: &mut Counters) -> Result<bool> {
        if self.lost || self.sent == 0 || self.link.completed() > 0 {
            return Ok(true);
        }
        if self.asking == Asking::Idle && self.link.failure().is_none() && self.link.room(REQUESTS)
        {
            self.ask(shape, counters)?;
        }
        Ok(false)
    }

    /// Posts the READ that asks for permission.
    fn ask(&mut self, shape: &Shape, counters: &mut Counters) -> Result<()> {
        counters.reads += 1;
        self.asking = Asking::Pending;
        let read = self.places.ask(shape, &self.at)?;
        self.link.post(&mut [read], Some(ANSWER))?;
        Ok(())
    }

    /// Writes a segment of `ring`, for which [`Lane::may_write`] has said yes; where that is due,
    /// asks for the next.
    pub(crate) fn write(
        &mut self,
        ring: &Region,
        sealed: Sealed,
        (shape, inline_bytes): (&Shape, usize),
        counters: &mut Counters,
    ) -> Result<()> {
        let from = sealed.slot * shape.stride();
        let inline = shape.stride() <= inline_bytes;
        let piece = |offset: usize, bytes: usize| -> Result<WorkRequest<'_>> {
            let to = self.places.ring.at((self.at.offset + offset) as u64, bytes as u64)?;
            let source = if inline {
                // SAFETY: the source's own ring, open to no peer; this thread alone writes it.
                Bytes::Inline(unsafe { ring.slice(from + offset, bytes) })
            } else {
                Bytes::Region { region: ring, offset: from + offset, bytes }
            };
            Ok(WorkRequest::write(source, to))
        };
        let split = !inline && 2 * sealed.fill < shape.payload;
        let mut list = if split {
            // A whole word more or less: checksums cover words.
            let payload = piece(0, sealed.fill.next_multiple_of(8))?;
            [payload, piece(shape.payload, shape.trailer())?]
        } else {
            [piece(0, shape.stride())?; 2]
        };
        let first = if split && sealed.fill > 0 { 0 } else { 1 };
        let list = &mut list[first..];
        if self.link.announce(self.sent + 1)
            && let Some(Operation::Write { immediate, .. }) =
                list.last_mut().map(|last| &mut last.operation)
        {
            *immediate = Some(WAKE);
            counters.wakes += 1;
        }
        self.sent += 1;
        self.at.advance();
        counters.writes += list.len() as u64;
        // The write that wraps the source's ring, and the last: closing waits for it.
        let signalled = sealed.slot + 1 == shape.source_segments || sealed.end;
        counters.signalled_writes += u64::from(signalled);
        let asks = !sealed.end && self.asking == Asking::Idle && self.is_low(shape);
        if asks {
            self.asking = Asking::Pending;
            counters.reads += 1;
        }
        match (asks, signalled) {
            (true, false) => {
                let read = self.places.ask(shape, &self.at)?;
                let mut all = [list[0], list[list.len() - 1], read];
                self.link.post(&mut all[2 - list.len()..], Some(ANSWER))?;
            }
            (true, true) => {
                self.link.post(list, Some(CONTROL))?;
                let read = self.places.ask(shape, &self.at)?;
                self.link.post(&mut [read], Some(ANSWER))?;
            }
            (false, _) => self.link.post(list, signalled.then_some(CONTROL))?,
        }
        self.posted_at[sealed.slot] = if inline { 0 } else { self.link.posted() };
        Ok(())
    }

    /// Whether permission for more is to be asked for: with footers always, with credit when little
    /// is left.
    #[inline]
    fn is_low(&self, shape: &Shape) -> bool {
        let left = self.limit.saturating_sub(self.sent);
        left < shape.ask_below.unwrap_or(1)
    }

    /// Takes note of a completion. Returns whether it brings a number of the sequencer.
    pub(crate) fn absorb(
        &mut self,
        completion: &Completion,
        shape: &Shape,
        now: Duration,
    ) -> Result<bool> {
        match self.link.absorb(completion, now) {
            Event::Done(ANSWER) => {
                let (region, at) = &self.places.landing;
                let word = region.word(*at).load(Ordering::Acquire);
                self.answered(word, shape, now)?;
                Ok(false)
            }
            Event::Done(NUMBER) => Ok(true),
            _ => Ok(false),
        }
    }

    /// The target's word has come.
    fn answered(&mut self, word: u64, shape: &Shape, now: Duration) -> Result<()> {
        let peer = self.peer;
        let broken = |what| Error::Protocol { peer, what, found: word };
        if shape.ask_below.is_some() {
            // The count never falls, and the target cannot consume what was not sent.
            let most = self.sent + shape.segments as u64;
            if word < self.limit || word > most {
                return Err(broken("an impossible count of consumed segments"));
            }
            self.limit = word;
        } else {
            let before = shape.lap_before(self.sent);
            match is_free(word, before, shape.payload) {
                Some(true) => self.limit = self.sent + 1,
                Some(false) => {}
                None => return Err(broken("an impossible footer")),
            }
        }
        self.asking = if self.sent < self.limit {
            Asking::Idle
        } else {
            Asking::Later(now + Duration::from_nanos(self.back_off_ns()))
        };
        Ok(())
    }

    /// A random back-off (xorshift).
    fn back_off_ns(&mut self) -> u64 {
        self.chance |= 1;
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        BACK_OFF_NS_MIN + self.chance % (BACK_OFF_NS_MAX - BACK_OFF_NS_MIN + 1)
    }

    /// Whether the target has confirmed the end.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.link.block.peer_count() == CONFIRMED
    }

    /// Whether the target has everything: all is acknowledged, or the target has confirmed the end.
    pub(crate) fn is_delivered(&self) -> bool {
        self.lost || self.link.is_done() || self.is_confirmed()
    }
}

impl Places {
    /// The READ that asks for the segment at a position.
    fn ask(&self, shape: &Shape, at: &Position) -> Result<WorkRequest<'_>> {
        let from = if shape.ask_below.is_some() {
            self.count.at(0, 8)?
        } else {
            self.ring.at(shape.word_at(at.offset) as u64, 8)?
        };
        let (region, offset) = (&self.landing.0, self.landing.1);
        let into = Destination { region, offset, bytes: 8 };
        Ok(WorkRequest::new(Operation::Read { into, from }))
    }
}
