//! The pool of chains that were blocked and can go on (paper, section 4.3, "dynamic
//! work-scheduling"). There is a stack for each worker; workers without work take from others.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::sync::{AtomicU32, AtomicU64};

/// A stack of numbers without locks. Links are kept with the chains, so nothing is allocated. Each
/// change counts up a tag beside the head, so that a head which went and came back is noticed.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Stack {
    head: AtomicU64,
}

impl Stack {
    pub(crate) fn new() -> Stack {
        Stack { head: AtomicU64::new(0) }
    }

    /// Puts a number in that is in no stack. What the caller wrote before is seen by the worker
    /// that takes it out.
    pub(crate) fn push(&self, number: u32, link: &AtomicU32) {
        let mut head = self.head.load(Relaxed);
        loop {
            link.store(head as u32, Relaxed);
            let next = tagged(head, number + 1);
            match self.head.compare_exchange_weak(head, next, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes out the number that came last.
    pub(crate) fn pop<'l>(&self, link_of: impl Fn(u32) -> &'l AtomicU32) -> Option<u32> {
        let mut head = self.head.load(Acquire);
        loop {
            let number = (head as u32).checked_sub(1)?;
            let next = tagged(head, link_of(number).load(Relaxed));
            match self.head.compare_exchange_weak(head, next, AcqRel, Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Relaxed) as u32 == 0
    }
}

fn tagged(head: u64, number: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(number)
}
