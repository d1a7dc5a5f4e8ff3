//! A watchdog. It ends the program if the program does not end by itself in time, because it waits
//! for somebody who opens a pipe or reads its output.

use std::process::exit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::program::cluster::{Guard, Interrupt};
use millstream::program::saved::Stopping;
use millstream::program::{mark_all, publish_all};
use millstream::{Error, Sink};

use crate::console::note;
use crate::failure::{Failure, tell};
use crate::live::{StatusBoard, StopAnswer};
use crate::signals::on_stop;

/// How often it is looked whether a result has been committed.
const LOOK: Duration = Duration::from_millis(50);

const GIVEN_UP: &str =
    "interrupted while waiting for a reader or a writer; rows that nobody has read are lost";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches over process 0 of a job until it is dropped: ends the program if that does not end soon
/// after there is a reason to. `saves`: whether the job has checkpoints.
pub(crate) fn guard(interrupt: Interrupt, saves: impl FnOnce() -> bool + Send + 'static) -> Guard {
    let reasons = interrupt.clone();
    Guard::new(
        move || reasons.reason(),
        move || {
            interrupt.kill();
            // By now the most informative reason.
            let told = interrupt.reason().map_or(Failure::Run, |reason| tell(&reason, saves()));
            if matches!(told, Failure::Interrupted) {
                note(&GIVEN_UP);
            }
            exit(told.code().into());
        },
    )
}

/// How long a job may take to stop cleanly.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The same of a job that takes a last checkpoint.
const SAVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Meaning of a signal to stop.
enum Signal {
    First,
    /// The first once more: some programs signal a process and then the group that it is in.
    Echo,
    /// Somebody is impatient.
    Second,
}

/// Signals to stop that have come.
#[derive(Default)]
struct Signals(Option<Instant>);

impl Signals {
    /// One more has come.
    fn next(&mut self) -> Signal {
        match self.0 {
            None => {
                self.0 = Some(Instant::now());
                Signal::First
            }
            Some(first) if first.elapsed() < ECHO_MAX => Signal::Echo,
            Some(_) => Signal::Second,
        }
    }
}

/// An impatient person takes longer.
const ECHO_MAX: Duration = Duration::from_millis(150);

/// Why a job is not drained.
pub(crate) const STOPS: &str = "it is being stopped";
pub(crate) const NOTHING_TO_DRAIN: &str =
    "no query of it is running: there is nothing to drain\n  help: use `millstream stop`";

const NOT_RUNNING: &str = "interrupted while no query was running";
pub(crate) const COMMITTING: &str =
    "the result is complete and gets its names: the program ends after that";
const COMMIT_CUT: &str = "interrupted while the result got its names: files called part-* are whole, but some are missing";

/// Activity of a program of a single process, as far as it matters for a stop.
#[derive(Default)]
enum Doing {
    /// An activity that may be ended at once.
    #[default]
    Other,
    Query(Stopping),
    Stopping,
    /// A result gets its names, which must not be left half done.
    Commit {
        interrupted: bool,
        stopping: Stopping,
    },
}

/// A program of a single process, which Ctrl-C (and SIGTERM) stops cleanly: a query ends early, a
/// result is committed. A second signal stops it at once. A job that waits for the reader of its
/// output cannot stop cleanly: it ends after a short time.
#[derive(Clone)]
pub(crate) struct Alone {
    doing: Arc<Mutex<Doing>>,
    /// The program was requested to drain: it ends with the running query.
    drained: Arc<AtomicBool>,
    board: Arc<StatusBoard>,
}

impl Alone {
    /// A program that notes at `board` what it is doing, and is stopped from there, too.
    pub(crate) fn new(board: &Arc<StatusBoard>) -> Alone {
        let alone = Alone { doing: Arc::default(), drained: Arc::default(), board: board.clone() };
        // What is stopped does not hold what stops it, or neither would ever be dropped.
        let (doing, drained) = (alone.doing.clone(), alone.drained.clone());
        let weak_board = Arc::downgrade(board);
        board.on_stop(move |drain| {
            let (doing, drained) = (doing.clone(), drained.clone());
            let Some(board) = weak_board.upgrade() else { return StopAnswer::Yes };
            let alone = Alone { doing, drained, board };
            match drain {
                true => alone.drain(),
                false => {
                    alone.stop(Signal::First);
                    StopAnswer::Yes
                }
            }
        });
        alone
    }

    /// A query runs from now on.
    pub(crate) fn runs(&self, stopping: Stopping) {
        let observed = stopping.stopper().clone();
        self.board.runs(move || observed.observe());
        *lock(&self.doing) = Doing::Query(stopping);
    }

    /// Whether a drain was requested.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    /// Lets a query read no more, and end well.
    fn drain(&self) -> StopAnswer {
        match &*lock(&self.doing) {
            Doing::Query(stopping) => {
                self.drained.store(true, Relaxed);
                stopping.stopper().drain();
                StopAnswer::Yes
            }
            Doing::Commit { .. } => {
                self.drained.store(true, Relaxed);
                StopAnswer::Yes
            }
            Doing::Stopping => StopAnswer::No(STOPS.into()),
            Doing::Other => StopAnswer::No(NOTHING_TO_DRAIN.into()),
        }
    }

    /// A query has ended: commits its sinks, if it went well and no stop was requested. Returns
    /// whether a stop was requested during the commit.
    pub(crate) fn commits(
        &self,
        result: Result<(), Error>,
        stopping: &Stopping,
        sinks: &[Arc<dyn Sink>],
        targets: &[String],
    ) -> (Result<(), Error>, bool) {
        self.board.commits();
        let result = self.may_commit(result, stopping);
        let result = result.and_then(|()| stopping.end()).and_then(|ended| match ended {
            true => mark_all(sinks),
            false => publish_all(sinks, targets),
        });
        let doing = std::mem::take(&mut *lock(&self.doing));
        (result, matches!(doing, Doing::Commit { interrupted: true, .. }))
    }

    /// A query may have been over before it noticed that it is to stop.
    fn may_commit(&self, result: Result<(), Error>, stopping: &Stopping) -> Result<(), Error> {
        result?;
        let mut doing = lock(&self.doing);
        if matches!(*doing, Doing::Stopping) {
            return Err(Error::Interrupted);
        }
        *doing = Doing::Commit { interrupted: false, stopping: stopping.clone() };
        Ok(())
    }

    /// Listens for signals from now on.
    pub(crate) fn stop_on_signals(&self) -> Result<(), String> {
        let alone = self.clone();
        let mut signals = Signals::default();
        on_stop(move || alone.stop(signals.next()))
    }

    /// Handles a request to stop.
    fn stop(&self, signal: Signal) {
        let mut doing = lock(&self.doing);
        match (signal, &mut *doing) {
            (Signal::Echo, _) => {}
            (Signal::First, Doing::Query(stopping)) => {
                stopping.stop();
                let patience = match stopping.saves() {
                    true => SAVE_TIMEOUT,
                    false => STOP_TIMEOUT,
                };
                *doing = Doing::Stopping;
                self.force_later(patience);
            }
            (Signal::First, Doing::Commit { interrupted, stopping }) => {
                *interrupted = true;
                if !stopping.give_up() {
                    note(&COMMITTING);
                }
            }
            (Signal::Second, Doing::Commit { .. }) => {
                note(&COMMIT_CUT);
                exit(130);
            }
            (Signal::First, Doing::Other) => {
                note(&NOT_RUNNING);
                exit(130);
            }
            _ => exit(130),
        }
    }

    /// Ends the program if it has not stopped by itself in time.
    fn force_later(&self, patience: Duration) {
        let doing = self.doing.clone();
        let force = move || {
            thread::sleep(patience);
            while matches!(*lock(&doing), Doing::Commit { .. }) {
                thread::sleep(LOOK);
            }
            if matches!(*lock(&doing), Doing::Stopping) {
                note(&"interrupted; rows that nobody has read from the output are lost");
            }
            exit(130);
        };
        if thread::Builder::new().spawn(force).is_err() {
            exit(130);
        }
    }
}

/// Ctrl-C (and SIGTERM) stops the job in all processes cleanly, after a result that is just being
/// committed; a second one at once. A job that cannot stop is ended after a short time.
/// `stop` says whether a last checkpoint is taken before, and whether the job has ended and its
/// wait for the store was given up.
pub(crate) fn stop_on_signals(
    interrupt: Interrupt,
    stop: impl Fn() -> (bool, bool) + Send + 'static,
) -> Result<(), String> {
    let mut signals = Signals::default();
    let handler = move || {
        match signals.next() {
            Signal::First => {}
            Signal::Echo => return,
            Signal::Second => {
                if interrupt.is_late() {
                    note(&COMMIT_CUT);
                }
                interrupt.kill();
                exit(130);
            }
        }
        let (saves, gives_up) = stop();
        let patience = if saves { SAVE_TIMEOUT } else { STOP_TIMEOUT };
        if !gives_up && interrupt.is_late() {
            note(&COMMITTING);
        }
        let forced = interrupt.clone();
        let force = move || {
            while forced.is_late() {
                thread::sleep(LOOK);
            }
            thread::sleep(patience);
            note(&GIVEN_UP);
            forced.kill();
            exit(130);
        };
        if thread::Builder::new().spawn(force).is_err() {
            interrupt.kill();
            exit(130);
        }
    };
    on_stop(handler)
}
