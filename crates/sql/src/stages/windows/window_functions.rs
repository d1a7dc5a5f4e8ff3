//! Window functions in FROM: `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND [,
//! INTERVAL '1' SECOND]))`, and likewise HOP, CUMULATE and SESSION.

use datafusion_expr::Extension;
use datafusion_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_sql::sqlparser::ast::{
    FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, ObjectNamePart,
    TableAlias,
};

use crate::expr::window_node::{Assignment, WINDOW_COLUMNS, WindowNode};
use crate::names::window_kinds::{Length, WindowKind};
use crate::names::{catalog::TableEntry, handles::TableHandle, no_time::no_such_time};
use crate::syntax::prelude::*;
use crate::syntax::{calls::PARTITIONED, durations::interval_us};

/// Plans window functions in FROM.
#[derive(Debug)]
pub(crate) struct WindowFunctions;

impl RelationPlanner for WindowFunctions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<RelationPlanning> {
        let (name, args, alias) = match relation {
            TableFactor::TableFunction { expr: SqlExpr::Function(call), alias } => {
                let args = match call.args {
                    FunctionArguments::List(list) => list.args,
                    _ => vec![],
                };
                (call.name, args, alias)
            }
            // Newer Flink also takes the function alone.
            TableFactor::Table { name, args: Some(call), alias, .. } => (name, call.args, alias),
            TableFactor::TableFunction { expr, .. } => {
                let error = SqlError::syntax("expected a window function after TABLE(")
                    .at(Span::new(expr.span()))
                    .help(FORM);
                return external(error);
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let plan = plan_window(&name, args, context)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

const FORM: &str = "write FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))";

impl WindowKind {
    /// How it is written.
    fn form(self) -> &'static str {
        match self {
            WindowKind::Tumble => FORM,
            WindowKind::Hop => {
                "write FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL \
                 '10' SECOND))"
            }
            WindowKind::Cumulate => {
                "write FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, \
                 INTERVAL '1' HOUR))"
            }
            WindowKind::Session => {
                "write FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL \
                 '10' SECOND))"
            }
        }
    }

    fn arity(self) -> SqlError {
        let lengths = match self {
            WindowKind::Tumble => "a size and perhaps an offset",
            WindowKind::Hop => "a slide, a size and perhaps an offset",
            WindowKind::Cumulate => "a step, a size and perhaps an offset",
            WindowKind::Session => "and a gap",
        };
        let comma = if self == WindowKind::Session { "" } else { "," };
        let message = format!("{} takes a table, a time column{comma} {lengths}", self.name());
        SqlError::syntax(message).help(self.form())
    }
}

fn external<T>(error: SqlError) -> DfResult<T> {
    Err(error.into())
}

fn plan_window(
    name: &ObjectName,
    args: Vec<FunctionArg>,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<LogicalPlan> {
    let place = Span::new(name.span());
    let arguments = kind_named(&name.to_string()).and_then(|kind| WindowArguments::new(kind, args));
    let arguments = arguments.or_else(|e| external(e.at(place)))?;
    let kind = arguments.kind;
    let place_of_data = Span::new(arguments.data.span());
    let input = plan_data(kind, arguments.data, context)?;
    check_names(kind, &input).map_err(|e| e.at(place_of_data)).or_else(external)?;
    let column = |name: &Ident, help: &str| column(name, &input, help).map_err(|e| e.at(place));
    let time = column(&arguments.time, TIME_HELP);
    let time = time.map_err(|e| of_table(&arguments.time, e, &input)).or_else(external)?;
    let partition = arguments.partition.iter();
    let partition = partition.map(|name| column(name, "name a column of the table"));
    let partition = partition.collect::<Result<_>>().or_else(external)?;
    let mut lengths = Vec::new();
    for (argument, length) in kind.lengths().iter().zip(arguments.lengths) {
        lengths.push(constant_interval(length, &kind.what(argument), context)?);
    }
    let offset = match arguments.offset {
        Some(offset) => Some(constant_interval(offset, &kind.what("offset"), context)?),
        None => None,
    };
    let window = kind.window(&lengths, offset).or_else(external)?;
    let place = Span::new(arguments.time.span);
    let node = WindowNode::new(input, Assignment { time, window, partition, place })?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// Checks that no input column has the name of a column that the window function adds.
fn check_names(kind: WindowKind, input: &LogicalPlan) -> Result<()> {
    let mut fields = input.schema().fields().iter();
    let Some(field) = fields.find(|field| WINDOW_COLUMNS.contains(&field.name().as_str())) else {
        return Ok(());
    };
    let (kind, name) = (kind.name(), field.name());
    let message = format!("{kind} adds a column '{name}', and what it takes has one already");
    Err(SqlError::name(message).help(format!(
        "give that another name in a view or a query below, for example {name} AS inner_{name};\n\
         DESCRIPTOR names the window_time of what it takes by such a name"
    )))
}

fn kind_named(name: &str) -> Result<WindowKind> {
    WindowKind::named(name).ok_or_else(|| {
        let error = SqlError::name(format!("there is no table function '{name}'"));
        // Names of functions that read files in other systems.
        if name.to_lowercase().starts_with("read_") || name.to_lowercase().ends_with("_scan") {
            let message = format!("there is no function '{name}' to read files");
            return SqlError::name(message).help("a file is a table by its name: FROM 'data.csv'");
        }
        let known = WindowKind::ALL.into_iter().map(WindowKind::name).chain(["UNNEST"]);
        match closest(&name.to_uppercase(), known) {
            Some(meant) => error.help(format!("did you mean {meant}?")),
            None => error.help(format!(
                "{FORM}, HOP, CUMULATE or SESSION;\nUNNEST(array) gives a row for each element"
            )),
        }
    })
}

/// The arguments of a window function, positional or named.
struct WindowArguments {
    kind: WindowKind,
    data: SqlExpr,
    /// PARTITION BY.
    partition: Vec<Ident>,
    time: Ident,
    lengths: Vec<SqlExpr>,
    offset: Option<SqlExpr>,
}

impl WindowArguments {
    fn new(kind: WindowKind, args: Vec<FunctionArg>) -> Result<WindowArguments> {
        let names = kind.arguments();
        let mut slots: Vec<Option<SqlExpr>> = vec![None; names.len()];
        for (position, argument) in args.into_iter().enumerate() {
            let (slot, value) = match argument {
                FunctionArg::Unnamed(value) => (Some(position), value),
                FunctionArg::Named { name, arg, operator: FunctionArgOperator::RightArrow } => {
                    let slot = names.iter().position(|n| name.value.eq_ignore_ascii_case(n));
                    if slot.is_none() {
                        let message = format!("{} has no argument '{name}'", kind.name());
                        let error = SqlError::name(message).at(Span::new(name.span));
                        return Err(error.help(format!("its arguments are {}", names.join(", "))));
                    }
                    (slot, arg)
                }
                _ => return Err(kind.arity()),
            };
            let FunctionArgExpr::Expr(value) = value else { return Err(kind.arity()) };
            match slot.and_then(|slot| slots.get_mut(slot)) {
                Some(empty @ None) => *empty = Some(value),
                _ => return Err(kind.arity().at(Span::new(value.span()))),
            }
        }
        let mut slots = slots.into_iter();
        let mut next = || slots.next().flatten().ok_or_else(|| kind.arity());
        let (data, time) = (next()?, next()?);
        let lengths = kind.lengths().iter().map(|_| next()).collect::<Result<_>>()?;
        let offset = next().ok();
        let (data, partition) = partitioned(kind, data)?;
        Ok(WindowArguments {
            kind,
            data,
            partition,
            time: descriptor(kind, time)?,
            lengths,
            offset,
        })
    }
}

/// The columns of `TABLE t PARTITION BY k, …`, and what is before that.
fn partitioned(kind: WindowKind, data: SqlExpr) -> Result<(SqlExpr, Vec<Ident>)> {
    let call = match data {
        SqlExpr::Function(call) if call.name.to_string() == PARTITIONED => call,
        other => return Ok((other, vec![])),
    };
    let FunctionArguments::List(list) = call.args else { return Err(kind.arity()) };
    let mut parts = list.args.into_iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    let data = parts.next().ok_or_else(|| kind.arity())?;
    let mut names = Vec::new();
    for part in parts {
        match part {
            SqlExpr::Identifier(name) => names.push(name),
            other => {
                let error = SqlError::unsupported("PARTITION BY takes columns of the table");
                return Err(error
                    .at(Span::new(other.span()))
                    .help("compute the column before, in a view or a subquery"));
            }
        }
    }
    let first = names.first().map_or(String::new(), Ident::to_string);
    if kind != WindowKind::Session {
        let message = format!("{} has no PARTITION BY: its windows are those of time", kind.name());
        return Err(SqlError::unsupported(message)
            .at(names.first().and_then(|name| Span::new(name.span)))
            .help(format!("leave it out, and GROUP BY window_start, window_end, {first}")));
    }
    Ok((data, names))
}

/// The column of `DESCRIPTOR(column)`.
fn descriptor(kind: WindowKind, expr: SqlExpr) -> Result<Ident> {
    let place = Span::new(expr.span());
    let wrong = || {
        let name = kind.name();
        let message = format!("the second argument of {name} must be DESCRIPTOR(time_column)");
        SqlError::syntax(message).at(place).help(kind.form())
    };
    let SqlExpr::Function(call) = expr else { return Err(wrong()) };
    if !call.name.to_string().eq_ignore_ascii_case("DESCRIPTOR") {
        return Err(wrong());
    }
    let FunctionArguments::List(mut list) = call.args else { return Err(wrong()) };
    match (list.args.pop(), list.args.is_empty()) {
        (Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(SqlExpr::Identifier(name)))), true) => {
            Ok(name)
        }
        _ => Err(wrong()),
    }
}

/// The first argument: a table, a view or a subquery.
fn plan_data(
    kind: WindowKind,
    data: SqlExpr,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<LogicalPlan> {
    let parts = match data {
        SqlExpr::Identifier(name) => vec![name],
        SqlExpr::CompoundIdentifier(parts) => parts,
        SqlExpr::Subquery(subquery) => {
            return context.plan(TableFactor::Derived {
                lateral: false,
                subquery,
                alias: None::<TableAlias>,
                sample: None,
            });
        }
        other => {
            let message = format!("the first argument of {} must be TABLE name", kind.name());
            let error = SqlError::syntax(message).at(Span::new(other.span()));
            return external(error.help(kind.form()));
        }
    };
    let parts = parts.into_iter().map(ObjectNamePart::Identifier).collect();
    context.plan(named(ObjectName(parts), None))
}

/// A table by its name alone.
pub(crate) fn named(name: ObjectName, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

const TIME_HELP: &str = "name the column that has a WATERMARK";

/// An error about a time column that is not there, and no other is like it: what a table has.
fn of_table(name: &Ident, error: SqlError, input: &LogicalPlan) -> SqlError {
    match table_of(input).filter(|_| error.help.as_deref() == Some(TIME_HELP)) {
        Some(table) => no_such_time(table, &name.value).at(error.span),
        None => error,
    }
}

/// The table of a window function, if its input is a plain table.
fn table_of(input: &LogicalPlan) -> Option<&TableEntry> {
    match input {
        LogicalPlan::TableScan(scan) => {
            scan.source.downcast_ref::<TableHandle>().map(|handle| &*handle.entry)
        }
        LogicalPlan::SubqueryAlias(alias) => table_of(&alias.input),
        _ => None,
    }
}

/// The position of a column of the input.
fn column(name: &Ident, input: &LogicalPlan, help: &str) -> Result<usize> {
    let fields = input.schema().fields();
    let found = fields.iter().position(|f| *f.name() == name.value);
    let place = Span::new(name.span);
    let Some(found) = found else {
        let error = SqlError::name(format!("there is no column '{}'", name.value)).at(place);
        let names = fields.iter().map(|f| f.name().as_str());
        return Err(error.meant(&name.value, names, help));
    };
    Ok(found)
}

/// An interval that does not depend on a row.
fn constant_interval(
    sql: SqlExpr,
    what: &str,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<Length> {
    let place = Span::new(sql.span());
    let value = context.sql_to_expr(sql, &DFSchema::empty()).map_err(SqlError::from);
    match value.and_then(constant).and_then(|value| length_of(&value, what)) {
        Ok(us) => Ok(Length { us, place }),
        Err(error) => external(error.at(place)),
    }
}

/// The value of an expression that does not depend on a row, as a literal.
pub(crate) fn constant(expr: Expr) -> Result<Expr> {
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let expr = simplifier.coerce(expr, &DFSchema::empty());
    Ok(expr.and_then(|expr| simplifier.simplify(expr))?)
}

/// The microseconds of a constant interval; `what` is its use, for messages.
pub(crate) fn length_of(value: &Expr, what: &str) -> Result<i64> {
    let wrong = |message: &str| {
        let error = SqlError::types(format!("{what} {message}"));
        Err(error.help("write for example INTERVAL '10' SECOND"))
    };
    let Expr::Literal(value, _) = value else { return wrong("must be a constant interval") };
    match interval_us(value) {
        Some(Some(us)) => Ok(us),
        Some(None) if has_months(value) => {
            wrong("cannot be given in months or years, which differ in length")
        }
        Some(None) => {
            wrong("must be a whole number of milliseconds, and shorter than 290,000 years")
        }
        None => wrong("must be an interval"),
    }
}

fn has_months(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::IntervalYearMonth(_) => true,
        ScalarValue::IntervalMonthDayNano(Some(interval)) => interval.months != 0,
        _ => false,
    }
}
