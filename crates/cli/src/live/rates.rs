//! How far a query was at each second of the last minutes: for the lines of the page.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use millstream::observe::Snapshot;
use serde::Serialize;

const EVERY: Duration = Duration::from_secs(1);
/// Older samples are forgotten.
const KEPT_US: i64 = 300_000_000;

/// How far a query was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Sample {
    at_us: i64,
    records: u64,
    rows: u64,
}

/// The samples of the query that runs, or ran last.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Rates {
    query: u64,
    samples: VecDeque<Sample>,
}

impl Rates {
    /// Takes a sample of the query of this number.
    pub(super) fn add(&mut self, query: u64, snapshot: &Snapshot) {
        if query != self.query {
            *self = Rates { query, ..Rates::default() };
        }
        let rows = snapshot.outputs.iter().map(|output| output.rows).sum();
        let at_us = snapshot.now_us;
        self.samples.push_back(Sample { at_us, records: snapshot.records, rows });
        // The first one is where the line begins.
        while self.samples.get(1).is_some_and(|second| second.at_us <= at_us - KEPT_US) {
            self.samples.pop_front();
        }
    }
}

/// Calls `sample` every second as long as the program runs.
pub(super) fn every_second(sample: impl Fn() + Send + 'static) {
    let thread = thread::Builder::new().name("rates".into());
    let sampling = move || {
        loop {
            sample();
            thread::sleep(EVERY);
        }
    };
    // Without the thread, the page has no lines.
    let _ = thread.spawn(sampling);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_those_of_the_last_five_minutes_of_one_query() {
        let (mut rates, second) = (Rates::default(), 1_000_000);
        let snapshot =
            |at: i64| Snapshot { now_us: at * second, records: at as u64, ..Snapshot::default() };
        (0..1_000).for_each(|at| rates.add(1, &snapshot(at)));
        let ends = |rates: &Rates| (rates.samples[0].records, rates.samples.len());
        assert_eq!(ends(&rates), (699, 301));
        rates.add(2, &snapshot(1_000));
        assert_eq!(ends(&rates), (1_000, 1));
    }
}
