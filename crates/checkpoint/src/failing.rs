//! Errors of the store as errors of the job, and how long they have lasted.

use std::time::{Duration, Instant};

use millstream_contract::Error;

/// Why something was not saved.
#[derive(Debug)]
pub(crate) enum SaveError {
    /// The store's fault.
    Store(millstream_store::Error),
    /// The job's own.
    Job(Error),
}

/// The result of saving.
pub(crate) type Saved<T> = std::result::Result<T, SaveError>;

impl From<millstream_store::Error> for SaveError {
    fn from(error: millstream_store::Error) -> SaveError {
        SaveError::Store(error)
    }
}

impl From<Error> for SaveError {
    fn from(error: Error) -> SaveError {
        SaveError::Job(error)
    }
}

/// An error of the store, as the job's.
pub(crate) fn io(error: &millstream_store::Error) -> Error {
    error.clone().into()
}

/// Since when no checkpoint could be written, and how many were missed.
#[derive(Debug, Default)]
pub(crate) struct Failing(Option<(Instant, u64)>);

impl Failing {
    /// One more was missed. An error if that has lasted too long.
    pub(crate) fn missed(&mut self, tolerance: Duration) -> bool {
        let (since, missed) = self.0.get_or_insert((Instant::now(), 0));
        *missed += 1;
        since.elapsed() < tolerance
    }

    /// One was written: how many were missed before.
    pub(crate) fn ends(&mut self) -> u64 {
        self.0.take().map_or(0, |(_, missed)| missed)
    }

    /// Whether the last one was missed.
    pub(crate) fn is_failing(&self) -> bool {
        self.0.is_some()
    }
}
