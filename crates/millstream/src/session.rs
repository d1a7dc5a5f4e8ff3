//! A session: tables, views and settings, and the queries that use them.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_connect::{CollectSink, Registry, standard_input};
use millstream_contract::plan::Plan;
use millstream_contract::settings::SettingError;
use millstream_contract::sink::{RowOrder, Sink};
use millstream_contract::table::Table;
use millstream_contract::{Error, Settings};
use millstream_engine::{Job, Stats, state_layout};
use millstream_sql::{
    EventTimeSpec, Outcome, PlannedQuery, Planner, SqlError, Statement, parse_script,
};

use crate::generator::GeneratorTable;

/// Why SQL did not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The text was refused.
    #[error("{0}")]
    Sql(#[from] SqlError),
    /// A query failed while it ran.
    #[error("{0}")]
    Run(#[from] Error),
}

/// What a statement came to.
pub enum Executed {
    /// It declared, dropped or set something.
    Done,
    /// A query that is ready to run.
    Query(Box<Planned>),
    /// `EXPLAIN`'s answer.
    Explained(String),
}

/// A query that is ready to run.
#[derive(Debug)]
pub struct Planned {
    /// For the engine.
    pub plan: Plan,
    /// The sink that it names, if it names one (`INSERT INTO`).
    pub sink: Option<Arc<dyn Sink>>,
    /// The plan as `EXPLAIN` prints it.
    pub explain: String,
}

/// Tables, views and settings.
pub struct Session {
    planner: Planner,
    registry: Arc<Registry>,
}

impl Planned {
    fn new(planned: PlannedQuery, sink: Option<Arc<dyn Sink>>) -> Planned {
        Planned { plan: planned.plan, sink, explain: planned.explain }
    }
}

impl Session {
    /// A session without tables. Relative paths in `CREATE TABLE` start from `base_dir`.
    pub fn new(base_dir: impl Into<PathBuf>) -> Session {
        let registry = Arc::new(Registry::new());
        registry.register_source("generator", |options| {
            Ok(Arc::new(GeneratorTable::from_options(options)?))
        });
        Session { planner: Planner::new(registry.clone(), base_dir.into()), registry }
    }

    /// A session with the tables, views and settings of this one, to execute statements in before
    /// any query of theirs runs: so a mistake in the last one is found before the first one's rows
    /// come. A file that one of them writes need not be there for those behind it.
    pub fn rehearsal(&self) -> Session {
        Session { planner: self.planner.rehearsal(), registry: self.registry.clone() }
    }

    /// The settings, as `SET` left them.
    pub fn settings(&self) -> &Settings {
        self.planner.settings()
    }

    /// Changes a setting without SQL.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        self.planner.set(key, value)
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

    /// Makes `INSERT INTO` a table with connector `print` write to `sink`, wherever the rows of
    /// plain queries go.
    pub fn print_to(&self, sink: impl Fn() -> Arc<dyn Sink> + Send + Sync + Clone + 'static) {
        self.registry.print_to(sink);
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

    /// Executes one statement; a query is planned, not run.
    pub fn execute(&mut self, statement: &Statement) -> Result<Executed, Failure> {
        Ok(match self.planner.execute(statement)? {
            Outcome::Done | Outcome::Set { .. } => Executed::Done,
            Outcome::Query(planned) => Executed::Query(Box::new(Planned::new(planned, None))),
            Outcome::Insert(planned, sink) => {
                Executed::Query(Box::new(Planned::new(planned, Some(sink))))
            }
            Outcome::Explain(planned) => {
                Executed::Explained(with_layout(planned.explain, &planned.plan)?)
            }
        })
    }

    /// What `explain` prints for a query: logical plan, pipelines, state layout. `None` for a
    /// statement that is no query, which is executed.
    pub fn explain(&mut self, statement: &Statement) -> Result<Option<String>, Failure> {
        match self.planner.execute(statement)? {
            Outcome::Done | Outcome::Set { .. } => Ok(None),
            Outcome::Query(planned) | Outcome::Insert(planned, _) | Outcome::Explain(planned) => {
                Ok(Some(with_layout(planned.explain, &planned.plan)?))
            }
        }
    }

    /// Plans the last query of some SQL text, executing what precedes it.
    pub fn plan(&mut self, sql: &str) -> Result<Plan, Failure> {
        let mut last = None;
        for statement in parse_script(sql, "<sql>")? {
            if let Executed::Query(planned) = self.execute(&statement)? {
                last = Some(planned.plan);
            }
        }
        last.ok_or_else(|| {
            Error::Evaluation {
                expression: sql.into(),
                message: "there is no query in the text".into(),
                frame: String::new(),
                help: "add a SELECT".into(),
            }
            .into()
        })
    }

    /// Runs the last query of some SQL text to its end, into `sink`.
    pub fn run(&mut self, sql: &str, sink: Arc<dyn Sink>) -> Result<Stats, Failure> {
        let plan = self.plan(sql)?;
        let (stats, result) = Job::new(&plan, self.settings(), vec![sink])?.run();
        result?;
        Ok(stats)
    }

    /// Runs the last query of some SQL text to its end and returns its rows, in an order that does
    /// not depend on the number of workers.
    pub fn collect(&mut self, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
        let sink = Arc::new(CollectSink::new(RowOrder::Deterministic));
        self.run(sql, sink.clone())?;
        Ok(sink.take())
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
