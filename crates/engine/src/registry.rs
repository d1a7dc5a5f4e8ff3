//! Registry of operators: the body of a stage of the plan becomes a program.

use std::sync::Arc;

use millstream_operators::operator::{Program, aggregate, join};

use crate::error::Result;
use crate::plan;

/// The program of a stage of the plan whose windows wait so long for late records; `None` for a
/// pass. Here the plan's body becomes an operator.
pub(crate) fn program(stage: &plan::Stage, lateness_us: i64) -> Result<Option<Arc<dyn Program>>> {
    Ok(match &stage.operator {
        plan::Operator::Stateless { .. }
        | plan::Operator::Unnest(_)
        | plan::Operator::Lookup(_) => None,
        plan::Operator::Aggregate(body) => {
            Some(Arc::new(aggregate::AggregateProgram::new(body, lateness_us, &stage.output)?))
        }
        plan::Operator::Join(body) => {
            Some(Arc::new(join::JoinProgram::new(body, lateness_us, &stage.output)?))
        }
    })
}
