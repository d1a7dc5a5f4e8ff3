//! The aggregate functions as DataFusion's planner sees them: names and types, without
//! implementation.
//!
//! DataFusion's own functions would first cast their arguments (`AVG` of a `BIGINT` to `DOUBLE`),
//! which costs time and digits. The engine's take every type as it is.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType};
use datafusion_common::{DataFusionError, Result as DfResult, not_impl_err};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};
use datafusion_expr::{Accumulator, AggregateUDFImpl, Expr, Signature, Volatility, lit};
use millstream_contract::plan::AggregateFunction;

use crate::collecting::{self, COLLECTING, is_ordered};
use crate::error::SqlError;
use crate::types::sql_type_name;

/// All of them by name.
pub(crate) const AGGREGATES: [(&str, AggregateFunction); 5] = [
    ("count", AggregateFunction::Count),
    ("sum", AggregateFunction::Sum),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("avg", AggregateFunction::Avg),
];

/// The function of that name.
pub(crate) fn aggregate_named(name: &str) -> Option<AggregateFunction> {
    all_aggregates().find(|(n, _)| *n == name).map(|(_, function)| function)
}

/// All functions, by name.
pub(crate) fn all_aggregates() -> impl Iterator<Item = (&'static str, AggregateFunction)> {
    AGGREGATES.into_iter().chain(COLLECTING)
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aggregate {
    name: &'static str,
    function: AggregateFunction,
    signature: Signature,
}

impl Aggregate {
    pub(crate) fn new(name: &'static str, function: AggregateFunction) -> Aggregate {
        Aggregate { name, function, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// The result type of `function` over an argument; `None` if there is no such aggregate.
fn result_type(function: AggregateFunction, argument: &DataType) -> Option<DataType> {
    use DataType::*;
    let wider = |p: &u8, more: u8| p.saturating_add(more).min(DECIMAL128_MAX_PRECISION);
    Some(match (function, argument) {
        (AggregateFunction::Count, _) => Int64,
        (AggregateFunction::Sum, Float32 | Float64) => Float64,
        (AggregateFunction::Sum, t) if t.is_unsigned_integer() => UInt64,
        (AggregateFunction::Sum, t) if t.is_signed_integer() => Int64,
        (AggregateFunction::Sum, Null) => Int64,
        (AggregateFunction::Sum, Decimal128(p, s)) => Decimal128(wider(p, 10), *s),
        (AggregateFunction::Avg, Null) => Float64,
        (AggregateFunction::Avg, t) if t.is_integer() || t.is_floating() => Float64,
        (AggregateFunction::Avg, Decimal128(p, s)) => {
            Decimal128(wider(p, 4), mean_scale(*p as i8, *s))
        }
        (AggregateFunction::Min | AggregateFunction::Max, t) if is_ordered(t) => t.clone(),
        _ => return None,
    })
}

/// Digits after the point of the mean of decimals: four more than they have. Where 38 digits do not
/// hold that, as many as leave room for those before the point, but at least six.
fn mean_scale(precision: i8, scale: i8) -> i8 {
    let wanted = scale.saturating_add(4);
    if precision <= DECIMAL128_MAX_SCALE - 4 {
        return wanted;
    }
    let room = DECIMAL128_MAX_SCALE - (precision - scale);
    wanted.min(room.max(6)).max(scale)
}

/// What to aggregate instead of a value of an SQL type that an aggregate does not take.
pub(crate) fn other_argument(sql_type: &str) -> &'static str {
    match sql_type {
        "INTERVAL" => "aggregate its seconds: EXTRACT(EPOCH FROM x)",
        _ => "cast the argument, for example CAST(x AS DOUBLE)",
    }
}

/// Whether a function counts: it gives 0 for nothing, and never NULL.
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
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let name = self.name.to_uppercase();
        let refused = |e: SqlError| Err(DataFusionError::External(Box::new(e)));
        let types: Vec<DataType> = types.iter().map(as_taken).collect();
        if let Some(types) = collecting::types(self.function, &types) {
            return types.map(|(types, _)| types).or_else(refused);
        }
        let [argument] = &types[..] else {
            let error = format!("{name} takes one argument, not {}", types.len());
            return refused(SqlError::types(error).help(format!("write {name}(x)")));
        };
        if result_type(self.function, argument).is_none() {
            let error = format!("there is no {name} of {}", sql_type_name(argument));
            let help = other_argument(&sql_type_name(argument));
            return refused(SqlError::types(error).help(help));
        }
        Ok(vec![argument.clone()])
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

    /// What does not go with it says so itself.
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
