//! The moments of cuts.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millstream_contract::{Error, Result};
use millstream_engine::Stopper;

use crate::saver::Saver;

/// Asks for a cut now and then, until it is dropped.
#[derive(Debug)]
pub struct Timer {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    /// Asks a running job for cuts that `saver` writes.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(saver: Arc<Saver>, stopper: Stopper, every: Duration) -> Result<Timer> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let end = ended.clone();
        let ask = move || {
            let mut next = Instant::now() + every;
            while !waits(&end, next) {
                saver.cut(&stopper);
                // No row of cuts if one took longer than their distance.
                next = (next + every).max(Instant::now());
            }
        };
        let thread = thread::Builder::new().name("checkpoints".into()).spawn(ask);
        let thread = thread.map_err(|error| Error::Io {
            place: "the thread of checkpoints".into(),
            message: format!("cannot be started: {error}"),
            help: String::new(),
        })?;
        Ok(Timer { ended, thread: Some(thread) })
    }
}

/// Waits until a moment. True if the timer has ended.
fn waits((ended, bell): &(Mutex<bool>, Condvar), until: Instant) -> bool {
    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    while !*ended {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        ended = bell.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    *ended
}

impl Drop for Timer {
    fn drop(&mut self) {
        let (ended, bell) = &*self.ended;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        // A cut that has begun is the affair of the job.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
