//! An endpoint's half behind its lock: for all threads, one at a time. A final error stays. A
//! waiting thread looks again and again, lets others run, and sleeps when it takes long.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_fabric::{Events, Fabric};

use crate::link::HEARTBEAT;
use crate::shuffle::error::{Error, Result};

/// A sender's or receiver's half of an endpoint.
pub(crate) trait Half {
    /// Ends all connections, so that peers notice.
    fn break_connections(&mut self);

    /// One step towards sleep. Returns whether a thread may sleep at the endpoint's events now, for
    /// at most [`HEARTBEAT`]: whatever comes wakes it.
    fn park(&mut self) -> Result<bool>;
}

/// Sleep between looks, where no event tells of what is waited for.
const NAP: Duration = Duration::from_micros(50);

/// An endpoint's half, and where its threads sleep.
pub(crate) struct Endpoint<F: Fabric, H> {
    held: Mutex<Held<H>>,
    fabric: F,
    /// How long to look again and again before sleeping.
    spin: Duration,
    /// The events, but while a thread sleeps there. Further threads wait until the sleeper is up.
    pub(super) events: Mutex<Option<F::Events>>,
    up: Condvar,
}

struct Held<H> {
    half: H,
    failed: Option<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread is that thread's affair; the endpoint's calls do not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Fabric, H: Half> Endpoint<F, H> {
    pub(crate) fn new(half: H, fabric: F, spin: Duration, events: F::Events) -> Endpoint<F, H> {
        let held = Mutex::new(Held { half, failed: None });
        Endpoint { held, fabric, spin, events: Mutex::new(Some(events)), up: Condvar::new() }
    }

    /// Runs a call, unless the endpoint has failed. A final error makes the endpoint fail.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut H) -> Result<R>) -> Result<R> {
        let mut held = lock(&self.held);
        if let Some(error) = &held.failed {
            return Err(error.clone());
        }
        let result = call(&mut held.half);
        if let Err(error) = &result
            && error.is_final()
        {
            held.failed = Some(error.clone());
            held.half.break_connections();
        }
        result
    }

    /// Looks at the half, even if the endpoint has failed.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut H) -> R) -> R {
        look(&mut lock(&self.held).half)
    }

    /// Waits for at most `timeout` until `look` finds something.
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        what: &'static str,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        if let Some(found) = look()? {
            return Ok(found);
        }
        let start = self.fabric.now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            let waited = self.fabric.now().saturating_sub(start);
            if waited >= timeout {
                return Err(Error::TimedOut { what });
            }
            if waited < self.spin {
                std::thread::yield_now();
            } else {
                self.sleep(timeout - waited)?;
            }
        }
    }

    /// One step towards sleep, or a sleep.
    fn sleep(&self, timeout: Duration) -> Result<()> {
        let mut place = lock(&self.events);
        let Some(mut events) = place.take() else {
            drop(self.up.wait_timeout(place, timeout.min(HEARTBEAT)));
            return Ok(());
        };
        drop(place);
        let slept = self.with(H::park).and_then(|may_sleep| {
            if may_sleep {
                events.wait(timeout.min(HEARTBEAT))?;
            } else {
                std::thread::sleep(timeout.min(NAP));
            }
            Ok(())
        });
        *lock(&self.events) = Some(events);
        self.up.notify_all();
        slept
    }
}
