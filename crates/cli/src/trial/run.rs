//! A single run of a case: its statements in a layout, their rows kept as text.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use millstream::arrow::array::RecordBatch;
use millstream::program::cluster::{FabricName, Interrupt, check_settings, now_us};
use millstream::program::script::{EarlyEnd, Progress, ScriptLead, ScriptMember, ScriptTask};
use millstream::program::{
    Executed, Job, SessionControl, Statement, Stopper, parse_script, publish_all, write_answer,
};
use millstream::{Failure, Format, Session, Sink, Stats, TextOptions, TextSink};

use super::compare::Block;
use super::layouts::Layout;
use crate::processes::launch;

/// Script of a run.
#[derive(Clone)]
pub(crate) struct TrialScript {
    /// For messages.
    pub(crate) name: String,
    pub(crate) text: String,
    /// Base directory of relative paths.
    pub(crate) base_dir: PathBuf,
    /// Files that take the place of tables, by table.
    pub(crate) inputs: Vec<(String, String)>,
    /// Value of `NOW()`, microseconds since the epoch.
    pub(crate) now_us: Option<i64>,
    /// Whether inserted rows are captured instead of going to their tables.
    pub(crate) captured: bool,
    /// The format of shown rows, and of tables' where it is another one.
    pub(crate) format: Format,
    pub(crate) formats: BTreeMap<String, Format>,
}

/// Results of a run.
#[derive(Debug, Default)]
pub(crate) struct Came {
    /// Shown or printed rows, by statement.
    pub(crate) shown: Vec<Block>,
    /// Inserted rows, by table.
    pub(crate) inserted: BTreeMap<String, Vec<Block>>,
    pub(crate) stats: Vec<Stats>,
    /// The names of the tables that there are at the end.
    pub(crate) tables: Vec<String>,
}

/// Runs a script in a layout. An error is the message for the user.
pub(crate) fn run(
    script: &TrialScript,
    layout: &Layout,
    settings: &[(String, String)],
    timeout: Duration,
) -> Result<Came, String> {
    let kept = Kept::default();
    let stop: Arc<Mutex<Option<Stop>>> = Arc::default();
    let (sender, done) = mpsc::channel();
    let work = {
        let (script, layout, settings) = (script.clone(), layout.clone(), settings.to_vec());
        let (kept, stop) = (kept.clone(), stop.clone());
        move || {
            let runs = Runs { script, settings, layout, kept, stop };
            let result = match runs.layout.processes {
                1 => runs.alone(),
                processes => runs.on_processes(processes),
            };
            let _ = sender.send(result);
        }
    };
    let started = thread::Builder::new().name("test".into()).spawn(work);
    started.map_err(|e| format!("cannot start a thread: {e}"))?;
    match done.recv_timeout(timeout) {
        Ok(result) => result.map(|(stats, tables)| kept.came(stats, tables)),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err("internal error (please report it): the run panicked".into())
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            match &*lock(&stop) {
                Some(Stop::Job(stopper)) => stopper.stop(),
                Some(Stop::Processes(interrupt)) => interrupt.stop(),
                None => {}
            }
            // What cannot stop is left behind.
            if done.recv_timeout(STOP_TIMEOUT).is_err()
                && let Some(Stop::Processes(interrupt)) = &*lock(&stop)
            {
                interrupt.kill();
            }
            Err(format!(
                "no end after {} s\n  help: give it less input, or --timeout SECONDS",
                timeout.as_secs()
            ))
        }
    }
}

/// How long a run may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How a run is stopped.
enum Stop {
    Job(Stopper),
    Processes(Interrupt),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the text of a sink goes.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The rows of a run, as text.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Entry>>>);

/// Rows of a sink.
struct Entry {
    /// The table of inserted rows; `None`: shown rows.
    table: Option<String>,
    ordered: bool,
    text: Buffer,
}

impl Kept {
    /// A sink whose rows are kept.
    fn sink(&self, table: Option<&str>, ordered: bool, format: Format) -> Arc<dyn Sink> {
        let text = self.entry(table, ordered);
        Arc::new(TextSink::new(format, Box::new(text), TextOptions::default()))
    }

    fn entry(&self, table: Option<&str>, ordered: bool) -> Buffer {
        let text = Buffer::default();
        let entry = Entry { table: table.map(str::to_string), ordered, text: text.clone() };
        lock(&self.0).push(entry);
        text
    }

    fn came(&self, stats: Vec<Stats>, tables: Vec<String>) -> Came {
        let mut came = Came { stats, tables, ..Came::default() };
        for Entry { table, ordered, text } in &*lock(&self.0) {
            let bytes = lock(&text.0);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let block = Block { ordered: *ordered, text };
            match table {
                // Planning makes sinks, too, which receive no rows.
                _ if block.text.is_empty() => {}
                None => came.shown.push(block),
                Some(table) => came.inserted.entry(table.clone()).or_default().push(block),
            }
        }
        came
    }
}

struct Runs {
    script: TrialScript,
    layout: Layout,
    settings: Vec<(String, String)>,
    kept: Kept,
    stop: Arc<Mutex<Option<Stop>>>,
}

/// Results of a run besides rows: counters by query, and the names of tables.
type Done = (Vec<Stats>, Vec<String>);

impl Runs {
    /// The settings of the layout, as far as no others are asked for.
    fn pairs(&self) -> Vec<(String, String)> {
        let given = |key: &str| self.settings.iter().any(|(given, _)| given == key);
        let own = self.layout.settings.iter().filter(|(key, _)| !given(key));
        let own = own.map(|(key, value)| ((*key).to_string(), value.clone()));
        own.chain(self.settings.iter().cloned()).collect()
    }

    /// Gives a session the sinks whose rows are kept.
    fn keep_rows(&self, session: &mut Session) {
        let (kept, format) = (self.kept.clone(), self.script.format);
        session.print_to(move |own| kept.sink(None, false, own.unwrap_or(format)));
        if self.script.captured {
            let (kept, formats) = (self.kept.clone(), self.script.formats.clone());
            session.insert_into(move |table| {
                let format = formats.get(table).copied().unwrap_or(Format::Csv);
                kept.sink(Some(table), false, format)
            });
        }
    }

    fn statements(&self) -> Result<Vec<Statement>, String> {
        parse_script(&self.script.text, &self.script.name).map_err(|e| message(&e.into()))
    }

    fn alone(&self) -> Result<Done, String> {
        let mut session = Session::new(&self.script.base_dir);
        for (table, path) in &self.script.inputs {
            session.read_from_file(table, path);
        }
        for (key, value) in self.pairs() {
            session.fix_setting(&key, &value).map_err(|e| e.to_string())?;
        }
        // Each run is whole by itself.
        session.fix_setting("checkpoint.path", "none").map_err(|e| e.to_string())?;
        if let Some(now_us) = self.script.now_us {
            session.set_start_time_us(now_us);
        }
        self.keep_rows(&mut session);
        let statements = self.statements()?;
        session.rehearse(&statements, 1).map_err(|e| message(&e))?;
        let mut stats = Vec::new();
        for statement in &statements {
            stats.extend(self.execute(&mut session, statement).map_err(|e| message(&e))?);
        }
        Ok((stats, session.table_names()))
    }

    /// Executes a statement; the counters of a query.
    fn execute(
        &self,
        session: &mut Session,
        statement: &Statement,
    ) -> Result<Option<Stats>, Failure> {
        let mut planned = match session.execute(statement)? {
            Executed::Done => return Ok(None),
            Executed::Explained(text) => return self.explained(&text).map(|()| None),
            Executed::Listed(rows) => return self.listed(&rows).map(|()| None),
            Executed::Query(planned) => planned,
        };
        check_settings(1, session.settings()).map_err(|e| session.refuse_setting(e))?;
        let ordered = planned.plan.outputs.first().is_some_and(|output| output.sort.is_some());
        let sinks = planned.take_sinks(|| self.kept.sink(None, ordered, self.script.format));
        let settings = planned.settings(session.settings());
        let job = Job::new(&planned.plan, &settings, sinks.clone())?;
        *lock(&self.stop) = Some(Stop::Job(job.stopper()));
        let (stats, result, remains) = job.run_and_keep();
        drop(remains);
        result.and_then(|()| publish_all(&sinks, &planned.targets))?;
        Ok(Some(stats))
    }

    /// Keeps the answer of an EXPLAIN.
    fn explained(&self, text: &str) -> Result<(), Failure> {
        lock(&self.kept.entry(None, true).0).extend_from_slice(format!("{text}\n").as_bytes());
        Ok(())
    }

    fn listed(&self, rows: &RecordBatch) -> Result<(), Failure> {
        write_answer(&*self.kept.sink(None, true, self.script.format), rows).map(drop)
    }

    fn on_processes(&self, processes: usize) -> Result<Done, String> {
        let TrialScript { name, text, base_dir, inputs, captured, .. } = self.script.clone();
        let task = ScriptTask::new((name, text), base_dir, processes, self.pairs());
        let mut task = ScriptTask { inputs, captured, ..task };
        let mut session = task.session(0).map_err(|e| e.to_string())?;
        self.keep_rows(&mut session);
        check_settings(processes, session.settings()).map_err(|e| e.to_string())?;
        let statements = self.statements()?;
        task.declare_files(&mut session, &statements).map_err(|e| message(&e))?;
        session.rehearse(&statements, processes).map_err(|e| message(&e))?;
        let mut telling = Telling { runs: self, stats: Vec::new() };
        let (kept, format) = (self.kept.clone(), self.script.format);
        let watch = |interrupt: Interrupt| {
            *lock(&self.stop) = Some(Stop::Processes(interrupt));
            Ok(())
        };
        let lead = ScriptLead::new(launch(processes), FabricName::Shm, task, session);
        let lead = lead.map_err(|e| message(&e))?;
        match lead.run(Box::new(move |_| kept.sink(None, false, format)), watch, &mut telling) {
            Ok(()) => Ok((telling.stats, Vec::new())),
            Err(EarlyEnd::Own(failure)) => Err(message(&failure)),
            Err(EarlyEnd::Failed(script)) => Err(message(&script.failure())),
        }
    }
}

/// As the program prints it.
fn message(failure: &Failure) -> String {
    match failure {
        Failure::Sql(error) => error.render(),
        other => format!("error: {other}"),
    }
}

/// Keeps what a script on several processes tells.
struct Telling<'a> {
    runs: &'a Runs,
    stats: Vec<Stats>,
}

impl Progress for Telling<'_> {
    type Error = Failure;

    fn start_us(&self) -> i64 {
        self.runs.script.now_us.unwrap_or_else(now_us)
    }

    fn explained(&mut self, _: usize, text: String) -> Result<(), Failure> {
        self.runs.explained(&text)
    }

    fn listed(&mut self, _: usize, rows: RecordBatch) -> Result<(), Failure> {
        self.runs.listed(&rows)
    }

    fn analyzed(&mut self, _: usize, _: String) -> Result<(), Failure> {
        Ok(())
    }

    fn runs(&mut self, _: usize, _: &ScriptMember, _: &Interrupt) {}

    fn ended(&mut self, _: usize, stats: Stats) -> Result<(), Failure> {
        self.stats.push(stats);
        Ok(())
    }
}
