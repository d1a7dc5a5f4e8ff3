//! The source's view of the sequencer: a word at a target, which counts the segments of all sources
//! (thesis, section 7.5.4).

use std::sync::atomic::Ordering;

use millstream_fabric::{
    Access, Destination, Fabric, Operation, Region, RemoteRegion, WorkRequest,
};
use millstream_flow::link::{Link, check_region};

use crate::counters::Counters;
use crate::error::Result;

/// Index of the target at which the word of the sequencer is.
pub(crate) const SEQUENCER: usize = 0;
/// The token of a fetch-and-add.
pub(crate) const NUMBER: u32 = 2;

/// The numbers of an ordered flow.
pub(crate) struct Sequencer {
    word: RemoteRegion,
    /// A word for each slot: where the answers land.
    landing: Region,
    /// Segments for which a number was asked, and for which it has come.
    pub(crate) asked: u64,
    pub(crate) drawn: u64,
}

impl Sequencer {
    /// The sequencer with this word, with room for the numbers of so many segments.
    pub(crate) fn connect<F: Fabric>(
        fabric: &F,
        word: RemoteRegion,
        segments: usize,
    ) -> Result<Sequencer> {
        check_region(&word, 8)?;
        let landing = fabric.allocate(segments * 8, Access::LOCAL)?;
        Ok(Sequencer { word, landing, asked: 0, drawn: 0 })
    }

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

    /// The number of the next segment has come: answers come in the order of asking.
    pub(crate) fn arrived(&mut self) -> u64 {
        self.drawn += 1;
        self.number(self.drawn - 1)
    }

    /// The number that was drawn for a segment.
    pub(crate) fn number(&self, segment: u64) -> u64 {
        let word = self.landing.word(self.offset(segment));
        word.load(Ordering::Acquire)
    }
}
