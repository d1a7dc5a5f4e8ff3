//! Control of a session by a program that executes statements one by one and shows them to people.

use std::sync::Arc;

use millstream_connect::{Format, standard_input};
use millstream_contract::Settings;
use millstream_contract::declaration::Declaration;
use millstream_contract::plan::Plan;
use millstream_contract::settings::SettingError;
use millstream_contract::sink::Sink;
use millstream_contract::wording::counted;
use millstream_engine::state_layout;
use millstream_sql::{Outcome, PlannedQuery, SqlError, Statement, parse_script};

use super::planned::{Executed, Planned};
use super::saved;
use crate::failure::Failure;
use crate::session::Session;

/// Name of a script given as text, for messages.
pub(crate) const NAME: &str = "<sql>";

/// Methods of a [`Session`] that only programs need.
pub trait SessionControl {
    /// The session.
    fn own(&self) -> &Session;

    /// The session.
    fn own_mut(&mut self) -> &mut Session;

    /// Changes a setting that `SET` in SQL will not change any more.
    fn fix_setting(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let session = self.own_mut();
        session.planner.set(key, value)?;
        session.fixed.push((key.to_string(), value.to_string()));
        Ok(())
    }

    /// Says of a setting's value that it does not go with the rest of a job, and shows where it
    /// stands, if `SET` gave it.
    fn refuse_setting(&self, error: SettingError) -> SqlError {
        self.own().planner.refuse_setting(error)
    }

    /// The settings, to change any number of them without SQL.
    fn settings_mut(&mut self) -> &mut Settings {
        self.own_mut().planner.settings_mut()
    }

    /// Fixes what `NOW()` means, in microseconds since the epoch; otherwise it is the time at which
    /// a query is planned.
    fn set_start_time_us(&mut self, start_time_us: i64) {
        self.own_mut().planner.set_start_time_us(start_time_us);
    }

    /// The SQL has been read from standard input to its end, so that no query can read it.
    fn script_from_standard_input(&mut self) {
        if let Some(read) = standard_input() {
            self.own_mut().planner.script_from(read);
        }
    }

    /// Does not care for what is read twice and can be read once: where nothing is read, and in all
    /// processes but the first, which alone reads pipes.
    fn read_nothing_once(&mut self) {
        self.own_mut().planner.read_nothing_once();
    }

    /// Declaration inferred from the files of a path or pattern: the `CREATE TABLE` behind a query
    /// that names the files in FROM.
    fn declaration(&self, path: &str) -> millstream_contract::Result<Declaration> {
        self.own().planner.declaration(path)
    }

    /// Reads the records of a table that is declared from now on from a file, whatever its
    /// connector says: a CSV file with a header if the path ends in `.csv`, else one of NDJSON. A
    /// relative path starts where those in `CREATE TABLE` do. For tests of queries.
    fn read_from_file(&mut self, table: &str, path: &str) {
        self.own_mut().planner.read_from_file(table, path);
    }

    /// Inserts into the sinks that `sink` makes from the names of tables, whatever the connectors
    /// of these say. It is called once for each `INSERT INTO` that is planned. For tests of
    /// queries.
    fn insert_into(&mut self, sink: impl Fn(&str) -> Arc<dyn Sink> + Send + Sync + 'static) {
        self.own_mut().planner.insert_into(sink);
    }

    /// The columns of a table or view, in order; empty for an unknown name.
    fn column_names(&self, table: &str) -> Vec<String> {
        self.own().planner.column_names(table)
    }

    /// The names of all functions, in capitals, in order.
    fn function_names(&self) -> Vec<String> {
        self.own().planner.function_names(false)
    }

    /// Makes `INSERT INTO` a table with connector `print` write to `sink`, wherever the rows of
    /// plain queries go. It is called with the table's option `format`, if there is one.
    fn print_to(
        &self,
        sink: impl Fn(Option<Format>) -> Arc<dyn Sink> + Send + Sync + Clone + 'static,
    ) {
        self.own().registry.print_to(sink);
    }

    /// Executes one statement; a query is planned, not run.
    fn execute(&mut self, statement: &Statement) -> Result<Executed, Failure> {
        let session = self.own_mut();
        for (key, value) in &session.fixed {
            session.planner.set(key, value).map_err(|e| session.planner.refuse_setting(e))?;
        }
        Ok(match session.planner.execute(statement)? {
            Outcome::Done | Outcome::Set { .. } => Executed::Done,
            Outcome::Query(planned) => Executed::Query(Box::new(Planned::new(planned, vec![]))),
            Outcome::Insert(planned, sinks) => {
                Executed::Query(Box::new(Planned::new(planned, sinks)))
            }
            Outcome::Explain(planned) => Executed::Explained(explained(session, planned)?),
            Outcome::Analyze(planned, sinks) => {
                Executed::Query(Box::new(Planned::new(planned, sinks).analyzed()))
            }
            Outcome::Text(text) => Executed::Explained(text),
            Outcome::Listed(rows) => Executed::Listed(rows),
        })
    }

    /// Text of `explain` for a query: logical plan, pipelines, state layout. `None` for a statement
    /// that is no query; the statement is executed.
    fn explain(&mut self, statement: &Statement) -> Result<Option<String>, Failure> {
        let session = self.own_mut();
        match session.planner.execute(statement)? {
            Outcome::Done | Outcome::Set { .. } | Outcome::Text(_) | Outcome::Listed(_) => Ok(None),
            Outcome::Query(planned)
            | Outcome::Insert(planned, _)
            | Outcome::Explain(planned)
            | Outcome::Analyze(planned, _) => Ok(Some(explained(session, planned)?)),
        }
    }

    /// Plans the one query of a script, a `SELECT`, and executes the other statements.
    ///
    /// # Errors
    /// [`Failure::Script`] if there is another query, or none.
    fn plan(&mut self, sql: &str) -> Result<Plan, Failure> {
        let mut plans = Vec::new();
        for statement in parse_script(sql, NAME)? {
            match self.execute(&statement)? {
                Executed::Query(planned) if planned.sinks.is_empty() && !planned.analyze => {
                    plans.push(planned.plan);
                }
                Executed::Query(_) | Executed::Explained(_) | Executed::Listed(_) => {
                    return Err(Failure::Script(format!(
                        "only the plan of a SELECT is kept, and here is another statement: \
                         {statement}\n  help: use submit"
                    )));
                }
                Executed::Done => {}
            }
        }
        let number = plans.len();
        plans.pop().filter(|_| number == 1).ok_or_else(|| one_wanted("SELECT", number))
    }

    /// Plans a whole script before the first of its queries runs, on so many processes: so a
    /// mistake in the last one is found at once. The session stays as it is.
    fn rehearse(&self, statements: &[Statement], processes: usize) -> Result<(), Failure> {
        let first = statements.iter().position(Statement::is_query);
        // Nothing has run before a mistake in the only query is found.
        if first.unwrap_or(statements.len()) + 1 >= statements.len() {
            return Ok(());
        }
        self.own().rehearsed(statements, processes).map(drop)
    }
}

impl SessionControl for Session {
    fn own(&self) -> &Session {
        self
    }

    fn own_mut(&mut self) -> &mut Session {
        self
    }
}

/// Text of EXPLAIN: pipelines, the layout of the state, and how often rows come after a crash.
fn explained(session: &Session, planned: PlannedQuery) -> Result<String, Failure> {
    let promised = saved::promised(session, &planned);
    let mut text = planned.explain;
    let mut add = |part: &str| {
        if !part.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(part);
    };
    let layout = state_layout(&planned.plan, millstream_sql::sql_type_name)?;
    if !layout.is_empty() {
        add("State layout\n");
        add(&layout);
    }
    add(&promised);
    Ok(text)
}

/// The failure of a script that has not the one statement that is wanted.
pub(crate) fn one_wanted(what: &str, number: usize) -> Failure {
    Failure::Script(format!(
        "expected a script with one {what}, found {}\n  help: use submit",
        counted(number as u64, what)
    ))
}
