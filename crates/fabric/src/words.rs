//! Atomic words in memory that processes share, and a bell: a pair of such words with which one
//! process wakes another (a futex).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::error::Result;
use crate::mapping::{Mapping, memory_file};

/// Words on their own cache line, since different processes write them.
pub(crate) const LINE_BYTES: usize = 64;

/// A shared mapping with its length, seen as words.
#[derive(Debug)]
pub(crate) struct Words {
    mapping: Mapping,
    bytes: usize,
}

impl Words {
    /// The word at this offset, which is this program's own and not a peer's.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.bytes && offset.is_multiple_of(8), "a word outside");
        // SAFETY: inside the mapping, aligned since mappings begin at pages, alive as long as
        // `self`.
        unsafe { AtomicU64::from_ptr(self.mapping.start().as_ptr().add(offset).cast()) }
    }
}

/// A new memory file of zeros, mapped.
pub(crate) fn new_words(bytes: usize) -> Result<(OwnedFd, Words)> {
    let file = memory_file(bytes)?;
    let mapping = Mapping::shared(&file, bytes)?;
    Ok((file, Words { mapping, bytes }))
}

/// A memory file of this length, mapped.
pub(crate) fn map_words(file: &OwnedFd, bytes: usize) -> Result<Words> {
    Ok(Words { mapping: Mapping::shared(file, bytes)?, bytes })
}

/// Where a thread sleeps and its peers wake it (a futex).
#[derive(Debug)]
pub(crate) struct Bell(Words);

impl Bell {
    const ARMED: usize = 0;
    const RUNG: usize = LINE_BYTES;
    pub(crate) const BYTES: usize = 2 * LINE_BYTES;

    pub(crate) fn new() -> Result<(OwnedFd, Bell)> {
        let (file, words) = new_words(Self::BYTES)?;
        Ok((file, Bell(words)))
    }

    pub(crate) fn map(file: &OwnedFd) -> Result<Bell> {
        Ok(Bell(map_words(file, Self::BYTES)?))
    }

    /// From now on an event rings.
    pub(crate) fn arm(&self) {
        self.0.at(Self::ARMED).store(1, Ordering::Relaxed);
        // Before whatever the owner looks at next; pairs with the fence in `event`.
        fence(Ordering::SeqCst);
    }

    /// Reports an event that was published before: rings if the bell is armed.
    #[inline]
    pub(crate) fn event(&self) {
        fence(Ordering::SeqCst);
        let armed = self.0.at(Self::ARMED);
        if armed.load(Ordering::Relaxed) != 0 && armed.swap(0, Ordering::AcqRel) != 0 {
            self.ring();
        }
    }

    /// Rings, armed or not.
    pub(crate) fn ring(&self) {
        self.futex().fetch_add(1, Ordering::AcqRel);
        // SAFETY: the word is alive; waking has no other effect.
        unsafe {
            libc::syscall(libc::SYS_futex, self.futex().as_ptr(), libc::FUTEX_WAKE, i32::MAX);
        }
    }

    /// How often it has rung.
    pub(crate) fn rung(&self) -> u32 {
        self.futex().load(Ordering::Acquire)
    }

    /// Sleeps until it has rung more often than `seen`, or the time is over.
    pub(crate) fn sleep(&self, seen: u32, timeout: Duration) {
        let time = libc::timespec {
            tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        // SAFETY: the word is alive; the kernel compares and sleeps. Any result means: look again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.futex().as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                &raw const time,
            );
        }
    }

    fn futex(&self) -> &AtomicU32 {
        let word = self.0.at(Self::RUNG).as_ptr().cast::<u32>();
        // SAFETY: the first half of a word that nobody uses as a whole.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_once_for_an_arming() {
        let (file, owner) = Bell::new().unwrap();
        let peer = Bell::map(&file).unwrap();
        peer.event();
        assert_eq!(owner.rung(), 0);
        owner.arm();
        peer.event();
        peer.event();
        assert_eq!(owner.rung(), 1);
        owner.sleep(0, Duration::from_secs(100));
    }
}
