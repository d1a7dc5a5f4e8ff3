//! In-memory tables and a collecting sink, random data, and a sequential oracle for one query.

#![allow(dead_code, reason = "the tests of checkpoints use a part of it")]

pub(crate) mod chain;
pub(crate) mod graph;
pub(crate) mod joins;
#[path = "../../../operators/tests/support/memory.rs"]
mod memory;
#[path = "../../../operators/tests/support/random.rs"]
mod random;
pub(crate) mod script;
pub(crate) mod sessions;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::*;
use arrow::datatypes::*;
use millstream_contract::expr::Expr;
use millstream_contract::plan::*;
use millstream_contract::settings::{Exchange, FragmentMode};
use millstream_contract::sink::{RowOrder, Sink, Writers};
use millstream_contract::table::*;
use millstream_contract::{Result, Settings};
use millstream_engine::network::{Mesh, MeshOptions, MeshSetup, Place};
use millstream_engine::{Job, Stats};
use millstream_fabric::Fabric;
use millstream_flow::channel::Settings as Channels;

#[allow(unused_imports, reason = "not each of them needs it")]
pub(crate) use memory::Memory;
#[allow(unused_imports, reason = "not each of them needs it")]
pub(crate) use random::Random;

/// Collects what it is given.
#[derive(Debug)]
pub(crate) struct Collect {
    pub(crate) order: RowOrder,
    pub(crate) batches: Mutex<Vec<RecordBatch>>,
}

impl Sink for Collect {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        self.order
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        self.batches.lock().unwrap().push(rows.clone());
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A plan that passes all records on.
pub(crate) fn passing(source: Arc<dyn Table>, limit: Option<u64>) -> Plan {
    let mut query = query(source, None, 0);
    let columns = [0, 1, 2, 3, 4];
    let schema = Arc::new(query.sources[0].schema.project(&columns).unwrap());
    query.stages[0].output = schema.clone();
    let columns = columns.into_iter().map(Expr::Column).collect();
    query.stages[0].inputs[0].project = Some(Project { columns, schema });
    query.stages[0].operator = Operator::Stateless { limit, offset: 0 };
    query
}

/// Settings of a job, up to so many workers of a process, drawn at random: with small epochs and
/// large ones, and with each mode of fragments.
pub(crate) fn drawn_settings(random: &mut Random, workers: u64, lateness_ms: i64) -> Settings {
    let modes = [FragmentMode::Auto, FragmentMode::Aggregate, FragmentMode::PassThrough];
    Settings {
        workers: 1 + random.below(workers) as usize,
        epoch_bytes: random.pick(&[1, 1000, 64 << 20]),
        fragment_bytes: random.pick(&[1000, 8 << 20]),
        fragment_mode: random.pick(&modes),
        allowed_lateness_us: lateness_ms * 1000,
        ..Settings::default()
    }
}

/// How many seeds a test has that usually has so many: in CI a part, `MILLSTREAM_SEEDS_PERCENT`.
pub(crate) fn usual_seeds(usual: u64) -> u64 {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
    let part = || number("MILLSTREAM_SEEDS_PERCENT").map(|percent: u64| usual * percent / 100);
    number("MILLSTREAM_SEEDS").or_else(part).unwrap_or(usual).max(1)
}

/// Runs the jobs of so many seeds, or of as many as `MILLSTREAM_SEEDS` says, from the one in
/// `MILLSTREAM_FIRST_SEED` on, or of just the one in `MILLSTREAM_SEED`; returns how many these are,
/// and their counters.
pub(crate) fn run_seeds(usual: u64, simulate: impl Fn(u64) -> Stats) -> (u64, Stats) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
    let (first, seeds) = match number("MILLSTREAM_SEED") {
        Some(seed) => (seed, 1),
        None => (number("MILLSTREAM_FIRST_SEED").unwrap_or(0), usual_seeds(usual)),
    };
    let mut sum = Stats::default();
    for seed in first..first + seeds {
        let _named = Named(seed);
        sum.add_process(&simulate(seed));
    }
    (seeds, sum)
}

/// Says which seed it was if the seed's job panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was MILLSTREAM_SEED={}", self.0);
        }
    }
}

/// What a test is for must really have happened, unless it ran a single seed.
pub(crate) fn happened(seeds: u64, counts: &[(&str, u64)]) {
    for (what, count) in counts {
        assert!(*count > 0 || seeds == 1, "no {what} in {seeds} seeds");
    }
}

/// The command that runs a test's job of a seed again.
pub(crate) fn repeat(seed: u64, test: &str) -> String {
    format!(
        "repeat it with:\n    MILLSTREAM_SEED={seed} cargo test --profile ci --workspace --test jobs \
         {test}::simulated\n"
    )
}

/// Like `assert_eq!`, but shows only the first difference.
pub(crate) fn same_rows(rows: &[String], expected: &[String], what: &str) {
    let differing = rows.iter().zip(expected).find(|(a, b)| a != b);
    assert!(differing.is_none(), "{what}\n  first difference: {differing:?}");
    assert_eq!(rows.len(), expected.len(), "{what}\n  rows and expected rows");
}

/// Runs a plan and returns its rows as text, one line each, in the order of arrival.
pub(crate) fn run(plan: &Plan, settings: &Settings) -> (Stats, Result<Vec<String>>) {
    let sink = Arc::new(Collect { order: RowOrder::Deterministic, batches: Mutex::default() });
    let job = match Job::new(plan, settings, vec![sink.clone()]) {
        Ok(job) => job,
        Err(error) => return (Stats::default(), Err(error)),
    };
    let (stats, result) = job.run();
    let batches = sink.batches.lock().unwrap();
    (stats, result.map(|()| batches.iter().flat_map(lines).collect()))
}

/// Connects the processes of a job over `devices`, one each.
pub(crate) fn meshes<F: Fabric>(
    devices: &[F],
    workers: usize,
    channels: Channels,
    exchange: Exchange,
) -> Vec<Mesh> {
    let processes = devices.len();
    let place = |process| Place { process, processes };
    let setups: Vec<_> = (0..processes)
        .map(|p| {
            let options = MeshOptions { workers, stages: 1, memory_bytes: 64 << 20, exchange };
            MeshSetup::new(&devices[p], place(p), options, channels).unwrap()
        })
        .collect();
    let hellos: Vec<Vec<_>> =
        (0..processes).map(|to| setups.iter().map(|setup| setup.hellos(to)).collect()).collect();
    setups.into_iter().zip(&hellos).map(|(setup, from)| setup.connect(from).unwrap()).collect()
}

/// Runs a plan on several processes, which are threads here, and returns the rows that come to the
/// first and the counters of each.
pub(crate) fn run_distributed(
    plan: &Plan,
    settings: &Settings,
    meshes: Vec<Mesh>,
) -> Vec<(Stats, Result<Vec<String>>)> {
    let run = |mesh| {
        let sink = Arc::new(Collect { order: RowOrder::Deterministic, batches: Mutex::default() });
        let job =
            Job::distributed(plan, settings, vec![sink.clone()], mesh, 1_700_000_000_000_000)?;
        let (stats, result) = job.run();
        let batches = sink.batches.lock().unwrap();
        Ok((stats, result.map(|()| batches.iter().flat_map(lines).collect())))
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = meshes.into_iter().map(|mesh| scope.spawn(move || run(mesh))).collect();
        jobs.into_iter()
            .map(|job| job.join().unwrap().unwrap_or_else(|e| (Stats::default(), Err(e))))
            .collect()
    })
}

pub(crate) fn lines(batch: &RecordBatch) -> Vec<String> {
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|c| arrow::util::display::ArrayFormatter::try_new(c, &Default::default()).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}

/// A record of the test table.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) ts_ms: Option<i64>,
    pub(crate) key: Option<i64>,
    pub(crate) name: String,
    pub(crate) amount: Option<i64>,
    pub(crate) price: f64,
}

/// Splits of random records whose times advance with some disorder.
pub(crate) fn records(
    random: &mut Random,
    splits: usize,
    per_split: usize,
    keys: u64,
) -> Vec<Vec<Record>> {
    (0..splits)
        .map(|_| {
            (0..per_split)
                .map(|i| {
                    let null = random.below(50) == 0;
                    let back = if random.below(10) == 0 { random.below(3000) } else { 0 };
                    let ts = i as i64 * 7 - 2000 - back as i64;
                    Record {
                        ts_ms: (!null).then_some(ts),
                        key: (random.below(20) > 0).then(|| random.below(keys) as i64 - 3),
                        name: format!("name-{}", random.below(3)),
                        amount: (random.below(5) > 0).then(|| random.below(1000) as i64 - 500),
                        price: random.below(100_000) as f64 / 100.0,
                    }
                })
                .collect()
        })
        .collect()
}

/// The records as a table with batches of random sizes.
pub(crate) fn table(splits: &[Vec<Record>], random: &mut Random, batch_rows: u64) -> Arc<Memory> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("key", DataType::Int64, true),
        Field::new("name", DataType::Utf8, false),
        Field::new("amount", DataType::Int64, true),
        Field::new("price", DataType::Float64, false),
    ]));
    let batch = |records: &[Record]| {
        let ts: TimestampMillisecondArray = records.iter().map(|r| r.ts_ms).collect();
        let key: Int64Array = records.iter().map(|r| r.key).collect();
        let name: StringArray = records.iter().map(|r| Some(r.name.as_str())).collect();
        let amount: Int64Array = records.iter().map(|r| r.amount).collect();
        let price: Float64Array = records.iter().map(|r| Some(r.price)).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(ts), Arc::new(key), Arc::new(name), Arc::new(amount), Arc::new(price)];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    let splits = splits.iter().map(|records| {
        let (mut rest, mut batches) = (&records[..], Vec::new());
        while !rest.is_empty() {
            let len = (1 + random.below(batch_rows) as usize).min(rest.len());
            batches.push(batch(&rest[..len]));
            rest = &rest[len..];
        }
        batches
    });
    let splits = splits.collect();
    // Without taking from the numbers that make the data.
    let sharing = [Sharing::Whole, Sharing::ByChunk][random.clone().below(2) as usize];
    Arc::new(Memory { schema, splits, sharing })
}

/// An aggregate call; its argument by column, type and whether it can be NULL.
pub(crate) fn call(
    function: AggregateFunction,
    argument: Option<(usize, DataType, bool)>,
    result: DataType,
) -> AggregateCall {
    let argument = argument.map(|(column, data_type, nullable)| Argument {
        expr: Expr::Column(column),
        data_type,
        nullable,
    });
    AggregateCall {
        name: format!("{function:?}"),
        function,
        arguments: argument.into_iter().collect(),
        filter: None,
        result_type: result,
        frame: String::new(),
    }
}

/// A key that is a column.
pub(crate) fn key(name: &str, column: usize, data_type: DataType, nullable: bool) -> Key {
    Key { name: name.into(), expr: Expr::Column(column), data_type, nullable }
}

/// SELECT window_start, key, name, COUNT(*), SUM(amount), MIN(amount), MAX(name), AVG(price)
/// GROUP BY window (if any), key, name.
pub(crate) fn query(source: Arc<dyn Table>, window_ms: Option<i64>, delay_us: i64) -> Plan {
    use AggregateFunction::*;
    let ms = DataType::Timestamp(TimeUnit::Millisecond, None);
    let aggregates = vec![
        call(Count, None, DataType::Int64),
        call(Sum, Some((3, DataType::Int64, true)), DataType::Int64),
        call(Min, Some((3, DataType::Int64, true)), DataType::Int64),
        call(Max, Some((2, DataType::Utf8, false)), DataType::Utf8),
        call(Avg, Some((4, DataType::Float64, false)), DataType::Float64),
    ];
    let mut fields = vec![];
    if window_ms.is_some() {
        for name in ["window_start", "window_end", "window_time"] {
            fields.push(Field::new(name, ms.clone(), false));
        }
    }
    let first = fields.len();
    fields.push(Field::new("key", DataType::Int64, true));
    fields.push(Field::new("name", DataType::Utf8, false));
    for (i, a) in aggregates.iter().enumerate() {
        fields.push(Field::new(format!("a{i}"), a.result_type.clone(), true));
    }
    let fired = Arc::new(Schema::new(fields));
    let shown: Vec<usize> =
        window_ms.map(|_| 0).into_iter().chain(first..fired.fields().len()).collect();
    let source = Source {
        name: "events".into(),
        schema: source.schema(),
        projection: (0..5).collect(),
        derived: vec![],
        event_time: Some(EventTime {
            zone: None,
            column: 0,
            watermark: Watermark::Delay(delay_us),
            idle_timeout_us: None,
        }),
        table: source,
    };
    let output = Arc::new(fired.project(&shown).unwrap());
    let aggregate = Aggregate {
        windows_in_slice: 1,
        pairs: None,
        window: window_ms.map(|ms| Tumble { size_us: ms * 1000, offset_us: 0 }.into()),
        keys: vec![key("key", 1, DataType::Int64, true), key("name", 2, DataType::Utf8, false)],
        aggregates,
        fired,
        having: None,
        project: shown.into_iter().map(Expr::Column).collect(),
    };
    Plan::of_one_stage(source, None, Operator::Aggregate(aggregate), output)
}

/// The query with these windows: it shows their start and end.
pub(crate) fn windowed(source: Arc<dyn Table>, window: Window, delay_us: i64) -> Plan {
    let mut plan = query(source, Some(1000), delay_us);
    let aggregate = aggregate(&mut plan);
    aggregate.window = Some(window);
    let shown: Vec<usize> = [0, 1].into_iter().chain(3..aggregate.fired.fields().len()).collect();
    let output = Arc::new(aggregate.fired.project(&shown).unwrap());
    aggregate.project = shown.into_iter().map(Expr::Column).collect();
    plan.stages[0].output = output;
    plan
}

/// The event time of a plan's source.
pub(crate) fn event_time(plan: &mut Plan) -> &mut EventTime {
    plan.sources[0].event_time.as_mut().unwrap()
}

/// The aggregation of a plan's first stage.
/// The same plan, in which tumbling windows may share slices, as chance has it.
pub(crate) fn packed(mut plan: Plan, seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x9ac6_0000);
    plan.pack_windows([0, 0, 100, 7_000, 300_000][random.below(5) as usize] * 1000);
    plan
}

pub(crate) fn aggregate(plan: &mut Plan) -> &mut Aggregate {
    match &mut plan.stages[0].operator {
        Operator::Aggregate(aggregate) => aggregate,
        operator => panic!("{operator:?}"),
    }
}

/// What the query must return, worked out record by record, and how many records are late and
/// without a time.
pub(crate) fn oracle(
    splits: &[Vec<Record>],
    window_ms: Option<i64>,
    delay_us: i64,
    lateness_ms: i64,
) -> (Vec<String>, u64, u64) {
    oracle_of_resumed(splits, window_ms, delay_us, lateness_ms, |_, _| i64::MIN)
}

/// [`oracle`], for splits that may have been idle: before record `i` of split `s` its watermark is
/// at least `resumed(s, i)` (microseconds).
pub(crate) fn oracle_of_resumed(
    splits: &[Vec<Record>],
    window_ms: Option<i64>,
    delay_us: i64,
    lateness_ms: i64,
    resumed: impl Fn(usize, usize) -> i64,
) -> (Vec<String>, u64, u64) {
    type Group<'a> = Vec<&'a Record>;
    // Windows in order; within one, by key (NULL last) and name.
    let mut groups: BTreeMap<(i64, bool, Option<i64>, &str), Group<'_>> = BTreeMap::new();
    let (mut late, mut null_time) = (0, 0);
    for (s, split) in splits.iter().enumerate() {
        let mut watermark = i64::MIN;
        for (i, record) in split.iter().enumerate() {
            watermark = watermark.max(resumed(s, i));
            let before = watermark;
            if let Some(ts) = record.ts_ms {
                watermark = watermark.max(ts * 1000 - delay_us);
            }
            let start = match (window_ms, record.ts_ms) {
                (None, _) => 0,
                (Some(_), None) => {
                    null_time += 1;
                    continue;
                }
                (Some(size), Some(ts)) => {
                    let start = ts.div_euclid(size) * size;
                    if (start + size + lateness_ms) * 1000 <= before {
                        late += 1;
                        continue;
                    }
                    start
                }
            };
            let key = (start, record.key.is_none(), record.key, record.name.as_str());
            groups.entry(key).or_default().push(record);
        }
    }
    let rows = groups.into_iter().map(|((start, _, key, name), group)| {
        let line = group_line(key, name, &group);
        if window_ms.is_some() { format!("{}|{line}", time_text(start)) } else { line }
    });
    (rows.collect(), late, null_time)
}

/// A time in milliseconds, as results show it.
pub(crate) fn time_text(ms: i64) -> String {
    let at = TimestampMillisecondArray::from(vec![ms]);
    arrow::util::display::array_value_to_string(&at, 0).unwrap()
}

/// What the query must return of a group, without its window.
pub(crate) fn group_line(key: Option<i64>, name: &str, group: &[&Record]) -> String {
    let amounts: Vec<i64> = group.iter().filter_map(|r| r.amount).collect();
    let show = |v: Option<i64>| v.map_or(String::new(), |v| v.to_string());
    let sum = (!amounts.is_empty()).then(|| amounts.iter().sum());
    // These prices are whole multiples of 2^-60, so their sum is exact in integers. Dividing
    // with 30 bits to spare and a last bit for the remainder, converting it rounds once.
    let unit = 2f64.powi(60);
    let sum_units: i128 = group.iter().map(|r| (r.price * unit) as i128).sum();
    let (total, count) = (sum_units << 30, group.len() as i128);
    let quotient = (total / count) | i128::from(total % count != 0);
    let average = quotient as f64 / 2f64.powi(90);
    let cells = [
        show(key),
        name.to_string(),
        group.len().to_string(),
        show(sum),
        show(amounts.iter().min().copied()),
        name.to_string(),
    ];
    format!("{}|{average:?}", cells.join("|"))
}
