//! The low watermark: the least stamp of anything that is not yet taken or not yet finished.

use super::split::SplitState;
use super::{Intake, State};
use crate::event_time::{BEGINNING, END};

impl Intake {
    /// Notes that `worker` has finished the batch it had taken, and returns the low watermark. If
    /// it has passed the end of a window, all workers are woken to announce it.
    pub(crate) fn finish(&self, worker: usize) -> i64 {
        let mut state = self.lock();
        state.current[worker] = None;
        if let Some(timeout) = self.idle_timeout_us {
            let now = self.env.now_us();
            for split in &mut state.splits {
                split.idle |= split.idle_at(timeout).is_some_and(|at| at <= now);
            }
        }
        let low = self.low_of(&state);
        state.low = low;
        let passed = self.passed(low);
        if passed > state.passed {
            state.passed = passed;
            drop(state);
            self.wake_all();
        }
        low
    }

    pub(super) fn low_of(&self, state: &State) -> i64 {
        let active = state.splits.iter().filter(|s| !s.idle && !s.exhausted());
        let low = active.map(SplitState::low).chain(state.current.iter().flatten().copied()).min();
        let low = low.unwrap_or_else(|| {
            if state.splits.iter().all(SplitState::exhausted) {
                return END;
            }
            // Only idle splits are left: nothing holds the watermark back, but nothing moves it on,
            // unless other processes do.
            let own = state.splits.iter().map(|s| s.watermark).max().unwrap_or(BEGINNING);
            let others = self.net.as_ref().and_then(|net| net.others_low());
            own.max(others.unwrap_or(BEGINNING))
        });
        // A split that was idle and has data again stands at or above what was announced.
        low.max(state.low)
    }

    /// How many windows a watermark has passed, lateness included.
    pub(crate) fn passed(&self, watermark: i64) -> i64 {
        self.windowing.passed(watermark)
    }

    /// The clock when the watermark of what was read reached `watermark_us`, if it is known.
    pub(crate) fn reached_at(&self, watermark_us: i64) -> Option<i64> {
        let state = self.lock();
        let at = state.reached.partition_point(|(watermark, _)| *watermark < watermark_us);
        if at == 0 && state.reached.len() >= 4096 {
            return None;
        }
        state.reached.get(at).map(|(_, clock)| *clock)
    }

    /// Whether only splits are left that have been without data for their idle time.
    pub(crate) fn is_idle(&self) -> bool {
        if self.idle_timeout_us.is_none() {
            return false;
        }
        let state = self.lock();
        let mut left = state.splits.iter().filter(|s| !s.exhausted()).peekable();
        left.peek().is_some() && left.all(|s| s.idle)
    }
}
