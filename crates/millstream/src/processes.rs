//! Scripts on several processes of this machine, for programs that use the library.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_connect::BlackholeSink;
use millstream_contract::sink::Sink;
use millstream_engine::Stats;
use millstream_engine::observe::Snapshot;
use millstream_fabric::setup::Token;
use millstream_sql::parse_script;

use crate::failure::Failure;
use crate::jobs::{Jobs, Running, SharedJobs, Shown, submit};
use crate::program::cluster::{
    Exit, FabricName, Interrupt, Launch, PROCESSES_MAX, Setup, check_settings, take_part,
};
use crate::program::control::{NAME, SessionControl};
use crate::program::saved::Stopping;
use crate::program::script::{
    EarlyEnd, Progress, ScriptLead, ScriptMember, ScriptTask, Show, script_member,
};
use crate::rows::{Queue, RowsSink};
use crate::session::Session;
use crate::submit::{jobs_of, write_answer, write_lines};

/// Set-up of the session of each process before the script begins: registers the program's own
/// tables and connectors. The set-up has to be the same in all processes.
pub type SetUp = fn(&mut Session) -> Result<(), Failure>;

/// The only argument of a process that was started for a job.
const PART: &str = "millstream-part-of-a-job";

/// Runs scripts on several processes, each of which runs this program.
///
/// The other processes are started with a reserved argument, and [`Processes::here`], at the top of
/// `main`, detects it: such a process takes part in its job and goes no further. Statements run as
/// in [`Session::submit`]; `docs/processes.md` describes the distribution of sources, and the state
/// after a failure.
///
/// ```no_run
/// use millstream::{Failure, Processes, Session};
///
/// fn main() -> Result<(), Failure> {
///     let processes = Processes::here(set_up, std::process::exit);
///     let jobs = processes.count(2).submit(
///         "CREATE TABLE events (k BIGINT) WITH ('connector' = 'file', 'path' = 'events.csv');
///          SELECT k, COUNT(*) AS n FROM events GROUP BY k;",
///     )?;
///     for job in jobs {
///         let (rows, stats) = job.collect()?;
///         println!("{} batches from {} records", rows.len(), stats.records);
///     }
///     Ok(())
/// }
///
/// /// In every process: the program's own tables and connectors.
/// fn set_up(_session: &mut Session) -> Result<(), Failure> {
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Processes {
    set_up: SetUp,
    count: usize,
    fabric: FabricName,
    base_dir: PathBuf,
    settings: Vec<(String, String)>,
}

impl Processes {
    /// Has to be called at the top of `main`, before the program does anything else. In a process
    /// started for a job, takes part in the job and ends the process with `exit`, which is
    /// [`std::process::exit`] or ends with it; otherwise returns a starter of such processes: by
    /// default two processes over shared memory.
    pub fn here(set_up: SetUp, exit: Exit) -> Processes {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next().is_some_and(|only| only == PART) && arguments.next().is_none() {
            exit(part_of_a_job(set_up, exit));
        }
        Processes {
            set_up,
            count: 2,
            fabric: FabricName::Shm,
            base_dir: ".".into(),
            settings: Vec::new(),
        }
    }

    /// With so many processes, this one included.
    pub fn count(mut self, processes: usize) -> Processes {
        self.count = processes;
        self
    }

    /// Connected by this fabric.
    pub fn over(mut self, fabric: FabricName) -> Processes {
        self.fabric = fabric;
        self
    }

    /// Relative paths in `CREATE TABLE` start from here rather than from the working directory.
    pub fn base_dir(mut self, base_dir: impl Into<PathBuf>) -> Processes {
        self.base_dir = base_dir.into();
        self
    }

    /// With this setting in each process, which `SET` does not change; `workers` and `memory` are
    /// per process. [`Processes::submit`] refuses unknown settings.
    pub fn setting(mut self, key: &str, value: &str) -> Processes {
        self.settings.push((key.to_string(), value.to_string()));
        self
    }

    /// Submits a script, as [`Session::submit`] does: starts the other processes, runs the script's
    /// queries in order, and ends the processes. All result rows come to this process.
    ///
    /// A stop of any job ends the script.
    ///
    /// # Errors
    /// A mistake in any statement or setting: then no process has been started.
    pub fn submit(&self, script: &str) -> Result<Jobs, Failure> {
        if !(1..=PROCESSES_MAX).contains(&self.count) {
            return Err(Failure::Script(format!(
                "a job has 1 to {PROCESSES_MAX} processes, not {}",
                self.count
            )));
        }
        let (named, settings) = ((NAME.into(), script.into()), self.settings.clone());
        let mut task = ScriptTask::new(named, self.base_dir.clone(), self.count, settings);
        let mut session = task.session(0).map_err(|e| Failure::Script(e.to_string()))?;
        (self.set_up)(&mut session)?;
        check_settings(self.count, session.settings()).map_err(|e| session.refuse_setting(e))?;
        let statements = parse_script(script, NAME)?;
        task.declare_files(&mut session, &statements)?;
        let (_, rehearsed) = session.rehearsed(&statements, self.count)?;
        let (submitted, steps) =
            jobs_of(statements, rehearsed, || Shown::Rows(Arc::new(Queue::default())));
        let launch = Launch::of_this_program(self.count, vec![PART.into()], Arc::new(|_| ()));
        let lead = ScriptLead::new(launch, self.fabric, task, session)?;
        let mut jobs = 0..;
        let mut number = |is_job: bool| is_job.then(|| jobs.next()).flatten();
        let numbers: Vec<_> = steps.iter().map(|(_, is_job)| number(*is_job)).collect();
        submit(submitted, move |shared| run(lead, shared, numbers))
    }
}

/// The life of a further process; its exit code.
fn part_of_a_job(set_up: SetUp, exit: Exit) -> i32 {
    let note = |line: &str| drop(stderr().write_all(format!("{line}\n").as_bytes()));
    let make = |process, setup: &Setup, token: &Token| script_member(process, setup, token, set_up);
    match take_part(make, Arc::new(note), exit) {
        Ok(()) => 0,
        Err(why) => {
            note(&format!("error: {why}"));
            2
        }
    }
}

/// Leads the processes through the script. `numbers` are the job numbers of the statements.
fn run(lead: ScriptLead, shared: &SharedJobs, numbers: Vec<Option<usize>>) {
    let sinks: Vec<_> = numbers.iter().map(|number| sink(shared, *number)).collect();
    let mut progress = JobProgress { shared, numbers, sinks: sinks.clone() };
    let show: Show = Box::new(move |statement| sinks[statement].clone());
    let (stats, failure) = match lead.run(show, |_| Ok(()), &mut progress) {
        Ok(()) => return,
        Err(EarlyEnd::Own(failure)) => (None, failure),
        Err(EarlyEnd::Failed(failed)) => (failed.stats(), failed.failure()),
    };
    // The job that was under way, or could not begin.
    if let Some(number) = shared.first_open() {
        shared.ends(number, stats.map(|(stats, _)| stats).unwrap_or_default(), Err(failure));
    }
}

/// The sink for the rows of a job; a statement that is no job has no rows.
fn sink(shared: &SharedJobs, number: Option<usize>) -> Arc<dyn Sink> {
    match number.map(|number| shared.shown(number)) {
        Some(Shown::Rows(queue)) => Arc::new(RowsSink(queue)),
        Some(Shown::Sink(sink)) => sink,
        Some(Shown::Nothing) | None => Arc::new(BlackholeSink::new()),
    }
}

/// Reports the progress of the script to the handles.
struct JobProgress<'a> {
    shared: &'a SharedJobs,
    numbers: Vec<Option<usize>>,
    sinks: Vec<Arc<dyn Sink>>,
}

impl Progress for JobProgress<'_> {
    type Error = Failure;

    fn begins(&mut self, statement: usize) -> Result<bool, Failure> {
        let Some(number) = self.numbers[statement] else { return Ok(true) };
        let wanted = self.shared.may_run(number)?;
        if !wanted {
            self.shared.ends(number, Stats::default(), Ok(()));
        }
        Ok(wanted)
    }

    fn explained(&mut self, statement: usize, text: String) -> Result<(), Failure> {
        let Some(number) = self.numbers[statement] else { return Ok(()) };
        let rows = write_lines(&*self.sinks[statement], &text)?;
        self.shared.ends(number, Stats { rows, ..Stats::default() }, Ok(()));
        Ok(())
    }

    fn listed(&mut self, statement: usize, rows: RecordBatch) -> Result<(), Failure> {
        let Some(number) = self.numbers[statement] else { return Ok(()) };
        let rows = write_answer(&*self.sinks[statement], &rows)?;
        self.shared.ends(number, Stats { rows, ..Stats::default() }, Ok(()));
        Ok(())
    }

    fn had_ended(&mut self, statement: usize, _: u64) -> Result<(), Failure> {
        if let Some(number) = self.numbers[statement] {
            self.shared.ends(number, Stats::default(), Ok(()));
        }
        Ok(())
    }

    fn analyzed(&mut self, statement: usize, text: String) -> Result<(), Failure> {
        write_lines(&*self.sinks[statement], &text).map(drop)
    }

    fn runs(&mut self, statement: usize, own: &ScriptMember, interrupt: &Interrupt) {
        if let (Some(number), Some(stopping)) = (self.numbers[statement], own.stopping(interrupt)) {
            let interrupt = interrupt.clone();
            self.shared.runs(number, Arc::new(Led { interrupt, stopping }), own.remarks());
        }
    }

    fn ended(&mut self, statement: usize, stats: Stats) -> Result<(), Failure> {
        if let Some(number) = self.numbers[statement] {
            self.shared.ends(number, stats, Ok(()));
        }
        Ok(())
    }
}

/// A query that runs on all processes.
struct Led {
    interrupt: Interrupt,
    stopping: Stopping,
}

impl Running for Led {
    fn stop(&self) {
        self.stopping.stop();
    }
    fn enough(&self) {
        self.stopping.stopper().enough();
    }
    fn counters(&self) -> Stats {
        self.stopping.stopper().counters()
    }
    fn notices(&self) -> Vec<String> {
        self.stopping.stopper().notices()
    }
    fn observe(&self) -> Snapshot {
        self.interrupt.observe(self.stopping.stopper())
    }
    fn drain(&self) {
        self.stopping.stopper().drain();
    }
}
