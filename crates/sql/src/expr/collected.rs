//! Calls of aggregates whose value has any size, or depends on the order of records: how they
//! become calls of the engine's, and their text. Several arguments become one, a row.

use datafusion_common::ExprSchema;
use datafusion_expr::expr::{AggregateFunctionParams, NullTreatment};
use millstream_contract::plan::{AggregateFunction, Best, Ranking, Share};

use crate::expr::scalars::{row_fields, row_of};
use crate::expr::{collecting::form, text::sql_text};
use crate::syntax::prelude::*;

/// A ranking whose limit is not known yet.
pub(crate) const UNBOUNDED: u32 = u32::MAX;
/// So many values `APPROX_TOP_K` gives at the most.
const TOP_MOST: u32 = 1000;

/// A ranking's function.
pub(crate) fn name_of(ranking: Ranking) -> &'static str {
    match ranking {
        Ranking::RowNumber => "ROW_NUMBER",
        Ranking::Rank => "RANK",
        Ranking::DenseRank => "DENSE_RANK",
        Ranking::All => "RECORDS",
    }
}

/// The function and the single engine argument of a call; the call's `arguments` refer to the
/// engine's columns. `None` if `function` does not collect.
pub(crate) fn call(
    function: AggregateFunction,
    params: &AggregateFunctionParams,
    arguments: &[Expr],
) -> Option<Result<(AggregateFunction, Expr)>> {
    use AggregateFunction::*;
    let form = form(function)?;
    let name = form.split('(').next().unwrap_or_default();
    let refuse = |what: &str, help: &str| {
        Some(Err(SqlError::unsupported(format!("{what} {name} does not run here")).help(help)))
    };
    let distinct = params.distinct;
    if distinct && !matches!(function, ArrayAgg { .. } | ListAgg { .. }) {
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
        (ArrayAgg { nulls, .. }, given) => ArrayAgg { nulls: given.unwrap_or(nulls), distinct },
        (_, Some(_)) => return refuse("the treatment of NULLs with", "leave it out"),
        (ListAgg { separated, .. }, None) => ListAgg { separated, distinct },
        (function, None) => function,
    };
    Some(match (function, arguments) {
        (MinBy | MaxBy, [x, y]) => Ok((function, row_of(vec![y.clone(), x.clone()]))),
        (ListAgg { .. }, [x, separator]) => {
            let row = row_of(vec![x.clone(), separator.clone()]);
            Ok((ListAgg { separated: true, distinct }, row))
        }
        (ApproxPercentile(_), [x, share]) => {
            share_of(share).map(|share| (ApproxPercentile(share), x.clone())).ok_or_else(|| {
                SqlError::types("the second argument of APPROX_PERCENTILE is a number from 0 to 1")
                    .help("write for example APPROX_PERCENTILE(x, 0.95)")
            })
        }
        (ApproxTopK(_), [x, most]) => {
            most_of(most).map(|most| (ApproxTopK(most), x.clone())).ok_or_else(|| {
                let message =
                    format!("the second argument of APPROX_TOP_K is a number from 1 to {TOP_MOST}");
                SqlError::types(message).help("write for example APPROX_TOP_K(x, 10)")
            })
        }
        (_, [x]) => Ok((function, x.clone())),
        _ => Err(SqlError::internal(format!("{name} with other arguments"))),
    })
}

/// Checks that rows can be grouped by the DISTINCT arguments of an aggregate.
pub(crate) fn check_distinct(
    params: &AggregateFunctionParams,
    name: &str,
    schema: &dyn ExprSchema,
) -> Result<()> {
    for argument in params.args.iter().filter(|_| params.distinct) {
        let data_type = argument.get_type(schema)?;
        if is_nested(&data_type) {
            let of = sql_type_name(&data_type);
            let message = format!("DISTINCT inside {name} does not go with values of type {of}");
            return Err(SqlError::unsupported(message)
                .help("GROUP BY the parts of the value first, in a query inside FROM"));
        }
    }
    Ok(())
}

fn share_of(expr: &Expr) -> Option<Share> {
    match literal(expr)?.cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(Some(share)) => Share::new(share),
        _ => None,
    }
}

fn most_of(expr: &Expr) -> Option<u32> {
    match literal(expr)?.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(Some(most)) => u32::try_from(most).ok(),
        _ => None,
    }
    .filter(|most| (1..=TOP_MOST).contains(most))
}

/// The literal that an expression is.
fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Cast(Cast { expr, .. }) => literal(expr),
        Expr::Alias(alias) => literal(&alias.expr),
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// A call as SQL text; `None` if `function` does not collect.
pub(crate) fn text(function: AggregateFunction, argument: Option<&Expr>) -> Option<String> {
    use AggregateFunction::*;
    if let Best(best) = function {
        return Some(ranking_text(best, argument));
    }
    let name = form(function)?.split('(').next()?;
    let argument = argument?;
    let of = |expr: &Expr| sql_text(expr);
    let fields = row_fields(argument);
    let is_distinct =
        matches!(function, ArrayAgg { distinct: true, .. } | ListAgg { distinct: true, .. });
    let start = if is_distinct { format!("{name}(DISTINCT ") } else { format!("{name}(") };
    Some(match (function, fields) {
        (MinBy | MaxBy, Some([y, x])) => format!("{start}{}, {})", of(x), of(y)),
        (ListAgg { separated: true, .. }, Some([x, separator])) => {
            format!("{start}{}, {})", of(x), of(separator))
        }
        (ApproxPercentile(share), _) => format!("{start}{}, {})", of(argument), share.get()),
        (ApproxTopK(most), _) => format!("{start}{}, {most})", of(argument)),
        (First { nulls: true } | Last { nulls: true }, _) => {
            format!("{start}{}) RESPECT NULLS", of(argument))
        }
        (ArrayAgg { nulls: false, .. }, _) => format!("{start}{}) IGNORE NULLS", of(argument)),
        _ => format!("{start}{})", of(argument)),
    })
}

/// A ranking as SQL text.
fn ranking_text(best: Best, argument: Option<&Expr>) -> String {
    let keys = argument.and_then(row_fields).unwrap_or_default();
    if best.ranking == Ranking::All {
        let columns: Vec<String> = keys.iter().map(sql_text).collect();
        return format!("RECORDS({})", columns.join(", "));
    }
    let key = |(at, key): (usize, &Expr)| {
        let (descending, nulls_first) = best.directions.of(at);
        let direction = if descending { " DESC" } else { "" };
        let nulls = match (descending, nulls_first) {
            (true, true) => " NULLS FIRST",
            (false, false) => " NULLS LAST",
            _ => "",
        };
        format!("{}{direction}{nulls}", sql_text(key))
    };
    let keys: Vec<String> = keys.iter().take(best.keys.into()).enumerate().map(key).collect();
    let bound = match best.limit {
        UNBOUNDED => String::new(),
        limit => format!(" <= {limit}"),
    };
    format!("{}() OVER (ORDER BY {}){bound}", name_of(best.ranking), keys.join(", "))
}
