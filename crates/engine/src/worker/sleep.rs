//! Where a worker sleeps, and for how long.

use std::time::Duration;

use crate::network::Sleeper;

/// Time for which an idle worker looks again and again before it goes to sleep, which takes
/// messages to every process, and costs the waking thread some 10 µs. Meanwhile the worker yields
/// its processor to other threads.
pub(crate) const AWAKE: Duration = Duration::from_micros(100);

/// Longest sleep: every event wakes the sleeper, and peers prove that they answer.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(250);

/// Where a worker sleeps if its job has channels.
pub(super) struct SleepState {
    pub(super) sleeper: Box<dyn Sleeper>,
    /// Time at which the worker first found no work.
    pub(super) idle_since_us: Option<i64>,
    /// All sources of wake-ups are armed, and the worker looks everywhere once more before it
    /// sleeps: earlier events do not ring.
    pub(super) parked: bool,
}

impl SleepState {
    pub(super) fn new(sleeper: Box<dyn Sleeper>) -> SleepState {
        SleepState { sleeper, idle_since_us: None, parked: false }
    }
}
