//! `SELECT * FROM …` is planned without its list of columns, because DataFusion compares the
//! columns pair by pair, which takes seconds for thousands of columns.

use datafusion_expr::{Expr as PlannedExpr, Limit, Projection};
use datafusion_sql::sqlparser::ast::{
    Expr, GroupByExpr, TableWithJoins, Value, WildcardAdditionalOptions,
};

use crate::stages::unnest::is_unnest;
use crate::syntax::prelude::*;

/// The query with a constant in place of `*`, if that is all it selects.
pub(crate) fn without_columns(query: &Query) -> Option<Query> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let all = match &select.projection[..] {
        [SelectItem::Wildcard(options)] => is_plain(options),
        _ => false,
    };
    let ungrouped =
        matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let plain = ungrouped && select.having.is_none() && select.distinct.is_none();
    let one = matches!(&select.from[..], [from] if is_one(from));
    if !all || !plain || !one || query.order_by.is_some() {
        return None;
    }
    let one = Expr::value(Value::Number("1".into(), false));
    let select = Select { projection: vec![SelectItem::UnnamedExpr(one)], ..Select::clone(select) };
    Some(Query { body: Box::new(SetExpr::Select(Box::new(select))), ..query.clone() })
}

/// Whether `*` shows all columns of a relation. A join may hide one of two columns with the same
/// name.
fn is_one(from: &TableWithJoins) -> bool {
    from.joins.iter().all(|join| is_unnest(&join.relation))
        && match &from.relation {
            TableFactor::NestedJoin { table_with_joins, .. } => is_one(table_with_joins),
            _ => true,
        }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
}

/// The plan of such a query with all columns; `None` if it is not of the form that was expected.
pub(crate) fn with_columns(plan: LogicalPlan) -> DfResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = Arc::unwrap_or_clone(projection.input);
            let schema = input.schema().clone();
            let columns = schema.columns().into_iter().map(PlannedExpr::Column).collect();
            let all = Projection::try_new_with_schema(columns, Arc::new(input), schema)?;
            Ok(Some(LogicalPlan::Projection(all)))
        }
        LogicalPlan::Limit(limit) => {
            let Some(input) = with_columns(Arc::unwrap_or_clone(limit.input))? else {
                return Ok(None);
            };
            Ok(Some(LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit })))
        }
        _ => Ok(None),
    }
}
