//! Ctrl-C ends the query that runs, and not the shell. SIGTERM and SIGHUP end both.

use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::program::{Stopper, give_up_pipes};

use crate::console::note;
use crate::signals::{TerminalMode, on_each_stop};
use crate::watch::{NOTHING_TO_DRAIN, STOPS};

/// A signal that comes so soon after another one is the same once more.
const ECHO_MAX: Duration = Duration::from_millis(150);
/// How long a query may take to stop when the shell is to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How often it is looked whether a result has its names.
const LOOK: Duration = Duration::from_millis(50);

const HAS_ENDED: &str = "that query has ended";

/// State of the shell.
#[derive(Default)]
enum Doing {
    /// Waiting for a statement.
    #[default]
    Waiting,
    /// A statement is executed: a query is planned, or opens what it reads.
    Starting,
    Query(Stopper),
    /// Asked to stop.
    Stopping(Instant),
    /// A result gets its names, which must not be left half done.
    Committing {
        interrupted: bool,
    },
}

#[derive(Default)]
struct State {
    doing: Doing,
    /// The number of the statement that is executed.
    number: u64,
    /// Whether the shell is to end.
    leave: bool,
    /// Leaves a query behind that does not stop.
    give_up: Option<Box<dyn FnOnce() + Send>>,
}

/// Knows what a signal has to stop.
#[derive(Clone)]
pub(super) struct Interrupts(Arc<Mutex<State>>);

impl Interrupts {
    /// Listens for signals from now on.
    pub(super) fn listen() -> Result<Interrupts, String> {
        let state = Arc::new(Mutex::new(State::default()));
        let (listener, mode) = (state.clone(), TerminalMode::saved());
        on_each_stop(move |signal| {
            let ends = signal != libc::SIGINT || mode.is_none();
            if came(&listener, if ends { Wish::Leave } else { Wish::Next }) {
                if let Some(mode) = &mode {
                    mode.restore();
                }
                exit(130);
            }
        })?;
        Ok(Interrupts(state))
    }

    /// A statement is about to be executed; returns its number. `give_up` leaves it behind.
    pub(super) fn starts(&self, give_up: impl FnOnce() + Send + 'static) -> u64 {
        let mut state = lock(&self.0);
        state.doing = Doing::Starting;
        state.give_up = Some(Box::new(give_up));
        state.number += 1;
        state.number
    }

    /// Somebody else than who types wants this query to end.
    pub(super) fn stop(&self, number: u64) -> Result<(), &'static str> {
        if lock(&self.0).number != number {
            return Err(HAS_ENDED);
        }
        came(&self.0, Wish::End);
        Ok(())
    }

    /// Lets this query read no more, and end well.
    pub(super) fn drain(&self, number: u64) -> Result<(), &'static str> {
        let state = lock(&self.0);
        if state.number != number {
            return Err(HAS_ENDED);
        }
        match &state.doing {
            Doing::Query(stopper) => {
                stopper.drain();
                Ok(())
            }
            Doing::Committing { .. } => Ok(()),
            Doing::Stopping(_) => Err(STOPS),
            Doing::Waiting | Doing::Starting => Err(NOTHING_TO_DRAIN),
        }
    }

    /// Whether this statement is still executed, and was not left behind.
    pub(super) fn is_current(&self, number: u64) -> bool {
        lock(&self.0).number == number
    }

    /// Whether the query of this statement was asked to stop, or left behind.
    pub(super) fn is_stopping(&self, number: u64) -> bool {
        let state = lock(&self.0);
        state.number != number || matches!(state.doing, Doing::Stopping(_))
    }

    /// Takes note that the query of this statement has ended, and its result gets its names. False
    /// if the result must not be named: the query was told to stop before it ended.
    pub(super) fn commits(&self, number: u64) -> bool {
        let mut state = lock(&self.0);
        if state.number != number || matches!(state.doing, Doing::Stopping(_)) {
            return false;
        }
        state.doing = Doing::Committing { interrupted: false };
        true
    }

    /// The query of this statement runs from now on, unless it was interrupted. Whether it may: it
    /// may have been left behind.
    pub(super) fn runs(&self, number: u64, stopper: Stopper) -> bool {
        let mut state = lock(&self.0);
        if state.number != number {
            return false;
        }
        match state.doing {
            Doing::Stopping(_) => stopper.stop(),
            _ => state.doing = Doing::Query(stopper),
        }
        true
    }

    /// Takes note that the statement has been executed, or left behind. True if the following
    /// statements are to be executed.
    pub(super) fn ends(&self) -> bool {
        let mut state = lock(&self.0);
        let doing = std::mem::take(&mut state.doing);
        state.give_up = None;
        state.number += 1;
        !state.leave && !matches!(doing, Doing::Committing { interrupted: true })
    }
}

/// Wish of the user, or of a signal.
#[derive(Clone, Copy, PartialEq)]
enum Wish {
    /// The next prompt, for a user who types. A second wish leaves a query behind that has not
    /// ended.
    Next,
    /// The query's end, without a user who types. A query that does not end in time is left behind.
    End,
    /// The shell's end.
    Leave,
}

/// A signal has come, or a request. Whether the shell has to end at once.
fn came(state: &Arc<Mutex<State>>, wish: Wish) -> bool {
    let mut locked = lock(state);
    let ends = wish == Wish::Leave;
    locked.leave |= ends;
    if wish == Wish::End || matches!(locked.doing, Doing::Starting) {
        left_behind_later(state.clone(), locked.number);
    }
    match &mut locked.doing {
        Doing::Waiting => return ends,
        Doing::Query(stopper) => stopper.stop(),
        Doing::Starting => {
            give_up_pipes();
            note(&"interrupted before it runs");
        }
        Doing::Committing { interrupted } => {
            if !std::mem::replace(interrupted, true) {
                note(&"the result is complete and gets its names; what follows is not executed");
                return ends && leaves_later(state.clone());
            }
            return false;
        }
        Doing::Stopping(since) if since.elapsed() < ECHO_MAX => return false,
        Doing::Stopping(_) => {
            if let Some(give_up) = locked.give_up.take().filter(|_| !locked.leave) {
                give_up();
            }
            return locked.leave;
        }
    }
    locked.doing = Doing::Stopping(Instant::now());
    ends && leaves_later(state.clone())
}

/// Leaves a statement behind if it has not stopped after a short time.
fn left_behind_later(state: Arc<Mutex<State>>, number: u64) {
    let later = move || {
        thread::sleep(STOP_TIMEOUT);
        let mut state = lock(&state);
        if state.number == number
            && matches!(state.doing, Doing::Stopping(_))
            && let Some(give_up) = state.give_up.take()
        {
            give_up();
        }
    };
    // Otherwise it stops as it can, or at a second Ctrl-C.
    let _ = thread::Builder::new().spawn(later);
}

/// Ends the shell after a short time, and not while a result gets its names. Whether it has to end
/// at once.
fn leaves_later(state: Arc<Mutex<State>>) -> bool {
    let later = move || {
        thread::sleep(STOP_TIMEOUT);
        while matches!(lock(&state).doing, Doing::Committing { .. }) {
            thread::sleep(LOOK);
        }
        exit(130);
    };
    thread::Builder::new().spawn(later).is_err()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn interrupts() -> Interrupts {
        Interrupts(Arc::default())
    }

    #[test]
    fn a_result_that_gets_its_names_is_complete_and_what_follows_is_not_executed() {
        let interrupts = interrupts();
        let number = interrupts.starts(|| unreachable!());
        assert!(interrupts.commits(number));
        assert!(!came(&interrupts.0, Wish::Next) && !came(&interrupts.0, Wish::Next));
        assert!(!interrupts.is_stopping(number));
        assert!(!interrupts.ends());
        // The next statement has nothing to do with that.
        interrupts.starts(|| ());
        assert!(interrupts.ends());
    }

    #[test]
    fn a_query_that_is_to_stop_commits_nothing_and_is_left_behind_at_a_second_signal() {
        let interrupts = interrupts();
        let (given_up, up) = mpsc::channel();
        let number = interrupts.starts(move || given_up.send(()).unwrap());
        assert!(!came(&interrupts.0, Wish::Next));
        assert!(interrupts.is_stopping(number) && !interrupts.commits(number));
        // The same signal once more.
        assert!(!came(&interrupts.0, Wish::Next));
        assert!(up.try_recv().is_err());
        thread::sleep(ECHO_MAX);
        assert!(!came(&interrupts.0, Wish::Next));
        up.try_recv().unwrap();
        assert!(interrupts.ends());
    }

    #[test]
    fn a_query_that_somebody_else_stops_is_left_behind_in_time() {
        let interrupts = interrupts();
        let (given_up, up) = mpsc::channel();
        let number = interrupts.starts(move || given_up.send(Instant::now()).unwrap());
        let asked = Instant::now();
        assert_eq!(interrupts.stop(number), Ok(()));
        assert!(up.recv().unwrap() - asked >= STOP_TIMEOUT);
        assert!(interrupts.is_current(number));
        interrupts.ends();
        assert!(!interrupts.is_current(number));
    }

    #[test]
    fn who_stops_a_query_that_has_ended_stops_no_other() {
        let interrupts = interrupts();
        let ended = interrupts.starts(|| ());
        assert!(interrupts.ends());
        let number = interrupts.starts(|| ());
        assert_eq!(interrupts.stop(ended), Err(HAS_ENDED));
        assert_eq!(interrupts.drain(ended), Err(HAS_ENDED));
        assert!(!interrupts.is_stopping(number));
        assert_eq!(interrupts.drain(number), Err(NOTHING_TO_DRAIN));
        assert_eq!(interrupts.stop(number), Ok(()));
        assert!(interrupts.is_stopping(number));
    }
}
