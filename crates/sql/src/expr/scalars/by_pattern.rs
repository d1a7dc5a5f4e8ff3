//! `TO_TIMESTAMP(text, pattern)` and `TO_TIMESTAMP_LTZ(text, pattern)`, and the same with `TRY_`,
//! which give NULL for other texts. As in Flink, a TIMESTAMP is what the clock shows, whatever the
//! zone that the text names; the TIMESTAMP_LTZ is that instant.

use std::fmt::Write;

use arrow::array::TimestampMillisecondArray;
use chrono::format::{Parsed, StrftimeItems, parse};
use chrono::{DateTime, NaiveTime};
use millstream_contract::zone::Zone;

use super::rows::{Arguments, TEXT, function};
use crate::expr::wording::NOT_OF_FORM;
use crate::syntax::prelude::*;
use crate::syntax::types::UTC;

/// Seconds of the largest offset from UTC.
const OFFSET_MAX: i32 = 18 * 3_600;

/// The names of the functions, whose patterns are those of `strftime`.
pub(crate) const BY_PATTERN: [&str; 4] =
    ["$to_timestamp", "$try_to_timestamp", "$to_timestamp_ltz", "$try_to_timestamp_ltz"];

/// The functions.
pub(super) fn functions() -> [ScalarUDF; 4] {
    let of = |name, zone, batch| {
        let gives = DataType::Timestamp(TimeUnit::Millisecond, zone);
        function(name, &[], &[&[TEXT, TEXT]], gives, batch)
    };
    let [clock, try_clock, instant, try_instant] = BY_PATTERN;
    [
        of(clock, None, |args| read(args, false, false)),
        of(try_clock, None, |args| read(args, false, true)),
        of(instant, Some(UTC.into()), |args| read(args, true, false)),
        of(try_instant, Some(UTC.into()), |args| read(args, true, true)),
    ]
}

fn read(args: &Arguments, instants: bool, tries: bool) -> DfResult<ArrayRef> {
    let times = args.rows(|row| {
        let read = by_pattern(args.text(0, row)?, args.text(1, row)?);
        match read {
            Err(_) if tries => Ok(None),
            read => read.map(|(local, ahead)| match ahead {
                Some(ahead) if instants => Some(local - ahead),
                _ => Some(local),
            }),
        }
    });
    let times = times.collect::<DfResult<TimestampMillisecondArray>>()?;
    Ok(Arc::new(times.with_timezone_opt(instants.then_some(UTC))))
}

/// The time of a text, midnight if that is a date alone, in milliseconds since 1970 of a clock that
/// shows it; and how far that is ahead of UTC, if the text says so. Without a year it is in 1970,
/// as in Flink.
pub(super) fn by_pattern(text: &str, pattern: &str) -> DfResult<(i64, Option<i64>)> {
    let mut parsed = Parsed::new();
    let time = parse(&mut parsed, text, StrftimeItems::new(pattern)).and_then(|()| {
        let years = [parsed.year, parsed.year_div_100, parsed.year_mod_100, parsed.isoyear];
        if parsed.timestamp.is_none() && years.iter().all(Option::is_none) {
            parsed.set_year(1970)?;
        }
        let midnight = |_| parsed.to_naive_date().map(|date| date.and_time(NaiveTime::MIN));
        parsed.to_naive_datetime_with_offset(0).or_else(midnight)
    });
    let local = time.map_err(|_| not_of_form(text, pattern))?.and_utc();
    let ahead = match (parsed.offset, pattern.strip_suffix("%Z")) {
        (Some(seconds), _) if seconds.abs() > OFFSET_MAX => return Err(not_of_form(text, pattern)),
        (Some(seconds), _) => Some(i64::from(seconds) * 1_000),
        (None, Some(_)) => {
            let name = text.rsplit(|c: char| c.is_whitespace() || c == '[').next();
            let zone: Zone =
                name.unwrap_or(text).parse().map_err(|()| not_of_form(text, pattern))?;
            let us = local.timestamp_micros();
            Some((us - zone.clock().instant(us)) / 1_000)
        }
        (None, None) => None,
    };
    Ok((local.timestamp_millis(), ahead))
}

/// The error of a text that is none of a pattern, with a text that is.
fn not_of_form(text: &str, pattern: &str) -> DataFusionError {
    let mut example = String::new();
    let pattern = pattern.replace("%#z", "%:z").replace("%Z", "Europe/Zurich");
    if let Ok(time) = DateTime::parse_from_rfc3339("2024-01-31T12:30:00+01:00") {
        // A pattern that cannot be written leaves a part of the example.
        let _ = write!(example, "{}", time.format(&pattern));
    }
    exec_datafusion_err!("'{text}{NOT_OF_FORM}{example}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hours since 1970, counted by hand: 2024-05-06 is day 19,849.
    #[test]
    fn zones_of_texts_are_those_of_instants_only() {
        const HOUR: i64 = 3_600_000;
        let eight = (19_849 * 24 + 8) * HOUR;
        for (text, pattern, ahead) in [
            ("06/May/2024:08:00:00 +0200", "%d/%b/%Y:%H:%M:%S %z", Some(2)),
            ("2024-05-06 08:00:00Z", "%Y-%m-%d %H:%M:%S%#z", Some(0)),
            ("2024-05-06 08:00:00-05", "%Y-%m-%d %H:%M:%S%#z", Some(-5)),
            ("2024-05-06 08:00:00 Europe/Zurich", "%Y-%m-%d %H:%M:%S %Z", Some(2)),
            ("2024-05-06 08:00:00", "%Y-%m-%d %H:%M:%S", None),
        ] {
            let expected = (eight, ahead.map(|hours| hours * HOUR));
            assert_eq!(by_pattern(text, pattern).unwrap(), expected, "{text}");
        }
        let (syslog, _) = by_pattern("Jan  2 01:00:00", "%b %-d %H:%M:%S").unwrap();
        assert_eq!(syslog, 25 * HOUR);
        assert!(by_pattern("2024-05-06 08:00:00 Mars", "%Y-%m-%d %H:%M:%S %Z").is_err());
        let error = by_pattern("soon", "%d/%b/%Y %z").unwrap_err().to_string();
        assert!(error.contains("pattern: '31/Jan/2024 +0100'"), "{error}");
    }
}
