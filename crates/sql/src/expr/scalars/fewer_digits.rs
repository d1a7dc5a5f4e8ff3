//! Timestamps with fewer digits: what is left out is rounded down, before 1970 as after it. Arrow
//! cuts off the count since 1970, and so makes times before it later.

use crate::syntax::prelude::*;

use arrow::compute::{CastOptions, cast_with_options};

use super::calendar::tick_ns;

/// How many ticks of one type are one of the other, if both are timestamps, and the other has fewer
/// digits.
pub(super) fn ticks_in_one(from: &DataType, to: &DataType) -> Option<i64> {
    let (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) = (from, to) else {
        return None;
    };
    i64::try_from(tick_ns(*to) / tick_ns(*from)).ok().filter(|ticks| *ticks > 1)
}

/// Timestamps as `to`, whose tick is `ticks` ticks of `times`; NULL for failures if it `tries`.
pub(super) fn rounded_down(
    times: &ArrayRef,
    to: &DataType,
    ticks: i64,
    tries: bool,
) -> DfResult<ArrayRef> {
    let counts = cast(times, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let fewer: Int64Array = counts.unary(|count| count.div_euclid(ticks));
    let fewer: ArrayRef = Arc::new(fewer);
    Ok(match (times.data_type(), to) {
        // The zone of the source first, as it says which instants these are.
        (DataType::Timestamp(_, zone), DataType::Timestamp(unit, _)) => {
            let fewer = cast(&fewer, &DataType::Timestamp(*unit, zone.clone()))?;
            cast_with_options(&fewer, to, &CastOptions { safe: tries, ..Default::default() })?
        }
        _ => cast(&fewer, to)?,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{TimestampMicrosecondArray, TimestampMillisecondArray};
    use arrow::datatypes::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    use arrow::datatypes::{TimestampMillisecondType, TimestampSecondType};

    use super::*;

    #[test]
    fn only_fewer_digits_are_rounded() {
        let of = |unit| DataType::Timestamp(unit, None);
        assert_eq!(ticks_in_one(&of(Nanosecond), &of(Millisecond)), Some(1_000_000));
        assert_eq!(ticks_in_one(&of(Microsecond), &of(Second)), Some(1_000_000));
        assert_eq!(ticks_in_one(&of(Millisecond), &of(Millisecond)), None);
        assert_eq!(ticks_in_one(&of(Millisecond), &of(Microsecond)), None);
        assert_eq!(ticks_in_one(&of(Millisecond), &DataType::Date32), None);
    }

    #[test]
    fn times_before_1970_are_rounded_down_too() {
        // …59.999999, …00.001500 and 1970-01-01 00:00:00.
        let micros = vec![Some(-1), Some(1_500), Some(0), None, Some(i64::MIN)];
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(micros));
        let utc = DataType::Timestamp(Millisecond, Some("UTC".into()));
        // The last one is out of the calendar, which a zone needs.
        let local = DataType::Timestamp(Millisecond, None);
        for (to, last) in [(local, Some(-9_223_372_036_854_776)), (utc.clone(), None)] {
            let fewer = rounded_down(&times, &to, 1_000, true).unwrap();
            assert_eq!(*fewer.data_type(), to);
            let values: Vec<_> = fewer.as_primitive::<TimestampMillisecondType>().iter().collect();
            assert_eq!(values, [Some(-1), Some(1), Some(0), None, last]);
        }
        assert!(rounded_down(&times, &utc, 1_000, false).is_err());
        let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![-1, -1_000, 1_999]));
        let seconds =
            rounded_down(&millis, &DataType::Timestamp(Second, None), 1_000, false).unwrap();
        assert_eq!(seconds.as_primitive::<TimestampSecondType>().values(), &[-1, -1, 1]);
    }
}
