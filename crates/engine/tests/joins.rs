//! Joins in one process: the rows that looking at every pair gives, of any kind, window, number of
//! workers and epochs. `MILLSTREAM_SEEDS=100000` runs more simulated jobs, `MILLSTREAM_SEED=7` just
//! the one.

use crate::support::joins::Case;
use crate::support::{Random, drawn_settings, happened, repeat, run, run_seeds, same_rows};
use millstream_contract::plan::JoinKind;
use millstream_contract::{Error, Settings};
use millstream_engine::Stats;

/// One seed's job: everything about it follows from the seed.
fn simulate(seed: u64) -> Stats {
    let mut random = Random::new(seed ^ 0x101e_0000);
    let case = Case::any(&mut random);
    let drawn = drawn_settings(&mut random, 4, case.lateness_ms);
    let settings = Settings { simulate: Some(seed), ..drawn };
    let what = format!("seed {seed}: {case:?} {settings:?}\n{}", repeat(seed, "joins"));
    let (expected, late, null_time) = case.expected();
    let (stats, rows) = run(&case.plan(), &settings);
    let mut rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    rows.sort();
    same_rows(&rows, &expected, &what);
    assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
    stats
}

#[test]
fn simulated_joins_agree_with_looking_at_every_pair() {
    let (seeds, sum) = run_seeds(200, simulate);
    happened(
        seeds,
        &[
            ("late records", sum.late_records),
            ("records without a time", sum.null_time_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("rows to other leaders", sum.rows_shipped),
            ("rows", sum.rows),
        ],
    );
}

/// The same on threads; and all kinds come.
#[test]
fn joins_on_threads_agree_with_looking_at_every_pair() {
    let mut random = Random::new(815);
    let mut kinds = Vec::<JoinKind>::new();
    for round in 0..60 {
        let case = Case::any(&mut random);
        let (expected, ..) = case.expected();
        for workers in [1, 3] {
            let settings = Settings {
                workers,
                epoch_bytes: 1000,
                allowed_lateness_us: case.lateness_ms * 1000,
                ..Settings::default()
            };
            let (_, rows) = run(&case.plan(), &settings);
            let mut rows = rows.unwrap();
            rows.sort();
            same_rows(&rows, &expected, &format!("round {round}: {case:?} {settings:?}"));
        }
        if !expected.is_empty() && !kinds.contains(&case.kind) {
            kinds.push(case.kind);
        }
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}

/// Where the rows of one side go to all leaders, they alone do, and no row of the other side moves.
#[test]
fn where_a_side_is_broadcast_the_other_one_stays() {
    let mut random = Random::new(4711);
    let mut moved = 0;
    for round in 0..250 {
        let case = Case::any(&mut random);
        let Some(few) = case.broadcast_rows() else { continue };
        let settings = Settings {
            workers: 3,
            epoch_bytes: 1000,
            allowed_lateness_us: case.lateness_ms * 1000,
            ..Settings::default()
        };
        let (stats, rows) = run(&case.plan(), &settings);
        let what = format!("round {round}: {case:?}");
        let mut rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
        rows.sort();
        same_rows(&rows, &case.expected().0, &what);
        // Each goes to two others.
        assert_eq!(stats.fragment_rows_in, 2 * few, "{what}");
        moved += few;
    }
    assert!(moved > 500, "{moved}");
}

/// A job that has enough memory for its largest window yields all its rows; any other ends with the
/// budget's error, and never waits for ever.
#[test]
fn scarce_memory_ends_a_join_or_changes_nothing() {
    let (mut through, mut refused) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed ^ 0x3e6d_0000);
        let case = Case::any(&mut random);
        let settings = Settings {
            workers: 1 + random.below(4) as usize,
            simulate: Some(seed),
            epoch_bytes: [1, 1000, 64 << 20][random.below(3) as usize],
            allowed_lateness_us: case.lateness_ms * 1000,
            memory_bytes: [10_000, 30_000, 100_000, 1_000_000][(seed % 4) as usize],
            ..Settings::default()
        };
        let what = format!("seed {seed}: {case:?} {settings:?}");
        let (_, rows) = run(&case.plan(), &settings);
        match rows {
            Ok(mut rows) => {
                rows.sort();
                same_rows(&rows, &case.expected().0, &what);
                through += 1;
            }
            Err(Error::Memory { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(through > 40 && refused > 5, "{through} {refused}");
}
