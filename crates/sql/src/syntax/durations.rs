//! Durations: as people read them, and as intervals of SQL give them.

use crate::syntax::prelude::*;

/// A duration for people: `10 s`, `2 min`, `1500 ms`.
pub(crate) fn duration(us: i64) -> String {
    let units = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match units.iter().find(|(unit, _)| us != 0 && us % unit == 0) {
        Some((unit, name)) => format!("{} {name}", us / unit),
        None if us == 0 => "0 s".into(),
        None => format!("{us} us"),
    }
}

/// An interval in microseconds; the inner `None` if it has months or does not fit.
pub(crate) fn interval_us(value: &ScalarValue) -> Option<Option<i64>> {
    const DAY_US: i64 = 86_400_000_000;
    let us = |days: i64, rest: i64| days.checked_mul(DAY_US)?.checked_add(rest);
    Some(match value {
        ScalarValue::IntervalMonthDayNano(Some(v))
            if v.months == 0 && v.nanoseconds % 1000 == 0 =>
        {
            us(v.days.into(), v.nanoseconds / 1000)
        }
        ScalarValue::IntervalDayTime(Some(v)) => {
            us(v.days.into(), i64::from(v.milliseconds) * 1000)
        }
        ScalarValue::DurationSecond(Some(v)) => v.checked_mul(1_000_000),
        ScalarValue::DurationMillisecond(Some(v)) => v.checked_mul(1000),
        ScalarValue::DurationMicrosecond(Some(v)) => Some(*v),
        ScalarValue::DurationNanosecond(Some(v)) if v % 1000 == 0 => Some(v / 1000),
        ScalarValue::IntervalMonthDayNano(Some(_)) | ScalarValue::IntervalYearMonth(Some(_)) => {
            None
        }
        _ => return None,
    })
}
