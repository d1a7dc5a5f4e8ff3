//! What the other processes of a job are doing: process 0 asks, and they answer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_engine::observe::Snapshot;

/// How long answers are waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// The last answers, by process.
pub(super) struct Observing {
    /// Held while somebody asks: one after the other.
    asking: Mutex<()>,
    answers: Mutex<Vec<Option<Snapshot>>>,
    changed: Condvar,
}

impl Observing {
    /// Of a job of so many processes.
    pub(super) fn new(processes: usize) -> Observing {
        let answers = Mutex::new(vec![None; processes]);
        Observing { asking: Mutex::default(), answers, changed: Condvar::new() }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Option<Snapshot>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process has answered.
    pub(super) fn note(&self, process: usize, snapshot: Snapshot) {
        self.answers()[process] = Some(snapshot);
        self.changed.notify_all();
    }

    /// Asks all others, and waits a moment. Who has not answered by then is not among them.
    pub(super) fn ask(&self, ask: impl FnOnce()) -> Vec<Snapshot> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.answers().fill(None);
        ask();
        let end = Instant::now() + PATIENCE;
        let mut answers = self.answers();
        while answers.iter().skip(1).any(Option::is_none) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(answers, left);
            answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        answers.iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_left_out() {
        let observing = Observing::new(3);
        let of = |records| Snapshot { records, ..Snapshot::default() };
        // An answer to what was asked before.
        observing.note(1, of(1));
        let all = observing.ask(|| observing.note(2, of(2)));
        assert_eq!(all, [of(2)]);
        let all = observing.ask(|| {
            observing.note(2, of(3));
            observing.note(1, of(4));
        });
        assert_eq!(all, [of(4), of(3)]);
    }
}
