//! Where the buffers of a batch go in the slots that it takes.
//!
//! Both sides compute it alike from the buffers' lengths. A buffer begins at a multiple of 64
//! bytes. One that fits into a slot is not split, so it can be read in place; a longer one fills
//! what is left of its first slot, and goes on in the next.

/// Alignment of a buffer.
const LINE: usize = 64;

/// A buffer's bytes in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The slot's index among the batch's slots.
    pub(crate) part: usize,
    /// Where it begins, behind the header.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// Places buffers in sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    room: usize,
    part: usize,
    at: usize,
}

impl Placement {
    /// In slots with so much room behind the header.
    pub(crate) fn new(room: usize) -> Placement {
        Placement { room, part: 0, at: 0 }
    }

    /// Places a buffer. One of no bytes has no piece.
    pub(crate) fn place(&mut self, bytes: usize) -> Pieces {
        if bytes > 0 {
            self.at = self.at.next_multiple_of(LINE);
            let left = self.room.saturating_sub(self.at);
            if left == 0 || (bytes <= self.room && bytes > left) {
                (self.part, self.at) = (self.part + 1, 0);
            }
        }
        let pieces = Pieces { room: self.room, part: self.part, at: self.at, left: bytes };
        let end = self.at + bytes;
        if end > self.room {
            // The buffer is longer than a slot. Whole slots follow, and a last slot that may become
            // full.
            let rest = end - self.room;
            let slots = rest.div_ceil(self.room);
            (self.part, self.at) = (self.part + slots, rest - (slots - 1) * self.room);
        } else {
            self.at = end;
        }
        pieces
    }

    /// Slots taken so far.
    pub(crate) fn parts(&self) -> usize {
        self.part + 1
    }
}

/// The pieces of one buffer, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    room: usize,
    part: usize,
    at: usize,
    left: usize,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let bytes = self.left.min(self.room - self.at);
        let piece = Piece { part: self.part, at: self.at, bytes };
        (self.part, self.at, self.left) = (self.part + 1, 0, self.left - bytes);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(part: usize, at: usize, bytes: usize) -> Piece {
        Piece { part, at, bytes }
    }

    #[test]
    fn what_fits_is_not_split_and_begins_at_a_line() {
        let mut placement = Placement::new(256);
        assert_eq!(placement.place(10).collect::<Vec<_>>(), [piece(0, 0, 10)]);
        assert_eq!(placement.place(0).count(), 0);
        assert_eq!(placement.place(128).collect::<Vec<_>>(), [piece(0, 64, 128)]);
        // 64 bytes are left.
        assert_eq!(placement.place(65).collect::<Vec<_>>(), [piece(1, 0, 65)]);
        assert_eq!(placement.place(128).collect::<Vec<_>>(), [piece(1, 128, 128)]);
        assert_eq!(placement.parts(), 2);
        assert_eq!(placement.place(1).collect::<Vec<_>>(), [piece(2, 0, 1)]);
    }

    #[test]
    fn what_is_longer_than_a_slot_fills_slots() {
        let mut placement = Placement::new(200);
        placement.place(1);
        // From 64 on: 136 bytes, a whole slot, and 64 bytes.
        let pieces: Vec<_> = placement.place(400).collect();
        assert_eq!(pieces, [piece(0, 64, 136), piece(1, 0, 200), piece(2, 0, 64)]);
        assert_eq!(placement.place(5).collect::<Vec<_>>(), [piece(2, 64, 5)]);
        // Behind 69 there is 128, and then 192; 8 bytes are left.
        assert_eq!(placement.place(60).collect::<Vec<_>>(), [piece(2, 128, 60)]);
        let pieces: Vec<_> = placement.place(208).collect();
        assert_eq!(pieces, [piece(2, 192, 8), piece(3, 0, 200)]);
        // The slot is full.
        assert_eq!(placement.parts(), 4);
        assert_eq!(placement.place(1).collect::<Vec<_>>(), [piece(4, 0, 1)]);
    }
}
