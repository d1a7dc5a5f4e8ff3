//! Text of `EXPLAIN` about the state of a plan's operators.

use std::fmt::Write;

use arrow::datatypes::DataType;

use crate::error::Result;
use crate::plan::Plan;

/// The layout of a plan's state as text, one part per line; empty for a plan without state.
/// `type_name` names types as their user does.
pub fn state_layout(plan: &Plan, type_name: impl Fn(&DataType) -> String) -> Result<String> {
    let mut text = String::new();
    for (number, stage) in (1..).zip(&plan.stages) {
        if let Some(program) = crate::registry::program(stage, 0)? {
            if plan.stages.len() > 1 {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "  stage {number}");
            }
            program.explain(&mut text, &type_name);
        }
    }
    Ok(text)
}
