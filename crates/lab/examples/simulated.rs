//! A workload on several processes, simulated on one thread: shows what a job of more processes
//! than this machine can run does, and how long that takes to simulate.
//!
//!     cargo run --release -p millstream-lab --example simulated -- cm 8 4 8000000
//!
//! Arguments: the workload, the number of processes, workers of each, records, and a seed (1).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream::program::{Executed, SessionControl, parse_script};
use millstream::{Error, MemoryTable, RowOrder, Session, Settings, Sink, Stats, Writers, arrow};
use millstream_engine::simulation::{Scenario, simulate};
use millstream_workloads::{Spec, Verifier, Workload, generate, oracle, schema, sql};

/// Reduces the rows of all workers to checksums.
#[derive(Debug)]
struct Checksums(Mutex<Verifier>);

impl Sink for Checksums {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> millstream::Result<()> {
        let mut verifier = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        verifier.add_batch(rows).map_err(|e| Error::Internal(e.to_string()))
    }
    fn is_local(&self) -> bool {
        true
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| {
        arguments.get(at).map_or(usual, |text| text.parse().expect("a number"))
    };
    let name = arguments.first().map_or("cm", String::as_str);
    let workload = Workload::from_name(name).expect("a workload");
    let (processes, workers) = (number(1, 8) as usize, number(2, 4) as usize);
    let spec = Spec { records: number(3, 1_000_000), ..Spec::new(workload) };
    let mut settings = Settings { workers, ..Settings::default() };
    settings.memory_bytes /= processes as u64;

    let splits = generate(&spec, processes * workers, settings.batch_rows);
    let table = MemoryTable::new(schema(workload), splits).expect("its own schema");
    let mut session = Session::new(".");
    *session.settings_mut() = settings.clone();
    let delay_us = spec.watermark_delay_ms() as i64 * 1000;
    session.register_table(name, Arc::new(table), Some(("ts", delay_us))).expect("a new table");
    let statements = parse_script(&sql(&spec), "workload.sql").expect("a script");
    let plan = match session.execute(&statements[0]).expect("a query") {
        Executed::Query(planned) => planned.plan,
        _ => panic!("the workload has no query"),
    };

    let sink = || Arc::new(Checksums(Mutex::new(Verifier::new(&spec))));
    let sinks: Vec<Arc<Checksums>> = (0..processes).map(|_| sink()).collect();
    let given: Vec<Vec<Arc<dyn Sink>>> =
        sinks.iter().map(|sink| vec![sink.clone() as Arc<dyn Sink>]).collect();
    let usual = Scenario::from_seed(number(4, 1), processes);
    let (channels, latency) = (Default::default(), Duration::from_micros(10));
    let scenario = Scenario { channels, latency, slowness: vec![1; processes], ..usual };
    let started = Instant::now();
    let (outcomes, _) = simulate(&plan, &settings, &given, &scenario).expect("a job");
    let seconds = started.elapsed().as_secs_f64();

    let mut stats = Stats::default();
    for outcome in outcomes {
        let (of_process, result) = outcome.expect("no process is killed");
        result.expect("an end");
        stats.add_process(&of_process);
    }
    let mut all = Verifier::new(&spec);
    for sink in sinks {
        all.merge(&sink.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let is_right = all.answer() == oracle(&spec);
    println!(
        "{name}, {processes} x {workers} workers, {} records: {seconds:.2} s, {} epochs, {} \
         messages, {} segments, {} rows, answer {}",
        spec.records,
        stats.epochs,
        stats.messages_sent,
        stats.segments_shipped,
        stats.rows,
        if is_right { "right" } else { "WRONG" }
    );
    assert!(is_right, "a wrong answer");
}
