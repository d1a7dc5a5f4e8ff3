//! Aggregates whose value has any size, or depends on the order of records: what arguments they
//! take, and how a call becomes one of the engine's. Several arguments become one, a row.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::{AggregateFunctionParams, NullTreatment};
use datafusion_expr::{Cast, Expr};
use millstream_contract::plan::{AggregateFunction, Share};

use crate::aggregates::is_ordered;
use crate::error::{Result, SqlError};
use crate::scalars::{row_fields, row_of};
use crate::text::sql_text;
use crate::type_grammar::ELEMENT;
use crate::types::sql_type_name;

/// What calls of these names are, before their arguments are looked at.
pub(crate) const COLLECTING: [(&str, AggregateFunction); 9] = {
    use AggregateFunction::*;
    [
        ("first_value", First { nulls: false }),
        ("last_value", Last { nulls: false }),
        ("min_by", MinBy),
        ("max_by", MaxBy),
        ("array_agg", ArrayAgg { nulls: true }),
        ("listagg", ListAgg { separated: false }),
        ("string_agg", ListAgg { separated: false }),
        ("approx_count_distinct", ApproxCountDistinct),
        ("approx_percentile", ApproxPercentile(Share::HALF)),
    ]
};

/// How a call of the function is written; `None` if it is none of these.
fn form(function: AggregateFunction) -> Option<&'static str> {
    use AggregateFunction::*;
    Some(match function {
        First { .. } => "FIRST_VALUE(x)",
        Last { .. } => "LAST_VALUE(x)",
        MinBy => "MIN_BY(x, y)",
        MaxBy => "MAX_BY(x, y)",
        ArrayAgg { .. } => "ARRAY_AGG(x)",
        ListAgg { .. } => "LISTAGG(x, ', ')",
        ApproxCountDistinct => "APPROX_COUNT_DISTINCT(x)",
        ApproxPercentile(_) => "APPROX_PERCENTILE(x, 0.95)",
        _ => return None,
    })
}

/// How many arguments such a call takes, and how it is written; `None` for other functions.
pub(crate) fn arguments(
    function: AggregateFunction,
) -> Option<(std::ops::RangeInclusive<usize>, &'static str)> {
    use AggregateFunction::*;
    let counts = match function {
        MinBy | MaxBy | ApproxPercentile(_) => 2..=2,
        ListAgg { .. } => 1..=2,
        _ => 1..=1,
    };
    form(function).map(|form| (counts, form))
}

/// The types to which arguments are brought, and that of the result; `None` if it is no such
/// function.
pub(crate) fn types(
    function: AggregateFunction,
    types: &[DataType],
) -> Option<Result<(Vec<DataType>, DataType)>> {
    let (counts, form) = arguments(function)?;
    let wrong = |message: String| Some(Err(SqlError::types(message).help(format!("write {form}"))));
    let name = form.split('(').next().unwrap_or_default();
    if !counts.contains(&types.len()) {
        return wrong(format!("{name} does not take {} arguments", types.len()));
    }
    let mut given = types.to_vec();
    let of = sql_type_name(&given[0]);
    use AggregateFunction::*;
    let result = match function {
        ArrayAgg { .. } => DataType::List(Arc::new(Field::new(ELEMENT, given[0].clone(), true))),
        MinBy | MaxBy if !is_ordered(&given[1]) => {
            let by = sql_type_name(&given[1]);
            return wrong(format!("{name} cannot compare values of type {by}"));
        }
        ListAgg { .. } => {
            if given.iter().any(|t| !matches!(t, DataType::Utf8 | DataType::Null)) {
                let help = "cast it: LISTAGG(CAST(x AS STRING), ', ')";
                let message = format!("LISTAGG joins strings, not values of type {of}");
                return Some(Err(SqlError::types(message).help(help)));
            }
            given.fill(DataType::Utf8);
            DataType::Utf8
        }
        ApproxCountDistinct => DataType::Int64,
        ApproxPercentile(_) => {
            let number = |t: &DataType| t.is_numeric() || t.is_null();
            if !given.iter().all(number) {
                return wrong(format!("{name} is of numbers, not of {of}"));
            }
            given[1] = DataType::Float64;
            DataType::Float64
        }
        _ => given[0].clone(),
    };
    Some(Ok((given, result)))
}

/// The function and the one argument of a call, whose arguments are written over what the engine
/// sees; `None` if it is none of these functions.
pub(crate) fn call(
    function: AggregateFunction,
    params: &AggregateFunctionParams,
    arguments: &[Expr],
) -> Option<Result<(AggregateFunction, Expr)>> {
    use AggregateFunction::*;
    let form = form(function)?;
    let name = form.split('(').next().unwrap_or_default();
    let refuse = |what: &str, help: &str| {
        Some(Err(SqlError::unsupported(format!("{what} {name} does not run")).help(help)))
    };
    if params.distinct {
        return refuse("DISTINCT inside", "GROUP BY the argument first, in a query inside FROM");
    }
    if !params.order_by.is_empty() {
        let help = "leave it out: records are in the order of event time; \
                    MIN_BY(x, y) and MAX_BY(x, y) go by another";
        return refuse("ORDER BY inside", help);
    }
    let nulls = params.null_treatment.map(|nulls| nulls == NullTreatment::RespectNulls);
    let function = match (function, nulls) {
        (First { nulls }, given) => First { nulls: given.unwrap_or(nulls) },
        (Last { nulls }, given) => Last { nulls: given.unwrap_or(nulls) },
        (ArrayAgg { nulls }, given) => ArrayAgg { nulls: given.unwrap_or(nulls) },
        (_, Some(_)) => return refuse("the treatment of NULLs with", "leave it out"),
        (function, None) => function,
    };
    Some(match (function, arguments) {
        (MinBy | MaxBy, [x, y]) => Ok((function, row_of(vec![y.clone(), x.clone()]))),
        (ListAgg { .. }, [x, separator]) => {
            Ok((ListAgg { separated: true }, row_of(vec![x.clone(), separator.clone()])))
        }
        (ApproxPercentile(_), [x, share]) => {
            share_of(share).map(|share| (ApproxPercentile(share), x.clone())).ok_or_else(|| {
                SqlError::types("the second argument of APPROX_PERCENTILE is a number from 0 to 1")
                    .help("write for example APPROX_PERCENTILE(x, 0.95)")
            })
        }
        (_, [x]) => Ok((function, x.clone())),
        _ => Err(SqlError::internal(format!("{name} with other arguments"))),
    })
}

fn share_of(expr: &Expr) -> Option<Share> {
    match expr {
        Expr::Cast(Cast { expr, .. }) => share_of(expr),
        Expr::Alias(alias) => share_of(&alias.expr),
        Expr::Literal(value, _) => match value.cast_to(&DataType::Float64).ok()? {
            ScalarValue::Float64(Some(share)) => Share::new(share),
            _ => None,
        },
        _ => None,
    }
}

/// A call as SQL text; `None` if it is none of these functions.
pub(crate) fn text(function: AggregateFunction, argument: Option<&Expr>) -> Option<String> {
    use AggregateFunction::*;
    let name = form(function)?.split('(').next()?;
    let argument = argument?;
    let of = |expr: &Expr| sql_text(expr);
    let fields = row_fields(argument);
    Some(match (function, fields) {
        (MinBy | MaxBy, Some([y, x])) => format!("{name}({}, {})", of(x), of(y)),
        (ListAgg { separated: true }, Some([x, separator])) => {
            format!("{name}({}, {})", of(x), of(separator))
        }
        (ApproxPercentile(share), _) => format!("{name}({}, {})", of(argument), share.get()),
        (First { nulls: true } | Last { nulls: true }, _) => {
            format!("{name}({}) RESPECT NULLS", of(argument))
        }
        (ArrayAgg { nulls: false }, _) => format!("{name}({}) IGNORE NULLS", of(argument)),
        _ => format!("{name}({})", of(argument)),
    })
}
