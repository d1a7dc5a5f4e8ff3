//! Casts between numbers and texts, and of timestamps to fewer digits, as in Flink. A `DOUBLE` is
//! written as Java writes it, `1.0E10`, and a text may have digits after its point although an
//! integer is wanted: `'12.7'` is 12. DataFusion writes `10000000000.0`, and refuses the other.
//! Timestamps are rounded down. Texts are times of a clock ([`super::clock_texts`]).

use std::fmt::{Debug, LowerExp};

use arrow::array::{ArrowPrimitiveType, PrimitiveArray};
use arrow::datatypes::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow::error::ArrowError;

use super::clock_texts::{is_time, texts_as_times};
use super::fewer_digits::{rounded_down, ticks_in_one};
use crate::expr::udf::{call_of, called, called_in, first, first_array, result_of};
use crate::syntax::prelude::*;

/// Replaces such casts in `expr`, which is over `schema`.
pub(super) fn cast_numbers(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let own = expr.changed_up(|e| {
        let (of, to, tries) = match &e {
            Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
            Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
            _ => return Ok(Transformed::no(e)),
        };
        let from = of.get_type(schema)?;
        let reads_text = from == DataType::Utf8 && (to.is_integer() || is_time(to));
        let is_double = matches!(from, DataType::Float32 | DataType::Float64);
        let writes_double = is_double && *to == DataType::Utf8;
        if !reads_text && !writes_double && ticks_in_one(&from, to).is_none() {
            return Ok(Transformed::no(e));
        }
        if let (false, Expr::Literal(ScalarValue::Utf8(Some(text)), _)) = (tries, of.as_ref()) {
            let one: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
            read_texts(&one, to, false)?;
        }
        let function = NumberCast { to: to.clone(), tries };
        Ok(Transformed::yes(call_of(function, vec![of.as_ref().clone()])))
    })?;
    Ok(own.data)
}

/// The operand, the type, and whether failures give NULL, if `expr` is a cast of numbers.
pub(crate) fn number_cast(expr: &Expr) -> Option<(&Expr, &DataType, bool)> {
    let (NumberCast { to, tries }, args) = called_in(expr)?;
    Some((args.first()?, to, *tries))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberCast {
    to: DataType,
    /// `TRY_CAST`.
    tries: bool,
}

impl ScalarUDFImpl for NumberCast {
    called!("$number_cast", ONE);

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let nullable = self.tries || first(args.arg_fields)?.is_nullable();
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let values = first_array(&args)?;
        let made = match &self.to {
            to if let Some(ticks) = ticks_in_one(values.data_type(), to) => {
                rounded_down(&values, to, ticks, self.tries)?
            }
            DataType::Utf8 => doubles_as_texts(&values)?,
            to => read_texts(&values, to, self.tries)?,
        };
        result_of(&args, made)
    }
}

fn doubles_as_texts(values: &ArrayRef) -> DfResult<ArrayRef> {
    let texts: StringArray = match values.data_type() {
        DataType::Float32 => {
            values.as_primitive::<Float32Type>().iter().map(|n| n.map(java_text)).collect()
        }
        DataType::Float64 => {
            values.as_primitive::<Float64Type>().iter().map(|n| n.map(java_text)).collect()
        }
        other => return exec_err!("{other} is no floating point number"),
    };
    Ok(Arc::new(texts))
}

/// A number with as few digits as tell it from all others, but two at least, as `Double.toString`
/// and `Float.toString` write it: with an exponent below 0.001 and from 10,000,000 on.
fn java_text(value: impl Copy + Debug + LowerExp + Into<f64>) -> String {
    let wide = value.into();
    let magnitude = wide.abs();
    if wide.is_nan() {
        "NaN".into()
    } else if wide.is_infinite() {
        if wide > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else if wide == 0.0 || (1e-3..1e7).contains(&magnitude) {
        // Rust has no exponent in this range.
        format!("{value:?}")
    } else {
        let shortest = format!("{value:e}");
        let digits = if shortest.contains('.') { shortest } else { format!("{value:.1e}") };
        digits.replace('e', "E")
    }
}

/// Values of texts in the type `to`; if it `tries`, NULL for texts without a value.
fn read_texts(texts: &ArrayRef, to: &DataType, tries: bool) -> DfResult<ArrayRef> {
    if is_time(to) { texts_as_times(texts, to, tries) } else { texts_as_integers(texts, to, tries) }
}

fn texts_as_integers(texts: &ArrayRef, to: &DataType, tries: bool) -> DfResult<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    match to {
        DataType::Int8 => integers::<Int8Type>(texts, tries),
        DataType::Int16 => integers::<Int16Type>(texts, tries),
        DataType::Int32 => integers::<Int32Type>(texts, tries),
        DataType::Int64 => integers::<Int64Type>(texts, tries),
        DataType::UInt8 => integers::<UInt8Type>(texts, tries),
        DataType::UInt16 => integers::<UInt16Type>(texts, tries),
        DataType::UInt32 => integers::<UInt32Type>(texts, tries),
        DataType::UInt64 => integers::<UInt64Type>(texts, tries),
        other => exec_err!("{other} is no integer"),
    }
}

fn integers<T>(texts: &StringArray, tries: bool) -> DfResult<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let read = |text: &str| {
        let integer = integer(text).and_then(|n| T::Native::try_from(n).ok());
        if integer.is_none() && !tries {
            let to = T::DATA_TYPE;
            let error = format!("Cannot cast string '{text}' to value of {to} type");
            return Err(ArrowError::CastError(error));
        }
        Ok(integer)
    };
    let integers = texts.iter().map(|text| text.map_or(Ok(None), read));
    Ok(Arc::new(integers.collect::<Result<PrimitiveArray<T>, ArrowError>>()?))
}

/// A sign, digits, and a point with digits that do not count. Either digits or the point may be
/// missing, as in Flink, where `.` is 0.
fn integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if unsigned.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let add = |sum: i128, digit: u8| sum.checked_mul(10)?.checked_add(i128::from(digit - b'0'));
    let size = whole.bytes().try_fold(0, add)?;
    Some(if text.starts_with('-') { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the rules of `Double.toString`; the first ones are of Flink's CastRulesTest, and of
    /// Trino's tests of casts that follow Java.
    #[test]
    fn doubles_are_written_as_java_writes_them() {
        for (value, text) in [
            (12345.678901, "12345.678901"),
            (12345678.9, "1.23456789E7"),
            (0.00001, "1.0E-5"),
            (-1200.0, "-1200.0"),
            (1e10, "1.0E10"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (1_234_567.5, "1234567.5"),
            (0.001, "0.001"),
            (0.000_999, "9.99E-4"),
            (0.25, "0.25"),
            (100.0, "100.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (f64::MAX, "1.7976931348623157E308"),
            (5e-324, "4.9E-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(java_text(value), text);
        }
        for (value, text) in [(-123.456f32, "-123.456"), (f32::MAX, "3.4028235E38"), (0.1, "0.1")] {
            assert_eq!(java_text(value), text);
        }
    }

    /// As in Flink's `BinaryStringDataUtil.toInt`.
    #[test]
    fn texts_are_integers_with_or_without_a_fraction() {
        for (text, value) in [
            ("12.7", 12),
            ("-12.9", -12),
            ("1.234", 1),
            (" 12 ", 12),
            ("+12", 12),
            ("007", 7),
            (".5", 0),
            ("12.", 12),
            (".", 0),
            ("-.5", 0),
            ("-9223372036854775808", i64::MIN.into()),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in ["", " ", "+", "-", "1e3", "1 2", "12.x", "1.2.3", "0x1", "1_000", "--1", "٣"]
        {
            assert_eq!(integer(text), None, "{text}");
        }
        assert_eq!(integer(&"9".repeat(50)), None);
    }
}
