//! Intervals as text: `1 year 2 months`, `-3 days -12:00:01.5`.

use std::io::Write;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_DAY: i128 = 86_400 * NANOS_PER_SECOND;

/// Appends an interval. Months make years, and nothing else is made of anything else: not all days
/// have 24 hours.
pub fn write_interval(months: i64, days: i64, nanos: i128, out: &mut Vec<u8>) {
    let start = out.len();
    for (number, unit) in [(months / 12, "year"), (months % 12, "month"), (days, "day")] {
        if number != 0 {
            let s = if number.abs() == 1 { "" } else { "s" };
            // Writing into memory cannot fail.
            let _ = write!(out, "{number} {unit}{s} ");
        }
    }
    if nanos != 0 || out.len() == start {
        write_clock(nanos, out);
    } else {
        out.pop();
    }
}

/// Appends the time between two moments, in days of 24 hours and the rest.
pub fn write_duration(nanos: i128, out: &mut Vec<u8>) {
    // 64 bits of seconds are fewer days.
    write_interval(0, (nanos / NANOS_PER_DAY) as i64, nanos % NANOS_PER_DAY, out);
}

/// Appends `-36:00:01.5`, without zeros at the end.
fn write_clock(nanos: i128, out: &mut Vec<u8>) {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, fraction) = (
        nanos.unsigned_abs() / NANOS_PER_SECOND as u128,
        nanos.unsigned_abs() % NANOS_PER_SECOND as u128,
    );
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let _ = write!(out, "{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if fraction != 0 {
        let digits = format!("{fraction:09}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_read_like_postgres_and_duckdb() {
        // What DuckDB prints for the same intervals.
        const HOUR: i128 = 3600 * NANOS_PER_SECOND;
        for (months, days, nanos, expected) in [
            (0, 0, 0, "00:00:00"),
            (1, 0, 0, "1 month"),
            (14, 0, 0, "1 year 2 months"),
            (-14, 0, 0, "-1 year -2 months"),
            (24, 0, 0, "2 years"),
            (0, -1, 0, "-1 day"),
            (0, 0, 36 * HOUR, "36:00:00"),
            (0, 0, -HOUR - HOUR / 2, "-01:30:00"),
            (0, 0, NANOS_PER_SECOND * 3 / 2, "00:00:01.5"),
            (12, 3, -NANOS_PER_SECOND, "1 year 3 days -00:00:01"),
        ] {
            let mut out = Vec::new();
            write_interval(months, days, nanos, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn durations_are_days_and_the_rest() {
        for (nanos, expected) in [
            (0, "00:00:00"),
            (-5 * NANOS_PER_DAY / 2 - 1_500_000_000, "-2 days -12:00:01.5"),
            (NANOS_PER_DAY, "1 day"),
            (i128::from(i64::MAX) * NANOS_PER_SECOND, "106751991167300 days 15:30:07"),
        ] {
            let mut out = Vec::new();
            write_duration(nanos, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
