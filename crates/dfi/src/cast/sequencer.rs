//! The source's view of the sequencer: a word at a target, which counts the segments of all sources
//! (thesis, section 7.5.4).

use std::sync::atomic::Ordering;

use millstream_fabric::{Destination, Fabric, Operation, Region, RemoteRegion, WorkRequest};
use millstream_flow::link::Link;

use crate::counters::Counters;
use crate::error::Result;

/// The token of a fetch-and-add.
pub(crate) const NUMBER: u32 = 1;

/// The numbers of an ordered flow.
pub(crate) struct Sequencer {
    pub(crate) word: RemoteRegion,
    /// A word for each slot: where the answers land.
    pub(crate) landing: Region,
    /// Segments for which a number was asked, and for which it has come.
    pub(crate) asked: u64,
    pub(crate) drawn: u64,
}

impl Sequencer {
    fn offset(&self, segment: u64) -> usize {
        8 * (segment % (self.landing.len() as u64 / 8)) as usize
    }

    /// Draws numbers for all segments before `end`.
    pub(crate) fn draw<F: Fabric>(
        &mut self,
        end: u64,
        link: &mut Link<F>,
        counts: &mut Counters,
    ) -> Result<()> {
        while self.asked < end && link.room(1) && link.failure().is_none() {
            let into =
                Destination { region: &self.landing, offset: self.offset(self.asked), bytes: 8 };
            let at = self.word.at(0, 8)?;
            let add = WorkRequest::new(Operation::FetchAdd { into, at, add: 1 });
            link.post(&mut [add], Some(NUMBER))?;
            self.asked += 1;
            counts.numbers += 1;
        }
        Ok(())
    }

    /// The number that was drawn for a segment.
    pub(crate) fn number(&self, segment: u64) -> u64 {
        let word = self.landing.word(self.offset(segment));
        word.load(Ordering::Acquire)
    }
}
