//! The group windows of older versions of Flink: `GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)`, HOP
//! and SESSION, with `TUMBLE_START` and so on for their bounds.
//!
//! In the syntax tree, `GROUP BY TUMBLE(…)` becomes a grouping by its three bounds, each a call of
//! a *marker*. `TUMBLE_START(…)` in SELECT is then a key of the grouping like others. When the plan
//! is lowered, markers become the columns of a window that is assigned to the rows right below the
//! grouping.

use datafusion_expr::expr::ScalarFunction;
use datafusion_sql::sqlparser::ast::{
    DateTimeField, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Interval, OrderByKind, Value, ValueWithSpan, VisitMut,
};

use crate::expr::udf::called;
use crate::expr::window_node::{Assignment, WINDOW_COLUMNS, WINDOW_TYPE};
use crate::names::window_kinds::{Length, WindowKind};
use crate::stages::windows::window_functions::{constant, length_of};
use crate::syntax::prelude::*;
use crate::syntax::{calls::function, tree::parts, words::single_part};

/// Suffixes of a group window's name for its bounds, in the order of [`WINDOW_COLUMNS`].
const BOUNDS: [&str; 3] = ["_START", "_END", "_ROWTIME"];

const KINDS: [WindowKind; 3] = [WindowKind::Tumble, WindowKind::Hop, WindowKind::Session];

/// A bound of a group window. It is never evaluated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundMarker {
    name: String,
    kind: WindowKind,
    /// One of [`BOUNDS`].
    bound: usize,
}

/// The marker of this name.
pub(crate) fn marker(name: &str) -> Option<Arc<ScalarUDF>> {
    let (kind, bound) = bound_named(name.strip_prefix('$')?)?;
    Some(Arc::new(ScalarUDF::from(BoundMarker { name: name.to_string(), kind, bound })))
}

/// The names of the functions for their bounds.
pub(crate) fn bound_names() -> Vec<String> {
    let of = |kind: WindowKind| BOUNDS.map(|bound| format!("{}{bound}", kind.name()));
    KINDS.into_iter().flat_map(of).collect()
}

/// Window kind and bound of a function's name.
fn bound_named(name: &str) -> Option<(WindowKind, usize)> {
    let name = name.to_uppercase();
    KINDS.into_iter().find_map(|kind| {
        let bound = name.strip_prefix(kind.name())?;
        Some((kind, BOUNDS.iter().position(|known| *known == bound)?))
    })
}

fn marker_name(kind: WindowKind, bound: usize) -> String {
    format!("${}{}", kind.name(), BOUNDS[bound]).to_lowercase()
}

impl ScalarUDFImpl for BoundMarker {
    called!(.name, ANY, WINDOW_TYPE);

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        exec_err!("{} outside of a GROUP BY", self.name)
    }
}

/// Writes the group windows of a query as markers.
pub(crate) fn mark_group_windows(query: &mut Query) -> Result<()> {
    query.walk_mut(&mut GroupWindows).break_value().map_or(Ok(()), Err)
}

struct GroupWindows;

impl VisitorMut for GroupWindows {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let window = match &*query.body {
            SetExpr::Select(select) => broken(group_window(select))?,
            _ => None,
        };
        let (Some(window), Some(order_by)) = (window, &mut query.order_by) else {
            return Continue(());
        };
        let OrderByKind::Expressions(keys) = &mut order_by.kind else {
            return Continue(());
        };
        keys.iter_mut().try_for_each(|key| mark_bounds(&mut key.expr, &window))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let Some(window) = broken(group_window(select))? else { return Continue(()) };
        if let Some(call) = select.selection.as_ref().and_then(bound_in) {
            return Break(in_where(call));
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            let before = std::mem::take(keys);
            for key in before {
                match call_of(&key) {
                    Some(call) if window_called(call).is_some() => {
                        keys.extend((0..BOUNDS.len()).map(|bound| window.bound(bound)));
                    }
                    _ => keys.push(key),
                }
            }
        }
        select.projection.iter_mut().try_for_each(|item| mark_bounds(item, &window))?;
        mark_bounds(&mut select.having, &window)
    }
}

fn broken<T>(result: Result<T>) -> ControlFlow<SqlError, T> {
    match result {
        Ok(value) => Continue(value),
        Err(error) => Break(error),
    }
}

/// A group window as it is written.
struct GroupWindow {
    kind: WindowKind,
    name: Ident,
    args: Vec<SqlExpr>,
}

impl GroupWindow {
    /// The call of a marker.
    fn bound(&self, bound: usize) -> SqlExpr {
        function(&self.name, &marker_name(self.kind, bound), self.args.clone())
    }

    /// Whether both are the same, however they are written: `INTERVAL '60' SECOND` for a minute,
    /// `t.ts` for `ts`.
    fn is(&self, other: &GroupWindow) -> bool {
        let same = |own: &SqlExpr, other: &SqlExpr| {
            own.to_string() == other.to_string()
                || seconds_of(own).is_some_and(|seconds| seconds_of(other) == Some(seconds))
                || is_column(own, other)
                || is_column(other, own)
        };
        let (own, others) = (&self.args, &other.args);
        self.kind == other.kind
            && own.len() == others.len()
            && own.iter().zip(others).all(|(own, other)| same(own, other))
    }

    /// `TUMBLE(ts, INTERVAL '10' SECOND)`, with something added to the name.
    fn text(&self, added: &str) -> String {
        let args: Vec<String> = self.args.iter().map(SqlExpr::to_string).collect();
        format!("{}{added}({})", self.kind.name(), args.join(", "))
    }
}

/// Whether a name with its table's before it is that of a column.
fn is_column(qualified: &SqlExpr, column: &SqlExpr) -> bool {
    match (qualified, column) {
        (SqlExpr::CompoundIdentifier(path), SqlExpr::Identifier(name)) => {
            path.last().is_some_and(|last| last.value == name.value)
        }
        _ => false,
    }
}

/// The seconds of `INTERVAL 'n' unit`, if it is of a whole number.
fn seconds_of(expr: &SqlExpr) -> Option<i64> {
    let SqlExpr::Interval(Interval { value, leading_field: Some(unit), last_field: None, .. }) =
        expr
    else {
        return None;
    };
    let SqlExpr::Value(ValueWithSpan { value: Value::SingleQuotedString(number), .. }) = &**value
    else {
        return None;
    };
    let seconds = match unit {
        DateTimeField::Second => 1,
        DateTimeField::Minute => 60,
        DateTimeField::Hour => 3600,
        DateTimeField::Day => 86_400,
        _ => return None,
    };
    number.trim().parse::<i64>().ok()?.checked_mul(seconds)
}

/// The first call for a bound of a group window that a condition has, outside of subqueries.
fn bound_in(condition: &SqlExpr) -> Option<&Function> {
    match condition {
        SqlExpr::Function(call) if bound_named(&call.name.to_string()).is_some() => Some(call),
        other => parts(other).into_iter().find_map(bound_in),
    }
}

/// Why a bound cannot stand in WHERE.
fn in_where(call: &Function) -> SqlError {
    let name = call.name.to_string().to_uppercase();
    SqlError::unsupported(format!("{name} cannot stand in WHERE, which comes before GROUP BY"))
        .at(Span::new(call.name.span()))
        .help("write the condition into HAVING")
}

fn call_of(expr: &SqlExpr) -> Option<&Function> {
    match expr {
        SqlExpr::Function(call) => Some(call),
        SqlExpr::Nested(inner) => call_of(inner),
        _ => None,
    }
}

fn window_called(call: &Function) -> Option<(WindowKind, Ident)> {
    let name = single_part(&call.name)?;
    let kind = WindowKind::named(&name.value).filter(|kind| KINDS.contains(kind))?;
    Some((kind, name))
}

fn args_of(call: &Function) -> Option<Vec<SqlExpr>> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}

/// The window that a SELECT groups by.
fn group_window(select: &Select) -> Result<Option<GroupWindow>> {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return Ok(None) };
    let mut found = None;
    for call in keys.iter().filter_map(call_of) {
        let Some((kind, name)) = window_called(call) else { continue };
        let place = Span::new(call.name.span());
        if found.is_some() {
            return Err(SqlError::unsupported("a second window in one GROUP BY")
                .at(place)
                .help("group by one window, and by the other in a query above"));
        }
        let args = args_of(call).filter(|args| args.len() == 1 + kind.lengths().len());
        let Some(args) = args else {
            let lengths: Vec<String> = kind
                .lengths()
                .iter()
                .map(|length| format!("a {}", length.to_lowercase()))
                .collect();
            let message = format!(
                "{} in GROUP BY takes a time column and {}",
                kind.name(),
                lengths.join(" and ")
            );
            let intervals = ", INTERVAL '1' MINUTE".repeat(kind.lengths().len());
            let name = kind.name();
            let offset = match kind.arguments().contains(&"OFFSET") {
                true => format!("; an offset goes with a window in FROM, TABLE({name}(…))"),
                false => String::new(),
            };
            let help = format!("write {name}(ts{intervals}){offset}");
            return Err(SqlError::syntax(message).at(place).help(help));
        };
        found = Some(GroupWindow { kind, name, args });
    }
    let of_sets = |key: &&SqlExpr| {
        matches!(key, SqlExpr::Rollup(_) | SqlExpr::Cube(_) | SqlExpr::GroupingSets(_))
    };
    let mut sets = keys.iter().filter(of_sets);
    let within = sets.clone().flat_map(keys_of_sets).filter_map(call_of).find_map(window_called);
    let kind = found.as_ref().map(|window| window.kind).or(within.map(|(kind, _)| kind));
    match (kind, sets.next()) {
        (Some(kind), Some(sets)) => {
            let (name, place) = (kind.name(), Span::new(sets.span()));
            let message = format!("GROUPING SETS, ROLLUP and CUBE do not go with GROUP BY {name}");
            let help = format!(
                "put the window into FROM, TABLE({name}(TABLE …, DESCRIPTOR(…), …)), and group by \
                 window_start, window_end and the sets"
            );
            Err(SqlError::unsupported(message).at(place).help(help))
        }
        _ => Ok(found),
    }
}

/// Keys of ROLLUP, CUBE or GROUPING SETS.
fn keys_of_sets(sets: &SqlExpr) -> impl Iterator<Item = &SqlExpr> {
    let sets = match sets {
        SqlExpr::Rollup(sets) | SqlExpr::Cube(sets) | SqlExpr::GroupingSets(sets) => &sets[..],
        _ => &[],
    };
    sets.iter().flatten()
}

/// Makes markers of calls such as `TUMBLE_START(…)`.
fn mark_bounds<V: VisitMut>(within: &mut V, window: &GroupWindow) -> ControlFlow<SqlError> {
    within.each_expr_mut(|expr| {
        let SqlExpr::Function(call) = &*expr else { return Continue(()) };
        let Some((kind, bound)) = bound_named(&call.name.to_string()) else {
            return Continue(());
        };
        let own = GroupWindow {
            kind,
            name: window.name.clone(),
            args: args_of(call).unwrap_or_default(),
        };
        if !own.is(window) {
            let (found, grouped) = (own.text(BOUNDS[bound]), window.text(""));
            let error =
                SqlError::name(format!("{found} is of another window than GROUP BY {grouped}"));
            return Break(
                error
                    .at(Span::new(call.name.span()))
                    .help(format!("write {}", window.text(BOUNDS[bound]))),
            );
        }
        let name = single_part(&call.name).unwrap_or_else(|| window.name.clone());
        *expr = function(&name, &marker_name(kind, bound), window.args.clone());
        Continue(())
    })
}

/// A window of a plan that is a grouping's.
pub(crate) struct WindowGrouping {
    pub(crate) assignment: Assignment,
    /// For each key whether it is a bound of the window: which of [`WINDOW_COLUMNS`].
    pub(crate) bounds: Vec<Option<&'static str>>,
}

/// The window that a grouping by `keys`, which are over `input` and stand at `place`, has among
/// these.
pub(crate) fn window_among(
    keys: &[Expr],
    input: &DFSchema,
    place: Option<Span>,
) -> Result<Option<WindowGrouping>> {
    let Some(call) = keys.iter().find_map(|key| marked(key).map(|(_, call)| call)) else {
        return Ok(None);
    };
    let bound = |key: &Expr| marked(key).map(|(marker, _)| WINDOW_COLUMNS[marker.bound]);
    let bounds = keys.iter().map(bound).collect();
    let Some(marker) = call.func.inner().downcast_ref::<BoundMarker>() else { return Ok(None) };
    let kind = marker.kind;
    let (Some(Expr::Column(time)), lengths) = (call.args.first(), call.args.get(1..)) else {
        let message = format!("the time of {} in GROUP BY must be a column", kind.name());
        return Err(SqlError::unsupported(message)
            .at(place)
            .help("name the column that has a WATERMARK; a view may give it another name"));
    };
    let time = input.index_of_column(time)?;
    let mut found = Vec::new();
    for (length, name) in lengths.unwrap_or_default().iter().zip(kind.lengths()) {
        let us = constant(length.clone()).and_then(|value| length_of(&value, &kind.what(name)));
        found.push(Length { us: us.map_err(|error| error.at(place))?, place });
    }
    let window = kind.window(&found, None)?;
    let assignment = Assignment { time, window, partition: vec![], place };
    Ok(Some(WindowGrouping { assignment, bounds }))
}

/// Name of a marker in a query; `None` if the call is no marker.
pub(crate) fn bound_of(call: &ScalarFunction) -> Option<String> {
    let marker = call.func.inner().downcast_ref::<BoundMarker>()?;
    Some(format!("{}{}", marker.kind.name(), BOUNDS[marker.bound]))
}

/// The marker that an expression is, and its call.
fn marked(expr: &Expr) -> Option<(&BoundMarker, &ScalarFunction)> {
    match expr {
        Expr::Alias(alias) => marked(&alias.expr),
        Expr::ScalarFunction(call) => {
            Some((call.func.inner().downcast_ref::<BoundMarker>()?, call))
        }
        _ => None,
    }
}
