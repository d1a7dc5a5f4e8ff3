//! The aggregate functions as DataFusion's planner sees them: names and types, without
//! implementation.
//!
//! DataFusion's own functions would first cast their arguments (`AVG` of a `BIGINT` to `DOUBLE`),
//! which costs time and digits. The engine's take every type as it is.

use arrow::datatypes::DECIMAL128_MAX_PRECISION;
use datafusion_common::not_impl_err;
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};
use datafusion_expr::{Accumulator, AggregateUDFImpl};
use millstream_contract::plan::{self, AggregateFunction, Moment};

use crate::expr::collecting::{self, COLLECTING, is_ordered};
use crate::expr::udf::called;
use crate::syntax::prelude::*;

/// Arguments that the engine's aggregate receives, as a form of the arguments in SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Takes {
    /// The argument, of any type with a result type.
    Any,
    /// The argument, a boolean.
    Boolean,
    /// Its argument as a `DOUBLE`.
    Double,
    /// Of two arguments `y` and `x`, as `DOUBLE`s, these, where neither is NULL.
    Pair(Pair),
}

/// Which of two arguments an aggregate is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pair {
    Y,
    X,
    Both,
}

pub(crate) type Named = (&'static str, AggregateFunction, Takes);

/// Aggregates of a value of fixed size, by name; a function may have several names.
const AGGREGATES: [Named; 29] = {
    use AggregateFunction::{Avg, Bits, Count, Max, Min, Moment as Of, Sum};
    use Moment::*;
    const PAIR: Takes = Takes::Pair(Pair::Both);
    const OF_X: Takes = Takes::Pair(Pair::X);
    const OF_Y: Takes = Takes::Pair(Pair::Y);
    [
        ("count", Count, Takes::Any),
        ("sum", Sum, Takes::Any),
        ("min", Min, Takes::Any),
        ("max", Max, Takes::Any),
        ("avg", Avg, Takes::Any),
        // Of booleans FALSE is the least.
        ("bool_and", Min, Takes::Boolean),
        ("every", Min, Takes::Boolean),
        ("bool_or", Max, Takes::Boolean),
        ("bit_and", Bits(plan::Bits::And), Takes::Any),
        ("bit_or", Bits(plan::Bits::Or), Takes::Any),
        ("bit_xor", Bits(plan::Bits::Xor), Takes::Any),
        ("var_pop", Of(VarPop), Takes::Double),
        ("var_samp", Of(VarSamp), Takes::Double),
        ("variance", Of(VarSamp), Takes::Double),
        ("stddev_pop", Of(StddevPop), Takes::Double),
        ("stddev_samp", Of(StddevSamp), Takes::Double),
        ("stddev", Of(StddevSamp), Takes::Double),
        ("covar_pop", Of(CovarPop), PAIR),
        ("covar_samp", Of(CovarSamp), PAIR),
        ("corr", Of(Corr), PAIR),
        ("regr_count", Count, OF_X),
        ("regr_avgx", Avg, OF_X),
        ("regr_avgy", Avg, OF_Y),
        ("regr_sxx", Of(SumOfSquares), OF_X),
        ("regr_syy", Of(SumOfSquares), OF_Y),
        ("regr_sxy", Of(SumOfProducts), PAIR),
        ("regr_slope", Of(Slope), PAIR),
        ("regr_intercept", Of(Intercept), PAIR),
        ("regr_r2", Of(R2), PAIR),
    ]
};

/// The function of that name.
pub(crate) fn aggregate_named(name: &str) -> Option<(AggregateFunction, Takes)> {
    all_aggregates().find(|(n, ..)| *n == name).map(|(_, function, takes)| (function, takes))
}

/// SQL name of the engine's function.
pub(crate) fn sql_name(function: AggregateFunction) -> String {
    let found = AGGREGATES.iter().find(|(_, known, _)| *known == function);
    found.map_or(String::new(), |(name, ..)| name.to_uppercase())
}

/// All functions, by name.
pub(crate) fn all_aggregates() -> impl Iterator<Item = Named> {
    let collecting = COLLECTING.into_iter().map(|(name, function)| (name, function, Takes::Any));
    AGGREGATES.into_iter().chain(collecting)
}

/// How many arguments an aggregate of this name has; `None`: any number from 1.
pub(crate) fn arguments_of(name: &str) -> Option<usize> {
    match aggregate_named(name) {
        Some((AggregateFunction::Count, Takes::Any)) => None,
        Some((_, Takes::Pair(_))) => Some(2),
        _ => Some(1),
    }
}

impl Takes {
    /// The arguments of the engine's function. Each is NULL where any is.
    pub(crate) fn given(self, arguments: Vec<Expr>) -> Vec<Expr> {
        let (Takes::Pair(pair), [y, x]) = (self, &arguments[..]) else { return arguments };
        let if_given = |other: &Expr, value: &Expr| {
            let is_given = Box::new(other.clone().is_not_null());
            Expr::Case(Case::new(None, vec![(is_given, Box::new(value.clone()))], None))
        };
        match pair {
            Pair::X => vec![if_given(y, x)],
            Pair::Y => vec![if_given(x, y)],
            Pair::Both => vec![if_given(x, y), if_given(y, x)],
        }
    }
}

/// Whether an aggregate of that name tells of grouping sets ([`crate::stages::sets`]).
pub(crate) fn is_grouping(name: &str) -> bool {
    GROUPING.contains(&name)
}

/// `GROUPING(x, …)` has a bit for each key: whether the row's grouping set leaves it out.
pub(crate) const GROUPING: [&str; 2] = ["grouping", "grouping_id"];

/// [`GROUPING`] as DataFusion's planner sees it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupingFunction {
    pub(crate) name: &'static str,
}

impl AggregateUDFImpl for GroupingFunction {
    called!(.name, ANY, DataType::Int64);

    fn is_nullable(&self) -> bool {
        false
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        not_impl_err!("a plan has none")
    }
}

/// Whether it makes a difference to a function that values come again.
pub(crate) fn counts_repeats(function: AggregateFunction) -> bool {
    use AggregateFunction::*;
    !matches!(
        function,
        Min | Max
            | Bits(plan::Bits::And | plan::Bits::Or)
            | First { .. }
            | Last { .. }
            | MinBy
            | MaxBy
            | ApproxCountDistinct
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aggregate {
    name: &'static str,
    function: AggregateFunction,
    takes: Takes,
}

impl Aggregate {
    pub(crate) fn new((name, function, takes): Named) -> Aggregate {
        Aggregate { name, function, takes }
    }

    /// The type that an argument is cast to; `None` if there is no such aggregate.
    fn taken(&self, argument: &DataType) -> Option<DataType> {
        use DataType::*;
        let argument = as_taken(argument);
        let is_null = argument == Null;
        match (self.takes, self.function) {
            (Takes::Boolean, _) => (is_null || argument == Boolean).then_some(Boolean),
            (Takes::Double | Takes::Pair(_), _) => {
                (is_null || argument.is_numeric()).then_some(Float64)
            }
            (Takes::Any, AggregateFunction::Bits(_)) if is_null => Some(Int64),
            (Takes::Any, function) => result_type(function, &argument).map(|_| argument),
        }
    }
}

/// The result type of `function` over an argument; `None` if there is no such aggregate.
fn result_type(function: AggregateFunction, argument: &DataType) -> Option<DataType> {
    use DataType::*;
    Some(match (function, argument) {
        (AggregateFunction::Count, _) => Int64,
        (AggregateFunction::Sum, Float32 | Float64) => Float64,
        (AggregateFunction::Sum, t) if t.is_unsigned_integer() => UInt64,
        (AggregateFunction::Sum, t) if t.is_signed_integer() => Int64,
        (AggregateFunction::Sum, Null) => Int64,
        (AggregateFunction::Sum, Decimal128(_, s)) => Decimal128(DECIMAL128_MAX_PRECISION, *s),
        (AggregateFunction::Avg, Null) => Float64,
        (AggregateFunction::Avg, t) if t.is_integer() || t.is_floating() => Float64,
        (AggregateFunction::Avg, Decimal128(_, s)) => {
            Decimal128(DECIMAL128_MAX_PRECISION, MEAN_SCALE.max(*s))
        }
        (AggregateFunction::Min | AggregateFunction::Max, t) if is_ordered(t) => t.clone(),
        (AggregateFunction::Bits(_), t) if t.is_integer() => t.clone(),
        (AggregateFunction::Moment(_), Float64) => Float64,
        _ => return None,
    })
}

/// Digits after the point that the mean of decimals has at least, as in Flink.
const MEAN_SCALE: i8 = 6;

/// Advice for an argument of an SQL type that the aggregate does not accept.
pub(crate) fn other_argument(
    function: AggregateFunction,
    takes: Takes,
    sql_type: &str,
) -> &'static str {
    match (takes, function) {
        (Takes::Boolean, _) => "write a condition, for example x > 0",
        (_, AggregateFunction::Bits(_)) => "cast the argument, for example CAST(x AS BIGINT)",
        _ if sql_type == "INTERVAL" => "aggregate its seconds: EXTRACT(EPOCH FROM x)",
        _ => "cast the argument, for example CAST(x AS DOUBLE)",
    }
}

/// Whether a function counts: it gives 0 for no rows, and never NULL.
pub(crate) fn counts(function: AggregateFunction) -> bool {
    matches!(function, AggregateFunction::Count | AggregateFunction::ApproxCountDistinct)
}

/// The type as which values of a type are taken: views and large variants do not reach the engine.
fn as_taken(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Float16 => DataType::Float32,
        DataType::Dictionary(_, value) => (**value).clone(),
        other => other.clone(),
    }
}

impl AggregateUDFImpl for Aggregate {
    called!(.name, CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let name = self.name.to_uppercase();
        let refused = |e: SqlError| Err(e.into());
        let plain: Vec<DataType> = types.iter().map(as_taken).collect();
        if let Some(types) = collecting::types(self.function, &plain) {
            return types.map(|(types, _)| types).or_else(refused);
        }
        let wanted = arguments_of(self.name);
        if types.is_empty() || wanted.is_some_and(|wanted| types.len() != wanted) {
            let (takes, form) = match wanted {
                Some(2) => ("two arguments", "(y, x)"),
                _ => ("one argument", "(x)"),
            };
            let error = format!("{name} takes {takes}, not {}", types.len());
            return refused(SqlError::types(error).help(format!("write {name}{form}")));
        }
        let mut taken = Vec::new();
        for argument in types {
            let Some(argument) = self.taken(argument) else {
                let of = sql_type_name(argument);
                let error = SqlError::types(format!("there is no {name} of {of}"));
                return refused(error.help(other_argument(self.function, self.takes, &of)));
            };
            taken.push(argument);
        }
        Ok(taken)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        let mut types = self.coerce_types(types)?;
        if let Some(Ok((_, result))) = collecting::types(self.function, &types) {
            return Ok(result);
        }
        let argument = types.swap_remove(0);
        Ok(result_type(self.function, &argument).unwrap_or(DataType::Null))
    }

    fn is_nullable(&self) -> bool {
        !counts(self.function)
    }

    /// Functions that refuse the clause have an error message of their own.
    fn supports_null_handling_clause(&self) -> bool {
        collecting::arguments(self.function).is_some()
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        not_impl_err!("aggregates run in the engine")
    }

    fn default_value(&self, data_type: &DataType) -> DfResult<datafusion_common::ScalarValue> {
        if counts(self.function) {
            return Ok(datafusion_common::ScalarValue::Int64(Some(0)));
        }
        datafusion_common::ScalarValue::try_from(data_type)
    }
}

/// `COUNT(*)` and `COUNT()` count the literal 1.
#[derive(Debug)]
pub(crate) struct CountStar;

impl ExprPlanner for CountStar {
    fn plan_aggregate(
        &self,
        mut raw: RawAggregateExpr,
    ) -> DfResult<PlannerResult<RawAggregateExpr>> {
        #[expect(deprecated, reason = "the SQL planner still hands wildcards over in this form")]
        let star = matches!(&raw.args[..], [] | [Expr::Wildcard { .. }]);
        if raw.func.name() == "count" && star {
            raw.args = vec![lit(1i64)];
        }
        Ok(PlannerResult::Original(raw))
    }
}
