//! TIMESTAMP_LTZ is an instant. Where an expression asks for its date or its time of day, that is
//! the local time of the session's zone (setting `time_zone`).

use std::any::Any;

use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_expr::expr::ScalarFunction;
use millstream_contract::zone::Zone;

use super::date_ceil::CEIL_TIME;
use super::time_units::{TimeStep, time_step};
use super::window::is_of_window;
use crate::expr::udf::{call_of, called, first_array, result_of};
use crate::syntax::prelude::*;
use crate::syntax::types::UTC;

/// Functions that look at the parts of a time.
const PARTS: [&str; 5] = ["date_part", "datediff", "to_char", "to_date", IN_SOME_WINDOW];
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

/// The session's time zone, if it is not UTC.
pub(super) fn zone_of(config: &ConfigOptions) -> Option<&Zone> {
    config.extensions.get::<SessionZone>().map(|SessionZone(zone)| zone)
}

/// Writes `expr`, which is over `schema`, with local times where it looks at the parts of instants,
/// or at their windows, which divide local time; and with instants where a time of a clock meets an
/// instant, or is counted from 1970.
pub(super) fn in_local_time(
    expr: Expr,
    schema: &DFSchema,
    config: &ConfigOptions,
) -> DfResult<Expr> {
    let Some(zone) = zone_of(config) else { return Ok(expr) };
    let conversion = Conversion { zone, schema };
    Ok(expr.changed_up(|e| conversion.of(e))?.data)
}

/// Conversions of operands between instants and local times.
struct Conversion<'a> {
    zone: &'a Zone,
    schema: &'a DFSchema,
}

impl Conversion<'_> {
    /// An expression with converted operands.
    fn of(&self, mut e: Expr) -> DfResult<Transformed<Expr>> {
        let changed = match &mut e {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                let from = expr.get_type(self.schema)?;
                match (unit_of_instant(&from), unit_of_instant(field.data_type())) {
                    (Some(_), None) if has_parts(field.data_type()) => self.local(expr)?,
                    (None, Some(_)) if from != DataType::Utf8 => self.instant(expr)?,
                    _ => false,
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
                match (self.is_instant(left), self.is_instant(right)) {
                    (true, false) => self.instant(right)?,
                    (false, true) => self.instant(left)?,
                    _ => false,
                }
            }
            Expr::ScalarFunction(call) if TIMES.contains(&call.func.name()) => {
                let changed = self.all(&mut call.args, Self::local)?;
                return Ok(match changed {
                    true => Transformed::yes(self.call(LocalResult::Instant, e)),
                    false => Transformed::no(e),
                });
            }
            Expr::ScalarFunction(call) => self.arguments(call)?,
            _ => false,
        };
        Ok(if changed { Transformed::yes(e) } else { Transformed::no(e) })
    }

    /// Converts the arguments of a function that gives no time.
    fn arguments(&self, call: &mut ScalarFunction) -> DfResult<bool> {
        let first = || match call.args.first() {
            Some(Expr::Literal(value, _)) => value.try_as_str().flatten().unwrap_or_default(),
            _ => "",
        };
        let meets_instant = || call.args.iter().any(|e| self.is_instant(e));
        let by_instants = match call.func.name() {
            "to_unixtime" => call.args.len() == 1,
            "date_part" => first().trim_matches(['\'', '"']).eq_ignore_ascii_case("epoch"),
            "timestampdiff" if matches!(time_step(first()), Some(TimeStep::Nanos(_))) => {
                meets_instant()
            }
            "timestampdiff" => false,
            name if PARTS.contains(&name) || is_of_window(&call.func) => false,
            _ => return Ok(false),
        };
        match by_instants {
            true => self.all(times_of(&mut call.args), Self::instant),
            false => self.all(&mut call.args, Self::local),
        }
    }

    fn all(
        &self,
        args: &mut [Expr],
        convert: impl Fn(&Self, &mut Expr) -> DfResult<bool>,
    ) -> DfResult<bool> {
        args.iter_mut().try_fold(false, |changed, e| Ok(convert(self, e)? || changed))
    }

    fn is_instant(&self, e: &Expr) -> bool {
        e.get_type(self.schema).is_ok_and(|t| unit_of_instant(&t).is_some())
    }

    fn call(&self, gives: LocalResult, of: Expr) -> Expr {
        call_of(Zoned { zone: self.zone.clone(), gives }, vec![of])
    }

    /// Makes the local time of an instant.
    fn local(&self, e: &mut Expr) -> DfResult<bool> {
        let changes = self.is_instant(e);
        if changes {
            *e = self.call(LocalResult::Local, std::mem::take(e));
        }
        Ok(changes)
    }

    /// Makes the instant of a time of a clock, of a date, or of a text.
    fn instant(&self, e: &mut Expr) -> DfResult<bool> {
        let unit = match e.get_type(self.schema)? {
            DataType::Timestamp(unit, None) => unit,
            DataType::Date32 | DataType::Utf8 => TimeUnit::Millisecond,
            _ => return Ok(false),
        };
        let time = std::mem::take(e).cast_to(&DataType::Timestamp(unit, None), self.schema)?;
        *e = self.call(LocalResult::Instant, time);
        Ok(true)
    }
}

/// The arguments without the part or the unit that comes before them.
fn times_of(args: &mut [Expr]) -> &mut [Expr] {
    let skipped = usize::from(args.len() > 1);
    &mut args[skipped..]
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
enum LocalResult {
    /// TIMESTAMP of a TIMESTAMP_LTZ.
    Local,
    /// The other way: of times that come twice the first.
    Instant,
}

/// A conversion between instants and local times.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Zoned {
    zone: Zone,
    gives: LocalResult,
}

impl ScalarUDFImpl for Zoned {
    fn name(&self) -> &str {
        match self.gives {
            LocalResult::Local => "local_time",
            LocalResult::Instant => "instant",
        }
    }

    called!(@ ONE);

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        let [DataType::Timestamp(unit, _)] = arguments else {
            return exec_err!("{} takes a time", self.name());
        };
        Ok(match self.gives {
            LocalResult::Local => DataType::Timestamp(*unit, None),
            LocalResult::Instant => DataType::Timestamp(*unit, Some(UTC.into())),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let times = first_array(&args)?;
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
                LocalResult::Local => clock.local(us),
                LocalResult::Instant => clock.instant(us),
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
