//! Sessions on several processes, of all keys, of the first of two, and of all records together:
//! whoever leads a session has all of its records, wherever they were read.

use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;

use super::{described, faults, happened, run, run_all, seeds};
use crate::support::sessions::SessionCase;
use crate::support::{Random, drawn_settings};

/// One seed's job: everything about it follows from the seed. Its counters, if all processes ended
/// well, and how many of them named who is gone.
fn run_seed(seed: u64, with_faults: bool) -> (Stats, u64) {
    let mut random = Random::new(seed ^ 0x5e55_0000);
    let processes = 2 + random.below(3) as usize;
    let case = SessionCase::any(&mut random);
    let settings = drawn_settings(&mut random, 3, case.lateness_ms);
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        scenario.faults = faults(&mut random, processes);
    }
    let test = if with_faults { "faults_end_sessions" } else { "sessions_agree" };
    let what = format!("{case}\n{}", described(seed, test, &settings, &scenario));
    let (expected, late) = case.expected();
    let ran = run(&case.plan(&mut random), &settings, &scenario, RowOrder::Any);
    if with_faults && !ran.well() {
        return (Stats::default(), ran.ends_with_a_fault(None, &expected, &what));
    }
    ran.is_all(&expected, &what);
    let (stats, records) = (ran.stats(), case.data.iter().map(Vec::len).sum::<usize>() as u64);
    assert_eq!((stats.records, stats.late_records), (records, late), "{what}");
    (stats, 0)
}

fn sum(seeds: &[u64], with_faults: bool) -> (Stats, u64) {
    let ran = run_all(seeds, |seed| run_seed(seed, with_faults));
    ran.iter().fold(Default::default(), |(mut sum, failed), (stats, of_one)| {
        Stats::add_process(&mut sum, stats);
        (sum, failed + of_one)
    })
}

#[test]
fn sessions_agree_with_a_sequential_model() {
    let seeds = seeds(23, &[]);
    let (stats, _) = sum(&seeds, false);
    happened(
        &seeds,
        &[
            ("rows sent", stats.rows_sent),
            ("rows passed through", stats.rows_passed),
            ("late records", stats.late_records),
            ("windows fired while reading", stats.windows_fired_early),
        ],
    );
}

#[test]
fn faults_end_sessions_or_do_no_harm() {
    let seeds = seeds(25, &[]);
    let (stats, failed) = sum(&seeds, true);
    happened(&seeds, &[("rows of jobs that ended well", stats.rows), ("failures", failed)]);
}
