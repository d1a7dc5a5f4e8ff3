//! `millstream run --processes P`, or with ranks: the statements of a script on several processes.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream::arrow::array::RecordBatch;
use millstream::program::cluster::{
    Cause, FabricName, Guard, Interrupt, Launch, Network, check_settings, shared_settings,
};
use millstream::program::saved::{Beginning, Stopping};
use millstream::program::script::{
    EarlyEnd, FailedScript, Progress, ScriptLead, ScriptMember, ScriptTask,
};
use millstream::program::{SessionControl, Statement, harmless, parse_script};
use millstream::{Error, ErrorKind, Stats};
use millstream_arguments::{ProcessArguments, SettingArguments};

use crate::arguments::{Output, Script};
use crate::console::{Remarks, note, tell_end, warn};
use crate::failure::{Failure, fail, failed, tell, usage};
use crate::live::{StatusBoard, StopAnswer};
use crate::meeting::Meeting;
use crate::output::{print, print_rows, text_sink};
use crate::ranks::Place;
use crate::run::{Text, check_stats_path, read_script, say_ended, say_not_run, write_stats};
use crate::watch::{COMMITTING, NOTHING_TO_DRAIN, STOPS, guard, stop_on_signals};
use crate::{log, report};

/// The processes of a job.
pub(crate) struct Party {
    launch: Launch,
    /// Processes on this host.
    on_host: usize,
    fabric: Option<FabricName>,
    /// To be closed when all have joined.
    meeting: Option<Meeting>,
}

impl Party {
    /// As process 0 finds them.
    pub(crate) fn of(
        place: Option<&Place>,
        arguments: &ProcessArguments,
    ) -> Result<Party, Failure> {
        let Some(place) = place else {
            arguments.fabric_note().into_iter().for_each(|line| note(&line));
            let (on_host, fabric) = (arguments.count(), Some(arguments.fabric()));
            return Ok(Party { launch: launch(on_host), on_host, fabric, meeting: None });
        };
        let (token, meeting) = place.token().map_err(|e| usage(&e))?;
        note(&place.line());
        let network = Network { address: place.address.clone() };
        let launch = Launch::of_ranks(place.of, network, token, Arc::new(|line: &str| note(&line)));
        let (on_host, fabric) = (place.on_host, arguments.given_fabric());
        Ok(Party { launch, on_host, fabric, meeting })
    }

    pub(crate) fn count(&self) -> usize {
        self.launch.processes
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.meeting.iter().for_each(Meeting::close);
    }
}

/// Runs a script on several processes.
pub(crate) fn run(
    script: &Script,
    output: Output,
    stats_json: Option<&Path>,
    party: Party,
    (settings, beginning): (&SettingArguments, &Beginning),
    board: &Arc<StatusBoard>,
) -> Result<(), Failure> {
    let count = party.count();
    let task = task(script, &party, settings)?;
    let mut task = ScriptTask { beginning: beginning.clone(), ..task };
    let mut session = task.session(0).map_err(|e| usage(&e))?;
    session.print_to(move |format| text_sink(output.with_format(format)));
    check_settings(count, session.settings()).map_err(|e| usage(&e))?;
    let statements =
        parse_script(&task.text, &task.name).map_err(|e| failed(millstream::Failure::Sql(e)))?;
    if let Some(path) = stats_json {
        check_stats_path(path)?;
    }
    if statements.is_empty() {
        note(&format!("there is no statement in {}", task.name));
        return write_stats(stats_json, &[]);
    }
    task.declare_files(&mut session, &statements).map_err(failed)?;
    session.rehearse(&statements, count).map_err(failed)?;
    let lead = ScriptLead::new(party.launch.clone(), party.fabric, task, session);
    let lead = lead.map_err(|e| usage(&e))?;
    let draining = Arc::<Draining>::default();
    let mut telling = Telling {
        output,
        stats_json,
        all: Vec::new(),
        remarks: Remarks::default(),
        statements: statements.iter().map(Statement::text).collect(),
        board,
        draining: draining.clone(),
        not_run: 0,
    };
    let (own_board, of_stop) = (board.clone(), draining.clone());
    let watch = |interrupt: Interrupt| {
        show(&own_board, &interrupt, of_stop.clone());
        watch(interrupt, of_stop)
    };
    let done = lead.run(Box::new(move |_| text_sink(output)), watch, &mut telling);
    let Telling { mut all, not_run, .. } = telling;
    match done {
        Ok(()) => say_not_run(not_run),
        Err(EarlyEnd::Own(failure)) => return Err(failure),
        Err(EarlyEnd::Failed(script)) => {
            if let Some(stats) = early_stats(&script, draining.saves())? {
                all.push(stats);
                write_stats(stats_json, &all)?;
            }
            return Err(why(&script, draining.saves()));
        }
    }
    // Queries have left theirs, and a named pipe's reader goes away after the first.
    if all.is_empty() { write_stats(stats_json, &all) } else { Ok(()) }
}

/// Lets the board know which process has not joined, and stop the job.
fn show(board: &StatusBoard, interrupt: &Interrupt, draining: Arc<Draining>) {
    let (joined, stops) = (interrupt.clone(), interrupt.clone());
    board.starts(move || joined.missing());
    board.on_stop(move |drain| stop(&stops, &draining, drain));
}

/// Whether the job is being drained.
#[derive(Default)]
struct Draining {
    /// Stops the query that runs.
    query: Mutex<Option<Stopping>>,
    /// The job was requested to drain: it ends with the running query.
    asked: AtomicBool,
}

impl Draining {
    fn query(&self) -> MutexGuard<'_, Option<Stopping>> {
        self.query.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the query that runs, or has ended early, has checkpoints.
    fn saves(&self) -> bool {
        self.query().as_ref().is_some_and(Stopping::saves)
    }

    /// Stops the job, behind a last checkpoint of the query that runs, if it has checkpoints.
    /// Whether it has, and whether the query has ended and waits no longer for its store.
    fn stop(&self, interrupt: &Interrupt) -> (bool, bool) {
        // A stop may wait for the end of the query, which wants the lock.
        let Some(stopping) = self.query().clone() else {
            interrupt.stop();
            return (false, false);
        };
        let gives_up = stopping.give_up();
        stopping.stop();
        (stopping.saves(), gives_up)
    }
}

/// Lets a job end. `drain`: well, as if its input had ended.
fn stop(interrupt: &Interrupt, draining: &Draining, drain: bool) -> StopAnswer {
    if !drain {
        let (_, gives_up) = draining.stop(interrupt);
        if !gives_up && interrupt.is_late() {
            note(&COMMITTING);
        }
        return StopAnswer::Yes;
    }
    if interrupt.reason().is_some() {
        return StopAnswer::No(STOPS.into());
    }
    let query = draining.query();
    match &*query {
        Some(query) => query.stopper().drain(),
        None if interrupt.is_late() => {}
        None => return StopAnswer::No(NOTHING_TO_DRAIN.into()),
    }
    draining.asked.store(true, Relaxed);
    StopAnswer::Yes
}

/// The script, and what was said about it on the command line.
fn task(
    script: &Script,
    party: &Party,
    settings: &SettingArguments,
) -> Result<ScriptTask, Failure> {
    let Text { name, text, base_dir, standard_input } = read_script(script)?;
    // Ranks may have other working directories.
    let base_dir = match party.launch.given {
        Some(_) => std::path::absolute(base_dir).map_err(|e| usage(&e))?,
        None => base_dir,
    };
    let settings = settings.pairs().map_err(|e| usage(&e))?;
    let task = ScriptTask::new((name, text), base_dir, party.count(), settings);
    let defaults = shared_settings(party.count(), party.on_host);
    Ok(ScriptTask { standard_input, defaults, ..task })
}

/// Tells the terminal how the script gets on, and keeps the counters.
struct Telling<'a> {
    output: Output,
    stats_json: Option<&'a Path>,
    all: Vec<Stats>,
    remarks: Remarks,
    /// The texts of the statements.
    statements: Vec<String>,
    board: &'a StatusBoard,
    draining: Arc<Draining>,
    /// Statements that are not run, since the job was drained before.
    not_run: usize,
}

impl Progress for Telling<'_> {
    type Error = Failure;

    fn begins(&mut self, statement: usize) -> Result<bool, Failure> {
        if self.draining.asked.load(Relaxed) {
            self.not_run += 1;
            return Ok(false);
        }
        let text = self.statements.get(statement).map_or("", String::as_str);
        self.board.plans(statement, text);
        Ok(true)
    }

    fn explained(&mut self, _: usize, text: String) -> Result<(), Failure> {
        print(&harmless(&text))
    }

    fn listed(&mut self, _: usize, rows: RecordBatch) -> Result<(), Failure> {
        print_rows(self.output, &rows)
    }

    fn had_ended(&mut self, _: usize, number: u64) -> Result<(), Failure> {
        say_ended(number);
        Ok(())
    }

    fn analyzed(&mut self, _: usize, text: String) -> Result<(), Failure> {
        print(&harmless(&text))
    }

    fn runs(&mut self, _: usize, own: &ScriptMember, interrupt: &Interrupt) {
        // All processes read the same.
        self.remarks.say(own.remarks());
        if let Some(stopping) = own.stopping(interrupt) {
            let stopper = stopping.stopper();
            stopper.on_notice(|notice| warn(&notice));
            let (observed, of_run, late) = (stopper.clone(), interrupt.clone(), interrupt.clone());
            self.board.runs(move || of_run.observe(&observed));
            self.board.commits_once(move || late.is_late());
            *self.draining.query() = Some(stopping);
        }
    }

    fn ended(&mut self, statement: usize, stats: Stats) -> Result<(), Failure> {
        *self.draining.query() = None;
        match statement + 1 < self.statements.len() {
            true => self.board.commits(),
            false => self.board.ends(),
        }
        tell_end(&report::closing_line(&stats, false, false), &stats);
        self.all.push(stats);
        write_stats(self.stats_json, &self.all)
    }
}

/// Reports on a query that has ended early, if any: its progress, and the plan of an analyzed
/// query. Returns all known counters. `saves`: the query has checkpoints.
fn early_stats(script: &FailedScript, saves: bool) -> Result<Option<Stats>, Failure> {
    let Some((stats, silent)) = script.stats() else { return Ok(None) };
    let interrupted = matches!(script.reason.cause, Cause::Interrupted);
    let mut line = report::closing_line(&stats, false, interrupted);
    if !silent.is_empty() {
        let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
        line += &format!(", without those of process {}", silent.join(", "));
    }
    line += &report::goes_on(interrupted && saves);
    tell_end(&line, &stats);
    let analyzed = script.own.as_ref().and_then(|own| own.analyzed(&stats));
    analyzed.filter(|_| interrupted).map_or(Ok(()), |text| print(&harmless(&text)))?;
    Ok(Some(stats))
}

/// Prints why a script has ended early. What failed here is told in full.
fn why(script: &FailedScript, saves: bool) -> Failure {
    match script.failure() {
        failure @ millstream::Failure::Run(Error::Option { .. }) => failed(failure),
        millstream::Failure::Sql(error) if error.kind != ErrorKind::System => {
            failed(millstream::Failure::Sql(error))
        }
        _ => tell(&script.reason, saves),
    }
}

/// Start of the other processes of a job.
pub(crate) fn launch(processes: usize) -> Launch {
    let words = [vec!["node".to_string()], log::words()].concat();
    let arguments = words.into_iter().map(Into::into).collect();
    Launch::of_this_program(processes, arguments, Arc::new(|line: &str| warn(&line)))
}

/// Lets a failure and Ctrl-C end the program, whatever it waits for, until the guard is dropped.
fn watch(interrupt: Interrupt, draining: Arc<Draining>) -> Result<Guard, Failure> {
    let (of_stop, of_guard) = (interrupt.clone(), draining.clone());
    let stop = move || draining.stop(&of_stop);
    stop_on_signals(interrupt.clone(), stop).map_err(|e| fail(&e))?;
    Ok(guard(interrupt, move || of_guard.saves()))
}
