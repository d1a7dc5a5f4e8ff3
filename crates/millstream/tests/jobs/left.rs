//! Nothing is left of a job's state after its last window: no rows, no bytes, no window that would
//! fire if time went on, nothing sealed or owed; whatever the query keeps, on one worker and on
//! several, of one process and, simulated, of two.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::pretty::pretty_format_batches;
use millstream::program::{Executed, Job, Plan, SessionControl, parse_script};
use millstream::{CollectSink, MemoryTable, RowOrder, Session, Settings, Sink, Stats};
use millstream_engine::Leftover;
use millstream_engine::simulation::{Scenario, simulate};

/// Records of a split, a hundred in each second; some come half a second late.
const RECORDS: i64 = 1_000;
const STEP_MS: i64 = 10;

/// Queries that keep state of each kind.
const QUERIES: [(&str, &str); 13] = [
    ("tumbling", "SELECT window_start, k, COUNT(*), SUM(v) FROM {TUMBLE} {GROUP}, k"),
    ("of one key", "SELECT window_start, COUNT(*), SUM(v) FROM {TUMBLE} {GROUP}"),
    ("hopping", "SELECT window_start, k, SUM(v), MAX(v) FROM {HOP} {GROUP}, k"),
    ("hopping, short", "SELECT window_start, k, SUM(v) FROM {SHORT} {GROUP}, k"),
    ("cumulating", "SELECT window_end, k, SUM(v), COUNT(*) FROM {CUMULATE} {GROUP}, k"),
    ("sessions", "SELECT window_start, window_end, k, COUNT(*) FROM {SESSION} {GROUP}, k"),
    ("sessions shared", "SELECT window_start, k, v, COUNT(*) FROM {SESSION} {GROUP}, k, v"),
    (
        "Top-N",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k \
         ORDER BY v DESC) AS rn FROM {TUMBLE}) WHERE rn <= 3",
    ),
    (
        "Top-N of groups",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER \
         BY n DESC) AS rn FROM (SELECT window_start, window_end, k, COUNT(*) AS n FROM {TUMBLE} \
         {GROUP}, k)) WHERE rn <= 3",
    ),
    (
        "distinct",
        "SELECT window_start, k, COUNT(DISTINCT v), SUM(DISTINCT v), ARRAY_AGG(v) FROM {TUMBLE} \
         {GROUP}, k",
    ),
    (
        "join of windows",
        "SELECT a.window_start, a.k, a.v, b.v AS other FROM {TUMBLE} AS a JOIN {TUMBLE} AS b ON a.k = b.k \
         AND a.v = b.v + 1 AND a.window_start = b.window_start AND a.window_end = b.window_end",
    ),
    (
        "interval join",
        "SELECT a.ts, a.k, a.v, b.v AS other FROM events AS a LEFT JOIN events AS b ON a.k = b.k AND b.ts \
         BETWEEN a.ts - INTERVAL '0.2' SECOND AND a.ts AND b.v > 90",
    ),
    ("all input", "SELECT k, COUNT(*), SUM(v) FROM events GROUP BY k"),
];

/// A query with its windows written out.
fn written(query: &str) -> String {
    let of = |function: &str, lengths: &str| {
        format!("TABLE({function}(TABLE events, DESCRIPTOR(ts), {lengths}))")
    };
    let session = "TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.25' \
                   SECOND))";
    query
        .replace("{TUMBLE}", &of("TUMBLE", "INTERVAL '1' SECOND"))
        .replace("{HOP}", &of("HOP", "INTERVAL '0.5' SECOND, INTERVAL '4' SECOND"))
        .replace("{SHORT}", &of("HOP", "INTERVAL '0.01' SECOND, INTERVAL '0.03' SECOND"))
        .replace("{CUMULATE}", &of("CUMULATE", "INTERVAL '0.5' SECOND, INTERVAL '3' SECOND"))
        .replace("{SESSION}", session)
        .replace("{GROUP}", "GROUP BY window_start, window_end")
}

fn schema() -> SchemaRef {
    let ts = DataType::Timestamp(TimeUnit::Millisecond, None);
    let fields = [("ts", ts), ("k", DataType::Int64), ("v", DataType::Int64)];
    Arc::new(Schema::new(fields.map(|(name, of)| Field::new(name, of, false)).to_vec()))
}

/// A table of two splits, in batches of a hundred records.
fn events() -> MemoryTable {
    let split = |split: i64| {
        let records: Vec<[i64; 3]> = (0..RECORDS)
            .map(|at| {
                // Numbers that look like chance.
                let drawn = (at * 2 + split).wrapping_mul(2_654_435_761) >> 7;
                let back = if drawn % 9 == 0 { 500 } else { 0 };
                [at * STEP_MS - back, drawn % 37, drawn / 37 % 101]
            })
            .collect();
        let batch = |records: &[[i64; 3]]| {
            let column = |at: usize| records.iter().map(move |record| record[at]);
            let times = TimestampMillisecondArray::from_iter_values(column(0));
            let [keys, values] = [1, 2].map(|at| Int64Array::from_iter_values(column(at)));
            let columns: Vec<arrow::array::ArrayRef> =
                vec![Arc::new(times), Arc::new(keys), Arc::new(values)];
            RecordBatch::try_new(schema(), columns).unwrap()
        };
        records.chunks(100).map(batch).collect()
    };
    MemoryTable::new(schema(), vec![split(0), split(1)]).unwrap()
}

fn planned(query: &str) -> Plan {
    let mut session = Session::new(".");
    session.register_table("events", Arc::new(events()), Some(("ts", 300_000))).unwrap();
    let statements = parse_script(&written(query), "left.sql").unwrap();
    match session.execute(&statements[0]) {
        Ok(Executed::Query(planned)) => planned.plan,
        Ok(_) => panic!("{query}: no query"),
        Err(error) => panic!("{query}: {error}"),
    }
}

fn sink() -> Arc<CollectSink> {
    Arc::new(CollectSink::new(RowOrder::Deterministic))
}

fn text(sink: &CollectSink) -> String {
    pretty_format_batches(&sink.take()).unwrap().to_string()
}

/// Runs a plan in one process.
fn alone(plan: &Plan, settings: &Settings) -> (Stats, String) {
    let sink = sink();
    let (stats, result) = Job::new(plan, settings, vec![sink.clone()]).unwrap().run();
    result.unwrap();
    (stats, text(&sink))
}

/// Runs a plan in two processes; the counters of each.
fn in_two(plan: &Plan, settings: &Settings, seed: u64) -> (Vec<Stats>, String) {
    let sinks = [sink(), sink()];
    let given: Vec<Vec<Arc<dyn Sink>>> =
        sinks.iter().map(|sink| vec![sink.clone() as Arc<dyn Sink>]).collect();
    let scenario = Scenario::from_seed(seed, 2);
    let (outcomes, _) = simulate(plan, settings, &given, &scenario).unwrap();
    let stats = outcomes.into_iter().map(|outcome| {
        let (stats, result) = outcome.expect("nobody is killed");
        result.unwrap();
        stats
    });
    (stats.collect(), text(&sinks[0]))
}

/// Settings of so many workers, who end their epochs often or seldom.
fn settings(workers: usize, often: bool) -> Settings {
    let epoch_bytes = if often { 2_000 } else { 64 << 20 };
    Settings { workers, epoch_bytes, ..Settings::default() }
}

#[test]
fn nothing_is_left_after_the_last_window() {
    for (number, (name, query)) in QUERIES.into_iter().enumerate() {
        let plan = planned(query);
        let (stats, rows) = alone(&plan, &settings(1, true));
        assert_eq!(stats.left, Leftover::default(), "{name}");
        // There has been something to be left.
        assert_eq!(stats.records, 2 * RECORDS as u64 * plan.sources.len() as u64, "{name}");
        assert!(stats.state_bytes_peak > 0 && stats.rows >= 10, "{name}: {stats:?}");

        let simulated = Settings { simulate: Some(number as u64), ..settings(2, true) };
        for settings in [settings(3, true), settings(2, false), simulated] {
            let (stats, again) = alone(&plan, &settings);
            assert_eq!(stats.left, Leftover::default(), "{name}, {settings:?}");
            assert_eq!(rows, again, "{name}, {settings:?}");
        }
        for (workers, often) in [(1, true), (2, true), (2, false)] {
            let seed = (3 * number + workers) as u64;
            let (processes, again) = in_two(&plan, &settings(workers, often), seed);
            for (process, stats) in processes.iter().enumerate() {
                let what = format!("{name}, process {process} of {workers} workers, seed {seed}");
                assert_eq!(stats.left, Leftover::default(), "{what}");
            }
            assert!(processes.iter().any(|stats| stats.messages_sent > 0), "{name}");
            assert_eq!(rows, again, "{name}, {workers} workers, seed {seed}");
        }
    }
}
