//! Executes the statements of the shell in its session.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream::cluster::check_settings;
use millstream::{
    Error, Executed, Job, Planned, Session, Statement, analyzed, commit_all, grouped, harmless,
    parse_script, plural,
};

use super::interrupt::Interrupts;
use crate::console::{Remarks, failed, note, panicked, print};
use crate::run::{print_rows, text_sink};
use crate::{Failure, Format, Output, report};

/// A session, and how the results of its statements are told.
pub(super) struct Statements {
    session: Session,
    output: Output,
    interrupts: Interrupts,
    remarks: Remarks,
    /// Whether a person types.
    pub(super) interactive: bool,
    /// Whether each query's numbers are told.
    pub(super) timing: bool,
}

impl Statements {
    pub(super) fn new(
        session: Session,
        output: Output,
        interrupts: Interrupts,
        interactive: bool,
    ) -> Statements {
        session.print_to(move |format| text_sink(output.with_format(format)));
        let (remarks, timing) = (Remarks::default(), !interactive);
        Statements { session, output, interrupts, remarks, interactive, timing }
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

    /// Executes statements one after the other, up to the first that fails, which is told.
    pub(super) fn execute(&mut self, text: &str, name: &str) -> Result<(), Failure> {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let statements =
                parse_script(text, name).map_err(|e| failed(millstream::Failure::Sql(e)))?;
            statements.iter().try_for_each(|statement| self.one(statement))
        }));
        done.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    fn one(&mut self, statement: &Statement) -> Result<(), Failure> {
        self.interrupts.starts();
        let done = self.executed(statement);
        if !self.interrupts.ends() {
            return Err(Failure::Interrupted);
        }
        done
    }

    fn executed(&mut self, statement: &Statement) -> Result<(), Failure> {
        match self.session.execute(statement).map_err(failed)? {
            Executed::Done if self.interactive => print("ok"),
            Executed::Done => Ok(()),
            Executed::Explained(text) => print(&harmless(&text)),
            Executed::Listed(rows) => print_rows(self.output, &rows),
            Executed::Query(planned) => self.query(*planned),
        }
    }

    /// Runs a query to its end, or until it is interrupted.
    fn query(&mut self, mut planned: Planned) -> Result<(), Failure> {
        check_settings(1, self.session.settings())
            .map_err(|e| failed(millstream::Failure::Sql(self.session.refuse_setting(e))))?;
        let inserts = !planned.sinks.is_empty() && !planned.analyze;
        let sinks = planned.take_sinks(|| text_sink(self.output));
        let job = Job::new(&planned.plan, self.session.settings(), sinks.clone())
            .map_err(|e| failed(millstream::Failure::Run(e)))?;
        self.remarks.say(job.remarks());
        job.stopper().on_notice(|notice| note(&notice));
        self.interrupts.runs(job.stopper());
        let (stats, result, remains) = job.run_and_keep();
        drop(remains);
        let result = result.and_then(|()| commit_all(&sinks, &planned.targets));
        let stopped = matches!(result, Err(Error::Interrupted));
        let simulated = self.session.settings().simulate.is_some();
        if planned.analyze && result.is_ok() {
            print(&harmless(&analyzed(&planned.explain, &planned.plan, &stats)))?;
        }
        if self.timing || stopped {
            note(&report::closing_line(&stats, simulated, stopped));
        } else if inserts && result.is_ok() {
            print(&format!("{} {} inserted", grouped(stats.rows), plural(stats.rows, "row")))?;
        }
        match result {
            Ok(()) => Ok(()),
            Err(Error::Interrupted) => Err(Failure::Interrupted),
            Err(error) => Err(failed(millstream::Failure::Run(error))),
        }
    }
}
