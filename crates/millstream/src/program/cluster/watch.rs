//! Notices a query that will never end: no process makes progress, and each waits for another.
//!
//! Every process reports its progress with its heartbeats ([`Standing`]). A process that waits for
//! a source, for a reader of its output or for the end of a long step does not report that it
//! waits; a process that was stopped reports nothing at all. The time until a query counts as stuck
//! passes only while all processes report that they wait for others. So slow sources and readers
//! are never taken for a stuck query.

use std::time::Duration;

use millstream_engine::{STUCK_AFTER, Standing};

use super::link::HEARTBEAT;

/// How far the processes of a query are.
pub(super) struct Watch {
    last: Vec<Standing>,
    /// Rounds of heartbeats without progress.
    rounds: u32,
    rounds_max: u32,
}

impl Watch {
    /// Tests that show what is not taken for a stuck query set `MILLSTREAM_STUCK_SECONDS`.
    pub(super) fn new(processes: usize) -> Watch {
        let seconds = std::env::var("MILLSTREAM_STUCK_SECONDS").ok();
        let given = seconds.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let last = vec![Standing::default(); processes];
        Watch { last, rounds: 0, rounds_max: rounds(given.unwrap_or(STUCK_AFTER)) }
    }

    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.rounds_max = rounds(patience);
    }

    /// No query runs.
    pub(super) fn forget(&mut self) {
        self.last.fill(Standing::default());
        self.rounds = 0;
    }

    /// Notes the progress `theirs` of a process other than the first, and `own` of the first. After
    /// a long time without progress: the reasons for which each process waits.
    pub(super) fn note(
        &mut self,
        process: usize,
        theirs: Standing,
        own: Standing,
    ) -> Option<String> {
        let last = self.last.len() - 1;
        self.take(0, own);
        self.take(process, theirs);
        self.rounds += u32::from(process == last);
        if self.rounds < self.rounds_max || self.last.iter().any(|s| s.waits_for.is_none()) {
            return None;
        }
        let waits: Vec<String> = self
            .last
            .iter()
            .enumerate()
            .filter_map(|(i, s)| Some(format!("process {i} waits for {}", s.waits_for.as_ref()?)))
            .collect();
        Some(waits.join("; "))
    }

    fn take(&mut self, process: usize, standing: Standing) {
        let last = &mut self.last[process];
        if standing.waits_for.is_none() || last.waits_for.is_none() || standing.steps != last.steps
        {
            self.rounds = 0;
        }
        *last = standing;
    }
}

/// Rounds of heartbeats in that time, at least.
fn rounds(patience: Duration) -> u32 {
    (patience.as_millis() / HEARTBEAT.as_millis()).max(2) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(steps: u64) -> Standing {
        Standing { steps, waits_for: Some(format!("{steps}")) }
    }

    fn watch() -> Watch {
        let mut watch = Watch::new(3);
        watch.set_patience(3 * HEARTBEAT);
        watch
    }

    /// A heartbeat of each process; what is noticed.
    fn round(watch: &mut Watch, all: &[Standing; 3]) -> Option<String> {
        let first = watch.note(1, all[1].clone(), all[0].clone());
        first.or_else(|| watch.note(2, all[2].clone(), all[0].clone()))
    }

    #[test]
    fn a_query_in_which_nothing_happens_is_stuck() {
        let (mut watch, all) = (watch(), [waiting(5), waiting(6), waiting(7)]);
        let noticed = (0..10).find_map(|_| round(&mut watch, &all)).unwrap();
        let expected = "process 0 waits for 5; process 1 waits for 6; process 2 waits for 7";
        assert_eq!(noticed, expected);
    }

    #[test]
    fn it_is_not_while_one_gets_on_or_waits_for_something_else() {
        for process in 0..3 {
            let (mut slow, mut busy) = (watch(), watch());
            let mut all = [waiting(5), waiting(6), waiting(7)];
            for _ in 0..10 {
                all[process].steps += 1;
                assert_eq!(round(&mut busy, &all), None);
            }
            // A source, a reader, a long step.
            all[process].waits_for = None;
            assert!((0..10).all(|_| round(&mut slow, &all).is_none()));
            // Only from then on time passes.
            all[process].waits_for = Some("all".into());
            assert_eq!(round(&mut slow, &all), None);
            assert_eq!(round(&mut slow, &all), None);
            assert!((0..3).any(|_| round(&mut slow, &all).is_some()));
        }
    }

    #[test]
    fn a_query_begins_anew() {
        let (mut watch, all) = (watch(), [waiting(0), waiting(0), waiting(0)]);
        round(&mut watch, &all);
        round(&mut watch, &all);
        round(&mut watch, &all);
        watch.forget();
        assert_eq!(round(&mut watch, &all), None);
    }
}
