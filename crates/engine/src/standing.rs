//! The progress of a process, and its obstacle in the absence of progress.
//!
//! A job never ends if no process makes progress although none waits for a source, a reader or a
//! slow step. Only an observer of all processes can detect this state, from the processes' reports
//! ([`Standing`]). A process itself only counts its steps.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// So long nothing happens in a query that is stuck.
pub const STUCK_AFTER: Duration = Duration::from_secs(60);

/// How far a process is, and what it waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Steps that have done something, and rounds in which messages came or went.
    pub steps: u64,
    /// Obstacle of the workers, if all of them wait for other processes.
    pub waits_for: Option<String>,
}

/// The steps of a process's workers, and of who takes in what comes when they have ended.
#[derive(Debug)]
pub(crate) struct Pace {
    workers: Vec<Steps>,
    /// For each worker, what `entered` was at the last look.
    seen: Mutex<Vec<u64>>,
}

/// Of one worker, on a cache line of its own: only the worker writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Steps {
    /// Goes up when a step begins and when it ends: odd within one.
    entered: AtomicU64,
    /// Steps with progress.
    done: AtomicU64,
}

impl Pace {
    pub(crate) fn new(workers: usize) -> Pace {
        let steps = (0..=workers).map(|_| Steps::default()).collect();
        Pace { workers: steps, seen: Mutex::new(vec![0; workers + 1]) }
    }

    /// Number, counted as a worker's, of the receiver that works on when all workers have ended.
    pub(crate) fn last(&self) -> usize {
        self.workers.len() - 1
    }

    /// A worker begins a step.
    pub(crate) fn begin(&self, worker: usize) {
        let entered = &self.workers[worker].entered;
        entered.store((entered.load(Relaxed) + 1) | 1, Relaxed);
    }

    /// Progress in a step that may have to wait: messages have come.
    pub(crate) fn has_done(&self, worker: usize) {
        let steps = &self.workers[worker].done;
        steps.store(steps.load(Relaxed) + 1, Relaxed);
    }

    /// A worker ends a step; `done`: with progress, rather than a reason to wait.
    pub(crate) fn end(&self, worker: usize, done: bool) {
        let Steps { entered, done: steps } = &self.workers[worker];
        steps.store(steps.load(Relaxed) + u64::from(done), Relaxed);
        entered.store((entered.load(Relaxed) + 1) & !1, Relaxed);
    }

    /// Steps that have done something, and whether none has been under way since the last look: who
    /// looks again and again in vain is in a step now and then, but each time in another.
    pub(crate) fn look(&self) -> (u64, bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut steps, mut waits) = (0, true);
        for (worker, seen) in self.workers.iter().zip(seen.iter_mut()) {
            let entered = worker.entered.load(Relaxed);
            waits &= entered.is_multiple_of(2) || entered != *seen;
            *seen = entered;
            steps += worker.done.load(Relaxed);
        }
        (steps, waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_is_no_wait_and_looking_in_vain_is_no_step() {
        let pace = Pace::new(2);
        pace.begin(0);
        pace.end(0, true);
        assert_eq!(pace.look(), (1, true));
        // A step that writes to a stalled reader.
        pace.begin(0);
        pace.look();
        assert_eq!(pace.look(), (1, false));
        assert_eq!(pace.look(), (1, false));
        pace.end(0, false);
        pace.has_done(pace.last());
        assert_eq!(pace.look(), (2, true));
        // It is in a step whenever somebody looks, but never in the same.
        for _ in 0..3 {
            pace.begin(1);
            assert_eq!(pace.look(), (2, true));
            pace.end(1, false);
        }
    }
}
