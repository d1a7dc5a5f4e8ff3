//! Snapshots of the other processes of a job: process 0 asks, and they answer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_engine::observe::Snapshot;

/// How long answers are waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// Answers of the other processes about the running query.
pub(super) struct Observing {
    /// Held by a caller, so that calls wait for each other.
    asking: Mutex<()>,
    answers: Mutex<Vec<Answer>>,
    changed: Condvar,
}

/// The last answer of a process.
#[derive(Default, Clone)]
struct Answer {
    snapshot: Option<Snapshot>,
    /// True for an answer to the latest request.
    is_new: bool,
}

impl Observing {
    /// Of a job of so many processes.
    pub(super) fn new(processes: usize) -> Observing {
        let answers = Mutex::new(vec![Answer::default(); processes]);
        Observing { asking: Mutex::default(), answers, changed: Condvar::new() }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process has answered.
    pub(super) fn note(&self, process: usize, snapshot: Snapshot) {
        self.answers()[process] = Answer { snapshot: Some(snapshot), is_new: true };
        self.changed.notify_all();
    }

    /// A query begins: what was answered about the one before is forgotten.
    pub(super) fn forget(&self) {
        self.answers().fill(Answer::default());
    }

    /// Asks all others, and waits a moment. For a late process, takes its last answer, so that
    /// counters do not go back; a process without an answer is left out.
    pub(super) fn ask(&self, ask: impl FnOnce()) -> Vec<Snapshot> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.answers().iter_mut().for_each(|answer| answer.is_new = false);
        ask();
        let end = Instant::now() + PATIENCE;
        let mut answers = self.answers();
        while answers.iter().skip(1).any(|answer| !answer.is_new) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(answers, left);
            answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        answers.iter().filter_map(|answer| answer.snapshot.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_process_that_is_late_the_last_answer_is_kept() {
        let observing = Observing::new(3);
        let of = |records| Snapshot { records, ..Snapshot::default() };
        // Process 1 has never answered.
        let all = observing.ask(|| observing.note(2, of(2)));
        assert_eq!(all, [of(2)]);
        let all = observing.ask(|| {
            observing.note(2, of(3));
            observing.note(1, of(4));
        });
        assert_eq!(all, [of(4), of(3)]);
        // Process 1 is late.
        let all = observing.ask(|| observing.note(2, of(5)));
        assert_eq!(all, [of(4), of(5)]);
        observing.forget();
        let all = observing.ask(|| observing.note(2, of(1)));
        assert_eq!(all, [of(1)], "of the query before");
    }
}
