//! Buffers: those of an endpoint, and the pool that endpoints share (paper, section 6.2).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_fabric::{Access, Fabric, Region};

use crate::shuffle::error::{Error, Result};
use crate::shuffle::settings::{Depth, Settings};

/// Bytes that a pool registers at a time, if a slot is shorter.
const CHUNK_BYTES: usize = 64 * 1024;

/// A range of registered memory for one message.
#[derive(Clone)]
pub(crate) struct PoolSlot {
    pub(crate) region: Region,
    pub(crate) offset: usize,
}

/// A pool of registered buffers, shared by several endpoints of a process. It registers more
/// buffers on request, up to its cap; [`Pool::trim`] deregisters unused buffers.
///
/// Buffers that peers address by themselves (the sender's buffers where the receiver reads, the
/// receiver's where the sender writes) are not from the pool: their whole range has to be known
/// when the connection is made.
pub struct Pool<F: Fabric> {
    inner: Arc<Mutex<Inner<F>>>,
}

impl<F: Fabric> Clone for Pool<F> {
    fn clone(&self) -> Self {
        Pool { inner: self.inner.clone() }
    }
}

struct Inner<F> {
    fabric: F,
    slot_bytes: usize,
    cap: usize,
    chunk_slots: usize,
    chunks: Vec<Region>,
    free: Vec<PoolSlot>,
    lent: usize,
}

impl<F: Fabric> Pool<F> {
    /// A pool for endpoints of these settings, of at most `cap` buffers. Nothing is registered yet.
    pub fn new(fabric: &F, settings: &crate::shuffle::Settings, cap: usize) -> Pool<F> {
        Pool::of_slots(fabric, settings.slot_bytes(), cap)
    }

    pub(crate) fn of_slots(fabric: &F, slot_bytes: usize, cap: usize) -> Pool<F> {
        let chunk_slots = (CHUNK_BYTES / slot_bytes).max(1);
        let inner = Inner {
            fabric: fabric.clone(),
            slot_bytes,
            cap,
            chunk_slots,
            chunks: Vec::new(),
            free: Vec::new(),
            lent: 0,
        };
        Pool { inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<F>> {
        // A panic of another thread is that thread's affair; all changes leave the pool usable.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are registered.
    pub fn registered_bytes(&self) -> usize {
        self.lock().chunks.iter().map(Region::len).sum()
    }

    /// Buffers that endpoints have.
    pub fn lent(&self) -> usize {
        self.lock().lent
    }

    /// Deregisters unused memory; returns the number of its bytes.
    pub fn trim(&self) -> usize {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let slots = inner.chunk_slots;
        let free = &mut inner.free;
        let mut bytes = 0;
        inner.chunks.retain(|chunk| {
            let of_chunk = |slot: &PoolSlot| slot.region.as_ptr() == chunk.as_ptr();
            let is_free = free.iter().filter(|slot| of_chunk(slot)).count();
            if is_free < slots.min(chunk.len() / inner.slot_bytes) {
                return true;
            }
            free.retain(|slot| !of_chunk(slot));
            bytes += chunk.len();
            false
        });
        bytes
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.lock().slot_bytes
    }

    pub(crate) fn fetch(&self) -> Result<Option<PoolSlot>> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.free.is_empty() {
            let count = inner.chunk_slots.min(inner.cap.saturating_sub(inner.lent));
            if count == 0 {
                return Ok(None);
            }
            let region = inner.fabric.allocate(count * inner.slot_bytes, Access::LOCAL)?;
            for number in 0..count {
                let offset = number * inner.slot_bytes;
                inner.free.push(PoolSlot { region: region.clone(), offset });
            }
            inner.chunks.push(region);
        }
        let slot = inner.free.pop();
        inner.lent += usize::from(slot.is_some());
        Ok(slot)
    }

    pub(crate) fn give_back(&self, slot: PoolSlot) {
        let mut inner = self.lock();
        inner.lent -= 1;
        inner.free.push(slot);
    }
}

/// The buffers of one endpoint, by number. Those in circulation are in some state of the
/// endpoint's; the others are spare.
pub(crate) struct Buffers<F: Fabric> {
    slots: Vec<Option<PoolSlot>>,
    /// Numbers that have no slot, or whose slot does not circulate.
    spare: Vec<u32>,
    /// Where slots come from and go; without one all are this endpoint's own for ever.
    pool: Option<Pool<F>>,
    /// The pool is nobody else's, so all that it has registered is because of this endpoint.
    alone: bool,
    circulating: usize,
}

impl<F: Fabric> Buffers<F> {
    /// Up to `most` buffers: of a pool, in one region that peers may access, or registered as they
    /// are needed. None circulates yet.
    pub(crate) fn open(
        fabric: &F,
        pool: Option<&Pool<F>>,
        settings: &Settings,
        most: usize,
        access: Access,
    ) -> Result<Self> {
        let slot_bytes = settings.slot_bytes();
        match (pool, settings.depth) {
            (Some(pool), _) => Buffers::of_pool(pool, most, slot_bytes),
            (None, Depth::Adaptive { .. }) if access == Access::LOCAL => {
                let pool = Pool::of_slots(fabric, slot_bytes, most);
                let mut buffers = Buffers::of_pool(&pool, most, slot_bytes)?;
                buffers.alone = true;
                Ok(buffers)
            }
            (None, _) => Buffers::own(fabric, most, slot_bytes, access),
        }
    }

    /// Own buffers in one region.
    fn own(fabric: &F, count: usize, slot_bytes: usize, access: Access) -> Result<Self> {
        let region = fabric.allocate(count * slot_bytes, access)?;
        let slot = |number| Some(PoolSlot { region: region.clone(), offset: number * slot_bytes });
        Ok(Buffers {
            slots: (0..count).map(slot).collect(),
            spare: (0..count as u32).rev().collect(),
            pool: None,
            alone: true,
            circulating: 0,
        })
    }

    /// Up to `most` buffers of a pool.
    fn of_pool(pool: &Pool<F>, most: usize, slot_bytes: usize) -> Result<Self> {
        let theirs = pool.slot_bytes();
        if theirs != slot_bytes {
            return Err(Error::Mismatch {
                what: "length of a buffer as the pool has",
                ours: slot_bytes as u64,
                theirs: theirs as u64,
            });
        }
        Ok(Buffers {
            slots: vec![None; most],
            spare: (0..most as u32).rev().collect(),
            pool: Some(pool.clone()),
            alone: false,
            circulating: 0,
        })
    }

    /// Puts one more buffer into circulation, if there is one.
    pub(crate) fn fetch(&mut self) -> Result<Option<u32>> {
        let Some(number) = self.spare.pop() else { return Ok(None) };
        if !self.fill(number)? {
            self.spare.push(number);
            return Ok(None);
        }
        self.circulating += 1;
        Ok(Some(number))
    }

    /// Puts so many more into circulation, as many as an endpoint needs at least.
    pub(crate) fn fetch_least(&mut self, count: usize) -> Result<Vec<u32>> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            let Some(number) = self.fetch()? else {
                let why = format!(
                    "it has {} buffers left, and an endpoint needs {count} at least",
                    numbers.len()
                );
                return Err(Error::Setting { name: "pool", value: None, why });
            };
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// Puts this one into circulation, which is spare and the endpoint's own.
    pub(crate) fn fetch_number(&mut self, number: u32) -> bool {
        let Some(at) = self.spare.iter().position(|spare| *spare == number) else { return false };
        self.spare.swap_remove(at);
        self.circulating += 1;
        true
    }

    /// Whether the number has a slot now.
    fn fill(&mut self, number: u32) -> Result<bool> {
        if let Some(pool) = &self.pool {
            self.slots[number as usize] = pool.fetch()?;
        }
        Ok(self.slots[number as usize].is_some())
    }

    /// Takes a buffer out of circulation.
    pub(crate) fn retire(&mut self, number: u32) {
        if let Some(pool) = &self.pool
            && let Some(slot) = self.slots[number as usize].take()
        {
            pool.give_back(slot);
        }
        self.spare.push(number);
        self.circulating -= 1;
    }

    pub(crate) fn circulating(&self) -> usize {
        self.circulating
    }

    /// Registered bytes of this endpoint's buffers: all buffers ever in circulation and their
    /// neighbours, since deregistering waits for the end. In a shared pool, only the buffers that
    /// are here now.
    pub(crate) fn registered_bytes(&self, slot_bytes: usize) -> usize {
        match &self.pool {
            Some(pool) if self.alone => pool.registered_bytes(),
            _ => self.slots.iter().flatten().count() * slot_bytes,
        }
    }

    /// The region of buffers that are this endpoint's own.
    pub(crate) fn region(&self) -> Option<&Region> {
        self.slots.first()?.as_ref().map(|slot| &slot.region)
    }

    /// A buffer that circulates.
    ///
    /// # Panics
    /// If it does not; numbers come from this endpoint's own bookkeeping.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> &PoolSlot {
        self.slots[number as usize].as_ref().expect("a buffer in circulation")
    }
}

impl<F: Fabric> Drop for Buffers<F> {
    /// The endpoint's queue pairs are gone before its buffers, so nothing is under way.
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            for slot in self.slots.drain(..).flatten() {
                pool.give_back(slot);
            }
        }
    }
}
