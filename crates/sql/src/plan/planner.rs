//! The planner: executes the statements of a session in order, and knows the declarations of
//! earlier statements.

mod declare;
mod listing;
mod logical;
mod outcome;
mod ready;
mod rehearsed;
mod values;
mod wide;

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_sql::sqlparser::ast::Query as SqlQuery;
use millstream_contract::declaration::{Declaration, literal};
use millstream_contract::settings::{SETTINGS, Settings, is_bucket};
use millstream_contract::table::{Connectors, ReadOnce, Table, TableOptions};
use millstream_contract::{plan::PACK_US, sink::Sink};

use crate::expr::coercion::Coercion;
use crate::expr::registered::{ScalarFunction, registered};
use crate::expr::scalars::{DatesAsTimes, with_zone};
use crate::faults::{blame::blame, check::check_query};
use crate::names::catalog::{
    Catalog, Entry, EventTimeDecl, FileTables, LeftOut, NamedViews, Origin, TableColumn,
    TableEntry, WatermarkDecl,
};
use crate::names::scope::SHOWN;
use crate::names::written::{Written, twice, written_by};
use crate::names::{
    ends::Ends, readings::Readings, references::tables_of, with_names::with_own_names,
};
use crate::plan::explain::{explain, logical_text};
use crate::plan::files::{Declarer, files_of, look_through};
use crate::plan::{assemble::Assembler, create::refuse_finer, stand_ins::StandIns};
use crate::stages::functions::{Context, Functions};
use crate::stages::graph::{Graph, Reader};
use crate::stages::insert::{Target, fit_to_sink, show_local_times};
use crate::stages::lower::{Places, Stage};
use crate::stages::{
    compiler::Compiler, instants::join_by_instants, left_out::asides, places::places,
    rewrite::rewrite_query, texts::Texts,
};
use crate::syntax::prelude::*;
use crate::syntax::statement::{StatementKind, inserts};
use crate::syntax::{
    script::Statement, size::check_query_size, stack::on_large_stack, statement::is_path,
    statement_set::Insert, tree::Syntax, user_functions::expand,
};
use logical::Planned;
pub use outcome::{EventTimeSpec, Outcome, PlannedQuery};
use rehearsed::{Rehearsed, StatementResult};
use values::{SettingValues, setting_error};

/// Plans SQL: holds the tables, views and settings that statements declare.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use millstream_contract::table::Connectors;
/// # fn run(connectors: Arc<dyn Connectors>) -> millstream_sql::Result<()> {
/// use millstream_sql::{Outcome, Planner, parse_script};
///
/// let text = "CREATE TABLE t (v BIGINT) WITH ('connector' = 'file', 'path' = 't.csv');
///             SELECT v FROM t WHERE v > 1;";
/// let mut planner = Planner::new(connectors, ".".into());
/// for statement in parse_script(text, "example.sql")? {
///     if let Outcome::Query(planned) = planner.execute(&statement)? {
///         println!("{}", planned.explain);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Planner {
    connectors: Arc<dyn Connectors>,
    base_dir: PathBuf,
    catalog: Catalog,
    functions: Arc<Functions>,
    settings: Settings,
    values: SettingValues,
    /// The statements that have declared tables and views, by name.
    created: BTreeMap<String, String>,
    /// Where the values stand that `SET` gave, by key.
    set_places: BTreeMap<String, Place>,
    start_time: Option<DateTime<Utc>>,
    /// The next job goes on from a checkpoint.
    resumes: bool,
    /// In a rehearsal: what the statements so far insert into.
    written: Option<Vec<TableOptions>>,
    readings: Readings,
    /// In a rehearsal: which statement before has no end.
    ends: Ends,
    /// Shared with its rehearsals.
    rehearsed: Rehearsed,
    /// Files named by the current statement.
    files: FileTables,
    /// Declarations of files, found earlier, by path.
    given: BTreeMap<String, Declaration>,
    /// Of the current statement: the findings of its rehearsal, or of its run.
    found: Option<StatementResult>,
    /// In place of what tables say.
    stand_ins: StandIns,
}

impl std::fmt::Debug for Planner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planner").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

/// The columns of a table that a program registers.
fn physical_columns(schema: &Schema) -> Vec<TableColumn> {
    let column = |field: &Arc<Field>| TableColumn {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
        computed: None,
        metadata: None,
    };
    schema.fields().iter().map(column).collect()
}

impl Planner {
    /// Says whether the next job goes on from a checkpoint.
    pub fn set_resumes(&mut self, resumes: bool) {
        self.resumes = resumes;
    }

    /// A path, from where relative paths start, or a place in a bucket.
    pub fn path(&self, path: &Path) -> PathBuf {
        if is_bucket(path) { path.to_path_buf() } else { self.base_dir.join(path) }
    }

    /// A session without tables. `base_dir` is what relative paths in `WITH (…)` start from: the
    /// directory of the SQL file.
    pub fn new(connectors: Arc<dyn Connectors>, base_dir: PathBuf) -> Planner {
        Planner {
            connectors,
            base_dir,
            catalog: Catalog::default(),
            functions: Arc::new(Functions::new()),
            settings: Settings::default(),
            values: SettingValues::default(),
            created: BTreeMap::new(),
            set_places: BTreeMap::new(),
            start_time: None,
            resumes: false,
            written: None,
            readings: Readings::default(),
            ends: Ends::default(),
            rehearsed: Rehearsed::default(),
            files: FileTables::new(),
            given: BTreeMap::new(),
            found: None,
            stand_ins: StandIns::default(),
        }
    }

    /// A planner with the same declarations, to plan statements before any of them runs: a file
    /// that an earlier statement will write need not exist yet for later statements.
    pub fn rehearsal(&self) -> Planner {
        self.rehearsed.clear();
        Planner { written: Some(Vec::new()), ..self.clone() }
    }

    /// The planner of a rehearsal, for what comes after all that was rehearsed.
    pub fn after_rehearsal(self) -> Planner {
        Planner { written: None, ends: Ends::default(), ..self }
    }

    /// The settings as `SET` statements left them.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings, to change any number of them from outside SQL.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Fixes what `NOW()` means, in microseconds since the epoch; otherwise it is the time at which
    /// a query is planned.
    pub fn set_start_time_us(&mut self, start_time_us: i64) {
        self.start_time = DateTime::from_timestamp_micros(start_time_us);
    }

    /// Does not care for what is read twice and can be read once: nothing is read here, or what is
    /// standard input here is not the job's.
    pub fn read_nothing_once(&mut self) {
        self.readings = Readings::elsewhere();
    }

    /// The script has been read from `what`, which no query can read any more.
    pub fn script_from(&mut self, what: ReadOnce) {
        self.readings.script_from(what);
    }

    /// Declares a table of the program's own. A table of that name is replaced.
    pub fn register_table(
        &mut self,
        name: &str,
        table: Arc<dyn Table>,
        event_time: Option<EventTimeSpec>,
    ) -> Result<()> {
        let columns = physical_columns(&table.schema());
        let event_time = match event_time {
            None => None,
            Some(spec) => Some(EventTimeDecl {
                column: time_column(name, &columns, &spec.column)?,
                watermark: WatermarkDecl::Delay(spec.delay_us),
                idle_timeout_us: spec.idle_timeout_us,
            }),
        };
        let (left_out, origin) = (LeftOut::default(), Origin::Table(table));
        let (name_of, primary_key) = (name.to_string(), vec![]);
        let entry =
            TableEntry { name: name_of, columns, event_time, primary_key, left_out, origin };
        self.catalog.insert(name.to_string(), Entry::Table(Arc::new(entry)));
        Ok(())
    }

    /// Declares a sink of the program's own, to insert into. A table of that name is replaced.
    pub fn register_sink(&mut self, name: &str, schema: &Schema, sink: Arc<dyn Sink>) {
        let (columns, origin) = (physical_columns(schema), Origin::Sink(sink));
        let (name, left_out) = (name.to_string(), LeftOut::default());
        let (event_time, primary_key) = (None, vec![]);
        let entry =
            TableEntry { name: name.clone(), columns, event_time, primary_key, left_out, origin };
        self.catalog.insert(name, Entry::Table(Arc::new(entry)));
    }

    /// Declares a scalar function of the program's own, in place of a registered function of the
    /// same name.
    pub fn register_function(
        &mut self,
        name: &str,
        arguments: &[DataType],
        returns: DataType,
        call: Arc<ScalarFunction>,
    ) -> Result<()> {
        let lower = name.to_lowercase();
        let added = match self.catalog.function(&lower) {
            Some(_) => Err("CREATE FUNCTION has declared a function of this name".to_string()),
            None => registered(&lower, arguments, returns, call)
                .and_then(|function| Arc::make_mut(&mut self.functions).register(function)),
        };
        added
            .map_err(|why| SqlError::name(format!("function '{name}' cannot be registered: {why}")))
    }

    /// Infers the declarations of the files that statements name as tables, so that each file is
    /// examined only once: other processes [receive](Planner::give_files) the declarations.
    ///
    /// # Errors
    /// If a file cannot be read or understood.
    pub fn declare_files(
        &mut self,
        statements: &[Statement],
    ) -> Result<Vec<(String, Declaration)>> {
        for statement in statements {
            for name in files_of(statement) {
                if self.catalog.get(&name.value).is_none() {
                    let found = self.declarer().declaration(&name);
                    let found = found.map_err(|e| e.in_source(&statement.source))?;
                    self.given.insert(name.value, found);
                }
            }
        }
        Ok(self.given.iter().map(|(path, found)| (path.clone(), found.clone())).collect())
    }

    /// Takes over declarations of files that another process has inferred.
    pub fn give_files(&mut self, files: &[(String, Declaration)]) {
        self.given.extend(files.iter().cloned());
    }

    /// Declaration inferred from the files of a path or pattern.
    pub fn declaration(&self, path: &str) -> millstream_contract::Result<Declaration> {
        self.connectors.declaration(path, &self.base_dir)
    }

    fn declarer(&self) -> Declarer<'_> {
        let (connectors, base_dir) = (&*self.connectors, &*self.base_dir);
        Declarer { connectors, base_dir, given: &self.given }
    }

    /// Executes a statement: stores the declaration, or plans the query.
    pub fn execute(&mut self, statement: &Statement) -> Result<Outcome> {
        let source = &statement.source;
        let (before, is_rehearsal) = (self.catalog.version, self.written.is_some());
        let known = (!is_rehearsal).then(|| self.rehearsed.take(statement, before)).flatten();
        let (after, found) = known.map(|known| (known.after, known.found)).unzip();
        self.found = found.flatten();
        let done = on_large_stack(|| self.run(statement));
        let found = self.found.take();
        match after {
            _ if done.is_err() => {}
            Some(after) => self.catalog.version = after,
            None if is_rehearsal => {
                self.rehearsed.note(statement, (before, self.catalog.version), found);
            }
            None => {}
        }
        done.map_err(|e| if e.source.is_some() { e } else { e.at(statement.span) })
            .map_err(|e| e.in_source(source))
    }

    fn run_kind(&mut self, statement: &Statement) -> Result<Outcome> {
        // Plans of the rehearsal contain the files already.
        self.files = match self.found {
            Some(_) => FileTables::new(),
            None => self.declarer().tables(statement, &self.catalog, &self.context())?,
        };
        match &statement.kind {
            StatementKind::CreateTable(create) => self.create_table(create, statement),
            StatementKind::CreateView { name, or_replace, if_not_exists, columns, query } => {
                let exists = if *or_replace {
                    self.may_replace(name)?;
                    false
                } else {
                    !self.may_create(name, *if_not_exists)?
                };
                if !exists {
                    self.create_view(name, query, columns, statement)?;
                }
                Ok(Outcome::Done)
            }
            StatementKind::CreateFunction(create) => self.create_function(create, statement),
            StatementKind::DropFunction { name, if_exists } => self.drop_function(name, *if_exists),
            StatementKind::Drop { view, name, if_exists } => self.drop(*view, name, *if_exists),
            StatementKind::Set { key, value, key_span, value_span } => {
                self.set(key, value).map_err(|e| {
                    let known = SETTINGS.iter().any(|(name, ..)| name == key);
                    setting_error(e).at(if known { *value_span } else { *key_span })
                })?;
                if let Some(span) = *value_span {
                    let place = Place { span, source: statement.source.clone() };
                    self.set_places.insert(key.clone(), place);
                }
                Ok(Outcome::Set { key: key.clone() })
            }
            StatementKind::Explain(explained) => {
                Ok(Outcome::Explain(self.plan(explained, statement)?))
            }
            StatementKind::Analyze(analyzed) => {
                let (planned, sinks) = self.runnable(analyzed, statement)?;
                Ok(Outcome::Analyze(planned, sinks))
            }
            StatementKind::Describe(name) => Ok(Outcome::Listed(self.described(name)?)),
            StatementKind::Show(show) => self.listed(show),
            StatementKind::Reset(key) => self.reset(key.as_ref()),
            StatementKind::Query(_) => {
                Ok(Outcome::Query(self.runnable(&statement.kind, statement)?.0))
            }
            StatementKind::Insert(_) | StatementKind::Inserts(_) => {
                let (planned, sinks) = self.runnable(&statement.kind, statement)?;
                Ok(Outcome::Insert(planned, sinks))
            }
        }
    }

    fn context(&self) -> Context<'_> {
        let (catalog, functions) = (&self.catalog, &*self.functions);
        Context { catalog, functions, files: &self.files, columns: None }
    }

    fn table_named(&self, name: &Ident) -> Result<Arc<TableEntry>> {
        match self.catalog.get(&name.value) {
            Some(Entry::Table(entry)) => Ok(entry.clone()),
            Some(Entry::View(_)) => Err(SqlError::unsupported(format!(
                "nothing can be inserted into the view '{}'",
                name.value
            ))
            .at(Span::new(name.span))
            .help("insert into a table")),
            None if is_path(&name.value) => {
                let path = literal(&name.value);
                let message = format!("INSERT INTO takes a table, and {path} is a file");
                Err(SqlError::name(message).at(Span::new(name.span)).help(
                    "declare a table of files: CREATE TABLE results (…) WITH ('connector' = \
                     'file', 'format' = 'csv', 'path' = 'results')",
                ))
            }
            None => Err(self.catalog.unknown(&name.value).at(Span::new(name.span))),
        }
    }

    /// The logical plan of a query: names resolved, and with types made to agree.
    fn logical(
        &self,
        query: &SqlQuery,
        source: &Arc<Source>,
        span: Option<Span>,
    ) -> Result<Logical> {
        let query = expand(query.clone(), self.catalog.functions())?;
        check_query_size(&query)?;
        let query = with_own_names(rewrite_query(query, &self.functions)?)?;
        let syntax = Arc::new(Syntax::of_query(&query, source));
        check_query(&query, &self.functions).map_err(|e| syntax.at_keyword(e))?;
        let NamedViews { levels, texts: views, names } = self.catalog.views_of(&query)?;
        let tables = tables_of(&query, &self.catalog)?;
        let texts: Vec<_> = std::iter::once(syntax.clone()).chain(views).collect();
        let texts = Texts::new(texts);
        let join_within_us = self.settings.join_within_us;
        let zoned = self.settings.time_zone.is_some();
        let places = Places { zoned, join_within_us, names, ..places(&query, span, texts) };
        let context = self.context();
        let planned = self.planned(&query, &places.texts);
        let Planned { plan, analyzed } =
            planned.map_err(|e| blame(e, &query, &context, &syntax))?;
        Ok(Logical { plan, analyzed, places, query, syntax, levels, tables })
    }

    /// Makes types agree.
    fn analyze(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let analyzer = Analyzer::with_rules(vec![Arc::new(DatesAsTimes), Arc::new(Coercion)]);
        Ok(analyzer.execute_and_check(plan, &self.functions.config, |_, _| {})?)
    }

    /// Plans a query, an INSERT or those of a statement set, as one plan.
    fn plan(&mut self, kind: &StatementKind, statement: &Statement) -> Result<PlannedQuery> {
        let known = match self.found.take() {
            Some(StatementResult::Queries(queries)) => Some(queries),
            _ => None,
        };
        let inserts = match kind {
            StatementKind::Query(_) => &[],
            _ => inserts(kind),
        };
        let targets = self.targets(inserts)?;
        let queries = match known {
            Some(queries) => {
                queries.iter().for_each(|query| query.places.texts.renew());
                queries
            }
            None => Arc::new(self.logicals(kind, statement)?),
        };
        let planned = self.planned_together(&queries, &targets);
        self.found = Some(StatementResult::Queries(queries));
        planned
    }

    /// The logical plans of a query, an INSERT or those of a statement set.
    fn logicals(&self, kind: &StatementKind, statement: &Statement) -> Result<Vec<Logical>> {
        let source = &statement.source;
        if let StatementKind::Query(query) = kind {
            return Ok(vec![self.logical(query, source, statement.span)?]);
        }
        let query = |insert: &Insert| self.logical(&insert.query, source, insert.span);
        inserts(kind).iter().map(query).collect()
    }

    /// The plan of queries that go to `targets`, or are shown if there are none.
    fn planned_together(
        &self,
        queries: &[Logical],
        targets: &[Target<'_>],
    ) -> Result<PlannedQuery> {
        let blamed = |query: usize, error| {
            let Logical { query, syntax, .. } = &queries[query];
            blame(error, query, &self.context(), syntax)
        };
        let mut graph = Graph::default();
        for (number, logical) in queries.iter().enumerate() {
            self.lower(&mut graph, number, logical, targets).map_err(|e| blamed(number, e))?;
        }
        let asides = asides(&graph, &self.catalog, targets, targets.is_empty())?;
        let tables: Vec<_> = graph.scans.iter().map(|scan| scan.entry.clone()).collect();
        let start_time = self.start_time.unwrap_or_else(Utc::now);
        let zone = self.settings.time_zone.as_ref();
        let config = &with_zone(&self.functions.config, zone);
        let assembler = Assembler {
            compiler: Compiler { start_time, config, zone },
            places: queries.iter().map(|query| &query.places).collect(),
        };
        let mut plan = assembler.assemble(graph, &asides).map_err(|e| blamed(e.query, e.error))?;
        join_by_instants(&mut plan)?;
        // In a rehearsal, the files may not be there yet, or not whole.
        if self.written.is_none() {
            look_through(&mut plan, &tables, &*self.connectors)?;
        }
        plan.pack_windows(self.settings.pack_us.unwrap_or(PACK_US));
        let name = |target: &Target<'_>| target.entry.name.clone();
        let overwritten = targets.iter().filter(|target| target.overwrites).map(name).collect();
        let targets: Vec<String> = targets.iter().map(name).collect();
        let logical: Vec<String> = queries.iter().map(|q| logical_text(&q.analyzed)).collect();
        let left_out: Vec<String> = asides.iter().map(|aside| aside.entry.name.clone()).collect();
        let explain = explain(&logical, &plan, &[&targets[..], &left_out].concat());
        // As they are: nothing that could differ between processes may be missing.
        let exact = queries.iter().map(|q| q.analyzed.display_indent().to_string());
        let logical = exact.collect::<Vec<_>>().join("\n");
        let left_out_sinks = Vec::new();
        let started_us = start_time.timestamp_micros();
        Ok(PlannedQuery {
            plan,
            targets,
            overwritten,
            left_out,
            left_out_sinks,
            logical,
            explain,
            started_us,
        })
    }

    /// Adds a query to a graph.
    fn lower(
        &self,
        graph: &mut Graph,
        number: usize,
        logical: &Logical,
        targets: &[Target<'_>],
    ) -> Result<()> {
        let Logical { analyzed, places, .. } = logical;
        let mut stage = Stage::new(analyzed, places)?;
        let columns = match targets.get(number) {
            Some(target) => fit_to_sink(&mut stage, analyzed, target)?,
            None => {
                if self.settings.time_zone.is_some() {
                    show_local_times(&mut stage, analyzed);
                }
                output_names(analyzed)
            }
        };
        let open = |table: &TableEntry| {
            let written = targets.iter().map(|target| &*target.entry);
            self.source(table).map_err(|e| written_by(e, table, written))
        };
        let name = targets.get(number).map_or(SHOWN, |target| &target.entry.name);
        graph.add(stage, columns, &Reader { query: number, name, places, open: &open })
    }

    /// Where INSERTs write.
    fn targets<'i>(&self, inserts: &'i [Insert]) -> Result<Vec<Target<'i>>> {
        let mut targets: Vec<Target<'i>> = Vec::new();
        let mut written: HashMap<Written, Arc<TableEntry>> = HashMap::new();
        for insert in inserts {
            let entry = self.table_named(&insert.table)?;
            let place = Span::new(insert.table.span);
            let to = Written::of(&entry);
            if let Some(other) = written.insert(to.clone(), entry.clone()) {
                return Err(twice(&to, &other, &entry).at(place));
            }
            let (columns, overwrites) = (&*insert.columns, insert.overwrites);
            targets.push(Target { entry, columns, place, overwrites });
        }
        Ok(targets)
    }

    /// An undeclared table with a test file and a name much like this table's.
    fn file_like(&self, table: &TableEntry) -> Option<&str> {
        let names = self.stand_ins.names();
        closest(&table.name, names.filter(|name| self.catalog.get(name).is_none()))
    }

    fn source(&self, table: &TableEntry) -> Result<Arc<dyn Table>> {
        let made = match &self.written {
            None => table.table(&*self.connectors),
            Some(written) => table.table_after(&*self.connectors, written),
        }?;
        let ends = made.bounded() && made.read_once().is_none() && !table.is_standard_input();
        if ends || !self.stand_ins.are_used() {
            Ok(made)
        } else {
            Err(table.without_file(self.file_like(table)))
        }
    }
}

/// A planned query.
struct Logical {
    /// As made by DataFusion's planner.
    plan: LogicalPlan,
    /// After type coercion.
    analyzed: LogicalPlan,
    places: Places,
    /// With its functions rewritten.
    query: SqlQuery,
    syntax: Arc<Syntax>,
    /// Levels of views in it.
    levels: usize,
    /// Tables that it reads.
    tables: usize,
}

fn time_column(table: &str, columns: &[TableColumn], name: &str) -> Result<usize> {
    let column = columns.iter().position(|c| c.name == name).ok_or_else(|| {
        SqlError::name(format!("table '{table}' has no column '{name}' for its event time"))
    })?;
    match &columns[column].data_type {
        time @ DataType::Timestamp(..) => refuse_finer(time, name).map(|()| column),
        other => Err(SqlError::types(format!(
            "column '{name}' of table '{table}' is {}, not a timestamp",
            sql_type_name(other)
        ))),
    }
}

/// The names of the result's columns, as people write them: `SUM(v)` rather than `sum(t.v)`. Of
/// several with the same name, as `*` gives them over a join, the others get a number, as in Flink.
fn output_names(plan: &LogicalPlan) -> Vec<String> {
    let fields = plan.schema().fields();
    let mut taken: HashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
    let mut seen = HashSet::new();
    let name = |field: &Arc<Field>| {
        let name = field.name();
        if seen.insert(name.clone()) {
            return name.clone();
        }
        let fresh = (0..).map(|n: usize| format!("{name}{n}")).find(|n| !taken.contains(n));
        let fresh = fresh.unwrap_or_default();
        taken.insert(fresh.clone());
        fresh
    };
    fields.iter().map(name).collect()
}
