//! Casts to decimals and products of decimals whose digits always have room: plain arithmetic of
//! 128 bits. Arrow's kernels check every value, which takes a hundred instructions and more.

use arrow::array::{Decimal128Array, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, Decimal128Type, Int32Type};
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr};

use crate::expr::composed::{Compose, Parts};
use crate::expr::scalars::{Digits, digits_of};
use crate::syntax::prelude::*;

/// A cast or a product, the only part, evaluated otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlainDecimals {
    digits: Digits,
}

impl PlainDecimals {
    /// The plain form of a cast or a product; `None` if `expr` is none, or may overflow.
    pub(crate) fn when_possible(
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> DfResult<Option<Arc<dyn PhysicalExpr>>> {
        let digits = |of: &Arc<dyn PhysicalExpr>| of.data_type(schema);
        let own = if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            match (digits(cast.expr())?, cast.cast_type()) {
                (from, DataType::Decimal128(precision, scale)) => {
                    has_room(&from, (*precision, *scale)).then_some((*precision, *scale))
                }
                _ => None,
            }
        } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>()
            && *binary.op() == Operator::Multiply
        {
            match (digits(binary.left())?, digits(binary.right())?, expr.data_type(schema)?) {
                (
                    DataType::Decimal128(left, left_scale),
                    DataType::Decimal128(right, right_scale),
                    DataType::Decimal128(precision, scale),
                ) => {
                    let fits = left + right <= precision && left_scale + right_scale == scale;
                    fits.then_some((precision, scale))
                }
                _ => None,
            }
        } else {
            None
        };
        Ok(own.map(|digits| PlainDecimals { digits }.over(vec![expr.clone()])))
    }

    /// A cast of an array; `None` if it has another type, or a value with too many digits.
    fn cast(&self, array: &ArrayRef) -> Option<Decimal128Array> {
        let from = digits_of(array.data_type())?;
        let more = i16::from(self.digits.1) - i16::from(from.1);
        let factor = 10i128.checked_pow(u32::try_from(more).ok()?)?;
        let cast = match array.data_type() {
            DataType::Int32 => multiplied(array.as_primitive::<Int32Type>(), factor),
            DataType::Int64 => multiplied(array.as_primitive::<Int64Type>(), factor),
            DataType::Decimal128(..) => multiplied(array.as_primitive::<Decimal128Type>(), factor),
            _ => return None,
        };
        let limit = 10i128.checked_pow(u32::from(self.digits.0))?;
        let fits = i16::from(from.0) + more <= i16::from(self.digits.0)
            || cast.values().iter().fold(true, |all, v| all & (-limit < *v) & (*v < limit));
        fits.then_some(cast)
    }

    fn product(&self, left: &ColumnarValue, right: &ColumnarValue) -> Option<Decimal128Array> {
        let (left, right) = match (left, right) {
            (ColumnarValue::Scalar(_), ColumnarValue::Array(_)) => (right, left),
            _ => (left, right),
        };
        let ColumnarValue::Array(left) = left else { return None };
        let left = left.as_primitive_opt::<Decimal128Type>()?;
        match right {
            ColumnarValue::Scalar(ScalarValue::Decimal128(Some(right), ..)) => {
                Some(multiplied(left, *right))
            }
            ColumnarValue::Array(right) => {
                let right = right.as_primitive_opt::<Decimal128Type>()?;
                arrow::compute::binary(left, right, |a: i128, b: i128| a.wrapping_mul(b)).ok()
            }
            ColumnarValue::Scalar(_) => None,
        }
    }
}

/// Whether a cast between such types only ever multiplies, without an overflow of 128 bits.
fn has_room(from: &DataType, (_, scale): Digits) -> bool {
    let is_one = matches!(from, DataType::Int32 | DataType::Int64 | DataType::Decimal128(..));
    digits_of(from).filter(|_| is_one).is_some_and(|(own, own_scale)| {
        let more = i16::from(scale) - i16::from(own_scale);
        more >= 0 && i16::from(own) + more <= i16::from(DECIMAL128_MAX_PRECISION)
    })
}

fn multiplied<T>(array: &PrimitiveArray<T>, factor: i128) -> Decimal128Array
where
    T: ArrowPrimitiveType,
    T::Native: Into<i128>,
{
    array.unary(|value| value.into().wrapping_mul(factor))
}

impl Compose for PlainDecimals {
    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let plain = |array: Decimal128Array| {
            let array = array.with_precision_and_scale(self.digits.0, self.digits.1)?;
            Ok(ColumnarValue::Array(Arc::new(array)))
        };
        if let Some(cast) = parts[0].downcast_ref::<CastExpr>() {
            let value = cast.expr().evaluate(batch)?;
            if let ColumnarValue::Array(array) = &value
                && let Some(array) = self.cast(array)
            {
                return plain(array);
            }
            return value.cast_to(cast.cast_type(), Some(cast.cast_options()));
        }
        if let Some(binary) = parts[0].downcast_ref::<BinaryExpr>() {
            let left = binary.left().evaluate(batch)?;
            let right = binary.right().evaluate(batch)?;
            if let Some(array) = self.product(&left, &right) {
                return plain(array);
            }
        }
        parts[0].evaluate(batch)
    }

    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", parts[0])
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use datafusion_physical_expr::expressions::{col, lit};

    use super::*;

    #[test]
    fn values_and_errors_are_those_of_arrow() {
        let most = 10i128.pow(10) - 1;
        let decimals = Decimal128Array::from(vec![Some(0), Some(-most), None, Some(most), Some(5)]);
        let decimals = decimals.with_precision_and_scale(10, 2).unwrap();
        let longs = Int64Array::from(vec![Some(i64::MAX), Some(i64::MIN), None, Some(0), Some(7)]);
        let ints = Int32Array::from(vec![Some(i32::MAX), Some(i32::MIN), None, Some(0), Some(7)]);
        let columns: [(&str, ArrayRef); 3] =
            [("d", Arc::new(decimals)), ("l", Arc::new(longs)), ("i", Arc::new(ints))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let schema = batch.schema();
        let column = |name: &str| col(name, &schema).unwrap();
        let cast = |of, precision, scale| -> Arc<dyn PhysicalExpr> {
            Arc::new(CastExpr::new(of, DataType::Decimal128(precision, scale), None))
        };
        let times = |left, right| -> Arc<dyn PhysicalExpr> {
            let product = BinaryExpr::new(left, Operator::Multiply, right);
            Arc::new(product.with_fail_on_overflow(true))
        };
        let factor = || lit(ScalarValue::Decimal128(Some(-908), 3, 3));
        let null = lit(ScalarValue::Decimal128(None, 3, 3));
        for (expr, is_plain) in [
            (cast(column("l"), 38, 3), true),
            (cast(column("l"), 19, 0), true),
            (cast(column("l"), 10, 0), true),
            (cast(column("l"), 38, 20), false),
            (cast(column("i"), 12, 2), true),
            (cast(column("d"), 12, 4), true),
            (cast(column("d"), 10, 2), true),
            (cast(column("d"), 9, 2), true),
            (cast(column("d"), 10, 1), false),
            (cast(factor(), 12, 5), true),
            (times(column("d"), factor()), true),
            (times(factor(), column("d")), true),
            (times(column("d"), null), true),
            (times(column("d"), column("d")), true),
            (times(cast(column("d"), 30, 2), column("d")), false),
        ] {
            let plain = PlainDecimals::when_possible(&expr, &schema).unwrap();
            assert_eq!(plain.is_some(), is_plain, "{expr}");
            let Some(plain) = plain else { continue };
            let value = |of: &Arc<dyn PhysicalExpr>| {
                of.evaluate(&batch).and_then(|v| v.into_array(5)).map_err(|e| e.to_string())
            };
            assert_eq!(value(&plain), value(&expr), "{expr}");
        }
    }
}
