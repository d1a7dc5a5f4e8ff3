//! The table function TUMBLE in FROM: `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND
//! [, INTERVAL '1' SECOND]))`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion_common::{DFSchema, DFSchemaRef, DataFusionError, Result as DfResult, ScalarValue};
use datafusion_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Spanned, TableAlias, TableFactor,
};
use millstream_contract::plan::Tumble;
use millstream_contract::settings::closest;

use crate::error::{Result, Span, SqlError};

/// The columns that a window function adds.
pub(crate) const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// The type of all of them.
pub(crate) const WINDOW_TYPE: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// Assigns each row its window: the input's columns and [`WINDOW_COLUMNS`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TumbleNode {
    pub(crate) input: LogicalPlan,
    /// The time column, by its position in the input.
    pub(crate) time: usize,
    pub(crate) size_us: i64,
    pub(crate) offset_us: i64,
    /// Of `DESCRIPTOR(…)`, for messages.
    pub(crate) place: Option<Span>,
    schema: DFSchemaRef,
}

impl PartialOrd for TumbleNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl TumbleNode {
    fn new(
        input: LogicalPlan,
        time: usize,
        window: Tumble,
        place: Option<Span>,
    ) -> DfResult<TumbleNode> {
        let mut fields: Vec<_> =
            input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for name in WINDOW_COLUMNS {
            fields.push((None, Arc::new(Field::new(name, WINDOW_TYPE, false))));
        }
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        let (size_us, offset_us) = (window.size_us, window.offset_us);
        Ok(TumbleNode { input, time, size_us, offset_us, place, schema })
    }

    /// Size and offset.
    pub(crate) fn window(&self) -> Tumble {
        Tumble { size_us: self.size_us, offset_us: self.offset_us }
    }
}

impl UserDefinedLogicalNodeCore for TumbleNode {
    fn name(&self) -> &str {
        "Tumble"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.input.schema().field(self.time).name();
        write!(f, "Tumble: time={time} size={}", duration(self.size_us))?;
        if self.offset_us != 0 {
            write!(f, " offset={}", duration(self.offset_us))?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(
        &self,
        _: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> DfResult<TumbleNode> {
        let input = inputs.pop().unwrap_or_else(|| self.input.clone());
        TumbleNode::new(input, self.time, self.window(), self.place)
    }
}

/// A duration for people: `10 s`, `2 min`, `1500 ms`.
pub(crate) fn duration(us: i64) -> String {
    let units = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match units.iter().find(|(unit, _)| us != 0 && us % unit == 0) {
        Some((unit, name)) => format!("{} {name}", us / unit),
        None if us == 0 => "0 s".into(),
        None => format!("{us} us"),
    }
}

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

fn external<T>(error: SqlError) -> DfResult<T> {
    Err(DataFusionError::External(Box::new(error)))
}

fn plan_window(
    name: &ObjectName,
    args: Vec<FunctionArg>,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<LogicalPlan> {
    let place = Span::new(name.span());
    let arguments = match Arguments::new(&name.to_string(), args) {
        Ok(arguments) => arguments,
        Err(e) => return external(e.at(place)),
    };
    let input = plan_data(arguments.data, context)?;
    let time = match time_column(&arguments.time, &input) {
        Ok(time) => time,
        Err(e) => return external(e.at(place)),
    };
    let size = constant_interval(arguments.size, "size", context)?;
    let offset = match arguments.offset {
        Some(offset) => constant_interval(offset, "offset", context)?,
        None => (0, None),
    };
    let window = match tumble(size, offset) {
        Ok(window) => window,
        Err(e) => return external(e),
    };
    let node = TumbleNode::new(input, time, window, Span::new(arguments.time.span))?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

fn tumble(size: (i64, Option<Span>), offset: (i64, Option<Span>)) -> Result<Tumble> {
    for (what, (us, span)) in [("size", size), ("offset", offset)] {
        if us % 1000 != 0 {
            return Err(SqlError::unsupported(format!(
                "a window's {what} of {} is not a whole number of milliseconds",
                duration(us)
            ))
            .at(span)
            .help("write for example INTERVAL '0.5' SECOND"));
        }
    }
    if size.0 <= 0 {
        return Err(SqlError::types("a window's size must be positive")
            .at(size.1)
            .help("write for example INTERVAL '10' SECOND"));
    }
    // An offset of a window more or less changes nothing.
    Ok(Tumble { size_us: size.0, offset_us: offset.0.rem_euclid(size.0) })
}

/// The arguments of TUMBLE, positional or named.
struct Arguments {
    data: SqlExpr,
    time: Ident,
    size: SqlExpr,
    offset: Option<SqlExpr>,
}

impl Arguments {
    fn new(name: &str, args: Vec<FunctionArg>) -> Result<Arguments> {
        match name.to_uppercase().as_str() {
            "TUMBLE" => {}
            "HOP" | "CUMULATE" | "SESSION" => {
                return Err(SqlError::unsupported(format!(
                    "{} windows come in a later version; TUMBLE works",
                    name.to_uppercase()
                ))
                .help(FORM));
            }
            other => {
                let error = SqlError::name(format!("there is no window function '{name}'"));
                return Err(match closest(other, ["TUMBLE"].into_iter()) {
                    Some(meant) => error.help(format!("did you mean {meant}?")),
                    None => error.help(FORM),
                });
            }
        }
        let mut slots: [Option<SqlExpr>; 4] = Default::default();
        for (position, argument) in args.into_iter().enumerate() {
            let (slot, value) = match argument {
                FunctionArg::Unnamed(value) => (Some(position), value),
                FunctionArg::Named { name, arg, operator: FunctionArgOperator::RightArrow } => {
                    const NAMES: [&str; 4] = ["DATA", "TIMECOL", "SIZE", "OFFSET"];
                    let upper = name.value.to_uppercase();
                    let slot = NAMES.iter().position(|n| *n == upper);
                    if slot.is_none() {
                        let error = SqlError::name(format!("TUMBLE has no argument '{name}'"))
                            .at(Span::new(name.span));
                        return Err(error.help("its arguments are DATA, TIMECOL, SIZE, OFFSET"));
                    }
                    (slot, arg)
                }
                _ => return Err(arity()),
            };
            let FunctionArgExpr::Expr(value) = value else { return Err(arity()) };
            match slot.and_then(|slot| slots.get_mut(slot)) {
                Some(empty @ None) => *empty = Some(value),
                _ => return Err(arity().at(Span::new(value.span()))),
            }
        }
        let [Some(data), Some(time), Some(size), offset] = slots else { return Err(arity()) };
        Ok(Arguments { data, time: descriptor(time)?, size, offset })
    }
}

fn arity() -> SqlError {
    SqlError::syntax("TUMBLE takes a table, a time column, a size and perhaps an offset").help(FORM)
}

/// The column of `DESCRIPTOR(column)`.
fn descriptor(expr: SqlExpr) -> Result<Ident> {
    let place = Span::new(expr.span());
    let wrong = || {
        SqlError::syntax("the second argument of TUMBLE must be DESCRIPTOR(time_column)")
            .at(place)
            .help(FORM)
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
fn plan_data(data: SqlExpr, context: &mut dyn RelationPlannerContext) -> DfResult<LogicalPlan> {
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
            let error = SqlError::syntax("the first argument of TUMBLE must be TABLE name");
            return external(error.at(Span::new(other.span())).help(FORM));
        }
    };
    let parts = parts.into_iter().map(ObjectNamePart::Identifier).collect();
    context.plan(named(ObjectName(parts), None))
}

/// A table by its name, and nothing else.
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

fn time_column(name: &Ident, input: &LogicalPlan) -> Result<usize> {
    let fields = input.schema().fields();
    let found = fields.iter().position(|f| *f.name() == name.value);
    let place = Span::new(name.span);
    let Some(found) = found else {
        let error = SqlError::name(format!("there is no column '{}'", name.value)).at(place);
        let names = fields.iter().map(|f| f.name().as_str());
        return Err(match closest(&name.value, names) {
            Some(meant) => error.help(format!("did you mean '{meant}'?")),
            None => error.help("name the column that has a WATERMARK"),
        });
    };
    Ok(found)
}

/// An interval that does not depend on a row, in microseconds.
fn constant_interval(
    sql: SqlExpr,
    what: &str,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<(i64, Option<Span>)> {
    let place = Span::new(sql.span());
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let value = context
        .sql_to_expr(sql, &DFSchema::empty())
        .and_then(|expr| simplifier.coerce(expr, &DFSchema::empty()))
        .and_then(|expr| simplifier.simplify(expr));
    let value = match value {
        Ok(value) => value,
        Err(error) => return external(SqlError::from(error).at(place)),
    };
    let wrong = |message: &str| {
        let error = SqlError::types(format!("a window's {what} {message}"));
        external(error.at(place).help("write for example INTERVAL '10' SECOND"))
    };
    let Expr::Literal(value, _) = value else { return wrong("must be a constant interval") };
    match interval_us(&value) {
        Some(Some(us)) => Ok((us, place)),
        Some(None) if has_months(&value) => {
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

/// An interval in microseconds; the inner `None` if it has months or does not fit.
pub(crate) fn interval_us(value: &ScalarValue) -> Option<Option<i64>> {
    const DAY_US: i64 = 86_400_000_000;
    let us = |days: i64, rest: i64| days.checked_mul(DAY_US)?.checked_add(rest);
    Some(match value {
        ScalarValue::IntervalMonthDayNano(Some(v))
            if v.months == 0 && v.nanoseconds % 1000 == 0 =>
        {
            us(v.days.into(), v.nanoseconds / 1000)
        }
        ScalarValue::IntervalDayTime(Some(v)) => {
            us(v.days.into(), i64::from(v.milliseconds) * 1000)
        }
        ScalarValue::DurationSecond(Some(v)) => v.checked_mul(1_000_000),
        ScalarValue::DurationMillisecond(Some(v)) => v.checked_mul(1000),
        ScalarValue::DurationMicrosecond(Some(v)) => Some(*v),
        ScalarValue::DurationNanosecond(Some(v)) if v % 1000 == 0 => Some(v / 1000),
        ScalarValue::IntervalMonthDayNano(Some(_)) | ScalarValue::IntervalYearMonth(Some(_)) => {
            None
        }
        _ => return None,
    })
}
