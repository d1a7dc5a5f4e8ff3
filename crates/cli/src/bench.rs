//! `millstream bench`: a workload on data generated in memory, through the ordinary path, with its
//! answer checked. A rate without `"ok": true` beside it means nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;
use millstream::cluster::check_settings;
use millstream::{
    Error, Exchange, Format, Job, MemoryTable, RowOrder, Session, Settings, Sink, Stats,
    TextOptions, TextSink, Writers, counted,
};
use millstream_workloads::{
    Answer, Spec, Verifier, Workload, ZIPF_KEYS_MAX, Zipf, expected, generate, handwritten, oracle,
    schema, sql,
};
use serde_json::{Map, Value, json};

use crate::bench_processes::{self, BenchTask};
use crate::channel::Channel;
use crate::processes::default_settings;
use crate::projection::{self, Layout, Question};
use crate::run::{fail, note, print, setting_pairs, usage};
use crate::{Failure, ProcessArguments, SettingArguments, provenance, report};

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// ysb, ysb_small, ysb_str, nb7, cm, ro; or `latency`, a paced stream; or `channel`, between
    /// two threads
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workload: String,
    /// Records to generate [default: the workload's]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) records: Option<u64>,
    /// What runs the query: this engine, or a single-purpose loop as the ceiling
    #[arg(long, value_enum, default_value = "millstream")]
    pub(crate) engine: Engine,
    /// Generate the data and stop, to subtract its cost
    #[arg(long)]
    pub(crate) generate_only: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Keys to draw from instead of the workload's number (another modulus)
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    pub(crate) keys: Option<u64>,
    /// Draw keys from a Zipf distribution with this exponent, 0 (uniform) to 3, instead of the
    /// workload's own
    #[arg(long, value_name = "Z", allow_negative_numbers = true)]
    pub(crate) zipf: Option<Zipf>,
    /// `latency`: events per second [default: 100000]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// `latency`: seconds to run [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) channel: Channel,
    /// How workers bring together what belongs to a key [default: late-merge]
    #[arg(long, value_enum)]
    pub(crate) exchange: Option<ExchangeName>,
    /// Compute what it would take on so many nodes with so many workers each, connected by 100
    /// Gbit/s
    #[arg(long, value_name = "NODESxWORKERS", conflicts_with_all = ["predict", "processes", "fabric", "workers"])]
    project: Option<Layout>,
    /// Compute what it would take in so many real processes here, over shared memory, to judge the
    /// model
    #[arg(long, value_name = "PROCESSESxWORKERS", conflicts_with_all = ["processes", "fabric", "workers"])]
    predict: Option<Layout>,
    #[command(flatten)]
    pub(crate) processes: ProcessArguments,
    #[command(flatten)]
    pub(crate) settings: SettingArguments,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum ExchangeName {
    /// Records stay where they are read; partial state is merged later
    LateMerge,
    /// Half of the workers read and partition records, the others aggregate them
    Repartition,
    /// Every worker reads, partitions and aggregates
    Interleaved,
}

impl ExchangeName {
    pub(crate) fn of(exchange: Exchange) -> ExchangeName {
        match exchange {
            Exchange::LateMerge => ExchangeName::LateMerge,
            Exchange::Repartition => ExchangeName::Repartition,
            Exchange::Interleaved => ExchangeName::Interleaved,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ExchangeName::LateMerge => "late-merge",
            ExchangeName::Repartition => "repartition",
            ExchangeName::Interleaved => "interleaved",
        }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Engine {
    Millstream,
    Handwritten,
}

/// Reduces result rows to their checksums as they come, one verifier per worker.
#[derive(Debug)]
pub(crate) struct VerifySink(pub(crate) Vec<Mutex<Verifier>>);

impl Sink for VerifySink {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, worker: usize, rows: &RecordBatch, _: bool) -> millstream::Result<()> {
        let mut verifier = self.0[worker].lock().unwrap_or_else(PoisonError::into_inner);
        verifier.add_batch(rows).map_err(|e| Error::Internal(e.to_string()))
    }
    /// Each process of a job checks its own rows.
    fn is_local(&self) -> bool {
        true
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if self.workload == "channel" {
            self.refuse_what_does_not_apply(Exchange::LateMerge)?;
            return self.channel.over(self.processes.fabric()).run(self.json);
        }
        let question = self.question();
        // Nodes have their memory to themselves; processes on one machine share it.
        let sharing = self.predict.map_or(self.processes.count(), |layout| layout.processes);
        let mut pairs = default_settings(sharing);
        pairs.extend(setting_pairs(&self.settings)?);
        pairs.extend(self.exchange.map(|e| ("exchange".to_string(), e.name().to_string())));
        let mut settings = Settings::default();
        for (key, value) in &pairs {
            settings.set(key, value).map_err(|e| usage(&e))?;
        }
        self.refuse_what_does_not_apply(settings.exchange)?;
        self.check_roles(&settings)?;
        check_settings(self.processes.count(), &settings).map_err(|e| usage(&e))?;
        self.processes.check_fabric();
        if self.workload == "latency" {
            return self.latency(settings);
        }
        let workload = Workload::from_name(&self.workload).ok_or_else(|| {
            let names = Workload::names();
            let like = millstream::closest(
                &self.workload,
                names.into_iter().chain(["latency", "channel"]),
            );
            usage(&match like {
                Some(name) => format!(
                    "there is no workload '{}'\n  help: did you mean '{name}'?",
                    self.workload
                ),
                None => format!(
                    "there is no workload '{}'\n  help: use one of {}, latency, channel",
                    self.workload,
                    names.join(", ")
                ),
            })
        })?;
        let mut spec = Spec { keys: self.keys, zipf: self.zipf, ..Spec::new(workload) };
        if let Some(records) = self.records {
            spec.records = records;
        }
        if spec.zipf.is_some() && spec.key_range() > ZIPF_KEYS_MAX {
            return Err(usage(&format!(
                "--zipf with {} keys: its table would take {} GB\n  help: use at most \
                 {ZIPF_KEYS_MAX} --keys",
                spec.key_range(),
                spec.key_range() >> 27
            )));
        }
        // About as many bytes as a record takes in memory, twice over for the largest of them.
        let needed = spec.records.saturating_mul(48);
        if needed > 2 * Settings::default().memory_bytes {
            return Err(usage(&format!(
                "{} records take about {} GB in memory, more than this machine has\n  help: use \
                 fewer --records",
                spec.records,
                needed >> 30
            )));
        }
        if let Some(question) = question {
            return self.project(&spec, &settings, &question);
        }
        if self.processes.count() > 1 {
            let task = BenchTask {
                workload: self.workload.clone(),
                records: spec.records,
                keys: spec.keys,
                zipf: spec.zipf.map(|zipf| zipf.exponent().to_string()),
                settings: pairs,
            };
            let (run, bytes) = bench_processes::run(&task, &self.processes)?;
            return self.finish(&spec, &settings, bytes, &run);
        }
        let started = Instant::now();
        let splits = generate(&spec, settings.workers, settings.batch_rows);
        let seconds = started.elapsed().as_secs_f64();
        let bytes: usize = splits.iter().flatten().map(record_bytes).sum();
        note(&format!(
            "generated {} ({:.0} MB) in {:.1} s",
            counted(spec.records, "record"),
            bytes as f64 / 1e6,
            seconds
        ));
        if self.generate_only && self.json {
            let object = json!({
                "workload": workload.name(),
                "workers": settings.workers,
                "records": spec.records,
                "seconds": round(seconds, 6),
                "input_bytes": bytes,
                "peak_rss_bytes": report::peak_rss_bytes(),
            });
            return print(&object.to_string());
        }
        if self.generate_only {
            return Ok(());
        }
        let run = match self.engine {
            Engine::Millstream => run_millstream(&spec, &settings, splits)?,
            Engine::Handwritten => run_handwritten(&spec, &splits)?,
        };
        self.finish(&spec, &settings, bytes, &run)
    }

    pub(crate) fn question(&self) -> Option<Question> {
        self.project.map(Question::Project).or(self.predict.map(Question::Predict))
    }

    /// Computes a rate in place of measuring one.
    fn project(
        &self,
        spec: &Spec,
        settings: &Settings,
        question: &Question,
    ) -> Result<(), Failure> {
        let found = projection::run(spec, settings, question)?;
        let Layout { processes, workers } = question.layout();
        let answer = found.verifier.answer();
        let rate = spec.records as f64 / found.seconds / 1e6;
        if !self.json {
            let right = if found.ok { "right" } else { "WRONG" };
            print(&format!(
                "{:<10} {processes} x {workers}  computed, not measured: {rate:.1} million records/s, {:.3} s, answer {right}",
                spec.workload.name(),
                found.seconds,
            ))?;
        } else {
            let mut object = found.fields;
            let line = json!({
                "engine": "millstream",
                "workload": spec.workload.name(),
                "processes": processes,
                "workers": workers,
                "zipf": spec.zipf.map(Zipf::exponent),
                "fabric": "sim",
                "exchange": ExchangeName::of(settings.exchange).name(),
                "records": spec.records,
                "seconds": round(found.seconds, 6),
                "mrec_per_s": round(rate, 3),
                "result_rows": answer.result_rows,
                "ok": found.ok,
                "peak_rss_bytes": report::peak_rss_bytes(),
            });
            for (name, value) in line.as_object().into_iter().flatten() {
                object.insert(name.clone(), value.clone());
            }
            object.extend(provenance::fields().map(|(name, value)| (name.to_string(), value)));
            for (name, value) in report::counters(&found.stats) {
                object.entry(name).or_insert(value);
            }
            print(&Value::Object(object).to_string())?;
        }
        if found.ok { Ok(()) } else { Err(fail(&"the answer is wrong")) }
    }

    fn finish(
        &self,
        spec: &Spec,
        settings: &Settings,
        bytes: usize,
        run: &Run,
    ) -> Result<(), Failure> {
        self.print(spec, settings, bytes, run)?;
        if run.ok { Ok(()) } else { Err(fail(&"the answer is wrong")) }
    }

    fn print(
        &self,
        spec: &Spec,
        settings: &Settings,
        bytes: usize,
        run: &Run,
    ) -> Result<(), Failure> {
        let Run { seconds, peak_rss_bytes, ref answer, ok, ref stats } = *run;
        let rate = spec.records as f64 / seconds;
        let engine = match self.engine {
            Engine::Millstream => "millstream",
            Engine::Handwritten => "handwritten",
        };
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
        put("engine", json!(engine));
        put("workload", json!(spec.workload.name()));
        put("processes", json!(self.processes.count()));
        put("workers", json!(settings.workers));
        put("zipf", json!(spec.zipf.map(Zipf::exponent)));
        let several = self.processes.count() > 1;
        put("fabric", json!(several.then(|| self.processes.fabric().library().name())));
        put("exchange", json!(ExchangeName::of(settings.exchange).name()));
        put("records", json!(spec.records));
        put("seconds", json!(round(seconds, 6)));
        put("mrec_per_s", json!(round(rate / 1e6, 3)));
        put("gb_per_s", json!(round(bytes as f64 / seconds / 1e9, 3)));
        put("result_rows", json!(answer.result_rows));
        put("checksum", json!(answer.checksum));
        put("mix", json!(answer.mix));
        if let Some(avg_sum) = answer.avg_sum {
            put("avg_sum", json!(round(avg_sum, 3)));
        }
        put("ok", json!(ok));
        put("peak_rss_bytes", json!(peak_rss_bytes));
        for (key, value) in provenance::fields() {
            put(key, value);
        }
        for (key, value) in stats.as_ref().map(report::counters).unwrap_or_default() {
            if !object.contains_key(&key) {
                object.insert(key, value);
            }
        }
        if self.json {
            print(&Value::Object(object).to_string())
        } else {
            let workers = counted(settings.workers as u64, "worker");
            let exchange = ExchangeName::of(settings.exchange).name();
            let layout = match self.processes.count() {
                1 if settings.exchange == Exchange::LateMerge => workers,
                1 => format!("{workers}, {exchange}"),
                n => {
                    let fabric = self.processes.fabric().library().name();
                    format!("{n} processes of {workers}, {exchange} over {fabric}")
                }
            };
            print(&format!(
                "{:<10} {engine:<12} {layout}  {:>8.1} million records/s  {:>6.2} GB/s  {:>8.3} s  \
                 {}  answer {}",
                spec.workload.name(),
                rate / 1e6,
                bytes as f64 / seconds / 1e9,
                seconds,
                counted(answer.result_rows, "row"),
                if ok { "right" } else { "WRONG" },
            ))
        }
    }

    /// Time from the watermark passing a window's end until its last row is written, on a paced
    /// stream.
    fn latency(&self, settings: Settings) -> Result<(), Failure> {
        let mut session = Session::new(".");
        let rate = self.rate.unwrap_or(100_000);
        let rows = rate * self.seconds.unwrap_or(10);
        let script = format!(
            "CREATE TABLE events (ts TIMESTAMP(3) NOT NULL, key BIGINT NOT NULL,
                 WATERMARK FOR ts AS ts)
             WITH ('connector' = 'datagen', 'rows-per-second' = '{}', 'number-of-rows' = '{rows}',
                 'fields.ts.kind' = 'sequence', 'fields.key.min' = '0', 'fields.key.max' = '{}');
             SELECT window_start, key, COUNT(*) AS value
             FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.1' SECOND))
             GROUP BY window_start, window_end, key;",
            rate,
            self.keys.unwrap_or(1000).max(1) - 1,
        );
        // Formatted and written like any output: into a pipe, whose reader throws it away.
        let (mut reader, writer) = std::io::pipe().map_err(|e| fail(&e))?;
        let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let sink = TextSink::new(Format::Csv, Box::new(writer), TextOptions::default());
        *session.settings_mut() = settings;
        let stats = session.run(&script, Arc::new(sink)).map_err(|e| fail(&e))?;
        drop(session);
        drain.join().map_or(Ok(0), |copied| copied).map_err(|e| fail(&e))?;
        let counters = report::counters(&stats);
        if self.json {
            print(&Value::Object(counters).to_string())?;
        } else {
            print(&format!(
                "{} at {} events/s, from the watermark to the last row in a pipe: p50 {} us, p99 {} us, max {} us",
                counted(stats.windows, "window"),
                rate,
                counters["fire_latency_us_p50"],
                counters["fire_latency_us_p99"],
                counters["fire_latency_us_max"],
            ))?;
        }
        Ok(())
    }
}

/// Bytes of a batch's values.
pub(crate) fn record_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

pub(crate) fn round(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

/// A run, and what it came to.
pub(crate) struct Run {
    pub(crate) seconds: f64,
    /// Before the answer was checked, which takes memory, too; of all processes.
    pub(crate) peak_rss_bytes: u64,
    pub(crate) answer: Answer,
    pub(crate) ok: bool,
    pub(crate) stats: Option<Stats>,
}

/// Runs the ceiling: one loop, or one for each split, which merge nothing. Each is held against the
/// answer for its own records; rows and sums are those of all loops together.
fn run_handwritten(spec: &Spec, splits: &[Vec<RecordBatch>]) -> Result<Run, Failure> {
    let started = Instant::now();
    let loops = match splits {
        [only] => handwritten::run(spec, only).map(|verifier| vec![verifier]),
        _ => handwritten::run_parallel(spec, splits),
    };
    let seconds = started.elapsed().as_secs_f64();
    let loops = loops.map_err(|e| fail(&e))?;
    let peak_rss_bytes = report::peak_rss_bytes();
    let answer = Verifier::sum(spec, &loops).answer();
    let ok = handwritten::is_right(spec, &loops);
    Ok(Run { seconds, peak_rss_bytes, answer, ok, stats: None })
}

/// Runs the workload's SQL text through the ordinary path.
fn run_millstream(
    spec: &Spec,
    settings: &Settings,
    splits: Vec<Vec<RecordBatch>>,
) -> Result<Run, Failure> {
    let mut session = Session::new(".");
    let table = MemoryTable::new(schema(spec.workload), splits).map_err(|e| fail(&e))?;
    session
        .register_table(
            spec.workload.name(),
            Arc::new(table),
            Some(("ts", spec.watermark_delay_ms() as i64 * 1000)),
        )
        .map_err(|e| fail(&e))?;
    let query = session.plan(&sql(spec)).map_err(|e| fail(&e))?;
    let verifiers = (0..settings.workers).map(|_| Mutex::new(Verifier::new(spec)));
    let sink = Arc::new(VerifySink(verifiers.collect()));
    let started = Instant::now();
    let job = Job::new(&query, settings, vec![sink.clone()]).map_err(|e| fail(&e))?;
    let (stats, result) = job.run();
    let seconds = started.elapsed().as_secs_f64();
    result.map_err(|e| fail(&e))?;
    let peak_rss_bytes = report::peak_rss_bytes();
    let mut all = Verifier::new(spec);
    for verifier in &sink.0 {
        all.merge(&verifier.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let answer = all.answer();
    let ok = answer == expected(spec).unwrap_or_else(|| oracle(spec));
    Ok(Run { seconds, peak_rss_bytes, answer, ok, stats: Some(stats) })
}
