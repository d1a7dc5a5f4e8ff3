//! Versions as Flink's queries write them: a view that keeps the last row of each key.
//!
//! ```sql
//! SELECT … FROM (
//!     SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t
//! ) WHERE rn = 1
//! ```
//!
//! The last row of a key changes with time, and what a temporal join takes is the one of a row's
//! time. So the rows of `t` are the versions, and `k` tells of what.

use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Projection, SubqueryAlias, Window};

use crate::names::catalog::{INPUT, input_column};
use crate::stages::lower::{Places, Rows, Stage, indexed};
use crate::stages::ranking::{bound, is_row_number};
use crate::syntax::prelude::*;

/// A view of the last row of each key.
pub(super) struct LastRowView {
    /// Of all its rows, as the last.
    pub(super) plan: LogicalPlan,
    /// The columns of the table that are the key.
    pub(super) key: Vec<String>,
}

/// A plan without the ranking in it, whose place each row has.
struct Stripped {
    plan: LogicalPlan,
    window: Window,
    /// The column that has the rank, as long as no condition has been asked of it.
    rank: Option<usize>,
}

impl LastRowView {
    /// The view of a plan that selects the last row of each key from a table; `None` for other
    /// plans.
    pub(super) fn of(plan: &LogicalPlan, places: &Places) -> Result<Option<LastRowView>> {
        let Some(Stripped { plan, window, rank: None }) = stripped(plan) else { return Ok(None) };
        let [expr] = &window.window_expr[..] else { return Ok(None) };
        let Expr::WindowFunction(function) = expr.clone().unalias_nested().data else {
            return Ok(None);
        };
        let WindowFunction { fun, params } = *function;
        let [order] = &params.order_by[..] else { return Ok(None) };
        if !is_row_number(&fun) || order.asc {
            return Ok(None);
        }
        let base = Stage::new(&window.input, places)?;
        let schema = &indexed(window.input.schema());
        let Rows::Table(table) = &base.input else { return Ok(None) };
        let time = base.substitute(&order.expr, schema, places)?;
        if base.fires.is_some() || table.time_name().map(input_column) != Some(time) {
            return Ok(None);
        }
        let key = base.substitute_all(&params.partition_by, schema, places)?;
        let name = |expr: Expr| match expr {
            Expr::Column(column)
                if column.relation.as_ref().is_some_and(|r| r.table() == INPUT) =>
            {
                Some(column.name)
            }
            _ => None,
        };
        let key: Option<Vec<String>> = key.into_iter().map(name).collect();
        Ok(key.filter(|key| !key.is_empty()).map(|key| LastRowView { plan, key }))
    }
}

fn stripped(plan: &LogicalPlan) -> Option<Stripped> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let below = stripped(&alias.input)?;
            let plan = SubqueryAlias::try_new(Arc::new(below.plan), alias.alias.clone()).ok()?;
            Some(Stripped { plan: LogicalPlan::SubqueryAlias(plan), ..below })
        }
        LogicalPlan::Projection(projection) => {
            let below = stripped(&projection.input)?;
            let is_rank = |expr: &Expr| match expr.clone().unalias_nested().data {
                Expr::Column(column) => {
                    let at = projection.input.schema().index_of_column(&column).ok();
                    at.is_some() && at == below.rank
                }
                _ => false,
            };
            // What is asked of the rank stands above.
            let rank = match below.rank {
                Some(_) => Some(projection.expr.iter().position(is_rank)?),
                None => None,
            };
            let (columns, schema) = (projection.expr.clone(), projection.schema.clone());
            let plan =
                Projection::try_new_with_schema(columns, Arc::new(below.plan), schema).ok()?;
            Some(Stripped { plan: LogicalPlan::Projection(plan), rank, ..below })
        }
        LogicalPlan::Filter(filter) => {
            let below = stripped(&filter.input)?;
            let (table, field) = filter.input.schema().qualified_field(below.rank?);
            let rank = Expr::from((table, field));
            let is_first = !matches!(&filter.predicate, Expr::BinaryExpr(both)
                if both.op == datafusion_expr::Operator::And)
                && bound(&filter.predicate, &rank) == Some(1);
            is_first.then_some(Stripped { rank: None, ..below })
        }
        LogicalPlan::Window(window) => {
            let input = window.input.schema();
            let mut columns: Vec<Expr> = input.columns().into_iter().map(Expr::Column).collect();
            columns.push(lit(1_i64));
            let rank = Some(columns.len() - 1);
            let (input, schema) = (window.input.clone(), window.schema.clone());
            let plan = Projection::try_new_with_schema(columns, input, schema).ok()?;
            let plan = LogicalPlan::Projection(plan);
            Some(Stripped { plan, window: window.clone(), rank })
        }
        _ => None,
    }
}
