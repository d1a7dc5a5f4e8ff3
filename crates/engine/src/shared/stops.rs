//! Times of cuts: how long all workers stand, and each of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::latencies::Latencies;
use crate::observe::Stops;

/// The clock of a process's cuts.
#[derive(Debug, Default)]
pub(crate) struct StopClock(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// A pause of a worker in a cut is one entry.
    pauses: Latencies,
    /// Of the present cut: when its last part began, and how long those before took.
    since_us: i64,
    parts_us: Vec<u64>,
    /// Of the last complete cut.
    last_us: [u64; 3],
}

impl StopClock {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cut begins.
    pub(super) fn begin(&self, now_us: i64) {
        let mut state = self.lock();
        state.since_us = now_us;
        state.parts_us.clear();
    }

    /// The part of this number is over: all workers stand, or all state has been saved.
    pub(crate) fn end_part(&self, number: usize, now_us: i64) {
        let mut state = self.lock();
        if state.parts_us.len() == number {
            let us = now_us.saturating_sub(state.since_us).max(0) as u64;
            state.parts_us.push(us);
            state.since_us = now_us;
        }
    }

    /// The cut is complete, and workers go on.
    pub(super) fn end(&self, cut: u64, now_us: i64) {
        self.end_part(2, now_us);
        let mut state = self.lock();
        if let Ok(parts_us) = <[u64; 3]>::try_from(&state.parts_us[..]) {
            let [drain_us, save_us, complete_us] = parts_us;
            tracing::info!(cut, drain_us, save_us, complete_us, "workers have stood for a cut");
            state.last_us = parts_us;
        }
    }

    /// A worker has stood still for so long in a cut.
    pub(crate) fn note_pause(&self, us: u64) {
        self.lock().pauses.add(us);
    }

    pub(super) fn observed(&self) -> Stops {
        let state = self.lock();
        let [drain_us, save_us, complete_us] = state.last_us;
        Stops { pauses: state.pauses.observed(), drain_us, save_us, complete_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_cut_are_timed() {
        let clock = StopClock::default();
        clock.begin(100);
        clock.end_part(0, 350);
        // Another worker begins to save, too.
        clock.end_part(0, 355);
        clock.end_part(1, 360);
        clock.end(1, 365);
        let parts = |clock: &StopClock| {
            let Stops { drain_us, save_us, complete_us, .. } = clock.observed();
            [drain_us, save_us, complete_us]
        };
        assert_eq!(parts(&clock), [250, 10, 5]);
        // A cut that is given up does not count.
        clock.begin(500);
        clock.end_part(0, 600);
        clock.end(2, 700);
        assert_eq!(parts(&clock), [250, 10, 5]);
        [7, 9, 8].into_iter().for_each(|us| clock.note_pause(us));
        let pauses = clock.observed().pauses;
        assert_eq!((pauses.windows, pauses.p50_us, pauses.max_us), (3, 8, 9));
    }
}
