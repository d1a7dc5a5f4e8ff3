//! Aggregates whose value has any size, or depends on the order of records: their names, arguments
//! and results.

use millstream_contract::plan::{AggregateFunction, Share};

use crate::syntax::prelude::*;
use crate::syntax::type_grammar::ELEMENT;

/// Names of calls, with their functions before arguments are looked at.
pub(crate) const COLLECTING: [(&str, AggregateFunction); 10] = {
    use AggregateFunction::*;
    [
        ("first_value", First { nulls: false }),
        ("last_value", Last { nulls: false }),
        ("min_by", MinBy),
        ("max_by", MaxBy),
        ("array_agg", ArrayAgg { nulls: true, distinct: false }),
        ("listagg", ListAgg { separated: false, distinct: false }),
        ("string_agg", ListAgg { separated: false, distinct: false }),
        ("approx_count_distinct", ApproxCountDistinct),
        ("approx_percentile", ApproxPercentile(Share::HALF)),
        ("approx_top_k", ApproxTopK(1)),
    ]
};

/// Form of a call of the function in SQL; `None` if `function` does not collect.
pub(crate) fn form(function: AggregateFunction) -> Option<&'static str> {
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
        ApproxTopK(_) => "APPROX_TOP_K(x, 10)",
        _ => return None,
    })
}

/// Advice for arguments of types that the call does not accept.
pub(crate) fn help(function: AggregateFunction) -> Option<&'static str> {
    use AggregateFunction::*;
    match function {
        MinBy | MaxBy => Some("compare by a number, a string or a time: MIN_BY(x, y)"),
        ListAgg { .. } => Some("it joins strings: LISTAGG(CAST(x AS STRING), ', ')"),
        ApproxTopK(_) => Some("say how many, from 1 to 1000: APPROX_TOP_K(x, 10)"),
        ApproxPercentile(_) => Some("it is of numbers: APPROX_PERCENTILE(x, 0.95)"),
        function => form(function),
    }
}

/// How many arguments such a call takes, and how it is written; `None` for other functions.
pub(crate) fn arguments(
    function: AggregateFunction,
) -> Option<(std::ops::RangeInclusive<usize>, &'static str)> {
    use AggregateFunction::*;
    let counts = match function {
        MinBy | MaxBy | ApproxPercentile(_) | ApproxTopK(_) => 2..=2,
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
    let help = help(function).unwrap_or(form);
    let wrong = |message: String| Some(Err(SqlError::types(message).help(help)));
    let name = form.split('(').next().unwrap_or_default();
    if !counts.contains(&types.len()) {
        return wrong(format!("{name} does not take {} arguments", types.len()));
    }
    let mut given = types.to_vec();
    let given_names: Vec<String> = given.iter().map(sql_type_name).collect();
    let other = format!("there is no {name} of {}", given_names.join(", "));
    use AggregateFunction::*;
    let result = match function {
        ArrayAgg { .. } => DataType::List(Arc::new(Field::new(ELEMENT, given[0].clone(), true))),
        MinBy | MaxBy if !is_ordered(&given[1]) => return wrong(other),
        ListAgg { .. } => {
            if given.iter().any(|t| !matches!(t, DataType::Utf8 | DataType::Null)) {
                return wrong(other);
            }
            given.fill(DataType::Utf8);
            DataType::Utf8
        }
        ApproxCountDistinct => DataType::Int64,
        ApproxPercentile(_) => {
            let number = |t: &DataType| t.is_numeric() || t.is_null();
            if !given.iter().all(number) {
                return wrong(other);
            }
            given[1] = DataType::Float64;
            DataType::Float64
        }
        ApproxTopK(_) if !given[1].is_integer() => return wrong(other),
        ApproxTopK(_) => {
            given[1] = DataType::Int64;
            let fields = [
                Field::new("value", given[0].clone(), true),
                Field::new("count", DataType::Int64, false),
            ];
            let row = DataType::Struct(fields.into_iter().collect());
            DataType::List(Arc::new(Field::new(ELEMENT, row, true)))
        }
        _ => given[0].clone(),
    };
    Some(Ok((given, result)))
}

/// Whether values of a type are less or greater than others.
pub(crate) fn is_ordered(t: &DataType) -> bool {
    use DataType::*;
    t.is_integer()
        || matches!(t, Float32 | Float64 | Decimal128(..) | Boolean | Null | Utf8 | Binary)
        || matches!(t, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_))
}
