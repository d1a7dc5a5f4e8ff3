//! A script on several processes: each executes the same statements, and process 0 leads.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_checkpoint::{Others, Place as SavedPlace};
use millstream_connect::CollectSink;
use millstream_contract::declaration::Declaration;
use millstream_contract::plan::Plan;
use millstream_contract::settings::SettingError;
use millstream_contract::sink::{RowOrder, Sink};
use millstream_contract::table::SplitSpec;
use millstream_engine::{Stats, Stopper};
use millstream_fabric::setup::{Hello, Token};
use millstream_sql::{ErrorKind, SqlError, Statement, parse_script};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::program::analyzed::analyzed;
use crate::program::cluster::{
    Cause, Checkpoints, Cluster, Early, FabricName, Fault, Interrupt, Launch, Log, Member, Parts,
    ProcessFailure, QueryPart, Reach, Setup, Stops, fault, now_us, shared_settings, stats_of,
};
use crate::program::control::SessionControl;
use crate::program::planned::Executed;
use crate::program::saved::{Beginning, Stopping, first_start_us, options_of};
use crate::session::Session;

/// A script, as process 0 tells the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptTask {
    /// For messages.
    pub name: String,
    /// Its statements.
    pub text: String,
    /// Base directory of relative paths.
    pub base_dir: PathBuf,
    /// Whether it was read from the standard input of process 0.
    pub standard_input: bool,
    /// Settings that hold where neither the script nor `settings` say otherwise.
    pub defaults: Vec<(String, String)>,
    /// Settings that outlast `SET` in the script.
    pub settings: Vec<(String, String)>,
    /// Declarations of the files that the script names as tables: process 0 infers them for all.
    pub files: Vec<(String, Declaration)>,
    /// Tables that are read from files instead of their connectors; with the paths.
    #[serde(default)]
    pub inputs: Vec<(String, String)>,
    /// Where a query with checkpoints begins.
    #[serde(default)]
    pub beginning: Beginning,
    /// Whether rows that are inserted go to sinks of process 0's, whatever their tables say:
    /// [`SessionControl::insert_into`](super::SessionControl::insert_into).
    #[serde(default)]
    pub captured: bool,
}

impl ScriptTask {
    /// A script that runs on so many processes, and is not from the standard input.
    pub fn new(
        (name, text): (String, String),
        base_dir: PathBuf,
        processes: usize,
        settings: Vec<(String, String)>,
    ) -> ScriptTask {
        ScriptTask {
            name,
            text,
            base_dir,
            standard_input: false,
            defaults: shared_settings(processes, processes),
            settings,
            files: Vec::new(),
            inputs: Vec::new(),
            beginning: Beginning::default(),
            captured: false,
        }
    }

    /// Finds out what the files declare that the script names as tables. `session` is that of
    /// process 0.
    ///
    /// # Errors
    /// If a file cannot be read or understood.
    pub fn declare_files(
        &mut self,
        session: &mut Session,
        statements: &[Statement],
    ) -> Result<(), Failure> {
        self.files = session.declare_files(statements)?;
        Ok(())
    }

    /// The session in which process `process` executes the script.
    pub fn session(&self, process: usize) -> Result<Session, SettingError> {
        let mut session = Session::new(&self.base_dir);
        for (key, value) in &self.defaults {
            session.set(key, value)?;
        }
        for (key, value) in &self.settings {
            session.fix_setting(key, value)?;
        }
        session.give_files(&self.files);
        for (table, path) in &self.inputs {
            session.read_from_file(table, path);
        }
        if self.captured {
            // Those of other processes than the first get no rows.
            session.insert_into(|_| Arc::new(CollectSink::new(RowOrder::Deterministic)));
        }
        if process != 0 {
            session.read_nothing_once();
        } else if self.standard_input {
            session.script_from_standard_input();
        }
        Ok(session)
    }
}

/// Says, by the statement's place in the script, where the rows go of a query that names no sink.
pub type Show = Box<dyn FnMut(usize) -> Arc<dyn Sink>>;

/// A process's part in running a script.
pub struct ScriptMember {
    session: Session,
    statements: Vec<Statement>,
    part: QueryPart,
    show: Show,
    beginning: Beginning,
    /// Is told of checkpoints that cannot be written.
    notice: Log,
    /// Answer of `EXPLAIN`.
    explained: Option<String>,
    /// Answer of `DESCRIBE` or `SHOW`.
    listed: Option<RecordBatch>,
    /// Of a query that is analyzed.
    analyzed: Option<(String, Plan)>,
    failure: Option<Failure>,
    stats: Option<Stats>,
}

impl ScriptMember {
    /// The part of a process that executes the task's statements in `session`. `show` makes the
    /// sink for rows of queries without a sink; `None` in processes that send such rows to process
    /// 0.
    pub fn new(
        task: &ScriptTask,
        session: Session,
        reach: impl Into<Reach>,
        token: &Token,
        (process, processes): (usize, usize),
        show: Option<Show>,
    ) -> Result<ScriptMember, Fault> {
        let unused = |_| Arc::new(CollectSink::new(RowOrder::Deterministic)) as Arc<dyn Sink>;
        Ok(ScriptMember {
            statements: parse_script(&task.text, &task.name).map_err(|e| sql_fault(&e))?,
            session,
            part: QueryPart::open(reach, token, process, processes)?,
            show: show.unwrap_or_else(|| Box::new(unused)),
            beginning: task.beginning.clone(),
            notice: Arc::new(|_| ()),
            explained: None,
            listed: None,
            analyzed: None,
            failure: None,
            stats: None,
        })
    }

    /// Why the last statement failed here, in full.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The counters here of a query that has not ended well everywhere.
    pub fn stats(&self) -> Option<&Stats> {
        self.stats.as_ref()
    }

    /// Text of an `EXPLAIN ANALYZE` that has ended early, with these counters of all processes.
    pub fn analyzed(&self, stats: &Stats) -> Option<String> {
        self.analyzed.as_ref().map(|(text, plan)| analyzed(text, plan, stats))
    }

    /// Remarks for the user on the query's sources, once it is connected.
    pub fn remarks(&self) -> &[String] {
        self.part.remarks()
    }

    /// Stops this process's part of the query, once it is connected and before it runs.
    pub fn stopper(&self) -> Option<Stopper> {
        self.part.stopper()
    }

    /// Stops the query in all processes, from process 0.
    pub fn stopping(&self, interrupt: &Interrupt) -> Option<Stopping> {
        let saver = self.part.saver().cloned();
        self.stopper().map(|stopper| Stopping::of_all(stopper, saver, interrupt))
    }

    /// Keeps a failure, to be told in full by this process.
    fn note(&mut self, failure: Failure) -> Fault {
        let fault = match &failure {
            Failure::Sql(error) => sql_fault(error),
            Failure::Run(error) => fault(error.clone()),
            other => Fault::run(other),
        };
        self.failure = Some(failure);
        fault
    }
}

/// Fault of a planning error: a mistake of the user, or a matter of this process's machine.
fn sql_fault(error: &SqlError) -> Fault {
    match error.kind {
        ErrorKind::System => Fault::run(error),
        _ => Fault::usage(error),
    }
}

impl Member for ScriptMember {
    fn execute(&mut self, number: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        self.session.set_start_time_us(start_us);
        let Some(statement) = self.statements.get(number) else {
            return Err(Fault::run("process 0 asks for a statement that the script does not have"));
        };
        if first_start_us(&self.session, &self.beginning).is_some() {
            self.session.planner.set_resumes(true);
        }
        match self.session.execute(statement) {
            Err(failure) => Err(self.note(failure)),
            Ok(Executed::Done) => Ok(None),
            Ok(Executed::Explained(text)) => {
                self.explained = Some(text);
                Ok(None)
            }
            Ok(Executed::Listed(rows)) => {
                self.listed = Some(rows);
                Ok(None)
            }
            Ok(Executed::Query(mut planned)) => {
                let analyze = planned.analyze;
                self.analyzed = analyze.then(|| (planned.explain.clone(), planned.plan.clone()));
                let queries = self.statements.iter().filter(|statement| statement.is_query());
                let saved = options_of(&self.session, &planned, &self.beginning, queries.count());
                let saved = saved.map_err(|failure| self.note(failure))?;
                let sinks = planned.take_sinks(|| (self.show)(number));
                let settings = self.session.settings();
                let parts = self.part.plan_saved(*planned, settings, sinks, start_us, saved);
                parts.map(Some).map_err(|e| self.note(self.session.refuse_setting(e).into()))
            }
        }
    }

    fn open(&mut self) -> Result<Checkpoints, Fault> {
        let notice = self.notice.clone();
        self.part.open_saved(move |line| notice(line))
    }

    fn go_on(&mut self, place: SavedPlace) -> Result<(), Fault> {
        self.part.join_saved(place)
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
        let (stats, result) = self.part.run(stops);
        let part = result.and_then(|()| self.part.part_of_end());
        let (end, result) = part.map_or_else(|error| (None, Err(error)), |end| (end, Ok(())));
        let report = json!({ "stats": stats, "end": end });
        self.stats = Some(stats);
        (report, result.map_err(|error| self.note(Failure::Run(error))))
    }

    fn ends(&mut self, ends: &[Value]) -> Result<(), Fault> {
        let part = |end: &Value| serde_json::from_value::<Option<Others>>(end["end"].clone());
        let parts = ends.iter().filter_map(|end| part(end).transpose()).collect::<Result<_, _>>();
        let wrong = |e| Fault::run(format!("the end of a process that cannot be read: {e}"));
        self.part.note_ends(parts.map_err(wrong)?);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Fault> {
        self.part.commit()
    }

    fn mark(&mut self) -> Result<(), Fault> {
        self.part.mark()
    }
}

/// Observer of a script's progress, in process 0. An error ends the job.
pub trait Progress {
    /// Reason for ending the job.
    type Error;

    /// A statement begins. Returns whether to execute the statement.
    fn begins(&mut self, _statement: usize) -> Result<bool, Self::Error> {
        Ok(true)
    }
    /// Value of `NOW()` in the current statement, microseconds since the epoch.
    fn start_us(&self) -> i64 {
        now_us()
    }
    /// The answer of an `EXPLAIN`.
    fn explained(&mut self, statement: usize, text: String) -> Result<(), Self::Error>;
    /// An earlier run has ended a query with checkpoints, in the checkpoint of this number.
    fn had_ended(&mut self, _statement: usize, _number: u64) -> Result<(), Self::Error> {
        Ok(())
    }
    /// The rows of a `DESCRIBE` or a `SHOW`.
    fn listed(&mut self, statement: usize, rows: RecordBatch) -> Result<(), Self::Error>;
    /// The answer of an `EXPLAIN ANALYZE`; [`Progress::ended`] follows.
    fn analyzed(&mut self, statement: usize, text: String) -> Result<(), Self::Error>;
    /// A query, of which this is process 0's part, is about to run.
    fn runs(&mut self, statement: usize, own: &ScriptMember, interrupt: &Interrupt);
    /// A query has ended well, with these counters of all processes.
    fn ended(&mut self, statement: usize, stats: Stats) -> Result<(), Self::Error>;
}

/// A script that process 0 leads all processes of a job through.
pub struct ScriptLead {
    launch: Launch,
    fabric: Option<FabricName>,
    task: ScriptTask,
    /// The task as a message to the other processes.
    message: Value,
    session: Session,
}

/// Early end of a script.
pub enum EarlyEnd<E> {
    /// The observer of the progress ended the job.
    Own(E),
    /// A process has failed.
    Failed(Box<FailedScript>),
}

/// The state of a script after the failure of a process.
pub struct FailedScript {
    /// The failure that tells most.
    pub reason: ProcessFailure,
    /// Process 0's part, if it was made.
    pub own: Option<ScriptMember>,
    /// Reports of the other processes on the last query.
    reports: Vec<Option<Value>>,
}

impl ScriptLead {
    /// `session` is that of process 0 for the task. Without a fabric it is shared memory within a
    /// host, and TCP between hosts.
    ///
    /// # Errors
    /// If the other processes cannot be told of the task.
    pub fn new(
        launch: Launch,
        fabric: impl Into<Option<FabricName>>,
        task: ScriptTask,
        session: Session,
    ) -> Result<ScriptLead, Failure> {
        let message = serde_json::to_value(&task).map_err(|e| {
            // The only thing in it that may be no text is a path.
            Failure::Script(format!(
                "{}: the other processes cannot be told where the script is: {e}\n  help: give its \
                 folder a name in UTF-8, or use one process",
                task.base_dir.display()
            ))
        })?;
        Ok(ScriptLead { launch, fabric: fabric.into(), task, message, session })
    }

    /// Runs the script to its end; `show` and `watch` as in [`ScriptMember::new`] and
    /// [`Launch::run`].
    pub fn run<P: Progress, G>(
        self,
        show: Show,
        watch: impl FnOnce(Interrupt) -> Result<G, P::Error>,
        progress: &mut P,
    ) -> Result<(), EarlyEnd<P::Error>> {
        let ScriptLead { launch, fabric, task, message, session } = self;
        let (place, mut own) = ((0, launch.processes), None);
        let lead = |cluster: &Cluster| {
            let fabric = fabric.unwrap_or_else(|| cluster.fabric(&launch.log));
            cluster.set_up(fabric.name(), &message, || {
                let token = cluster.token();
                let reach = Reach { fabric, host: cluster.host() };
                let part = ScriptMember::new(&task, session, reach, token, place, Some(show))?;
                own = Some(ScriptMember { notice: launch.log.clone(), ..part });
                Ok(())
            })?;
            own.as_mut().map_or(Ok(()), |own| own.lead(cluster, progress))
        };
        launch.run(watch, lead).map_err(|early| match early {
            Early::Own(error) => EarlyEnd::Own(error),
            Early::Failed(reason, reports) => {
                EarlyEnd::Failed(Box::new(FailedScript { reason, own, reports }))
            }
        })
    }
}

impl ScriptMember {
    /// Leads all processes through the statements.
    fn lead<P: Progress>(
        &mut self,
        cluster: &Cluster,
        progress: &mut P,
    ) -> Result<(), Early<P::Error>> {
        for statement in 0..self.statements.len() {
            if !progress.begins(statement).map_err(Early::Own)? {
                continue;
            }
            let first_us = first_start_us(&self.session, &self.beginning);
            let start_us = first_us.unwrap_or_else(|| progress.start_us());
            if !cluster.execute(self, statement, start_us)? {
                if let Some(text) = self.explained.take() {
                    progress.explained(statement, text).map_err(Early::Own)?;
                }
                if let Some(rows) = self.listed.take() {
                    progress.listed(statement, rows).map_err(Early::Own)?;
                }
                continue;
            }
            if let Some(number) = cluster.open_checkpoints(self)? {
                progress.had_ended(statement, number).map_err(Early::Own)?;
                continue;
            }
            cluster.connect(self)?;
            progress.runs(statement, self, &cluster.interrupt());
            let ends = cluster.run(self)?;
            let mut total = Stats::default();
            for (process, end) in ends.iter().enumerate() {
                total.add_process(&stats_of(process, end)?);
            }
            self.stats = None;
            if let Some((text, plan)) = self.analyzed.take() {
                let text = analyzed(&text, &plan, &total);
                progress.analyzed(statement, text).map_err(Early::Own)?;
            }
            progress.ended(statement, total).map_err(Early::Own)?;
        }
        Ok(())
    }
}

impl FailedScript {
    /// The failure: in full what failed in process 0, if that is the reason.
    pub fn failure(&self) -> Failure {
        let own = self.own.as_ref().and_then(ScriptMember::failure);
        match (&self.reason.cause, own.filter(|_| self.reason.process == 0)) {
            (Cause::Interrupted, _) => Failure::Run(millstream_contract::Error::Interrupted),
            (_, Some(failure)) => failure.clone(),
            _ => Failure::Process(self.reason.clone()),
        }
    }

    /// The counters of the query that ended early, and the processes without a report: killed
    /// processes have none. `None` if no query was running.
    pub fn stats(&self) -> Option<(Stats, Vec<usize>)> {
        let (mut stats, mut silent) = (self.own.as_ref()?.stats()?.clone(), Vec::new());
        for (report, process) in self.reports.iter().zip(1..) {
            match report.as_ref().map(|report| stats_of(process, report)) {
                Some(Ok(theirs)) => stats.add_process(&theirs),
                _ => silent.push(process),
            }
        }
        Some((stats, silent))
    }
}

/// The part of a further process of a script's job. `prepare` prepares the session.
///
/// # Errors
/// A task that cannot be read, and all that [`ScriptMember::new`] refuses.
pub fn script_member(
    process: usize,
    setup: &Setup,
    token: &Token,
    prepare: impl FnOnce(&mut Session) -> Result<(), Failure>,
) -> Result<ScriptMember, Fault> {
    let task: ScriptTask = serde_json::from_value(setup.task.clone())
        .map_err(|e| Fault::run(format!("process 0 sends a task that cannot be read: {e}")))?;
    let mut session = task.session(process).map_err(Fault::usage)?;
    prepare(&mut session).map_err(Fault::usage)?;
    let place = (process, setup.processes);
    ScriptMember::new(&task, session, setup.reach()?, token, place, None)
}
