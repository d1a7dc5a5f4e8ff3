//! Joins on several processes: rows of both sides come to whoever leads their key.

use millstream_contract::settings::Exchange;
use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;

use super::{described, faults, happened, run, run_all, seeds};
use crate::support::joins::Case;
use crate::support::{Random, drawn_settings};

#[derive(Default)]
struct Came {
    stats: Stats,
    failed: u64,
    survived: u64,
    exchanged: u64,
}

/// One seed's job: everything about it follows from the seed.
fn run_seed(seed: u64, with_faults: bool) -> Came {
    let mut random = Random::new(seed ^ 0x101e_0000);
    let processes = 2 + random.below(3) as usize;
    let case = Case::any(&mut random);
    let mut settings = drawn_settings(&mut random, 3, case.lateness_ms);
    let exchanges = [Exchange::LateMerge, Exchange::LateMerge, Exchange::Interleaved];
    settings.exchange = random.pick(&exchanges);
    let exchanged = u64::from(settings.exchange != Exchange::LateMerge);
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        scenario.faults = faults(&mut random, processes);
    }
    let test = if with_faults { "faults_end_a_join" } else { "joins_agree" };
    let what = format!("{case:?}\n{}", described(seed, test, &settings, &scenario));
    let (expected, late, null_time) = case.expected();
    let ran = run(&case.plan(), &settings, &scenario, RowOrder::Any);
    if with_faults && !ran.well() {
        let failed = ran.ends_with_a_fault(None, &expected, &what);
        return Came { failed, ..Came::default() };
    }
    ran.is_all(&expected, &what);
    let stats = ran.stats();
    assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
    Came { survived: u64::from(ran.survived()), failed: 0, stats, exchanged }
}

#[test]
fn joins_agree_with_looking_at_every_pair() {
    let seeds = seeds(46, &[]);
    let mut sum = Stats::default();
    let mut exchanged = 0;
    for came in run_all(&seeds, |seed| run_seed(seed, false)) {
        sum.add_process(&came.stats);
        exchanged += came.exchanged;
    }
    happened(
        &seeds,
        &[
            ("late records", sum.late_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("rows to other leaders", sum.rows_shipped),
            ("exchanged jobs", exchanged),
            ("rows", sum.rows),
        ],
    );
}

#[test]
fn faults_end_a_join_or_change_nothing() {
    let seeds = seeds(30, &[]);
    let (mut failed, mut survived) = (0, 0);
    for came in run_all(&seeds, |seed| run_seed(seed, true)) {
        (failed, survived) = (failed + came.failed, survived + came.survived);
    }
    happened(&seeds, &[("faults that end a job", failed), ("faults survived", survived)]);
}
