//! Memory mappings, anonymous ones and those of shared memory files.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use crate::error::{Error, Result, last_os_error, opened};

/// Huge pages of this size are asked for.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Shared memory up to this size is mapped with all its pages: a process of many has hundreds of
/// small mappings, of which each page would otherwise cost a fault later.
const POPULATED_BYTES: usize = 64 << 10;

/// Mapped memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address and a length; who may use the memory is its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory, on huge pages where there are some.
    pub(crate) fn anonymous(bytes: usize) -> Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if bytes >= HUGE_PAGE_BYTES
            && let Some(rounded) = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)
            && let Ok(mapping) = map(rounded, flags | libc::MAP_HUGETLB, -1)
        {
            return Ok(mapping);
        }
        let mapping = map(bytes.max(1), flags, -1)?;
        mapping.advise_huge();
        Ok(mapping)
    }

    /// The whole of a shared memory file, for use soon.
    pub(crate) fn shared(file: &OwnedFd, bytes: usize) -> Result<Mapping> {
        let populate = if bytes <= POPULATED_BYTES { libc::MAP_POPULATE } else { 0 };
        map(bytes.max(1), libc::MAP_SHARED | populate, file.as_raw_fd())
            .inspect(Mapping::advise_huge)
    }

    /// The whole of a shared memory file that may stay unused.
    pub(crate) fn shared_for_later(file: &OwnedFd, bytes: usize) -> Result<Mapping> {
        map(bytes.max(1), libc::MAP_SHARED, file.as_raw_fd()).inspect(Mapping::advise_huge)
    }

    /// First byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn advise_huge(&self) {
        if self.bytes >= HUGE_PAGE_BYTES {
            // SAFETY: the range is this mapping. Advice that is not taken changes nothing, so
            // its result does not matter.
            unsafe {
                libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE);
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and without users by now.
        unsafe {
            libc::munmap(self.start.as_ptr().cast::<c_void>(), self.bytes);
        }
    }
}

fn map(bytes: usize, flags: i32, file: i32) -> Result<Mapping> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(last_os_error("mmap"));
    }
    let start = NonNull::new(start.cast()).ok_or(Error::Unavailable {
        what: "memory",
        reason: "the system mapped it at address 0".into(),
    })?;
    Ok(Mapping { start, bytes })
}

/// A new shared memory file of `bytes` zeros, without a name: removed with its last user. Its
/// length is sealed, so that no holder can make the other holders fault.
pub(crate) fn memory_file(bytes: usize) -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"millstream".as_ptr(), flags) };
    let file = opened("memfd_create", file)?;
    // SAFETY: plain calls on an open file.
    unsafe {
        if libc::ftruncate(file.as_raw_fd(), bytes.max(1) as libc::off_t) < 0 {
            return Err(last_os_error("ftruncate"));
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) < 0 {
            return Err(last_os_error("fcntl(F_ADD_SEALS)"));
        }
    }
    Ok(file)
}
