//! Copying a message into memory that another thread or process polls: its last 8 bytes become
//! visible last.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Copies so that the last 8 bytes, if they end at a multiple of 8, become visible last and at
/// once: a reader of them with acquire ordering sees all other bytes.
///
/// # Safety
/// `bytes` bytes can be read at `from` and written at `to`, and the ranges do not overlap. Other
/// threads may watch `to` through atomics, or copy it and live with torn bytes.
#[inline]
pub(crate) unsafe fn place(to: *mut u8, from: *const u8, bytes: usize) {
    let end = to.wrapping_add(bytes);
    if bytes < 8 || !(end as usize).is_multiple_of(8) {
        // SAFETY: as promised by the caller.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
        fence(Ordering::Release);
        return;
    }
    // SAFETY: as promised by the caller; the last word is inside the range and aligned.
    unsafe {
        ptr::copy_nonoverlapping(from, to, bytes - 8);
        let last = from.add(bytes - 8).cast::<u64>().read_unaligned();
        AtomicU64::from_ptr(end.sub(8).cast()).store(last, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_copied_and_nothing_else() {
        let from: Vec<u8> = (1..=64).collect();
        for start in 0..16 {
            for bytes in 0..40 {
                let mut words = [0_u64; 8];
                let to = words.as_mut_ptr().cast::<u8>();
                // SAFETY: 16 + 40 bytes fit into 64.
                unsafe { place(to.add(start), from.as_ptr(), bytes) };
                let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let mut expected = [0_u8; 64];
                expected[start..start + bytes].copy_from_slice(&from[..bytes]);
                assert_eq!(all, expected, "{bytes} bytes at {start}");
            }
        }
    }
}
