//! `millstream-lab bench WORKLOAD`: runs a workload on data generated in memory, in the ordinary
//! way, and checks the answer. A rate without `"ok": true` is meaningless.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use millstream::program::{Job, SessionControl, counted, counters};
use millstream::{Exchange, MemoryTable, Session, Settings};
use millstream_workloads::{
    Spec, Verifier, Zipf, expected, generate, handwritten, oracle, schema, sql,
};
use serde_json::{Map, Value, json};

use crate::failure::{fail, note, print};
use crate::processes::{self, Processes, WorkloadTask};
use crate::run::{Run, record_bytes};
use crate::verify::VerifySink;
use crate::{Failure, peak_rss_bytes, provenance, round};

/// A workload to measure.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Specification of the generated and queried data.
    pub spec: Spec,
    /// Of each process.
    pub settings: Settings,
    /// Whether one JSON object is printed, rather than a line for people.
    pub json: bool,
}

/// More pairs than so many for each record are worth a warning.
const PAIRS_OF_RECORD: u64 = 50;

/// Deals records to so many splits, in batches of so many rows.
type Deal = fn(&Spec, usize, usize) -> Vec<Vec<RecordBatch>>;

/// Engines that run a workload's query.
#[derive(Clone, Copy)]
pub enum Runner<'a> {
    /// This engine, in this process.
    Millstream,
    /// A single-purpose loop: the ceiling.
    Handwritten,
    /// This engine, on several processes, which are told these settings.
    Processes(Processes, &'a [(String, String)]),
}

impl Runner<'_> {
    fn engine(&self) -> &'static str {
        match self {
            Runner::Handwritten => "handwritten",
            Runner::Millstream | Runner::Processes(..) => "millstream",
        }
    }

    fn processes(&self) -> usize {
        match self {
            Runner::Processes(processes, _) => processes.count,
            Runner::Millstream | Runner::Handwritten => 1,
        }
    }

    /// Fabric between the processes, if there are several.
    fn fabric(&self) -> Option<&'static str> {
        match self {
            Runner::Processes(processes, _) => Some(processes.fabric.name()),
            Runner::Millstream | Runner::Handwritten => None,
        }
    }
}

/// As an exchange is written on the command line.
pub(crate) fn exchange_name(exchange: Exchange) -> &'static str {
    match exchange {
        Exchange::LateMerge => "late-merge",
        Exchange::Repartition => "repartition",
        Exchange::Interleaved => "interleaved",
    }
}

impl Measurement {
    /// Generates the data and stops, to say what that costs.
    pub fn generate_only(&self) -> Result<(), Failure> {
        let (_, bytes, seconds) = self.generate(generate);
        if !self.json {
            return Ok(());
        }
        let object = json!({
            "workload": self.spec.workload.name(),
            "workers": self.settings.workers,
            "records": self.spec.records,
            "seconds": round(seconds, 6),
            "input_bytes": bytes,
            "peak_rss_bytes": peak_rss_bytes(),
        });
        print(&object.to_string())
    }

    /// Measures, and prints what came out. A wrong answer is a failure.
    pub fn run(&self, runner: Runner<'_>) -> Result<(), Failure> {
        let pairs = self.spec.pairs().unwrap_or(0);
        if pairs / PAIRS_OF_RECORD > self.spec.records {
            note(&format!(
                "warning: about {} come of {}: they grow with the square of the records of a key\n  \
                 help: use more --keys, or fewer --records",
                counted(pairs, "pair"),
                counted(self.spec.records, "record")
            ));
        }
        let run = match runner {
            Runner::Processes(processes, settings) => {
                let task = WorkloadTask::new(&self.spec, settings);
                processes::run(&task, processes)?
            }
            Runner::Millstream | Runner::Handwritten => {
                let by_hand = matches!(runner, Runner::Handwritten);
                let deal: Deal = if by_hand { handwritten::splits } else { generate };
                let (splits, bytes, _) = self.generate(deal);
                match by_hand {
                    true => run_handwritten(&self.spec, &splits, bytes)?,
                    false => run_millstream(&self.spec, &self.settings, splits, bytes)?,
                }
            }
        };
        print(&match self.json {
            true => Value::Object(self.object(&run, runner)).to_string(),
            false => self.line(&run, runner),
        })?;
        if run.ok { Ok(()) } else { Err(fail(&"the answer is wrong")) }
    }

    /// A split for each worker, as they are dealt, the bytes of all, and the seconds that it took.
    fn generate(&self, deal: Deal) -> (Vec<Vec<RecordBatch>>, usize, f64) {
        let started = Instant::now();
        let splits = deal(&self.spec, self.settings.workers, self.settings.batch_rows);
        let seconds = started.elapsed().as_secs_f64();
        let bytes: usize = splits.iter().flatten().map(record_bytes).sum();
        note(&format!(
            "generated {} ({:.0} MB) in {:.1} s",
            counted(self.spec.records, "record"),
            bytes as f64 / 1e6,
            seconds
        ));
        (splits, bytes, seconds)
    }

    fn object(&self, run: &Run, runner: Runner<'_>) -> Map<String, Value> {
        let Measurement { spec, settings, .. } = self;
        let Run { seconds, input_bytes, peak_rss_bytes, ref answer, ok, ref stats } = *run;
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
        put("engine", json!(runner.engine()));
        put("workload", json!(spec.workload.name()));
        put("processes", json!(runner.processes()));
        put("workers", json!(settings.workers));
        let own = spec.window() == Spec::new(spec.workload).window();
        put("window", json!((!own).then(|| spec.window().to_string())));
        put("zipf", json!(spec.zipf.map(Zipf::exponent)));
        put("fabric", json!(runner.fabric()));
        put("exchange", json!(exchange_name(settings.exchange)));
        put("records", json!(spec.records));
        put("seconds", json!(round(seconds, 6)));
        put("mrec_per_s", json!(round(spec.records as f64 / seconds / 1e6, 3)));
        put("gb_per_s", json!(round(input_bytes as f64 / seconds / 1e9, 3)));
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
        for (key, value) in stats.as_ref().map(counters).unwrap_or_default() {
            object.entry(key).or_insert(value);
        }
        object
    }

    fn line(&self, run: &Run, runner: Runner<'_>) -> String {
        let workers = counted(self.settings.workers as u64, "worker");
        let exchange = exchange_name(self.settings.exchange);
        let layout = match runner.fabric() {
            None if self.settings.exchange == Exchange::LateMerge => workers,
            None => format!("{workers}, {exchange}"),
            Some(fabric) => {
                let processes = runner.processes();
                format!("{processes} processes of {workers}, {exchange} over {fabric}")
            }
        };
        format!(
            "{:<10} {:<12} {layout}  {:>8.1} million records/s  {:>6.2} GB/s  {:>8.3} s  \
             {}  answer {}",
            self.spec.workload.name(),
            runner.engine(),
            self.spec.records as f64 / run.seconds / 1e6,
            run.input_bytes as f64 / run.seconds / 1e9,
            run.seconds,
            counted(run.answer.result_rows, "row"),
            if run.ok { "right" } else { "WRONG" },
        )
    }
}

/// Runs the ceiling: a loop, or a loop for each split without a merge. The answer of each loop is
/// checked for its own records; rows and sums are totals of all loops.
fn run_handwritten(
    spec: &Spec,
    splits: &[Vec<RecordBatch>],
    input_bytes: usize,
) -> Result<Run, Failure> {
    let started = Instant::now();
    let loops = match splits {
        [only] => handwritten::run(spec, only).map(|verifier| vec![verifier]),
        _ => handwritten::run_parallel(spec, splits),
    };
    let seconds = started.elapsed().as_secs_f64();
    let loops = loops.map_err(|e| fail(&e))?;
    let peak_rss_bytes = peak_rss_bytes();
    let answer = Verifier::sum(spec, &loops).answer();
    let ok = handwritten::is_right(spec, &loops);
    Ok(Run { seconds, input_bytes, peak_rss_bytes, answer, ok, stats: None })
}

/// Runs the workload's SQL text through the ordinary path.
fn run_millstream(
    spec: &Spec,
    settings: &Settings,
    splits: Vec<Vec<RecordBatch>>,
    input_bytes: usize,
) -> Result<Run, Failure> {
    let mut session = Session::new(".");
    *session.settings_mut() = settings.clone();
    let table = MemoryTable::new(schema(spec.workload), splits).map_err(|e| fail(&e))?;
    session
        .register_table(
            spec.workload.name(),
            Arc::new(table),
            Some(("ts", spec.watermark_delay_ms() as i64 * 1000)),
        )
        .map_err(|e| fail(&e))?;
    let query = session.plan(&sql(spec)).map_err(|e| fail(&e))?;
    let sink = VerifySink::new(spec, settings.workers);
    let started = Instant::now();
    let job = Job::new(&query, settings, vec![sink.clone()]).map_err(|e| fail(&e))?;
    let (stats, result) = job.run();
    let seconds = started.elapsed().as_secs_f64();
    result.map_err(|e| fail(&e))?;
    let peak_rss_bytes = peak_rss_bytes();
    let mut all = Verifier::new(spec);
    sink.add_to(&mut all);
    let answer = all.answer();
    let ok = answer == expected(spec).unwrap_or_else(|| oracle(spec));
    Ok(Run { seconds, input_bytes, peak_rss_bytes, answer, ok, stats: Some(stats) })
}
