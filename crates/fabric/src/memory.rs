//! Registered memory: what peers and network cards may read and write.
//!
//! A peer may write to registered memory at any time, so it is not ordinary Rust memory. There are
//! three ways to access it: copies ([`Region::read`], [`Region::write`]), aligned atomic words
//! ([`Region::word`]), and slices. Slices are `unsafe`, because only a protocol can know that
//! nobody else writes to that memory.

use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::{Error, Result};

/// Access of peers to a region. Its own process may always read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Peers may read.
    pub remote_read: bool,
    /// Peers may write.
    pub remote_write: bool,
    /// Peers may fetch-and-add and compare-and-swap.
    pub remote_atomic: bool,
}

impl Access {
    /// Nothing for peers: sources of writes and sends, receive buffers.
    pub const LOCAL: Access =
        Access { remote_read: false, remote_write: false, remote_atomic: false };
    /// Peers may write, as in a channel's ring.
    pub const REMOTE_WRITE: Access = Access { remote_write: true, ..Access::LOCAL };
    /// Everything.
    pub const REMOTE_ALL: Access =
        Access { remote_read: true, remote_write: true, remote_atomic: true };

    /// Whether a peer needs the region's key at all.
    pub fn remote(self) -> bool {
        self.remote_read || self.remote_write || self.remote_atomic
    }
}

/// Registered memory of this process. A clone refers to the same memory, which is unregistered and
/// freed with the last of them; work that is still posted then completes with an error.
#[derive(Clone)]
pub struct Region(Arc<Inner>);

struct Inner {
    start: NonNull<u8>,
    bytes: usize,
    access: Access,
    device: u32,
    local_key: u32,
    remote_key: u32,
    /// Only held, to be dropped with the last clone.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is only used for copies and atomics, or through the unsafe slices, whose
// callers answer for exclusion.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Description of a region by the provider that registered it.
pub(crate) struct Registration {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
    /// Number of the device in this process, see [`device_number`].
    pub(crate) device: u32,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
    /// Unregisters and frees the memory when dropped, in this order.
    pub(crate) owner: Box<dyn Any + Send + Sync>,
}

impl Region {
    /// # Safety
    /// `bytes` bytes at `start` stay mapped, readable and writable until `owner` is dropped, and no
    /// Rust reference to them exists but those made by this type.
    pub(crate) unsafe fn new(registration: Registration) -> Region {
        let Registration { start, bytes, access, device, local_key, remote_key, owner } =
            registration;
        let inner = Inner { start, bytes, access, device, local_key, remote_key, _owner: owner };
        Region(Arc::new(inner))
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.0.bytes == 0
    }

    /// First byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.start.as_ptr()
    }

    /// Access of peers.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// The key that names this region in local work (an lkey).
    #[inline]
    pub fn local_key(&self) -> u32 {
        self.0.local_key
    }

    /// Description of this region for a peer.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            address: self.as_ptr() as u64,
            bytes: self.0.bytes as u64,
            key: self.0.remote_key,
        }
    }

    /// Number of the device that the region belongs to, within this process.
    #[inline]
    pub fn device(&self) -> u32 {
        self.0.device
    }

    /// Checks that `bytes` bytes at `offset` lie inside.
    #[inline]
    pub fn check(&self, offset: usize, bytes: usize) -> Result<()> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.0.bytes => Ok(()),
            _ => Err(Error::OutOfBounds {
                offset: offset as u64,
                bytes: bytes as u64,
                region_bytes: self.0.bytes as u64,
            }),
        }
    }

    /// Copies out. If a peer writes meanwhile, the copy may hold old and new bytes.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        // SAFETY: inside the region, which outlives `self`; `into` is not in registered memory, as
        // slices of it are made by `slice_mut` only, whose caller answers for exclusion.
        unsafe {
            ptr::copy_nonoverlapping(self.as_ptr().add(offset), into.as_mut_ptr(), into.len())
        }
        Ok(())
    }

    /// Copies in. Whoever reads meanwhile may see old and new bytes.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.as_ptr().add(offset), from.len()) }
        Ok(())
    }

    /// The aligned 8-byte word at `offset`: the only way to look at what a peer may be writing.
    ///
    /// # Panics
    /// If the word is not inside the region or its address is not a multiple of 8; the offsets are
    /// this program's own, never a peer's.
    #[inline]
    #[track_caller]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.checked_add(8).is_some_and(|end| end <= self.0.bytes),
            "word at {offset} outside of a region of {} bytes",
            self.0.bytes
        );
        let word = self.as_ptr().wrapping_add(offset).cast::<u64>();
        assert!(word.is_aligned(), "word at {offset} is not aligned");
        // SAFETY: inside the region, aligned, and alive as long as `self`.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// `bytes` bytes at `offset` as Rust memory.
    ///
    /// # Panics
    /// If they do not lie inside the region.
    ///
    /// # Safety
    /// As long as the slice lives nobody writes these bytes: no peer, no posted receive or read, no
    /// other slice. A protocol has to have proved it.
    #[inline]
    #[track_caller]
    pub unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(self.check(offset, bytes).is_ok(), "slice outside of its region");
        // SAFETY: inside the region, initialised (mappings start as zeros), unwritten as promised.
        unsafe { std::slice::from_raw_parts(self.as_ptr().add(offset), bytes) }
    }

    /// `bytes` bytes at `offset` as Rust memory that can be changed.
    ///
    /// # Panics
    /// If they do not lie inside the region.
    ///
    /// # Safety
    /// As long as the slice lives nobody else reads or writes these bytes: no peer, no posted work,
    /// no other slice.
    #[inline]
    #[track_caller]
    #[expect(clippy::mut_from_ref, reason = "the caller answers for exclusion, not the borrow")]
    pub unsafe fn slice_mut(&self, offset: usize, bytes: usize) -> &mut [u8] {
        assert!(self.check(offset, bytes).is_ok(), "slice outside of its region");
        // SAFETY: inside the region, initialised, exclusive as promised.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().add(offset), bytes) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:p}, {} bytes, {:?})", self.as_ptr(), self.len(), self.access())
    }
}

/// A peer's region, as the peer described it. Not trusted: the target's side checks key, range and
/// access of every operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteRegion {
    /// First byte, in the peer's address space.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The key that allows access (an rkey).
    pub key: u32,
}

impl RemoteRegion {
    /// The address of `bytes` bytes at `offset`.
    #[inline]
    pub fn at(&self, offset: u64, bytes: u64) -> Result<RemoteAddress> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        match self.address.checked_add(offset) {
            Some(address) if inside => Ok(RemoteAddress { address, key: self.key }),
            _ => Err(Error::OutOfBounds { offset, bytes, region_bytes: self.bytes }),
        }
    }
}

/// Where a one-sided operation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First byte, in the peer's address space.
    pub address: u64,
    /// The key of the region it lies in.
    pub key: u32,
}

/// A new number for a device of this process; regions remember it, so that work cannot name the
/// region of another device.
pub(crate) fn device_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
