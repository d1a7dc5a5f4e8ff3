//! Latencies: how long windows took from being complete to being written.

use std::collections::VecDeque;

use crate::observe::Latency;

/// Latencies for shares, the latest.
const LATEST: usize = 1_000;

/// Latencies kept, the latest: half a megabyte.
const LATENCIES_MAX: usize = 1 << 16;

/// How long windows took to fire.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    latest: VecDeque<u64>,
    windows: u64,
    sum_us: u64,
}

impl Latencies {
    pub(crate) fn add(&mut self, us: u64) {
        if self.latest.len() >= LATENCIES_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(us);
        self.windows += 1;
        self.sum_us += us;
    }

    /// Takes out the latest entries.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.latest).into()
    }

    pub(super) fn observed(&self) -> Latency {
        let latest = self.latest.iter().rev().take(LATEST).copied().collect();
        Latency::of(latest, self.windows, self.sum_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_latencies_are_kept_and_all_are_counted() {
        let mut latencies = Latencies::default();
        (0..LATENCIES_MAX as u64 + 5).for_each(|us| latencies.add(us));
        let observed = latencies.observed();
        assert_eq!(observed.windows, LATENCIES_MAX as u64 + 5);
        assert_eq!(observed.max_us, LATENCIES_MAX as u64 + 4);
        let latest = latencies.take();
        assert_eq!((latest.len(), latest[0]), (LATENCIES_MAX, 5));
    }
}
