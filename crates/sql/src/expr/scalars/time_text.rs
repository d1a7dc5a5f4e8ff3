//! Timestamps and intervals as strings, the way results show them. Timestamps are as in Flink:
//! `2024-01-31 12:30:00.000`, with all digits of the type, and a `Z` for one with a time zone.
//! Intervals are `1 day 02:00:00`. DataFusion's CAST writes ISO 8601 with as many digits as needed,
//! and `1 days 2 hours`.

use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{IntervalMonthDayNanoType, IntervalUnit};
use arrow::util::display::FormatOptions;
use millstream_contract::interval::{write_duration, write_interval};

use super::interval_order::lengths;
use crate::expr::udf::{argument_of, call_of, called, first};
use crate::syntax::prelude::*;

/// Replaces the CASTs of timestamps and intervals to text in `expr`, which is over `schema`.
pub(crate) fn write_times(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    expr.replaced(|e| {
        let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = e else {
            return Ok(None);
        };
        use DataType::{Duration, Interval, Timestamp};
        let from_time = matches!(expr.get_type(schema)?, Timestamp(..) | Interval(_) | Duration(_));
        let written = from_time && *field.data_type() == DataType::Utf8;
        Ok(written.then(|| call_of(TimeText, vec![expr.as_ref().clone()])))
    })
}

/// The operand of a cast of a time to text; `None` if `expr` is no such cast.
pub(crate) fn written_time(expr: &Expr) -> Option<&Expr> {
    argument_of::<TimeText>(expr)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeText;

impl ScalarUDFImpl for TimeText {
    called!("time_text", ONE, DataType::Utf8);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let times = first(&args.args)?.into_array(args.number_rows)?;
        let unit = match times.data_type() {
            DataType::Timestamp(unit, _) => unit,
            DataType::Interval(_) | DataType::Duration(_) => {
                return Ok(ColumnarValue::Array(Arc::new(interval_texts(&times)?)));
            }
            _ => return exec_err!("time_text takes a time"),
        };
        let (plain, zoned) = formats(unit);
        let format_options = FormatOptions::new()
            .with_timestamp_format(Some(plain))
            .with_timestamp_tz_format(Some(zoned));
        let options = CastOptions { safe: false, format_options };
        Ok(ColumnarValue::Array(cast_with_options(&times, &DataType::Utf8, &options)?))
    }
}

fn interval_texts(intervals: &ArrayRef) -> DfResult<StringArray> {
    let mut text = Vec::new();
    let mut written = |write: &dyn Fn(&mut Vec<u8>)| {
        text.clear();
        write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    if matches!(intervals.data_type(), DataType::Duration(_)) {
        let nanos = lengths(intervals)?;
        let texts = nanos.iter().map(|n| n.map(|n| written(&|out| write_duration(n, out))));
        return Ok(texts.collect());
    }
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let texts = intervals.iter().map(|interval| {
        let i = interval?;
        let (months, days, nanos) = (i.months.into(), i.days.into(), i.nanoseconds.into());
        Some(written(&|out| write_interval(months, days, nanos, out)))
    });
    Ok(texts.collect())
}

/// chrono's formats for timestamps without and with a zone.
fn formats(unit: &TimeUnit) -> (&'static str, &'static str) {
    match unit {
        TimeUnit::Second => ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%SZ"),
        TimeUnit::Millisecond => ("%Y-%m-%d %H:%M:%S%.3f", "%Y-%m-%d %H:%M:%S%.3fZ"),
        TimeUnit::Microsecond => ("%Y-%m-%d %H:%M:%S%.6f", "%Y-%m-%d %H:%M:%S%.6fZ"),
        TimeUnit::Nanosecond => ("%Y-%m-%d %H:%M:%S%.9f", "%Y-%m-%d %H:%M:%S%.9fZ"),
    }
}
