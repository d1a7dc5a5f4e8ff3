//! Ends the program if it does not end by itself in time: it may wait for somebody who opens a
//! pipe, or reads its output.

use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::cluster::{Failure as Reason, Interrupt};

use crate::processes::tell;
use crate::run::{STOP_TIMEOUT, fail, note};
use crate::{Failure, code};

/// How long a process may take to stop, once there is a reason to: all have to have stopped two
/// seconds after that.
const GRACE: Duration = Duration::from_millis(1500);
/// How often it is looked for a reason.
const LOOK: Duration = Duration::from_millis(50);

const GIVEN_UP: &str =
    "interrupted while waiting for a reader or a writer; rows that nobody has read are lost";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches over a part of the program that may have to be given up. Dropping it ends that.
pub(crate) struct Guard(Arc<Mutex<bool>>);

impl Guard {
    /// When `reason` has been known for a while, calls `end`, which has to end the program.
    pub(crate) fn new(
        reason: impl Fn() -> Option<Reason> + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) -> Guard {
        let over = Arc::new(Mutex::new(false));
        let watched = over.clone();
        let watch = move || {
            while reason().is_none() {
                if *lock(&watched) {
                    return;
                }
                thread::sleep(LOOK);
            }
            thread::sleep(GRACE);
            // Who comes to the end of the part now waits for the end of the program.
            let over = lock(&watched);
            if !*over {
                end();
            }
        };
        // Without it the job still stops, if it can.
        let _ = thread::Builder::new().name("guard".into()).spawn(watch);
        Guard(over)
    }

    /// Watches over process 0.
    pub(crate) fn of_asker(interrupt: Interrupt) -> Guard {
        let reasons = interrupt.clone();
        Guard::new(
            move || reasons.reason(),
            move || {
                interrupt.kill();
                // By now the one that tells most.
                let told = interrupt.reason().map_or(Failure::Run, |reason| tell(&reason));
                if matches!(told, Failure::Interrupted) {
                    note(&GIVEN_UP);
                }
                exit(code(&told).into());
            },
        )
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *lock(&self.0) = true;
    }
}

/// What a signal to stop means.
pub(crate) enum Signal {
    First,
    /// The first once more: some programs signal a process and then the group that it is in.
    Echo,
    /// Somebody is impatient.
    Second,
}

/// Signals to stop that have come.
#[derive(Default)]
pub(crate) struct Signals(Mutex<Option<Instant>>);

impl Signals {
    /// One more has come.
    pub(crate) fn next(&self) -> Signal {
        let mut first = lock(&self.0);
        match *first {
            None => {
                *first = Some(Instant::now());
                Signal::First
            }
            Some(first) if first.elapsed() < ECHO_MAX => Signal::Echo,
            Some(_) => Signal::Second,
        }
    }
}

/// An impatient person takes longer.
const ECHO_MAX: Duration = Duration::from_millis(150);

/// Ctrl-C (and SIGTERM) stops the job in all processes cleanly; a second one at once. A job that
/// cannot stop is ended after a short time.
pub(crate) fn stop_on_signals(interrupt: Interrupt) -> Result<(), Failure> {
    let signals = Signals::default();
    let handler = move || {
        match signals.next() {
            Signal::First => {}
            Signal::Echo => return,
            Signal::Second => {
                interrupt.kill();
                exit(130);
            }
        }
        interrupt.stop();
        let forced = interrupt.clone();
        let force = move || {
            thread::sleep(STOP_TIMEOUT);
            note(&GIVEN_UP);
            forced.kill();
            exit(130);
        };
        if thread::Builder::new().spawn(force).is_err() {
            interrupt.kill();
            exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|e| fail(&format!("cannot listen for Ctrl-C: {e}")))
}
