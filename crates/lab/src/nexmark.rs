//! `millstream-lab bench nexmark-qN`: a query of NEXMark over events in memory.
//!
//! The query's text is that of the project's examples, and so is the declaration of its table; only
//! the connector `nexmark` stands for batches that have been generated before. The query runs
//! twice: once for the clock, its rows discarded or written to files as the example says, and once
//! for its answer, which is held against one that was worked out by plain maps.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use millstream::program::{Executed, Job, SessionControl, counted, counters, parse_script};
use millstream::{
    BlackholeSink, Error, MemoryTable, RowOrder, Session, Settings, Sink, Stats, Writers,
};
use millstream_nexmark::{Config, Events, schema};
use millstream_workloads::nexmark::model;
use millstream_workloads::nexmark::queries::{QUERIES, TABLES, query, side_input};
use millstream_workloads::nexmark::rows::RowSummary;
use serde_json::{Map, Value, json};

use crate::failure::{fail, note, print, usage};
use crate::folder::Folder;
use crate::run::record_bytes;
use crate::{Failure, peak_rss_bytes, provenance, round};

/// Prefix of a workload's name before the query's name.
pub const PREFIX: &str = "nexmark-";

/// A query to measure.
#[derive(Debug, Clone)]
pub struct Nexmark {
    /// Its name, such as `q5`.
    pub query: String,
    /// How many events.
    pub events: u64,
    /// Generates the events and stops, to say what that costs.
    pub generate_only: bool,
    /// Of the job.
    pub settings: Settings,
    /// Whether one JSON object is printed, rather than a line for people.
    pub json: bool,
}

/// Result of running a query.
struct Run {
    seconds: f64,
    rows: u64,
    mix: u64,
    ok: bool,
    peak_rss_bytes: u64,
    stats: Stats,
}

/// The events, in memory.
struct Data {
    splits: Vec<Vec<RecordBatch>>,
    bytes: usize,
    seconds: f64,
}

impl Nexmark {
    /// Measures, and prints what came out. A wrong answer is a failure.
    ///
    /// # Errors
    /// If there is no such query, if it fails, or if its answer is wrong.
    pub fn run(&self) -> Result<(), Failure> {
        let Some(text) = query(&self.query) else {
            let names: Vec<String> =
                QUERIES.iter().map(|(name, _)| format!("{PREFIX}{name}")).collect();
            return Err(usage(&format!(
                "there is no workload '{PREFIX}{}'\n  help: use one of {}; docs/nexmark.md says \
                 what becomes of the other queries",
                self.query,
                names.join(", ")
            )));
        };
        let data = self.generate();
        if self.generate_only {
            return match self.json {
                true => print(&Value::Object(self.head(&data)).to_string()),
                false => Ok(()),
            };
        }
        let run = self.measure(text, &data)?;
        print(&match self.json {
            true => Value::Object(self.object(&run, &data)).to_string(),
            false => self.line(&run, &data),
        })?;
        if run.ok { Ok(()) } else { Err(fail(&"the answer is wrong")) }
    }

    fn generate(&self) -> Data {
        let started = Instant::now();
        let events = Events::new(Config { events: Some(self.events), ..Config::default() });
        let splits = events.generate(self.settings.workers, self.settings.batch_rows);
        let seconds = started.elapsed().as_secs_f64();
        let bytes = splits.iter().flatten().map(record_bytes).sum();
        note(&format!(
            "generated {} ({:.0} MB) in {seconds:.1} s",
            counted(self.events, "event"),
            bytes as f64 / 1e6,
        ));
        Data { splits, bytes, seconds }
    }

    fn measure(&self, text: &str, data: &Data) -> Result<Run, Failure> {
        let table = MemoryTable::new(schema(), data.splits.clone()).map_err(|e| fail(&e))?;
        let table = Arc::new(table);
        let (stats, seconds) = self.job(text, table.clone(), None)?;
        let peak_rss_bytes = peak_rss_bytes();
        let summing = Arc::new(SummingSink::new(self.settings.workers));
        self.job(text, table, Some(summing.clone()))?;
        let (answer, column) = summing.take();
        let events: Vec<RecordBatch> = data.splits.iter().flatten().cloned().collect();
        // Which windows the rows of q12 are in depends on the clock; their counts do not.
        let ok = match model::answer(&self.query, &events) {
            Some(expected) => expected == answer && expected.rows == stats.rows,
            None => column == i128::from(model::count_bids(&events)),
        };
        let RowSummary { rows, mix } = answer;
        Ok(Run { seconds, rows, mix, ok, peak_rss_bytes, stats })
    }

    /// Runs the query once; returns how long the job took, without planning. Its rows go where the
    /// example says, in a folder of its own, or to a sink instead.
    fn job(
        &self,
        text: &str,
        table: Arc<MemoryTable>,
        sink: Option<Arc<dyn Sink>>,
    ) -> Result<(Stats, f64), Failure> {
        let folder = Folder::new("nexmark")?;
        let (name, text_of_side) = side_input();
        std::fs::write(folder.path().join(name), text_of_side).map_err(|e| fail(&e))?;
        let mut session = Session::new(folder.path());
        *session.settings_mut() = self.settings.clone();
        session.register_source("nexmark", move |_| Ok(table.clone()));
        let script = format!("{TABLES}\n{text}");
        for statement in parse_script(&script, &self.query).map_err(|e| fail(&e))? {
            let Executed::Query(mut planned) = session.execute(&statement).map_err(|e| fail(&e))?
            else {
                continue;
            };
            let mut sinks = planned.take_sinks(|| Arc::new(BlackholeSink::new()));
            if let Some(sink) = &sink {
                sinks.iter_mut().for_each(|own| *own = sink.clone());
            }
            let started = Instant::now();
            let job = Job::new(&planned.plan, &self.settings, sinks).map_err(|e| fail(&e))?;
            let (stats, result) = job.run();
            let seconds = started.elapsed().as_secs_f64();
            return result.map(|()| (stats, seconds)).map_err(|e| fail(&e));
        }
        Err(fail(&format!("{} inserts nothing", self.query)))
    }

    fn head(&self, data: &Data) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
        put("engine", json!("millstream"));
        put("workload", json!(format!("{PREFIX}{}", self.query)));
        put("processes", json!(1));
        put("workers", json!(self.settings.workers));
        put("records", json!(self.events));
        put("input_bytes", json!(data.bytes));
        put("generate_seconds", json!(round(data.seconds, 6)));
        object
    }

    fn object(&self, run: &Run, data: &Data) -> Map<String, Value> {
        let mut object = self.head(data);
        let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
        put("seconds", json!(round(run.seconds, 6)));
        put("mrec_per_s", json!(round(self.events as f64 / run.seconds / 1e6, 3)));
        put("gb_per_s", json!(round(data.bytes as f64 / run.seconds / 1e9, 3)));
        put("result_rows", json!(run.rows));
        put("mix", json!(run.mix));
        put("ok", json!(run.ok));
        put("peak_rss_bytes", json!(run.peak_rss_bytes));
        for (key, value) in provenance::fields() {
            put(key, value);
        }
        for (key, value) in counters(&run.stats) {
            object.entry(key).or_insert(value);
        }
        object
    }

    fn line(&self, run: &Run, data: &Data) -> String {
        format!(
            "{PREFIX}{:<4} {}  {:>8.2} million events/s  {:>6.2} GB/s  {:>8.3} s  {}  answer {}",
            self.query,
            counted(self.settings.workers as u64, "worker"),
            self.events as f64 / run.seconds / 1e6,
            data.bytes as f64 / run.seconds / 1e9,
            run.seconds,
            counted(run.rows, "row"),
            if run.ok { "right" } else { "WRONG" },
        )
    }
}

/// Reduces rows to their number and sum as they come, and adds up the second column, if it is one
/// of whole numbers.
#[derive(Debug)]
struct SummingSink(Vec<Mutex<(RowSummary, i128)>>);

impl SummingSink {
    fn new(workers: usize) -> SummingSink {
        SummingSink((0..workers).map(|_| Mutex::default()).collect())
    }

    fn take(&self) -> (RowSummary, i128) {
        let (mut rows, mut sum) = (RowSummary::default(), 0);
        for part in &self.0 {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            rows.merge(&part.0);
            sum += part.1;
        }
        (rows, sum)
    }
}

impl Sink for SummingSink {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, worker: usize, batch: &RecordBatch, _: bool) -> millstream::Result<()> {
        let mut part = self.0[worker].lock().unwrap_or_else(PoisonError::into_inner);
        part.0.add_batch(batch).map_err(|e| Error::Internal(e.to_string()))?;
        let second = batch.columns().get(1).and_then(|c| c.as_primitive_opt::<Int64Type>());
        part.1 += second.map_or(0, |c| c.iter().flatten().map(i128::from).sum());
        Ok(())
    }
    fn is_local(&self) -> bool {
        true
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}
