//! Ctrl-C ends the query that runs, and not the shell. SIGTERM and SIGHUP end both.

use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::Stopper;

use crate::console::note;
use crate::signals::{TerminalMode, on_each_stop};
use crate::watch::{NOTHING_TO_DRAIN, STOPS};

/// A signal that comes so soon after another one is the same once more.
const ECHO_MAX: Duration = Duration::from_millis(150);
/// How long a query may take to stop when the shell is to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What the shell is doing.
#[derive(Default)]
enum Doing {
    /// It waits for a statement.
    #[default]
    Waiting,
    /// A statement is executed: a query is planned, or opens what it reads.
    Starting,
    Query(Stopper),
    /// It was asked to stop.
    Stopping(Instant),
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
            if came(&listener, ends) {
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

    /// Somebody else than who types wants the query to end that runs, as Ctrl-C does.
    pub(super) fn interrupt(&self) {
        came(&self.0, false);
    }

    /// Lets the query that runs read no more, and end well. Whether one runs that can.
    pub(super) fn drain(&self) -> Result<(), &'static str> {
        match &lock(&self.0).doing {
            Doing::Query(stopper) => {
                stopper.drain();
                Ok(())
            }
            Doing::Stopping(_) => Err(STOPS),
            Doing::Waiting | Doing::Starting => Err(NOTHING_TO_DRAIN),
        }
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

    /// The statement has been executed, or left behind. Whether the shell goes on.
    pub(super) fn ends(&self) -> bool {
        let mut state = lock(&self.0);
        (state.doing, state.give_up) = (Doing::Waiting, None);
        state.number += 1;
        !state.leave
    }
}

/// A signal has come; `ends`: one that ends the shell. Whether it has to end at once.
fn came(state: &Arc<Mutex<State>>, ends: bool) -> bool {
    let mut locked = lock(state);
    locked.leave |= ends;
    match &locked.doing {
        Doing::Waiting => return ends,
        Doing::Query(stopper) => stopper.stop(),
        Doing::Starting => note(&"interrupted before it runs; Ctrl-C again leaves it behind"),
        Doing::Stopping(since) if since.elapsed() < ECHO_MAX => return false,
        Doing::Stopping(_) => {
            if let Some(give_up) = locked.give_up.take().filter(|_| !locked.leave) {
                give_up();
            }
            return locked.leave;
        }
    }
    locked.doing = Doing::Stopping(Instant::now());
    if ends {
        let later = move || {
            thread::sleep(STOP_TIMEOUT);
            exit(130);
        };
        return thread::Builder::new().spawn(later).is_err();
    }
    false
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
