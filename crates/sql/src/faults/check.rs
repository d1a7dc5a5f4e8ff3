//! Refusals before planning: syntax that sqlparser accepts but Millstream does not run, and
//! functions that do not exist. DataFusion would silently ignore some of this.

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CastFormat, Expr, GroupByExpr, LimitClause, OrderByKind, SetOperator,
    SetQuantifier, TableWithJoins, UnaryOperator,
};
use datafusion_sql::sqlparser::tokenizer;

use crate::faults::arguments::check_values;
use crate::faults::{calls::check_call, limits::*};
use crate::stages::functions::Functions;
use crate::stages::joins::{LATERAL, check_kind, check_star, misplaced, of_several, subqueries};
use crate::stages::refusals::{JOIN_IT, set_operation};
use crate::stages::unnest::{check_join, is_unnest};
use crate::syntax::grammar::match_recognize;
use crate::syntax::prelude::*;

/// Refuses what cannot run in a query.
pub(crate) fn check_query(query: &Query, functions: &Functions) -> Result<()> {
    query.walk(&mut Checker::new(functions)).break_value().map_or(Ok(()), Err)
}

/// Refuses what cannot run in a table's expression.
pub(crate) fn check_expr(expr: &Expr, functions: &Functions) -> Result<()> {
    expr.walk(&mut Checker::new(functions)).break_value().map_or(Ok(()), Err)
}

impl Checker<'_> {
    fn new(functions: &Functions) -> Checker<'_> {
        Checker { functions, table_functions: 0, conditions: HashSet::new() }
    }
}

/// FROM where a value belongs, as in `SELECT 1 + FROM t`: the parser takes it for a column.
fn from_as_name(select: &Select) -> Option<tokenizer::Span> {
    let from = |expr: &Expr| match expr {
        Expr::Identifier(name)
            if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("from") =>
        {
            Break(name.span)
        }
        _ => Continue(()),
    };
    select.projection.each_expr(from).break_value()
}

/// A column, or `*`, of a SELECT.
fn column_in(select: &Select) -> Option<tokenizer::Span> {
    /// The visitor, and the number of queries around the expression, whose columns they know.
    struct Columns(usize);
    impl Visitor for Columns {
        type Break = tokenizer::Span;
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<tokenizer::Span> {
            self.0 += 1;
            Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<tokenizer::Span> {
            self.0 -= 1;
            Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<tokenizer::Span> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) if self.0 == 0 => {
                    Break(expr.span())
                }
                _ => Continue(()),
            }
        }
    }
    let all = |item: &&SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let all = select.projection.iter().find(all).map(Spanned::span);
    all.or_else(|| select.walk(&mut Columns(0)).break_value())
}

struct Checker<'a> {
    functions: &'a Functions,
    /// Window functions in FROM that we are inside of.
    table_functions: usize,
    /// EXISTS and IN with subqueries that may stand where they do.
    conditions: HashSet<*const Expr>,
}

/// Refuses joins that do not run.
fn check_joins(table: &TableWithJoins) -> Flow {
    for join in &table.joins {
        let checked = if is_unnest(&join.relation) { check_join(join) } else { check_kind(join) };
        if let Err(error) = checked {
            return Break(error);
        }
    }
    Continue(())
}

/// Refuses what a query is made of beside SELECT and UNION.
fn check_body(body: &SetExpr, place: tokenizer::Span) -> Flow {
    match body {
        SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => Continue(()),
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } => {
            use SetQuantifier::{All, Distinct, None};
            if !matches!(set_quantifier, All | Distinct | None) {
                return refuse("BY NAME", "select the columns in the same order", place);
            }
            check_body(left, place)?;
            check_body(right, place)
        }
        SetExpr::SetOperation { op, .. } => refuse(&op.to_string(), &set_operation(*op), place),
        _ => refuse("this statement", "write SELECT … FROM …", place),
    }
}

const AS_OF: &str = "a row can be joined with the version of a table at its time:\n\
     FROM t JOIN r FOR SYSTEM_TIME AS OF t.ts AS r ON t.k = r.k";

impl Visitor for Checker<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let place = query.span();
        for count in limits(query) {
            if !is_count(count) {
                return refuse_count(count);
            }
        }
        if let Some(order_by) = &query.order_by {
            if let OrderByKind::Expressions(keys) = &order_by.kind {
                keys.iter().try_for_each(|key| check_order_key(&key.expr))?;
            }
            let filled = match &order_by.kind {
                OrderByKind::Expressions(keys) => keys.iter().any(|key| key.with_fill.is_some()),
                OrderByKind::All(_) => true,
            };
            if filled || order_by.interpolate.is_some() {
                let help = "write for example ORDER BY a, b DESC NULLS LAST";
                return refuse("this form of ORDER BY", help, order_by.span());
            }
        }
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
            let help = "leave RECURSIVE out where no query reads itself; otherwise write each step \
                        out, with UNION ALL";
            return refuse("WITH RECURSIVE", help, with.span());
        }
        for inner in query.with.iter().flat_map(|with| &with.cte_tables) {
            refuse_inner_order(&inner.query)?;
        }
        if let Some(LimitClause::LimitOffset { limit_by, .. }) = &query.limit_clause
            && !limit_by.is_empty()
        {
            return refuse("LIMIT BY", "write LIMIT", place);
        }
        if query.fetch.is_some() {
            return refuse("FETCH", "write LIMIT", place);
        }
        let odd = [
            (!query.locks.is_empty(), "FOR UPDATE"),
            (query.for_clause.is_some(), "FOR XML and FOR JSON"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
            (!query.pipe_operators.is_empty(), "|>"),
        ];
        if let Some((_, what)) = odd.iter().find(|(present, _)| *present) {
            return refuse(what, LEAVE_OUT, place);
        }
        if let SetExpr::Values(values) = &*query.body {
            check_values(values, self.functions)?;
        }
        check_body(&query.body, place)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        let place = select.span();
        let conditions = select.selection.iter().chain(&select.having);
        self.conditions.extend(conditions.flat_map(subqueries));
        match &select.from[..] {
            [] => {
                if let Some(from) = from_as_name(select) {
                    return Break(
                        SqlError::syntax("expected a value, found FROM").at(Span::new(from)),
                    );
                }
                if let Some(column) = column_in(select) {
                    let error = SqlError::name("there is no table to take columns from");
                    return Break(error.at(Span::new(column)).help("add FROM and a table's name"));
                }
            }
            [table, others @ ..] => {
                check_joins(table)?;
                others.iter().try_for_each(check_joins)?;
                if let Err(error) = check_star(select) {
                    return Break(error);
                }
                if is_unnest(&table.relation) {
                    let help = "write FROM t CROSS JOIN UNNEST(t.items) AS u (item)";
                    return refuse("UNNEST without a table before it", help, table.span());
                }
            }
        }
        if let Some(qualify) = &select.qualify {
            let help = "put the SELECT into FROM, and the condition into WHERE around it";
            return refuse("QUALIFY", help, qualify.span());
        }
        let odd = [
            (select.top.is_some(), "TOP", "write LIMIT at the end"),
            (select.into.is_some(), "SELECT INTO", "write INSERT INTO name SELECT …"),
            (!select.lateral_views.is_empty(), "LATERAL VIEW", LEAVE_OUT),
            (select.prewhere.is_some(), "PREWHERE", "write WHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY", LEAVE_OUT),
            (!select.cluster_by.is_empty(), "CLUSTER BY", LEAVE_OUT),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY", LEAVE_OUT),
            (!select.sort_by.is_empty(), "SORT BY", LEAVE_OUT),
            (!select.named_window.is_empty(), "WINDOW", "use TABLE(TUMBLE(…)) in FROM"),
            (select.exclude.is_some(), "EXCLUDE", "name the columns that you want"),
            (select.value_table_mode.is_some(), "SELECT AS", LEAVE_OUT),
            (select.select_modifiers.is_some(), "this form of SELECT", LEAVE_OUT),
        ];
        if let Some((_, what, help)) = odd.iter().find(|(present, ..)| *present) {
            return refuse(what, help, place);
        }
        let modifiers = match &select.group_by {
            GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => modifiers,
        };
        if !modifiers.is_empty() {
            let help = "write GROUP BY ROLLUP (a, b), GROUP BY CUBE (a, b)";
            return refuse("WITH ROLLUP, CUBE and TOTALS", help, place);
        }
        Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        let place = factor.span();
        match factor {
            TableFactor::Table {
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => {
                let unnest = is_unnest(factor);
                self.table_functions += usize::from(args.is_some() && !unnest);
                if version.is_some() {
                    let what = "the version of a table, other than in JOIN … ON,";
                    return refuse(what, AS_OF, place);
                }
                if sample.is_some() {
                    return refuse(
                        "TABLESAMPLE",
                        "write for example WHERE MOD(key, 100) = 0",
                        place,
                    );
                }
                let odd = !with_hints.is_empty() || !index_hints.is_empty() || json_path.is_some();
                if odd || *with_ordinality && !unnest || !partitions.is_empty() {
                    return refuse("what follows the table's name", LEAVE_OUT, place);
                }
            }
            TableFactor::Derived { lateral, sample, subquery, .. } => {
                refuse_inner_order(subquery)?;
                if *lateral {
                    return refuse("LATERAL", LATERAL, place);
                }
                if sample.is_some() {
                    return refuse("TABLESAMPLE", LEAVE_OUT, place);
                }
            }
            TableFactor::TableFunction { .. } => self.table_functions += 1,
            TableFactor::NestedJoin { table_with_joins, .. } => check_joins(table_with_joins)?,
            TableFactor::MatchRecognize { .. } => {
                return Break(match_recognize().at(Span::new(place)));
            }
            TableFactor::Function { .. } => {
                let help = "CROSS JOIN UNNEST(t.items) AS u (item) gives a row for each element of an \
                            array; TABLE(TUMBLE(…)), HOP, CUMULATE and SESSION assign windows";
                return refuse("a table function", help, place);
            }
            TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => {
                return refuse("PIVOT", "write one aggregate with FILTER for each column", place);
            }
            _ => {
                return refuse(
                    "this kind of table",
                    "write FROM name or FROM TABLE(TUMBLE(…))",
                    place,
                );
            }
        }
        Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        let function = match factor {
            TableFactor::Table { args, .. } => args.is_some() && !is_unnest(factor),
            TableFactor::TableFunction { .. } => true,
            _ => false,
        };
        self.table_functions -= usize::from(function);
        Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Function(call) => check_call(call, self.functions, self.table_functions > 0),
            Expr::InSubquery { .. } if let Some(error) = of_several(expr) => Break(error),
            Expr::Exists { subquery, .. } | Expr::InSubquery { subquery, .. } => {
                match self.conditions.contains(&std::ptr::from_ref(expr)) {
                    true => refuse_inner_order(subquery),
                    false => Break(misplaced(expr)),
                }
            }
            Expr::Subquery(_) if self.table_functions == 0 => subquery(expr),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => subquery(expr),
            Expr::Interval(interval) => check_unit(interval),
            Expr::Array(array) if array.elem.is_empty() => {
                let error = SqlError::types("an ARRAY without elements has no type");
                let help = "name an element, or write CAST(NULL AS …) where there is no value";
                Break(error.at(Span::new(expr.span())).help(help))
            }
            Expr::Struct { .. }
            | Expr::Map(_)
            | Expr::Dictionary(_)
            | Expr::Tuple(_)
            | Expr::JsonAccess { .. }
            | Expr::Lambda(_) => {
                let help = "write ARRAY[1, 2], MAP['a', 1] or ROW(1, 'a')";
                refuse("this form of a value made of others", help, expr.span())
            }
            Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => {
                let help = "compare the ends: a < d AND c < b, for (a, b) OVERLAPS (c, d)";
                refuse("the operator OVERLAPS", help, expr.span())
            }
            Expr::BinaryOp { op, .. } if let Some(help) = bits(op) => {
                refuse(&format!("the operator {op}"), help, expr.span())
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, .. } => {
                refuse("the operator ~", "write -x - 1 to flip the bits of a number", expr.span())
            }
            Expr::Collate { .. } => refuse("COLLATE", LEAVE_OUT, expr.span()),
            Expr::RLike { regexp, .. } => {
                let what = if *regexp { "the operator REGEXP" } else { "RLIKE" };
                refuse(what, "write REGEXP_LIKE(text, pattern)", expr.span())
            }
            Expr::IsNormalized { .. } => refuse("IS NORMALIZED", LEAVE_OUT, expr.span()),
            Expr::Convert { .. } => {
                refuse("CONVERT", "write for example CAST(x AS INT)", expr.span())
            }
            Expr::MatchAgainst { .. } => refuse("MATCH AGAINST", LEAVE_OUT, expr.span()),
            Expr::Cast {
                format: Some(CastFormat::Value(_) | CastFormat::ValueAtTimeZone(..)),
                ..
            } => refuse("CAST with FORMAT", "write DATE_FORMAT or TO_TIMESTAMP", expr.span()),
            _ => Continue(()),
        }
    }
}

/// Advice for an operator on bits: Flink has no such operators, and elsewhere they mean something
/// else: `^` is a power in DuckDB.
fn bits(op: &BinaryOperator) -> Option<&'static str> {
    match op {
        BinaryOperator::BitwiseAnd => {
            Some("write AND between conditions; MOD(x, 8) gives the last three bits")
        }
        BinaryOperator::BitwiseOr => Some("write OR between conditions, || between texts"),
        BinaryOperator::BitwiseXor => Some("write POWER(x, y) for a power, <> between conditions"),
        _ => None,
    }
}

fn subquery(expr: &Expr) -> Flow {
    refuse("a subquery as a value", JOIN_IT, expr.span())
}
