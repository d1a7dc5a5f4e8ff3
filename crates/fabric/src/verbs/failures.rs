//! Failures of a device's queues and queue pairs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Part of a device that can fail by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// A completion queue, by its tag.
    Queue(usize),
    /// A queue pair, by its number.
    Pair(u32),
}

/// Failures of a device's parts. A device's events come to the first reader, who marks the failed
/// part, even if it belongs to another thread.
#[derive(Default)]
pub(super) struct Failures {
    next_tag: AtomicUsize,
    flags: Mutex<HashMap<Part, Weak<AtomicBool>>>,
}

impl Failures {
    fn flags(&self) -> MutexGuard<'_, HashMap<Part, Weak<AtomicBool>>> {
        // Every change is a single call, so a panic elsewhere leaves it whole.
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A unique tag for a completion queue.
    pub(super) fn tag(&self) -> usize {
        self.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    /// The flag of a new part. Numbers of queue pairs that are gone come again.
    pub(super) fn add(&self, part: Part) -> Arc<AtomicBool> {
        let flag = Arc::new(AtomicBool::new(false));
        let mut flags = self.flags();
        flags.retain(|_, flag| flag.strong_count() > 0);
        flags.insert(part, Arc::downgrade(&flag));
        flag
    }

    pub(super) fn mark(&self, part: Part) {
        if let Some(flag) = self.flags().get(&part).and_then(Weak::upgrade) {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_failed_is_marked() {
        let failures = Failures::default();
        let parts = [Part::Queue(failures.tag()), Part::Queue(failures.tag()), Part::Pair(0)];
        let flags = parts.map(|part| failures.add(part));
        failures.mark(parts[1]);
        failures.mark(Part::Pair(99));
        let marked = flags.each_ref().map(|flag| flag.load(Ordering::Relaxed));
        assert_eq!(marked, [false, true, false]);
        // A new queue pair may get the number of one that is gone.
        drop(flags);
        assert!(!failures.add(parts[1]).load(Ordering::Relaxed));
    }
}
