//! Event time of a table: chooses the column and the watermark's distance.
//!
//! Of the columns of times, the column whose values are most in order is chosen; of several such
//! columns, the column with a name that suggests an event time. A whole number is a time if its
//! column's name says so and its values are seconds, milli-, micro- or nanoseconds since 1970 in
//! this century (`ts` = 1714564800123), or if the name also tells the unit and the values are in
//! order (`time_s` = 600, 600, 601).
//!
//! The watermark is as far behind as the records of the sample were out of order, rounded up. If
//! only a part of the data has been seen, the distance is doubled, and at least a second: a
//! proposal for the table's declaration. A query that goes by event time looks at the rest first
//! ([`through`](super::through)).

use std::collections::HashSet;

use arrow::datatypes::{DataType, TimeUnit};
use millstream_contract::calendar::per_second;
use millstream_contract::declaration::{ComputedColumn, DeclaredTime, free_name};

use super::order::Order;
use super::value::ValueStats;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

/// Amounts that a delay is rounded up to; longer ones are whole days.
const DELAYS_US: [i64; 27] = [
    0,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    SECOND_US,
    2 * SECOND_US,
    5 * SECOND_US,
    10 * SECOND_US,
    15 * SECOND_US,
    30 * SECOND_US,
    MINUTE_US,
    2 * MINUTE_US,
    5 * MINUTE_US,
    10 * MINUTE_US,
    15 * MINUTE_US,
    30 * MINUTE_US,
    HOUR_US,
    2 * HOUR_US,
    6 * HOUR_US,
    12 * HOUR_US,
    DAY_US,
];

/// More than any real time can be late; its microseconds fit 64 bits.
const DELAY_DAYS_MAX: i64 = 1_000_000;

/// A column that may be the event time.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a str,
    pub(super) data_type: &'a DataType,
    pub(super) values: &'a ValueStats,
}

/// The event time, and the column that has to be computed for it.
pub(super) struct EventTime {
    pub(super) computed: Option<ComputedColumn>,
    pub(super) time: DeclaredTime,
}

/// A column that is a time.
struct Time<'a> {
    name: &'a str,
    /// The SQL that computes it of the column, `{}`.
    form: Option<&'static str>,
    disorder_us: i64,
    span_us: i64,
    nulls: bool,
}

/// Picks the event time. `whole`: all of the data has been seen.
pub(super) fn event_time(
    columns: &[Candidate<'_>],
    names: &HashSet<String>,
    whole: bool,
) -> Option<EventTime> {
    let times = columns.iter().filter_map(time);
    // Of equal ones, `min_by_key` takes the first.
    let best = times.min_by_key(|time| {
        let same = time.span_us == 0;
        (time.nulls, same, time.disorder_us, rank(time.name))
    })?;
    let computed = best.form.map(|form| {
        let wanted = ["ts", "event_time"].into_iter().find(|name| !names.contains(*name));
        let name = free_name(wanted.unwrap_or("event_time"), names);
        ComputedColumn { name, form: form.into(), column: best.name.to_string() }
    });
    let column = computed.as_ref().map_or(best.name, |computed| &computed.name).to_string();
    let time = declared(column, best.disorder_us, best.span_us, whole);
    Some(EventTime { computed, time })
}

/// The event time `column`, whose values are so far out of order. `whole`: all of them.
pub(super) fn declared(
    column: String,
    disorder_us: i64,
    span_us: i64,
    whole: bool,
) -> DeclaredTime {
    let of = if whole { "records" } else { "the records of the sample" };
    let reason = match disorder_us {
        0 => format!("{of} are in order"),
        us => format!("{of} are up to {} out of order", duration(us)),
    };
    let delay_us = delay(disorder_us, whole);
    DeclaredTime { column, delay_us, reason, span_us, sampled: !whole }
}

fn time<'a>(column: &Candidate<'a>) -> Option<Time<'a>> {
    let Candidate { name, data_type, values } = column;
    let (form, factor_us) = match data_type {
        // Event time keeps microseconds.
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let form = match zone {
                None => "CAST({} AS TIMESTAMP(6))",
                Some(_) => "CAST({} AS TIMESTAMP_LTZ(6))",
            };
            (Some(form), TimeUnit::Microsecond)
        }
        DataType::Timestamp(..) => (None, TimeUnit::Microsecond),
        DataType::Utf8 => (Some(values.form()?), TimeUnit::Microsecond),
        DataType::Int64 => {
            let unit = unit(name, values)?;
            let form = NUMBERS.iter().find(|(known, _)| *known == unit);
            (form.map(|(_, form)| *form), unit)
        }
        _ => return None,
    };
    let (disorder_us, span_us) = in_microseconds(&values.order, factor_us);
    Some(Time { name, form, disorder_us, span_us, nulls: values.nulls > 0 })
}

/// The SQL that computes times from whole numbers.
const NUMBERS: [(TimeUnit, &str); 4] = [
    (TimeUnit::Second, "to_timestamp_seconds({})"),
    (TimeUnit::Millisecond, "to_timestamp_millis({})"),
    (TimeUnit::Microsecond, "to_timestamp_micros({})"),
    (TimeUnit::Nanosecond, "CAST(to_timestamp_nanos({}) AS TIMESTAMP(6))"),
];

/// The unit of the numbers that this SQL makes times of.
pub(super) fn unit_of(form: &str) -> Option<TimeUnit> {
    NUMBERS.iter().find(|(_, known)| *known == form).map(|(unit, _)| *unit)
}

/// How far out of order values in this unit are, and from the least to the greatest.
pub(super) fn in_microseconds(order: &Order, unit: TimeUnit) -> (i64, i64) {
    let us = |value: u64| {
        let us = (i128::from(value) * 1_000_000) / i128::from(per_second(unit));
        i64::try_from(us).unwrap_or(i64::MAX)
    };
    // Less than a microsecond is one.
    (us(order.disorder).max(i64::from(order.disorder > 0)), us(order.span()))
}

/// Unit of a column of whole numbers, if the column is a time.
fn unit(name: &str, values: &ValueStats) -> Option<TimeUnit> {
    let words = words(name);
    let (last, before) = words.split_last()?;
    let is_time = |words: &[String]| words.iter().any(|w| TIME_WORDS.contains(&w.as_str()));
    let named = match last.as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" | "unix" => Some(TimeUnit::Second),
        "ms" | "msec" | "msecs" | "millis" | "milliseconds" => Some(TimeUnit::Millisecond),
        "us" | "usec" | "usecs" | "micros" | "microseconds" => Some(TimeUnit::Microsecond),
        "ns" | "nsec" | "nsecs" | "nanos" | "nanoseconds" => Some(TimeUnit::Nanosecond),
        _ => None,
    };
    // From September 2001, when seconds have got ten digits, to 2100.
    let epoch = |unit: &TimeUnit| {
        let factor = per_second(*unit);
        values.least >= 1_000_000_000 * factor
            && values.greatest < 4_102_444_800i64.saturating_mul(factor)
    };
    let in_order = values.order.span() > 0 && values.order.disorder <= values.order.span() / 10;
    match named.filter(|_| is_time(before)) {
        Some(unit) => (epoch(&unit) || in_order && values.least >= 0).then_some(unit),
        None if !is_time(&words) => None,
        None => {
            use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
            [Second, Millisecond, Microsecond, Nanosecond].into_iter().find(epoch)
        }
    }
}

/// Words in the names of time columns.
const TIME_WORDS: [&str; 17] = [
    "ts",
    "time",
    "timestamp",
    "datetime",
    "date",
    "epoch",
    "unixtime",
    "at",
    "when",
    "eventtime",
    "rowtime",
    "created",
    "updated",
    "start",
    "end",
    "begin",
    "unix",
];

/// How well a column's name fits the event time; less is better.
fn rank(name: &str) -> usize {
    let name = words(name).concat();
    const NAMES: [&str; 7] =
        ["eventtime", "ts", "timestamp", "time", "eventts", "eventtimestamp", "datetime"];
    NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len())
}

/// The words of a name: `eventTime` and `event_time` have the same.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in name.chars() {
        let starts = !before.is_alphanumeric() || before.is_lowercase() && c.is_uppercase();
        if c.is_alphanumeric() {
            if starts {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    words
}

/// How far the watermark should be behind.
fn delay(disorder_us: i64, whole: bool) -> i64 {
    let wanted = match whole {
        true => disorder_us,
        false => disorder_us.saturating_mul(2).max(SECOND_US),
    };
    let round = DELAYS_US.into_iter().find(|amount| *amount >= wanted);
    round.unwrap_or_else(|| ((wanted / DAY_US).min(DELAY_DAYS_MAX - 1) + 1) * DAY_US)
}

/// A duration for people.
fn duration(us: i64) -> String {
    match us {
        ..1_000 => format!("{us} us"),
        1_000..SECOND_US => format!("{} ms", tenths(us, 1_000)),
        SECOND_US..MINUTE_US => format!("{} s", tenths(us, SECOND_US)),
        MINUTE_US..HOUR_US => format!("{} min", tenths(us, MINUTE_US)),
        HOUR_US..DAY_US => format!("{} h", tenths(us, HOUR_US)),
        _ => format!("{} d", tenths(us, DAY_US)),
    }
}

/// Rounded up to a tenth, where that says something.
fn tenths(us: i64, unit: i64) -> String {
    let tenths = us / (unit / 10) + i64::from(us % (unit / 10) > 0);
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::shape;
    use super::*;

    fn values(texts: &[&str]) -> ValueStats {
        let mut values = ValueStats::default();
        texts.iter().for_each(|text| values.add(shape(text.as_bytes())));
        values
    }

    /// Column, function and delay of what is found in columns of these values.
    fn found(columns: &[(&str, &[&str])], whole: bool) -> Option<(String, Option<String>, i64)> {
        let columns: Vec<_> = columns.iter().map(|(name, texts)| (*name, values(texts))).collect();
        let types: Vec<_> = columns.iter().map(|(_, values)| values.data_type()).collect();
        let candidates: Vec<_> = columns
            .iter()
            .zip(&types)
            .map(|((name, values), data_type)| Candidate { name, data_type, values })
            .collect();
        let names = columns.iter().map(|(name, _)| name.to_string()).collect();
        let EventTime { computed, time } = event_time(&candidates, &names, whole)?;
        Some((time.column, computed.map(|c| c.to_sql()), time.delay_us))
    }

    #[test]
    fn the_column_in_order_is_the_event_time() {
        let ordered: &[&str] = &["2024-05-01 12:00:00", "2024-05-01 12:00:05"];
        let mixed: &[&str] = &["2024-05-01 12:00:09", "2024-05-01 12:00:06"];
        let expected = |name: &str, delay| Some((name.to_string(), None, delay));
        assert_eq!(found(&[("ts", mixed), ("seen", ordered)], true), expected("seen", 0));
        assert_eq!(found(&[("ts", mixed)], true), expected("ts", 5_000_000));
        assert_eq!(found(&[("ts", mixed)], false), expected("ts", 10_000_000));
        assert_eq!(found(&[("ts", ordered)], false), expected("ts", 1_000_000));
        // Of two in order, by the name; of two without one, the first.
        assert_eq!(
            found(&[("x", ordered), ("eventTime", ordered)], true),
            expected("eventTime", 0)
        );
        assert_eq!(found(&[("x", ordered), ("y", ordered)], true), expected("x", 0));
        // The same time everywhere says nothing.
        let same: &[&str] = &["2024-05-01 12:00:00", "2024-05-01 12:00:00"];
        assert_eq!(found(&[("ts", same), ("seen", mixed)], true), expected("seen", 5_000_000));
        assert_eq!(found(&[("n", &["1", "2"])], true), None);
    }

    #[test]
    fn whole_numbers_are_times_where_name_and_values_say_so() {
        let computed = |column: &str, function: &str, delay| {
            Some((column.to_string(), Some(function.to_string()), delay))
        };
        let millis: &[&str] = &["1714564800123", "1714564800623", "1714564800523"];
        assert_eq!(
            found(&[("ts", millis)], true),
            computed("event_time", "to_timestamp_millis(ts)", 100_000)
        );
        assert_eq!(
            found(&[("createdAt", millis)], true),
            computed("ts", "to_timestamp_millis(createdAt)", 100_000)
        );
        assert_eq!(
            found(&[("time_s", &["1", "1", "600"])], true),
            computed("ts", "to_timestamp_seconds(time_s)", 0)
        );
        assert_eq!(
            found(
                &[("epoch", &["1714564800123456789"]), ("ts", &["1"]), ("event_time", &["2"])],
                true
            ),
            computed("event_time_2", "CAST(to_timestamp_nanos(epoch) AS TIMESTAMP(6))", 0)
        );
        assert_eq!(
            found(&[("ts", &["2024-05-01 12:00:00.000000001"])], true),
            computed("event_time", "CAST(ts AS TIMESTAMP(6))", 0)
        );
        assert_eq!(
            found(&[("at", &["2024-05-01 12:00", "2024-05-01 12:05"])], true),
            computed("ts", "TO_TIMESTAMP(at, 'yyyy-MM-dd HH:mm')", 0)
        );
        assert_eq!(found(&[("at", &["2024-05-01 12:00", "soon"])], true), None);
        assert_eq!(found(&[("id", millis)], true), None);
        assert_eq!(found(&[("ts", &["1", "2"])], true), None);
        // How long something took is no time.
        assert_eq!(found(&[("response_time_ms", &["20", "900", "3"])], true), None);
        assert_eq!(found(&[("duration_ms", &["1", "2", "3"])], true), None);
    }

    #[test]
    fn delays_are_rounded_up() {
        assert_eq!(
            [0, 1, 1_001, 3_600_000_001].map(|us| delay(us, true)),
            [0, 1_000, 2_000, 2 * HOUR_US]
        );
        assert_eq!(delay(DAY_US + 1, true), 2 * DAY_US);
        assert_eq!(delay(i64::MAX, false), DELAY_DAYS_MAX * DAY_US);
        assert_eq!([1, 1_500, 61 * SECOND_US].map(duration), ["1 us", "1.5 ms", "1.1 min"]);
    }
}
