//! `TIMESTAMPDIFF`, `TIMESTAMPADD` and `DATEDIFF`: the difference of two times in a unit, and a
//! time moved by a number of units.

use arrow::array::Date32Array;

use super::calendar::{DAY_NS, add_months, instants, months_between, tick_ns};
use crate::expr::udf::{called, no_such, result_of, rows_of};
use crate::syntax::prelude::*;

/// A unit's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TimeStep {
    /// Nanoseconds.
    Nanos(i64),
    /// Months.
    Months(i64),
}

/// Units of time points, with their lengths.
const UNITS: [(&str, TimeStep); 11] = [
    ("NANOSECOND", TimeStep::Nanos(1)),
    ("MICROSECOND", TimeStep::Nanos(1_000)),
    ("MILLISECOND", TimeStep::Nanos(1_000_000)),
    ("SECOND", TimeStep::Nanos(1_000_000_000)),
    ("MINUTE", TimeStep::Nanos(60_000_000_000)),
    ("HOUR", TimeStep::Nanos(3_600_000_000_000)),
    ("DAY", TimeStep::Nanos(86_400_000_000_000)),
    ("WEEK", TimeStep::Nanos(604_800_000_000_000)),
    ("MONTH", TimeStep::Months(1)),
    ("QUARTER", TimeStep::Months(3)),
    ("YEAR", TimeStep::Months(12)),
];

/// The names of all units.
pub(crate) fn unit_names() -> Vec<&'static str> {
    UNITS.iter().map(|(name, _)| *name).collect()
}

/// The unit of a name.
pub(crate) fn time_step(name: &str) -> Option<TimeStep> {
    UNITS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, step)| *step)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum UnitFunction {
    /// `TIMESTAMPDIFF(unit, from, to)`: whole units, cut off towards zero.
    Diff,
    /// `TIMESTAMPADD(unit, count, time)`.
    Add,
    /// `DATEDIFF(to, from)`: midnights between them.
    Days,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeUnits {
    kind: UnitFunction,
}

/// All of them; units are given as texts.
pub(super) fn functions() -> Vec<ScalarUDF> {
    [UnitFunction::Diff, UnitFunction::Add, UnitFunction::Days]
        .map(|kind| ScalarUDF::from(TimeUnits { kind }))
        .into()
}

impl TimeUnits {
    fn takes(&self) -> &'static str {
        match self.kind {
            UnitFunction::Diff => "TIMESTAMPDIFF(unit, TIMESTAMP, TIMESTAMP)",
            UnitFunction::Add => "TIMESTAMPADD(unit, BIGINT, TIMESTAMP)",
            UnitFunction::Days => "DATEDIFF(TIMESTAMP, TIMESTAMP)",
        }
    }
}

/// A time or a date, as it is; a NULL is a time.
fn time_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Timestamp(..) | DataType::Date32 => Some(given.clone()),
        DataType::Null => Some(DataType::Timestamp(TimeUnit::Millisecond, None)),
        _ => None,
    }
}

/// Type of `TIMESTAMPADD`: a time as fine as the unit, a date for whole days.
fn moved_type(step: TimeStep, time: &DataType) -> DataType {
    let TimeStep::Nanos(ns) = step else { return time.clone() };
    let finest = match i128::from(ns) {
        ns if ns >= tick_ns(TimeUnit::Second) => TimeUnit::Second,
        ns if ns >= tick_ns(TimeUnit::Millisecond) => TimeUnit::Millisecond,
        ns if ns >= tick_ns(TimeUnit::Microsecond) => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    };
    match time {
        DataType::Timestamp(unit, zone) => {
            let unit = if tick_ns(*unit) < tick_ns(finest) { *unit } else { finest };
            DataType::Timestamp(unit, zone.clone())
        }
        _ if i128::from(ns) % DAY_NS == 0 => time.clone(),
        _ => DataType::Timestamp(finest, None),
    }
}

impl ScalarUDFImpl for TimeUnits {
    fn name(&self) -> &str {
        match self.kind {
            UnitFunction::Diff => "timestampdiff",
            UnitFunction::Add => "timestampadd",
            UnitFunction::Days => "datediff",
        }
    }

    called!(@ CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let number = |given: &DataType| {
            (given.is_null() || given.is_integer() && *given != DataType::UInt64)
                .then_some(DataType::Int64)
        };
        let coerced = match (self.kind, types) {
            (UnitFunction::Days, [to, from]) => vec![time_type(to), time_type(from)],
            (UnitFunction::Diff, [unit, from, to]) => {
                vec![Some(unit.clone()), time_type(from), time_type(to)]
            }
            (UnitFunction::Add, [unit, count, time]) => {
                vec![Some(unit.clone()), number(count), time_type(time)]
            }
            _ => vec![None],
        };
        let coerced: Option<Vec<DataType>> = coerced.into_iter().collect();
        let units = usize::from(self.kind != UnitFunction::Days);
        let (name, given) = (self.name().to_uppercase(), types.get(units..).unwrap_or(&[]));
        coerced.map_or_else(|| no_such(&name, given, self.takes()), Ok)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [_, _, time] if self.kind == UnitFunction::Add => Ok(time.clone()),
            _ => Ok(DataType::Int64),
        }
    }

    fn return_field_from_args(
        &self,
        args: datafusion_expr::ReturnFieldArgs,
    ) -> DfResult<arrow::datatypes::FieldRef> {
        let last = args.arg_fields.last().map(|field| field.data_type().clone());
        let data_type = match (self.kind, last) {
            (UnitFunction::Add, Some(time)) => {
                moved_type(step_of(args.scalar_arguments.first())?, &time)
            }
            _ => DataType::Int64,
        };
        Ok(Arc::new(arrow::datatypes::Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = rows_of(&args);
        let array = |i: usize| match args.args.get(i) {
            Some(value) => value.to_array(rows),
            None => exec_err!("{} lacks an argument", self.name()),
        };
        let step = || match args.args.first() {
            Some(ColumnarValue::Scalar(unit)) => step_of(Some(&Some(unit))),
            _ => step_of(None),
        };
        let result: ArrayRef = match self.kind {
            UnitFunction::Diff => Arc::new(differences(step()?, &array(1)?, &array(2)?)?),
            UnitFunction::Add => moved(step()?, &array(1)?, &array(2)?, args.return_type())?,
            UnitFunction::Days => Arc::new(days(&array(0)?, &array(1)?)?),
        };
        result_of(&args, result)
    }
}

/// The unit that a constant names.
fn step_of(unit: Option<&Option<&ScalarValue>>) -> DfResult<TimeStep> {
    let name = unit.copied().flatten().and_then(|unit| unit.try_as_str().flatten());
    match name.and_then(time_step) {
        Some(step) => Ok(step),
        None => exec_err!("the unit must be one of {}", unit_names().join(", ")),
    }
}

fn in_range(value: i128) -> DfResult<i64> {
    i64::try_from(value).map_err(|_| exec_datafusion_err!("{value} does not fit BIGINT"))
}

/// A value for each pair of values, NULL where one is.
fn pairs<A, B>(
    left: impl IntoIterator<Item = Option<A>>,
    right: impl IntoIterator<Item = Option<B>>,
    of: impl Fn(A, B) -> DfResult<i64>,
) -> DfResult<Int64Array> {
    let pairs = left.into_iter().zip(right).map(|(left, right)| left.zip(right));
    pairs.map(|pair| pair.map(|(left, right)| of(left, right)).transpose()).collect()
}

fn differences(step: TimeStep, from: &ArrayRef, to: &ArrayRef) -> DfResult<Int64Array> {
    pairs(instants(from)?, instants(to)?, |from, to| match step {
        TimeStep::Nanos(ns) => in_range((to - from) / i128::from(ns)),
        TimeStep::Months(months) => Ok(months_between(from, to)? / months),
    })
}

fn days(to: &ArrayRef, from: &ArrayRef) -> DfResult<Int64Array> {
    pairs(instants(to)?, instants(from)?, |to, from| {
        in_range(to.div_euclid(DAY_NS) - from.div_euclid(DAY_NS))
    })
}

/// Times moved by a number of units, as `to` has them.
fn moved(step: TimeStep, counts: &ArrayRef, times: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
    let tick = match to {
        DataType::Timestamp(unit, _) => tick_ns(*unit),
        _ => DAY_NS,
    };
    let counts = counts.as_primitive::<Int64Type>();
    let ticks = pairs(counts, instants(times)?, |count, time| {
        let too_far = || exec_datafusion_err!("the time would not fit {}", sql_type_name(to));
        let moved = match step {
            TimeStep::Nanos(ns) => time + i128::from(ns) * i128::from(count),
            TimeStep::Months(months) => {
                add_months(time, months.checked_mul(count).ok_or_else(too_far)?)?
            }
        };
        let ticks = i64::try_from(moved.div_euclid(tick)).map_err(|_| too_far())?;
        match to {
            DataType::Date32 => i32::try_from(ticks).map(i64::from).map_err(|_| too_far()),
            _ => Ok(ticks),
        }
    })?;
    if *to == DataType::Date32 {
        let days: Date32Array =
            ticks.iter().map(|t| t.and_then(|t| i32::try_from(t).ok())).collect();
        return Ok(Arc::new(days));
    }
    debug_assert!(ticks.len() == times.len());
    Ok(cast(&ticks, to)?)
}
