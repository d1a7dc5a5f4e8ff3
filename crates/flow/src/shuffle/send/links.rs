//! What the three sending endpoints over reliable connections have in common.

use millstream_fabric::{Completion, Fabric};

use super::core::Core;
use crate::shuffle::counters::Counters;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::link::{Control, Link, index_of, slot_of};
use crate::shuffle::wire::Entry;

/// Completions taken at a time.
const BATCH: usize = 16;

pub(crate) struct Links<F: Fabric> {
    pub(crate) links: Vec<Link<F>>,
    control: Control,
    /// By destination: entries that were taken from the queue of free buffers.
    freed: Vec<u64>,
}

impl<F: Fabric> Links<F> {
    pub(crate) fn new(links: Vec<Link<F>>, control: Control) -> Links<F> {
        let freed = vec![0; links.len()];
        Links { links, control, freed }
    }

    pub(crate) fn credit(&self, to: usize, counters: &mut Counters) -> u64 {
        counters.looks += 1;
        self.control.credit(to)
    }

    pub(crate) fn control_bytes(&self) -> usize {
        self.control.bytes()
    }

    /// The next entry that destination `to` has put into its queue of free buffers.
    pub(crate) fn next_free(&mut self, to: usize, counters: &mut Counters) -> Option<Entry> {
        counters.looks += 1;
        let entry = self.control.entry(to, self.freed[to])?;
        self.freed[to] += 1;
        Some(entry)
    }

    /// Takes completions; with `frees`, that of a message frees its buffer. Returns whether there
    /// were any.
    pub(crate) fn complete(&mut self, core: &mut Core<F>, frees: bool) -> Result<bool> {
        let mut some = [Completion::default(); BATCH];
        let count = core.complete(&mut some)?;
        let now = core.now();
        for completion in &some[..count] {
            let Some(to) = index_of(&self.links, completion) else { continue };
            if self.links[to].absorb(completion, now)
                && frees
                && let Some(slot) = slot_of(completion.id)
            {
                core.done(to, slot);
            }
        }
        Ok(count > 0)
    }

    /// Looks after connections when there is nothing to do.
    pub(crate) fn watch(&mut self, core: &mut Core<F>) -> Result<()> {
        let now = core.now();
        for (link, lane) in self.links.iter_mut().zip(&core.lanes) {
            if !lane.is_done() {
                link.watch(now, &mut core.counters)?;
            }
        }
        Ok(())
    }

    /// Whether a connection that is still needed has failed. What had arrived has to be taken
    /// before.
    pub(crate) fn judge(&self, core: &Core<F>) -> Result<()> {
        for (link, lane) in self.links.iter().zip(&core.lanes) {
            if let Some(status) = link.failed
                && !lane.is_done()
            {
                return Err(Error::PeerLost { peer: link.peer.id, status });
            }
        }
        Ok(())
    }
}
