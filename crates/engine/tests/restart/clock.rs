//! Windows by the clock, of jobs that are stopped and go on while the clock jumps back and forth.
//! No record is late or lost, and no window fires twice: for a job, time does not go back.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use millstream_contract::Result;
use millstream_contract::plan::{Derived, EventTime, Plan, Watermark};
use millstream_contract::sink::RowOrder;
use millstream_engine::{Stats, Totals};

use super::kept::Kept;
use super::queries::Query;
use super::{Case, Sums, processes};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::*;

/// Windows of milliseconds by the clock, over splits that come at their own pace; and the number of
/// records.
fn by_clock(random: &mut Random) -> (Plan, u64) {
    let (splits, keys) = (1 + random.below(3) as usize, random.pick(&[1, 60]));
    let per_split = random.pick(&[40, 300]);
    let data = records(random, splits, per_split, keys);
    let script = |records: &Vec<Record>| {
        let (rows, pace_us) = (random.pick(&[1, 30]), random.pick(&[0, 200, 3_000]));
        let batches = batches_of(records, random, rows).into_iter().enumerate();
        Script { batches: batches.map(|(at, batch)| (at as i64 * pace_us, batch)).collect() }
    };
    let scripts: Vec<Script> = data.iter().map(script).collect();
    let mut plan =
        query(Arc::new(Scripted::new(scripts, 0)), random.pick(&[Some(1), Some(5), Some(50)]), 0);
    let source = &mut plan.sources[0];
    let column = source.schema.fields().len();
    let of_ms = DataType::Timestamp(TimeUnit::Millisecond, None);
    let read_at = Arc::new(Field::new("proc", of_ms, false));
    let fields = source.schema.fields().iter().cloned().chain([read_at]);
    source.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    source.derived = vec![Derived::ReadTime];
    let watermark = Watermark::Clock;
    source.event_time = Some(EventTime { column, watermark, zone: None, idle_timeout_us: None });
    (plan, data.iter().map(Vec::len).sum::<usize>() as u64)
}

/// The jobs of a seed keep their promises.
fn simulate(
    seed: u64,
    sums: &Sums,
    run: impl Fn(&Case<'_>, &mut Random) -> (Stats, Result<Totals>),
) -> Stats {
    let mut random = Random::new(seed);
    let (plan, records) = by_clock(&mut random);
    let what = format!("seed {seed}: by the clock\n{}", repeat(seed, "restart::clock"));
    let lateness_ms = random.pick(&[0, 0, 3]);
    let query = Query { plan, what, lateness_ms };
    let kept = Arc::new(Kept::of(&query, &query.what));
    let orders = vec![random.pick(&[RowOrder::Any, RowOrder::Deterministic])];
    let Query { plan, what, .. } = query;
    let case = Case { what, kept, plan, lateness_ms, orders, sums };
    let (sum, result) = run(&case, &mut random);
    let Case { what, kept, orders, .. } = case;
    let totals = result.unwrap_or_else(|e| panic!("{what}: {e}"));
    let counts = (totals.records, totals.late_records, totals.null_time_records);
    assert_eq!(counts, (records, 0, 0), "{what}");
    let rows = kept.rows().remove(0);
    let cells = |row: &String| row.split('|').map(String::from).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let counted: u64 = rows.iter().map(|row| row[3].parse::<u64>().unwrap()).sum();
    assert_eq!(counted, records, "{what}: records in windows");
    let mut groups: Vec<&[String]> = rows.iter().map(|row| &row[..3]).collect();
    if orders[0] == RowOrder::Deterministic {
        assert!(groups.is_sorted_by_key(|group| &group[0]), "{what}: windows out of order");
    }
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), rows.len(), "{what}: a window fires twice");
    sum
}

/// What must have happened.
fn check(seeds: u64, sums: &Sums, stats: &Stats) {
    let count = |sum: &std::sync::atomic::AtomicU64| sum.load(std::sync::atomic::Ordering::Relaxed);
    happened(
        seeds,
        &[
            ("cuts", count(&sums.cuts)),
            ("clocks that were put back", count(&sums.put_back)),
            ("clocks that were hours later", count(&sums.later)),
            ("windows that fired early", stats.windows_fired_early),
        ],
    );
}

#[test]
fn simulated_windows_by_the_clock_go_on_after_a_jump() {
    let sums = Sums::default();
    let run = |case: &Case<'_>, random: &mut Random| case.run(random);
    let (seeds, stats) = run_seeds(100, |seed| simulate(seed, &sums, run));
    check(seeds, &sums, &stats);
}

#[test]
fn simulated_processes_with_windows_by_the_clock_go_on_after_a_jump() {
    let sums = Sums::default();
    let run = |case: &Case<'_>, random: &mut Random| {
        let packing = random.below(1 << 30);
        processes::run(case, packing, random)
    };
    let (seeds, stats) = run_seeds(30, |seed| simulate(seed, &sums, run));
    check(seeds, &sums, &stats);
}
