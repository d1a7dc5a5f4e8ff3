//! What the tests share: a session over tables that exist only as schemas, and questions to ask of
//! it.

use std::sync::{Arc, Mutex};

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use arrow::util::display::array_value_to_string;
use millstream_contract::error::{Error, Result};
use millstream_contract::expr::Expr;
use millstream_contract::plan::{
    Aggregate, Derived, EventTime, Input, Node, Operator, Plan, Project, Source, Stage,
};
use millstream_contract::sink::{Manner, RowOrder, Sink, Writers};
use millstream_contract::table::{Connectors, OpenOptions, Split, Table, TableOptions};
use millstream_sql::{Outcome, Planner, SqlError, parse_script};

/// A table without records.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) schema: SchemaRef,
    pub(crate) bounded: bool,
}

impl Table for Fake {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        self.bounded
    }
    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        Ok(vec![])
    }
    fn describe(&self, projection: &[usize]) -> String {
        format!("fake ({} of {} columns)", projection.len(), self.schema.fields().len())
    }
}

/// Promises to say why rows vary.
#[derive(Debug, Default)]
struct Nowhere(Mutex<Manner>);

impl Sink for Nowhere {
    fn expect(&self, manner: Manner) -> bool {
        *self.0.lock().unwrap() = manner;
        true
    }
    fn promise(&self) -> Option<String> {
        self.0.lock().unwrap().varies.map(str::to_string)
    }
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, _: &arrow::array::RecordBatch, _: bool) -> Result<()> {
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// Knows the connectors `fake` (ends), `endless` and `nowhere` (a sink).
#[derive(Debug)]
struct FakeConnectors;

fn connector(options: &TableOptions) -> &str {
    options.options.get("connector").map_or("", String::as_str)
}

fn fails_to_open(options: &TableOptions) -> Error {
    Error::Option {
        table: options.name.clone(),
        option: "connector".into(),
        message: format!("there is no connector '{}'", connector(options)),
        help: "did you mean 'fake'?".into(),
    }
}

impl Connectors for FakeConnectors {
    fn knows(&self, options: &TableOptions) -> bool {
        connector(options) != "kafka"
    }
    fn table(&self, options: &TableOptions) -> Result<Arc<dyn Table>> {
        assert!(!options.options.contains_key("scan.watermark.idle-timeout"));
        let bounded = match connector(options) {
            "fake" | "file" | "filesystem" => true,
            "endless" => false,
            _ => return Err(fails_to_open(options)),
        };
        Ok(Arc::new(Fake { schema: options.schema.clone(), bounded }))
    }
    fn metadata(&self, options: &TableOptions) -> Vec<(&'static str, DataType)> {
        match connector(options) {
            "file" => vec![("path", DataType::Utf8), ("offset", DataType::Int64), ("written", MS)],
            _ => Vec::new(),
        }
    }
    fn written_metadata(&self, options: &TableOptions) -> Vec<&'static str> {
        if connector(options) == "file" { vec!["written"] } else { Vec::new() }
    }
    fn sink(&self, options: &TableOptions) -> Result<Arc<dyn Sink>> {
        assert!(options.metadata.values().all(|key| key == "written"), "{:?}", options.metadata);
        match connector(options) {
            "nowhere" | "blackhole" | "file" | "print" => Ok(Arc::new(Nowhere::default())),
            _ => Err(fails_to_open(options)),
        }
    }
}

/// The paper's cluster monitoring table and one of every type.
pub(crate) const TABLES: &str = "
CREATE TABLE task_events (
    time_s BIGINT, job_id BIGINT NOT NULL, task_index INT, event_type TINYINT, user_name STRING,
    cpu_request DOUBLE,
    ts AS to_timestamp_seconds(time_s),
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'fake');
CREATE TABLE bids (
    ts TIMESTAMP(3), auction BIGINT, price BIGINT, dateTime TIMESTAMP(3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'endless', 'scan.watermark.idle-timeout' = '10 s');
CREATE TABLE typed (
    b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, u8 TINYINT UNSIGNED,
    u64 BIGINT UNSIGNED, f32 FLOAT, f64 DOUBLE, d DECIMAL(10, 2), s STRING, y BYTES, dt DATE,
    tm TIME(3), t0 TIMESTAMP(0), t6 TIMESTAMP, t9 TIMESTAMP(9), z TIMESTAMP_LTZ(3)
) WITH ('connector' = 'fake');
CREATE TABLE sink (who STRING, n BIGINT) WITH ('connector' = 'nowhere');
";

pub(crate) fn empty_session() -> Planner {
    Planner::new(Arc::new(FakeConnectors), ".".into())
}

pub(crate) fn session() -> Planner {
    let mut planner = empty_session();
    for statement in parse_script(TABLES, "tables.sql").unwrap() {
        planner.execute(&statement).unwrap_or_else(|e| panic!("{}", e.render()));
    }
    planner
}

/// Executes all statements; the outcome of the last.
pub(crate) fn execute(planner: &mut Planner, text: &str) -> std::result::Result<Outcome, SqlError> {
    let mut last = Outcome::Done;
    for statement in parse_script(text, "query.sql")? {
        last = planner.execute(&statement)?;
    }
    Ok(last)
}

/// A plan of one source and one stage, flat.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) projection: Vec<usize>,
    pub(crate) derived: Vec<Derived>,
    pub(crate) input: SchemaRef,
    pub(crate) event_time: Option<EventTime>,
    pub(crate) filter: Option<Expr>,
    pub(crate) project: Option<Project>,
    pub(crate) body: Operator,
    pub(crate) output: SchemaRef,
}

impl Query {
    /// What a query without state gives for a batch of what it reads.
    pub(crate) fn run(&self, mut batch: RecordBatch) -> Result<RecordBatch> {
        let Some(Project { columns: project, .. }) = &self.project else { panic!("{self:?}") };
        if let Some(filter) = &self.filter {
            let mask = filter.evaluate(&batch)?;
            batch = arrow::compute::filter_record_batch(&batch, mask.as_boolean()).unwrap();
        }
        let columns = project.iter().map(|e| e.evaluate(&batch)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.output.clone(), columns, &options).unwrap())
    }

    pub(crate) fn new(plan: &Plan) -> Query {
        let source = plan.source().unwrap();
        let [Stage { inputs, operator, output, .. }] = &plan.stages[..] else { panic!("{plan:?}") };
        let [Input { from: Node::Source(0), late: None, filter, project, again: false }] =
            &inputs[..]
        else {
            panic!("{plan:?}")
        };
        let Source { projection, derived, schema, event_time, .. } = source.clone();
        Query {
            projection,
            derived,
            input: schema,
            event_time,
            filter: filter.clone(),
            project: project.clone(),
            body: operator.clone(),
            output: output.clone(),
        }
    }
}

pub(crate) fn plan(text: &str) -> Query {
    Query::new(&graph(text))
}

/// A plan of any shape.
pub(crate) fn graph(text: &str) -> Plan {
    match execute(&mut session(), text) {
        Ok(Outcome::Query(planned)) => planned.plan,
        Ok(other) => panic!("no query: {other:?}"),
        Err(e) => panic!("{}", e.render()),
    }
}

pub(crate) fn error(text: &str) -> String {
    match execute(&mut session(), text) {
        Ok(outcome) => panic!("was not refused: {text}\n{outcome:?}"),
        Err(e) => e.render(),
    }
}

pub(crate) fn aggregate(query: &Query) -> &Aggregate {
    match &query.body {
        Operator::Aggregate(aggregate) => aggregate,
        other => panic!("no aggregate: {other:?}"),
    }
}

pub(crate) fn fields(schema: &Schema) -> Vec<(&str, &DataType, bool)> {
    schema.fields().iter().map(|f| (f.name().as_str(), f.data_type(), f.is_nullable())).collect()
}

pub(crate) const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

#[track_caller]
pub(crate) fn refused(text: &str, parts: &[&str]) {
    let rendered = error(text);
    for part in parts {
        assert!(rendered.contains(part), "{part:?} is not in:\n{rendered}");
    }
    let (first, rest) = rendered.split_once('\n').expect("a place");
    assert!(first.starts_with("error: ") && rest.contains("-->"), "{rendered}");
    for word in [
        "DataFusion",
        "Error during",
        "ParserError",
        "Utf8",
        "Int64",
        "backtrace",
        "not_impl",
        "Span(",
        " { ",
    ] {
        assert!(!rendered.contains(word), "{word} in:\n{rendered}");
    }
}

/// The values of a batch's first column.
pub(crate) fn shown(batch: &RecordBatch) -> Vec<String> {
    let column = batch.column(0);
    let null = |row| column.logical_nulls().is_some_and(|n| n.is_null(row));
    let show = |row| match null(row) {
        true => "NULL".to_string(),
        false => array_value_to_string(column, row).unwrap(),
    };
    (0..batch.num_rows()).map(show).collect()
}
