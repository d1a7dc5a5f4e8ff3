//! What all threads of an endpoint share, one at a time, and that a final error stays.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::shuffle::error::{Error, Result};

/// A half of an endpoint that can break its connections, so that peers notice.
pub(crate) trait Breaks {
    fn break_connections(&mut self);
}

/// An endpoint's half behind its lock.
pub(crate) struct Guarded<T>(Mutex<Held<T>>);

struct Held<T> {
    half: T,
    failed: Option<Error>,
}

impl<T: Breaks> Guarded<T> {
    pub(crate) fn new(half: T) -> Guarded<T> {
        Guarded(Mutex::new(Held { half, failed: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Held<T>> {
        // A panic of another thread is that thread's affair; the endpoint's calls do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call, unless the endpoint has failed; an error that is final makes it fail.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let mut held = self.lock();
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
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut self.lock().half)
    }
}
