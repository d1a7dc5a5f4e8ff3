//! A query over thousands of columns planned query by query: DataFusion compares the columns of
//! each SELECT within it with each other. What WITH names, and a query in FROM, becomes a view, and
//! views are planned already; UNION, DISTINCT and ORDER BY are put on top of the plans of what they
//! combine or order.

use datafusion_expr::{LogicalPlanBuilder, SortExpr};
use datafusion_sql::sqlparser::ast::{
    Distinct, LimitClause, OrderByKind, SetOperator, SetQuantifier,
};

use super::Planner;
use super::logical::Planned;
use crate::faults::union_columns::check_unions;
use crate::names::catalog::{Entry, ViewEntry};
use crate::names::scope::ScopeNames;
use crate::plan::pieces::WHOLE_MAX;
use crate::stages::{texts::Texts, windows::window_functions::named};
use crate::syntax::prelude::*;
use crate::syntax::{calls::number_of, dialect::parser_options};

impl Planner {
    /// The plan of a query with many columns that has others in it or an order; `None` if it is to
    /// be planned as a whole, or there is a mistake in it.
    pub(super) fn planned_by_parts(&self, query: &Query, texts: &Texts) -> Option<Planned> {
        if !self.is_wide(query) {
            return None;
        }
        let combines = query.with.is_none() && is_combined(query);
        if query.order_by.is_some() || combines && query.limit_clause.is_some() {
            return self.ordered(query, texts);
        }
        if combines {
            let plan = self.combined(&query.body, query, texts)?;
            check_unions(&plan, query).ok()?;
            let analyzed = self.analyze(plan.clone()).ok()?;
            return Some(Planned { plan, analyzed });
        }
        let mut query = query.clone();
        let mut planner = self.clone();
        let mut changed = false;
        if let Some(with) = query.with.take() {
            if with.recursive {
                return None;
            }
            for cte in with.cte_tables {
                if !cte.alias.columns.is_empty() || cte.from.is_some() {
                    return None;
                }
                planner.declare(&cte.alias.name.value, &cte.query, texts)?;
            }
            changed = true;
        }
        if let SetExpr::Select(select) = &mut *query.body
            && let [from] = &mut select.from[..]
            && let TableFactor::Derived { lateral: false, subquery, alias, sample: None } =
                &from.relation
        {
            let name = alias.as_ref().map_or(UNNAMED, |alias| &alias.name.value).to_string();
            planner.declare(&name, subquery, texts)?;
            let name = ObjectName::from(vec![Ident::new(&name)]);
            from.relation = named(name, alias.clone());
            changed = true;
        }
        if !changed {
            return None;
        }
        planner.planned(&query, texts).ok()
    }

    /// Makes a query a view, for what is planned after it.
    fn declare(&mut self, name: &str, query: &Query, texts: &Texts) -> Option<()> {
        let Planned { plan, .. } = self.planned(query, texts).ok()?;
        let fields = plan.schema().fields().iter().cloned().collect();
        let names = ScopeNames::default();
        let view = ViewEntry { plan, fields, texts: vec![], levels: 0, tables: 0, names };
        self.catalog.insert(name.to_string(), Entry::View(Arc::new(view)));
        Some(())
    }

    /// The plan of a UNION, or of a SELECT DISTINCT; `query` is the whole that it is a part of.
    fn combined(&self, body: &SetExpr, query: &Query, texts: &Texts) -> Option<LogicalPlan> {
        match body {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } => {
                let left = self.combined(left, query, texts)?;
                let right = self.combined(right, query, texts)?;
                let left = LogicalPlanBuilder::from(left);
                let both = match set_quantifier {
                    SetQuantifier::All => left.union(right),
                    _ => left.union_distinct(right),
                };
                both.ok()?.build().ok()
            }
            SetExpr::Query(inner) => Some(self.planned(inner, texts).ok()?.plan),
            other => {
                let mut body = other.clone();
                let distinct = match &mut body {
                    SetExpr::Select(select) if is_distinct(select) => select.distinct.take(),
                    _ => None,
                };
                let query = Query { body: Box::new(body), ..query.clone() };
                let plan = self.planned(&query, texts).ok()?.plan;
                match distinct {
                    Some(_) => LogicalPlanBuilder::from(plan).distinct().ok()?.build().ok(),
                    None => Some(plan),
                }
            }
        }
    }

    /// A query that is ordered by columns of its result, or limited.
    fn ordered(&self, query: &Query, texts: &Texts) -> Option<Planned> {
        let mut query = query.clone();
        let keys = match query.order_by.take().map(|order_by| order_by.kind) {
            Some(OrderByKind::Expressions(keys)) => keys,
            Some(OrderByKind::All(_)) => return None,
            None => vec![],
        };
        let (skip, fetch) = match query.limit_clause.take() {
            None => (0, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let skip = offset.map_or(Some(0), |offset| number(&offset.value))?;
                let fetch = match limit {
                    Some(limit) => Some(number(&limit)?),
                    None => None,
                };
                (skip, fetch)
            }
            Some(_) => return None,
        };
        let Planned { plan, analyzed } = self.planned(&query, texts).ok()?;
        let nulls = parser_options().default_null_ordering;
        let mut order = Vec::new();
        for key in keys.iter().filter(|key| key.with_fill.is_none()) {
            let columns = plan.schema().columns();
            let column = match &key.expr {
                SqlExpr::Identifier(name) => {
                    let mut same = columns.into_iter().filter(|column| column.name == name.value);
                    let first = same.next()?;
                    same.next().is_none().then_some(first)?
                }
                position => columns.into_iter().nth(number(position)?.checked_sub(1)?)?,
            };
            let asc = key.options.asc.unwrap_or(true);
            let nulls_first = key.options.nulls_first.unwrap_or_else(|| nulls.nulls_first(asc));
            order.push(SortExpr { expr: Expr::Column(column), asc, nulls_first });
        }
        if order.len() < keys.len() {
            return None;
        }
        let ordered = |plan: LogicalPlan| {
            let plan = LogicalPlanBuilder::from(plan);
            let sorted = if order.is_empty() { plan } else { plan.sort(order.clone()).ok()? };
            let limits = skip > 0 || fetch.is_some();
            let limited = if limits { sorted.limit(skip, fetch).ok()? } else { sorted };
            limited.build().ok()
        };
        Some(Planned { plan: ordered(plan)?, analyzed: ordered(analyzed)? })
    }

    /// Whether a SELECT or a table has many columns.
    fn is_wide(&self, query: &Query) -> bool {
        let many = |name: &ObjectName| {
            let name = name.0.last().and_then(|part| part.as_ident());
            match name.and_then(|name| self.catalog.get(&name.value)) {
                Some(Entry::Table(table)) => table.columns.len() > WHOLE_MAX,
                Some(Entry::View(view)) => view.plan.schema().fields().len() > WHOLE_MAX,
                None => false,
            }
        };
        let found = query.each_relation(|name| if many(name) { Break(()) } else { Continue(()) });
        found.is_break() || query.walk(&mut LongLists).is_break()
    }
}

/// Whether a query is a UNION, or without double rows.
fn is_combined(query: &Query) -> bool {
    match &*query.body {
        SetExpr::SetOperation { .. } => true,
        SetExpr::Select(select) => is_distinct(select),
        _ => false,
    }
}

fn is_distinct(select: &Select) -> bool {
    matches!(select.distinct, Some(Distinct::Distinct))
}

/// A query in FROM that has no name.
const UNNAMED: &str = "(SELECT …)";

/// Finds a long list of columns.
struct LongLists;

impl Visitor for LongLists {
    type Break = ();
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match &*query.body {
            SetExpr::Select(select) if select.projection.len() > WHOLE_MAX => Break(()),
            _ => Continue(()),
        }
    }
}

/// A whole number as it is written.
fn number(expr: &SqlExpr) -> Option<usize> {
    number_of(expr)?.parse().ok()
}
