//! Tests of several splits at once. Each has its own watermark, decides alone which of its records
//! are late, ends at any time, or falls idle. All run in simulation, against a sequential oracle.

use std::sync::Arc;

use crate::support::script::{Script, Scripted, batches_of};
use crate::support::*;
use millstream_contract::Settings;
use millstream_engine::Stats;

/// A split's records: event time from `start_ms` in steps of up to `step_ms`, disordered by up to
/// `behind_ms`, now and then by far more.
fn split(
    random: &mut Random,
    count: u64,
    start_ms: i64,
    step_ms: u64,
    behind_ms: u64,
) -> Vec<Record> {
    let mut now = start_ms;
    (0..count)
        .map(|_| {
            now += random.below(step_ms + 1) as i64;
            let far = if random.below(12) == 0 { random.below(6_000) } else { 0 };
            let ts = now - random.below(behind_ms + 1) as i64 - far as i64;
            Record {
                ts_ms: (random.below(60) > 0).then_some(ts),
                key: (random.below(30) > 0).then(|| random.below(50) as i64),
                name: format!("name-{}", random.below(2)),
                amount: (random.below(5) > 0).then(|| random.below(1000) as i64 - 500),
                price: random.below(100_000) as f64 / 100.0,
            }
        })
        .collect()
}

/// `records` in batches, one every `pace_us`.
fn paced(records: &[Record], random: &mut Random, pace_us: i64) -> Script {
    let batches = batches_of(records, random, 25).into_iter().enumerate();
    Script { batches: batches.map(|(i, batch)| (i as i64 * pace_us, batch)).collect() }
}

fn settings(random: &mut Random, seed: u64, lateness_ms: i64) -> Settings {
    Settings {
        workers: 1 + random.below(5) as usize,
        simulate: Some(seed),
        epoch_bytes: [1, 3000, 64 << 20][random.below(3) as usize],
        allowed_lateness_us: lateness_ms * 1000,
        ..Settings::default()
    }
}

/// Splits that start at different event times, are of different length (none at all, one record)
/// and of different speed, some of which end long before the others.
#[test]
fn every_split_judges_its_own_records() {
    let (mut sum, mut own_judgement) = (Stats::default(), 0);
    for seed in 0..600u64 {
        let mut random = Random::new(seed + 77);
        let window_ms = [300, 1000, 20_000][random.below(3) as usize];
        let delay_ms = [0, 200, 1500][random.below(3) as usize];
        let lateness_ms = [0, 0, 900][random.below(3) as usize];
        let data: Vec<Vec<Record>> = (0..2 + random.below(4))
            .map(|_| {
                let count = [0, 1, 30, 300, 600][random.below(5) as usize];
                let start = random.below(20_000) as i64 - 10_000;
                let step = 1 + random.below(40);
                split(&mut random, count, start, step, delay_ms as u64)
            })
            .collect();
        let scripts = data
            .iter()
            .map(|records| {
                let pace_us = [0, 20, 5_000][random.below(3) as usize];
                paced(records, &mut random, pace_us)
            })
            .collect();
        let source = Arc::new(Scripted::new(scripts, delay_ms));
        let settings = settings(&mut random, seed, lateness_ms);
        let (expected, late, null_time) =
            oracle(&data, Some(window_ms), delay_ms * 1000, lateness_ms);
        let (stats, rows) = run(&query(source, Some(window_ms), delay_ms * 1000), &settings);
        let what = format!("seed {seed}, {settings:?}");
        assert_eq!(rows.unwrap_or_else(|e| panic!("{what}: {e}")), expected, "{what}");
        assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
        // What one watermark for all would have called late, in the order of the splits.
        let together = [data.concat()];
        let (_, late_together, _) =
            oracle(&together, Some(window_ms), delay_ms * 1000, lateness_ms);
        own_judgement += u64::from(late_together != late);
        sum.late_records += stats.late_records;
        sum.epochs += stats.epochs;
        sum.windows_fired_early += stats.windows_fired_early;
        sum.merges += stats.merges;
        sum.batches_stolen += stats.batches_stolen;
    }
    assert!(
        own_judgement > 200,
        "{own_judgement} cases tell a split's own watermark from a shared one"
    );
    assert!(sum.late_records > 1000 && sum.epochs > 10_000 && sum.merges > 1000, "{sum:?}");
    assert!(sum.windows_fired_early > 1000 && sum.batches_stolen > 1000, "{sum:?}");
}

/// A split that never brings anything holds nobody back after its timeout, whether or not it ends;
/// and the result is that of the others alone.
#[test]
fn a_silent_split_changes_nothing() {
    for seed in 0..100u64 {
        let mut random = Random::new(seed + 5);
        let data = [split(&mut random, 400, 0, 40, 100), split(&mut random, 100, 3000, 40, 100)];
        let mut scripts: Vec<Script> =
            data.iter().map(|records| paced(records, &mut random, 50_000)).collect();
        // It ends after an hour, without a record.
        let nothing = batches_of(&data[0][..1], &mut random, 1)[0].slice(0, 0);
        scripts.insert(seed as usize % 3, Script { batches: vec![(3_600_000_000, nothing)] });
        let mut query = query(Arc::new(Scripted::new(scripts, 100)), Some(500), 100_000);
        event_time(&mut query).idle_timeout_us = Some(60_000);
        let settings = settings(&mut random, seed, 0);
        let (expected, late, _) = oracle(&data, Some(500), 100_000, 0);
        let (stats, rows) = run(&query, &settings);
        assert_eq!(rows.unwrap(), expected, "seed {seed}");
        assert_eq!(stats.late_records, late, "seed {seed}");
        assert!(late > 0 && stats.windows_fired_early > 0, "seed {seed}: {stats:?}");
        // Without waiting for the hour to pass: the last windows need the end, the others do not.
        assert!(stats.windows_fired_early > stats.windows / 2, "seed {seed}: {stats:?}");
    }
}

/// A split that comes back from being idle goes on at the watermark that the others have reached
/// meanwhile: what is older is late, also with allowed lateness, and counted; what is not, counts.
#[test]
fn a_split_resumes_where_the_others_have_got_to() {
    for seed in 0..200u64 {
        let mut random = Random::new(seed + 11);
        let lateness_ms = [0, 700][seed as usize % 2];
        let steady = split(&mut random, 300, 0, 40, 0);
        let mut tardy = split(&mut random, 20, 0, 40, 0);
        let before = tardy.len();
        let reached = steady.iter().filter_map(|r| r.ts_ms).max().unwrap();
        // Its later records lie around where the steady one has got to by then.
        tardy.extend(split(&mut random, 60, reached - 3000, 100, 500));
        let mut scripts =
            vec![paced(&steady, &mut random, 20_000), paced(&tardy[..before], &mut random, 0)];
        let hour_us = 3_600_000_000;
        let later = batches_of(&tardy[before..], &mut random, 25);
        scripts[1].batches.extend(later.into_iter().map(|batch| (hour_us, batch)));
        let mut query = query(Arc::new(Scripted::new(scripts, 0)), Some(1000), 0);
        event_time(&mut query).idle_timeout_us = Some(1_000_000);
        let settings = settings(&mut random, seed, lateness_ms);
        let data = [steady, tardy];
        let resumed = |s, i| if s == 1 && i >= before { reached * 1000 } else { i64::MIN };
        let (expected, late, _) = oracle_of_resumed(&data, Some(1000), 0, lateness_ms, resumed);
        let (stats, rows) = run(&query, &settings);
        assert_eq!(rows.unwrap(), expected, "seed {seed}");
        assert_eq!(stats.late_records, late, "seed {seed}");
        let (_, late_otherwise, _) = oracle(&data, Some(1000), 0, lateness_ms);
        assert!(late > late_otherwise, "seed {seed}: the others' progress must matter");
    }
}

/// Of a hundred splits that all cover the same minute, with one record in a millisecond or one in
/// a hundred, none runs ahead of the others: what is open at once is a few windows of the sixty.
#[test]
fn of_a_hundred_splits_none_runs_ahead() {
    let mut random = Random::new(11);
    let step_ms = |split: usize| 1 + (split * 37 % 100) as i64;
    let records_of = |split: usize| -> Vec<Record> {
        let times = (0..60_000).step_by(step_ms(split) as usize);
        let record = |(i, ts): (usize, i64)| Record {
            ts_ms: Some(ts),
            key: Some((split * 100_000 + i) as i64),
            name: String::from("n"),
            amount: Some(1),
            price: 1.0,
        };
        times.enumerate().map(record).collect()
    };
    let data: Vec<Vec<Record>> = (0..100).map(records_of).collect();
    let source = table(&data, &mut random, 50);
    for workers in [1, 3] {
        let settings = Settings { workers, ..Settings::default() };
        let peak = |window_ms| {
            let (stats, rows) = run(&query(source.clone(), window_ms, 0), &settings);
            let records: usize = data.iter().map(Vec::len).sum();
            assert_eq!((rows.unwrap().len(), stats.late_records), (records, 0));
            stats.state_live_bytes_at_peak
        };
        let (windows, all) = (peak(Some(1_000)), peak(None));
        assert!(windows * 6 < all, "{workers} workers: {windows} of {all} bytes");
    }
}
