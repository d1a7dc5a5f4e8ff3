//! Registered memory: memory regions, and the protection domains that they belong to.

use std::ffi::c_void;
use std::ops::BitOr;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::non_null;
use crate::raw::*;
use crate::{Context, Error, Sge};

/// Keeps apart what belongs to different users of a device: queue pairs reach only the memory
/// that was registered in their own domain.
pub struct ProtectionDomain {
    pub(crate) raw: NonNull<ibv_pd>,
    pub(crate) context: Arc<Context>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// A new domain.
    pub fn new(context: &Arc<Context>) -> Result<Arc<ProtectionDomain>, Error> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.ibv_alloc_pd)(context.raw.as_ptr()) };
        let raw = non_null("ibv_alloc_pd", raw)?;
        Ok(Arc::new(ProtectionDomain { raw, context: context.clone() }))
    }

    /// The device it is on.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: whatever was made in the domain holds an `Arc` to it, so nothing is left.
        unsafe { (self.context.library.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Set of permitted operations on a memory region, or through a queue pair; joined with `|`. The
/// device may always read memory for its own side's requests.
///
/// There is deliberately no *relaxed ordering*: with it, polling memory for a peer's write means
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access(pub(crate) u32);

impl Access {
    /// Only reading, by this side's own requests.
    pub const LOCAL_READ: Access = Access(0);
    /// Receives, and answers to reads and atomics of this side, may write here.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may write. Needs `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Access = Access(1 << 1);
    /// Peers may read.
    pub const REMOTE_READ: Access = Access(1 << 2);
    /// Peers may fetch-and-add and compare-and-swap. Needs `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Access = Access(1 << 3);
    /// All of them.
    pub const ALL: Access = Access(0b1111);
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// The pages that memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The system's ordinary pages (4 KiB).
    Ordinary,
    /// Huge pages of 2 MiB, from those that the system has reserved (`vm.nr_hugepages`). A device
    /// needs one translation for each instead of 512.
    Huge,
}

impl Pages {
    /// The size of one, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            // SAFETY: takes and returns an integer.
            Pages::Ordinary => unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize },
            Pages::Huge => 2 << 20,
        }
    }
}

/// Zeroed memory from the system, whole pages, outside of Rust's heap.
///
/// Once peers may write to it, this is not Rust memory: there is no slice over it, only its
/// address, and the holder's protocol says when which bytes may be touched.
#[derive(Debug)]
pub struct Memory {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only an address and a length; reading and writing through it is the caller's matter.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least that many bytes, rounded up to whole pages.
    pub fn new(bytes: usize, pages: Pages) -> Result<Memory, Error> {
        let invalid = Error { call: "mmap", errno: libc::EINVAL };
        let bytes = bytes.max(1).checked_next_multiple_of(pages.bytes()).ok_or(invalid)?;
        let huge = match pages {
            Pages::Ordinary => 0,
            Pages::Huge => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
        };
        // SAFETY: a new private anonymous mapping touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last("mmap"));
        }
        let address = NonNull::new(address.cast()).ok_or(invalid)?;
        Ok(Memory { address, bytes })
    }

    /// Its beginning; aligned to its pages.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Its size in bytes: whole pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Memory that the device may reach: pinned, and named by a local and a remote key.
pub struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    domain: Arc<ProtectionDomain>,
    // Declared last, so unmapped after `drop` has deregistered the region.
    _memory: Option<Memory>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers the memory and keeps it as long as the region lives.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        memory: Memory,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let (address, bytes) = (memory.address, memory.bytes);
        // SAFETY: the memory lives in the region.
        let mut region = unsafe { MemoryRegion::register(domain, address, bytes, access) }?;
        region._memory = Some(memory);
        Ok(region)
    }

    /// Registers memory of another owner.
    ///
    /// # Safety
    ///
    /// The memory is mapped, and used only by peers and this side's requests within `access`, until
    /// the region is dropped. Rust code must not assume that the memory does not change.
    pub unsafe fn register(
        domain: &Arc<ProtectionDomain>,
        address: NonNull<u8>,
        bytes: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the domain is alive; the caller answers for the memory.
        let raw = unsafe {
            (domain.context.library.ibv_reg_mr)(
                domain.raw.as_ptr(),
                address.as_ptr().cast::<c_void>(),
                bytes,
                access.0 as i32,
            )
        };
        let raw = non_null("ibv_reg_mr", raw)?;
        Ok(MemoryRegion { raw, domain: domain.clone(), _memory: None })
    }

    /// Its beginning.
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: the library's structure lives as long as the region and does not change. The
        // address came from a `NonNull`.
        unsafe { NonNull::new_unchecked(self.raw.as_ref().addr.cast()) }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().length }
    }

    /// The key with which this side's requests name it.
    pub fn local_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().lkey }
    }

    /// Key of the region for peers.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().rkey }
    }

    /// A piece of it, for this side's requests; `None` if it is not inside.
    pub fn piece(&self, offset: usize, bytes: usize) -> Option<Sge> {
        let end = offset.checked_add(bytes)?;
        if end > self.bytes() {
            return None;
        }
        Some(Sge {
            address: self.address().as_ptr() as u64 + offset as u64,
            bytes: bytes.try_into().ok()?,
            local_key: self.local_key(),
        })
    }

    /// Address of the region for peers.
    pub fn remote(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            address: (self.address().as_ptr() as u64).wrapping_add(offset as u64),
            remote_key: self.remote_key(),
        }
    }

    /// The domain it is registered in.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once. Requests that still name it will fail with
        // an error; they cannot reach the memory.
        unsafe { (self.domain.context.library.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RemoteAddress {
    /// The address in the peer's process.
    pub address: u64,
    /// The remote key of the region it lies in.
    pub remote_key: u32,
}

impl RemoteAddress {
    /// A place that many bytes further on.
    pub fn offset(self, bytes: u64) -> RemoteAddress {
        RemoteAddress { address: self.address.wrapping_add(bytes), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_whole_zeroed_pages() {
        let memory = Memory::new(5000, Pages::Ordinary).unwrap();
        assert!(memory.bytes() >= 5000);
        assert_eq!(memory.bytes() % Pages::Ordinary.bytes(), 0);
        assert_eq!(memory.address().as_ptr() as usize % Pages::Ordinary.bytes(), 0);
        // SAFETY: nobody else knows this memory.
        let bytes =
            unsafe { std::slice::from_raw_parts(memory.address().as_ptr(), memory.bytes()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Memory::new(usize::MAX, Pages::Ordinary).is_err());
        assert!(Memory::new(1 << 60, Pages::Ordinary).is_err());
    }
}
