//! `millstream run --processes P`: the statements of a script on several processes of this machine.

use std::io::sink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millstream::cluster::{
    Cause, Cluster, FabricName, Failure as Reason, Fault, FaultKind, Member, Parts, Program,
    QueryPart, Stops, WORKERS_MAX, check_settings, fault, raise_open_files,
};
use millstream::{
    Error, ErrorKind, Executed, Extent, Session, Settings, Sink, SqlError, Statement, Stats,
    parse_script,
};
use millstream_fabric::setup::{Hello, Token};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::run::{
    Text, check_stats_path, fail, failed, harmless, note, print, read_script, rehearse,
    setting_pairs, text_sink, text_sink_to, usage, write_stats,
};
use crate::watch::{Guard, stop_on_signals};
use crate::{Failure, Output, ProcessArguments, SettingArguments, report};

/// What process 0 tells the others to do.
#[derive(Serialize, Deserialize)]
pub(crate) enum Task {
    /// The statements of a script.
    Script(ScriptTask),
    /// A benchmark workload.
    Bench(crate::bench_processes::BenchTask),
}

/// A script, and what was said about it on the command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScriptTask {
    name: String,
    text: String,
    base_dir: PathBuf,
    /// Whether it was read from the standard input of process 0.
    standard_input: bool,
    output: Output,
    /// Settings that hold where neither the script nor the command line says otherwise.
    defaults: Vec<(String, String)>,
    /// Settings of the command line, which outlast `SET` in the script.
    settings: Vec<(String, String)>,
}

/// A process's part in running a script.
pub(crate) struct Script {
    session: Session,
    statements: Vec<Statement>,
    settings: Vec<(String, String)>,
    output: Output,
    process: usize,
    part: QueryPart,
    /// What `EXPLAIN` answered.
    explained: Option<String>,
    /// Why the last statement failed here, in full.
    failure: Option<millstream::Failure>,
    /// Counters of the last query here.
    stats: Option<Stats>,
}

impl Script {
    pub(crate) fn new(
        task: &ScriptTask,
        fabric: FabricName,
        token: &Token,
        (process, processes): (usize, usize),
    ) -> Result<Script, Fault> {
        let statements = parse_script(&task.text, &task.name).map_err(|e| sql_fault(&e))?;
        let mut session = Session::new(&task.base_dir);
        for (key, value) in &task.defaults {
            session.set(key, value).map_err(Fault::usage)?;
        }
        if process != 0 {
            session.read_nothing_once();
        } else if task.standard_input {
            session.script_from_standard_input();
        }
        let output = task.output;
        session.print_to(move || rows_sink(process, output));
        Ok(Script {
            session,
            statements,
            settings: task.settings.clone(),
            output,
            process,
            part: QueryPart::open(fabric, token, process, processes)?,
            explained: None,
            failure: None,
            stats: None,
        })
    }

    /// Keeps a failure, to be told in full by this process.
    fn note(&mut self, failure: millstream::Failure) -> Fault {
        let told = match &failure {
            millstream::Failure::Sql(error) => sql_fault(error),
            millstream::Failure::Run(error) => fault(error.clone()),
        };
        self.failure = Some(failure);
        told
    }
}

/// What cannot be planned is a mistake of the user, or a matter of this process's machine.
fn sql_fault(error: &SqlError) -> Fault {
    match error.kind {
        ErrorKind::System => Fault::run(error),
        _ => Fault::usage(error),
    }
}

/// Where rows of this process go: those of process 0 to stdout, and all others send theirs there.
fn rows_sink(process: usize, output: Output) -> Arc<dyn Sink> {
    match process {
        0 => text_sink(output),
        _ => text_sink_to(output, Box::new(sink()), None),
    }
}

impl Member for Script {
    fn execute(&mut self, statement: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        for (key, value) in &self.settings {
            self.session.set(key, value).map_err(Fault::usage)?;
        }
        self.session.set_start_time_us(start_us);
        let Some(statement) = self.statements.get(statement) else {
            return Err(Fault::run("process 0 asks for a statement that the script does not have"));
        };
        match self.session.execute(statement) {
            Err(failure) => Err(self.note(failure)),
            Ok(Executed::Done) => Ok(None),
            Ok(Executed::Explained(text)) => {
                self.explained = Some(text);
                Ok(None)
            }
            Ok(Executed::Query(mut planned)) => {
                let sink =
                    planned.sink.take().unwrap_or_else(|| rows_sink(self.process, self.output));
                let settings = self.session.settings();
                let parts = self.part.plan(*planned, settings, sink, start_us);
                parts.map(Some).map_err(|e| self.note(self.session.refuse_setting(e).into()))
            }
        }
    }

    fn extents(&mut self) -> Result<Vec<Extent>, Fault> {
        self.part.extents()
    }

    fn prepare(&mut self, extents: &[Extent]) -> Result<Vec<Vec<Hello>>, Fault> {
        self.part.prepare(extents)
    }

    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        let parts = self.part.connect(&hellos)?;
        // All processes read the same.
        if self.process == 0 {
            self.part.remarks().iter().for_each(|remark| note(remark));
        }
        Ok(parts)
    }

    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        let (stats, result) = self.part.run(stops);
        let told = json!({ "stats": stats });
        self.stats = Some(stats);
        (told, result.map_err(|error| self.note(millstream::Failure::Run(error))))
    }

    fn commit(&mut self) -> Result<(), Fault> {
        self.part.commit()
    }
}

/// Runs a script on several processes.
pub(crate) fn run(
    script: &crate::Script,
    output: Output,
    stats_json: Option<&Path>,
    processes: &ProcessArguments,
    settings: &SettingArguments,
) -> Result<(), Failure> {
    let Text { name, text, base_dir, standard_input } = read_script(script)?;
    let pairs = setting_pairs(settings)?;
    let task = ScriptTask {
        name,
        text,
        base_dir,
        standard_input,
        output,
        defaults: default_settings(processes.count()),
        settings: pairs,
    };
    let mut known = Settings::default();
    for (key, value) in task.defaults.iter().chain(&task.settings) {
        known.set(key, value).map_err(|e| usage(&e))?;
    }
    check_settings(processes.count(), &known).map_err(|e| usage(&e))?;
    let statements =
        parse_script(&task.text, &task.name).map_err(|e| failed(millstream::Failure::Sql(e)))?;
    if let Some(path) = stats_json {
        check_stats_path(path)?;
    }
    if statements.is_empty() {
        note(&format!("there is no statement in {}", task.name));
        return write_stats(stats_json, &[]);
    }
    let mut session = Session::new(&task.base_dir);
    if task.standard_input {
        session.script_from_standard_input();
    }
    for (key, value) in &task.defaults {
        session.set(key, value).map_err(|e| usage(&e))?;
    }
    rehearse(&session, &statements, &task.settings, processes.count())?;
    let statements = statements.len();
    let mut all = Vec::new();
    let mut own = None;
    let lead = |cluster: &Cluster| {
        drive(cluster, processes, task, statements, &mut own, |stats| {
            note(&report::closing_line(&stats, false, false));
            all.push(stats);
            write_stats(stats_json, &all)
        })
    };
    let (cluster, done) = start(processes.count(), lead)?;
    finish(cluster, done, |reason, others| {
        let own = own.as_mut();
        if let Some(mut stats) = own.as_ref().and_then(|own| own.stats.clone()) {
            // As far as it got. Who was killed has told nothing.
            let mut silent = Vec::new();
            for (told, process) in others.iter().zip(1..) {
                match told.as_ref().map(|end| stats_of(process, end)) {
                    Some(Ok(theirs)) => stats.add_process(&theirs),
                    _ => silent.push(process.to_string()),
                }
            }
            let mut line =
                report::closing_line(&stats, false, matches!(reason.cause, Cause::Interrupted));
            if !silent.is_empty() {
                line += &format!(", without those of process {}", silent.join(", "));
            }
            note(&line);
            all.push(stats);
            write_stats(stats_json, &all)?;
        }
        match own.and_then(|own| own.failure.take()) {
            Some(millstream::Failure::Sql(error))
                if reason.process == 0 && error.kind != ErrorKind::System =>
            {
                Err(failed(millstream::Failure::Sql(error)))
            }
            Some(millstream::Failure::Run(error @ Error::Option { .. })) if reason.process == 0 => {
                Err(failed(millstream::Failure::Run(error)))
            }
            _ => Err(tell(reason)),
        }
    })?;
    // Queries have left theirs, and a named pipe's reader goes away after the first.
    if all.is_empty() { write_stats(stats_json, &all) } else { Ok(()) }
}

/// Why a job on several processes has ended early.
pub(crate) enum Early {
    /// A process has failed.
    Reason(Reason),
    /// The program itself, which has told it.
    Told(Failure),
}

impl From<Reason> for Early {
    fn from(reason: Reason) -> Early {
        Early::Reason(reason)
    }
}

fn drive(
    cluster: &Cluster,
    processes: &ProcessArguments,
    task: ScriptTask,
    statements: usize,
    own: &mut Option<Script>,
    mut ended: impl FnMut(Stats) -> Result<(), Failure>,
) -> Result<(), Early> {
    let fabric = processes.fabric().library();
    let told = serde_json::to_value(Task::Script(task.clone())).map_err(|e| {
        // The only thing in it that may be no text is a path.
        Early::Told(usage(&format!(
            "{}: the other processes cannot be told where the script is: {e}\n  help: give its \
             folder a name in UTF-8, or use --processes 1",
            task.base_dir.display()
        )))
    })?;
    cluster.set_up(fabric.name(), &told, || {
        let place = (0, processes.count());
        *own = Some(Script::new(&task, fabric, cluster.token(), place)?);
        Ok(())
    })?;
    let Some(own) = own else { return Ok(()) };
    for statement in 0..statements {
        if !cluster.execute(own, statement, now_us())? {
            if let Some(text) = own.explained.take() {
                print(&harmless(&text)).map_err(Early::Told)?;
            }
            continue;
        }
        cluster.connect(own)?;
        let ends = cluster.run(own)?;
        let mut total = Stats::default();
        for (process, end) in ends.iter().enumerate() {
            total.add_process(&stats_of(process, end)?);
        }
        own.stats = None;
        ended(total).map_err(Early::Told)?;
    }
    Ok(())
}

/// The counters that a process has told.
pub(crate) fn stats_of(process: usize, end: &Value) -> Result<Stats, Reason> {
    serde_json::from_value(end["stats"].clone()).map_err(|e| {
        let what = format!("counters that cannot be read: {e}");
        Reason::new(process, Cause::Rubbish(what))
    })
}

/// Microseconds since the epoch.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64
}

/// Each process takes its share of the machine.
pub(crate) fn default_settings(processes: usize) -> Vec<(String, String)> {
    let whole = Settings::default();
    let workers = (whole.workers / processes).clamp(1, WORKERS_MAX / processes);
    // What no process may go below.
    let memory = (whole.memory_bytes / processes as u64).max(16 << 20);
    vec![("workers".into(), workers.to_string()), ("memory".into(), memory.to_string())]
}

/// Starts the other processes of a job, and lets `lead` lead them through it. Whatever it waits
/// for, a failure and Ctrl-C end it.
pub(crate) fn start(
    processes: usize,
    lead: impl FnOnce(&Cluster) -> Result<(), Early>,
) -> Result<(Cluster, Result<(), Early>), Failure> {
    let path = std::env::current_exe()
        .map_err(|e| fail(&format!("cannot find this program, to start it again: {e}")))?;
    let program = Program { path, arguments: vec!["node".into()] };
    // A job that needs more than it may have says so when it does.
    let _ = raise_open_files();
    let log = Arc::new(|line: &str| note(&line));
    let cluster = Cluster::open(processes, log).map_err(|reason| tell(&reason))?;
    stop_on_signals(cluster.interrupt())?;
    let guard = Guard::of_asker(cluster.interrupt());
    let started = cluster.start(Some(&program), |_| {}).map_err(Early::Reason);
    let done = started.and_then(|()| lead(&cluster));
    drop(guard);
    Ok((cluster, done))
}

/// Ends all processes, and tells with `why` if the job has ended early: given are the reason, and
/// what each of the other processes told of how far it got.
pub(crate) fn finish(
    cluster: Cluster,
    done: Result<(), Early>,
    why: impl FnOnce(&Reason, &[Option<Value>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match done {
        Ok(()) => cluster.end().map_err(|reason| tell(&reason)),
        Err(Early::Reason(reason)) => {
            let (reason, others) = cluster.give_up(reason);
            why(&reason, &others)
        }
        Err(Early::Told(failure)) => {
            let _ = cluster.end();
            Err(failure)
        }
    }
}

/// Prints why a job has ended early.
pub(crate) fn tell(reason: &Reason) -> Failure {
    match &reason.cause {
        Cause::Interrupted => Failure::Interrupted,
        Cause::Fault(Fault { kind: FaultKind::Usage, message }) if reason.process == 0 => {
            usage(message)
        }
        Cause::Fault(Fault { kind: FaultKind::Usage, .. }) => usage(reason),
        _ => fail(reason),
    }
}
