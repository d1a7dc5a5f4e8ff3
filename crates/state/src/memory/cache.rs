//! Size of the near cache: the second-level cache, which belongs to one core alone.

use std::sync::OnceLock;

/// Assumed size where the system does not tell.
const UNKNOWN_BYTES: usize = 512 << 10;

/// Bytes of a core's second-level cache.
pub fn near_cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| from_system().unwrap_or(UNKNOWN_BYTES))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn from_system() -> Option<usize> {
    // SAFETY: the call reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
    usize::try_from(bytes).ok().filter(|bytes| (64 << 10..=64 << 20).contains(bytes))
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn from_system() -> Option<usize> {
    None
}
