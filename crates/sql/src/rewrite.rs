//! Flink's functions that are other functions in disguise.

use datafusion_sql::sqlparser::ast::{Expr, Query};

use crate::error::Result;

/// Rewrites a query.
pub(crate) fn rewrite_query(query: Query) -> Result<Query> {
    Ok(query)
}

/// Rewrites an expression.
pub(crate) fn rewrite_expr(expr: Expr) -> Result<Expr> {
    Ok(expr)
}
