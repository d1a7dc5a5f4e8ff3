//! Tests of P1 and of progress, in simulation, from many seeds: nothing fires early, idle splits do
//! not hold the others back, and records far ahead of the clock do not carry the watermark along.

use std::sync::{Arc, Mutex};

use crate::support::script::{Script, Scripted, batches_of};
use crate::support::watch::Watch;
use crate::support::{Memory, Random, Record, aggregate, event_time, oracle, query, table};
use arrow::array::*;
use arrow::datatypes::*;
use millstream_contract::Settings;
use millstream_contract::plan::{Plan, Tumble};
use millstream_contract::settings::{FragmentMode, MaxAhead};
use millstream_contract::table::Sharing;
use millstream_engine::{Job, Stats};

fn record(ts_ms: i64) -> Record {
    let name = "n".to_string();
    Record { ts_ms: Some(ts_ms), key: Some(ts_ms % 5), name, amount: Some(1), price: 1.0 }
}

fn run(
    scripts: Vec<Script>,
    window_ms: i64,
    delay_ms: i64,
    idle_timeout_us: Option<i64>,
    settings: &Settings,
) -> (Stats, Vec<(i64, i64)>) {
    let source = Scripted::new(scripts, delay_ms);
    let handed_out = source.handed_out.clone();
    let mut query: Plan = query(Arc::new(source), Some(window_ms), delay_ms * 1000);
    event_time(&mut query).idle_timeout_us = idle_timeout_us;
    let sink = Arc::new(Watch { handed_out, seen: Mutex::default() });
    let (stats, result) = Job::new(&query, settings, vec![sink.clone()]).unwrap().run();
    result.unwrap();
    let seen = sink.seen.lock().unwrap().clone();
    (stats, seen)
}

/// P1. A row of a window must not appear before every split has handed out a record that carries
/// its watermark past the window's end (or has ended). Splits of different speed, one of which ends
/// early.
#[test]
fn no_window_fires_early() {
    let mut early_chances = 0;
    for seed in 0..400u64 {
        let mut random = Random::new(seed + 1);
        let splits = 1 + random.below(3);
        let delay_ms = [0, 300][random.below(2) as usize];
        let scripts = (0..splits)
            .map(|_| {
                let count = [0, 5, 200, 600][random.below(4) as usize];
                let pace_us = 10 + random.below(3000) as i64;
                let records: Vec<Record> = (0..count)
                    .map(|i| record(i * 20 - random.below(delay_ms as u64 + 1) as i64 - 500))
                    .collect();
                let batches = batches_of(&records, &mut random, 30);
                let timed = batches.into_iter().enumerate();
                Script { batches: timed.map(|(i, b)| (i as i64 * pace_us, b)).collect() }
            })
            .collect();
        let settings = Settings {
            workers: 1 + random.below(4) as usize,
            simulate: Some(seed),
            epoch_bytes: [1, 64 << 20][random.below(2) as usize],
            ..Settings::default()
        };
        let (stats, seen) = run(scripts, 1000, delay_ms, None, &settings);
        for (start, least) in seen {
            assert!(
                least >= start + 1000,
                "seed {seed}: a row of window [{start}, {}) ms came while a split had only reached \
                 watermark {least}",
                start + 1000
            );
            early_chances += u64::from(least < i64::MAX);
        }
        assert_eq!(stats.late_records, 0, "seed {seed}");
    }
    assert!(early_chances > 1000, "windows must have fired while splits were open");
}

/// P1 to the microsecond: a watermark that is just short of a window's end does not complete it,
/// and one that is exactly there does.
#[test]
fn a_window_is_complete_at_its_end_and_not_before() {
    let records: Vec<Record> =
        [100, 1000, 950, 900, 1001, 950, 2000, 1999, 2001].map(record).into();
    let (expected, late, _) = oracle(std::slice::from_ref(&records), Some(1000), 1, 0);
    assert_eq!(late, 1, "950 after 1001");
    for seed in 0..200u64 {
        let mut random = Random::new(seed);
        let batches = batches_of(&records, &mut random, 1).into_iter().enumerate();
        // Time enough between two records for everything that may fire.
        let batches = batches.map(|(i, batch)| (i as i64 * 1_000_000, batch)).collect();
        let source = Scripted::new(vec![Script { batches }], 0);
        let workers = 1 + seed as usize % 3;
        let settings = Settings { workers, simulate: Some(seed), ..Settings::default() };
        let query = query(Arc::new(source), Some(1000), 1);
        let (stats, rows) = crate::support::run(&query, &settings);
        assert_eq!(rows.unwrap_or_else(|e| panic!("seed {seed}: {e}")), expected, "seed {seed}");
        assert_eq!(stats.late_records, late, "seed {seed}");
        assert!(stats.windows_fired_early > 0, "seed {seed}: {stats:?}");
        // In virtual time, a step takes a microsecond: nobody waits for a long epoch to end.
        let latency_us = stats.fire_latency_us.iter().max();
        assert!(latency_us.is_some_and(|us| *us < 1_000), "seed {seed}: {latency_us:?} us");
    }
}

/// When a window fires, what later windows have so far stays where it is: a worker ships a key's
/// row once a window, however the epochs, which end whenever a window is complete, fall between the
/// windows.
#[test]
fn a_key_is_shipped_once_a_window_if_epochs_end_only_for_windows() {
    const KEYS: i64 = 50;
    const WINDOWS: u64 = 30;
    let (mut fragment_rows, mut shipped) = (0, 0);
    for seed in 1..=8 {
        let records: Vec<Record> = (0..WINDOWS as i64 * 5_000)
            .map(|i| Record { key: Some(i % KEYS), ..record(i / 5) })
            .collect();
        let source = table(&[records], &mut Random::new(seed), 700);
        let settings = Settings {
            workers: 2,
            epoch_max_idle_ms: 3_600_000,
            fragment_mode: FragmentMode::Aggregate,
            ..Settings::default()
        };
        let (stats, rows) = crate::support::run(&query(source, Some(1000), 0), &settings);
        assert_eq!(rows.unwrap().len() as u64, WINDOWS * KEYS as u64);
        assert!(stats.rows_shipped <= WINDOWS * KEYS as u64, "seed {seed}: {stats:?}");
        fragment_rows += stats.fragment_rows_in;
        shipped += stats.rows_shipped;
    }
    assert!(fragment_rows > 10 * shipped && shipped > WINDOWS * KEYS as u64, "{shipped}");
}

/// Rows that are passed through are shipped long before their window is complete, and before the
/// epoch is over; what is aggregated stays.
#[test]
fn what_is_passed_through_does_not_wait_for_the_end_of_the_epoch() {
    for mode in [FragmentMode::PassThrough, FragmentMode::Aggregate] {
        let records: Vec<Record> =
            (0..200_000).map(|i| Record { key: Some(i % 7_000), ..record(i / 500) }).collect();
        let source = table(&[records], &mut Random::new(1), 700);
        let settings = Settings {
            workers: 2,
            epoch_max_idle_ms: 3_600_000,
            // A row has 120 bytes with what it refers to. Half of all keys are 420 kB in a
            // fragment.
            fragment_bytes: 4_000_000,
            fragment_mode: mode,
            ..Settings::default()
        };
        let (stats, rows) = crate::support::run(&query(source, Some(1_000_000), 0), &settings);
        assert_eq!(rows.unwrap().len(), 7_000);
        if mode == FragmentMode::Aggregate {
            assert!(stats.segments_shipped <= 2 && stats.epochs < 10, "{stats:?}");
        } else {
            // In parts of 125 kB, a thirty-second of that, and the batch that came last: half of
            // the 200,000 rows, each of 16 bytes and its text at least.
            assert!(stats.rows_shipped > 50_000 && stats.epochs > 10, "{stats:?}");
        }
    }
}

/// Windows are fired about as fast as they come, however many there are and whoever is held up: a
/// worker that is ahead of the others does not pile up state.
#[test]
fn many_small_windows_do_not_pile_up() {
    const WINDOWS: i64 = 8_000;
    for seed in 0..6 {
        let records: Vec<Record> = (0..WINDOWS * 5).map(|i| record(i * 200)).collect();
        let source = table(&[records], &mut Random::new(seed), 100);
        let settings = Settings { workers: 4, simulate: Some(seed), ..Settings::default() };
        let (stats, rows) = crate::support::run(&query(source, Some(1000), 0), &settings);
        assert_eq!(rows.unwrap().len() as i64, WINDOWS);
        let share = |part: u64, of: u64| 100 * part / of;
        // Each has one row, of 120 bytes with what it refers to.
        let live = share(stats.state_live_bytes_at_peak / 120, WINDOWS as u64);
        assert!(live < 40, "seed {seed}: {live}% of all windows were open at once");
        let early = share(stats.windows_fired_early, WINDOWS as u64);
        assert!(early > 60, "seed {seed}: only {early}% of all windows fired before the end");
    }
}

/// Nanoseconds are floored to microseconds: -1 ns belongs to the window that ends at 0.
#[test]
fn nanoseconds_before_the_epoch_belong_to_the_window_before_it() {
    let records: Vec<Record> = [0, 0, 0, 0].map(record).into();
    let millis = table(&[records], &mut Random::new(1), 10);
    let mut fields = millis.schema.fields().to_vec();
    let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
    fields[0] = Arc::new(Field::new("ts", nanos, true));
    let schema = Arc::new(Schema::new(fields));
    let times = TimestampNanosecondArray::from(vec![-1, -999, -1_000_000_000, 0]);
    let batch = arrow::compute::concat_batches(&millis.schema, &millis.splits[0]).unwrap();
    let mut columns = batch.columns().to_vec();
    columns[0] = Arc::new(times);
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let source = Arc::new(Memory { schema, splits: vec![vec![batch]], sharing: Sharing::Whole });
    let settings = Settings { workers: 1, ..Settings::default() };
    let (stats, rows) = crate::support::run(&query(source, Some(1000), 0), &settings);
    let rows = rows.unwrap();
    let counts: Vec<&str> = rows.iter().map(|row| row.split('|').nth(3).unwrap()).collect();
    assert_eq!((counts, stats.late_records), (vec!["3", "1"], 0), "{rows:?}");
}

/// A split without data holds the others back only until its idle timeout; its old records are late
/// when it comes back, and counted.
#[test]
fn an_idle_split_is_set_aside() {
    for seed in 0..100 {
        let mut random = Random::new(7);
        let steady: Vec<Record> = (0..500).map(|i| record(i * 20)).collect();
        let steady = batches_of(&steady, &mut random, 10);
        // A batch every 100 ms of virtual time; the other split comes after an hour.
        let steady = steady.into_iter().enumerate().map(|(i, b)| (i as i64 * 100_000, b)).collect();
        let mut tardy = batches_of(&[record(10)], &mut random, 10);
        let hour_us = 3_600_000_000;
        let tardy = vec![
            (0, tardy.remove(0)),
            (hour_us, batches_of(&[record(20)], &mut random, 10).remove(0)),
        ];
        let scripts = vec![Script { batches: steady }, Script { batches: tardy }];
        let settings = Settings { workers: 2, simulate: Some(seed), ..Settings::default() };
        let (stats, seen) = run(scripts.clone(), 1000, 0, Some(5_000_000), &settings);
        assert_eq!(stats.late_records, 1, "seed {seed}: the record that came after an hour");
        assert!(
            seen.iter().any(|(_, least)| *least < i64::MAX),
            "seed {seed}: windows fire while the other split is idle"
        );
        // Without a timeout everybody waits, and nobody is late.
        let (stats, seen) = run(scripts, 1000, 0, None, &settings);
        assert_eq!(stats.late_records, 0);
        assert!(seen.iter().all(|(start, least)| *least >= start + 1000));
    }
}

/// One record from the year 9999 must not make all that follow late.
#[test]
fn a_record_far_ahead_does_not_move_the_watermark() {
    let mut random = Random::new(3);
    let mut records: Vec<Record> = (0..300).map(|i| record(i * 20)).collect();
    let year_9999_ms = 253_370_764_800_000;
    records[10] = record(year_9999_ms);
    let batches = batches_of(&records, &mut random, 20).into_iter().map(|b| (0, b)).collect();
    let scripts = vec![Script { batches }];
    // By default what ends by itself does not look at the clock.
    for max_ahead in [MaxAhead::Unlimited, MaxAhead::Auto] {
        let believe = Settings { workers: 2, max_ahead, ..Settings::default() };
        let (stats, _) = run(scripts.clone(), 1000, 0, None, &believe);
        assert!(stats.late_records > 200, "without a limit, the others are late: {stats:?}");
    }
    let day = MaxAhead::Us(86_400_000_000);
    let doubt = Settings { workers: 2, max_ahead: day, ..Settings::default() };
    let (stats, seen) = run(scripts, 1000, 0, None, &doubt);
    assert_eq!((stats.late_records, stats.ahead_records), (0, 1));
    let first = stats.first_ahead.expect("the first is known").place;
    assert!(first.ends_with(", record 11"), "{first}");
    let last = seen.iter().map(|(start, _)| *start).max();
    assert_eq!(last, Some(year_9999_ms), "the record itself is not lost");
}

/// Windows begin at the offset, also before the epoch.
#[test]
fn an_offset_shifts_all_windows() {
    let mut random = Random::new(3);
    let records: Vec<Record> = [-1, 0, 249, 250, 1249, 1250].map(record).into();
    let source = table(&[records], &mut random, 2);
    let mut query = query(source, Some(1000), 0);
    aggregate(&mut query).window = Some(Tumble { size_us: 1_000_000, offset_us: 250_000 }.into());
    let settings = Settings { workers: 1, ..Settings::default() };
    let (_, rows) = crate::support::run(&query, &settings);
    let rows = rows.unwrap();
    let starts: Vec<&str> = rows.iter().map(|r| r.split('|').next().unwrap()).collect();
    let count = |start| starts.iter().filter(|s| **s == start).count();
    // -1, 0 and 249 are in [-750, 250); 250 and 1249 in the next; 1250 in the last. Keys: ts % 5.
    assert_eq!(count("1969-12-31T23:59:59.250"), 3);
    assert_eq!(count("1970-01-01T00:00:00.250"), 2);
    assert_eq!(count("1970-01-01T00:00:01.250"), 1);
    assert_eq!(starts.len(), 6);
}

/// A window that ends where the watermark stands has fired, also for a batch that lies in it as a
/// whole; one that ends a millisecond later has not.
#[test]
fn late_begins_at_the_very_end() {
    let mut random = Random::new(3);
    for lateness_ms in [0, 500] {
        for (reached, late) in [(999, 0), (1000, 1), (1001, 1)] {
            let records = [record(0), record(reached + lateness_ms), record(990)];
            let batches = batches_of(&records, &mut random, 1).into_iter().map(|b| (0, b));
            let scripts = vec![Script { batches: batches.collect() }];
            let settings = Settings {
                workers: 1,
                allowed_lateness_us: lateness_ms * 1000,
                ..Settings::default()
            };
            let (stats, _) = run(scripts, 1000, 0, None, &settings);
            assert_eq!(stats.late_records, late, "at {reached} and {lateness_ms} ms");
        }
    }
}
