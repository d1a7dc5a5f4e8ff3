//! The catalog: tables with their columns and event time, and views, by name.

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_contract::metadata::may_hold;
use millstream_contract::table::{Connectors, Table, TableOptions};
use millstream_contract::{declaration::literal, inferred::Inferred, sink::Sink, wrapped::Wrapped};

use crate::names::scope::ScopeNames;
use crate::syntax::create_table::{CreateTable, OptionDef};
use crate::syntax::prelude::*;
use crate::syntax::user_functions::{UserFunction, UserFunctions};
use crate::syntax::{statement::is_path, tree::Syntax};

/// The qualifier of a table's columns in lowered expressions.
pub(crate) const INPUT: &str = "$input";

/// A declared table.
#[derive(Debug, Clone)]
pub(crate) struct TableEntry {
    pub(crate) name: String,
    /// Physical and computed columns, in the order of their declaration.
    pub(crate) columns: Vec<TableColumn>,
    pub(crate) event_time: Option<EventTimeDecl>,
    /// Of several rows that have these columns in common, the later is a new version of the
    /// earlier; none: rows are no versions.
    pub(crate) primary_key: Vec<String>,
    pub(crate) left_out: LeftOut,
    pub(crate) origin: Origin,
}

/// The option that names the table of late records.
pub(crate) const LATE: &str = "late";
/// The option that names the table of malformed records.
pub(crate) const ON_ERROR: &str = "on_error";

/// The tables that records of a table go to which do not count.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftOut {
    pub(crate) malformed: Option<String>,
    pub(crate) late: Option<String>,
}

/// The table that a value `table:NAME` names.
pub(crate) fn named_table(value: &str) -> Option<&str> {
    Some(value.trim().strip_prefix("table:")?.trim()).filter(|name| !name.is_empty())
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) nullable: bool,
    /// Over other columns of the table ([`INPUT`]).
    pub(crate) computed: Option<Expr>,
    pub(crate) metadata: Option<Metadata>,
}

impl TableColumn {
    /// Whether INSERT INTO takes a value for it.
    pub(crate) fn is_inserted(&self) -> bool {
        self.metadata.as_ref().is_none_or(|of| of.is_written) && self.computed.is_none()
    }
}

/// Metadata behind a column: the connector's key, and its places in the statement.
#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    /// The connector's name of the metadata.
    pub(crate) key: String,
    /// VIRTUAL: INSERT INTO passes over it.
    pub(crate) is_virtual: bool,
    /// Whether INSERT INTO takes a value for it, which the connector writes.
    pub(crate) is_written: bool,
    /// Of the key where it is written, else of the name; and of the type.
    pub(crate) key_span: Option<Span>,
    pub(crate) type_span: Option<Span>,
    /// The text that the places are of, if it is not the statement's own.
    pub(crate) source: Option<Arc<Source>>,
}

/// A table's event time column and watermark.
#[derive(Debug, Clone)]
pub(crate) struct EventTimeDecl {
    /// Index into [`TableEntry::columns`].
    pub(crate) column: usize,
    pub(crate) watermark: WatermarkDecl,
    pub(crate) idle_timeout_us: Option<i64>,
}

#[derive(Debug, Clone)]
pub(crate) enum WatermarkDecl {
    /// Microseconds behind the event time.
    Delay(i64),
    /// Over columns of the table ([`INPUT`]).
    Expr(Box<Expr>),
    /// The time of reading.
    Clock,
}

impl WatermarkDecl {
    /// Whether it is the time of reading.
    pub(crate) fn is_clock(&self) -> bool {
        matches!(self, WatermarkDecl::Clock)
    }
}

/// Where a table's records come from or go to.
#[derive(Clone)]
pub(crate) enum Origin {
    /// The program's own, to read from.
    Table(Arc<dyn Table>),
    /// The program's own, to write to.
    Sink(Arc<dyn Sink>),
    Connector(Box<Declared>),
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Table(table) => write!(f, "{table:?}"),
            Origin::Sink(sink) => write!(f, "{sink:?}"),
            Origin::Connector(declared) => write!(f, "{:?}", declared.options),
        }
    }
}

/// A table as `CREATE TABLE` declared it.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    pub(crate) options: TableOptions,
    /// Where the options stand, for messages.
    pub(crate) defs: Vec<OptionDef>,
    pub(crate) name_span: Option<Span>,
    pub(crate) source: Arc<Source>,
    /// The statement, for tables that are LIKE this one.
    pub(crate) create: Arc<CreateTable>,
    /// The declaration inferred from a file; `None` for a declared table.
    pub(crate) inferred: Option<Arc<Inferred>>,
}

impl Declared {
    /// The table that the connector makes.
    fn made(&self, made: millstream_contract::Result<Arc<dyn Table>>) -> Result<Arc<dyn Table>> {
        let table = made.map_err(|e| self.refused(e))?;
        Ok(match &self.inferred {
            None => table,
            Some(inferred) => Arc::new(Wrapped::new(table, inferred.clone())),
        })
    }

    /// Error for a key that the connector lacks; its metadata are `known`.
    fn unknown_key(&self, metadata: &Metadata, known: &[(&'static str, DataType)]) -> SqlError {
        let connector = self.options.options.get("connector").map_or("", String::as_str);
        let message = format!("the connector '{connector}' has no metadata '{}'", metadata.key);
        let keys = known.iter().map(|(key, of)| format!("'{key}' ({})", sql_type_name(of)));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let help = match (known, closest(&metadata.key, known.iter().map(|(key, _)| *key))) {
            ([], _) => "it has none: leave the column out".to_string(),
            (_, Some(meant)) => format!("did you mean FROM '{meant}'? it has {keys}"),
            (_, None) => format!("it has {keys}: write METADATA FROM 'key'"),
        };
        SqlError::new(ErrorKind::Connector, message).help(help)
    }

    /// A connector's refusal, placed at the option at fault.
    pub(crate) fn refused(&self, error: millstream_contract::Error) -> SqlError {
        let millstream_contract::Error::Option { table, option, message, help } = error else {
            let mut lines = error.to_string();
            let help = lines.find("\n  help: ").map(|at| lines.split_off(at));
            return SqlError::new(ErrorKind::Connector, lines)
                .at(self.name_span)
                .maybe_help(help.map(|h| h.trim_start_matches("\n  help: ").to_string()))
                .in_source(&self.source);
        };
        let def = self.defs.iter().find(|d| d.key == option);
        let span = def.map_or(self.name_span, |d| d.value_span);
        // An unknown option is wrong itself, not its value.
        let unknown = message.contains("no such") || message.contains("unknown");
        let span = if unknown { def.map_or(span, |d| d.key_span) } else { span };
        SqlError::new(
            ErrorKind::Connector,
            format!("table '{table}', option '{option}': {message}"),
        )
        .at(span)
        .maybe_help((!help.is_empty()).then_some(help))
        .in_source(&self.source)
    }
}

impl TableEntry {
    /// Notes which metadata columns the connector writes.
    pub(crate) fn note_written(&mut self, connectors: &dyn Connectors) {
        let Origin::Connector(declared) = &self.origin else { return };
        let written = connectors.written_metadata(&declared.options);
        for metadata in self.columns.iter_mut().filter_map(|column| column.metadata.as_mut()) {
            metadata.is_written = !metadata.is_virtual && written.contains(&metadata.key.as_str());
        }
    }

    /// Whether the connector takes the options.
    pub(crate) fn check(&self, connectors: &dyn Connectors) -> Result<()> {
        match &self.origin {
            Origin::Table(_) | Origin::Sink(_) => Ok(()),
            Origin::Connector(declared) => {
                if connectors.knows(&declared.options) {
                    self.check_metadata(declared, connectors)?;
                }
                connectors.check(&declared.options).map_err(|e| declared.refused(e))
            }
        }
    }

    /// The table to read from.
    pub(crate) fn table(&self, connectors: &dyn Connectors) -> Result<Arc<dyn Table>> {
        match &self.origin {
            Origin::Table(table) => Ok(table.clone()),
            Origin::Sink(_) => Err(self.only_written()),
            Origin::Connector(declared) => declared.made(connectors.table(&declared.options)),
        }
    }

    /// The table to read from once rows have been inserted into the tables of `written`.
    pub(crate) fn table_after(
        &self,
        connectors: &dyn Connectors,
        written: &[TableOptions],
    ) -> Result<Arc<dyn Table>> {
        match &self.origin {
            Origin::Table(table) => Ok(table.clone()),
            Origin::Sink(_) => Err(self.only_written()),
            Origin::Connector(declared) => {
                declared.made(connectors.table_after(&declared.options, written))
            }
        }
    }

    /// The sink to write to.
    pub(crate) fn sink(&self, connectors: &dyn Connectors) -> Result<Arc<dyn Sink>> {
        match &self.origin {
            Origin::Sink(sink) => Ok(sink.clone()),
            Origin::Table(_) => Err(SqlError::unsupported(format!(
                "nothing can be inserted into '{}': it is a table of the program's own",
                self.name
            ))
            .help("declare a table to write to: CREATE TABLE name (…) WITH ('connector' = …)")),
            Origin::Connector(declared) => {
                let options = self.written(&declared.options);
                connectors.sink(&options).map_err(|e| declared.refused(e))
            }
        }
    }

    /// Whether the connector has what metadata columns hold.
    fn check_metadata(&self, declared: &Declared, connectors: &dyn Connectors) -> Result<()> {
        let columns = self.columns.iter().filter_map(|c| Some((c, c.metadata.as_ref()?)));
        for (column, metadata) in columns {
            let known = connectors.metadata(&declared.options);
            let found = known.iter().find(|(key, _)| *key == metadata.key);
            let error = match found {
                Some((_, wanted)) if may_hold(&column.data_type, wanted) => continue,
                Some((key, wanted)) => wrong_type(column, key, wanted).at(metadata.type_span),
                None => declared.unknown_key(metadata, &known).at(metadata.key_span),
            };
            return Err(error.in_source(metadata.source.as_ref().unwrap_or(&declared.source)));
        }
        Ok(())
    }

    /// The options of the table as a sink: without the metadata columns that are only read.
    fn written(&self, options: &TableOptions) -> TableOptions {
        let is_written = |name: &str| self.inserted().any(|(_, column)| column.name == name);
        let fields = options.schema.fields().iter().filter(|field| is_written(field.name()));
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let mut metadata = options.metadata.clone();
        metadata.retain(|name, _| is_written(name));
        TableOptions { schema, metadata, ..options.clone() }
    }

    /// Whether it is what the program was given as its standard input, a file or not.
    pub(crate) fn is_standard_input(&self) -> bool {
        let Origin::Connector(declared) = &self.origin else { return false };
        declared.options.options.get("connector").is_some_and(|connector| connector == "stdin")
    }

    /// A test reads the table, and has no file for it; it may have one for a table of a `like`
    /// name, which there is not.
    pub(crate) fn without_file(&self, like: Option<&str>) -> SqlError {
        let name = &self.name;
        let message = format!("table '{name}' has no {name}.csv");
        let like = like.map_or(String::new(), |like| {
            format!("there is a file for '{like}', and no such table; ")
        });
        let error = SqlError::new(ErrorKind::Connector, message).help(format!(
            "{like}in a test, a table whose input does not end by itself needs a file of its \
             records: {name}.csv or {name}.ndjson beside query.sql"
        ));
        match &self.origin {
            Origin::Connector(declared) => error.at(declared.name_span).in_source(&declared.source),
            Origin::Table(_) | Origin::Sink(_) => error,
        }
    }

    fn only_written(&self) -> SqlError {
        SqlError::unsupported(format!(
            "nothing can be read from '{}': it is a sink of the program's own",
            self.name
        ))
        .help("declare a table to read from: CREATE TABLE name (…) WITH ('connector' = …)")
    }

    /// All columns, as queries see them.
    pub(crate) fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> = self
            .columns
            .iter()
            .map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable))
            .collect();
        Arc::new(Schema::new(fields))
    }

    /// The columns that rows are inserted with, with their positions: INSERT INTO passes over
    /// computed columns, and over metadata columns that are only read.
    pub(crate) fn inserted(&self) -> impl Iterator<Item = (usize, &TableColumn)> {
        self.columns.iter().enumerate().filter(|(_, column)| column.is_inserted())
    }

    /// Whether malformed records are left out: by `on_error`, or by the option of a format that
    /// does the same.
    pub(crate) fn leaves_out_malformed(&self) -> bool {
        let Origin::Connector(declared) = &self.origin else { return false };
        let is_set = |(key, value): (&String, &String)| match key.as_str() {
            ON_ERROR => value.trim() != "fail",
            key => {
                key.ends_with(".ignore-parse-errors") && value.trim().eq_ignore_ascii_case("true")
            }
        };
        declared.options.options.iter().any(is_set)
    }

    /// A metadata column that is not VIRTUAL, and that the connector cannot write.
    pub(crate) fn kept_metadata(&self) -> Option<&TableColumn> {
        let is_kept = |of: &Metadata| !of.is_virtual && !of.is_written;
        self.columns.iter().find(|column| column.metadata.as_ref().is_some_and(is_kept))
    }

    /// A name for a time that no column has yet.
    pub(crate) fn free_name(&self) -> String {
        let names = ["ts", "event_time"].map(str::to_string).into_iter();
        let mut names = names.chain((2..).map(|n| format!("event_time_{n}")));
        names.find(|name| self.columns.iter().all(|c| c.name != *name)).unwrap_or_default()
    }

    /// The unit of the event time.
    pub(crate) fn time_unit(&self) -> Option<TimeUnit> {
        let event_time = self.event_time.as_ref()?;
        match &self.columns[event_time.column].data_type {
            DataType::Timestamp(unit, _) => Some(*unit),
            _ => None,
        }
    }

    /// The name of the event time column.
    pub(crate) fn time_name(&self) -> Option<&str> {
        let event_time = self.event_time.as_ref()?;
        Some(&self.columns[event_time.column].name)
    }
}

fn wrong_type(column: &TableColumn, key: &str, wanted: &DataType) -> SqlError {
    let (name, wanted) = (&column.name, sql_type_name(wanted));
    SqlError::types(format!(
        "the metadata '{key}' is {wanted}, and column '{name}' is {}",
        sql_type_name(&column.data_type)
    ))
    .help(format!("declare it {wanted}, and convert it in a computed column or a query"))
}

/// The columns of an expression, by name.
pub(crate) fn add_columns(expr: &Expr, names: &mut BTreeSet<String>) {
    names.extend(expr.column_refs().into_iter().map(|c| c.name.clone()));
}

/// A column of the table in a lowered expression.
pub(crate) fn input_column(name: &str) -> Expr {
    Expr::Column(Column::new(Some(INPUT), name))
}

/// A declared view.
#[derive(Debug)]
pub(crate) struct ViewEntry {
    pub(crate) plan: LogicalPlan,
    /// Columns, of the types of the final values.
    pub(crate) fields: Vec<Arc<Field>>,
    /// For messages: the texts of this view and, recursively, of the views that it uses.
    pub(crate) texts: Vec<Arc<Syntax>>,
    /// Depth of views that use each other down to a table, with this view.
    pub(crate) levels: usize,
    /// Tables read once the named views are written out.
    pub(crate) tables: usize,
    /// For the names of stages.
    pub(crate) names: ScopeNames,
}

/// The views that a query names.
pub(crate) struct NamedViews {
    /// Levels of views in the query.
    pub(crate) levels: usize,
    pub(crate) texts: Vec<Arc<Syntax>>,
    /// With the names in the query itself.
    pub(crate) names: ScopeNames,
}

impl ViewEntry {
    /// Its columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &Arc<Field>> {
        self.fields.iter()
    }
}

/// Views that may use each other down to a table. A view is planned with all that it uses.
const VIEW_LEVELS_MAX: usize = 200;

/// A name's meaning.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Table(Arc<TableEntry>),
    View(Arc<ViewEntry>),
}

/// The tables of files that a statement names, by path.
pub(crate) type FileTables = BTreeMap<String, Arc<TableEntry>>;

/// All tables and views. Names are case-sensitive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    entries: BTreeMap<String, Entry>,
    functions: UserFunctions,
    /// Version of the catalog, unique among all catalogs: changes with each entry.
    pub(crate) version: u64,
}

/// The number of a catalog's new state.
fn next_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Catalog {
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// All of them by name, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    pub(crate) fn insert(&mut self, name: String, entry: Entry) {
        self.entries.insert(name, entry);
        self.version = next_version();
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.entries.remove(name);
        self.version = next_version();
    }

    /// The declared functions.
    pub(crate) fn functions(&self) -> &UserFunctions {
        &self.functions
    }

    /// A declared function, whatever the case of its name.
    pub(crate) fn function(&self, name: &str) -> Option<&Arc<UserFunction>> {
        self.functions.get(&name.to_lowercase())
    }

    /// Declares a function, or drops it.
    pub(crate) fn set_function(&mut self, name: &str, function: Option<UserFunction>) {
        match function {
            Some(function) => {
                self.functions.insert(name.to_lowercase(), Arc::new(function));
            }
            None => {
                self.functions.remove(&name.to_lowercase());
            }
        }
        self.version = next_version();
    }

    /// The views that a query names.
    ///
    /// # Errors
    ///
    /// If there are more levels than planning has room for.
    pub(crate) fn views_of(&self, query: &Query) -> Result<NamedViews> {
        let (mut levels, mut texts): (usize, Vec<Arc<Syntax>>) = (0, Vec::new());
        let mut names = ScopeNames::of(query);
        let seen = query.each_relation(|name| {
            let name = name.0.last().and_then(|part| part.as_ident());
            let Some((name, Entry::View(view))) =
                name.and_then(|name| Some((name, self.get(&name.value)?)))
            else {
                return Continue(());
            };
            if view.levels >= VIEW_LEVELS_MAX {
                let message = format!(
                    "'{}' is a view of a view and so on: more than {VIEW_LEVELS_MAX} of them",
                    name.value
                );
                let error = SqlError::unsupported(message).at(Span::new(name.span));
                return Break(error.help("compute more in one view"));
            }
            levels = levels.max(view.levels);
            names.add_view(&name.value, &view.names);
            for text in &view.texts {
                if !texts.iter().any(|known| Arc::ptr_eq(known, text)) {
                    texts.push(text.clone());
                }
            }
            Continue(())
        });
        match seen {
            Break(error) => Err(error),
            Continue(()) => Ok(NamedViews { levels, texts, names }),
        }
    }

    /// Says that there is no such table or view, and which was probably meant.
    pub(crate) fn unknown(&self, name: &str) -> SqlError {
        let error = SqlError::name(format!("there is no table '{name}'"));
        match closest(name, self.entries.keys().map(String::as_str)) {
            Some(meant) => error.help(format!("did you mean '{meant}'?")),
            None if is_path(name) => {
                error.help(format!("a file stands in single quotes: FROM {}", literal(name)))
            }
            None if self.entries.is_empty() => {
                error.help(format!("declare it first: CREATE TABLE {name} (…) WITH (…)"))
            }
            None => {
                let names: Vec<&str> = self.entries.keys().take(10).map(String::as_str).collect();
                error.help(format!("the tables are {}", names.join(", ")))
            }
        }
    }
}
