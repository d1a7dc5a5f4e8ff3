//! Where a worker sleeps, and for how long.

use std::time::Duration;

use crate::network::Sleeper;

/// So long a worker that has nothing to do looks again and again before it goes to sleep, which
/// takes messages to every process, and whoever wakes it some 10 µs. Meanwhile it yields to
/// whatever else its processor has to do.
pub(crate) const AWAKE: Duration = Duration::from_micros(100);

/// A sleeper looks again after this time: whatever happens wakes it, and its peers prove that they
/// answer.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(250);

/// Where a worker sleeps if its job has channels.
pub(super) struct SleepState {
    pub(super) sleeper: Box<dyn Sleeper>,
    /// When it first found nothing to do.
    pub(super) idle_since_us: Option<i64>,
    /// All that could wake it has been asked to, and it looks everywhere once more before it
    /// sleeps: what came before it asked does not ring.
    pub(super) parked: bool,
}

impl SleepState {
    pub(super) fn new(sleeper: Box<dyn Sleeper>) -> SleepState {
        SleepState { sleeper, idle_since_us: None, parked: false }
    }
}
