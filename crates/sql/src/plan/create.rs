//! From a parsed `CREATE TABLE` to an entry of the catalog: types, computed columns, the watermark,
//! and the options that do not belong to the connector.

use std::path::Path;

use datafusion_expr::utils::find_aggregate_exprs;
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_sql::planner::{PlannerContext, SqlToRel};
use millstream_contract::{settings::parse_duration_us, table::TableOptions};

use crate::expr::scalars::{as_meant, dates_as_times, is_read_time, refuse_stamps};
use crate::faults::check::check_expr;
use crate::names::catalog::{
    Declared, EventTimeDecl, INPUT, LATE, LeftOut, Metadata, ON_ERROR, Origin, TableColumn,
    TableEntry, WatermarkDecl, named_table,
};
use crate::stages::schemas::{nullable, table_schema};
use crate::stages::{
    functions::Context, rewrite::rewrite_expr, scan::watermark_delay, texts::Texts,
};
use crate::syntax::create_table::{ColumnDef, ColumnKind, CreateTable, OptionDef, WatermarkDef};
use crate::syntax::prelude::*;
use crate::syntax::user_functions::{CreateFunction, UserFunction};
use crate::syntax::{
    calls::path_of, dialect::parser_options, numbers::count_zeros, tree::Syntax, types::plain_type,
};

/// An option that is the planner's, not the connector's.
pub(crate) const IDLE_TIMEOUT: &str = "scan.watermark.idle-timeout";

/// Builds the entry of a `CREATE TABLE`.
pub(crate) fn table_entry(
    create: &CreateTable,
    context: &Context<'_>,
    base_dir: &Path,
    source: &Arc<Source>,
) -> Result<TableEntry> {
    let columns = columns(create, context, source)?;
    let Planners { options, idle_timeout_us, left_out } = options(&create.options)?;
    refuse_late_without_watermark(create, &left_out)?;
    let physical: Vec<Field> = columns
        .iter()
        .filter(|c| c.computed.is_none())
        .map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable))
        .collect();
    let name = create.name.value.clone();
    let options = TableOptions {
        name: name.clone(),
        schema: Arc::new(Schema::new(physical)),
        metadata: columns
            .iter()
            .filter_map(|c| Some((c.name.clone(), c.metadata.as_ref()?.key.clone())))
            .collect(),
        options,
        partitioned_by: partitions(create)?,
        primary_key: primary_key(create)?,
        base_dir: base_dir.to_path_buf(),
        exact: false,
    };
    if !options.options.contains_key("connector") {
        let error = SqlError::new(
            ErrorKind::Connector,
            format!("table '{name}' does not say where its records are"),
        );
        return Err(error.at(Span::new(create.name.span)).help(
            "add WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv') at the end",
        ));
    }
    let primary_key = options.primary_key.clone();
    let declared = Declared {
        options,
        defs: create.options.clone(),
        name_span: Span::new(create.name.span),
        source: source.clone(),
        create: Arc::new(create.clone()),
        inferred: None,
    };
    let mut entry = TableEntry {
        name,
        columns,
        event_time: None,
        primary_key,
        left_out,
        origin: Origin::Connector(Box::new(declared)),
    };
    if let Some(watermark) = &create.watermark {
        let from = watermark.source.as_ref().unwrap_or(source);
        let found = event_time(watermark, &entry, context, idle_timeout_us, from);
        entry.event_time = Some(found.map_err(|e| e.in_source(from))?);
    } else if let Some(column) = entry.columns.iter().position(is_clock) {
        let watermark = WatermarkDecl::Clock;
        entry.event_time = Some(EventTimeDecl { column, watermark, idle_timeout_us: None });
    }
    Ok(entry)
}

fn columns(
    create: &CreateTable,
    context: &Context<'_>,
    source: &Arc<Source>,
) -> Result<Vec<TableColumn>> {
    let mut names = HashSet::new();
    for column in &create.columns {
        if !names.insert(&column.name.value) {
            return Err(SqlError::name(format!("there are two columns '{}'", column.name.value))
                .at(Span::new(column.name.span))
                .help("give one of them another name"));
        }
    }
    let mut planned: BTreeMap<usize, TableColumn> = BTreeMap::new();
    for (i, column) in create.columns.iter().enumerate() {
        let (type_def, nullable) = match &column.kind {
            ColumnKind::Physical { type_def, nullable }
            | ColumnKind::Metadata { type_def, nullable, .. } => (type_def, *nullable),
            ColumnKind::Computed(_) => continue,
        };
        let data_type = type_def.arrow_type().map_err(|e| e.at(column.span))?;
        let (name, metadata) = (column.name.value.clone(), metadata(column));
        planned.insert(i, TableColumn { name, data_type, nullable, computed: None, metadata });
    }
    // A computed column sees all that are not, and the computed ones before it.
    for (i, column) in create.columns.iter().enumerate() {
        if let ColumnKind::Computed(expr) = &column.kind {
            // A table may have thousands: the columns named here are enough, except for a message.
            let named = names_in(expr);
            let known = planned.values().filter(|c| named.contains(&c.name)).collect::<Vec<_>>();
            let few = computed(column, expr, &schema_of(&known)?, context, source);
            let column = few.or_else(|_| {
                let schema = schema_of(&planned.values().collect::<Vec<_>>())?;
                computed(column, expr, &schema, context, source)
                    .map_err(|e| e.at(column.span.or(Span::new(column.name.span))))
                    .map_err(|e| e.in_source(column.source.as_ref().unwrap_or(source)))
            })?;
            planned.insert(i, column);
        }
    }
    if planned.is_empty() {
        return Err(SqlError::types("a table needs a column at least")
            .at(Span::new(create.name.span))
            .help("write CREATE TABLE name (column TYPE, …) WITH (…)"));
    }
    Ok(planned.into_values().collect())
}

/// Whether it is the time of reading.
fn is_clock(column: &TableColumn) -> bool {
    column.computed.as_ref().is_some_and(is_read_time)
}

/// Metadata of a metadata column; `None` for a column of another kind.
fn metadata(column: &ColumnDef) -> Option<Metadata> {
    let ColumnKind::Metadata { from, is_virtual, .. } = &column.kind else { return None };
    let name = || (column.name.value.clone(), Span::new(column.name.span));
    let (key, key_span) = from.as_ref().map_or_else(name, |from| (from.key.clone(), from.span));
    let (type_span, source) = (column.span, column.source.clone());
    let (is_virtual, is_written) = (*is_virtual, false);
    Some(Metadata { key, is_virtual, is_written, key_span, type_span, source })
}

/// The columns of the primary key.
fn primary_key(create: &CreateTable) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in &create.primary_key {
        if !create.columns.iter().any(|column| column.name.value == name.value) {
            let own = create.columns.iter().map(|column| column.name.value.as_str());
            let message = format!("there is no column '{}' for the PRIMARY KEY", name.value);
            let error = SqlError::name(message).at(Span::new(name.span));
            return Err(error.meant(&name.value, own, "name columns of the table"));
        }
        if !names.contains(&name.value) {
            names.push(name.value.clone());
        }
    }
    Ok(names)
}

/// The columns of PARTITIONED BY. What a partition is, the connector says.
fn partitions(create: &CreateTable) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in &create.partitioned_by {
        let found = create.columns.iter().find(|column| column.name.value == name.value);
        let (message, help) = match found.map(|column| &column.kind) {
            Some(ColumnKind::Physical { .. }) if !names.contains(&name.value) => {
                names.push(name.value.clone());
                continue;
            }
            Some(ColumnKind::Physical { .. }) => {
                (format!("column '{}' is named twice", name.value), "leave one of them out")
            }
            Some(ColumnKind::Computed(_)) => (
                format!("'{}' is a computed column: nothing is written to it", name.value),
                "declare it with a type, and insert its value",
            ),
            Some(ColumnKind::Metadata { .. }) => (
                format!("'{}' is a metadata column: nothing is written to it", name.value),
                "name another column, or declare this one without METADATA",
            ),
            None => {
                let names = create.columns.iter().map(|column| column.name.value.as_str());
                let message = format!("there is no column '{}' to partition by", name.value);
                let error = SqlError::name(message).at(Span::new(name.span));
                return Err(error.meant(&name.value, names, "name columns of the table"));
            }
        };
        return Err(SqlError::name(message).at(Span::new(name.span)).help(help));
    }
    Ok(names)
}

/// The names in an expression, those of columns among them.
fn names_in(expr: &SqlExpr) -> HashSet<String> {
    let mut names = HashSet::new();
    let _: ControlFlow<()> = expr.each_expr(|expr| {
        names.extend(path_of(expr).iter().map(|name| name.value.clone()));
        Continue(())
    });
    names
}

fn schema_of(columns: &[&TableColumn]) -> Result<DFSchema> {
    let fields: Vec<Field> =
        columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect();
    Ok(DFSchema::try_from_qualified_schema(INPUT, &Schema::new(fields))?)
}

fn computed(
    column: &ColumnDef,
    expr: &SqlExpr,
    schema: &DFSchema,
    context: &Context<'_>,
    source: &Arc<Source>,
) -> Result<TableColumn> {
    let source = column.source.as_ref().unwrap_or(source);
    let syntax = Arc::new(Syntax::of_expr(expr, source));
    let planned = plan_expr(expr, schema, context).map_err(|e| e.at(syntax.span(expr)))?;
    let is_read_time = is_read_time(&planned);
    if !is_read_time {
        refuse_stamps(&planned).map_err(|e| e.at(syntax.span(expr)))?;
    }
    let expr = Texts::new(vec![syntax]).mark(planned, schema)?;
    let data_type = plain_type(&expr.get_type(schema)?);
    let expr = cast_to(expr, schema, &data_type)?;
    let nullable = !is_read_time && nullable(&expr, schema);
    Ok(TableColumn {
        name: column.name.value.clone(),
        data_type,
        nullable,
        computed: Some(expr),
        metadata: None,
    })
}

fn cast_to(expr: Expr, schema: &DFSchema, data_type: &DataType) -> Result<Expr> {
    if expr.get_type(schema)? == *data_type {
        return Ok(expr);
    }
    Ok(Expr::Cast(Cast::new(Box::new(expr), data_type.clone())))
}

/// Plans an expression over a table's own columns, types coerced.
fn plan_expr(sql: &SqlExpr, schema: &DFSchema, context: &Context<'_>) -> Result<Expr> {
    let sql = rewrite_expr(sql.clone(), context.functions)?;
    check_expr(&sql, context.functions)?;
    let planner = SqlToRel::new_with_options(context, parser_options());
    let expr = planner.sql_to_expr(count_zeros(sql), schema, &mut PlannerContext::new())?;
    if !find_aggregate_exprs([&expr]).is_empty() {
        return Err(SqlError::unsupported("a column of a table cannot be an aggregate")
            .help("aggregate in a query: SELECT … GROUP BY …"));
    }
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let expr = simplifier.coerce(dates_as_times(expr, schema)?.data, schema)?;
    // Names without a table before them belong to this one.
    let expr = datafusion_expr::expr_rewriter::unalias(expr);
    Ok(expr)
}

/// Refuses a function whose body does not go with the types of its parameters, which are `fields`,
/// and of its result.
pub(crate) fn check_function(
    create: &CreateFunction,
    function: &UserFunction,
    fields: Vec<Field>,
    context: &Context<'_>,
    source: &Arc<Source>,
) -> Result<()> {
    let schema = DFSchema::try_from_qualified_schema(INPUT, &Schema::new(fields))?;
    let parameters = create.parameters.iter().map(|(name, _)| SqlExpr::Identifier(name.clone()));
    let call = function.of(&parameters.collect::<Vec<_>>());
    let place = Syntax::of_source(source).span(&create.body);
    plan_expr(&call, &schema, context).map(drop).map_err(|e| e.at(place))
}

/// Refuses an event time with digits that the engine, which counts microseconds, does not keep.
pub(crate) fn refuse_finer(data_type: &DataType, name: &str) -> Result<()> {
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = data_type else { return Ok(()) };
    let kind = if zone.is_some() { "TIMESTAMP_LTZ" } else { "TIMESTAMP" };
    let message = format!("'{name}' cannot have a watermark: event time keeps no nanoseconds");
    Err(SqlError::types(message).help(format!(
        "declare it {kind}(6), or compute the event time, event_time AS CAST({name} AS {kind}(6)), \
         and write WATERMARK FOR event_time AS …"
    )))
}

fn event_time(
    watermark: &WatermarkDef,
    entry: &TableEntry,
    context: &Context<'_>,
    idle_timeout_us: Option<i64>,
    source: &Arc<Source>,
) -> Result<EventTimeDecl> {
    let name = &watermark.column.value;
    let column = entry.columns.iter().position(|c| c.name == *name);
    let column = column.ok_or_else(|| unknown_time(&watermark.column, entry))?;
    let is_time = |t: &DataType| matches!(t, DataType::Timestamp(..));
    if is_clock(&entry.columns[column]) {
        return Err(SqlError::unsupported(format!("'{name}' is processing time"))
            .at(watermark.span)
            .help("leave the WATERMARK out: the clock moves its windows on"));
    }
    let data_type = &entry.columns[column].data_type;
    if !is_time(data_type) {
        let message = format!(
            "'{name}' cannot have a watermark: it is {}, not a timestamp",
            sql_type_name(data_type)
        );
        return Err(SqlError::types(message).at(Span::new(watermark.column.span)).help(format!(
            "add a computed column, for example: {time} AS to_timestamp_seconds({name}),\n\
             (_millis if it counts milliseconds) and write WATERMARK FOR {time} AS …",
            time = entry.free_name()
        )));
    }
    refuse_finer(data_type, name).map_err(|e| e.at(Span::new(watermark.column.span)))?;
    let schema = table_schema(entry)?;
    let syntax = Arc::new(Syntax::of_expr(&watermark.expr, source));
    let expr = plan_expr(&watermark.expr, &schema, context)
        .and_then(|expr| refuse_stamps(&expr).map(|()| expr))
        .map_err(|e| e.at(syntax.span(&watermark.expr)))?;
    let simplifier = ExprSimplifier::new(
        SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build(),
    );
    let simple =
        simplifier.simplify(as_meant(expr.clone(), &schema, &context.functions.config)?)?;
    if let Some(delay) = watermark_delay(&simple, name) {
        let watermark = WatermarkDecl::Delay(delay);
        return Ok(EventTimeDecl { column, watermark, idle_timeout_us });
    }
    let data_type = expr.get_type(&schema)?;
    if !is_time(&data_type) {
        let message = format!("a watermark must be a timestamp, not {}", sql_type_name(&data_type));
        return Err(SqlError::types(message)
            .at(watermark.span)
            .help(format!("write WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND")));
    }
    let expr = Texts::new(vec![syntax]).mark(expr, &schema)?;
    let watermark = WatermarkDecl::Expr(Box::new(expr));
    Ok(EventTimeDecl { column, watermark, idle_timeout_us })
}

fn unknown_time(name: &Ident, entry: &TableEntry) -> SqlError {
    let error = SqlError::name(format!("there is no column '{}' to have a watermark", name.value))
        .at(Span::new(name.span));
    let times = entry.columns.iter().filter(|c| matches!(c.data_type, DataType::Timestamp(..)));
    let times: Vec<&str> = times.map(|c| c.name.as_str()).collect();
    let names = entry.columns.iter().map(|c| c.name.as_str());
    match (closest(&name.value, names), &times[..]) {
        (Some(meant), _) => error.help(format!("did you mean '{meant}'?")),
        (None, [time, ..]) => error.help(format!("write WATERMARK FOR {time} AS …")),
        (None, []) => error.help("declare a column of type TIMESTAMP(3) first"),
    }
}

/// Options of a table, those apart that are the planner's.
struct Planners {
    /// The connector's.
    options: BTreeMap<String, String>,
    idle_timeout_us: Option<i64>,
    left_out: LeftOut,
}

fn options(defs: &[OptionDef]) -> Result<Planners> {
    let mut options = BTreeMap::new();
    let (mut idle_timeout_us, mut left_out) = (None, LeftOut::default());
    let mut seen = HashSet::new();
    for def in defs {
        let wrong = |message: String, help: &str| {
            Err(SqlError::new(ErrorKind::Connector, message).at(def.value_span).help(help))
        };
        if !seen.insert(&def.key) {
            let error = format!("the option '{}' is given twice", def.key);
            return Err(SqlError::new(ErrorKind::Connector, error)
                .at(def.key_span)
                .help("leave one of them out"));
        }
        let named = named_table(&def.value).map(str::to_string);
        match def.key.as_str() {
            IDLE_TIMEOUT => match parse_duration_us(&def.value) {
                Some(us) => idle_timeout_us = Some(us).filter(|us| *us > 0),
                None => {
                    return wrong(
                        format!("'{}' is no duration", def.value),
                        "write for example '10 s'",
                    );
                }
            },
            LATE if named.is_none() && def.value.trim() != "drop" => {
                let message = format!("'late' is 'drop' or 'table:NAME', not '{}'", def.value);
                return wrong(message, "name a table that is declared before the query");
            }
            LATE => left_out.late = named,
            key => {
                if key == ON_ERROR {
                    if named.is_none() && def.value.trim().starts_with("table:") {
                        return wrong("'table:' names no table".into(), "write 'table:bad_rows'");
                    }
                    left_out.malformed = named;
                }
                options.insert(def.key.clone(), def.value.clone());
            }
        }
    }
    Ok(Planners { options, idle_timeout_us, left_out })
}

/// Without a watermark nothing is late.
fn refuse_late_without_watermark(create: &CreateTable, left_out: &LeftOut) -> Result<()> {
    if left_out.late.is_none() || create.watermark.is_some() {
        return Ok(());
    }
    let def = create.options.iter().find(|def| def.key == LATE);
    let message = "nothing can be late here: the table has no WATERMARK";
    Err(SqlError::new(ErrorKind::Connector, message)
        .at(def.and_then(|def| def.key_span))
        .help("declare WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, or leave 'late' out"))
}
