//! Ctrl-C ends the query that runs, and not the shell. SIGTERM and SIGHUP end both.

use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::Stopper;

use crate::console::note;
use crate::signals::{TerminalMode, on_each_stop};

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
    /// A query is being planned, or opens what it reads.
    Starting,
    Query(Stopper),
    /// It was asked to stop.
    Stopping(Instant),
}

#[derive(Default)]
struct State {
    doing: Doing,
    /// Whether the shell is to end.
    leave: bool,
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

    /// A statement is about to be executed.
    pub(super) fn starts(&self) {
        self.set(Doing::Starting);
    }

    /// A query runs from now on. Whether it may: it may have been interrupted before.
    pub(super) fn runs(&self, stopper: Stopper) {
        let mut state = lock(&self.0);
        if let Doing::Stopping(_) = state.doing {
            stopper.stop();
        } else {
            state.doing = Doing::Query(stopper);
        }
    }

    /// The statement has been executed. Whether the shell goes on.
    pub(super) fn ends(&self) -> bool {
        self.set(Doing::Waiting);
        !lock(&self.0).leave
    }

    fn set(&self, doing: Doing) {
        lock(&self.0).doing = doing;
    }
}

/// A signal has come; `ends`: one that ends the shell. Whether it has to end at once.
fn came(state: &Arc<Mutex<State>>, ends: bool) -> bool {
    let mut locked = lock(state);
    locked.leave |= ends;
    match &locked.doing {
        Doing::Waiting => return ends,
        Doing::Query(stopper) => stopper.stop(),
        Doing::Starting => note(&"interrupted before it runs; Ctrl-C again leaves the shell"),
        Doing::Stopping(since) if since.elapsed() < ECHO_MAX => return false,
        Doing::Stopping(_) => {
            note(&"the query does not stop: it waits for a reader or a writer; the shell ends");
            return true;
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
