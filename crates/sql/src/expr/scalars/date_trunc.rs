//! `DATE_TRUNC` and `FLOOR(time TO unit)` for every year that can be displayed, and for dates.
//! DataFusion's `DATE_TRUNC` computes weeks and longer units in nanoseconds, which reach only from
//! 1677 to 2262, and turns a date into a timestamp. Its `DATE_BIN` gives NULL for times out of its
//! range.

use arrow::{array::PrimitiveArray, datatypes::Date32Type};
use chrono::{Datelike, NaiveDate};
use datafusion_common::types::{NativeType, logical_date, logical_string};
use datafusion_expr::{Coercion, TypeSignature, TypeSignatureClass};

use super::calendar::{date, day, tick_ns};
use super::strict::nulls_of_any;
use super::time_units::{TimeStep, time_step};
use crate::expr::udf::{called, result_of, rows_of};
use crate::syntax::prelude::*;

/// DataFusion's function, but for days as wholes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// `DATE_TRUNC(unit, time)`; `inner` is DataFusion's, for units up to a day.
pub(super) fn date_trunc(inner: Arc<ScalarUDF>) -> ScalarUDF {
    let text = || Coercion::new_exact(TypeSignatureClass::Native(logical_string()));
    let of = |time: Coercion| TypeSignature::Coercible(vec![text(), time]);
    let read = NativeType::Timestamp(TimeUnit::Nanosecond, None);
    let times = vec![
        of(Coercion::new_implicit(
            TypeSignatureClass::Timestamp,
            vec![TypeSignatureClass::Native(logical_string())],
            read,
        )),
        of(Coercion::new_exact(TypeSignatureClass::Native(logical_date()))),
        of(Coercion::new_exact(TypeSignatureClass::Time)),
    ];
    let signature = Signature::one_of(times, Volatility::Immutable);
    ScalarUDF::from(DateTrunc { inner, signature })
}

impl ScalarUDFImpl for DateTrunc {
    called!(@like inner);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [ColumnarValue::Scalar(unit), time] = &args.args[..] else {
            return self.inner.invoke_with_args(args);
        };
        let unit = unit.try_as_str().flatten().unwrap_or_default().to_lowercase();
        let unit = match unit.as_str() {
            "week" => Unit::Week,
            SUNDAY_WEEK => Unit::SundayWeek,
            "month" => Unit::Month,
            "quarter" => Unit::Quarter,
            "year" => Unit::Year,
            _ if matches!(time.data_type(), DataType::Date32) => Unit::Day,
            name => match (time_step(name), time.data_type()) {
                (Some(TimeStep::Nanos(ns)), DataType::Timestamp(..)) => Unit::Nanos(ns),
                _ => return self.inner.invoke_with_args(args),
            },
        };
        let rows = rows_of(&args);
        let first = match time.data_type() {
            DataType::Date32 => first_dates(&time.to_array(rows)?, unit)?,
            DataType::Timestamp(time_unit, _) => {
                first_times(&time.to_array(rows)?, time_unit, unit)?
            }
            _ => return self.inner.invoke_with_args(args),
        };
        result_of(&args, first)
    }
}

/// DataFusion's `DATE_BIN`, but failing where that gives NULL for a time that it cannot reckon
/// with.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin(Arc<ScalarUDF>);

/// `DATE_BIN(interval, time [, origin])`; `inner` is DataFusion's.
pub(super) fn date_bin(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(DateBin(inner))
}

impl ScalarUDFImpl for DateBin {
    called!(like 0);

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = rows_of(&args);
        let known = nulls_of_any(&args.args, rows)?;
        let bins = self.0.invoke_with_args(args)?;
        let nulls = bins.to_array(rows)?.logical_null_count();
        if nulls > known.map_or(0, |known| known.null_count()) {
            return exec_err!("the time is too far from today for this interval");
        }
        Ok(bins)
    }
}

/// Nanoseconds of a day.
pub(super) const DAY_NS: i64 = 86_400_000_000_000;

/// The unit of `FLOOR(time TO WEEK)` and `CEIL(time TO WEEK)`: weeks begin on Sunday there, as in
/// Flink.
pub(crate) const SUNDAY_WEEK: &str = "week from sunday";

/// A unit; all but the first are whole days.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    /// So many nanoseconds, up to a day.
    Nanos(i64),
    Day,
    /// From Monday on.
    Week,
    /// From Sunday on.
    SundayWeek,
    Month,
    Quarter,
    Year,
}

impl Unit {
    /// The unit of a name.
    pub(super) fn named(name: &str) -> Option<Unit> {
        Some(match name.to_lowercase().as_str() {
            "week" => Unit::Week,
            SUNDAY_WEEK => Unit::SundayWeek,
            "month" => Unit::Month,
            "quarter" => Unit::Quarter,
            "year" => Unit::Year,
            name => match time_step(name)? {
                TimeStep::Nanos(DAY_NS) => Unit::Day,
                TimeStep::Nanos(ns) => Unit::Nanos(ns),
                TimeStep::Months(_) => return None,
            },
        })
    }

    /// The first day of the unit that a day belongs to. Days are counted from 1970-01-01; `None`
    /// if the calendar does not reach as far.
    pub(super) fn first_day(self, at: i64) -> Option<i64> {
        match self {
            Unit::Day => return Some(at),
            // 1970-01-01 was a Thursday.
            Unit::Week => return at.checked_sub((at.checked_add(3)?).rem_euclid(7)),
            Unit::SundayWeek => return at.checked_sub((at.checked_add(4)?).rem_euclid(7)),
            Unit::Nanos(_) => return None,
            Unit::Month | Unit::Quarter | Unit::Year => {}
        }
        let date = date(at)?;
        let month = match self {
            Unit::Quarter => date.month0() / 3 * 3 + 1,
            Unit::Year => 1,
            _ => date.month(),
        };
        NaiveDate::from_ymd_opt(date.year(), month, 1).map(day)
    }
}

fn first_dates(dates: &ArrayRef, unit: Unit) -> DfResult<ArrayRef> {
    let first = |day: i32| {
        let first = unit.first_day(day.into()).and_then(|day| i32::try_from(day).ok());
        first.ok_or_else(|| {
            exec_datafusion_err!("the date is too far from today for its type or for the calendar")
        })
    };
    let first: PrimitiveArray<Date32Type> =
        dates.as_primitive::<Date32Type>().try_unary::<_, _, DataFusionError>(first)?;
    Ok(Arc::new(first))
}

/// Times in UTC. Times with a zone are in UTC too: their zone is the session's.
fn first_times(times: &ArrayRef, time_unit: TimeUnit, unit: Unit) -> DfResult<ArrayRef> {
    let per_day = ticks(DAY_NS, time_unit);
    let first = |time: i64| {
        let first = match unit {
            Unit::Nanos(ns) => time.checked_sub(time.rem_euclid(ticks(ns, time_unit))),
            unit => {
                let first = unit.first_day(time.div_euclid(per_day));
                first.and_then(|day| day.checked_mul(per_day))
            }
        };
        first.ok_or_else(|| {
            exec_datafusion_err!("the time is too far from today for its type or for the calendar")
        })
    };
    let raw = cast(times, &DataType::Int64)?;
    let first: PrimitiveArray<Int64Type> =
        raw.as_primitive::<Int64Type>().try_unary::<_, _, DataFusionError>(first)?;
    let first: ArrayRef = Arc::new(first);
    Ok(cast(&first, times.data_type())?)
}

/// Ticks of a type of times in some nanoseconds; one at least.
pub(super) fn ticks(ns: i64, time_unit: TimeUnit) -> i64 {
    let ticks = i128::from(ns) / tick_ns(time_unit);
    i64::try_from(ticks).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_days_are_those_of_the_calendar() {
        let day = |year, month, day| super::day(NaiveDate::from_ymd_opt(year, month, day).unwrap());
        for (date, unit, first) in [
            (day(1970, 1, 1), Unit::Week, day(1969, 12, 29)),
            (day(1969, 12, 28), Unit::Week, day(1969, 12, 22)),
            // A Saturday, and a Sunday.
            (day(2020, 2, 29), Unit::SundayWeek, day(2020, 2, 23)),
            (day(1990, 10, 14), Unit::SundayWeek, day(1990, 10, 14)),
            (day(2024, 2, 29), Unit::Month, day(2024, 2, 1)),
            (day(2024, 6, 30), Unit::Quarter, day(2024, 4, 1)),
            (day(9999, 12, 31), Unit::Quarter, day(9999, 10, 1)),
            (day(9999, 12, 31), Unit::Year, day(9999, 1, 1)),
            (day(1, 5, 5), Unit::Year, day(1, 1, 1)),
            (day(1, 1, 1), Unit::Month, day(1, 1, 1)),
            // Year 0 is 1 BC.
            (day(0, 3, 1), Unit::Year, day(0, 1, 1)),
            (day(-4000, 7, 9), Unit::Month, day(-4000, 7, 1)),
        ] {
            assert_eq!(unit.first_day(date), Some(first), "{date} {unit:?}");
        }
        for unit in [Unit::Week, Unit::Month] {
            assert_eq!(unit.first_day(i64::MIN), None);
        }
        assert_eq!(Unit::Month.first_day(1 << 40), None);
    }
}
