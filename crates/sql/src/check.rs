//! What is refused before planning.

use datafusion_sql::sqlparser::ast::{Expr, GroupByExpr, Query, SetExpr, Spanned};

use crate::error::{Result, Span};
use crate::functions::Functions;
use crate::lower::Places;

/// Checks a query.
pub(crate) fn check_query(_query: &Query, _functions: &Functions) -> Result<()> {
    Ok(())
}

/// Checks an expression of a table.
pub(crate) fn check_expr(_expr: &Expr, _functions: &Functions) -> Result<()> {
    Ok(())
}

/// Where a query's clauses stand.
pub(crate) fn places(query: &Query, statement: Option<Span>) -> Places {
    let mut places = Places { statement, ..Places::default() };
    places.limit = query.limit_clause.as_ref().and_then(|l| Span::new(l.span()));
    if let SetExpr::Select(select) = &*query.body
        && let GroupByExpr::Expressions(exprs, _) = &select.group_by
    {
        places.group_by =
            exprs.iter().map(Spanned::span).reduce(|a, b| a.union(&b)).and_then(Span::new);
    }
    places
}
