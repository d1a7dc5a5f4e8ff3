//! Tests of the benchmark's queries through SQL. The data are perturbed, so that no answer can be
//! known in advance, and the oracle shares no code with the engine. Some have several splits, each
//! with late records of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, TimestampMillisecondType};
use millstream::{CollectSink, GeneratorTable, MemoryTable, RowOrder, Session, Stats, Table};
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
        Workload::Nb8Rows => (3_001, 1_000_003),
        Workload::Nb11 => (2_001, 60_001),
        _ => (30_011, 1_000_003),
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
    for workload in Workload::ALL {
        let mut layouts = layouts.iter().cycle();
        for spec in perturbed(workload) {
            let right = oracle(&spec);
            for in_memory in [true, false] {
                let (splits, settings) = *layouts.next().expect("they go round");
                let source: Arc<dyn Table> = if in_memory {
                    let batches = generate(&spec, splits, 1_000);
                    Arc::new(MemoryTable::new(schema(workload), batches).expect("its own schema"))
                } else {
                    Arc::new(GeneratorTable::new(spec.clone(), splits))
                };
                let delay_us = spec.watermark_delay_ms() as i64 * 1_000;
                let table = (workload.name(), source, delay_us);
                let (stats, rows) = run(table, &sql(&spec), settings);
                let mut verifier = Verifier::new(&spec);
                rows.iter().for_each(|batch| verifier.add_batch(batch).expect("an answer"));
                let what = format!("{spec:?}, {splits} splits, {settings:?}");
                assert_eq!(verifier.answer(), right, "{what}");
                assert_eq!((stats.records, stats.late_records), (spec.records, 0), "{what}");
            }
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
