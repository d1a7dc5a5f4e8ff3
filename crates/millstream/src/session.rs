//! A session: tables, views and settings, and the queries that use them.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_connect::Registry;
use millstream_contract::Settings;
use millstream_contract::declaration::Declaration;
use millstream_contract::settings::SettingError;
use millstream_contract::sink::Sink;
use millstream_contract::table::{Table, TableOptions};
use millstream_sql::{EventTimeSpec, Planner, Statement};

use crate::failure::Failure;
use crate::nexmark::NexmarkTable;

/// Tables, views, functions and settings, and the queries that use them. A clone goes its own way.
#[derive(Clone)]
pub struct Session {
    pub(crate) planner: Planner,
    pub(crate) registry: Arc<Registry>,
    /// Settings that `SET` does not change.
    pub(crate) fixed: Vec<(String, String)>,
}

impl Session {
    /// A session without tables. Relative paths in `CREATE TABLE` start from `base_dir`.
    ///
    /// ```
    /// let session = millstream::Session::new("/data/of/today");
    /// assert!(session.table_names().is_empty());
    /// ```
    pub fn new(base_dir: impl Into<PathBuf>) -> Session {
        let registry = Arc::new(Registry::new());
        registry.register_source("nexmark", |options| {
            Ok(Arc::new(NexmarkTable::from_options(options)?))
        });
        millstream_kafka::register(&registry);
        millstream_ingest::register(&registry);
        let planner = Planner::new(registry.clone(), base_dir.into());
        Session { planner, registry, fixed: Vec::new() }
    }

    /// The settings, as `SET` left them.
    ///
    /// ```
    /// let mut session = millstream::Session::new(".");
    /// session.submit("SET 'workers' = '3'")?;
    /// assert_eq!(session.settings().workers, 3);
    /// # Ok::<(), millstream::Failure>(())
    /// ```
    pub fn settings(&self) -> &Settings {
        self.planner.settings()
    }

    /// Changes a setting without SQL.
    ///
    /// ```
    /// let mut session = millstream::Session::new(".");
    /// session.set("memory", "64MB")?;
    /// assert!(session.set("memory", "a lot").is_err());
    /// # Ok::<(), millstream::SettingError>(())
    /// ```
    ///
    /// # Errors
    /// An unknown setting, or a value out of its range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        self.planner.set(key, value)
    }

    /// The names of all tables and views, in order.
    ///
    /// ```
    /// let mut session = millstream::Session::new(".");
    /// session.submit("CREATE VIEW one AS SELECT n FROM (VALUES (1)) AS t (n)")?;
    /// assert_eq!(session.table_names(), ["one"]);
    /// # Ok::<(), millstream::Failure>(())
    /// ```
    pub fn table_names(&self) -> Vec<String> {
        self.planner.table_names()
    }

    /// Adds a connector to read from: `make` is called with the options of a `CREATE TABLE` that
    /// names it, when a query reads the table. A connector of the same name is replaced.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use millstream::{MemoryTable, Session};
    ///
    /// let mut session = Session::new(".");
    /// session.register_source("empty", |options| {
    ///     Ok(Arc::new(MemoryTable::new(options.schema.clone(), vec![])?))
    /// });
    /// let rows = session.collect(
    ///     "CREATE TABLE nothing (n BIGINT) WITH ('connector' = 'empty'); SELECT n FROM nothing",
    /// )?;
    /// assert!(rows.is_empty());
    /// # Ok::<(), millstream::Failure>(())
    /// ```
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
    /// names it, when a query inserts into the table. A connector of the same name is replaced.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use millstream::{BlackholeSink, Session};
    ///
    /// let mut session = Session::new(".");
    /// session.register_sink("hole", |_options| Ok(Arc::new(BlackholeSink::new())));
    /// session.submit(
    ///     "CREATE TABLE hole (n BIGINT) WITH ('connector' = 'hole');
    ///      INSERT INTO hole SELECT n FROM (VALUES (1)) AS t (n)",
    /// )?.wait()?;
    /// # Ok::<(), millstream::Failure>(())
    /// ```
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
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow::datatypes::{DataType, Field, Schema};
    /// use millstream::{CollectSink, RowOrder, Session};
    ///
    /// let (mut session, sink) = (Session::new("."), Arc::new(CollectSink::new(RowOrder::Any)));
    /// let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    /// session.register_sink_table("kept", &schema, sink.clone());
    /// session.submit("INSERT INTO kept SELECT n FROM (VALUES (1), (2)) AS t (n)")?.wait()?;
    /// assert_eq!(sink.take().iter().map(|rows| rows.num_rows()).sum::<usize>(), 2);
    /// # Ok::<(), millstream::Failure>(())
    /// ```
    pub fn register_sink_table(&mut self, name: &str, schema: &SchemaRef, sink: Arc<dyn Sink>) {
        self.planner.register_sink(name, schema, sink);
    }

    /// Declares a table of the program's own, with its event-time column and how far the watermark
    /// is behind the greatest event time (microseconds).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow::array::{Int64Array, RecordBatch};
    /// use millstream::{MemoryTable, Session};
    ///
    /// let column = Arc::new(Int64Array::from(vec![1, 2, 3])) as _;
    /// let batch = RecordBatch::try_from_iter([("n", column)])?;
    /// let table = MemoryTable::new(batch.schema(), vec![vec![batch]])?;
    /// let mut session = Session::new(".");
    /// session.register_table("numbers", Arc::new(table), None)?;
    /// assert_eq!(session.collect("SELECT n FROM numbers WHERE n > 1")?[0].num_rows(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An event-time column that the table does not have, or that is no time.
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

    /// A session with the same tables, views and settings, to execute statements in before any of
    /// their queries runs: so a mistake in the last statement is found before the first rows come.
    /// A file that an earlier statement writes need not exist yet for later statements.
    pub(crate) fn rehearsal(&self) -> Session {
        Session { planner: self.planner.rehearsal(), ..self.clone() }
    }

    /// The session after the statements that were rehearsed have run.
    pub(crate) fn after_rehearsal(self) -> Session {
        Session { planner: self.planner.after_rehearsal(), ..self }
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
}
