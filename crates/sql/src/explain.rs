//! What `EXPLAIN` prints.

use datafusion_expr::LogicalPlan;
use millstream_engine::plan::Query;

use crate::catalog::TableEntry;

/// The logical plan, one operator per line.
pub(crate) fn logical_text(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

/// The whole text.
pub(crate) fn explain(logical: &str, query: &Query, _table: &TableEntry) -> String {
    format!("{logical}\n{:?}", query.output)
}
