//! Executes the statements of the shell in its session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use millstream::program::cluster::check_settings;
use millstream::program::{
    Executed, Job, SessionControl, Statement, analyzed, grouped, harmless, parse_script, plural,
    publish_all,
};
use millstream::{Error, Session, SettingError};

use super::interrupt::Interrupts;
use crate::arguments::{Format, Output};
use crate::console::{Remarks, note, warn};
use crate::failure::{Failure, fail, failed, panicked};
use crate::live::{Show, StatusBoard, StopAnswer};
use crate::output::{print, print_rows, text_sink};
use crate::report;
use crate::run::{read_file, say_not_run};

/// A session, and how the results of its statements are told.
pub(super) struct Statements {
    session: Session,
    output: Output,
    interrupts: Interrupts,
    remarks: Arc<Mutex<Remarks>>,
    /// Whether a person types.
    pub(super) interactive: bool,
    /// Whether each query's numbers are told.
    pub(super) timing: bool,
    /// Statements that have been executed.
    executed: usize,
    /// Somebody has drained a query.
    drained: Arc<AtomicBool>,
}

impl Statements {
    pub(super) fn new(
        session: Session,
        output: Output,
        interrupts: Interrupts,
        interactive: bool,
    ) -> Statements {
        session.print_to(move |format| text_sink(output.with_format(format)));
        Statements {
            session,
            output,
            interrupts,
            remarks: Arc::default(),
            interactive,
            timing: !interactive,
            executed: 0,
            drained: Arc::default(),
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Changes how rows are written.
    pub(super) fn set_format(&mut self, name: &str) -> Result<(), String> {
        let format = match name.parse::<millstream::Format>() {
            Ok(millstream::Format::Table) => Format::Table,
            Ok(millstream::Format::Csv) => Format::Csv,
            Ok(millstream::Format::Ndjson) => Format::Ndjson,
            Err(help) => return Err(format!("there is no format '{name}'\n  help: {help}")),
        };
        self.output.format = format;
        let output = self.output;
        self.session.print_to(move |format| text_sink(output.with_format(format)));
        Ok(())
    }

    /// Switches tables between a line for each value and a line for each row. Returns the new
    /// state.
    pub(super) fn toggle_expanded(&mut self) -> bool {
        self.output.expanded = !self.output.expanded;
        let output = self.output;
        self.session.print_to(move |format| text_sink(output.with_format(format)));
        output.expanded
    }

    /// Executes statements in order, up to the first failure, which is reported.
    pub(super) fn execute(&mut self, text: &str, name: &str) -> Result<(), Failure> {
        if self.interactive {
            self.drained.store(false, Relaxed);
        }
        let done = catch_unwind(AssertUnwindSafe(|| {
            let statements =
                parse_script(text, name).map_err(|e| failed(millstream::Failure::Sql(e)))?;
            for (at, statement) in statements.iter().enumerate() {
                self.one(statement, name)?;
                if self.drained.load(Relaxed) {
                    say_not_run(statements.len() - at - 1);
                    break;
                }
            }
            Ok(())
        }));
        done.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Whether a query was drained that did not come from a person who types: what follows is not
    /// executed, as in a script that is drained.
    pub(super) fn are_drained(&self) -> bool {
        !self.interactive && self.drained.load(Relaxed)
    }

    fn one(&mut self, statement: &Statement, name: &str) -> Result<(), Failure> {
        self.executed += 1;
        let done = match statement.is_query() {
            true => self.query(statement, name),
            false => {
                self.interrupts.starts(|| ());
                self.executed(statement)
            }
        };
        match self.interrupts.ends() {
            true => done,
            false => Err(Failure::Interrupted),
        }
    }

    /// Reads a file of statements, in a thread of its own: it may be a pipe without a writer.
    pub(super) fn script(&mut self, path: &str) -> Result<String, Failure> {
        let (sender, read) = mpsc::channel();
        let give_up = sender.clone();
        self.interrupts.starts(move || drop(give_up.send(None)));
        let path = PathBuf::from(path);
        let read_file = move || drop(sender.send(Some(read_file(&path))));
        let started = thread::Builder::new().name("script".into()).spawn(read_file);
        started.map_err(|e| fail(&format!("cannot start a thread: {e}")))?;
        let text = match read.recv() {
            Ok(Some(text)) => text,
            _ => {
                note(&"the file was left behind");
                Err(Failure::Interrupted)
            }
        };
        match self.interrupts.ends() {
            true => text,
            false => Err(Failure::Interrupted),
        }
    }

    /// Executes what is no query.
    fn executed(&mut self, statement: &Statement) -> Result<(), Failure> {
        match self.session.execute(statement).map_err(failed)? {
            Executed::Done if self.interactive => print("ok"),
            Executed::Done | Executed::Query(_) => Ok(()),
            Executed::Explained(text) => print(&harmless(&text)),
            Executed::Listed(rows) => print_rows(self.output, &rows),
        }
    }

    /// Runs a query in a separate thread, so that a query that waits forever, for the opening of a
    /// pipe, say, can be left behind. The query changes no state of the session. Other programs see
    /// a job.
    fn query(&mut self, statement: &Statement, name: &str) -> Result<(), Failure> {
        let (sender, ended) = mpsc::channel();
        let give_up = sender.clone();
        let number = self.interrupts.starts(move || drop(give_up.send(None)));
        let board = self.board(statement, name, number);
        let _shown = Show::begin(&board, false);
        let query = Query {
            session: self.session.clone(),
            output: self.output,
            interrupts: self.interrupts.clone(),
            number,
            board,
            remarks: self.remarks.clone(),
            timing: self.timing,
        };
        let statement = statement.clone();
        let run = move || {
            let done = catch_unwind(AssertUnwindSafe(|| query.run(&statement)));
            drop(sender.send(Some(done.unwrap_or_else(|panic| Err(panicked(&*panic))))));
        };
        let started = thread::Builder::new().name("query".into()).spawn(run);
        started.map_err(|e| fail(&format!("cannot start a thread: {e}")))?;
        match ended.recv() {
            Ok(Some(done)) => done,
            _ => {
                note(&"the query was left behind, waiting for a reader or a writer");
                Err(Failure::Interrupted)
            }
        }
    }

    /// Where a query notes what it is doing, and from where it is stopped.
    fn board(&self, statement: &Statement, name: &str, number: u64) -> Arc<StatusBoard> {
        let board = Arc::new(StatusBoard::new(name));
        board.plans(self.executed - 1, &statement.text());
        let (interrupts, drained) = (self.interrupts.clone(), self.drained.clone());
        board.on_stop(move |drain| {
            let told = if drain { interrupts.drain(number) } else { interrupts.stop(number) };
            drained.fetch_or(drain && told.is_ok(), Relaxed);
            told.map_or_else(|reason| StopAnswer::No(reason.into()), |()| StopAnswer::Yes)
        });
        board
    }
}

/// A query of the shell, with all that it takes to run it.
struct Query {
    session: Session,
    output: Output,
    interrupts: Interrupts,
    /// Number of the query's statement.
    number: u64,
    board: Arc<StatusBoard>,
    remarks: Arc<Mutex<Remarks>>,
    timing: bool,
}

impl Query {
    /// Runs the query to its end, or until interrupted.
    fn run(mut self, statement: &Statement) -> Result<(), Failure> {
        let executed = self.session.execute(statement);
        if self.interrupts.is_stopping(self.number) {
            return Err(Failure::Interrupted);
        }
        let Executed::Query(mut planned) = executed.map_err(failed)? else { return Ok(()) };
        check_settings(1, self.session.settings())
            .map_err(|e| failed(millstream::Failure::Sql(self.session.refuse_setting(e))))?;
        refuse_checkpoints(&self.session)?;
        let inserts = !planned.sinks.is_empty() && !planned.analyze;
        let sinks = planned.take_sinks(|| text_sink(self.output));
        let settings = planned.settings(self.session.settings());
        let job = Job::new(&planned.plan, &settings, sinks.clone());
        let job = job.map_err(|error| match self.interrupts.is_stopping(self.number) {
            // What it was waiting for has been given up.
            true => Failure::Interrupted,
            false => failed(millstream::Failure::Run(error)),
        })?;
        if !self.interrupts.runs(self.number, job.stopper()) {
            return Err(Failure::Interrupted);
        }
        let observed = job.stopper();
        self.board.runs(move || observed.observe());
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).say(job.remarks());
        job.stopper().on_notice(|notice| note(&notice));
        let (stats, result, remains) = job.run_and_keep();
        drop(remains);
        // The end of a query left behind has no observers.
        if !self.interrupts.is_current(self.number) {
            return Err(Failure::Interrupted);
        }
        self.board.commits();
        let result = match result {
            Ok(()) if !self.interrupts.commits(self.number) => Err(Error::Interrupted),
            other => other,
        };
        let result = result.and_then(|()| publish_all(&sinks, &planned.targets));
        let stopped = matches!(result, Err(Error::Interrupted));
        let simulated = self.session.settings().simulate.is_some();
        if planned.analyze && (result.is_ok() || stopped) {
            print(&harmless(&analyzed(&planned.explain, &planned.plan, &stats)))?;
        }
        if self.timing || stopped {
            note(&report::closing_line(&stats, simulated, stopped));
        } else {
            let left_out = report::left_out(&stats);
            if !left_out.is_empty() {
                warn(&left_out.trim_end());
            }
            if inserts && result.is_ok() {
                print(&format!("{} {} inserted", grouped(stats.rows), plural(stats.rows, "row")))?;
            }
        }
        match result {
            Ok(()) => Ok(()),
            Err(Error::Interrupted) => Err(Failure::Interrupted),
            Err(error) => Err(failed(millstream::Failure::Run(error))),
        }
    }
}

/// A query of the shell is gone with the shell.
fn refuse_checkpoints(session: &Session) -> Result<(), Failure> {
    match session.settings().checkpoint.path {
        None => Ok(()),
        Some(_) => {
            Err(failed(millstream::Failure::Sql(
                session.refuse_setting(SettingError {
                    key: "checkpoint.path".into(),
                    message: "a query of the shell has no checkpoints".into(),
                    help:
                        "put the statements into a file: millstream run FILE.sql --checkpoint DIR"
                            .into(),
                }),
            )))
        }
    }
}
