//! Refusals during planning: which parts of a logical plan do not run, why, and the nearest query
//! that does.

use datafusion_expr::{Expr, LogicalPlan};

use crate::as_of::time_of;
use crate::error::{Result, SqlError};
use crate::group_windows::bound_of;

/// Refuses expressions that cannot run.
pub(crate) fn refuse_expr(expr: &Expr) -> Result<()> {
    let error = match expr {
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::SetComparison(_) => {
            SqlError::unsupported("subqueries inside expressions do not run as a stream yet")
                .help("a subquery may stand in FROM, and in EXISTS (…) and IN (…) of a WHERE")
        }
        Expr::WindowFunction(_) => SqlError::unsupported("OVER does not run yet")
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
        LogicalPlan::Window(_) => SqlError::unsupported("OVER does not run yet")
            .help("aggregate over a window instead: TABLE(TUMBLE(…)) with GROUP BY"),
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
            SqlError::unsupported("a query without a table does not run")
                .help("add FROM and a table's name")
        }
        LogicalPlan::RecursiveQuery(_) => SqlError::unsupported("WITH RECURSIVE does not run"),
        LogicalPlan::Distinct(_) => SqlError::unsupported("DISTINCT ON does not run")
            .help("write SELECT DISTINCT, or GROUP BY with MIN or MAX"),
        LogicalPlan::Unnest(_) => SqlError::unsupported("UNNEST stands in FROM, behind a table"),
        _ => SqlError::unsupported("this query does not run as a stream")
            .help("SELECT … FROM … WHERE … GROUP BY … HAVING … does"),
    }
}
