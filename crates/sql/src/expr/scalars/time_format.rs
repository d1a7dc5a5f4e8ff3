//! `DATE_FORMAT`, DataFusion's `to_char`, of many timestamps by one pattern. The pattern is read
//! once for a batch. Rows that follow each other often have the same day or the same minute, and
//! so the same text, which is written once for all of them.

use std::fmt::Write;

use arrow::array::StringArray;
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use chrono::format::{Fixed, Item, Numeric, StrftimeItems};
use chrono::{DateTime, NaiveDateTime};

use super::calendar::{DAY_NS, tick_ns};
use crate::syntax::prelude::*;

/// DataFusion's function, evaluated otherwise.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeFormat {
    inner: Arc<ScalarUDF>,
}

/// `to_char(time, pattern)`; `inner` is DataFusion's.
pub(super) fn time_format(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(TimeFormat { inner })
}

impl ScalarUDFImpl for TimeFormat {
    fn name(&self) -> &str {
        self.inner.name()
    }

    // Flink gives the alias `date_format` another meaning.

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        if let [ColumnarValue::Array(times), ColumnarValue::Scalar(pattern)] = &args.args[..]
            && let (DataType::Timestamp(unit, None), Some(Some(pattern))) =
                (times.data_type(), pattern.try_as_str())
            && let Some(texts) = Pattern::new(pattern, *unit).and_then(|p| p.texts(times))
        {
            return Ok(ColumnarValue::Array(Arc::new(texts)));
        }
        // DataFusion's function also gives the errors.
        self.inner.invoke_with_args(args)
    }
}

/// A pattern of `strftime` for timestamps.
struct Pattern<'a> {
    items: Vec<Item<'a>>,
    /// Ticks, counted from 1970, over which the text is the same.
    same: i64,
    ticks_per_second: i64,
}

/// Nanoseconds over which a part of a text is the same; `None` for a part that is an error.
fn same_ns(item: &Item<'_>) -> Option<i128> {
    use Fixed::{LongMonthName, LongWeekdayName, LowerAmPm, ShortMonthName, ShortWeekdayName};
    use Numeric::{Day, Hour, Hour12, Minute, Month, Ordinal, Second, Year, YearMod100};
    const SECOND_NS: i128 = 1_000_000_000;
    Some(match item {
        Item::Literal(_) | Item::OwnedLiteral(_) | Item::Space(_) | Item::OwnedSpace(_) => DAY_NS,
        Item::Numeric(Year | YearMod100 | Month | Day | Ordinal, _)
        | Item::Fixed(ShortMonthName | LongMonthName | ShortWeekdayName | LongWeekdayName) => {
            DAY_NS
        }
        Item::Numeric(Hour | Hour12 | Minute, _) | Item::Fixed(LowerAmPm | Fixed::UpperAmPm) => {
            60 * SECOND_NS
        }
        Item::Numeric(Second, _) => SECOND_NS,
        Item::Error => return None,
        _ => 1,
    })
}

impl Pattern<'_> {
    /// `None` if the pattern has an error.
    fn new(pattern: &str, unit: TimeUnit) -> Option<Pattern<'_>> {
        let items: Vec<Item> = StrftimeItems::new(pattern).collect();
        let all = items.iter().map(same_ns).collect::<Option<Vec<_>>>()?;
        let same_ns = all.into_iter().min().unwrap_or(DAY_NS);
        let tick_ns = tick_ns(unit);
        let same = i64::try_from((same_ns / tick_ns).max(1)).ok()?;
        let ticks_per_second = i64::try_from(1_000_000_000 / tick_ns).ok()?;
        Some(Pattern { items, same, ticks_per_second })
    }

    /// Texts of timestamps; `None` if a text cannot be made.
    fn texts(&self, times: &ArrayRef) -> Option<StringArray> {
        let ticks = cast(times, &DataType::Int64).ok()?;
        let ticks = ticks.as_primitive::<Int64Type>();
        let (mut texts, mut text) = (Vec::new(), String::new());
        let mut offsets = Vec::with_capacity(ticks.len() + 1);
        offsets.push(0);
        // The times of the text at hand: from the first one, so many.
        let (mut first, mut count) = (0, 0);
        for (row, time) in ticks.values().iter().enumerate() {
            if ticks.is_valid(row) {
                if time.wrapping_sub(first) as u64 >= count {
                    text.clear();
                    write!(text, "{}", self.clock(*time)?.format_with_items(self.items.iter()))
                        .ok()?;
                    (first, count) = (time - time.rem_euclid(self.same), self.same as u64);
                    texts.reserve(text.len() * (ticks.len() - row).min(1024));
                }
                texts.extend_from_slice(text.as_bytes());
            }
            offsets.push(i32::try_from(texts.len()).ok()?);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        StringArray::try_new(offsets, Buffer::from_vec(texts), ticks.nulls().cloned()).ok()
    }

    /// The time of a clock; `None` if the calendar does not reach as far.
    fn clock(&self, ticks: i64) -> Option<NaiveDateTime> {
        let second = ticks.div_euclid(self.ticks_per_second);
        let rest = ticks.rem_euclid(self.ticks_per_second);
        let ns = u32::try_from(rest * (1_000_000_000 / self.ticks_per_second)).ok()?;
        DateTime::from_timestamp(second, ns).map(|time| time.naive_utc())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
        TimestampSecondArray,
    };
    use datafusion_common::config::ConfigOptions;

    use super::*;

    /// The texts that a function gives; `None` if it fails.
    fn texts(function: &ScalarUDF, times: &ArrayRef, pattern: &str) -> Option<ArrayRef> {
        let types = [times.data_type().clone(), DataType::Utf8];
        let args = ScalarFunctionArgs {
            args: vec![
                ColumnarValue::Array(times.clone()),
                ColumnarValue::Scalar(ScalarValue::from(pattern)),
            ],
            arg_fields: types.map(|t| Arc::new(Field::new("", t, true))).to_vec(),
            number_rows: times.len(),
            return_field: Arc::new(Field::new("", DataType::Utf8, true)),
            config_options: Arc::new(ConfigOptions::default()),
        };
        function.invoke_with_args(args).ok()?.into_array(times.len()).ok()
    }

    /// Times around the bounds of days, minutes and seconds, before and after 1970, with NULLs.
    fn times(unit: TimeUnit) -> ArrayRef {
        let second = i64::try_from(1_000_000_000 / tick_ns(unit)).unwrap();
        let mut all = vec![None];
        for base in [-86_400 * 366, -60, 0, 1_436_918_400, 1_436_918_460] {
            for ticks in [-second - 1, -second, -1, 0, 1, second - 1, second, 59 * second] {
                all.extend([Some(base * second + ticks); 2]);
            }
            all.push(None);
        }
        match unit {
            TimeUnit::Second => Arc::new(TimestampSecondArray::from(all)),
            TimeUnit::Millisecond => Arc::new(TimestampMillisecondArray::from(all)),
            TimeUnit::Microsecond => Arc::new(TimestampMicrosecondArray::from(all)),
            TimeUnit::Nanosecond => Arc::new(TimestampNanosecondArray::from(all)),
        }
    }

    #[test]
    fn texts_are_those_of_datafusion() {
        let theirs = datafusion_functions::datetime::to_char();
        let own = time_format(theirs.clone());
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        for unit in [Second, Millisecond, Microsecond, Nanosecond] {
            let times = times(unit);
            for pattern in [
                "%Y-%m-%d",
                "%H:%M",
                "%-H:%-M:%S",
                "%Y-%m-%d %H:%M:%S.%3f",
                "%6f",
                "%9f",
                "%y %B %b %-m %-d %j %A %a",
                "%I %-I %p %P",
                "%s %u %w %U %W %V %G %g %C %e %D %F %T %R %r %c %x %X %.3f %% %n%t",
                "day: ä",
                "",
            ] {
                let made = texts(&own, &times, pattern).expect(pattern);
                assert_eq!(&made, &texts(&theirs, &times, pattern).unwrap(), "{pattern}");
                let slice = times.slice(3, 20);
                assert_eq!(&texts(&own, &slice, pattern).unwrap(), &made.slice(3, 20), "{pattern}");
            }
            for wrong in ["%Q", "%Z"] {
                assert_eq!(texts(&own, &times, wrong), texts(&theirs, &times, wrong), "{wrong}");
            }
        }
        let far: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, i64::MAX]));
        assert!(texts(&theirs, &far, "%Y").is_none() && texts(&own, &far, "%Y").is_none());
    }
}
