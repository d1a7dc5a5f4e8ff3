//! Positions in a ring, and the laps around it.

/// Laps are counted 1 to 255 and round again: 0 is memory that was never written.
const LAPS: u64 = 255;

/// The lap, as rings name it, of the `count`th time around the ring, from 0.
pub fn lap_name(count: u64) -> u8 {
    // Below 256, so nothing is lost.
    (1 + count % LAPS) as u8
}

/// The lap after this one.
#[inline]
pub fn lap_after(lap: u8) -> u8 {
    if u64::from(lap) == LAPS { 1 } else { lap + 1 }
}

/// A place in a ring of slots.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// First byte of the slot.
    pub offset: usize,
    /// The lap around the ring.
    lap: u8,
    slot_bytes: usize,
    ring_bytes: usize,
}

impl Position {
    /// The first slot of a ring.
    pub fn new(slots: usize, slot_bytes: usize) -> Position {
        Position { offset: 0, lap: lap_name(0), slot_bytes, ring_bytes: slots * slot_bytes }
    }

    /// The lap around the ring, as footers name it.
    #[inline]
    pub fn lap(&self) -> u8 {
        self.lap
    }

    /// The next slot.
    #[inline]
    pub fn advance(&mut self) {
        self.offset += self.slot_bytes;
        if self.offset == self.ring_bytes {
            self.offset = 0;
            self.lap = lap_after(self.lap);
        }
    }
}
