//! Refuses what DataFusion accepts and cannot compute: hours added to a DATE, which has no time of
//! day; a pattern of times for an interval; signs before times, and times of what has none.

use crate::expr::{located::within_mark, udf::no_such};
use crate::syntax::prelude::*;

const DAY_NS: i64 = 86_400_000_000_000;

pub(super) fn refuse_lost_parts(expr: &Expr, schema: &DFSchema) -> DfResult<()> {
    let is = |e: &Expr, of: fn(&DataType) -> bool| e.get_type(schema).is_ok_and(|t| of(&t));
    let date = |e: &Expr| is(e, |t| *t == DataType::Date32);
    let interval = |e: &Expr| is(e, |t| matches!(t, DataType::Interval(_) | DataType::Duration(_)));
    expr.each_node(|e| match e {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right })
            if has_time_of_day(right) && date(left) || has_time_of_day(left) && date(right) =>
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
        Expr::Negative(of) if is(of, DataType::is_temporal) && !interval(of) => {
            plan_err!("Unary operator '-' only supports numbers and intervals")
        }
        Expr::ScalarFunction(call) => {
            let types = call.args.iter().map(|arg| arg.get_type(schema));
            if let Ok(types) = types.collect::<DfResult<Vec<_>>>() {
                refuse_times(call.name(), &types)?;
            }
            Ok(TreeNodeRecursion::Continue)
        }
        _ => Ok(TreeNodeRecursion::Continue),
    })?;
    Ok(())
}

/// Refuses arguments of which no time can be made, and patterns that are no texts.
fn refuse_times(name: &str, types: &[DataType]) -> DfResult<()> {
    let (first, form) = match name {
        "to_unixtime" => (true, "a time, a date or a text"),
        // This function checks its own types.
        "to_timestamp_ltz" => (false, ""),
        name if name.starts_with("to_timestamp") => (true, "a number, or a text and its pattern"),
        "to_date" => (true, "a text and its pattern"),
        _ => (false, ""),
    };
    let no_time = |t: &DataType| {
        t.is_binary()
            || matches!(t, DataType::Boolean | DataType::Interval(_) | DataType::Time64(_))
    };
    let text = |t: &DataType| t.is_string() || t.is_null();
    let wrong = types.first().is_some_and(no_time) || !types.iter().skip(1).all(text);
    if first && wrong {
        return no_such(&name.to_uppercase(), types, form);
    }
    Ok(())
}

/// Whether an interval is no constant number of months and days.
fn has_time_of_day(expr: &Expr) -> bool {
    match within_mark(expr).unwrap_or(expr) {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(i)), _) => i.nanoseconds % DAY_NS != 0,
        _ => false,
    }
}
