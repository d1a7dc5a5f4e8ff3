//! `ROUND` and `TRUNCATE` to any number of digits. DataFusion's give NaN for doubles where the
//! power of ten is out of range, and truncate integers as doubles.

use arrow::array::{Decimal128Array, Float32Array, Float64Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, Decimal128Type, Float64Type};
use arrow::error::ArrowError;

use super::exact::rounded;
use crate::expr::udf::{called, no_such, result_of, rows_of};
use crate::expr::widest::check_digits;
use crate::syntax::prelude::*;

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToDigits {
    inner: Arc<ScalarUDF>,
    truncate: bool,
}

/// `ROUND(x [, digits])` or `TRUNCATE(x [, digits])`; `inner` is DataFusion's.
pub(super) fn to_digits(inner: Arc<ScalarUDF>) -> ScalarUDF {
    let truncate = inner.name() == "trunc";
    ScalarUDF::from(ToDigits { inner, truncate })
}

impl ScalarUDFImpl for ToDigits {
    called!(like inner, CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let number = |t: &DataType| t.is_null() || t.is_numeric();
        let digits = |t: &DataType| t.is_null() || t.is_integer();
        // DataFusion's ROUND counts digits in an INT.
        let count = if self.truncate { DataType::Int64 } else { DataType::Int32 };
        let first = |t: &DataType| if t.is_null() { DataType::Float64 } else { t.clone() };
        match types {
            [x] if number(x) => Ok(vec![first(x)]),
            [x, n] if number(x) && digits(n) => Ok(vec![first(x), count]),
            _ => {
                let name = self.name().to_uppercase();
                no_such(&name, types, &format!("{name}(number) or {name}(number, INT)"))
            }
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        match args.arg_fields.first() {
            Some(x) if x.data_type().is_integer() => Ok(x.clone()),
            Some(x) if let DataType::Decimal128(precision, scale) = x.data_type() => {
                let has_digits = args.arg_fields.len() > 1;
                let (precision, scale) = self.digits_of_result(*precision, *scale, has_digits);
                let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
                let data_type = DataType::Decimal128(precision, scale);
                Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
            }
            _ => self.inner.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Some(x) = args.args.first() else { return exec_err!("{} needs a number", self.name()) };
        let data_type = x.data_type();
        let own = data_type.is_floating()
            || matches!(data_type, DataType::Decimal128(..))
            || self.truncate && data_type.is_integer();
        if !own {
            return self.inner.invoke_with_args(args);
        }
        let rows = rows_of(&args);
        let x = x.to_array(rows)?;
        let digits = match args.args.get(1) {
            Some(digits) => cast(&digits.to_array(rows)?, &DataType::Int64)?,
            None => Arc::new(Int64Array::from_value(0, rows)),
        };
        let digits = digits.as_primitive::<Int64Type>();
        let result = match x.data_type() {
            DataType::Float32 | DataType::Float64 => self.doubles(&x, digits)?,
            DataType::Decimal128(_, scale) => {
                self.decimals(&x, digits, *scale, args.return_field.data_type())?
            }
            _ => integers(&x, digits)?,
        };
        result_of(&args, result)
    }
}

impl ToDigits {
    /// Digits of the result for a decimal, and how many of them are behind the point. They do not
    /// depend on a number of digits that is given: it need not be the same for every row.
    fn digits_of_result(&self, precision: u8, scale: i8, has_digits: bool) -> (u8, i8) {
        let kept = if has_digits { scale } else { 0 };
        let left_out = u8::try_from(scale - kept).unwrap_or(0);
        // 9.9 becomes 10.
        let more = u8::from(!self.truncate);
        let precision = (precision - left_out + more).clamp(1, DECIMAL128_MAX_PRECISION);
        (precision, kept)
    }

    fn decimals(
        &self,
        x: &ArrayRef,
        digits: &Int64Array,
        scale: i8,
        to: &DataType,
    ) -> DfResult<ArrayRef> {
        /// The greatest power of ten that 128 bits hold.
        const POWER_MAX: i64 = 38;
        let DataType::Decimal128(precision, kept) = *to else {
            return internal_err!("a decimal becomes one");
        };
        let overflow = || ArrowError::ArithmeticOverflow("the rounded number".into());
        let value = |x: i128, n: i64| {
            let n = n.clamp(i64::from(scale) - POWER_MAX - 1, i64::from(scale));
            let (down, up) = (i64::from(scale) - n, i64::from(kept) - n);
            let value = match u32::try_from(down).ok().and_then(|down| 10_i128.checked_pow(down)) {
                None => 0,
                Some(power) if self.truncate => x / power,
                Some(power) => rounded(x, power).ok_or_else(overflow)?,
            };
            let power = u32::try_from(up).ok().and_then(|up| 10_i128.checked_pow(up));
            let value = match value {
                0 => 0,
                value => power.and_then(|p| value.checked_mul(p)).ok_or_else(overflow)?,
            };
            check_digits(value, precision, kept).map(|()| value)
        };
        let x = x.as_primitive::<Decimal128Type>().iter().zip(digits);
        let values = x.map(|(x, n)| x.zip(n).map(|(x, n)| value(x, n)).transpose());
        let values = values.collect::<Result<Decimal128Array, ArrowError>>()?;
        Ok(Arc::new(values.with_precision_and_scale(precision, kept)?))
    }

    fn doubles(&self, x: &ArrayRef, digits: &Int64Array) -> DfResult<ArrayRef> {
        let operation = if self.truncate { f64::trunc } else { f64::round };
        let x_type = x.data_type();
        let doubles = cast(x, &DataType::Float64)?;
        let pairs = doubles.as_primitive::<Float64Type>().iter().zip(digits);
        let doubles = pairs.map(|(x, n)| match (x, n) {
            (Some(x), Some(n)) => {
                let result = to_place(x, n, operation);
                if result.is_infinite() && x.is_finite() {
                    return exec_err!("{x:?} does not fit {}", sql_type_name(x_type));
                }
                Ok(Some(result))
            }
            _ => Ok(None),
        });
        Ok(match x.data_type() {
            DataType::Float32 => {
                let floats = doubles.map(|x| Ok(x?.map(|x| x as f32)));
                Arc::new(floats.collect::<DfResult<Float32Array>>()?)
            }
            _ => Arc::new(doubles.collect::<DfResult<Float64Array>>()?),
        })
    }
}

/// Applies `operation`, which makes a number whole, at the `digits`th place after the point.
fn to_place(x: f64, digits: i64, operation: fn(f64) -> f64) -> f64 {
    /// The greatest power of ten.
    const POWER_MAX: i64 = 308;
    /// From here on doubles have no digits after the point.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    if digits < 0 {
        let places = digits.saturating_neg();
        let power = power_of_ten(places.min(POWER_MAX));
        return if places > POWER_MAX { 0.0f64.copysign(x) } else { operation(x / power) * power };
    }
    // Two steps, for numbers that are smaller than any power of ten.
    let first = power_of_ten(digits.min(POWER_MAX));
    let second = power_of_ten((digits - POWER_MAX).clamp(0, 40));
    let shifted = x * first * second;
    if !shifted.is_finite() || shifted.abs() >= WHOLE {
        return x;
    }
    operation(shifted) / second / first
}

/// The double next to 10^n.
fn power_of_ten(n: i64) -> f64 {
    /// Up to here all factors on the way are doubles themselves.
    const EXACT_MAX: i64 = 22;
    match n {
        ..=EXACT_MAX => 10f64.powi(n as i32),
        _ => format!("1e{n}").parse().unwrap_or(f64::INFINITY),
    }
}

/// Whole numbers without their last digits.
fn integers(x: &ArrayRef, digits: &Int64Array) -> DfResult<ArrayRef> {
    if digits.null_count() == 0 && digits.iter().flatten().all(|n| n >= 0) {
        return Ok(x.clone());
    }
    let wide = cast(x, &DataType::Decimal128(20, 0))?;
    let wide = wide.as_primitive::<Decimal128Type>();
    let truncated = wide.iter().zip(digits).map(|(x, n)| {
        let (x, n) = (x?, n?);
        let power = u32::try_from(n.min(0).unsigned_abs()).ok().and_then(|n| 10i128.checked_pow(n));
        Some(power.map_or(0, |power| x - x % power))
    });
    let truncated: Decimal128Array = truncated.collect();
    let truncated = truncated.with_precision_and_scale(20, 0)?;
    Ok(cast(&truncated, x.data_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_digits_is_possible() {
        for (x, digits, rounded, truncated) in [
            (1.55, 1, 1.6, 1.5),
            (-1.55, 1, -1.6, -1.5),
            (1.5, 310, 1.5, 1.5),
            (1.5, 400, 1.5, 1.5),
            (1.5, i64::MAX, 1.5, 1.5),
            (5e-324, 310, 0.0, 0.0),
            (1.26e-310, 311, 1.3e-310, 1.2e-310),
            (f64::MAX, 2, f64::MAX, f64::MAX),
            (1250.0, -2, 1300.0, 1200.0),
            (f64::MAX, -309, 0.0, 0.0),
            (f64::MAX, i64::MIN, 0.0, 0.0),
            (f64::INFINITY, 400, f64::INFINITY, f64::INFINITY),
        ] {
            let near = |a: f64, b: f64| a == b || (a - b).abs() <= b.abs() * 1e-13;
            assert!(near(to_place(x, digits, f64::round), rounded), "round {x} {digits}");
            assert!(near(to_place(x, digits, f64::trunc), truncated), "trunc {x} {digits}");
        }
        assert!(to_place(f64::NAN, 400, f64::round).is_nan());
        assert_eq!(to_place(1e308, -308, f64::round), 1e308);
    }

    #[test]
    fn whole_numbers_stay_whole() {
        let x: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN, 987, -987, 5]));
        let digits = Int64Array::from(vec![0, -1, -2, -2, -400]);
        let truncated = integers(&x, &digits).unwrap();
        let expected = [i64::MAX, -9_223_372_036_854_775_800, 900, -900, 0];
        assert_eq!(truncated.as_primitive::<Int64Type>().values(), &expected);
    }
}
