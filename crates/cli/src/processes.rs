//! `millstream run --processes P`: the statements of a script on several processes of this machine.

use std::any::Any;
use std::io::sink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream::cluster::{
    Cause, Cluster, Early, FabricName, Failure as Reason, Fault, Interrupt, Launch, Member, Parts,
    Program, QueryPart, Stops, check_settings, fault, now_us, shared_settings, stats_of,
};
use millstream::{
    Error, ErrorKind, Executed, Extent, Session, Settings, Sink, SqlError, Statement, Stats,
    harmless, parse_script,
};
use millstream_fabric::setup::{Hello, Token};
use millstream_lab::processes::WorkloadTask;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::console::{fail, failed, note, print, tell, usage};
use crate::run::{
    Text, check_stats_path, read_script, setting_pairs, text_sink, text_sink_to, write_stats,
};
use crate::watch::{Guard, stop_on_signals};
use crate::{Failure, Output, ProcessArguments, SettingArguments, report};

/// What process 0 tells the others to do.
#[derive(Serialize, Deserialize)]
pub(crate) enum Task {
    /// The statements of a script.
    Script(ScriptTask),
    /// A benchmark workload.
    Bench(WorkloadTask),
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
        for (key, value) in &task.settings {
            session.fix_setting(key, value).map_err(Fault::usage)?;
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
            other => Fault::run(other),
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
                let mut sinks = std::mem::take(&mut planned.sinks);
                if sinks.is_empty() {
                    sinks.push(rows_sink(self.process, self.output));
                }
                let settings = self.session.settings();
                let parts = self.part.plan(*planned, settings, sinks, start_us);
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
        defaults: shared_settings(processes.count()),
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
    for (key, value) in &task.settings {
        session.fix_setting(key, value).map_err(|e| usage(&e))?;
    }
    session.rehearse(&statements, processes.count()).map_err(failed)?;
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
    match launch(processes.count())?.run(watch, lead) {
        Ok(()) => {}
        Err(Early::Own(failure)) => return Err(failure),
        Err(Early::Failed(reason, others)) => {
            if let Some(stats) = own.as_ref().and_then(|own| own.stats.clone()) {
                let interrupted = matches!(reason.cause, Cause::Interrupted);
                all.push(stopped_line(stats, &others, interrupted));
                write_stats(stats_json, &all)?;
            }
            return Err(why(&reason, own.and_then(|own| own.failure)));
        }
    }
    // Queries have left theirs, and a named pipe's reader goes away after the first.
    if all.is_empty() { write_stats(stats_json, &all) } else { Ok(()) }
}

/// Says how far a query got that has ended early, here with these counters. Returns all that are
/// known: who was killed has told nothing.
fn stopped_line(mut stats: Stats, others: &[Option<Value>], interrupted: bool) -> Stats {
    let mut silent = Vec::new();
    for (told, process) in others.iter().zip(1..) {
        match told.as_ref().map(|end| stats_of(process, end)) {
            Some(Ok(theirs)) => stats.add_process(&theirs),
            _ => silent.push(process.to_string()),
        }
    }
    let mut line = report::closing_line(&stats, false, interrupted);
    if !silent.is_empty() {
        line += &format!(", without those of process {}", silent.join(", "));
    }
    note(&line);
    stats
}

/// Prints why a script has ended early. What failed here is told in full.
fn why(reason: &Reason, own: Option<millstream::Failure>) -> Failure {
    match own {
        Some(failure @ millstream::Failure::Run(Error::Option { .. })) if reason.process == 0 => {
            failed(failure)
        }
        Some(millstream::Failure::Sql(error))
            if reason.process == 0 && error.kind != ErrorKind::System =>
        {
            failed(millstream::Failure::Sql(error))
        }
        _ => tell(reason),
    }
}

/// How the other processes of a job are started.
pub(crate) fn launch(processes: usize) -> Result<Launch, Failure> {
    let path = std::env::current_exe()
        .map_err(|e| fail(&format!("cannot find this program, to start it again: {e}")))?;
    let program = Program { path, arguments: vec!["node".into()] };
    Ok(Launch { processes, program, log: Arc::new(|line: &str| note(&line)) })
}

/// Lets a failure and Ctrl-C end the program, whatever it waits for, until the guard is dropped.
fn watch(interrupt: Interrupt) -> Result<Guard, Failure> {
    stop_on_signals(interrupt.clone()).map_err(|e| fail(&e))?;
    Ok(Guard::of_asker(interrupt))
}

/// As [`watch`], for what is measured.
pub(crate) fn watch_measuring(interrupt: Interrupt) -> Result<Box<dyn Any>, String> {
    stop_on_signals(interrupt.clone())?;
    Ok(Box::new(Guard::of_asker(interrupt)))
}

fn drive(
    cluster: &Cluster,
    processes: &ProcessArguments,
    task: ScriptTask,
    statements: usize,
    own: &mut Option<Script>,
    mut ended: impl FnMut(Stats) -> Result<(), Failure>,
) -> Result<(), Early<Failure>> {
    let fabric = processes.fabric().library();
    let told = serde_json::to_value(Task::Script(task.clone())).map_err(|e| {
        // The only thing in it that may be no text is a path.
        Early::Own(usage(&format!(
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
                print(&harmless(&text)).map_err(Early::Own)?;
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
        ended(total).map_err(Early::Own)?;
    }
    Ok(())
}
