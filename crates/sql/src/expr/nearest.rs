//! Casts of decimals to DOUBLE and FLOAT, which give the nearest value. Arrow makes a double of all
//! digits, which may round, and divides that, which rounds again.

use crate::expr::composed::{Compose, Parts};
use crate::syntax::prelude::*;

use std::str::FromStr;

use arrow::array::PrimitiveArray;
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, Decimal128Type, DecimalType, Float32Type,
    Float64Type,
};
use datafusion_physical_expr::expressions::{CastExpr, TryCastExpr};

/// A cast of a decimal to a floating-point type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Nearest {
    to: DataType,
}

impl Nearest {
    /// `None` if `expr` is no such cast.
    pub(crate) fn of_cast(
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> DfResult<Option<Arc<dyn PhysicalExpr>>> {
        let cast = match (expr.downcast_ref::<CastExpr>(), expr.downcast_ref::<TryCastExpr>()) {
            (Some(cast), _) => (cast.expr(), cast.cast_type()),
            (_, Some(cast)) => (cast.expr(), cast.cast_type()),
            _ => return Ok(None),
        };
        let (decimal, to) = cast;
        let is_decimal = matches!(decimal.data_type(schema)?, DataType::Decimal128(..));
        let is_float = matches!(to, DataType::Float32 | DataType::Float64);
        let nearest = || Nearest { to: to.clone() }.over(vec![decimal.clone()]);
        Ok((is_decimal && is_float).then(nearest))
    }

    fn floats(&self, decimals: &dyn Array) -> DfResult<Arc<dyn Array>> {
        let (DataType::Decimal128(_, scale), Some(decimals)) =
            (decimals.data_type(), decimals.as_primitive_opt::<Decimal128Type>())
        else {
            return internal_err!("a decimal of type {}", decimals.data_type());
        };
        Ok(match self.to {
            DataType::Float32 => Arc::new(floats::<Float32Type>(decimals, *scale, single)?),
            _ => Arc::new(floats::<Float64Type>(decimals, *scale, double)?),
        })
    }
}

/// Casts an array.
fn floats<T: ArrowPrimitiveType>(
    decimals: &PrimitiveArray<Decimal128Type>,
    scale: i8,
    exactly: fn(i128, i8) -> Option<T::Native>,
) -> DfResult<PrimitiveArray<T>>
where
    T::Native: FromStr,
{
    let nearest = |value: i128| match exactly(value, scale) {
        Some(float) => Ok(float),
        // What a text is read as is the nearest value.
        None => match decimal_text(value, scale).parse() {
            Ok(float) => Ok(float),
            Err(_) => internal_err!("a decimal that is no number"),
        },
    };
    decimals.try_unary(nearest)
}

/// All digits of a decimal, of which there may be one more than its type has.
fn decimal_text(value: i128, scale: i8) -> String {
    Decimal128Type::format_decimal(value, DECIMAL128_MAX_PRECISION + 1, scale)
}

/// The quotient of two doubles that are exact rounds once.
fn double(value: i128, scale: i8) -> Option<f64> {
    const EXACT: u128 = 1 << f64::MANTISSA_DIGITS;
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    let power = POWERS.get(usize::try_from(scale).ok()?)?;
    (value.unsigned_abs() <= EXACT).then(|| value as i64 as f64 / power)
}

/// The same of floats.
fn single(value: i128, scale: i8) -> Option<f32> {
    const EXACT: u128 = 1 << f32::MANTISSA_DIGITS;
    const POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
    let power = POWERS.get(usize::try_from(scale).ok()?)?;
    (value.unsigned_abs() <= EXACT).then(|| value as i64 as f32 / power)
}

impl Compose for Nearest {
    fn data_type(&self, _: &Parts, _: &Schema) -> DfResult<DataType> {
        Ok(self.to.clone())
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        match parts[0].evaluate(batch)? {
            ColumnarValue::Array(decimals) => Ok(ColumnarValue::Array(self.floats(&decimals)?)),
            ColumnarValue::Scalar(decimal) => {
                let float = self.floats(&decimal.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&float, 0)?))
            }
        }
    }

    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CAST({} AS {})", parts[0], self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of all lengths and scales, near halves among them: as the text is read.
    #[test]
    fn a_quotient_is_what_the_text_is_read_as() {
        let mut random = 7_u128;
        for round in 0..200_000 {
            random = random.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
            let bits = 1 + round % 64;
            let value = (random >> (128 - bits)) as i128 * if round % 2 == 0 { 1 } else { -1 };
            let scale = (random % 39) as i8;
            let text = decimal_text(value, scale);
            if let Some(quotient) = double(value, scale) {
                assert_eq!(quotient, text.parse::<f64>().unwrap(), "{text}");
            }
            if let Some(quotient) = single(value, scale) {
                assert_eq!(quotient, text.parse::<f32>().unwrap(), "{text}");
            }
        }
    }
}
