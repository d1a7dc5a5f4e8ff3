//! A session: tables, views and settings, and the queries that use them.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_connect::{Format, Registry, standard_input};
use millstream_contract::Settings;
use millstream_contract::declaration::Declaration;
use millstream_contract::plan::Plan;
use millstream_contract::settings::SettingError;
use millstream_contract::sink::Sink;
use millstream_contract::table::{Table, TableOptions};
use millstream_engine::state_layout;
use millstream_sql::{EventTimeSpec, Outcome, Planner, SqlError, Statement};

use crate::failure::Failure;
use crate::nexmark::NexmarkTable;
use crate::planned::{Executed, Planned};

/// Tables, views and settings.
#[derive(Clone)]
pub struct Session {
    planner: Planner,
    registry: Arc<Registry>,
    /// Settings that `SET` does not change.
    fixed: Vec<(String, String)>,
}

impl Session {
    /// A session without tables. Relative paths in `CREATE TABLE` start from `base_dir`.
    pub fn new(base_dir: impl Into<PathBuf>) -> Session {
        let registry = Arc::new(Registry::new());
        registry.register_source("nexmark", |options| {
            Ok(Arc::new(NexmarkTable::from_options(options)?))
        });
        let planner = Planner::new(registry.clone(), base_dir.into());
        Session { planner, registry, fixed: Vec::new() }
    }

    /// A session with the same tables, views and settings, to execute statements in before any of
    /// their queries runs: so a mistake in the last statement is found before the first rows come.
    /// A file that an earlier statement writes need not exist yet for later statements.
    pub fn rehearsal(&self) -> Session {
        Session { planner: self.planner.rehearsal(), ..self.clone() }
    }

    /// The session after the statements that were rehearsed have run.
    pub(crate) fn after_rehearsal(self) -> Session {
        Session { planner: self.planner.after_rehearsal(), ..self }
    }

    /// The settings, as `SET` left them.
    pub fn settings(&self) -> &Settings {
        self.planner.settings()
    }

    /// Changes a setting without SQL.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        self.planner.set(key, value)
    }

    /// Changes a setting that `SET` in SQL will not change any more.
    pub fn fix_setting(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        self.planner.set(key, value)?;
        self.fixed.push((key.to_string(), value.to_string()));
        Ok(())
    }

    /// Says of a setting's value that it does not go with the rest of a job, and shows where it
    /// stands, if `SET` gave it.
    pub fn refuse_setting(&self, error: SettingError) -> SqlError {
        self.planner.refuse_setting(error)
    }

    /// The settings, to change any number of them without SQL.
    pub fn settings_mut(&mut self) -> &mut Settings {
        self.planner.settings_mut()
    }

    /// Fixes what `NOW()` means, in microseconds since the epoch; otherwise it is the time at which
    /// a query is planned.
    pub fn set_start_time_us(&mut self, start_time_us: i64) {
        self.planner.set_start_time_us(start_time_us);
    }

    /// The SQL has been read from standard input to its end, so that no query can read it.
    pub fn script_from_standard_input(&mut self) {
        if let Some(read) = standard_input() {
            self.planner.script_from(read);
        }
    }

    /// Does not care for what is read twice and can be read once: where nothing is read, and in all
    /// processes but the first, which alone reads pipes.
    pub fn read_nothing_once(&mut self) {
        self.planner.read_nothing_once();
    }

    /// Declaration inferred from the files of a path or pattern: the `CREATE TABLE` behind a query
    /// that names the files in FROM.
    pub fn declaration(&self, path: &str) -> millstream_contract::Result<Declaration> {
        self.planner.declaration(path)
    }

    /// Finds out what the files declare that statements name as tables, for other processes.
    pub(crate) fn declare_files(
        &mut self,
        statements: &[Statement],
    ) -> Result<Vec<(String, Declaration)>, Failure> {
        Ok(self.planner.declare_files(statements)?)
    }

    /// Takes over declarations of files that process 0 has inferred.
    pub(crate) fn give_files(&mut self, files: &[(String, Declaration)]) {
        self.planner.give_files(files);
    }

    /// Reads the records of a table that is declared from now on from a file, whatever its
    /// connector says: a CSV file with a header if the path ends in `.csv`, else one of NDJSON. A
    /// relative path starts where those in `CREATE TABLE` do. For tests of queries.
    pub fn read_from_file(&mut self, table: &str, path: &str) {
        self.planner.read_from_file(table, path);
    }

    /// Inserts into the sinks that `sink` makes from the names of tables, whatever the connectors
    /// of these say. It is called once for each `INSERT INTO` that is planned. For tests of
    /// queries.
    pub fn insert_into(&mut self, sink: impl Fn(&str) -> Arc<dyn Sink> + Send + Sync + 'static) {
        self.planner.insert_into(sink);
    }

    /// The names of all tables and views, in order.
    pub fn table_names(&self) -> Vec<String> {
        self.planner.table_names()
    }

    /// The columns of a table or view, in order; empty for an unknown name.
    pub fn column_names(&self, table: &str) -> Vec<String> {
        self.planner.column_names(table)
    }

    /// The names of all functions, in capitals, in order.
    pub fn function_names(&self) -> Vec<String> {
        self.planner.function_names(false)
    }

    /// Makes `INSERT INTO` a table with connector `print` write to `sink`, wherever the rows of
    /// plain queries go. It is called with the table's option `format`, if there is one.
    pub fn print_to(
        &self,
        sink: impl Fn(Option<Format>) -> Arc<dyn Sink> + Send + Sync + Clone + 'static,
    ) {
        self.registry.print_to(sink);
    }

    /// Adds a connector to read from: `make` is called with the options of a `CREATE TABLE` that
    /// names it, when a query reads the table. One of the same name is replaced.
    pub fn register_source(
        &self,
        connector: &str,
        make: impl Fn(&TableOptions) -> millstream_contract::Result<Arc<dyn Table>>
        + Send
        + Sync
        + 'static,
    ) {
        self.registry.register_source(connector, make);
    }

    /// Adds a connector to write to: `make` is called with the options of a `CREATE TABLE` that
    /// names it, when a query inserts into the table. One of the same name is replaced.
    pub fn register_sink(
        &self,
        connector: &str,
        make: impl Fn(&TableOptions) -> millstream_contract::Result<Arc<dyn Sink>>
        + Send
        + Sync
        + 'static,
    ) {
        self.registry.register_sink(connector, make);
    }

    /// Declares a table of the program's own to insert into, with these columns. A job opens it
    /// once; a table of that name is replaced.
    pub fn register_sink_table(&mut self, name: &str, schema: &SchemaRef, sink: Arc<dyn Sink>) {
        self.planner.register_sink(name, schema, sink);
    }

    /// Declares a table of the program's own, with its event-time column and how far the watermark
    /// is behind the greatest event time (microseconds).
    pub fn register_table(
        &mut self,
        name: &str,
        table: Arc<dyn Table>,
        event_time: Option<(&str, i64)>,
    ) -> Result<(), Failure> {
        let event_time = event_time.map(|(column, delay_us)| EventTimeSpec {
            column: column.to_string(),
            delay_us,
            idle_timeout_us: None,
        });
        Ok(self.planner.register_table(name, table, event_time)?)
    }

    /// Declares a scalar function of the program's own, for any place in SQL that takes an
    /// expression. The function gets an Arrow array for each argument and returns an array of the
    /// same length; arguments of other types are cast, NULLs included as they are. The result must
    /// depend on the arguments alone: a query computes constant calls once, and may call the
    /// function for rows that it drops later. With several processes the set-up of each process
    /// registers the function ([`SetUp`](crate::SetUp)).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow::array::{AsArray, Int64Array};
    /// use arrow::datatypes::{DataType, Int64Type};
    ///
    /// let mut session = millstream::Session::new(".");
    /// session.register_function("BITS", &[DataType::Int64], DataType::Int64, |arguments| {
    ///     let numbers = arguments[0].as_primitive::<Int64Type>();
    ///     let bits: Int64Array = numbers.unary(|number| i64::from(number.count_ones()));
    ///     Ok(Arc::new(bits))
    /// })?;
    /// let rows = session.collect("SELECT BITS(n) AS bits FROM (VALUES (6), (255)) AS t (n)")?;
    /// assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().values(), &[2, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A name that SQL or `CREATE FUNCTION` has, or types that no column has.
    pub fn register_function(
        &mut self,
        name: &str,
        arguments: &[DataType],
        returns: DataType,
        function: impl Fn(&[ArrayRef]) -> Result<ArrayRef, Box<dyn Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), Failure> {
        Ok(self.planner.register_function(name, arguments, returns, Arc::new(function))?)
    }

    /// Executes one statement; a query is planned, not run.
    pub fn execute(&mut self, statement: &Statement) -> Result<Executed, Failure> {
        for (key, value) in &self.fixed {
            self.planner.set(key, value).map_err(|e| self.planner.refuse_setting(e))?;
        }
        Ok(match self.planner.execute(statement)? {
            Outcome::Done | Outcome::Set { .. } => Executed::Done,
            Outcome::Query(planned) => Executed::Query(Box::new(Planned::new(planned, vec![]))),
            Outcome::Insert(planned, sinks) => {
                Executed::Query(Box::new(Planned::new(planned, sinks)))
            }
            Outcome::Explain(planned) => {
                Executed::Explained(with_layout(planned.explain, &planned.plan)?)
            }
            Outcome::Analyze(planned, sinks) => {
                Executed::Query(Box::new(Planned::new(planned, sinks).analyzed()))
            }
            Outcome::Text(text) => Executed::Explained(text),
            Outcome::Listed(rows) => Executed::Listed(rows),
        })
    }

    /// Text of `explain` for a query: logical plan, pipelines, state layout. `None` for a statement
    /// that is no query; the statement is executed.
    pub fn explain(&mut self, statement: &Statement) -> Result<Option<String>, Failure> {
        match self.planner.execute(statement)? {
            Outcome::Done | Outcome::Set { .. } | Outcome::Text(_) | Outcome::Listed(_) => Ok(None),
            Outcome::Query(planned)
            | Outcome::Insert(planned, _)
            | Outcome::Explain(planned)
            | Outcome::Analyze(planned, _) => {
                Ok(Some(with_layout(planned.explain, &planned.plan)?))
            }
        }
    }
}

fn with_layout(mut explain: String, plan: &Plan) -> Result<String, Failure> {
    let layout = state_layout(plan, millstream_sql::sql_type_name)?;
    if !layout.is_empty() {
        if !explain.ends_with('\n') {
            explain.push('\n');
        }
        explain.push_str("State layout\n");
        explain.push_str(&layout);
    }
    Ok(explain)
}
