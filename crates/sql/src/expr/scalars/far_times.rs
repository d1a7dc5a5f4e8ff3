//! Comparisons of times in nanoseconds with others. Nanoseconds reach from 1677 to 2262 only, and
//! a year such as 9999 is compared with them as the last one of these.

use super::calendar::tick_ns;
use super::dates::compared_in;
use super::rounded::Rounded;
use crate::expr::udf::{argument_of, call_of, called, first_array, result_of};
use crate::syntax::prelude::*;

/// Makes comparisons within `expr`, which is over `schema`, of all times.
pub(crate) fn compare_far(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let compared = expr.changed_up(|mut e| {
        let mut changes = false;
        for side in compared_in(&mut e) {
            if let Some(near) = near(side, schema)? {
                *side = near;
                changes = true;
            }
        }
        Ok(if changes { Transformed::yes(e) } else { Transformed::no(e) })
    })?;
    Ok(compared.data)
}

/// The same of a cast to nanoseconds that does not fail.
fn near(side: &Expr, schema: &DFSchema) -> DfResult<Option<Expr>> {
    Ok(match side {
        rounded if let Some(cast) = argument_of::<Rounded>(rounded) => near(cast, schema)?,
        Expr::Cast(Cast { expr, field }) => match (expr.get_type(schema)?, field.data_type()) {
            (DataType::Timestamp(from, a), DataType::Timestamp(TimeUnit::Nanosecond, b))
                if from != TimeUnit::Nanosecond && a == *b =>
            {
                Some(call_of(Near, vec![expr.as_ref().clone()]))
            }
            _ => None,
        },
        _ => None,
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Near;

impl ScalarUDFImpl for Near {
    called!("$near", ONE);

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [DataType::Timestamp(_, zone)] => {
                Ok(DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()))
            }
            _ => internal_err!("a time is one value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let times = first_array(&args)?;
        let ticks = match times.data_type() {
            DataType::Timestamp(unit, _) => tick_ns(*unit) as i64,
            other => return exec_err!("{other} is no time"),
        };
        let values = cast(&times, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let nanos: Int64Array = values.unary(|value| value.saturating_mul(ticks));
        result_of(&args, cast(&nanos, args.return_type())?)
    }
}
