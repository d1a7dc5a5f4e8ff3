//! The time at which a query started, as in Flink: `NOW()` and `CURRENT_TIMESTAMP` are instants;
//! `LOCALTIMESTAMP`, `CURRENT_DATE`, `CURRENT_TIME` and `LOCALTIME` are the view of a clock in the
//! session's zone. DataFusion's are of UTC, in nanoseconds, which reach only to 2262.

use chrono::{DateTime, Utc};

use super::local::zone_of;
use crate::expr::udf::called;
use crate::syntax::prelude::*;
use crate::syntax::types::UTC;

/// Microseconds of a second, and of a day.
const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gives {
    /// `TIMESTAMP_LTZ(3)`.
    Instant,
    /// `TIMESTAMP(3)`.
    Local,
    /// `DATE`.
    Date,
    /// `TIME(0)`.
    Time,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Current {
    name: &'static str,
    aliases: Vec<String>,
    gives: Gives,
}

/// Functions and aliases.
pub(super) fn functions() -> [ScalarUDF; 4] {
    let function = |name, alias: &[&str], gives| {
        let aliases = alias.iter().map(ToString::to_string).collect();
        ScalarUDF::from(Current { name, aliases, gives })
    };
    [
        function("now", &["current_timestamp"], Gives::Instant),
        function("localtimestamp", &[], Gives::Local),
        function("current_date", &["today"], Gives::Date),
        function("current_time", &["localtime"], Gives::Time),
    ]
}

impl Current {
    /// The value at a time, and the microseconds that a clock in the session's zone shows then.
    fn value(&self, now: DateTime<Utc>, local_us: i64) -> ScalarValue {
        match self.gives {
            Gives::Instant => {
                ScalarValue::TimestampMillisecond(Some(now.timestamp_millis()), Some(UTC.into()))
            }
            Gives::Local => {
                ScalarValue::TimestampMillisecond(Some(local_us.div_euclid(1_000)), None)
            }
            Gives::Date => ScalarValue::Date32(i32::try_from(local_us.div_euclid(DAY_US)).ok()),
            Gives::Time => {
                let seconds = local_us.rem_euclid(DAY_US) / SECOND_US;
                ScalarValue::Time32Second(i32::try_from(seconds).ok())
            }
        }
    }
}

impl ScalarUDFImpl for Current {
    called!(.name, NONE);

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(match self.gives {
            Gives::Instant => DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into())),
            Gives::Local => DataType::Timestamp(TimeUnit::Millisecond, None),
            Gives::Date => DataType::Date32,
            Gives::Time => DataType::Time32(TimeUnit::Second),
        })
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> DfResult<FieldRef> {
        Ok(Field::new(self.name(), self.return_type(&[])?, false).into())
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        let Some(now) = context.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let us = now.timestamp_micros();
        let local_us = zone_of(context.config_options()).map_or(us, |zone| zone.clock().local(us));
        let value = self.value(now, local_us);
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        exec_err!("{} is a constant of a query", self.name())
    }
}
