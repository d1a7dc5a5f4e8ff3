//! The inbox of a process: messages that have arrived from the others, and the first reason to
//! stop. Its threads meet here.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_engine::Standing;
use millstream_engine::observe::Snapshot;

use super::failure::ProcessFailure;
use super::member::{SetHook, Watched};

pub(super) type Hook = Box<dyn Fn(&ProcessFailure) + Send>;

/// Messages by process, and the first failure that tells something.
pub(super) struct Inbox<M> {
    state: Mutex<State<M>>,
    changed: Condvar,
    /// How far the query is that runs here.
    watched: Mutex<Option<Watched>>,
}

struct State<M> {
    messages: Vec<VecDeque<M>>,
    failure: Option<ProcessFailure>,
    /// Action at the first failure: stops the local job.
    hook: Option<Hook>,
    /// The job is over: later messages have no effect.
    over: bool,
}

impl<M> Inbox<M> {
    /// An inbox for messages of this many processes.
    pub(super) fn new(processes: usize) -> Inbox<M> {
        let messages = (0..processes).map(|_| VecDeque::new()).collect();
        let state = State { messages, failure: None, hook: None, over: false };
        Inbox { state: Mutex::new(state), changed: Condvar::new(), watched: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message of `process` has arrived.
    pub(super) fn put(&self, process: usize, message: M) {
        self.lock().messages[process].push_back(message);
        self.changed.notify_all();
    }

    /// Notes a failure, unless a better reason is known. Returns whether it is the first. The first
    /// calls the hook.
    pub(super) fn fail(&self, failure: ProcessFailure) -> bool {
        let mut state = self.lock();
        if state.over {
            return false;
        }
        let first = state.failure.is_none();
        if state.failure.as_ref().is_none_or(|known| failure.tells_more_than(known)) {
            state.failure = Some(failure);
        }
        if let (true, Some(hook), Some(failure)) = (first, &state.hook, &state.failure) {
            hook(failure);
        }
        self.changed.notify_all();
        first
    }

    /// From now on the first failure calls `hook`; at once if there has been one. It is called with
    /// the inbox locked: it must not wait, nor look at the inbox.
    pub(super) fn set_hook(&self, hook: Hook) {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            hook(failure);
        }
        state.hook = Some(hook);
    }

    /// No hook is called any more.
    pub(super) fn clear_hook(&self) {
        self.lock().hook = None;
        *self.watched() = None;
    }

    fn watched(&self) -> MutexGuard<'_, Option<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the query is that runs here, if one does.
    pub(super) fn standing(&self) -> Option<Standing> {
        self.watched().as_ref().map(|watched| (watched.standing)())
    }

    /// Snapshot of the local query; `None` if no query runs.
    pub(super) fn observe(&self) -> Option<Snapshot> {
        self.watched().as_ref().map(|watched| (watched.observe)())
    }

    /// Nothing that happens from now on is a failure.
    pub(super) fn close(&self) {
        self.lock().over = true;
    }

    /// Why the job ends early, as far as it is known now.
    pub(super) fn failure(&self) -> Option<ProcessFailure> {
        self.lock().failure.clone()
    }

    /// The next message of `process`, if it has come, whatever has failed.
    pub(super) fn unread(&self, process: usize) -> Option<M> {
        self.lock().messages[process].pop_front()
    }

    /// Waits for the next message of `process`, or a failure of anybody; `None` when `patience` is
    /// over.
    pub(super) fn next(
        &self,
        process: usize,
        patience: Option<Duration>,
    ) -> Result<Option<M>, ProcessFailure> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if let Some(message) = state.messages[process].pop_front() {
                return Ok(Some(message));
            }
            // An hour: a lost wake-up would be late and not forever.
            let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<M: Send> SetHook for Inbox<M> {
    fn set(&self, hook: Hook) {
        self.set_hook(hook);
    }
    fn watch(&self, watched: Watched) {
        *self.watched() = Some(watched);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::failure::{Cause, Fault};
    use super::*;

    #[test]
    fn the_reason_that_tells_most_stays() {
        let inbox: Inbox<()> = Inbox::new(3);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        inbox.set_hook(Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let lost = ProcessFailure::new(1, Cause::Fault(Fault::consequence("process 2 is gone")));
        assert!(inbox.fail(lost));
        assert!(!inbox.fail(ProcessFailure::new(1, Cause::Closed)));
        let killed = ProcessFailure::new(2, Cause::Ended("was killed by signal 9".into()));
        assert!(!inbox.fail(killed.clone()));
        assert!(!inbox.fail(ProcessFailure::new(1, Cause::Ended("ended with exit code 1".into()))));
        assert_eq!(inbox.failure(), Some(killed.clone()));
        assert_eq!(inbox.next(1, None).unwrap_err(), killed);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_hook_that_comes_late_is_called_at_once_and_after_the_end_nothing_is_a_failure() {
        let inbox: Inbox<u8> = Inbox::new(2);
        inbox.put(1, 7);
        assert_eq!(inbox.next(1, None), Ok(Some(7)));
        assert_eq!(inbox.next(1, Some(Duration::ZERO)), Ok(None));
        inbox.fail(ProcessFailure::new(1, Cause::Closed));
        let (sent, received) = std::sync::mpsc::channel();
        inbox.set_hook(Box::new(move |failure| drop(sent.send(failure.clone()))));
        assert_eq!(received.try_recv().unwrap(), ProcessFailure::new(1, Cause::Closed));
        let inbox: Inbox<u8> = Inbox::new(2);
        inbox.close();
        assert!(!inbox.fail(ProcessFailure::new(1, Cause::Closed)));
        assert_eq!(inbox.failure(), None);
    }
}
