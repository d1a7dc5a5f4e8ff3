//! Gives up what does not end by itself, once there is a reason to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::failure::ProcessFailure;

/// How long a process may take to stop, once there is a reason to: all have to have stopped two
/// seconds after that.
const GRACE: Duration = Duration::from_millis(1500);
/// How often it is looked for a reason.
const LOOK: Duration = Duration::from_millis(50);

/// Watches a part of the program that may have to be given up, for example while it waits for the
/// other end of a pipe. Dropping the guard ends the watch.
pub struct Guard(Arc<Mutex<bool>>);

impl Guard {
    /// When `reason` has been known for a while, calls `end`, which has to end the program.
    pub fn new(
        reason: impl Fn() -> Option<ProcessFailure> + Send + 'static,
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
}

impl Drop for Guard {
    fn drop(&mut self) {
        *lock(&self.0) = true;
    }
}

fn lock(mutex: &Mutex<bool>) -> MutexGuard<'_, bool> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
