//! Sessions, on the engine alone, against a model that decides record by record whether it is late,
//! and what sessions must hold up to. Simulated runs draw everything from a seed:
//! `MILLSTREAM_SEEDS=100000` runs more seeds, `MILLSTREAM_SEED=7` only that one.

use std::sync::{Arc, Mutex};

use crate::support::script::{Script, Scripted};
use crate::support::sessions::SessionCase;
use crate::support::*;
use arrow::array::*;
use arrow::datatypes::TimestampMillisecondType;
use millstream_contract::Settings;
use millstream_contract::plan::{Session, Window};
use millstream_contract::sink::RowOrder;
use millstream_contract::table::Sharing;
use millstream_engine::{Job, Stats};

/// One seed's job with sessions.
fn simulate_sessions(seed: u64) -> Stats {
    let mut random = Random::new(seed);
    let case = SessionCase::any(&mut random);
    let drawn = drawn_settings(&mut random, 4, case.lateness_ms);
    let settings = Settings { simulate: Some(seed), ..drawn };
    let (expected, late) = case.expected();
    let (stats, rows) = run(&case.plan(&mut random), &settings);
    let what = format!("seed {seed}: {case} {settings:?}\n{}", repeat(seed, "sessions"));
    let mut rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    rows.sort();
    same_rows(&rows, &expected, &what);
    assert_eq!(stats.late_records, late, "{what}");
    stats
}

#[test]
fn simulated_sessions_agree_with_a_sequential_model() {
    let (seeds, sum) = run_seeds(220, simulate_sessions);
    happened(
        seeds,
        &[
            ("epochs", sum.epochs),
            ("late records", sum.late_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("merges", sum.merges),
        ],
    );
}

/// Sessions that fire a gap at a time come in the order in which they do that fire in quarters of
/// it, and count as many windows.
#[test]
fn simulated_order_of_sessions_does_not_tell_how_wide_slices_are() {
    let (seeds, sum) = run_seeds(110, |seed| {
        let mut random = Random::new(seed);
        let case = SessionCase::any(&mut random);
        let drawn = drawn_settings(&mut random, 4, case.lateness_ms);
        let settings = Settings { simulate: Some(seed), ..drawn };
        let partition = case.partition;
        // Slices that pack gaps, too, where they can.
        let [quarters, halves, whole, packs] =
            [(4, 1), (2, 1), (1, 1), (1, 7)].map(|(slices, packed)| {
                let mut plan = case.plan(&mut Random::new(seed));
                let Some(Window::Session(session)) = &mut aggregate(&mut plan).window else {
                    panic!("a session")
                };
                session.slices_of_gap = slices;
                aggregate(&mut plan).windows_in_slice = if partition == 2 { packed } else { 1 };
                let (stats, rows) = run(&plan, &settings);
                (rows.unwrap_or_else(|e| panic!("seed {seed}: {e}")), stats)
            });
        for (rows, stats) in [&halves, &whole, &packs] {
            let what = format!("seed {seed}: {case}\n{}", repeat(seed, "sessions"));
            assert_eq!(rows, &quarters.0, "{what}");
            assert_eq!(stats.windows, quarters.1.windows, "{what}");
        }
        whole.1
    });
    happened(seeds, &[("rows", sum.rows), ("fired while reading", sum.windows_fired_early)]);
}

/// Gaps of 48 ms, whatever part of it slices are wide. Records less than the gap, just the gap and
/// a millisecond more apart. Where the watermark of its split is at the end of a session, a record
/// before that is late, and leaves the session as it is; another split's watermark is no matter.
#[test]
fn simulated_edges_of_a_gap() {
    let begun = (1..=4).map(|key| record(1_000, key, "a"));
    // At 1,048 the session of key 4 ends.
    let others = [(1_047, 1), (1_048, 2), (1_048, 0), (1_043, 4), (1_049, 3)];
    let others = others.map(|(ts_ms, key)| record(ts_ms, key, "a"));
    let first: Vec<Record> = begun.chain(others).collect();
    let second = [record(1_000, 5, "a"), record(1_043, 5, "a"), record(1_043, 0, "a")];
    let of = |key: i64, start: i64, end: i64, count: usize| {
        let group = vec![record(start, key, "a"); count];
        let line = group_line(Some(key), "a", &group.iter().collect::<Vec<_>>());
        format!("{}|{}|{line}", time_text(start), time_text(end))
    };
    let mut expected = vec![
        of(1, 1_000, 1_095, 2),
        of(2, 1_000, 1_096, 2),
        of(3, 1_000, 1_048, 1),
        of(3, 1_049, 1_097, 1),
        of(4, 1_000, 1_048, 1),
        of(5, 1_000, 1_091, 2),
        of(0, 1_043, 1_096, 2),
    ];
    expected.sort();
    let (seeds, sum) = run_seeds(120, |seed| {
        let mut random = Random::new(seed);
        let mut script = |records: &[Record], at_us: i64| {
            let batches = script::batches_of(records, &mut random, 3).into_iter();
            Script { batches: batches.map(|batch| (at_us, batch)).collect() }
        };
        let scripts = vec![script(&first, 0), script(&second, 20_000)];
        let source = Arc::new(Scripted::new(scripts, 0).shared(Sharing::Whole));
        let mut session = Session::new(48_000, 1 + (seed % 2) as usize);
        session.slices_of_gap = [1, 3, 16][seed as usize / 2 % 3];
        let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 3, 0) };
        let plan = windowed(source, Window::Session(session), 0);
        let (stats, rows) = run(&plan, &settings);
        let what = format!("seed {seed}: {session:?} {settings:?}\n{}", repeat(seed, "sessions"));
        let mut rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
        rows.sort();
        same_rows(&rows, &expected, &what);
        assert_eq!(stats.late_records, 1, "{what}");
        stats
    });
    happened(seeds, &[("merges", sum.merges), ("epochs", sum.epochs)]);
}

/// A record of this time, key and name.
fn record(ts_ms: i64, key: i64, name: &str) -> Record {
    Record { ts_ms: Some(ts_ms), key: Some(key), name: name.into(), amount: Some(1), price: 1.0 }
}

/// Two groups of a session are further apart than the gap, and only another worker has the record
/// between them, and has it late: it is of one of the groups, or of a third. Without it, the groups
/// are of two sessions.
#[test]
fn simulated_groups_are_joined_by_a_record_that_another_worker_has() {
    const GAP_MS: i64 = 10;
    let (mut here, mut there, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for key in 0..30 {
        here.extend([record(0, key, "a"), record(15, key, "b")]);
        let bridge = ["a", "c", ""][key as usize % 3];
        if !bridge.is_empty() {
            there.push(record(8, key, bridge));
        }
        here.push(record(60, key, "a"));
        there.push(record(61, key, "z"));
        let counts: &[(&str, i64, i64, usize)] = match bridge {
            "a" => &[("a", 0, 25, 2), ("b", 0, 25, 1)],
            "c" => &[("a", 0, 25, 1), ("b", 0, 25, 1), ("c", 0, 25, 1)],
            _ => &[("a", 0, 10, 1), ("b", 15, 25, 1)],
        };
        let counts = counts.iter().chain(&[("a", 60, 71, 1), ("z", 60, 71, 1)]);
        expected.extend(counts.map(|(name, start, end, count)| {
            let of_group = record(0, key, name);
            let line = group_line(Some(key), name, &vec![&of_group; *count]);
            format!("{}|{}|{line}", time_text(*start), time_text(*end))
        }));
    }
    here.sort_by_key(|record| record.ts_ms);
    there.sort_by_key(|record| record.ts_ms);
    expected.sort();
    let window = Window::Session(Session::new(GAP_MS * 1000, 1));
    let (seeds, sum) = run_seeds(120, |seed| {
        let mut random = Random::new(seed);
        let script = |records: &[Record], at_us: i64, random: &mut Random| {
            let batches = script::batches_of(records, random, 20).into_iter();
            Script { batches: batches.map(|batch| (at_us, batch)).collect() }
        };
        let scripts = vec![script(&here, 0, &mut random), script(&there, 5_000, &mut random)];
        let source = Arc::new(Scripted::new(scripts, 0).shared(Sharing::Whole));
        let drawn = drawn_settings(&mut random, 3, 0);
        let settings = Settings { simulate: Some(seed), workers: 1 + drawn.workers, ..drawn };
        let (stats, rows) = run(&windowed(source, window, 0), &settings);
        let what = format!("seed {seed}: {settings:?}\n{}", repeat(seed, "sessions"));
        let mut rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
        rows.sort();
        same_rows(&rows, &expected, &what);
        stats
    });
    happened(seeds, &[("merges", sum.merges), ("fired while reading", sum.windows_fired_early)]);
}

/// A record each millisecond, of so many keys, each of which has its records one after the other.
fn steady(records: i64, keys: i64) -> Arc<Memory> {
    let schema = table(&[], &mut Random::new(1), 1).schema.clone();
    let batch = |first: i64| {
        let times = first..(first + 1000).min(records);
        let ts: TimestampMillisecondArray = times.clone().map(Some).collect();
        let key: Int64Array = times.clone().map(|i| Some(i * keys / records)).collect();
        let name: StringArray = times.clone().map(|_| Some("all")).collect();
        let amount: Int64Array = times.clone().map(Some).collect();
        let price: Float64Array = times.map(|_| Some(0.5)).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(ts), Arc::new(key), Arc::new(name), Arc::new(amount), Arc::new(price)];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    let splits = vec![(0..records).step_by(1000).map(batch).collect()];
    Arc::new(Memory { schema, splits, sharing: Sharing::ByChunk })
}

/// Each of a million sessions ends at a time of its own. State stays that of the few that are open,
/// and rows come in batches, whether or not groups share the sessions.
#[test]
fn a_million_session_ends() {
    const RECORDS: i64 = 1_000_000;
    let source = steady(RECORDS, RECORDS);
    for partition in [2, 1] {
        let window = Window::Session(Session::new(1_000_000, partition));
        let plan = windowed(source.clone(), window, 0);
        let settings = Settings { workers: 2, memory_bytes: 256 << 20, ..Settings::default() };
        let sink = Arc::new(Collect { order: RowOrder::Deterministic, batches: Mutex::default() });
        let (stats, result) = Job::new(&plan, &settings, vec![sink.clone()]).unwrap().run();
        result.unwrap();
        let batches = sink.batches.lock().unwrap();
        let mut next = 0;
        for batch in &*batches {
            let column = |n: usize| batch.column(n).as_primitive::<TimestampMillisecondType>();
            for (start, end) in column(0).values().iter().zip(column(1).values()) {
                assert_eq!((*start, *end), (next, next + 1000));
                next += 1;
            }
        }
        assert_eq!((next, stats.rows), (RECORDS, RECORDS as u64));
        let rows_of_batch = next as usize / batches.len();
        assert!(rows_of_batch > 50, "{rows_of_batch} rows in a batch");
        // A row of state is 100 bytes at least: all of them would take 100 MB. On a busy machine a
        // worker that is ahead holds up to half of that.
        assert!(stats.state_bytes_peak < 64 << 20, "{} bytes", stats.state_bytes_peak);
        assert!(stats.windows_fired_early > 1000, "{}", stats.windows_fired_early);
    }
}

/// What ends an epoch is that the time of a slice is over, however many sessions end then.
/// Simulated epochs also end at random: their number varies a little.
#[test]
fn epochs_do_not_grow_with_the_number_of_session_ends() {
    const RECORDS: i64 = 40_000;
    let epochs = |keys: i64, partition: usize| {
        let window = Window::Session(Session::new(1_000_000, partition));
        let plan = windowed(steady(RECORDS, keys), window, 0);
        let mut epochs = 0;
        for seed in 7..15 {
            let settings = Settings { workers: 2, simulate: Some(seed), ..Settings::default() };
            let (stats, rows) = run(&plan, &settings);
            assert_eq!(rows.unwrap().len() as i64, keys);
            assert!(stats.windows_fired_early > 0, "{}", stats.windows_fired_early);
            epochs += stats.epochs;
        }
        epochs
    };
    for partition in [2, 1] {
        let (few, many) = (epochs(20, partition), epochs(RECORDS, partition));
        assert!(many < 2 * few, "{few} epochs for 20 ends, {many} for {RECORDS}");
    }
}
