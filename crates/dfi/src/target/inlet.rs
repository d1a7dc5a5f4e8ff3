//! The target's end of a pair: its ring (thesis, section 7.5.2).

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_fabric::{Fabric, Region};
use millstream_flow::channel::footer::{Footer, lap_of};
use millstream_flow::link::{CONTROL, Link, PEER_COUNT, Position};

use crate::error::{Error, Result};
use crate::farewell::CONFIRMED;
use crate::ring::{Shape, checksum};
use crate::thread::Peer;

/// How far a pair has come, as its target knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Segments are to come.
    Open,
    /// The source has ended the pair; whether it has been told is the flag.
    Ending(bool),
    /// The source knows that the target has seen the end, or is gone.
    Ended,
}

/// The target's end of a pair.
pub(crate) struct Inlet<F: Fabric> {
    pub(crate) link: Link<F>,
    pub(crate) peer: Peer,
    ring: Region,
    /// The word of the count that the source reads, and the region it lies in.
    count: (Region, usize),
    /// Of the segment to look for next.
    at: Position,
    /// Segments that were found since the beginning.
    pub(crate) found: u64,
    /// Of the segment to free next.
    held: Position,
    /// Segments freed since the beginning.
    freed: u64,
    /// Of an ordered flow: numbers of later segments are higher.
    least: u64,
    pub(crate) progress: Progress,
}

impl<F: Fabric> Inlet<F> {
    pub(crate) fn new(
        link: Link<F>,
        peer: Peer,
        (ring, count): (Region, (Region, usize)),
        shape: &Shape,
    ) -> Inlet<F> {
        let at = shape.start();
        let (progress, held) = (Progress::Open, at);
        Inlet { link, peer, ring, count, at, found: 0, held, freed: 0, least: 0, progress }
    }

    /// Whether the footer of the next segment is of this lap.
    #[inline(always)]
    pub(crate) fn has_news(&self, shape: &Shape) -> bool {
        let word = self.ring.word(shape.word_at(self.at.offset));
        lap_of(word.load(Ordering::Relaxed)) == self.at.lap() && self.progress == Progress::Open
    }

    /// The footer of the next segment, if the segment is complete.
    #[inline]
    pub(crate) fn look(&self, shape: &Shape, tuple_bytes: usize) -> Result<Option<Footer>> {
        if self.progress != Progress::Open {
            return Ok(None);
        }
        let at = shape.word_at(self.at.offset);
        // The private copy that everything is decided on.
        let word = self.ring.word(at).load(Ordering::Acquire);
        let footer = match Footer::decode(word, self.at.lap(), shape.payload) {
            None => return Ok(None),
            Some(Ok(footer)) if is_possible(&footer, tuple_bytes) => footer,
            // Free again in the lap that is still to come, part of a tuple, or nonsense.
            Some(_) => {
                let what = "an impossible footer";
                return Err(Error::Protocol { peer: self.peer, what, found: word });
            }
        };
        if shape.checksum {
            let tag = self.ring.word(at - 8).load(Ordering::Relaxed);
            let number =
                if shape.ordered && !footer.end { self.number(self.at.offset, shape) } else { 0 };
            let payload = (self.at.offset, footer.bytes as usize);
            if checksum(&self.ring, payload, number, word) != tag {
                // Parts of the segment are still to land.
                return Ok(None);
            }
        }
        Ok(Some(footer))
    }

    fn number(&self, offset: usize, shape: &Shape) -> u64 {
        self.ring.word(shape.number_at(offset)).load(Ordering::Relaxed)
    }

    /// The number in the flow's order of the segment at `offset`, which was taken last.
    ///
    /// # Errors
    /// A number that is not above those before: a source draws them in order.
    pub(crate) fn take_number(&mut self, offset: usize, shape: &Shape) -> Result<u64> {
        let number = self.number(offset, shape);
        if number < self.least || number == u64::MAX {
            let what = "a number in the flow's order that is too low";
            return Err(Error::Protocol { peer: self.peer, what, found: number });
        }
        self.least = number + 1;
        Ok(number)
    }

    /// Takes the segment that was looked at. Returns its first byte in the ring.
    #[inline]
    pub(crate) fn take(&mut self) -> usize {
        let offset = self.at.offset;
        self.at.advance();
        self.found += 1;
        offset
    }

    /// So many bytes of the payload that begins at `offset`.
    ///
    /// # Safety
    /// The segment is complete and not released, and the source keeps the protocol.
    #[inline]
    pub(crate) unsafe fn payload(&self, offset: usize, bytes: usize) -> &[u8] {
        // SAFETY: as promised by the caller.
        unsafe { self.ring.slice(offset, bytes) }
    }

    /// The first segment that was taken and is not free is consumed: the source may write it again.
    #[inline]
    pub(crate) fn release(&mut self, shape: &Shape) {
        self.freed += 1;
        if shape.ask_below.is_some() {
            let count = self.freed + shape.segments as u64;
            word_of(&self.count).store(count, Ordering::Release);
        } else {
            let free = Footer::FREE.encode(self.held.lap());
            self.ring.word(shape.word_at(self.held.offset)).store(free, Ordering::Release);
        }
        self.held.advance();
    }

    /// The segment that ends the pair was found. It is not freed: the source writes no more.
    pub(crate) fn end(&mut self) {
        self.take();
        self.progress = Progress::Ending(false);
    }

    /// Confirms the end to the source. Returns whether the pair has ended: the source knows, or is
    /// gone, which proves as much.
    pub(crate) fn confirm(&mut self) -> Result<bool> {
        if self.link.failure().is_none() && self.progress == Progress::Ending(false) {
            if !self.link.room(1) {
                return Ok(false);
            }
            let count = CONFIRMED.to_ne_bytes();
            let word = self.link.word(PEER_COUNT, &count, None)?;
            self.link.post(&mut [word], Some(CONTROL))?;
            self.progress = Progress::Ending(true);
        }
        let told = self.progress == Progress::Ending(true) && self.link.is_done();
        if told || self.link.failure().is_some() {
            self.progress = Progress::Ended;
        }
        Ok(self.progress == Progress::Ended)
    }
}

/// Whether a source that keeps the protocol writes such a footer.
#[inline]
fn is_possible(footer: &Footer, tuple_bytes: usize) -> bool {
    let bytes = footer.bytes as usize;
    footer.end || (!footer.free && bytes > 0 && bytes.is_multiple_of(tuple_bytes))
}

fn word_of((region, at): &(Region, usize)) -> &AtomicU64 {
    region.word(*at)
}

/// Prepares the footers and the count, before the source knows of them.
pub(crate) fn prepare(ring: &Region, count: &(Region, usize), shape: &Shape) {
    for segment in 0..shape.segments {
        let at = shape.word_at(segment * shape.stride());
        ring.word(at).store(Footer::FREE.encode(0), Ordering::Release);
    }
    word_of(count).store(shape.segments as u64, Ordering::Release);
}
