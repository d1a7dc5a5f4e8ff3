//! `TO_TIMESTAMP` of a text, which gives a `TIMESTAMP(3)`, and `TO_TIMESTAMP_LTZ`, as in Flink.
//! DataFusion reads a text as nanoseconds, which reach only to 2262: `9999-12-31` would be an
//! error. An instant that is made of a number does not depend on the session's time zone.

use arrow::array::TimestampMillisecondArray;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Float64Type, TimestampMillisecondType};
use chrono::DateTime;
use millstream_contract::zone::Zone;

use super::by_pattern::by_pattern;
use super::clock_texts::{has_offset, texts_as_times};
use super::local::zone_of;
use super::stamps::read_time_type;
use crate::expr::udf::{called, first_array, no_such, result_of, rows_of};
use crate::syntax::prelude::*;
use crate::syntax::types::UTC;

const MILLIS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// `TO_TIMESTAMP` or `TO_TIMESTAMP_MILLIS`, which also stands for the former with a pattern;
/// `inner` is DataFusion's, for what is no text.
pub(super) fn to_timestamp(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(ToTimestamp(inner))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp(Arc<ScalarUDF>);

impl ToTimestamp {
    /// Whether the text has a pattern that gives milliseconds.
    fn has_pattern(&self, types: &[DataType]) -> bool {
        self.0.name() == "to_timestamp_millis"
            && types.len() == 2
            && types.iter().all(DataType::is_string)
    }
}

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [text] if text.is_string() => Ok(MILLIS),
            _ => self.0.return_type(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        match &args.args[..] {
            [text] if types[0].is_string() => {
                result_of(&args, texts_as_times(&text.to_array(rows_of(&args))?, &MILLIS, false)?)
            }
            [text, pattern] if self.has_pattern(&types) => {
                let rows = rows_of(&args);
                result_of(&args, read(&text.to_array(rows)?, &pattern.to_array(rows)?)?)
            }
            _ => self.0.invoke_with_args(args),
        }
    }
}

fn read(texts: &ArrayRef, patterns: &ArrayRef) -> DfResult<ArrayRef> {
    let (texts, patterns) = (cast(texts, &DataType::Utf8)?, cast(patterns, &DataType::Utf8)?);
    let pairs = texts.as_string::<i32>().iter().zip(patterns.as_string::<i32>());
    let times = pairs.map(|(text, pattern)| match text.zip(pattern) {
        Some((text, pattern)) => millis_of(text, pattern).map(Some),
        None => Ok(None),
    });
    Ok(Arc::new(times.collect::<DfResult<TimestampMillisecondArray>>()?))
}

/// Milliseconds since 1970 in UTC of a text by a pattern.
fn millis_of(text: &str, pattern: &str) -> DfResult<i64> {
    by_pattern(text, pattern).map(|(local, ahead)| local - ahead.unwrap_or(0))
}

/// `TO_TIMESTAMP_LTZ(text)`, `TO_TIMESTAMP_LTZ(milliseconds)` or `TO_TIMESTAMP_LTZ(number,
/// digits)`, where the digits are a constant: 0 if the number counts seconds, 3 if it counts
/// milliseconds.
pub(super) fn to_timestamp_ltz() -> ScalarUDF {
    ScalarUDF::from(ToTimestampLtz)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestampLtz;

impl ScalarUDFImpl for ToTimestampLtz {
    called!("to_timestamp_ltz", CHECKED, read_time_type());

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let number = |given: &DataType| {
            (given.is_null() || given.is_numeric()).then_some(match given.is_floating() {
                true => DataType::Float64,
                false => DataType::Int64,
            })
        };
        let coerced = match types {
            [text] if text.is_string() => Some(vec![DataType::Utf8]),
            [count] => number(count).map(|count| vec![count]),
            [count, digits] if digits.is_integer() => {
                number(count).map(|count| vec![count, DataType::Int64])
            }
            _ => None,
        };
        let takes = "TO_TIMESTAMP_LTZ(milliseconds), TO_TIMESTAMP_LTZ(seconds, 0) or a text";
        coerced.map_or_else(|| no_such("TO_TIMESTAMP_LTZ", types, takes), Ok)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let millis_in_one = match args.args.get(1) {
            None | Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(3)))) => 1,
            Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(0)))) => 1_000,
            _ => return exec_err!("the second argument of TO_TIMESTAMP_LTZ must be 0 or 3"),
        };
        let counts = first_array(&args)?;
        let instants = match counts.data_type() {
            DataType::Utf8 => instants_of_texts(&counts, zone_of(&args.config_options))?,
            _ => instants(&counts, millis_in_one)?,
        };
        result_of(&args, instants)
    }
}

/// Instants of texts, those without an offset from UTC by a clock of the zone.
fn instants_of_texts(texts: &ArrayRef, zone: Option<&Zone>) -> DfResult<ArrayRef> {
    let instants = texts_as_times(texts, &read_time_type(), false)?;
    let Some(zone) = zone else { return Ok(instants) };
    let mut clock = zone.clock();
    let millis = instants.as_primitive::<TimestampMillisecondType>().iter();
    let pairs = millis.zip(texts.as_string::<i32>());
    let moved = pairs.map(|(millis, text)| {
        let (millis, text) = millis.zip(text)?;
        let local = (!has_offset(text)).then(|| millis.saturating_mul(1_000));
        Some(local.map_or(millis, |us| clock.instant(us).div_euclid(1_000)))
    });
    Ok(Arc::new(moved.collect::<TimestampMillisecondArray>().with_timezone(UTC)))
}

fn instants(counts: &ArrayRef, millis_in_one: i64) -> DfResult<ArrayRef> {
    let strict = CastOptions { safe: false, ..Default::default() };
    let millis: ArrayRef = match counts.data_type() {
        // What is behind the point of seconds counts.
        DataType::Float64 => {
            let doubles = counts.as_primitive::<Float64Type>();
            let millis = doubles.unary::<_, Float64Type>(|count| count * millis_in_one as f64);
            cast_with_options(&millis, &DataType::Int64, &strict)?
        }
        _ => counts.clone(),
    };
    let factor = if counts.data_type().is_floating() { 1 } else { millis_in_one };
    let instant = |count: i64| {
        let millis = count.checked_mul(factor);
        let known = millis.filter(|millis| DateTime::from_timestamp_millis(*millis).is_some());
        known.ok_or_else(|| exec_datafusion_err!("the time is out of range"))
    };
    let instants = millis.as_primitive::<Int64Type>().iter();
    let instants = instants.map(|count| count.map(instant).transpose());
    let instants = instants.collect::<DfResult<TimestampMillisecondArray>>()?;
    Ok(Arc::new(instants.with_timezone(UTC)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array};
    use arrow::datatypes::TimestampMillisecondType;

    use super::*;

    /// Days since 1970 and seconds of the day, counted by hand.
    #[test]
    fn texts_are_read_by_patterns_in_all_years() {
        const DAY_MS: i64 = 86_400_000;
        for (text, pattern, millis) in [
            ("1970-01-02", "%Y-%m-%d", DAY_MS),
            ("1969-12-31 23:59:59.999900", "%Y-%m-%d %H:%M:%S.%6f", -1),
            ("9999-12-31 23:59:59", "%Y-%m-%d %H:%M:%S", 2_932_897 * DAY_MS - 1_000),
        ] {
            assert_eq!(millis_of(text, pattern).unwrap(), millis, "{text}");
        }
        assert!(millis_of("1970-02-30", "%Y-%m-%d").is_err());
    }

    #[test]
    fn numbers_are_instants() {
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(-1)]));
        let of = |instants: &ArrayRef| -> Vec<_> {
            instants.as_primitive::<TimestampMillisecondType>().iter().collect()
        };
        assert_eq!(of(&instants(&counts, 1).unwrap()), [Some(1), None, Some(-1)]);
        assert_eq!(of(&instants(&counts, 1_000).unwrap()), [Some(1_000), None, Some(-1_000)]);
        let seconds: ArrayRef = Arc::new(Float64Array::from(vec![1.5]));
        assert_eq!(of(&instants(&seconds, 1_000).unwrap()), [Some(1_500)]);
        let far: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
        assert!(instants(&far, 1).is_err() && instants(&far, 1_000).is_err());
    }
}
