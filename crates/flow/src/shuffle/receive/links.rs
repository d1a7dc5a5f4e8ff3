//! What the three receiving endpoints over reliable connections have in common.

use std::collections::VecDeque;

use millstream_fabric::{Completion, Fabric};

use super::core::Core;
use crate::shuffle::counters::Counters;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::link::{CONTROL, CREDIT, Control, Link, TOLD, index_of};
use crate::shuffle::wire::{Entry, State};

/// Completions taken at a time.
const BATCH: usize = 16;

pub(crate) struct Links<F: Fabric> {
    pub(crate) links: Vec<Link<F>>,
    control: Control,
    /// By source: entries that were taken from its queue of valid buffers.
    taken: Vec<u64>,
    /// By source: buffers to put into its queue of free ones, and how many were.
    to_free: Vec<VecDeque<u32>>,
    freed: Vec<u64>,
}

impl<F: Fabric> Links<F> {
    pub(crate) fn new(links: Vec<Link<F>>, control: Control) -> Links<F> {
        let count = links.len();
        Links {
            links,
            control,
            taken: vec![0; count],
            to_free: vec![VecDeque::new(); count],
            freed: vec![0; count],
        }
    }

    pub(crate) fn control_bytes(&self) -> usize {
        self.control.bytes()
    }

    /// Takes completions; returns how many, and passes those on that succeeded, with the source.
    pub(crate) fn complete(
        &mut self,
        core: &mut Core<F>,
        mut each: impl FnMut(&mut Core<F>, usize, &Completion) -> Result<()>,
    ) -> Result<usize> {
        let mut some = [Completion::default(); BATCH];
        let count = core.complete(&mut some)?;
        let now = core.now();
        for completion in &some[..count] {
            let Some(source) = index_of(&self.links, completion) else { continue };
            if self.links[source].absorb(completion, now) {
                each(core, source, completion)?;
            }
        }
        Ok(count)
    }

    /// Looks at the next entry of a source's queue of valid buffers; [`Links::took`] takes it.
    pub(crate) fn next_valid(&self, source: usize, counters: &mut Counters) -> Option<Entry> {
        counters.looks += 1;
        self.control.entry(source, self.taken[source])
    }

    pub(crate) fn took(&mut self, source: usize) {
        self.taken[source] += 1;
    }

    /// The source may use this buffer again; it is told when there is room to.
    pub(crate) fn free(&mut self, source: usize, slot: u32) {
        self.to_free[source].push_back(slot);
    }

    /// Tells sources what is to be told: free buffers, and credit when it has become so much.
    pub(crate) fn tell(&mut self, core: &mut Core<F>) -> Result<()> {
        let every = u64::from(core.settings.credit_every);
        for (source, link) in self.links.iter_mut().enumerate() {
            let origin = &mut core.sources[source];
            while link.room(1)
                && let Some(slot) = self.to_free[source].pop_front()
            {
                let number = self.freed[source];
                self.freed[source] += 1;
                let entry = Entry { slot, bytes: 0, state: State::MoreData };
                // Behind the last message a sender waits for the last of these, and so do we.
                let id = if origin.ended { TOLD } else { CONTROL };
                link.write_entry(number, entry, id, &mut core.counters)?;
            }
            if origin.granted >= origin.told + every && !origin.ended && link.room(1) {
                origin.told = origin.granted;
                core.counters.credits += 1;
                link.write_word(CREDIT, origin.granted, CONTROL, &mut core.counters)?;
            }
        }
        Ok(())
    }

    /// Whether all sources know which of their buffers are free, or are gone.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut all = self.links.iter().zip(&self.to_free);
        all.all(|(link, left)| link.failed.is_some() || (left.is_empty() && link.is_quiet()))
    }

    /// Looks after connections when there is nothing to do.
    pub(crate) fn watch(&mut self, core: &mut Core<F>) -> Result<()> {
        let now = core.now();
        for (link, source) in self.links.iter_mut().zip(&core.sources) {
            if !source.ended {
                link.watch(now, &mut core.counters)?;
            }
        }
        Ok(())
    }

    /// Whether a source that has not ended is gone. What had arrived has to be taken before.
    pub(crate) fn judge(&self, core: &Core<F>) -> Result<()> {
        for (link, source) in self.links.iter().zip(&core.sources) {
            if let Some(status) = link.failed
                && !source.ended
            {
                return Err(Error::PeerLost { peer: source.id, status });
            }
        }
        Ok(())
    }
}
