//! Intervals in the order of their length. Arrow compares months first, then days, then
//! nanoseconds, so that 36 hours would be less than a day.

use arrow::array::Decimal128Array;
use arrow::datatypes::{IntervalMonthDayNanoType, IntervalUnit};
use datafusion_common::tree_node::TreeNode;

use super::calendar::{DAY_NS, tick_ns};
use crate::expr::udf::{argument_of, call_of, called, first_array, result_of};
use crate::expr::{located::within_mark, one_form::compares};
use crate::syntax::prelude::*;

/// Makes comparisons in `expr`, which is over `schema`, compare intervals by their length. A month
/// is 30 days, as in PostgreSQL.
pub(crate) fn compare_intervals(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let compared = expr.changed_up(|e| {
        let operands: Vec<&Expr> = match &e {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                vec![left, right]
            }
            Expr::Between(Between { expr, low, high, .. }) => vec![expr, low, high],
            Expr::InList(InList { expr, list, .. }) => {
                std::iter::once(&**expr).chain(list).collect()
            }
            Expr::Case(Case { expr: Some(expr), when_then_expr, .. }) => {
                std::iter::once(&**expr).chain(when_then_expr.iter().map(|(w, _)| &**w)).collect()
            }
            Expr::ScalarFunction(call) if call.name() == "nullif" => call.args.iter().collect(),
            _ => return Ok(Transformed::no(e)),
        };
        for operand in operands {
            if !matches!(operand.get_type(schema)?, DataType::Interval(_)) {
                return Ok(Transformed::no(e));
            }
        }
        match e {
            Expr::Case(case) => by_length(case, schema).map(Transformed::yes),
            Expr::ScalarFunction(call) => null_if(call.args, schema).map(Transformed::yes),
            e => e.map_children(|operand| Ok(Transformed::yes(length(operand, schema)?))),
        }
    })?;
    Ok(compared.data)
}

/// `CASE x WHEN y THEN …` of intervals.
fn by_length(case: Case, schema: &DFSchema) -> DfResult<Expr> {
    let measured = |expr: Box<Expr>| length(*expr, schema).map(Box::new);
    let when_then = case.when_then_expr.into_iter();
    let when_then = when_then.map(|(when, then)| Ok((measured(when)?, then)));
    let when_then = when_then.collect::<DfResult<_>>()?;
    Ok(Expr::Case(Case::new(case.expr.map(measured).transpose()?, when_then, case.else_expr)))
}

/// `NULLIF(x, y)` of intervals.
fn null_if(args: Vec<Expr>, schema: &DFSchema) -> DfResult<Expr> {
    let Ok([x, y]) = <[Expr; 2]>::try_from(args) else {
        return exec_err!("NULLIF takes two arguments");
    };
    let null = Expr::Literal(ScalarValue::try_from(&x.get_type(schema)?)?, None);
    let equal = length(x.clone(), schema)?.eq(length(y, schema)?);
    Ok(Expr::Case(Case::new(None, vec![(Box::new(equal), Box::new(null))], Some(Box::new(x)))))
}

/// The measured interval, if `expr` is the length of an interval.
pub(crate) fn measured_interval(expr: &Expr) -> Option<&Expr> {
    argument_of::<IntervalLength>(expr)
}

/// The length of an interval. A difference of times is measured as it is: as months, days and
/// nanoseconds it might not fit.
fn length(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let inner = within_mark(&expr).unwrap_or(&expr);
    if let Expr::Cast(Cast { expr: from, .. }) = inner
        && matches!(from.get_type(schema)?, DataType::Duration(_))
    {
        return Ok(call_of(IntervalLength, vec![from.as_ref().clone()]));
    }
    Ok(call_of(IntervalLength, vec![expr]))
}

/// The length of an interval in nanoseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalLength;

impl ScalarUDFImpl for IntervalLength {
    called!("interval_length", ONE, DataType::Decimal128(38, 0));

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let lengths = lengths(&first_array(&args)?)?;
        result_of(&args, Arc::new(lengths.with_data_type(DataType::Decimal128(38, 0))))
    }
}

/// Nanoseconds; 31 digits at most.
pub(super) fn lengths(intervals: &ArrayRef) -> DfResult<Decimal128Array> {
    if let DataType::Duration(unit) = intervals.data_type() {
        let factor = tick_ns(*unit);
        let numbers = cast(intervals, &DataType::Int64)?;
        return Ok(numbers.as_primitive::<Int64Type>().unary(|n| i128::from(n) * factor));
    }
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    Ok(intervals.unary(|interval| {
        let days = 30 * i128::from(interval.months) + i128::from(interval.days);
        days * DAY_NS + i128::from(interval.nanoseconds)
    }))
}
