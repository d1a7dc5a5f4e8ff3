//! Tests of the benchmark's queries through SQL. The data are perturbed, so that no answer can be
//! known in advance, and the oracle shares no code with the engine. Some have several splits, each
//! with late records of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, TimestampMillisecondType};
use millstream::{CollectSink, MemoryTable, RowOrder, Session, Stats, Table};
use millstream_state::{hash_word, partition_of};
use millstream_workloads::{Spec, Verifier, Workload, generate, oracle, schema, sql};

/// Runs `text` over one table with event time `ts`.
fn run(
    table: (&str, Arc<dyn Table>, i64),
    text: &str,
    settings: &[(&str, &str)],
) -> (Stats, Vec<RecordBatch>) {
    let mut session = Session::new(".");
    let (name, source, delay_us) = table;
    session.register_table(name, source, Some(("ts", delay_us))).expect("the table is new");
    for (key, value) in settings {
        session.set(key, value).expect("there is such a setting");
    }
    let sink = Arc::new(CollectSink::new(RowOrder::Deterministic));
    let stats = session.run(text, sink.clone()).unwrap_or_else(|e| panic!("{text}: {e}"));
    (stats, sink.take())
}

/// Everything that a spec can differ in from the published workload, one at a time and together.
fn perturbed(workload: Workload) -> Vec<Spec> {
    // Of whole rows all pairs are kept.
    let (records, many) = match workload {
        Workload::Nb8Rows => (1_501, 300_007),
        Workload::Nb11 => (1_001, 30_001),
        _ => (12_011, 200_003),
    };
    let base = Spec { records, ..Spec::new(workload) };
    vec![
        Spec { records: many, keys: workload.keys().map(|n| n + 1), ..base.clone() },
        Spec { event_modulus: 7, ..base.clone() },
        Spec { event_modulus: 1, ..base.clone() },
        Spec { keys: Some(1), ..base.clone() },
        Spec { keys: Some(977), window_ms: 7_001, ..base.clone() },
        Spec { window_ms: 1_000 + base.window_ms / 3, ..base.clone() },
        Spec { seed: 4711, span_ms: base.span_ms * 2 + 1, ..base.clone() },
        Spec { records: 4_097, seed: 99, keys: Some(3), event_modulus: 2, ..base.clone() },
        Spec { records: 1, ..base.clone() },
        Spec { zipf: "2".parse().ok(), keys: Some(100_000), ..base.clone() },
    ]
}

#[test]
fn perturbed_workloads_have_the_oracles_answer() {
    let layouts: [(usize, &[(&str, &str)]); 5] = [
        (1, &[("workers", "1")]),
        (3, &[("workers", "2"), ("epoch.bytes", "64KB")]),
        (5, &[("workers", "4"), ("batch.rows", "700"), ("fragment.mode", "pass-through")]),
        (2, &[("workers", "3"), ("batch.rows", "999"), ("simulate", "11")]),
        (1, &[("workers", "2"), ("epoch.bytes", "1"), ("fragment.mode", "aggregate")]),
    ];
    let mut layouts = layouts.iter().cycle();
    for workload in Workload::ALL {
        for spec in perturbed(workload) {
            let right = oracle(&spec);
            let (splits, settings) = *layouts.next().expect("they go round");
            let batches = generate(&spec, splits, 1_000);
            let source = MemoryTable::new(schema(workload), batches).expect("its own schema");
            let source: Arc<dyn Table> = Arc::new(source);
            let delay_us = spec.watermark_delay_ms() as i64 * 1_000;
            let table = (workload.name(), source, delay_us);
            let (stats, rows) = run(table, &sql(&spec), settings);
            let mut verifier = Verifier::new(&spec);
            rows.iter().for_each(|batch| verifier.add_batch(batch).expect("an answer"));
            let what = format!("{spec:?}, {splits} splits, {settings:?}");
            assert_eq!(verifier.answer(), right, "{what}");
            assert_eq!((stats.records, stats.late_records), (spec.records, 0), "{what}");
        }
        // The next workload has each spec with another layout.
        layouts.next();
    }
}

/// Runs `text` over `nb11`; its columns of numbers, row by row, sorted. No batch is large.
fn numbers_of_nb11(
    spec: &Spec,
    text: &str,
    splits: usize,
    settings: &[(&str, &str)],
) -> Vec<Vec<i64>> {
    let mut session = Session::new(".");
    let table = MemoryTable::new(schema(spec.workload), generate(spec, splits, 1_000));
    let table = Arc::new(table.expect("its own schema"));
    session.register_table("nb11", table, Some(("ts", 0))).expect("the table is new");
    for (key, value) in settings {
        session.set(key, value).expect("there is such a setting");
    }
    let sink = Arc::new(CollectSink::new(RowOrder::Any));
    let stats = session.run(text, sink.clone()).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!((stats.records, stats.late_records), (spec.records, 0), "{text}");
    let mut rows = Vec::new();
    for batch in sink.take() {
        assert!(batch.num_rows() <= 8192, "{} rows: {text}", batch.num_rows());
        let columns: Vec<_> =
            batch.columns().iter().map(|column| column.as_primitive::<Int64Type>()).collect();
        let row = |row: usize| columns.iter().map(|column| column.value(row)).collect();
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows.sort();
    rows
}

/// The records of a session that has more of them than are decoded at a time, and their pairs,
/// whichever side has many.
#[test]
fn a_long_session_comes_in_portions() {
    const RECORDS: i64 = 20_000;
    // A record every millisecond.
    let spec = Spec {
        records: RECORDS as u64,
        keys: Some(1),
        span_ms: RECORDS as u64,
        ..Spec::new(Workload::Nb11)
    };
    let session =
        "TABLE(SESSION(TABLE nb11 PARTITION BY key, DESCRIPTOR(ts), INTERVAL '1' SECOND))";
    // One record in five is a seller.
    let few = "event_type = 0 AND id % 5000 = 0";
    let many = "event_type = 1 AND CHAR_LENGTH(data) = 4";
    let is_few = |id: &i64| id % 5_000 == 0;
    let pairs = |few_first: bool| {
        let few = (0..RECORDS).filter(is_few);
        let of = move |few: i64| {
            let many = (0..RECORDS).filter(|id| id % 5 != 0);
            many.map(move |many| if few_first { vec![few, many] } else { vec![many, few] })
        };
        let mut pairs: Vec<_> = few.flat_map(of).collect();
        pairs.sort();
        pairs
    };
    for (splits, settings) in [
        (1, &[("workers", "1")][..]),
        (2, &[("workers", "2"), ("epoch.bytes", "64KB")]),
        (1, &[("workers", "2"), ("simulate", "5")]),
    ] {
        let numbers = |text: &str| numbers_of_nb11(&spec, text, splits, settings);
        let all: Vec<Vec<i64>> = (0..RECORDS).map(|id| vec![id]).collect();
        assert!(numbers(&format!("SELECT id FROM {session}")) == all, "{settings:?}");
        for (left, right, few_first) in [(few, many, true), (many, few, false)] {
            let text = format!(
                "SELECT a.id AS a, b.id AS b FROM (SELECT * FROM {session} WHERE {left}) AS a
                 JOIN (SELECT * FROM {session} WHERE {right}) AS b
                 ON a.key = b.key AND a.window_start = b.window_start AND a.window_end = b.window_end"
            );
            assert!(numbers(&text) == pairs(few_first), "{settings:?} {text}");
        }
    }
}

/// Window starts (ms) and keys with their counts.
type Counts = BTreeMap<(i64, String), i64>;

/// Record by record, each split by itself: the answer, and how many records are late.
fn sequential(splits: &[Vec<RecordBatch>], delay_ms: i64, window_ms: i64) -> (Counts, u64) {
    let (mut counts, mut late) = (Counts::new(), 0);
    for split in splits {
        let mut watermark = i64::MIN;
        for batch in split {
            let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
            let events = batch.column(2).as_primitive::<Int32Type>();
            for row in 0..batch.num_rows() {
                let (ts, before) = (times.value(row), watermark);
                watermark = watermark.max(ts - delay_ms);
                if events.value(row) != 0 {
                    continue;
                }
                let start = ts.div_euclid(window_ms) * window_ms;
                if start + window_ms <= before {
                    late += 1;
                } else {
                    let key = batch.column(1).as_string::<i32>().value(row);
                    *counts.entry((start, key.to_string())).or_default() += 1;
                }
            }
        }
    }
    (counts, late)
}

fn counts_of(rows: &[RecordBatch]) -> Counts {
    let mut counts = Counts::new();
    for batch in rows {
        let starts = batch.column(0).as_primitive::<TimestampMillisecondType>();
        let keys = batch.column(1).as_string::<i32>();
        let values = batch.column(2).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let key = (starts.value(row), keys.value(row).to_string());
            assert!(counts.insert(key, values.value(row)).is_none(), "a group has two rows");
        }
    }
    counts
}

/// Or a skewed workload would measure which hot keys happen to have the same leader.
#[test]
fn hot_keys_do_not_share_a_partition() {
    for workload in [Workload::Ysb, Workload::YsbSmall, Workload::Nb7, Workload::Cm] {
        let zipf = "1.2".parse().ok();
        let spec = Spec { records: 200_000, zipf, ..Spec::new(workload) };
        let mut counts = BTreeMap::<i64, u32>::new();
        for batch in generate(&spec, 1, 4096).concat() {
            for key in batch.column(1).as_primitive::<Int64Type>().values() {
                *counts.entry(*key).or_default() += 1;
            }
        }
        let mut hottest: Vec<(u32, i64)> = counts.iter().map(|(key, n)| (*n, *key)).collect();
        hottest.sort_unstable();
        let hashes = hottest.iter().rev().take(8).map(|(_, key)| hash_word(*key as u64));
        let partitions: BTreeSet<usize> = hashes.map(partition_of).collect();
        assert_eq!(partitions.len(), 8, "{workload:?}: {partitions:?}");
    }
}

/// Three splits of different length: one ends early, one begins where the first has long been.
/// Their records are out of order by more than the watermark allows for.
#[test]
fn splits_are_late_each_by_itself_through_sql() {
    let (delay_ms, window_ms) = (500, 700);
    let (records, span_ms, keys) = (60_000, 60_000, Some(50));
    let spec = Spec { records, span_ms, keys, window_ms, ..Spec::new(Workload::YsbStr) };
    let mut splits = generate(&spec, 3, 250);
    splits[1].truncate(20);
    splits[2].drain(..50);
    let (expected, late) = sequential(&splits, delay_ms, window_ms as i64);
    assert!(late > 50, "{late} late records");
    let one = sequential(&[splits.concat()], delay_ms, window_ms as i64);
    assert_ne!(one.1, late, "one watermark for all would do as well");
    for workers in ["1", "2", "4"] {
        for more in [("epoch.bytes", "1"), ("epoch.bytes", "64MB"), ("simulate", "5")] {
            let source = MemoryTable::new(schema(spec.workload), splits.clone()).expect("fits");
            let settings = [("workers", workers), ("batch.rows", "100"), more];
            let table = ("ysb_str", Arc::new(source) as Arc<dyn Table>, delay_ms * 1_000);
            let (stats, rows) = run(table, &sql(&spec), &settings);
            assert!(counts_of(&rows) == expected, "{settings:?}: other rows");
            assert_eq!(stats.late_records, late, "{settings:?}");
            // One worker, and a simulation, do the same every time.
            if workers == "1" || more.0 == "simulate" {
                assert!(stats.windows_fired_early > 0 && stats.epochs > 10, "{stats:?}");
            }
        }
    }
}
