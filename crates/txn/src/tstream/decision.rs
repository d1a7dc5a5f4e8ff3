//! Decisions of transactions: the count of missing inputs, and gates at which chains wait
//! (paper, section 4.3, "handling cross-states dependency"; the protocol is ours).
//!
//! A transaction is decided when chains have brought all inputs. The worker that brings the last
//! one decides, and opens the gates of the other chains. A chain waits at the gate of a group that
//! the transaction writes. A gate has two sides: the chain parks, the decision opens. Each side
//! learns atomically whether the other was first. So a chain is woken once or needs no waking.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::sync::{AtomicU8, AtomicU32};

/// Inputs that a transaction's decision still needs.
#[derive(Debug)]
pub(crate) struct Missing(AtomicU32);

impl Missing {
    pub(crate) fn new() -> Missing {
        Missing(AtomicU32::new(0))
    }

    /// Sets the count, before chains run.
    pub(crate) fn set(&self, inputs: u32) {
        self.0.store(inputs, Relaxed);
    }

    /// An input has come. Says whether it was the last: then the caller decides, and sees what
    /// all who came before have written.
    #[inline]
    pub(crate) fn arrive(&self) -> bool {
        self.0.fetch_sub(1, AcqRel) == 1
    }
}

const CLOSED: u8 = 0;
const PARKED: u8 = 1;
const OPEN: u8 = 2;

/// Where a chain waits for a decision.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU8);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(AtomicU8::new(CLOSED))
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Acquire) == OPEN
    }

    /// The chain parks, unless the gate is open: then it says no. After a yes the caller must not
    /// touch the chain any more.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        self.0.compare_exchange(CLOSED, PARKED, AcqRel, Acquire).is_ok()
    }

    /// The chain will be parked when the caller has counted its input as come. Only before
    /// [`Missing::arrive`], without which nobody opens this gate.
    #[inline]
    pub(crate) fn park_ahead(&self) {
        self.0.store(PARKED, Relaxed);
    }

    /// Opens the gate. Says whether a chain is parked, which the caller then wakes.
    #[inline]
    pub(crate) fn open(&self) -> bool {
        self.0.swap(OPEN, AcqRel) == PARKED
    }
}
