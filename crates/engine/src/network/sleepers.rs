//! Sleeping workers of this process, and their wakers.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::task::Waker;

/// The workers of a process, as far as its network wakes them.
pub(super) struct Sleepers {
    wakers: Vec<Waker>,
    /// The first worker may sleep, and what comes for all of them wakes it.
    parked: AtomicBool,
}

impl Sleepers {
    pub(super) fn new(wakers: Vec<Waker>) -> Sleepers {
        Sleepers { wakers, parked: AtomicBool::new(false) }
    }

    pub(super) fn wake(&self, worker: usize) {
        if let Some(waker) = self.wakers.get(worker) {
            waker.wake_by_ref();
        }
    }

    pub(super) fn wake_all(&self) {
        self.wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Something has been taken in or sent over a channel that the first worker may have asked to
    /// ring: it does not any more, until the first asks again.
    pub(super) fn wake_parked(&self) {
        if self.parked.swap(false, AcqRel) {
            self.wake(0);
        }
    }

    /// The first worker is about to ask all that may come to ring.
    pub(super) fn park(&self) {
        self.parked.store(true, Release);
    }
}
