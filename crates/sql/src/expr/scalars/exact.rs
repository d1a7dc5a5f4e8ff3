//! Arithmetic of decimals with the types that it has in Flink. DataFusion's division keeps fewer
//! digits and truncates, and what would have more than 38 digits after the point does not run.
//!
//! Where DataFusion's `+`, `-`, `*` and `%` give the same, they stay; the others become calls of
//! [`Exact`], which round half away from zero.

use arrow::array::{Decimal128Array, Decimal256Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, Decimal128Type, i256};
use arrow::error::ArrowError;

use crate::expr::udf::{call_of, called, called_in, result_of, rows_of};
use crate::expr::widest::check_digits;
use crate::syntax::prelude::*;

/// Digits after the point that a result of more than 38 digits keeps at least, if it has them.
const SCALE_KEPT: i16 = 6;

/// Digits, and how many of them are behind the point.
pub(crate) type Digits = (u8, i8);

/// The digits that every value of a type has room in, if it is a decimal or an integer.
pub(crate) fn digits_of(data_type: &DataType) -> Option<Digits> {
    use DataType::*;
    Some(match data_type {
        Decimal128(precision, scale) => (*precision, *scale),
        Int8 | UInt8 => (3, 0),
        Int16 | UInt16 => (5, 0),
        Int32 | UInt32 => (10, 0),
        Int64 => (19, 0),
        UInt64 => (20, 0),
        _ => return None,
    })
}

/// The result of an operation, before it is made to fit 38 digits.
fn unlimited(op: Operator, (p1, s1): Digits, (p2, s2): Digits) -> (i16, i16) {
    let [p1, p2] = [p1, p2].map(i16::from);
    let [s1, s2] = [s1, s2].map(i16::from);
    let (whole1, whole2) = (p1 - s1, p2 - s2);
    let both = s1.max(s2);
    match op {
        Operator::Multiply => (p1 + p2 + 1, s1 + s2),
        Operator::Divide => {
            let scale = SCALE_KEPT.max(s1 + p2 + 1);
            (whole1 + s2 + scale, scale)
        }
        Operator::Modulo => (whole1.min(whole2) + both, both),
        _ => (whole1.max(whole2) + both + 1, both),
    }
}

/// The result of an operation in Flink. What does not fit 38 digits loses some behind the point.
pub(super) fn result(op: Operator, left: Digits, right: Digits) -> Digits {
    const MOST: i16 = DECIMAL128_MAX_PRECISION as i16;
    let (precision, scale) = unlimited(op, left, right);
    if precision <= MOST {
        return (precision as u8, scale as i8);
    }
    let room = MOST - (precision - scale);
    (DECIMAL128_MAX_PRECISION, room.max(scale.min(SCALE_KEPT)) as i8)
}

/// Whether DataFusion's operation gives the same, of the same type.
pub(super) fn is_native(op: Operator, left: Digits, right: Digits) -> bool {
    const MOST: i16 = DECIMAL128_MAX_PRECISION as i16;
    match op {
        // DataFusion takes x % 1 for 0, whatever is behind the point.
        Operator::Divide | Operator::Modulo => false,
        _ => unlimited(op, left, right).0 <= MOST,
    }
}

/// An operation of two decimals as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Exact {
    op: Operator,
}

/// `left op right`, with the type that this has in Flink.
pub(super) fn exact(op: Operator, left: Expr, right: Expr) -> Expr {
    call_of(Exact { op }, vec![left, right])
}

/// The operation and its sides, if `expr` is a call of [`Exact`].
pub(crate) fn exact_operation(expr: &Expr) -> Option<(&Expr, Operator, &Expr)> {
    let (Exact { op }, [left, right]) = called_in(expr)? else { return None };
    Some((left, *op, right))
}

impl ScalarUDFImpl for Exact {
    fn name(&self) -> &str {
        match self.op {
            Operator::Plus => "$decimal_plus",
            Operator::Minus => "$decimal_minus",
            Operator::Multiply => "$decimal_times",
            Operator::Divide => "$decimal_divided",
            _ => "$decimal_modulo",
        }
    }

    /// As DataFusion names the operation.
    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        match args {
            [left, right] => {
                Ok(format!("{} {} {}", left.schema_name(), self.op, right.schema_name()))
            }
            _ => internal_err!("an operation has two sides"),
        }
    }

    called!(@ CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        let [left, right] = types else { return internal_err!("an operation has two sides") };
        Ok(match (digits_of(left), digits_of(right)) {
            (Some(left), Some(right)) => {
                let (precision, scale) = result(self.op, left, right);
                DataType::Decimal128(precision, scale)
            }
            // Where types agree, it becomes an operation of doubles.
            _ => DataType::Float64,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [left, right] = &args.args[..] else {
            return internal_err!("an operation has two sides");
        };
        let DataType::Decimal128(precision, scale) = *args.return_field.data_type() else {
            return internal_err!("an operation of decimals gives a decimal");
        };
        let (left, right) = (Operand::of(left)?, Operand::of(right)?);
        let step = DigitStep::new(self.op, (left.scale, right.scale), scale);
        let rows = rows_of(&args);
        let value = |row: usize| match (left.value(row), right.value(row)) {
            (Some(left), Some(right)) => step.value(left, right, (precision, scale)).map(Some),
            _ => Ok(None),
        };
        let values = (0..rows).map(value).collect::<Result<Decimal128Array, ArrowError>>()?;
        let values: ArrayRef = Arc::new(values.with_precision_and_scale(precision, scale)?);
        result_of(&args, values)
    }
}

/// One side of an operation.
struct Operand {
    values: Decimal128Array,
    scale: i8,
    is_scalar: bool,
}

impl Operand {
    fn of(value: &ColumnarValue) -> DfResult<Operand> {
        let (array, is_scalar) = match value {
            ColumnarValue::Array(array) => (array.clone(), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let Some((precision, scale)) = digits_of(array.data_type()) else {
            return exec_err!("arithmetic of decimals with {}", array.data_type());
        };
        let array = cast(&array, &DataType::Decimal128(precision, scale))?;
        let values = array.as_primitive::<Decimal128Type>().clone();
        Ok(Operand { values, scale, is_scalar })
    }

    fn value(&self, row: usize) -> Option<i128> {
        let row = if self.is_scalar { 0 } else { row };
        self.values.is_valid(row).then(|| self.values.value(row))
    }
}

/// How an operation works on the digits alone: powers of ten that its sides, or what comes of them,
/// are multiplied with or divided by.
struct DigitStep {
    op: Operator,
    left: u32,
    right: u32,
    down: u32,
}

impl DigitStep {
    /// `scale` is that of the result; none of the powers is negative.
    fn new(op: Operator, (s1, s2): (i8, i8), scale: i8) -> DigitStep {
        let power = |of: i16| u32::try_from(of).unwrap_or(0);
        let [s1, s2, scale] = [s1, s2, scale].map(i16::from);
        let both = s1.max(s2);
        let (left, right, down) = match op {
            Operator::Multiply => (0, 0, s1 + s2 - scale),
            Operator::Divide => (scale - s1 + s2, 0, 0),
            _ => (both - s1, both - s2, both - scale),
        };
        DigitStep { op, left: power(left), right: power(right), down: power(down) }
    }

    fn value(&self, left: i128, right: i128, digits: Digits) -> Result<i128, ArrowError> {
        let divides = matches!(self.op, Operator::Divide | Operator::Modulo);
        if divides && right == 0 {
            return Err(ArrowError::DivideByZero);
        }
        let value = match self.in_128_bits(left, right) {
            Some(value) => Some(value),
            None => self.in_256_bits(left, right, digits.1)?,
        };
        match value {
            Some(value) => check_digits(value, digits.0, digits.1).map(|()| value),
            // A multiplied left side that does not fit 256 bits has a quotient beyond 38 digits.
            None => Err(ArrowError::ArithmeticOverflow("the quotient".into())),
        }
    }

    /// `None` if something on the way needs more bits.
    fn in_128_bits(&self, left: i128, right: i128) -> Option<i128> {
        let power = |of: u32| 10_i128.checked_pow(of);
        let (left, right) =
            (left.checked_mul(power(self.left)?)?, right.checked_mul(power(self.right)?)?);
        let value = match self.op {
            Operator::Plus => left.checked_add(right)?,
            Operator::Minus => left.checked_sub(right)?,
            Operator::Multiply => left.checked_mul(right)?,
            Operator::Divide => return rounded(left, right),
            _ => return left.checked_rem(right),
        };
        if self.down == 0 { Some(value) } else { rounded(value, power(self.down)?) }
    }

    /// `None` if the left side of a division needs more bits.
    fn in_256_bits(&self, left: i128, right: i128, scale: i8) -> Result<Option<i128>, ArrowError> {
        let ten = i256::from_i128(10);
        let power = |of: u32| ten.checked_pow(of);
        let scaled = |value: i128, by: u32| i256::from_i128(value).checked_mul(power(by)?);
        let sides = scaled(left, self.left).zip(scaled(right, self.right));
        let Some((left, right)) = sides else { return Ok(None) };
        let value = match self.op {
            Operator::Plus => left.checked_add(right),
            Operator::Minus => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => rounded_256(left, right),
            _ => left.checked_rem(right),
        };
        let value = match self.down {
            0 => value,
            down => value.zip(power(down)).and_then(|(value, by)| rounded_256(value, by)),
        };
        let Some(value) = value else { return Ok(None) };
        match value.to_i128() {
            Some(value) => Ok(Some(value)),
            None => Err(ArrowError::ArithmeticOverflow(text(value, scale))),
        }
    }
}

/// `value / by`, rounded half away from zero. What is divided by has at most 38 digits.
pub(super) fn rounded(value: i128, by: i128) -> Option<i128> {
    let (quotient, rest) = (value.checked_div(by)?, value.checked_rem(by)?);
    if rest.unsigned_abs() < by.unsigned_abs() - rest.unsigned_abs() {
        return Some(quotient);
    }
    quotient.checked_add(if (value < 0) == (by < 0) { 1 } else { -1 })
}

/// [`rounded`] of more bits.
fn rounded_256(value: i256, by: i256) -> Option<i256> {
    let (quotient, rest) = (value.checked_div(by)?, value.checked_rem(by)?);
    let (rest, whole) = (rest.checked_abs()?, by.checked_abs()?);
    if rest < whole.checked_sub(rest)? {
        return Some(quotient);
    }
    let up = value.is_negative() == by.is_negative();
    quotient.checked_add(if up { i256::ONE } else { i256::MINUS_ONE })
}

/// With the point where `scale` puts it.
fn text(value: i256, scale: i8) -> String {
    const PRECISION_MAX: u8 = 76;
    let array = Decimal256Array::from(vec![value]);
    array.with_data_type(DataType::Decimal256(PRECISION_MAX, scale)).value_as_string(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of Flink's own documentation and of its rule (SQL Server's), worked by hand.
    #[test]
    fn results_have_flinks_types() {
        use Operator::{Divide, Minus, Modulo, Multiply, Plus};
        for (op, left, right, expected) in [
            (Plus, (2, 1), (10, 0), (12, 1)),
            (Minus, (10, 2), (5, 4), (13, 4)),
            (Plus, (38, 2), (38, 4), (38, 4)),
            (Plus, (38, 38), (38, 38), (38, 37)),
            (Multiply, (3, 3), (19, 0), (23, 3)),
            (Multiply, (30, 10), (30, 10), (38, 6)),
            (Multiply, (30, 20), (30, 20), (38, 17)),
            (Multiply, (38, 2), (38, 3), (38, 5)),
            (Divide, (2, 1), (10, 0), (13, 12)),
            (Divide, (10, 2), (10, 2), (23, 13)),
            (Divide, (1, 0), (1, 0), (7, 6)),
            (Divide, (32, 8), (38, 8), (38, 6)),
            (Divide, (30, 20), (30, 20), (38, 8)),
            (Divide, (38, 38), (38, 0), (38, 38)),
            (Modulo, (10, 2), (5, 1), (6, 2)),
            (Modulo, (30, 10), (30, 10), (30, 10)),
            (Modulo, (38, 0), (38, 38), (38, 38)),
        ] {
            assert_eq!(result(op, left, right), expected, "{left:?} {op} {right:?}");
        }
    }

    fn computed(op: Operator, left: (i128, Digits), right: (i128, Digits)) -> Result<String, ()> {
        let ((left, l), (right, r)) = (left, right);
        let digits = result(op, l, r);
        let value = DigitStep::new(op, (l.1, r.1), digits.1).value(left, right, digits);
        value.map(|value| text(i256::from_i128(value), digits.1)).map_err(|_| ())
    }

    #[test]
    fn values_are_rounded_half_away_from_zero() {
        use Operator::{Divide, Minus, Modulo, Multiply, Plus};
        let most = 10_i128.pow(38) - 1;
        let (whole, fraction) = ((38, 0), (38, 38));
        for (op, left, right, expected) in [
            (Divide, (10, (2, 1)), (3, (1, 0)), "0.333333"),
            (Divide, (20, (2, 1)), (3, (1, 0)), "0.666667"),
            (Divide, (-20, (2, 1)), (3, (1, 0)), "-0.666667"),
            (Divide, (20, (2, 1)), (-3, (1, 0)), "-0.666667"),
            (Divide, (1, (1, 0)), (8, (1, 0)), "0.125000"),
            // 0.5, and 1 / 2000000 = 0.0000005: up, away from zero.
            (Divide, (1, (1, 0)), (2, (1, 0)), "0.500000"),
            (Divide, (-most, whole), (most, whole), "-1.000000"),
            (Divide, (1, whole), (2_000_000, whole), "0.000001"),
            (Divide, (-1, whole), (2_000_000, whole), "-0.000001"),
            (Divide, (0, whole), (most, fraction), "0.000000"),
            (Divide, (most, fraction), (most, fraction), "1.000000"),
            // 40 digits after the point, of which 37 are left.
            (Multiply, (25 * 10_i128.pow(36), fraction), (25, (2, 2)), "0.0625"),
            (Plus, (most, fraction), (most, fraction), "2"),
            (Minus, (1, fraction), (most, fraction), "-1"),
            (Modulo, (75, (2, 1)), (2, (1, 0)), "1.5"),
            (Modulo, (-75, (2, 1)), (2, (1, 0)), "-1.5"),
            (Modulo, (most, whole), (most, fraction), "0."),
        ] {
            let given = computed(op, left, right).expect("it fits");
            let zeros = given.trim_end_matches('0');
            assert!(
                given == expected || zeros == expected || zeros == format!("{expected}."),
                "{left:?} {op} {right:?}: {given}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        use Operator::{Divide, Modulo, Multiply, Plus};
        let most = 10_i128.pow(38) - 1;
        let (whole, fraction) = ((38, 0), (38, 38));
        for (op, left, right) in [
            (Plus, (most, whole), (1, whole)),
            (Multiply, (most, whole), (2, whole)),
            (Multiply, (most, whole), (most, whole)),
            (Multiply, (-most, whole), (most, fraction)),
            (Divide, (most, whole), (1, fraction)),
            (Divide, (1, whole), (0, whole)),
            (Modulo, (1, whole), (0, fraction)),
        ] {
            assert!(computed(op, left, right).is_err(), "{left:?} {op} {right:?}");
        }
    }
}
