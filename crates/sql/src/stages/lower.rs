//! From DataFusion's logical plan to stages. A stage has a table, a filter and, if the query
//! groups, a grouping and perhaps a window. A join is a stage of two sides
//! ([`crate::stages::joins`]). Further stages may take the rows that a grouping or a join yields
//! ([`crate::stages::nest`]).
//!
//! Projections, views and subqueries dissolve. Every column of a plan is an expression over the
//! columns of a stage's input ([`INPUT`]) and the window's columns ([`WINDOW`]) or, above the
//! grouping or the join, over the rows of a fired window ([`FIRED`]). No optimiser moves filters
//! around: the stage collects filters in the order of their application.

use datafusion_common::DFSchemaRef;
use datafusion_expr::{Aggregate, Distinct};
use millstream_contract::plan::{self, AggregateFunction};

use crate::expr::aggregates::{Takes, aggregate_named, counts_repeats};
use crate::expr::window_node::{WINDOW_COLUMNS, WindowNode};
use crate::expr::{collected, indexed::Indexed, located::without_cast_names, text::sql_text};
use crate::names::catalog::{INPUT, TableEntry, input_column};
use crate::names::given::{given_rows, one_row};
use crate::names::handles::TableHandle;
use crate::names::scope::{Scope, ScopeNames};
pub(crate) use crate::stages::lowered::{Call, Fires, Grouped, OrderKey, Rows};
use crate::stages::refusals::{refuse_expr, refused};
use crate::stages::texts::{Clause, Texts};
use crate::stages::{
    counted::Counted, unnest::UnnestNode, windows::assigned::Windows,
    windows::group_windows::window_among,
};
use crate::syntax::prelude::*;
use crate::syntax::size::{MAX_NODES, too_large};
use crate::syntax::types::plain_type;

/// The qualifier of the window's columns before grouping.
pub(crate) const WINDOW: &str = "$window";
/// The qualifier of the columns of a fired window.
pub(crate) const FIRED: &str = "$fired";

/// A query with the stages that it reads, as far as it does not depend on the table's physical
/// form.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) input: Rows,
    /// The output columns: over the input and the window, or over what fires, if anything does.
    pub(crate) columns: Vec<Expr>,
    /// Conditions on input rows, all of which must hold; the first is to be evaluated first.
    pub(crate) filters: Vec<Expr>,
    pub(crate) window: Option<Windows>,
    /// The operator, if the stage has state.
    pub(crate) fires: Option<Fires>,
    /// Place of the operator.
    pub(crate) scope: Scope,
    pub(crate) counted: Counted,
    pub(crate) order: Option<Vec<OrderKey>>,
    pub(crate) limit: Option<u64>,
    pub(crate) offset: u64,
}

/// Places of the statement's parts, for messages; and the session's settings for joins.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) group_by: Option<Span>,
    pub(crate) limit: Option<Span>,
    pub(crate) order_by: Option<Span>,
    /// The DISTINCT of a SELECT DISTINCT.
    pub(crate) distinct: Option<Span>,
    /// The first UNION.
    pub(crate) union: Option<Span>,
    /// The first joined relation.
    pub(crate) join: Option<Span>,
    /// The first EXISTS or IN with a subquery.
    pub(crate) subquery: Option<Span>,
    /// The first call with OVER.
    pub(crate) over: Option<Span>,
    /// The last LIMIT and the last ORDER BY, which may be a part's.
    pub(crate) last_limit: Option<Span>,
    pub(crate) last_order_by: Option<Span>,
    pub(crate) statement: Option<Span>,
    pub(crate) texts: Texts,
    /// Names of views and subqueries.
    pub(crate) names: ScopeNames,
    /// Whether the session has a time zone other than UTC.
    pub(crate) zoned: bool,
    /// The setting `join.within`, microseconds.
    pub(crate) join_within_us: Option<i64>,
}

pub(crate) fn fired_column(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new(Some(FIRED), name))
}

/// A column of the window that a row belongs to.
pub(crate) fn window_column(name: &str) -> Expr {
    Expr::Column(Column::new(Some(WINDOW), name))
}

impl Stage {
    /// Lowers `plan`.
    pub(crate) fn new(plan: &LogicalPlan, places: &Places) -> Result<Stage> {
        match plan {
            LogicalPlan::TableScan(scan) => match scan.source.downcast_ref::<TableHandle>() {
                Some(handle) => Ok(Stage::of_table(handle.entry.clone())),
                None => Err(SqlError::internal("a table that is not ours")),
            },
            LogicalPlan::EmptyRelation(none) if none.produce_one_row => {
                Ok(Stage::of_table(one_row()?))
            }
            LogicalPlan::Values(values) => Ok(Stage::of_table(given_rows(values)?)),
            LogicalPlan::SubqueryAlias(alias) => {
                let around = places.names.around(alias.alias.table());
                Ok(Stage::new(&alias.input, places)?.within(around))
            }
            LogicalPlan::Projection(projection) => {
                let mut stage = Stage::new(&projection.input, places)?;
                let schema = indexed(projection.input.schema());
                stage.columns = stage.substitute_all(&projection.expr, &schema, places)?;
                Ok(stage)
            }
            LogicalPlan::Filter(filter) => Stage::of_filter(filter, places),
            LogicalPlan::Join(join) => Stage::of_join(join, &[], places),
            LogicalPlan::Extension(extension) => {
                let node = extension.node.as_any();
                if let Some(window) = node.downcast_ref::<WindowNode>() {
                    let schema = window.input.schema();
                    let stage = Stage::new(&window.input, places)?.over_groups(schema);
                    return stage.with_windows(&window.assignment, schema, places);
                }
                match node.downcast_ref::<UnnestNode>() {
                    Some(unnest) => Stage::new(&unnest.input, places)?.unnested(unnest, places),
                    None => {
                        Err(SqlError::internal(format!("a plan with {}", extension.node.name())))
                    }
                }
            }
            LogicalPlan::Aggregate(aggregate) => Stage::of_aggregate(aggregate, places),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let stage = Stage::new(input, places)?;
                stage.refuse_after_limit("DISTINCT", places)?;
                let stage = stage.over_groups(input.schema());
                let keys = stage.columns.clone();
                stage.group(keys, vec![], places)
            }
            LogicalPlan::Union(union) => Stage::of_union(union, places),
            LogicalPlan::Sort(sort) => Stage::of_sort(sort, places),
            LogicalPlan::Limit(limit) => Stage::of_limit(limit, places),
            LogicalPlan::Window(window) => Stage::of_ranking(window, places),
            other => Err(refused(other).at(places.statement)),
        }
    }

    /// Keeps the rows for which a condition of a clause, over a plan of `schema`, holds.
    pub(crate) fn filtered(
        mut self,
        clause: Clause,
        condition: &Expr,
        schema: &Indexed,
        places: &Places,
    ) -> Result<Stage> {
        self.refuse_after_limit("WHERE", places)?;
        let condition = self.substitute_in(clause, condition, schema, places)?;
        match &mut self.fires {
            Some(fires) => {
                if let Fires::Grouped(grouped) = fires
                    && grouped.bound_ranking(&condition)
                {
                    self.scope.leave_root();
                }
                fires.having_mut().push(condition);
            }
            None => self.filters.push(condition),
        }
        Ok(self)
    }

    fn of_aggregate(aggregate: &Aggregate, places: &Places) -> Result<Stage> {
        let stage = Stage::new(&aggregate.input, places)?;
        stage.refuse_after_limit("GROUP BY", places)?;
        let stage = stage.over_groups(aggregate.input.schema());
        let schema = &indexed(aggregate.input.schema());
        if let [Expr::GroupingSet(set)] = &aggregate.group_expr[..] {
            return stage.group_sets(set, aggregate, schema, places);
        }
        // A key that is named twice is one column of the plan.
        let mut named: Vec<Expr> = Vec::new();
        for key in &aggregate.group_expr {
            if !named.contains(key) {
                named.push(key.clone());
            }
        }
        let columns = named.len() + aggregate.aggr_expr.len();
        if columns != aggregate.schema.fields().len() {
            let message = format!("a grouping of {columns} columns with other fields");
            return Err(SqlError::internal(message));
        }
        let window = window_among(&named, aggregate.input.schema(), places.group_by)?;
        let (stage, keys) = match window {
            None => {
                let keys = stage.substitute_all(&named, schema, places)?;
                (stage, keys)
            }
            Some(window) => stage.with_group_window(&window, &named, aggregate, places)?,
        };
        let mut calls = Vec::new();
        for expr in &aggregate.aggr_expr {
            calls.push(stage.call(expr, schema, places)?);
        }
        stage.group_values(keys, calls, places)
    }

    fn of_table(table: Arc<TableEntry>) -> Stage {
        let columns = table.columns.iter().map(|c| input_column(&c.name)).collect();
        Stage::over(Rows::Table(table), columns)
    }

    /// These columns of all rows.
    pub(crate) fn over(input: Rows, columns: Vec<Expr>) -> Stage {
        Stage {
            input,
            columns,
            filters: vec![],
            window: None,
            fires: None,
            scope: Scope::default(),
            counted: Counted::All,
            order: None,
            limit: None,
            offset: 0,
        }
    }

    pub(crate) fn refuse_after_limit(&self, what: &str, places: &Places) -> Result<()> {
        if self.limit.is_none() && self.offset == 0 {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("{what} after a LIMIT does not run here"))
            .at(places.limit)
            .help("put the LIMIT at the end of the whole query"))
    }

    pub(crate) fn substitute_all(
        &self,
        exprs: &[Expr],
        schema: &Indexed,
        places: &Places,
    ) -> Result<Vec<Expr>> {
        exprs.iter().map(|e| self.substitute(e, schema, places)).collect()
    }

    /// Writes `expr`, which is over a plan of `schema`, over what this stage's columns are over.
    /// Parts that may fail are marked with their place.
    pub(crate) fn substitute(
        &self,
        expr: &Expr,
        schema: &Indexed,
        places: &Places,
    ) -> Result<Expr> {
        self.substitute_in(Clause::Any, expr, schema, places)
    }

    /// The same, of an expression that stands in a clause.
    fn substitute_in(
        &self,
        clause: Clause,
        expr: &Expr,
        schema: &Indexed,
        places: &Places,
    ) -> Result<Expr> {
        let mut nodes = 0;
        expr.each(|e| {
            refuse_expr(e)?;
            nodes += match e {
                Expr::Column(column) => count_nodes(&self.columns[schema.index_of(column)?]),
                _ => 1,
            };
            Ok(())
        })?;
        if nodes > MAX_NODES {
            let parts = format!("{nodes} parts once its views are written out");
            return Err(too_large(&parts, MAX_NODES));
        }
        let plain = without_cast_names(expr.clone())?;
        let marked = places.texts.mark_in(clause, plain, schema)?;
        let substituted = marked.replaced(|e| {
            Ok(match e {
                Expr::Column(column) => Some(self.columns[schema.index_of(column)?].clone()),
                Expr::Alias(alias) => Some(alias.expr.as_ref().clone()),
                _ => None,
            })
        });
        self.with_bounds(substituted?)
    }

    pub(crate) fn call(&self, expr: &Expr, schema: &Indexed, places: &Places) -> Result<Call> {
        let result_type = expr.get_type(schema)?;
        let expr = expr.clone().unalias_nested().data;
        let place = places.texts.place(&expr);
        let Expr::AggregateFunction(call) = expr else {
            return Err(SqlError::internal(format!("{expr} where an aggregate belongs")));
        };
        let span = place.as_ref().map(|place| place.span);
        let name = call.func.name().to_uppercase();
        let Some((function, takes)) = aggregate_named(call.func.name()) else {
            let message = format!("{name} goes with GROUPING SETS, ROLLUP or CUBE");
            let help = "without them, each row has all keys";
            return Err(SqlError::unsupported(message).at(span).help(help));
        };
        let arguments = self.substitute_all(&call.params.args, schema, places)?;
        let filter = call.params.filter.as_ref();
        let filter = filter.map(|filter| self.substitute(filter, schema, places)).transpose()?;
        let mut made = Call { filter, place, ..Call::new(function, result_type) };
        if let Some(collected) = collected::call(function, &call.params, &arguments) {
            let (function, argument) = collected.map_err(|error| error.at(span))?;
            collected::check_distinct(&call.params, &name, schema).map_err(|e| e.at(span))?;
            let call = Call { function, arguments: vec![argument], ..made };
            return Ok(Call { name: call.text(), ..call });
        }
        let distinct = call.params.distinct && counts_repeats(function);
        if distinct && matches!(takes, Takes::Pair(_)) {
            let message = format!("DISTINCT does not go with the two arguments of {name}");
            let help = "take each pair once by a query in FROM: SELECT DISTINCT …";
            return Err(SqlError::unsupported(message).at(span).help(help));
        }
        if !call.params.order_by.is_empty() || call.params.null_treatment.is_some() {
            let message = format!("ORDER BY and the treatment of NULLs do not go with {name}");
            return Err(SqlError::unsupported(message)
                .at(span)
                .help("leave them out: they would not change the result"));
        }
        let counts_rows = match &call.params.args[..] {
            [Expr::Literal(value, _)] => name == "COUNT" && !distinct && !value.is_null(),
            arguments => {
                let many = arguments.len() > 1 && !distinct;
                if arguments.is_empty()
                    || (many && function == AggregateFunction::Count && name == "COUNT")
                {
                    return Err(SqlError::internal(format!("{name} without its argument")));
                }
                false
            }
        };
        let types = call.params.args.iter().map(|e| Ok(plain_type(&e.get_type(schema)?)));
        let types = types.collect::<Result<Vec<DataType>>>()?;
        made.is_mean_of_integers =
            function == AggregateFunction::Avg && types.iter().all(DataType::is_integer);
        made.distinct = distinct.then_some(types);
        made.arguments = if counts_rows { vec![] } else { takes.given(arguments) };
        made.name = made.text();
        Ok(made)
    }

    /// Groups by `keys`; the new columns are the keys, then the calls.
    pub(crate) fn group(
        mut self,
        keys: Vec<Expr>,
        calls: Vec<Call>,
        places: &Places,
    ) -> Result<Stage> {
        let windowed = keys.iter().any(is_window_column);
        self.check_window_keys(&keys, &calls, places)?;
        let mut grouped = Grouped {
            windowed,
            one_group: false,
            keys: vec![],
            key_names: vec![],
            aggregates: vec![],
            having: vec![],
            pairs: None,
        };
        let fired = windowed && self.window.as_ref().is_some_and(Windows::fire_themselves);
        if fired {
            grouped.having = self.take_window_filters()?;
        }
        let mut taken = HashSet::from(WINDOW_COLUMNS.map(str::to_string));
        let mut columns = Vec::new();
        for key in keys {
            columns.push(match over(&key) {
                // Known from the window: no key.
                Over { window: true, input: false } if fired => to_fired(key)?,
                _ => {
                    let over_input = self.without_window(key.clone())?;
                    let text = sql_text(if fired { &key } else { &over_input });
                    let name = unique(text, &mut taken);
                    grouped.keys.push(over_input);
                    grouped.key_names.push(name.clone());
                    fired_column(name)
                }
            });
        }
        for mut call in calls {
            let place = call.place.as_ref().map(|place| place.span);
            let without = |e: Expr| {
                let plain = self.without_window(e);
                plain.map_err(|error| SqlError { span: place.or(error.span), ..error })
            };
            call.arguments = call.arguments.into_iter().map(without).collect::<Result<_>>()?;
            call.filter = call.filter.map(without).transpose()?;
            call.name = unique(call.name, &mut taken);
            columns.push(fired_column(&call.name));
            grouped.aggregates.push(call);
        }
        self.drop_windows()?;
        if windowed {
            self.group_sessions(&mut grouped, places)?;
            let windows = self.window.as_ref();
            grouped.one_group = windows.is_some_and(|windows| windows.tell_all(&grouped.keys));
        }
        self.columns = columns;
        self.fires = Some(Fires::Grouped(grouped));
        Ok(self)
    }

    /// Writes a stateless query's window columns as functions of the time. A row without a time is
    /// in no window. What comes out is a UNION ALL, if there are several: each is a grouping, or
    /// over a table.
    pub(crate) fn finish(mut self) -> Result<Vec<Stage>> {
        if let (Some(window), None) = (&self.window, &self.fires) {
            match window.assignment() {
                Some(_) if matches!(window.kind, plan::Window::Session(_)) => {
                    return self.with_session_records()?.folded();
                }
                Some(_) if !window.are_known() => return self.in_each_window()?.folded(),
                Some(assigned) => self.filters.insert(0, assigned.time.clone().is_not_null()),
                None => {}
            }
            self.drop_windows()?;
            let columns = std::mem::take(&mut self.columns);
            self.columns =
                columns.into_iter().map(|c| self.without_window(c)).collect::<Result<_>>()?;
            self.window = None;
        }
        self.folded()
    }
}

pub(crate) fn indexed(schema: &DFSchemaRef) -> Indexed {
    Indexed::new(schema.as_ref().clone())
}

/// `name`, or `name_2` if it is taken.
pub(crate) fn unique(name: String, taken: &mut HashSet<String>) -> String {
    let fresh = (2..).map(|n| format!("{name}_{n}"));
    let name = std::iter::once(name.clone()).chain(fresh).find(|n| !taken.contains(n));
    let name = name.unwrap_or_default();
    taken.insert(name.clone());
    name
}

pub(crate) fn count_nodes(expr: &Expr) -> usize {
    let mut nodes = 0;
    // Counting does not fail.
    let _ = expr.each(|_| {
        nodes += 1;
        Ok(())
    });
    nodes
}

/// The name of an expression that is a column with this qualifier.
pub(crate) fn column_of<'e>(qualifier: &str, expr: &'e Expr) -> Option<&'e str> {
    let column = expr.try_as_col()?;
    let own = column.relation.as_ref().is_some_and(|relation| relation.table() == qualifier);
    own.then_some(&column.name)
}

pub(crate) fn is_window_column(expr: &Expr) -> bool {
    column_of(WINDOW, expr).is_some()
}

/// The columns to which an expression refers.
#[derive(PartialEq)]
pub(crate) struct Over {
    pub(crate) input: bool,
    pub(crate) window: bool,
}

pub(crate) fn over(expr: &Expr) -> Over {
    let mut over = Over { input: false, window: false };
    for column in expr.column_refs() {
        match column.relation.as_ref().map(|r| r.table()) {
            Some(INPUT) => over.input = true,
            Some(WINDOW) => over.window = true,
            _ => {}
        }
    }
    over
}

/// The same expression over the window columns of what fires.
pub(crate) fn to_fired(expr: Expr) -> Result<Expr> {
    Ok(expr.replaced(|e| Ok(e.try_as_col().map(|column| fired_column(&column.name))))?)
}
