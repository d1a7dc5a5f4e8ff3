//! Where records go that do not count: the options `on_error` and `late` of a table name tables
//! that malformed and late records are inserted into. Each is an output of the plan beside those of
//! the queries.

use millstream_contract::expr::{Evaluate, Expr as EngineExpr};
use millstream_contract::plan::{
    self, Input, Late, Node, Operator, Plan, Project, RAW, Stage, late_fields, malformed_schema,
};
use millstream_contract::{error::Result as EngineResult, table::TableOptions};

use crate::names::catalog::{
    Catalog, Declared, Entry, LATE, LeftOut, ON_ERROR, Origin, TableColumn, TableEntry,
};
use crate::names::written::Written;
use crate::stages::graph::{Graph, Part};
use crate::stages::insert::Target;
use crate::syntax::prelude::*;

/// Records that do not count, and the table that they are inserted into.
pub(crate) struct Aside {
    pub(crate) entry: Arc<TableEntry>,
    /// Tables of the graph whose records go to this table, and which of their records.
    parts: Vec<(usize, Which)>,
}

/// Which records of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Malformed,
    Late,
}

impl Which {
    fn option(self) -> &'static str {
        match self {
            Which::Malformed => ON_ERROR,
            Which::Late => LATE,
        }
    }

    /// The columns that there are to insert.
    fn columns(self, table: &TableEntry) -> SchemaRef {
        match self {
            Which::Malformed => malformed_schema(),
            Which::Late => with_late(&table.schema()),
        }
    }
}

/// The columns of late records. A column of the table hides an added column with the same name.
fn with_late(schema: &Schema) -> SchemaRef {
    let own = schema.fields().iter().cloned();
    let added = late_fields().into_iter().map(Arc::new);
    let added = added.filter(|field| schema.column_with_name(field.name()).is_none());
    Arc::new(Schema::new(own.chain(added).collect::<Vec<_>>()))
}

/// The tables that records of a graph's tables go to which do not count.
pub(crate) fn asides(
    graph: &Graph,
    catalog: &Catalog,
    targets: &[Target<'_>],
    is_shown: bool,
) -> Result<Vec<Aside>> {
    let mut asides: Vec<Aside> = Vec::new();
    let mut written: HashMap<Written, String> = HashMap::new();
    if is_shown {
        written.insert(Written::Stdout, "the query's rows".into());
    }
    for target in targets {
        written.insert(Written::of(&target.entry), format!("INSERT INTO {}", target.entry.name));
    }
    for (number, scan) in graph.scans.iter().enumerate() {
        let LeftOut { malformed, late } = &scan.entry.left_out;
        let named = [(malformed.as_ref(), Which::Malformed), (late.as_ref(), Which::Late)];
        for (name, which) in named.into_iter().filter_map(|(name, which)| Some((name?, which))) {
            let refuse = Refuse { table: &scan.entry, which };
            let entry = refuse.found(catalog, name)?;
            refuse.check_columns(&entry)?;
            if which == Which::Late && !graph.has_windows_over(number) {
                continue;
            }
            if let Some(known) = asides.iter_mut().find(|aside| Arc::ptr_eq(&aside.entry, &entry)) {
                known.parts.push((number, which));
                continue;
            }
            let to = Written::of(&entry);
            if let Some(other) = written.get(&to) {
                return Err(refuse.twice(&entry, other));
            }
            written.insert(to, format!("'{}'", entry.name));
            asides.push(Aside { entry, parts: vec![(number, which)] });
        }
    }
    Ok(asides)
}

/// Refusals of what an option says.
struct Refuse<'a> {
    table: &'a TableEntry,
    which: Which,
}

impl Refuse<'_> {
    fn error(&self, message: String, help: String) -> SqlError {
        let Origin::Connector(declared) = &self.table.origin else {
            return SqlError::internal("an option of a table that was not declared");
        };
        let Declared { options: TableOptions { name, .. }, .. } = &**declared;
        let (table, option) = (name.clone(), self.which.option().to_string());
        declared.refused(millstream_contract::Error::Option { table, option, message, help })
    }

    /// The table of this name.
    fn found(&self, catalog: &Catalog, name: &str) -> Result<Arc<TableEntry>> {
        let message = match catalog.get(name) {
            Some(Entry::Table(entry)) if entry.name != self.table.name => return Ok(entry.clone()),
            Some(Entry::Table(_)) => format!("records of '{name}' cannot go to '{name}' itself"),
            Some(Entry::View(_)) => format!("nothing can be inserted into the view '{name}'"),
            None => format!("there is no table '{name}'"),
        };
        Err(self.error(message, self.declaration(name)))
    }

    /// Advice: the declaration of the missing table.
    fn declaration(&self, name: &str) -> String {
        let columns = match self.which {
            Which::Malformed => "raw BYTES, place STRING, reason STRING",
            Which::Late => "columns of the table …, place STRING, reason STRING",
        };
        format!("declare it before the query: CREATE TABLE {name} ({columns}) WITH (…)")
    }

    /// Checks that each column of the table receives a value.
    fn check_columns(&self, entry: &TableEntry) -> Result<()> {
        let given = self.which.columns(self.table);
        if let Some(TableColumn { name, .. }) = entry.kept_metadata() {
            let message = format!("nothing can be written to '{name}' of '{}'", entry.name);
            return Err(self.error(message, format!("declare {name} METADATA VIRTUAL")));
        }
        for (_, column) in entry.inserted() {
            let wanted = sql_type_name(&column.data_type);
            let (name, into) = (&column.name, &entry.name);
            let Some((_, field)) = given.column_with_name(name) else {
                let names: Vec<&str> = given.fields().iter().map(|f| f.name().as_str()).collect();
                let message = format!("there is nothing for column '{name}' of '{into}'");
                return Err(self.error(message, format!("there are {}", names.join(", "))));
            };
            if !fits(field.name(), field.data_type(), &column.data_type) {
                let given = sql_type_name(field.data_type());
                let message =
                    format!("column '{name}' of '{into}' is {wanted}, and here is {given}");
                return Err(self.error(message, format!("declare it {given}")));
            }
            if field.is_nullable() && !column.nullable {
                let message = format!("column '{name}' of '{into}' is NOT NULL, and may be NULL");
                return Err(self.error(message, "leave NOT NULL out".into()));
            }
        }
        Ok(())
    }

    fn twice(&self, entry: &TableEntry, other: &str) -> SqlError {
        let message = format!("'{}' would be written to the same place as {other}", entry.name);
        self.error(message, "write it to a place of its own, for example a file".into())
    }
}

/// Whether a column takes what there is of this name; bytes may be read as text.
fn fits(name: &str, given: &DataType, wanted: &DataType) -> bool {
    given == wanted || (name == RAW && (given, wanted) == (&DataType::Binary, &DataType::Utf8))
}

/// Windows over records of a table, and which of its records they take: one of the lists of
/// conditions holds. No list: all.
pub(crate) type ScanWindows = BTreeMap<usize, Vec<(plan::Window, Vec<Vec<Expr>>)>>;

/// Makes a condition over the columns of a table, by number, of lists of which one must hold.
type AnyOf<'a> = dyn Fn(usize, &[Vec<Expr>]) -> Result<Option<EngineExpr>> + 'a;

impl Graph {
    /// Whether a window is over records of a table.
    fn has_windows_over(&self, number: usize) -> bool {
        let over = |part: &Part| matches!(part, Part::Scan { scan, .. } if *scan == number);
        self.operators.iter().any(|of| of.window.is_some() && of.parts().any(over))
    }

    /// Conditions on the records below a pass with UNNEST; conditions above the pass are on
    /// elements.
    fn filters_of_records(&self, pass: Option<usize>) -> Option<&Vec<Expr>> {
        let mut pass = self.passes.get(pass?)?;
        while let Some(below) = pass.below.and_then(|below| self.passes.get(below)) {
            pass = below;
        }
        Some(&pass.filters)
    }

    /// By table, the windows over its records, once conditions are in their final form and before
    /// work is shared.
    pub(crate) fn windows_over_scans(&self) -> ScanWindows {
        let mut windows = ScanWindows::new();
        for operator in &self.operators {
            let Some(window) = operator.window.map(of_record) else { continue };
            for part in operator.parts() {
                let Part::Scan { scan, pass, filters, .. } = part else { continue };
                let filters = self.filters_of_records(*pass).unwrap_or(filters);
                let of_scan = windows.entry(*scan).or_default();
                match of_scan.iter_mut().find(|(known, _)| *known == window) {
                    Some((_, conditions)) => conditions.push(filters.clone()),
                    None => of_scan.push((window, vec![filters.clone()])),
                }
            }
        }
        windows
    }
}

/// The part of a window that decides whether a record is late: a session without its keys, and an
/// interval without its bounds.
fn of_record(window: plan::Window) -> plan::Window {
    match window {
        plan::Window::Interval(_) => plan::Window::Interval(plan::Interval::AS_OF),
        plan::Window::Session(session) => {
            plan::Window::Session(plan::Session { partition: 0, ..session })
        }
        other => other,
    }
}

impl Aside {
    /// The columns of a graph's table that are needed because of it.
    pub(crate) fn columns_of<'a>(
        &'a self,
        scan: usize,
        table: &'a TableEntry,
    ) -> impl Iterator<Item = String> + 'a {
        let late = self.parts.contains(&(scan, Which::Late));
        let own = |name: &str| table.columns.iter().any(|column| column.name == name);
        let names = self.entry.inserted().map(|(_, column)| column.name.clone());
        names.filter(move |name| late && own(name))
    }

    /// Adds its stage and its output to a plan. `filter` makes a condition of lists of them.
    pub(crate) fn add_to(
        &self,
        plan: &mut Plan,
        windows: &ScanWindows,
        filter: &AnyOf<'_>,
    ) -> Result<()> {
        let mut inputs = Vec::new();
        for (scan, which) in &self.parts {
            match which {
                Which::Malformed => {
                    let project = Some(self.project(&malformed_schema())?);
                    let from = Node::Malformed(*scan);
                    inputs.push(Input { project, ..Input::all(from) });
                }
                Which::Late => {
                    let from = Node::Source(*scan);
                    for (window, conditions) in windows.get(scan).into_iter().flatten() {
                        let late = Some(Late { window: *window });
                        let schema = plan.schema_for(&Input { late, ..Input::all(from) });
                        let schema = schema.map_err(SqlError::internal)?;
                        let project = self.project(&schema)?;
                        let filter = filter(*scan, conditions)?;
                        let project = Some(project);
                        inputs.push(Input { late, filter, project, ..Input::all(from) });
                    }
                }
            }
        }
        let operator = Operator::Stateless { limit: None, offset: 0 };
        let output = self.schema();
        plan.outputs.push(plan::Output { side: true, ..plan::Output::of(plan.stages.len()) });
        plan.stages.push(Stage { names: vec![], inputs, operator, output });
        Ok(())
    }

    /// The table's columns, over rows with these.
    fn project(&self, given: &Schema) -> Result<Project> {
        let column = |column: &TableColumn| {
            // Of two that have a name the table's own comes first.
            let found = given.fields().iter().position(|field| *field.name() == column.name);
            let at = found.ok_or_else(|| {
                SqlError::internal(format!("nothing for column '{}'", column.name))
            })?;
            Ok(match given.field(at).data_type() == &column.data_type {
                true => EngineExpr::Column(at),
                false => EngineExpr::Computed(Arc::new(ReadAsText(at))),
            })
        };
        let columns = self.entry.inserted().map(|(_, of)| column(of)).collect::<Result<_>>()?;
        Ok(Project { columns, schema: self.schema() })
    }

    /// The columns that are inserted.
    fn schema(&self) -> SchemaRef {
        let field = |c: &TableColumn| Field::new(&c.name, c.data_type.clone(), c.nullable);
        let fields = self.entry.inserted().map(|(_, column)| field(column));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// Bytes as text; those that are no UTF-8 become the replacement character.
#[derive(Debug)]
struct ReadAsText(usize);

impl std::fmt::Display for ReadAsText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raw as text")
    }
}

impl Evaluate for ReadAsText {
    fn evaluate(&self, batch: &RecordBatch) -> EngineResult<ArrayRef> {
        let bytes = batch.column(self.0).as_binary::<i32>();
        let texts = (0..bytes.len()).map(|row| String::from_utf8_lossy(bytes.value(row)));
        Ok(Arc::new(StringArray::from_iter_values(texts)))
    }

    fn data_type(&self) -> &DataType {
        &DataType::Utf8
    }
}
