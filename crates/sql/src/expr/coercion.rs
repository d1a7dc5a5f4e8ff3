//! Making types agree, as DataFusion does it, deep expressions in parts.

use std::mem::replace;

use datafusion_common::{config::ConfigOptions, tree_node::TreeNode};
use datafusion_expr::WindowFrame;
use datafusion_expr::{expr_rewriter::NamePreserver, utils::merge_schema};
use datafusion_optimizer::{analyzer::AnalyzerRule, analyzer::type_coercion::TypeCoercionRewriter};

use crate::expr::by_parts::by_parts;
use crate::syntax::prelude::*;

/// Type coercion; goes behind the rules that depend on the written types.
#[derive(Debug, Default)]
pub(crate) struct Coercion;

impl AnalyzerRule for Coercion {
    fn name(&self) -> &str {
        "type_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(coerced)?.data)
    }
}

/// Coerces a node of a plan whose inputs are done.
fn coerced(mut node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    let schema = Arc::new(schema_of(&node));
    // `WHERE NULL` is a condition, too.
    if let LogicalPlan::Filter(filter) = &mut node {
        let predicate = std::mem::take(&mut filter.predicate);
        filter.predicate = predicate.cast_to(&DataType::Boolean, schema.as_ref())?;
    }
    let names = NamePreserver::new(&node);
    let mut coerce = |expr: Expr, schema: &Arc<DFSchema>| {
        Ok(expr.rewrite(&mut TypeCoercionRewriter::new(schema))?.data)
    };
    node.map_expressions(|mut expr| {
        let name = names.save(&expr);
        let frame = frame_of(&mut expr).map(|frame| replace(frame, WindowFrame::new(None)));
        let mut expr = by_parts(expr, &schema, false, &mut coerce)?;
        if let (Some(frame), Some(place)) = (frame, frame_of(&mut expr)) {
            *place = frame;
        }
        Ok(Transformed::yes(name.restore(expr)))
    })?
    .map_data(|node| TypeCoercionRewriter::new(&schema).coerce_plan(node))?
    .map_data(|node| node.recompute_schema())
}

/// The frame of a ranking. It means nothing, but DataFusion gives every ranking one by RANGE, and
/// such a frame needs a first sort key with distances, which BYTES and TIME do not have.
fn frame_of(expr: &mut Expr) -> Option<&mut WindowFrame> {
    match expr {
        Expr::WindowFunction(function) => Some(&mut function.params.window_frame),
        _ => None,
    }
}

/// Schema for the expressions of a node.
pub(crate) fn schema_of(node: &LogicalPlan) -> DFSchema {
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = node {
        schema.merge(&scan.projected_schema);
    }
    schema
}
