//! Tests in which one process's part of a query differs from the others' in a single thing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream::program::cluster::{
    Cause, Cluster, FabricName, Fault, Invitation, Loopback, Member, Node, Parts, ProcessFailure,
    QueryPart, Stops, fault,
};
use millstream::program::{Executed, SessionControl, parse_script};
use millstream::{CollectSink, RowOrder, Session, Sink};
use millstream_contract::table::{
    OpenOptions, Position, Sharing, Split, SplitPoll, SplitSpec, Table,
};
use millstream_fabric::setup::{Hello, Token};
use serde_json::{Value, json};

use super::job::{End, Lines, elsewhere};

/// What a process is about to run.
#[derive(Clone)]
struct Task {
    /// `None` is this program's.
    version: Option<&'static str>,
    sql: String,
    /// Whether the table's values can be NULL.
    nullable: bool,
    fabric: FabricName,
    settings: Vec<(&'static str, &'static str)>,
    /// Names of the table's splits, and bytes in them.
    splits: Vec<(String, Option<u64>)>,
    /// Chunks in each of them.
    chunks: usize,
    sharing: Sharing,
    /// Before the last of them.
    pause: Pause,
}

/// Before a split goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pause {
    None,
    /// It has nothing for a while.
    Source(Duration),
    /// A step takes long.
    Step(Duration),
}

impl Task {
    fn new() -> Task {
        Task {
            version: None,
            sql: "SELECT k, SUM(v) AS total FROM input GROUP BY k".into(),
            nullable: false,
            fabric: FabricName::Shm,
            settings: vec![("workers", "1"), ("memory", "16MB")],
            splits: vec![("a.csv".into(), Some(10)), ("b.csv".into(), None)],
            chunks: 1,
            sharing: Sharing::Whole,
            pause: Pause::None,
        }
    }
}

/// A table that counts how often it is read.
#[derive(Debug, Clone)]
struct Input {
    schema: SchemaRef,
    splits: Vec<(String, Option<u64>)>,
    chunks: usize,
    sharing: Sharing,
    pause: Pause,
    reads: Arc<AtomicU64>,
}

struct InputSplit {
    name: String,
    extent: Option<u64>,
    batches: Vec<RecordBatch>,
    sharing: Sharing,
    pause: Pause,
    opened: Instant,
    reads: Arc<AtomicU64>,
}

impl Split for InputSplit {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn extent(&self) -> Option<u64> {
        self.extent
    }
    fn sharing(&self) -> Sharing {
        self.sharing
    }
    fn poll_next(&mut self, now_us: i64, _: &Waker) -> millstream::Result<SplitPoll> {
        match self.pause {
            _ if self.batches.len() != 1 => {}
            Pause::Source(pause) if self.opened.elapsed() < pause => {
                return Ok(SplitPoll::Pending { retry_at_us: Some(now_us + 20_000) });
            }
            Pause::Step(pause) => thread::sleep(pause),
            Pause::None | Pause::Source(_) => {}
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        let batch = self.batches.pop();
        Ok(batch.map_or(SplitPoll::Ended, |batch| SplitPoll::Chunk(Box::new(batch))))
    }
}

impl Table for Input {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, _: &[usize], _: &OpenOptions) -> millstream::Result<Vec<Box<dyn Split>>> {
        let column = || Arc::new(Int64Array::from(vec![1, 2, 3])) as _;
        let batch = RecordBatch::try_new(self.schema.clone(), vec![column(), column()]).unwrap();
        let open = |(name, extent): &(String, Option<u64>)| -> Box<dyn Split> {
            Box::new(InputSplit {
                name: name.clone(),
                extent: *extent,
                batches: vec![batch.clone(); self.chunks],
                sharing: self.sharing,
                pause: self.pause,
                opened: Instant::now(),
                reads: self.reads.clone(),
            })
        };
        Ok(self.splits.iter().map(open).collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "counted".into()
    }
    fn splits(&self) -> millstream::Result<Vec<SplitSpec>> {
        let spec = |(name, length): &(String, Option<u64>)| {
            let (name, file, packed) = (name.clone(), None, false);
            length.map(|length| SplitSpec { name, length: Some(length), file, packed })
        };
        Ok(self.splits.iter().filter_map(spec).collect())
    }
    /// Who has more than that has a file that has grown.
    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        let (mut input, mut told) = (self.clone(), splits.iter());
        for extent in input.splits.iter_mut().filter_map(|(_, extent)| extent.as_mut()) {
            let found = told.next().and_then(|spec| spec.length);
            *extent = found.map_or(*extent, |found| found.min(*extent));
        }
        Some(Arc::new(input))
    }
}

struct Process {
    task: Task,
    session: Session,
    part: QueryPart,
    sink: Arc<CollectSink>,
}

impl Process {
    fn new(
        task: Task,
        token: &Token,
        (process, processes): (usize, usize),
        reads: &Arc<AtomicU64>,
    ) -> Result<Process, Fault> {
        let part = QueryPart::open(task.fabric, token, process, processes)?;
        let mut session = Session::new(".");
        for (key, value) in &task.settings {
            session.set(key, value).map_err(Fault::usage)?;
        }
        let fields = vec![
            Field::new("k", DataType::Int64, false),
            Field::new("v", DataType::Int64, task.nullable),
        ];
        let input = Input {
            schema: Arc::new(Schema::new(fields)),
            splits: task.splits.clone(),
            chunks: task.chunks,
            sharing: task.sharing,
            pause: task.pause,
            reads: reads.clone(),
        };
        session.register_table("input", Arc::new(input), None).map_err(Fault::run)?;
        let sink = Arc::new(CollectSink::new(RowOrder::Deterministic));
        Ok(Process { task, session, part, sink })
    }
}

/// Parts of a program of another version.
fn with_version(parts: &Parts, version: &str) -> Parts {
    let mut all = serde_json::to_value(parts).unwrap();
    let is_version = |part: &&mut Value| part[0] == "version";
    let part = all.as_array_mut().unwrap().iter_mut().find(is_version).expect("a version");
    part[1] = json!(version);
    serde_json::from_value(all).unwrap()
}

impl Member for Process {
    fn execute(&mut self, _: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        let statements = parse_script(&self.task.sql, "<sql>").map_err(Fault::usage)?;
        let Executed::Query(planned) =
            self.session.execute(&statements[0]).map_err(Fault::usage)?
        else {
            return Err(Fault::usage("no query"));
        };
        let sink: Arc<dyn Sink> = self.sink.clone();
        let parts = self.part.plan(*planned, self.session.settings(), vec![sink], start_us);
        let parts = parts.map_err(Fault::usage)?;
        Ok(Some(match self.task.version {
            Some(version) => with_version(&parts, version),
            None => parts,
        }))
    }
    fn splits(&mut self) -> Result<Vec<Vec<SplitSpec>>, Fault> {
        self.part.splits()
    }

    fn prepare(&mut self, splits: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        self.part.prepare(splits)
    }
    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        self.part.connect(&hellos)
    }
    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        (json!(null), self.part.run(stops).1.map_err(fault))
    }
    fn commit(&mut self) -> Result<(), Fault> {
        self.part.commit()
    }
}

/// Runs a job whose processes run `tasks`: how it ended, how it did for the others, and how often
/// something was read.
fn run(tasks: &[Task]) -> (Result<usize, ProcessFailure>, Vec<End>, u64) {
    run_for(tasks, None)
}

/// As [`run`], and after so long in which nothing happens it is stuck.
fn run_for(
    tasks: &[Task],
    patience: Option<Duration>,
) -> (Result<usize, ProcessFailure>, Vec<End>, u64) {
    let (reads, processes) = (Arc::new(AtomicU64::new(0)), tasks.len());
    let cluster = Cluster::open(Arc::new(Loopback), processes, Lines::default().log()).unwrap();
    patience.into_iter().for_each(|patience| cluster.set_patience(patience));
    let mut others = Vec::new();
    let started = cluster.start(&elsewhere(processes, |invitations: &[Invitation]| {
        for (invitation, task) in invitations.iter().zip(&tasks[1..]) {
            let (invitation, task, reads) = (invitation.clone(), task.clone(), reads.clone());
            others.push(thread::spawn(move || {
                let place = (invitation.process, processes);
                let node = Node::join(&Loopback, &invitation)?;
                node.serve(|_, _| Process::new(task, &invitation.token, place, &reads))
            }));
        }
    }));
    started.unwrap();
    let lead = || {
        cluster.set_up("as each likes", &json!(null), || Ok(()))?;
        let own = Process::new(tasks[0].clone(), cluster.token(), (0, processes), &reads);
        let mut own = own.map_err(|fault| ProcessFailure::new(0, Cause::Fault(fault)))?;
        assert!(cluster.execute(&mut own, 0, 17)?);
        cluster.connect(&mut own)?;
        cluster.run(&mut own)?;
        Ok(own.sink.take().iter().map(RecordBatch::num_rows).sum())
    };
    let ended = match lead() {
        Ok(rows) => cluster.end().map(|()| rows),
        Err(failure) => Err(cluster.give_up(failure).0),
    };
    let others = others.into_iter().map(|other| other.join().unwrap()).collect();
    (ended, others, reads.load(Ordering::SeqCst))
}

/// One process's task is changed: in every process the job is refused with the thing named, what
/// process 0 has of it, and what the one that differs; nothing is read anywhere.
fn refused(what: &str, change: impl Fn(&mut Task), usual: &str, changed: &str) {
    for differing in 0..3 {
        let mut tasks = vec![Task::new(); 3];
        change(&mut tasks[differing]);
        let (ended, others, reads) = run(&tasks);
        let failure = ended.expect_err("it ran");
        // All are compared with process 0: if that differs, process 1 is the first that does.
        let (named, first, second) = match differing {
            0 => (1, changed, usual),
            process => (process, usual, changed),
        };
        let expected = format!(
            "process {named} does not run what process 0 runs: not the same {what}\n  \
             process 0: {first}\n  it: {second}"
        );
        assert_eq!(failure.to_string(), expected);
        assert_eq!(reads, 0, "something was read");
        for end in others {
            assert_eq!(end.unwrap_err(), failure);
        }
    }
}

#[test]
fn processes_that_are_alike_run() {
    let (ended, others, reads) = run(&vec![Task::new(); 3]);
    assert_eq!(ended.unwrap(), 3);
    assert!(others.into_iter().all(|end| end.is_ok()));
    assert_eq!(reads, 4, "a batch and an end from each of two splits");
}

/// Processes that do not find the same chunks would wait for each other for ever.
#[test]
fn a_query_that_is_stuck_ends_and_says_what_each_process_waits_for() {
    let shared = Task { sharing: Sharing::ByChunk, chunks: 6, ..Task::new() };
    let mut tasks = vec![shared; 3];
    tasks[1].chunks = 4;
    let (ended, others, _) = run_for(&tasks, Some(Duration::from_millis(500)));
    let failure = ended.expect_err("it ended");
    let words = failure.to_string();
    for process in [0, 2] {
        let waits = format!("process {process} waits for word of chunk 4 of ");
        assert!(words.contains(&waits), "{words}");
    }
    let expected = "the query is stuck: process 0 waits for word of chunk 4 of ";
    assert!(words.starts_with(expected) && words.contains(", which process 1 decodes"), "{words}");
    let done = "process 1 waits for what other processes have yet to merge and to announce";
    assert!(words.contains(done), "{words}");
    assert!(others.into_iter().all(|end| end.unwrap_err() == failure));
}

#[test]
fn a_query_that_waits_for_a_source_or_a_long_step_is_not_stuck() {
    let patience = Duration::from_secs(1);
    for pause in [Pause::Source(3 * patience), Pause::Step(3 * patience)] {
        for sharing in [Sharing::Whole, Sharing::ByChunk] {
            let mut tasks = vec![Task { sharing, chunks: 4, ..Task::new() }; 3];
            tasks[1].pause = pause;
            let (ended, ..) = run_for(&tasks, Some(patience));
            assert_eq!(ended.unwrap(), 3, "{pause:?} {sharing:?}");
        }
    }
}

#[test]
fn another_version_is_refused() {
    let own = env!("CARGO_PKG_VERSION");
    refused("version", |task| task.version = Some("999.0.0"), own, "999.0.0");
}

#[test]
fn another_plan_is_refused() {
    let least = |task: &mut Task| task.sql = task.sql.replace("SUM", "MIN");
    let plan = |function| format!("Projection: input.k, {function}(input.v) AS total");
    refused("plan", least, &plan("sum"), &plan("min"));
}

/// The plan does not show whether there may be NULLs, which decides how state is laid out.
#[test]
fn another_schema_is_refused() {
    let shown = |may: &str| format!("input: Field {{ \"v\": {may}Int64 }}");
    refused("schema", |task| task.nullable = true, &shown(""), &shown("nullable "));
}

#[test]
fn another_fabric_is_refused() {
    refused("fabric", |task| task.fabric = FabricName::Tcp, "shm", "tcp");
}

/// Every setting is compared, and named.
#[test]
fn other_settings_are_refused() {
    let auto = "max_ahead: Auto,";
    for (key, value, usual, changed) in [
        ("workers", "2", "workers: 1,", "workers: 2,"),
        ("memory", "32MB", "memory_bytes: 16777216,", "memory_bytes: 33554432,"),
        ("epoch.bytes", "7", "epoch_bytes: 67108864,", "epoch_bytes: 7,"),
        ("epoch.max_idle_ms", "7", "epoch_max_idle_ms: 100,", "epoch_max_idle_ms: 7,"),
        ("fragment.bytes", "7", "fragment_bytes: 8388608,", "fragment_bytes: 7,"),
        ("fragment.mode", "aggregate", "fragment_mode: Auto,", "fragment_mode: Aggregate,"),
        ("batch.rows", "7", "batch_rows: 16384,", "batch_rows: 7,"),
        ("watermark.max_ahead", "7 s", auto, "max_ahead: Us(7000000),"),
        ("watermark.max_ahead", "none", auto, "max_ahead: Unlimited,"),
        ("allowed_lateness", "7 s", "allowed_lateness_us: 0,", "allowed_lateness_us: 7000000,"),
        ("join.within", "7 s", "join_within_us: None,", "join_within_us: Some(7000000),"),
        ("exchange", "repartition", "exchange: LateMerge,", "exchange: Repartition,"),
    ] {
        refused("settings", |task| task.settings.push((key, value)), usual, changed);
    }
}

#[test]
fn other_splits_are_refused() {
    refused("splits", |task| task.splits[1].0 = "c.csv".into(), "b.csv", "c.csv");
    refused("splits", |task| task.splits.truncate(1), "b.csv", "(nothing)");
}

/// Process 0 tells how much of a file is read: one that has grown since is read as far, one that is
/// shorter is another file.
#[test]
fn all_read_as_much_as_process_0_has_found() {
    let found = |bytes: [u64; 3]| {
        let task = |bytes| Task { splits: vec![("a.csv".into(), Some(bytes))], ..Task::new() };
        run(&bytes.map(task)).0
    };
    assert_eq!(found([10, 11, 12]).unwrap(), 3);
    let words = found([10, 11, 9]).unwrap_err().to_string();
    assert!(words.starts_with("process 2 does not run what process 0 runs: not the same splits"));
    assert!(words.contains("a.csv (10 bytes)") && words.contains("a.csv (9 bytes)"), "{words}");
}
