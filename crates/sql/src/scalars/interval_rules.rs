//! Refusals where DataFusion would compute with an interval and ignore a part of it. A DATE has no
//! time of day to which hours could be added, and a pattern of dates and times says nothing about
//! an interval.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use crate::located::within_mark;

const DAY_NS: i64 = 86_400_000_000_000;

pub(super) fn refuse_lost_parts(expr: &Expr, schema: &DFSchema) -> DfResult<()> {
    let is = |e: &Expr, of: fn(&DataType) -> bool| e.get_type(schema).is_ok_and(|t| of(&t));
    let date = |e: &Expr| is(e, |t| *t == DataType::Date32);
    let interval = |e: &Expr| is(e, |t| matches!(t, DataType::Interval(_) | DataType::Duration(_)));
    expr.apply(|e| match e {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right })
            if date(left) && has_time_of_day(right) || date(right) && has_time_of_day(left) =>
        {
            plan_err!(
                "there is no time of day in a DATE, which this interval needs; \
                 cast it: CAST(x AS TIMESTAMP(3)) + INTERVAL '1' HOUR"
            )
        }
        Expr::ScalarFunction(call)
            if call.name() == "to_char" && call.args.iter().any(interval) =>
        {
            plan_err!("there is no TO_CHAR of INTERVAL; CAST(x AS STRING) writes an interval")
        }
        _ => Ok(TreeNodeRecursion::Continue),
    })?;
    Ok(())
}

/// Whether an interval is no constant number of months and days.
fn has_time_of_day(expr: &Expr) -> bool {
    match within_mark(expr).unwrap_or(expr) {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(i)), _) => i.nanoseconds % DAY_NS != 0,
        _ => false,
    }
}
