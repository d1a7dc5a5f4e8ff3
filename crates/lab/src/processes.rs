//! `millstream-lab bench WORKLOAD --processes P`: every process generates only its share of the
//! data, runs the workload's SQL and keeps checksums of its own rows. The coordinator adds them up
//! and checks the sum.

use std::process::exit;
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use millstream::program::cluster::{
    Cause, Cluster, Early, FabricName, Fault, Guard, Interrupt, Launch, Member, NoPart, Parts,
    Place, ProcessFailure, QueryPart, Setup, Stops, fault, now_us, reader, stats_of, take_part,
};
use millstream::program::{Executed, SessionControl, parse_script};
use millstream::{MemoryTable, OpenOptions, Session, Settings, Split, SplitSpec, Stats, Table};
use millstream_fabric::setup::{Hello, Token};
use millstream_workloads::{
    Answer, Spec, Verifier, Workload, expected, generate_some, oracle, schema, sql,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::{note, usage};
use crate::flow::{FlowMember, FlowTask};
use crate::run::{Run, record_bytes};
use crate::shuffle::ShuffleMember;
use crate::verify::VerifySink;
use crate::{Failure, peak_rss_bytes};

/// The processes of a measured job.
#[derive(Debug, Clone, Copy)]
pub struct Processes {
    /// Their number.
    pub count: usize,
    /// Their connection.
    pub fabric: FabricName,
}

/// The command by which the program starts itself as a further process of a job.
pub const NODE: &str = "node";

/// Start of this program for each process but the first.
pub(crate) fn launch(processes: usize) -> Launch {
    Launch::of_this_program(processes, vec![NODE.into()], Arc::new(|line: &str| note(&line)))
}

/// Ends the program if it does not end by itself soon after a process has failed.
pub(crate) fn guard(interrupt: Interrupt) -> Guard {
    let reasons = interrupt.clone();
    let end = move || {
        interrupt.kill();
        let failure = interrupt.reason().map(Failure::Process);
        exit(failure.map_or(1, |failure| failure.tell()).into());
    };
    Guard::new(move || reasons.reason(), end)
}

/// Takes part in a measured job as a further process, until the job's end.
///
/// # Errors
/// If no job has started this process.
pub fn node() -> Result<(), Failure> {
    take_part(member, Arc::new(|line: &str| note(&line)), exit).map_err(|why| match why {
        NoPart::NotInvited => usage(&"`millstream-lab node` is started by `millstream-lab bench`"),
        NoPart::Thread(_) => usage(&why),
    })
}

fn unreadable(error: serde_json::Error) -> Fault {
    Fault::run(format!("process 0 sends a task that cannot be read: {error}"))
}

/// The part of a further process.
fn member(process: usize, setup: &Setup, token: &Token) -> Result<Box<dyn Member>, Fault> {
    if setup.task.get("flow").is_some() {
        let task: FlowTask = serde_json::from_value(setup.task.clone()).map_err(unreadable)?;
        return Ok(Box::new(FlowMember::new(task, process, token)?));
    }
    if let Value::String(options) = &setup.task {
        let options = options.parse().map_err(Fault::run)?;
        return Ok(Box::new(ShuffleMember::new(&options, process, token)?));
    }
    let task: WorkloadTask = serde_json::from_value(setup.task.clone()).map_err(unreadable)?;
    let place = (process, setup.processes);
    Ok(Box::new(WorkloadMember::new(&task, setup.fabric.parse()?, token, place)?))
}

/// A workload, and what was said about it on the command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkloadTask {
    workload: String,
    records: u64,
    keys: Option<u64>,
    /// As it is written on the command line.
    zipf: Option<String>,
    /// The same.
    window: String,
    /// In the order of precedence.
    settings: Vec<(String, String)>,
}

impl WorkloadTask {
    pub(crate) fn new(spec: &Spec, settings: &[(String, String)]) -> WorkloadTask {
        WorkloadTask {
            workload: spec.workload.name().to_string(),
            records: spec.records,
            keys: spec.keys,
            zipf: spec.zipf.map(|zipf| zipf.exponent().to_string()),
            window: spec.window().to_string(),
            settings: settings.to_vec(),
        }
    }

    fn spec(&self) -> Result<Spec, Fault> {
        let workload = Workload::from_name(&self.workload);
        let workload = workload
            .ok_or_else(|| Fault::run(format!("there is no workload '{}'", self.workload)))?;
        let zipf = self.zipf.as_ref().map(|z| z.parse()).transpose().map_err(Fault::run)?;
        let spec = Spec { records: self.records, keys: self.keys, zipf, ..Spec::new(workload) };
        // `ro` has none.
        match spec.windowed() {
            true => Ok(spec.with_window(self.window.parse().map_err(Fault::run)?)),
            false => Ok(spec),
        }
    }

    fn settings(&self) -> Result<Settings, Fault> {
        let mut settings = Settings::default();
        for (key, value) in &self.settings {
            settings.set(key, value).map_err(Fault::usage)?;
        }
        Ok(settings)
    }
}

/// A process's part in a benchmark.
struct WorkloadMember {
    spec: Spec,
    settings: Settings,
    session: Session,
    input_bytes: usize,
    sink: Arc<VerifySink>,
    part: QueryPart,
}

impl WorkloadMember {
    /// Generates this process's share of the data: the shares of the splits that it reads, of as
    /// many shares as the job has workers.
    fn new(
        task: &WorkloadTask,
        fabric: FabricName,
        token: &Token,
        (process, processes): (usize, usize),
    ) -> Result<WorkloadMember, Fault> {
        let (spec, settings) = (task.spec()?, task.settings()?);
        let workers = settings.workers;
        let all = processes * workers;
        // Splits of other processes stay empty here, and unread.
        let mut splits = vec![Vec::new(); all];
        let mut input_bytes = 0;
        let place = Place { process, processes };
        if let Some((number, readers)) = reader(settings.exchange, place, workers) {
            let of = |number: usize| (number..all).step_by(readers);
            let first: usize = (0..number).map(|before| of(before).len()).sum();
            let shares = first..first + of(number).len();
            let own = generate_some(&spec, all, shares, settings.batch_rows);
            input_bytes = own.iter().flatten().map(record_bytes).sum();
            for (split, batches) in of(number).zip(own) {
                splits[split] = batches;
            }
        }
        let table = MemoryTable::new(schema(spec.workload), splits).map_err(Fault::run)?;
        let described = format!("memory ({} records of {})", spec.records, spec.workload.name());
        let mut session = Session::new(".");
        *session.settings_mut() = settings.clone();
        let event_time = Some(("ts", spec.watermark_delay_ms() as i64 * 1000));
        session
            .register_table(spec.workload.name(), Arc::new(Shares { table, described }), event_time)
            .map_err(Fault::run)?;
        let sink = VerifySink::new(&spec, workers);
        let part = QueryPart::open(fabric, token, process, processes)?;
        Ok(WorkloadMember { spec, settings, session, input_bytes, sink, part })
    }
}

impl Member for WorkloadMember {
    fn execute(&mut self, _statement: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        let statements = parse_script(&sql(&self.spec), "<workload>").map_err(Fault::run)?;
        let mut last = None;
        for statement in &statements {
            if let Executed::Query(query) = self.session.execute(statement).map_err(Fault::run)? {
                last = Some(*query);
            }
        }
        let planned = last.ok_or_else(|| Fault::run("the workload has no query"))?;
        let parts = self.part.plan(planned, &self.settings, vec![self.sink.clone()], start_us);
        parts.map(Some).map_err(Fault::usage)
    }

    fn prepare(&mut self, splits: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        self.part.prepare(splits)
    }

    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        self.part.connect(&hellos)
    }

    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        let (stats, result) = self.part.run(stops);
        if let Err(error) = result {
            return (Value::Null, Err(fault(error)));
        }
        let peak_rss_bytes = peak_rss_bytes();
        let mut all = Verifier::new(&self.spec);
        self.sink.add_to(&mut all);
        let Answer { result_rows, checksum, mix, avg_sum } = all.answer();
        let answer = Report { result_rows, checksum, mix, avg_sum_bits: avg_sum.map(f64::to_bits) };
        let end = End { answer, peak_rss_bytes, input_bytes: self.input_bytes };
        (json!({ "stats": stats, "end": end }), Ok(()))
    }

    fn commit(&mut self) -> Result<(), Fault> {
        self.part.commit()
    }
}

/// A process's report of its answer and of its memory.
#[derive(Serialize, Deserialize)]
struct End {
    answer: Report,
    peak_rss_bytes: u64,
    input_bytes: usize,
}

#[derive(Serialize, Deserialize)]
struct Report {
    result_rows: u64,
    checksum: u64,
    mix: u64,
    /// As bits: text would round it.
    avg_sum_bits: Option<u64>,
}

impl Report {
    fn answer(&self) -> Answer {
        let Report { result_rows, checksum, mix, avg_sum_bits } = *self;
        Answer { result_rows, checksum, mix, avg_sum: avg_sum_bits.map(f64::from_bits) }
    }
}

/// This process's share of the records, described as all processes do.
#[derive(Debug)]
struct Shares {
    table: MemoryTable,
    described: String,
}

impl Table for Shares {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }
    fn bounded(&self) -> bool {
        self.table.bounded()
    }
    fn open(
        &self,
        projection: &[usize],
        options: &OpenOptions,
    ) -> millstream::Result<Vec<Box<dyn Split>>> {
        self.table.open(projection, options)
    }
    fn describe(&self, _projection: &[usize]) -> String {
        self.described.clone()
    }
}

/// Runs a workload on several processes.
pub(crate) fn run(task: &WorkloadTask, processes: Processes) -> Result<Run, Failure> {
    let watch = |interrupt| Ok(guard(interrupt));
    let ran = launch(processes.count).run(watch, |cluster| lead(cluster, task, processes));
    ran.map_err(|early| match early {
        Early::Failed(reason, _) => Failure::Process(reason),
        Early::Own(failure) => failure,
    })
}

fn lead(
    cluster: &Cluster,
    task: &WorkloadTask,
    processes: Processes,
) -> Result<Run, Early<Failure>> {
    let mut own = None;
    let fabric = processes.fabric;
    let started = Instant::now();
    cluster.set_up(fabric.name(), &json!(task), || {
        let place = (0, processes.count);
        own = Some(WorkloadMember::new(task, fabric, cluster.token(), place)?);
        Ok(())
    })?;
    let Some(own) = &mut own else {
        return Err(ProcessFailure::new(0, Cause::Rubbish("no workload".into())).into());
    };
    note(&format!("generated in {:.1} s", started.elapsed().as_secs_f64()));
    cluster.execute(own, 0, now_us())?;
    cluster.connect(own)?;
    // From here, where all are connected, until all are done.
    let started = Instant::now();
    let ends = cluster.run(own)?;
    let seconds = started.elapsed().as_secs_f64();
    let (mut stats, mut all) = (Stats::default(), Verifier::new(&own.spec));
    let (mut peak_rss_bytes, mut input_bytes) = (0, 0);
    for (process, end) in ends.iter().enumerate() {
        stats.add_process(&stats_of(process, end)?);
        let end: End = serde_json::from_value(end["end"].clone()).map_err(|e| {
            let what = format!("an answer that cannot be read: {e}");
            ProcessFailure::new(process, Cause::Rubbish(what))
        })?;
        all.add_answer(&end.answer.answer());
        peak_rss_bytes += end.peak_rss_bytes;
        input_bytes += end.input_bytes;
    }
    let answer = all.answer();
    let ok = answer == expected(&own.spec).unwrap_or_else(|| oracle(&own.spec));
    Ok(Run { seconds, input_bytes, peak_rss_bytes, answer, ok, stats: Some(stats) })
}
