//! `CEIL(time TO unit)`: the time itself if a unit begins there, else where the next one begins.

use arrow::array::PrimitiveArray;

use super::date_trunc::{DAY_NS, Unit, ticks};
use crate::expr::udf::{called, result_of, rows_of};
use crate::syntax::prelude::*;

/// `CEIL(time TO unit)`, as a call of the unit and the time. It cannot be written in SQL.
pub(crate) const CEIL_TIME: &str = "$ceil_time";

/// The function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(CeilTime)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CeilTime;

impl ScalarUDFImpl for CeilTime {
    called!(CEIL_TIME, CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        use DataType::{Date32, Null, Time32, Time64, Timestamp};
        let [unit, time] = types else { return plan_err!("CEIL takes a time and a unit") };
        let time = match time {
            Timestamp(..) | Date32 | Time32(_) | Time64(_) => time.clone(),
            Null => Timestamp(TimeUnit::Millisecond, None),
            other => {
                let given = sql_type_name(other);
                return plan_err!(
                    "there is no CEIL of {given} to a unit; it takes DATE, TIME or TIMESTAMP"
                );
            }
        };
        Ok(vec![unit.clone(), time])
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [_, time] => Ok(time.clone()),
            _ => plan_err!("CEIL takes a time and a unit"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [ColumnarValue::Scalar(unit), time] = &args.args[..] else {
            return exec_err!("the unit of CEIL is a word");
        };
        let name = unit.try_as_str().flatten().unwrap_or_default();
        let Some(unit) = Unit::named(name) else { return exec_err!("CEIL has no unit {name}") };
        result_of(&args, next_times(&time.to_array(rows_of(&args))?, unit)?)
    }
}

fn next_times(times: &ArrayRef, unit: Unit) -> DfResult<ArrayRef> {
    let data_type = times.data_type();
    // The unit of a type, and the type of its stored values.
    let (tick, raw) = match data_type {
        DataType::Date32 => (None, DataType::Int32),
        DataType::Time32(tick) => (Some(*tick), DataType::Int32),
        DataType::Time64(tick) | DataType::Timestamp(tick, _) => (Some(*tick), DataType::Int64),
        other => return exec_err!("{} is no time", sql_type_name(other)),
    };
    let of_day = matches!(data_type, DataType::Time32(_) | DataType::Time64(_));
    let next = |time: i64| {
        let per_day = tick.map_or(1, |tick| ticks(DAY_NS, tick));
        let next = match (unit, tick) {
            (Unit::Nanos(ns), Some(tick)) => next_multiple(time, ticks(ns, tick)),
            // A date is a whole day already.
            (Unit::Nanos(_), None) => Some(time),
            (unit, _) => next_unit(time, per_day, unit),
        };
        let next = next.filter(|next| !of_day || *next < per_day);
        next.ok_or_else(|| {
            let end = if of_day { " is 24:00:00, which" } else { "" };
            exec_datafusion_err!("its CEIL{end} does not fit {}", sql_type_name(data_type))
        })
    };
    let counts = cast(&cast(times, &raw)?, &DataType::Int64)?;
    let next: PrimitiveArray<Int64Type> =
        counts.as_primitive::<Int64Type>().try_unary::<_, _, DataFusionError>(next)?;
    let next: ArrayRef = Arc::new(next);
    let narrow = arrow::compute::CastOptions { safe: false, ..Default::default() };
    Ok(cast(&arrow::compute::cast_with_options(&next, &raw, &narrow)?, data_type)?)
}

fn next_multiple(time: i64, of: i64) -> Option<i64> {
    match time.rem_euclid(of) {
        0 => Some(time),
        past => time.checked_add(of - past),
    }
}

/// Where the next unit of whole days begins, in ticks of which a day has so many.
fn next_unit(time: i64, per_day: i64, unit: Unit) -> Option<i64> {
    let day = next_multiple(time, per_day)? / per_day;
    let first = unit.first_day(day)?;
    if first == day {
        return day.checked_mul(per_day);
    }
    // So many days later, the next unit has begun and is not over.
    let days = match unit {
        Unit::Nanos(_) | Unit::Day => 1,
        Unit::Week | Unit::SundayWeek => 7,
        Unit::Month => 31,
        Unit::Quarter => 92,
        Unit::Year => 366,
    };
    unit.first_day(first.checked_add(days)?)?.checked_mul(per_day)
}
