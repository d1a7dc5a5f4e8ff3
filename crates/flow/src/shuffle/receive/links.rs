//! Common part of the three receiving endpoints over reliable connections.

use std::collections::VecDeque;

use millstream_fabric::{Completion, Fabric};

use super::core::ReceiverCore;
use crate::link::CONTROL;
use crate::shuffle::error::Result;
use crate::shuffle::links::Links;
use crate::shuffle::wire::{Entry, State};

/// Completions taken at a time.
const BATCH: usize = 16;

/// Connections, and buffers that sources have to be told are free.
pub(crate) struct Sources<F: Fabric> {
    pub(crate) links: Links<F>,
    /// By source: buffers to put into its queue of free ones.
    to_free: Vec<VecDeque<u32>>,
}

impl<F: Fabric> Sources<F> {
    pub(crate) fn new(links: Links<F>) -> Sources<F> {
        Sources { to_free: vec![VecDeque::new(); links.all.len()], links }
    }

    /// Takes completions; returns how many, and passes those on that succeeded, with the source and
    /// the buffer's number.
    pub(crate) fn complete(
        &mut self,
        core: &mut ReceiverCore<F>,
        mut each: impl FnMut(&mut ReceiverCore<F>, usize, &Completion, u32) -> Result<()>,
    ) -> Result<usize> {
        let mut some = [Completion::default(); BATCH];
        let count = core.complete(&mut some)?;
        self.links.absorb(&some[..count], core.now(), |source, completion, slot| {
            each(core, source, completion, slot)
        })?;
        Ok(count)
    }

    /// The source may use this buffer again; it is told when there is room to.
    pub(crate) fn free(&mut self, source: usize, slot: u32) {
        self.to_free[source].push_back(slot);
    }

    /// Tells sources what is to be told: free buffers, and credit when it has become so much.
    pub(crate) fn tell(&mut self, core: &mut ReceiverCore<F>) -> Result<()> {
        let every = u64::from(core.settings.credit_every);
        for (source, link) in self.links.all.iter_mut().enumerate() {
            let origin = &mut core.sources[source];
            while link.room(1)
                && let Some(slot) = self.to_free[source].pop_front()
            {
                let entry = Entry { slot, bytes: 0, state: State::MoreData };
                // Behind the last message a sender waits for the last of these, and so do we.
                link.write_entry(entry, origin.ended.then_some(CONTROL))?;
            }
            if origin.granted >= origin.told + every && !origin.ended && link.room(1) {
                let more = origin.granted - origin.told;
                origin.told = origin.granted;
                core.counters.credits += 1;
                link.write_credit(origin.granted, more)?;
            }
        }
        Ok(())
    }

    /// Whether all sources know which of their buffers are free, or are gone.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut all = self.links.all.iter().zip(&self.to_free);
        all.all(|(link, left)| {
            link.link.failure().is_some() || (left.is_empty() && link.link.is_quiet())
        })
    }
}
