//! TIMESTAMP_LTZ is an instant. Where an expression asks for its date or its time of day, that is
//! the local time of the session's zone (setting `time_zone`).

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, Result as DfResult, exec_err};
use datafusion_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TryCast, Volatility,
};
use millstream_contract::zone::Zone;

use super::date_ceil::CEIL_TIME;
use super::window::is_of_window;
use crate::expr::udf::{result_of, rows_of};
use crate::syntax::types::UTC;
use crate::syntax::walk::Nodes;

/// Functions that look at the parts of a time.
const PARTS: [&str; 4] = ["date_part", "to_char", "to_date", IN_SOME_WINDOW];
/// Whether a condition holds for a window of a time. Windows divide local time.
pub(crate) const IN_SOME_WINDOW: &str = "in_some_window";
/// Functions that look at the parts of a time, and give one.
const TIMES: [&str; 3] = ["date_trunc", "date_bin", CEIL_TIME];

/// The session's time zone, among the options of all expressions.
#[derive(Debug, Clone)]
struct SessionZone(Zone);

impl ConfigExtension for SessionZone {
    const PREFIX: &'static str = "millstream";
}

impl ExtensionOptions for SessionZone {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> DfResult<()> {
        exec_err!("'{key}' is set otherwise")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Options with a time zone.
pub(crate) fn with_zone(config: &Arc<ConfigOptions>, zone: Option<&Zone>) -> Arc<ConfigOptions> {
    let Some(zone) = zone else { return config.clone() };
    let mut own = config.as_ref().clone();
    own.extensions.insert(SessionZone(zone.clone()));
    Arc::new(own)
}

/// Writes `expr`, which is over `schema`, with local times where it looks at the parts of instants,
/// or at their windows, which divide local time.
pub(super) fn in_local_time(
    expr: Expr,
    schema: &DFSchema,
    config: &ConfigOptions,
) -> DfResult<Expr> {
    let Some(SessionZone(zone)) = config.extensions.get::<SessionZone>() else { return Ok(expr) };
    let zoned = |gives| Zoned { zone: zone.clone(), gives, signature: any() };
    let local = |e: Expr| Arc::new(ScalarUDF::from(zoned(Gives::Local))).call(vec![e]);
    let instant = |e: Expr| Arc::new(ScalarUDF::from(zoned(Gives::Instant))).call(vec![e]);
    let is_instant = |e: &Expr| e.get_type(schema).is_ok_and(|t| unit_of_instant(&t).is_some());
    let written = expr.changed_up(|mut e| match &mut e {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            let from = expr.get_type(schema)?;
            match (unit_of_instant(&from), unit_of_instant(field.data_type())) {
                (Some(_), None) if has_parts(field.data_type()) => {
                    **expr = local(std::mem::take(expr));
                    Ok(Transformed::yes(e))
                }
                (None, Some(unit))
                    if matches!(from, DataType::Timestamp(..) | DataType::Date32) =>
                {
                    let time = DataType::Timestamp(unit, None);
                    let time = Cast::new(Box::new(std::mem::take(expr)), time);
                    Ok(Transformed::yes(instant(Expr::Cast(time))))
                }
                _ => Ok(Transformed::no(e)),
            }
        }
        Expr::ScalarFunction(call) => {
            let gives_time = TIMES.contains(&call.func.name());
            if !gives_time && !PARTS.contains(&call.func.name()) && !is_of_window(&call.func) {
                return Ok(Transformed::no(e));
            }
            let mut changed = false;
            for argument in &mut call.args {
                if is_instant(argument) {
                    *argument = local(std::mem::take(argument));
                    changed = true;
                }
            }
            Ok(match (changed, gives_time) {
                (false, _) => Transformed::no(e),
                (true, false) => Transformed::yes(e),
                (true, true) => Transformed::yes(instant(e)),
            })
        }
        _ => Ok(Transformed::no(e)),
    })?;
    Ok(written.data)
}

fn any() -> Signature {
    Signature::any(1, Volatility::Immutable)
}

fn unit_of_instant(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Timestamp(unit, Some(_)) => Some(*unit),
        _ => None,
    }
}

/// Whether values of this type show a date or a time of day.
fn has_parts(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Timestamp(_, None) | Date32 | Date64 | Time32(_) | Time64(_) | Utf8)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gives {
    /// TIMESTAMP of a TIMESTAMP_LTZ.
    Local,
    /// The other way: of times that come twice the first.
    Instant,
}

/// A conversion between instants and local times.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Zoned {
    zone: Zone,
    gives: Gives,
    signature: Signature,
}

impl ScalarUDFImpl for Zoned {
    fn name(&self) -> &str {
        match self.gives {
            Gives::Local => "local_time",
            Gives::Instant => "instant",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        let [DataType::Timestamp(unit, _)] = arguments else {
            return exec_err!("{} takes a time", self.name());
        };
        Ok(match self.gives {
            Gives::Local => DataType::Timestamp(*unit, None),
            Gives::Instant => DataType::Timestamp(*unit, Some(UTC.into())),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [times] = &args.args[..] else { return exec_err!("{} takes a time", self.name()) };
        let times = times.to_array(rows_of(&args))?;
        let to = self.return_type(&[times.data_type().clone()])?;
        result_of(&args, self.convert(&times, &to)?)
    }
}

impl Zoned {
    fn convert(&self, times: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
        // What a tick is, and how many there are in a second.
        let (tick_us, ticks): (i128, i128) = match times.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => (1_000_000, 1),
            DataType::Timestamp(TimeUnit::Millisecond, _) => (1_000, 1_000),
            DataType::Timestamp(TimeUnit::Microsecond, _) => (1, 1_000_000),
            _ => (0, 1_000_000_000),
        };
        let mut clock = self.zone.clock();
        let values = cast(times, &DataType::Int64)?;
        let mut convert = |value: i64| -> i64 {
            let us = match tick_us {
                0 => i128::from(value).div_euclid(1_000),
                tick_us => i128::from(value) * tick_us,
            };
            let us = us.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
            let other = match self.gives {
                Gives::Local => clock.local(us),
                Gives::Instant => clock.instant(us),
            };
            // Offsets are of whole seconds.
            let seconds = (i128::from(other) - i128::from(us)) / 1_000_000;
            let converted = i128::from(value) + seconds * ticks;
            converted.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
        };
        let values = values.as_primitive::<Int64Type>();
        let converted: Int64Array = values.iter().map(|value| value.map(&mut convert)).collect();
        Ok(cast(&converted, to)?)
    }
}
