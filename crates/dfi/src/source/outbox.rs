//! The source's ring of segments that are being filled and written.

use std::ops::Range;
use std::sync::atomic::Ordering;

use millstream_fabric::Region;
use millstream_flow::channel::footer::Footer;
use millstream_flow::link::Position;

use crate::ring::{Shape, checksum};
use crate::source::lane::Sealed;

/// A place in the ring, so that a tuple costs few loads.
struct Next(*mut u8);

// SAFETY: the ring goes with the outbox.
unsafe impl Send for Next {}

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
    /// Where the next tuple goes, and bytes that fit there: 0 while the slot is not open.
    next: Next,
    room: usize,
    /// Bytes that fit into the open slot: 0 while it is not open.
    limit: usize,
    /// Of the segment in the targets' rings, for its lap.
    at: Position,
}

impl Outbox {
    pub(crate) fn new(ring: Region, lanes: Range<usize>, shape: &Shape) -> Outbox {
        let at = shape.start();
        let (slot, start, room, limit) = (0, 0, 0, 0);
        let (sealed, ready, has_ended, next) = (0, 0, false, Next(ring.as_ptr()));
        Outbox { ring, lanes, sealed, ready, has_ended, slot, start, next, room, limit, at }
    }

    /// Whether so many more bytes fit into the open segment.
    #[inline(always)]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.room >= bytes
    }

    /// Bytes that fit into the open segment.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Whether the open segment has tuples.
    pub(crate) fn has_tuples(&self) -> bool {
        self.room < self.limit
    }

    /// Whether a segment is open.
    pub(crate) fn is_open(&self) -> bool {
        self.limit > 0
    }

    /// Copies a tuple into the open segment, which has room for it.
    #[inline(always)]
    pub(crate) fn copy(&mut self, tuple: &[u8]) {
        debug_assert!(self.has_room(tuple.len()), "no room for the tuple");
        // SAFETY: `room` bytes behind `next` are in the payload of the open slot; slots lie inside
        // the ring, which this thread alone writes. The tuple is not in the ring: no slice of it is
        // handed out.
        unsafe {
            std::ptr::copy_nonoverlapping(tuple.as_ptr(), self.next.0, tuple.len());
            self.next.0 = self.next.0.add(tuple.len());
        }
        self.room -= tuple.len();
    }

    /// Lets `fill` write so many bytes of the open segment, which has room for them.
    pub(crate) fn fill_with(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.has_room(bytes), "no room for the tuples");
        // SAFETY: as in `copy`. An open slot has no readers.
        unsafe {
            fill(std::slice::from_raw_parts_mut(self.next.0, bytes));
            self.next.0 = self.next.0.add(bytes);
        }
        self.room -= bytes;
    }

    /// The slot to open next, and the number of the segment that was in it before, if any.
    pub(crate) fn next_slot(&self, shape: &Shape) -> (usize, Option<u64>) {
        (self.slot, self.sealed.checked_sub(shape.source_segments as u64))
    }

    /// Opens the next slot, which no lane needs any more, for so many bytes at most.
    pub(crate) fn open(&mut self, bytes: usize, shape: &Shape) {
        self.limit = bytes.min(shape.payload);
        self.room = self.limit;
        // SAFETY: a slot begins inside the ring.
        self.next = Next(unsafe { self.ring.as_ptr().add(self.start) });
    }

    /// Seals the open slot.
    #[inline]
    pub(crate) fn seal(&mut self, end: bool, shape: &Shape) {
        let footer = if end { Footer::END } else { Footer::full((self.limit - self.room) as u32) };
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
        (self.room, self.limit) = (0, 0);
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
        (self.room, self.limit) = (0, 0);
    }
}
