//! Exact arithmetic with days, months and instants, over the whole range of the calendar.

use crate::syntax::prelude::*;

use chrono::{Datelike, Months, NaiveDate};

/// 1970-01-01, counted from the first day of year 1, which is 1.
pub(super) const EPOCH_FROM_YEAR_1: i64 = 719_163;
pub(super) use millstream_contract::calendar::{DAY_NS, tick_ns};

/// Times or dates in nanoseconds since 1970.
pub(super) fn instants(times: &ArrayRef) -> DfResult<Vec<Option<i128>>> {
    let tick = match times.data_type() {
        DataType::Timestamp(unit, _) => tick_ns(*unit),
        DataType::Date32 => DAY_NS,
        other => return exec_err!("{other} is no time"),
    };
    let ticks = match times.data_type() {
        DataType::Date32 => cast(&cast(times, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(times, &DataType::Int64)?,
    };
    Ok(ticks.as_primitive::<Int64Type>().iter().map(|t| t.map(|t| i128::from(t) * tick)).collect())
}

/// The date of a day counted from 1970-01-01; `None` if the calendar does not reach as far.
pub(super) fn date(day: i64) -> Option<NaiveDate> {
    let from_year_1 = i32::try_from(day.checked_add(EPOCH_FROM_YEAR_1)?).ok()?;
    NaiveDate::from_num_days_from_ce_opt(from_year_1)
}

/// A date as a day counted from 1970-01-01.
pub(super) fn day(date: NaiveDate) -> i64 {
    i64::from(date.num_days_from_ce()) - EPOCH_FROM_YEAR_1
}

/// The date and the time of day of an instant.
fn split(instant: i128) -> DfResult<(NaiveDate, i128)> {
    let day = i64::try_from(instant.div_euclid(DAY_NS)).ok().and_then(date);
    let too_far = || exec_datafusion_err!("the time is too far from today for the calendar");
    Ok((day.ok_or_else(too_far)?, instant.rem_euclid(DAY_NS)))
}

/// Whole months between two instants; negative if `to` is earlier.
pub(super) fn months_between(from: i128, to: i128) -> DfResult<i64> {
    if from > to {
        return Ok(-months_between(to, from)?);
    }
    let ((from, from_time), (to, to_time)) = (split(from)?, split(to)?);
    let months = |date: NaiveDate| i64::from(date.year()) * 12 + i64::from(date.month0());
    let whole = months(to) - months(from);
    // The last day of a shorter month is as far as its month goes: Jan 31 and one month is Feb 28.
    let last = u32::from(to.num_days_in_month());
    let begun = (from.day().min(last), from_time) > (to.day(), to_time);
    Ok(whole - i64::from(begun))
}

/// An instant some months later, or earlier, at the same time of day; on the last day of its month
/// if that is too short.
pub(super) fn add_months(instant: i128, months: i64) -> DfResult<i128> {
    let (date, time) = split(instant)?;
    let count = u32::try_from(months.unsigned_abs()).ok().map(Months::new);
    let moved = count.and_then(|count| match months < 0 {
        true => date.checked_sub_months(count),
        false => date.checked_add_months(count),
    });
    let Some(moved) = moved else {
        return exec_err!("the time would be too far from today for the calendar");
    };
    Ok(i128::from(day(moved)) * DAY_NS + time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i128 {
        let time = chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap();
        i128::from(time.and_utc().timestamp()) * 1_000_000_000
    }

    #[test]
    fn months_are_whole_in_both_directions() {
        for (from, to, months) in [
            ("2024-01-31 00:00:00", "2024-02-29 00:00:00", 1),
            ("2023-01-31 10:00:00", "2023-02-28 09:59:59", 0),
            ("2024-01-15 12:00:00", "2024-03-15 11:59:59", 1),
            ("2024-01-15 12:00:00", "2024-03-15 12:00:00", 2),
            ("2020-02-29 00:00:00", "2024-02-28 23:59:59", 47),
            ("0001-01-01 00:00:00", "9999-12-31 23:59:59", 119_987),
            ("1969-12-31 23:59:59", "1970-01-31 23:59:59", 1),
        ] {
            assert_eq!(months_between(at(from), at(to)).unwrap(), months, "{from} {to}");
            assert_eq!(months_between(at(to), at(from)).unwrap(), -months, "{to} {from}");
        }
    }

    #[test]
    fn adding_months_stays_within_the_month() {
        for (from, months, to) in [
            ("2024-01-31 10:00:00", 1, "2024-02-29 10:00:00"),
            ("2024-03-31 10:00:00", -1, "2024-02-29 10:00:00"),
            ("2024-02-29 00:00:00", 12, "2025-02-28 00:00:00"),
            ("1970-01-01 00:00:01", -1, "1969-12-01 00:00:01"),
        ] {
            assert_eq!(add_months(at(from), months).unwrap(), at(to), "{from} {months}");
        }
        assert!(add_months(0, i64::MIN).is_err());
        assert!(add_months(0, 12 * 300_000).is_err());
        assert!(months_between(i128::MIN, 0).is_err());
    }
}
