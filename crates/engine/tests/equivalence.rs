//! Tests of P2 on the engine alone: the same rows as a sequential run, whatever the workers, the
//! epochs, the mode of fragments and the order in which batches are taken. Simulated runs draw all
//! of these from a seed. `MILLSTREAM_SEEDS=100000` runs more seeds, `MILLSTREAM_SEED=7` only that
//! one.

use std::collections::BTreeSet;

use crate::support::*;
use millstream_contract::Settings;
use millstream_contract::expr::Expr;
use millstream_contract::plan::Plan;
use millstream_contract::settings::FragmentMode;
use millstream_engine::Stats;

/// One seed's job: everything about it follows from the seed.
fn simulate(seed: u64) -> Stats {
    let mut random = Random::new(seed);
    let splits = 1 + random.below(4) as usize;
    let per_split = [0, 1, 40, 400, 900][random.below(5) as usize];
    let keys = [1, 5, 60, 100_000][random.below(4) as usize];
    let data = records(&mut random, splits, per_split, keys);
    let window = [None, Some(50), Some(1000), Some(100_000)][random.below(4) as usize];
    // Also such that the watermark is just short of a window's end.
    let delay_us = [0, 1, 100_000, 4_999_999][random.below(4) as usize];
    let lateness = [0, 0, 700][random.below(3) as usize];
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let source = table(&data, &mut random, batch_rows);
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 5, lateness) };
    let (expected, late, null_time) = oracle(&data, window, delay_us, lateness);
    let plan = packed(query(source, window, delay_us), seed);
    let (stats, rows) = run(&plan, &settings);
    let what = format!("seed {seed}: {settings:?}\n{}", repeat(seed, "equivalence"));
    let rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    same_rows(&rows, &expected, &what);
    assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
    assert_eq!(stats.records, (splits * per_split) as u64, "{what}");
    let starts: BTreeSet<&str> = rows.iter().filter_map(|row| row.split('|').next()).collect();
    assert_eq!(stats.windows, window.map_or(0, |_| starts.len()) as u64, "{what}");
    stats
}

#[test]
fn simulated_jobs_agree_with_a_sequential_run() {
    let (seeds, sum) = run_seeds(500, simulate);
    happened(
        seeds,
        &[
            ("epochs", sum.epochs),
            ("late records", sum.late_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("merges", sum.merges),
            ("stolen batches", sum.batches_stolen),
            ("credit stalls", sum.credit_stalls),
            ("index growths", sum.index_growths),
            ("empty epochs", sum.empty_epochs),
            ("rows that went into joint tables", sum.joint_rows_in),
        ],
    );
}

#[test]
fn threads_agree_with_a_sequential_run() {
    let mut random = Random::new(4711);
    let data = records(&mut random, 3, 20_000, 100_000);
    let source = table(&data, &mut random, 500);
    let (expected, ..) = oracle(&data, Some(10_000), 100_000, 0);
    let (mut outputs, mut fired_early) = (Vec::new(), 0);
    for workers in [1, 2, 4] {
        for epoch_bytes in [1, 64 << 20] {
            let settings = Settings { workers, epoch_bytes, ..Settings::default() };
            let (stats, rows) = run(&query(source.clone(), Some(10_000), 100_000), &settings);
            let rows = rows.unwrap();
            same_rows(&rows, &expected, &format!("{settings:?}"));
            assert!(stats.epochs > 0, "{stats:?}");
            fired_early += stats.windows_fired_early;
            outputs.push(rows);
        }
    }
    // How many depends on how threads are scheduled; one worker alone always fires on the way.
    assert!(fired_early > 0, "no window fired while there was input");
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "not the same bytes");
}

#[test]
fn fragments_change_their_mode() {
    let mut random = Random::new(5);
    // Unique keys first, few keys later.
    let mut data = records(&mut random, 2, 200_000, 1 << 30);
    for split in &mut data {
        for (i, record) in split.iter_mut().enumerate() {
            record.name = String::from("x");
            if i > 30_000 {
                record.key = Some(i as i64 % 10);
            }
        }
    }
    let source = table(&data, &mut random, 1000);
    let (expected, ..) = oracle(&data, None, 0, 0);
    // Simulated, so that which worker takes which batch does not depend on the machine.
    let settings = Settings { workers: 2, simulate: Some(1), ..Settings::default() };
    let (stats, rows) = run(&query(source, None, 0), &settings);
    same_rows(&rows.unwrap(), &expected, "mode switches");
    // Tables are joint, then rows are passed through; then they are aggregated, and tables joint.
    assert!(stats.mode_switches >= 1 && stats.fragment_rows_in > 25_000, "{stats:?}");
    assert!(stats.joint_rows_in > 10_000, "{stats:?}");
}

/// Few keys with texts, and the greatest texts, are counted in joint tables to the end, however
/// often these are sealed.
#[test]
fn texts_that_come_often_are_counted_in_joint_tables() {
    let mut random = Random::new(9);
    let data = records(&mut random, 3, 40_000, 20);
    let source = table(&data, &mut random, 500);
    let (expected, ..) = oracle(&data, Some(100_000), 100_000, 0);
    for workers in [2, 3] {
        // The windows are large, so that their tables are sealed some times before they fire.
        let settings = Settings { workers, epoch_bytes: 1 << 18, ..Settings::default() };
        let (stats, rows) = run(&query(source.clone(), Some(100_000), 100_000), &settings);
        same_rows(&rows.unwrap(), &expected, &format!("{workers} workers"));
        let windows = expected.len() as u64 / 60;
        assert!(stats.epochs > 2 * windows && stats.joint_rows_in > 0, "{stats:?}");
        // Apart from trials of passing rows through.
        assert!(stats.fragment_rows_in <= stats.records / 50, "all of it is joint: {stats:?}");
    }
}

/// A query by `key` alone, and what it must return
/// if all names are the same: window_start (if any), key, COUNT(*), SUM(amount), MIN(amount).
fn by_key(
    data: &[Vec<Record>],
    random: &mut Random,
    window_ms: Option<i64>,
    delay_us: i64,
) -> (Plan, Vec<String>) {
    let source = table(data, random, 4000);
    let mut query = query(source, window_ms, delay_us);
    let aggregate = aggregate(&mut query);
    aggregate.keys.truncate(1);
    aggregate.aggregates.truncate(3);
    let window: Vec<usize> = if window_ms.is_some() { vec![0, 1, 2] } else { vec![] };
    let key = window.len();
    let fired: Vec<usize> =
        window.iter().copied().chain([key, key + 2, key + 3, key + 4]).collect();
    aggregate.fired = aggregate.fired.project(&fired).unwrap().into();
    let shown: Vec<usize> = window.first().copied().into_iter().chain(key..key + 4).collect();
    let output = aggregate.fired.project(&shown).unwrap().into();
    aggregate.project = shown.into_iter().map(Expr::Column).collect();
    query.stages[0].output = output;
    // The same without the columns that were left out: name, MAX(name) and AVG(price).
    let (expected, ..) = oracle(data, window_ms, delay_us, 0);
    let first = usize::from(window_ms.is_some());
    let without = |line: &String| {
        let cells: Vec<&str> = line.split('|').collect();
        [&cells[..first + 1], &cells[first + 2..first + 5]].concat().join("|")
    };
    let expected = expected.iter().map(without).collect();
    (query, expected)
}

/// Random records that all have the same name.
fn unnamed(random: &mut Random, splits: usize, per_split: usize, keys: u64) -> Vec<Vec<Record>> {
    let mut data = records(random, splits, per_split, keys);
    data.iter_mut().flatten().for_each(|record| record.name = String::from("x"));
    data
}

/// Large segments, of mostly new keys and some that the leader knows already.
#[test]
fn large_segments_are_merged() {
    let mut random = Random::new(6);
    let data = unnamed(&mut random, 2, 100_000, 1 << 22);
    let (query, expected) = by_key(&data, &mut random, None, 0);
    for seed in 0..3 {
        let workers = 2 + seed as usize % 2;
        let settings = Settings {
            workers,
            epoch_max_idle_ms: 3_600_000,
            fragment_mode: FragmentMode::Aggregate,
            fragment_bytes: 4 << 20,
            ..Settings::default()
        };
        let (stats, rows) = run(&query, &settings);
        same_rows(&rows.unwrap(), &expected, &format!("seed {seed}"));
        assert!(stats.merges > 0, "seed {seed}: {stats:?}");
    }
}

/// Several large windows are open at a time, and tables go from fired windows to later ones: also
/// ones whose index the next window goes on in.
#[test]
fn tables_go_from_window_to_window() {
    const WINDOWS: usize = 3;
    // A record every 7 ms in each split, 120,000 in a window of both; the next window has begun by
    // the time that one fires.
    let (per_window, window_ms) = (60_000, 420_000);
    let mut random = Random::new(8);
    let data = unnamed(&mut random, 2, WINDOWS * per_window, 1 << 30);
    let (query, expected) = by_key(&data, &mut random, Some(window_ms), window_ms * 100);
    for workers in [1, 2] {
        let settings = Settings {
            workers,
            simulate: Some(4),
            fragment_mode: FragmentMode::Aggregate,
            ..Settings::default()
        };
        let (stats, rows) = run(&query, &settings);
        same_rows(&rows.unwrap(), &expected, &format!("{workers} workers"));
        assert!(stats.windows_fired_early > 1, "{workers} workers: {stats:?}");
        // Growing to full size takes nine steps. With one worker only the first window takes all of
        // them; the others are small until they go on in its index.
        assert!(workers > 1 || stats.index_growths < 4 * 9 - 6, "{stats:?}");
    }
}
