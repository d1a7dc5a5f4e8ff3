//! `EXTRACT` from times and intervals. DataFusion's drops the fractions of intervals, overflows on
//! long ones, and counts the seconds of a minute into its milliseconds.

use arrow::array::{Float64Array, Int32Array};
use arrow::datatypes::{Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion_expr::preimage::PreimageResult;

use super::calendar::{DAY_NS, tick_ns};
use crate::expr::udf::{called, no_such, result_of, rows_of};
use crate::syntax::prelude::*;

/// Parts of timestamps and dates that can be extracted. A time of day has those from the hour on.
const OF_TIMES: &str = "\
    MILLENNIUM CENTURY DECADE YEAR ISOYEAR QUARTER MONTH WEEK DAY DOY DOW ISODOW HOUR MINUTE \
    SECOND MILLISECOND MICROSECOND NANOSECOND EPOCH";

/// Parts of intervals: a length in nanoseconds, and that of the next longer one.
const OF_INTERVALS: [(&str, i128, i128); 7] = [
    ("DAY", DAY_NS, i128::MAX),
    ("HOUR", 3_600_000_000_000, DAY_NS),
    ("MINUTE", 60_000_000_000, 3_600_000_000_000),
    ("SECOND", 1_000_000_000, 60_000_000_000),
    ("MILLISECOND", 1_000_000, 1_000_000_000),
    ("MICROSECOND", 1_000, 1_000_000_000),
    ("NANOSECOND", 1, 1_000_000_000),
];

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extract {
    inner: Arc<ScalarUDF>,
}

/// `EXTRACT(part FROM x)`; `inner` is DataFusion's, for times.
pub(super) fn extract(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Extract { inner })
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// The part's name, in capitals.
fn part_name(part: Option<&ScalarValue>) -> DfResult<String> {
    match part.and_then(|part| part.try_as_str().flatten()) {
        Some(name) => Ok(name.trim_matches(['\'', '"']).to_uppercase()),
        None => plan_err!("the part to extract must be a constant text"),
    }
}

/// Refuses parts that a type has not.
fn check_part(part: &str, of: &DataType) -> DfResult<()> {
    let months = ["YEAR", "MONTH"];
    let of_intervals = OF_INTERVALS.iter().map(|(name, ..)| *name).chain(["EPOCH"]);
    let parts: Vec<&str> = match of {
        DataType::Duration(_) => of_intervals.collect(),
        DataType::Interval(_) => months.into_iter().chain(of_intervals).collect(),
        DataType::Time32(_) | DataType::Time64(_) => {
            OF_TIMES.split_whitespace().skip_while(|part| *part != "HOUR").collect()
        }
        _ => OF_TIMES.split_whitespace().collect(),
    };
    if parts.contains(&part) {
        return Ok(());
    }
    let of = match of {
        DataType::Duration(_) if months.contains(&part) => {
            return plan_err!(
                "the difference of two times has no {part}; TIMESTAMPDIFF({part}, a, b) counts whole ones"
            );
        }
        of if is_interval(of) => "an interval".to_string(),
        of => sql_type_name(of),
    };
    plan_err!("{of} has no {part} to extract; the parts are {}", parts.join(", "))
}

impl ScalarUDFImpl for Extract {
    called!(like inner, CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        use DataType::{Date32, Duration, Interval, Null, Time32, Time64, Timestamp, Utf8};
        let [part, of] = types else {
            return no_such("DATE_PART", types, "DATE_PART(STRING, TIMESTAMP)");
        };
        let of = match of {
            Timestamp(..) | Date32 | Time32(_) | Time64(_) | Interval(_) | Duration(_) => {
                of.clone()
            }
            // A text is read as a time.
            Null | Utf8 => Timestamp(TimeUnit::Microsecond, None),
            _ => return no_such("DATE_PART", &types[1..], "a time, a date or an interval"),
        };
        Ok(vec![if part.is_null() { Utf8 } else { part.clone() }, of])
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let part = part_name(args.scalar_arguments.first().copied().flatten())?;
        let [_, of] = args.arg_fields else { return plan_err!("EXTRACT takes two arguments") };
        check_part(&part, of.data_type())?;
        if !is_interval(of.data_type()) {
            return self.inner.return_field_from_args(args);
        }
        let data_type = if part == "EPOCH" { DataType::Float64 } else { DataType::Int64 };
        Ok(Arc::new(Field::new(self.name(), data_type, of.is_nullable())))
    }

    fn preimage(&self, args: &[Expr], to: &Expr, i: &SimplifyContext) -> DfResult<PreimageResult> {
        self.inner.preimage(args, to, i)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [ColumnarValue::Scalar(part), of] = &args.args[..] else {
            return exec_err!("the part to extract must be a constant text");
        };
        let (part, of) = (part_name(Some(part))?, of.clone());
        let rows = rows_of(&args);
        let extracted = match is_interval(&of.data_type()) {
            true => of_intervals(&part, &of.to_array(rows)?)?,
            false => {
                let of_inner = |part: Option<&str>| {
                    let mut args = args.clone();
                    if let Some(part) = part {
                        args.args[0] = ColumnarValue::Scalar(ScalarValue::from(part));
                    }
                    self.inner.invoke_with_args(args)?.to_array(rows)
                };
                match part.as_str() {
                    "MILLISECOND" => within_second(&of_inner(None)?, 1_000)?,
                    "MICROSECOND" => within_second(&of_inner(None)?, 1_000_000)?,
                    "NANOSECOND" => within_second(&of_inner(None)?, 1_000_000_000)?,
                    "MILLENNIUM" => of_years(&of_inner(Some("YEAR"))?, |y| counted_from_1(y, 1000)),
                    "CENTURY" => of_years(&of_inner(Some("YEAR"))?, |y| counted_from_1(y, 100)),
                    "DECADE" => of_years(&of_inner(Some("YEAR"))?, |y| y / 10),
                    _ => match of_clock(&part, &of) {
                        Some(parts) => parts,
                        None => of_inner(None)?,
                    },
                }
            }
        };
        result_of(&args, extracted)
    }
}

/// The hours, minutes or seconds of timestamps; `None` for other parts, and for times near the
/// ends of the calendar. DataFusion's function takes a date apart for each.
fn of_clock(part: &str, times: &ColumnarValue) -> Option<ArrayRef> {
    /// About 250,000 years.
    const FAR_SECONDS: i64 = 8_000_000_000_000;
    let (seconds, within) = match part {
        "HOUR" => (3_600, 24),
        "MINUTE" => (60, 60),
        "SECOND" => (1, 60),
        _ => return None,
    };
    let ColumnarValue::Array(times) = times else { return None };
    let DataType::Timestamp(unit, None) = times.data_type() else { return None };
    let ticks_per_second = i64::try_from(1_000_000_000 / tick_ns(*unit)).ok()?;
    let far = FAR_SECONDS.saturating_mul(ticks_per_second);
    let ticks = cast(times, &DataType::Int64).ok()?;
    let ticks = ticks.as_primitive::<Int64Type>();
    if !ticks.values().iter().all(|ticks| (-far..far).contains(ticks)) {
        return None;
    }
    let ticks_per_part = seconds * ticks_per_second;
    let value = |ticks: i64| ticks.div_euclid(ticks_per_part).rem_euclid(within) as i32;
    Some(Arc::new(ticks.unary::<_, Int32Type>(value)))
}

fn of_years(years: &ArrayRef, value: impl Fn(i32) -> i32) -> ArrayRef {
    let values: Int32Array = years.as_primitive::<Int32Type>().unary(value);
    Arc::new(values)
}

/// The number of a century or a millennium, of which the first begins with year 1. Year 0 is 0, as
/// in Flink, and what is before it is negative.
fn counted_from_1(year: i32, years: i32) -> i32 {
    (year + if year > 0 { years - 1 } else { 1 - years }) / years
}

/// Takes whole seconds off.
fn within_second(parts: &ArrayRef, second: i64) -> DfResult<ArrayRef> {
    let longs = cast(parts, &DataType::Int64)?;
    let within: Int64Array = longs.as_primitive::<Int64Type>().unary(|n| n % second);
    Ok(cast(&within, parts.data_type())?)
}

fn of_intervals(part: &str, intervals: &ArrayRef) -> DfResult<ArrayRef> {
    if let DataType::Duration(unit) = intervals.data_type() {
        let tick = tick_ns(*unit);
        let ticks = cast(intervals, &DataType::Int64)?;
        let ticks = ticks.as_primitive::<Int64Type>();
        return extracted(part, ticks.iter().map(|t| t.map(|t| (0, i128::from(t) * tick))));
    }
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let whole = |i: IntervalMonthDayNano| {
        (i64::from(i.months), i128::from(i.days) * DAY_NS + i128::from(i.nanoseconds))
    };
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    extracted(part, intervals.iter().map(|i| i.map(whole)))
}

/// A part of intervals of months and nanoseconds. All parts have the interval's sign.
fn extracted(
    part: &str,
    intervals: impl Iterator<Item = Option<(i64, i128)>>,
) -> DfResult<ArrayRef> {
    if part == "EPOCH" {
        let seconds = intervals.map(|i| i.map(epoch).transpose());
        return Ok(Arc::new(seconds.collect::<DfResult<Float64Array>>()?));
    }
    let unit = OF_INTERVALS.iter().find(|(name, ..)| *name == part);
    let value = |(months, ns): (i64, i128)| match (part, unit) {
        ("YEAR", _) => Ok(months / 12),
        ("MONTH", _) => Ok(months % 12),
        (_, Some((_, length, within))) => i64::try_from(ns % within / length)
            .map_err(|_| exec_datafusion_err!("the interval is too long")),
        _ => exec_err!("there is no {part} of an interval"),
    };
    let values = intervals.map(|i| i.map(value).transpose());
    Ok(Arc::new(values.collect::<Result<Int64Array, DataFusionError>>()?))
}

/// Seconds: the number nearest to the exact one.
fn epoch((months, ns): (i64, i128)) -> DfResult<f64> {
    const SECOND: i128 = 1_000_000_000;
    if months != 0 {
        return exec_err!("months have no certain number of seconds");
    }
    // Both numbers are exact as doubles, so that their quotient is rounded once.
    if ns.unsigned_abs() < 1 << 53 {
        return Ok(ns as f64 / SECOND as f64);
    }
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    let (seconds, rest) = (ns / SECOND.unsigned_abs(), ns % SECOND.unsigned_abs());
    let exact = format!("{sign}{seconds}.{rest:09}");
    exact.parse().map_err(|_| exec_datafusion_err!("{exact} is no number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, months: i64, ns: i128) -> i64 {
        let array = extracted(name, [Some((months, ns))].into_iter()).unwrap();
        array.as_primitive::<Int64Type>().value(0)
    }

    #[test]
    fn parts_of_an_interval_add_up_to_it() {
        // 33 days, 1:02:03.004005006.
        let ns = 33 * DAY_NS + 3_723_004_005_006;
        for sign in [1, -1] {
            for (name, value) in [
                ("DAY", 33),
                ("HOUR", 1),
                ("MINUTE", 2),
                ("SECOND", 3),
                ("MILLISECOND", 4),
                ("MICROSECOND", 4_005),
                ("NANOSECOND", 4_005_006),
            ] {
                assert_eq!(part(name, 0, sign * ns), sign as i64 * value, "{name}");
            }
        }
        assert_eq!((part("YEAR", 27, 0), part("MONTH", 27, 0)), (2, 3));
    }

    #[test]
    fn parts_of_the_clock_are_those_of_datafusion() {
        use arrow::array::TimestampMillisecondArray;
        use arrow::compute::{DatePart, date_part};
        let day = 86_400_000;
        let near = [-day - 1, -1, 0, 999, 1_000, 3_599_999, 3_600_000, day - 1, 1_436_918_400_123];
        let times = near.into_iter().map(Some).chain([None]).collect::<TimestampMillisecondArray>();
        let times: ArrayRef = Arc::new(times);
        for (part, theirs) in
            [("HOUR", DatePart::Hour), ("MINUTE", DatePart::Minute), ("SECOND", DatePart::Second)]
        {
            let own = of_clock(part, &ColumnarValue::Array(times.clone())).unwrap();
            assert_eq!(&own, &date_part(&times, theirs).unwrap(), "{part}");
            let far: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, i64::MAX]));
            assert!(of_clock(part, &ColumnarValue::Array(far)).is_none());
        }
        assert!(of_clock("DAY", &ColumnarValue::Array(times)).is_none());
    }

    /// By `DateTimeUtils.julianExtract` of Flink, whose division drops the fraction.
    #[test]
    fn centuries_begin_with_their_year_1() {
        for (year, century, millennium) in [
            (2001, 21, 3),
            (2000, 20, 2),
            (1996, 20, 2),
            (1901, 20, 2),
            (1900, 19, 2),
            (1, 1, 1),
            (0, 0, 0),
            (-1, -1, -1),
            (-101, -2, -1),
        ] {
            assert_eq!(counted_from_1(year, 100), century, "{year}");
            assert_eq!(counted_from_1(year, 1000), millennium, "{year}");
        }
    }

    #[test]
    fn seconds_of_an_interval_are_rounded_once() {
        assert_eq!(epoch((0, 3_650_000_000)).unwrap(), 3.65);
        assert_eq!(epoch((0, -1)).unwrap(), -1e-9);
        // 2^53 seconds and one nanosecond more than a half: the nearest double is the next one.
        assert_eq!(epoch((0, 9_007_199_254_740_993_000_000_001)).unwrap(), 9_007_199_254_740_994.0);
        assert!(epoch((1, 0)).is_err());
    }
}
