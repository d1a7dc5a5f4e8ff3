//! Refusals during planning: which parts of a logical plan do not run, why, and the nearest query
//! that does.

use datafusion_sql::sqlparser::ast::SetOperator;

use crate::stages::{as_of::time_of, windows::group_windows::bound_of};
use crate::syntax::prelude::*;

/// Advice in place of a subquery as a value.
pub(crate) const JOIN_IT: &str = "join its row, where the input ends:\n\
     FROM t CROSS JOIN (SELECT MAX(x) AS most FROM t) AS m, or one for each key: JOIN (SELECT k, \
     MAX(x) AS most FROM t GROUP BY k) AS m ON t.k = m.k\n\
     (EXISTS (…) and IN (…) of a WHERE take subqueries)";

/// Advice in place of INTERSECT or EXCEPT.
pub(crate) fn set_operation(op: SetOperator) -> String {
    let (rows, has) = match op {
        SetOperator::Intersect => ("in both of a and b", 1),
        _ => ("in a and not in b", 0),
    };
    format!(
        "UNION ALL and GROUP BY do, where the input ends; for example rows {rows}:\n\
         SELECT x FROM (SELECT x, 1 AS a, 0 AS b FROM a UNION ALL SELECT x, 0, 1 FROM b)\n\
         GROUP BY x HAVING MAX(a) = 1 AND MAX(b) = {has}"
    )
}

/// Refuses expressions that cannot run.
pub(crate) fn refuse_expr(expr: &Expr) -> Result<()> {
    let error = match expr {
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::SetComparison(_) => {
            SqlError::unsupported("a subquery as a value does not run here").help(JOIN_IT)
        }
        Expr::WindowFunction(_) => SqlError::unsupported("OVER does not run here")
            .help("aggregate over a window instead: TABLE(TUMBLE(…)) with GROUP BY"),
        Expr::GroupingSet(_) => {
            SqlError::unsupported("GROUPING SETS, ROLLUP and CUBE stand in GROUP BY")
        }
        Expr::ScalarFunction(call) if let Some(name) = bound_of(call) => {
            SqlError::unsupported(format!("{name} stands beside aggregates, not within them"))
                .help("group by the window in a query below, and aggregate what that gives")
        }
        marked if time_of(marked).is_some() => {
            SqlError::unsupported("FOR SYSTEM_TIME AS OF stands behind a table that is joined")
        }
        Expr::Placeholder(_) => {
            SqlError::unsupported("parameters do not exist here").help("write the value itself")
        }
        Expr::Unnest(_) => SqlError::unsupported("UNNEST stands in FROM, not among expressions"),
        Expr::OuterReferenceColumn(_, column) => SqlError::unsupported(format!(
            "{} is of the query around this one, which may be named in the outermost WHERE of a \
             subquery alone",
            column.name
        ))
        .help("move the condition there, above GROUP BY and queries in FROM"),
        Expr::HigherOrderFunction(_) | Expr::Lambda(_) | Expr::LambdaVariable(_) => {
            SqlError::unsupported("functions of functions do not exist here")
        }
        _ => return Ok(()),
    };
    Err(error)
}

/// Why a plan's operator cannot run as a stream, and what can.
pub(crate) fn refused(plan: &LogicalPlan) -> SqlError {
    match plan {
        LogicalPlan::Window(_) => SqlError::unsupported("OVER does not run here")
            .help("aggregate over a window instead: TABLE(TUMBLE(…)) with GROUP BY"),
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
            SqlError::unsupported("a query without a table does not run here")
                .help("add FROM and a table's name")
        }
        LogicalPlan::RecursiveQuery(_) => SqlError::unsupported("WITH RECURSIVE does not run here"),
        LogicalPlan::Distinct(_) => SqlError::unsupported("DISTINCT ON does not run here")
            .help("write SELECT DISTINCT, or GROUP BY with MIN or MAX"),
        LogicalPlan::Unnest(_) => SqlError::unsupported("UNNEST stands in FROM, behind a table"),
        _ => SqlError::unsupported("this query does not run here")
            .help("SELECT … FROM … WHERE … GROUP BY … HAVING … does"),
    }
}
