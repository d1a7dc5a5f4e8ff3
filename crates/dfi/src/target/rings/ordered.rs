//! One order for all targets (thesis, section 7.5.4 and figure 7.6).
//!
//! The rings are the receive list: each has segments in the order of its source. A target moves
//! every arrival to its next list, by its place in the ring. The next segment can always be
//! written: the segments of its source before it have been consumed, so the ring has room.

use millstream_fabric::Fabric;

use crate::error::{Error, Result};
use crate::lists::NextList;
use crate::target::rings::{Found, RingTarget};

impl<F: Fabric> RingTarget<F> {
    /// Moves arrivals of all rings to the next list, until the next segment is there.
    pub(super) fn scan_in_order(&mut self) -> Result<Option<Found>> {
        loop {
            let next = self.next_list.as_mut().and_then(NextList::take);
            if next.is_some() {
                return Ok(next);
            }
            let Some(found) = self.scan_rings()? else { return Ok(None) };
            self.sort(found).map_err(|error| self.fail(error))?;
        }
    }

    /// Moves a segment to its place in the next list.
    fn sort(&mut self, found: Found) -> Result<()> {
        let inlet = &mut self.inlets[found.inlet as usize];
        let number = inlet.take_number(found.offset, &self.shape)?;
        let Some(list) = &mut self.next_list else { return Ok(()) };
        if !list.has_room_for(number) {
            let what = "a number in the flow's order that was drawn twice or is too high";
            return Err(Error::Protocol { peer: inlet.peer, what, found: number });
        }
        list.put(number, found);
        Ok(())
    }

    /// All sources have ended, and a segment still waits for its turn.
    #[cold]
    pub(super) fn skipped(&mut self, waiting: Found) -> Error {
        let found = self.next_list.as_ref().map_or(0, |list| list.next);
        let peer = self.inlets[waiting.inlet as usize].peer;
        let what = "numbers in the flow's order that no source has sent";
        self.fail(Error::Protocol { peer, what, found })
    }
}
