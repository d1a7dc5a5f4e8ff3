//! The buffers of an endpoint (paper, section 6.2).

use millstream_fabric::{Access, Fabric, Region};

use crate::shuffle::error::Result;
use crate::shuffle::settings::{Depth, Settings};

/// Bytes that are registered at a time, if a slot is shorter.
const CHUNK_BYTES: usize = 64 * 1024;

/// A range of registered memory for one message.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) region: Region,
    pub(crate) offset: usize,
}

/// The buffers of one endpoint, by number. Those in circulation are in some state of the
/// endpoint's; the others are spare.
pub(crate) struct Buffers<F: Fabric> {
    fabric: F,
    slot_bytes: usize,
    /// By number; a number has none before its first circulation, if buffers are registered as
    /// they are needed.
    slots: Vec<Option<Slot>>,
    /// Numbers that do not circulate.
    spare: Vec<u32>,
    /// Registered slots without a number.
    fresh: Vec<Slot>,
    registered: usize,
    circulating: usize,
}

impl<F: Fabric> Buffers<F> {
    /// Up to `most` buffers: in one region, which peers may access, or registered as they are
    /// needed. None circulates yet.
    pub(crate) fn open(
        fabric: &F,
        settings: &Settings,
        most: usize,
        access: Access,
    ) -> Result<Self> {
        let mut buffers = Buffers {
            fabric: fabric.clone(),
            slot_bytes: settings.slot_bytes(),
            slots: vec![None; most],
            spare: (0..most as u32).rev().collect(),
            fresh: Vec::new(),
            registered: 0,
            circulating: 0,
        };
        if !matches!(settings.depth, Depth::Adaptive { .. }) || access != Access::LOCAL {
            buffers.register(most, access)?;
            buffers.slots = buffers.fresh.drain(..).map(Some).collect();
        }
        Ok(buffers)
    }

    /// Registers so many slots in one region.
    fn register(&mut self, count: usize, access: Access) -> Result<()> {
        let region = self.fabric.allocate(count * self.slot_bytes, access)?;
        let slot = |number| Slot { region: region.clone(), offset: number * self.slot_bytes };
        self.fresh.extend((0..count).map(slot));
        self.registered += count;
        Ok(())
    }

    /// Puts one more buffer into circulation, if there is one.
    pub(crate) fn fetch(&mut self) -> Result<Option<u32>> {
        let Some(number) = self.spare.last().copied() else { return Ok(None) };
        if self.slots[number as usize].is_none() {
            if self.fresh.is_empty() {
                let chunk = (CHUNK_BYTES / self.slot_bytes).max(1);
                self.register(chunk.min(self.slots.len() - self.registered), Access::LOCAL)?;
            }
            self.slots[number as usize] = self.fresh.pop();
        }
        self.spare.pop();
        self.circulating += 1;
        Ok(Some(number))
    }

    /// Puts so many more into circulation, or all.
    pub(crate) fn fetch_least(&mut self, count: usize) -> Result<Vec<u32>> {
        (0..count).map_while(|_| self.fetch().transpose()).collect()
    }

    /// Puts this one into circulation, which is spare and registered.
    pub(crate) fn fetch_number(&mut self, number: u32) -> bool {
        let Some(at) = self.spare.iter().position(|spare| *spare == number) else { return false };
        self.spare.swap_remove(at);
        self.circulating += 1;
        true
    }

    /// Takes a buffer out of circulation.
    pub(crate) fn retire(&mut self, number: u32) {
        self.spare.push(number);
        self.circulating -= 1;
    }

    pub(crate) fn circulating(&self) -> usize {
        self.circulating
    }

    /// Registered bytes: all buffers ever in circulation and their neighbours, since deregistering
    /// waits for the end.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.registered * self.slot_bytes
    }

    /// The region of buffers that peers may access.
    pub(crate) fn region(&self) -> Option<&Region> {
        self.slots.first()?.as_ref().map(|slot| &slot.region)
    }

    /// A buffer that circulates.
    ///
    /// # Panics
    /// If it does not; numbers come from this endpoint's own bookkeeping.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> &Slot {
        self.slots[number as usize].as_ref().expect("a buffer in circulation")
    }
}
