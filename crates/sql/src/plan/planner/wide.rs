//! A query over thousands of columns planned query by query: DataFusion compares the columns of
//! each SELECT within it with each other. What WITH names, and a query in FROM, becomes a view, and
//! views are planned already; ORDER BY is put on top of the plan of what it orders. A UNION of such
//! queries is planned as a whole.

use datafusion_expr::{LogicalPlanBuilder, SortExpr};
use datafusion_sql::sqlparser::ast::{LimitClause, OrderByKind};

use super::Planner;
use super::logical::Planned;
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
        if query.order_by.is_some() {
            return self.ordered(query, texts);
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

    /// A query that is ordered by columns of its result.
    fn ordered(&self, query: &Query, texts: &Texts) -> Option<Planned> {
        let mut query = query.clone();
        let keys = match query.order_by.take().map(|order_by| order_by.kind) {
            Some(OrderByKind::Expressions(keys)) => keys,
            _ => return None,
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
            let sorted = LogicalPlanBuilder::from(plan).sort(order.clone()).ok()?;
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
