//! The source's ring of segments that are being filled and written.

use std::ops::Range;
use std::sync::atomic::Ordering;

use millstream_fabric::Region;
use millstream_flow::channel::footer::Footer;
use millstream_flow::link::Position;

use crate::ring::{Shape, checksum};
use crate::source::lane::Sealed;

/// A ring of the source: for one target, or for all if each gets the same tuples.
pub(crate) struct Outbox {
    pub(crate) ring: Region,
    /// The lanes that write this ring.
    pub(crate) lanes: Range<usize>,
    /// Segments sealed since the beginning, and how many of them are ready to be written: in an
    /// ordered flow, those with a number.
    pub(crate) sealed: u64,
    pub(crate) ready: u64,
    /// Whether the last sealed segment ends the pairs. It has no number.
    has_ended: bool,
    /// The slot being filled: index and first byte.
    slot: usize,
    start: usize,
    /// Bytes filled, and how many may be: 0 while the slot is not open.
    fill: usize,
    limit: usize,
    /// Of the segment in the targets' rings, for its lap.
    at: Position,
}

impl Outbox {
    pub(crate) fn new(ring: Region, lanes: Range<usize>, shape: &Shape) -> Outbox {
        let at = shape.start();
        let (slot, start, fill, limit) = (0, 0, 0, 0);
        Outbox { ring, lanes, sealed: 0, ready: 0, has_ended: false, slot, start, fill, limit, at }
    }

    /// Whether so many more bytes fit into the open segment.
    #[inline(always)]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.limit - self.fill >= bytes
    }

    /// Bytes that fit into the open segment.
    pub(crate) fn room(&self) -> usize {
        self.limit - self.fill
    }

    /// Whether the open segment has tuples.
    pub(crate) fn has_tuples(&self) -> bool {
        self.fill > 0
    }

    /// Whether a segment is open.
    pub(crate) fn is_open(&self) -> bool {
        self.limit > 0
    }

    /// Copies a tuple into the open segment, which has room for it.
    #[inline(always)]
    pub(crate) fn copy(&mut self, tuple: &[u8]) {
        debug_assert!(self.has_room(tuple.len()), "no room for the tuple");
        // SAFETY: `fill` and the tuple are within `limit`, which is a segment's payload while the
        // slot is open; slots lie inside the ring, which this thread alone writes. The tuple is not
        // in the ring: no slice of it is handed out.
        unsafe {
            let to = self.ring.as_ptr().add(self.start + self.fill);
            std::ptr::copy_nonoverlapping(tuple.as_ptr(), to, tuple.len());
        }
        self.fill += tuple.len();
    }

    /// Lets `fill` write so many bytes of the open segment, which has room for them.
    pub(crate) fn fill_with(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.has_room(bytes), "no room for the tuples");
        // SAFETY: within the open slot, which this thread alone writes, and which nobody reads
        // before it is sealed.
        fill(unsafe { self.ring.slice_mut(self.start + self.fill, bytes) });
        self.fill += bytes;
    }

    /// The slot to open next, and the number of the segment that was in it before, if any.
    pub(crate) fn next_slot(&self, shape: &Shape) -> (usize, Option<u64>) {
        (self.slot, self.sealed.checked_sub(shape.source_segments as u64))
    }

    /// Opens the next slot, which no lane needs any more.
    pub(crate) fn open(&mut self, shape: &Shape) {
        self.limit = shape.payload;
    }

    /// Seals the open slot.
    #[inline]
    pub(crate) fn seal(&mut self, end: bool, shape: &Shape) {
        let footer = if end { Footer::END } else { Footer::full(self.fill as u32) };
        let word = footer.encode(self.at.lap());
        self.ring.word(shape.word_at(self.start)).store(word, Ordering::Relaxed);
        self.at.advance();
        self.sealed += 1;
        self.has_ended = end;
        if !shape.ordered || end {
            self.finish(0, shape);
        }
        self.slot += 1;
        self.start += shape.stride();
        if self.slot == shape.source_segments {
            (self.slot, self.start) = (0, 0);
        }
        (self.fill, self.limit) = (0, 0);
    }

    /// Segments that need a number, since the beginning.
    pub(crate) fn to_number(&self) -> u64 {
        self.sealed - u64::from(self.has_ended)
    }

    /// Finishes the first sealed segment that is not ready, with its number in the flow's order.
    pub(crate) fn finish(&mut self, number: u64, shape: &Shape) {
        let Sealed { slot, fill, .. } = self.sealed(self.ready, shape);
        let start = slot * shape.stride();
        let word_at = shape.word_at(start);
        if shape.ordered {
            self.ring.word(shape.number_at(start)).store(number, Ordering::Relaxed);
        }
        let tag = if shape.checksum {
            let word = self.ring.word(word_at).load(Ordering::Relaxed);
            checksum(&self.ring, (start, fill), number, word)
        } else {
            0
        };
        self.ring.word(word_at - 8).store(tag, Ordering::Relaxed);
        self.ready += 1;
    }

    /// The sealed segment of this number, one of the last that were sealed.
    #[inline]
    pub(crate) fn sealed(&self, number: u64, shape: &Shape) -> Sealed {
        let slot = (number % shape.source_segments as u64) as usize;
        let word = self.ring.word(shape.word_at(slot * shape.stride())).load(Ordering::Relaxed);
        // The source's own footer: its lap is in the highest byte.
        let lap = (word >> 56) as u8;
        match Footer::decode(word, lap, shape.payload) {
            Some(Ok(footer)) => Sealed { slot, fill: footer.bytes as usize, end: footer.end },
            _ => Sealed { slot, fill: 0, end: false },
        }
    }

    /// Refuses all later tuples.
    pub(crate) fn shut(&mut self) {
        (self.fill, self.limit) = (0, 0);
    }
}
