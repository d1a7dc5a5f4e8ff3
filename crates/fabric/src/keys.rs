//! The table of a device's regions by key, for providers that play the network card in software.

use std::any::Any;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mapping::Mapping;
use crate::memory::{Access, Region, Registration};

/// Access right that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    Write,
    Atomic,
}

/// The regions that peers may name. Keys are not reused before 2^32 regions.
#[derive(Debug, Default)]
pub(crate) struct KeyTable(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u32,
    entries: HashMap<u32, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    memory: Arc<Mapping>,
    bytes: usize,
    access: Access,
}

/// Checked memory that stays mapped as long as this lives.
#[derive(Debug)]
pub(crate) struct Target {
    memory: Arc<Mapping>,
    offset: usize,
}

impl Target {
    /// Its first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.memory.start().as_ptr().wrapping_add(self.offset)
    }
}

/// Takes the key out of the table when the region is gone; then the memory goes too.
struct Owner {
    table: Arc<KeyTable>,
    key: u32,
    _memory: Option<Arc<Mapping>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.table.lock().entries.remove(&self.key);
    }
}

impl KeyTable {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is a single call, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A region of `memory`'s first `bytes` bytes.
    pub(crate) fn add(
        self: &Arc<Self>,
        device: u32,
        memory: Arc<Mapping>,
        bytes: usize,
        access: Access,
    ) -> Region {
        let mut table = self.lock();
        table.last = table.last.wrapping_add(1);
        let key = table.last;
        table.entries.insert(key, Entry { memory: memory.clone(), bytes, access });
        drop(table);
        let start = memory.start();
        let owner = Owner { table: self.clone(), key, _memory: Some(memory) };
        self.region(device, start, bytes, access, key, Box::new(owner))
    }

    /// A region of memory that belongs to somebody else and that no peer can name.
    pub(crate) fn add_foreign(
        self: &Arc<Self>,
        device: u32,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Region {
        let mut table = self.lock();
        table.last = table.last.wrapping_add(1);
        let key = table.last;
        drop(table);
        let owner = Owner { table: self.clone(), key, _memory: None };
        self.region(device, start, bytes, Access::LOCAL, key, Box::new(owner))
    }

    fn region(
        &self,
        device: u32,
        start: NonNull<u8>,
        bytes: usize,
        access: Access,
        key: u32,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Region {
        let registration =
            Registration { start, bytes, access, device, local_key: key, remote_key: key, owner };
        // SAFETY: the owner keeps the mapping; foreign memory is kept by the caller of `register`.
        unsafe { Region::new(registration) }
    }

    /// The memory at `address` if a region with this key covers `bytes` bytes from there and
    /// allows it. All three come from a peer.
    pub(crate) fn resolve(&self, key: u32, address: u64, bytes: u64, need: Need) -> Option<Target> {
        let table = self.lock();
        let entry = table.entries.get(&key)?;
        let allowed = match need {
            Need::Read => entry.access.remote_read,
            Need::Write => entry.access.remote_write,
            Need::Atomic => entry.access.remote_atomic && address.is_multiple_of(8) && bytes == 8,
        };
        let offset = address.checked_sub(entry.memory.start().as_ptr() as u64)?;
        let end = offset.checked_add(bytes)?;
        if !allowed || end > entry.bytes as u64 {
            return None;
        }
        Some(Target { memory: entry.memory.clone(), offset: usize::try_from(offset).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_opened_resolves() {
        let table = Arc::new(KeyTable::default());
        let memory = Arc::new(Mapping::anonymous(4096).unwrap());
        let region = table.add(1, memory, 4000, Access::REMOTE_WRITE);
        let RemoteRegion { address, key, .. } = region.remote();
        let may = |key, address, bytes, need| table.resolve(key, address, bytes, need).is_some();
        assert!(may(key, address, 4000, Need::Write));
        assert!(may(key, address + 4000, 0, Need::Write));
        assert!(!may(key, address, 4001, Need::Write));
        assert!(!may(key, address - 1, 1, Need::Write));
        assert!(!may(key, address + 1, u64::MAX, Need::Write));
        assert!(!may(key, u64::MAX, 1, Need::Write));
        assert!(!may(key, address, 8, Need::Read));
        assert!(!may(key, address, 8, Need::Atomic));
        assert!(!may(key + 1, address, 8, Need::Write));
        drop(region);
        assert!(!may(key, address, 8, Need::Write));
    }

    use crate::memory::RemoteRegion;
}
