//! Decimals that may have more digits than their type. A `DECIMAL(38, s)` has 38 digits, but its
//! 128 bits hold values of 39. So arithmetic that has reached the widest type, and results of
//! functions, must be checked.

use crate::expr::composed::{Compose, Parts};
use crate::syntax::prelude::*;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, Decimal128Type, DecimalType};
use arrow::error::ArrowError;

/// An operation on decimals that fails where its value has more digits than its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Widest {
    precision: u8,
    scale: i8,
}

/// Fails if a decimal has too many digits.
pub(crate) fn check_digits(value: i128, precision: u8, scale: i8) -> Result<(), ArrowError> {
    if Decimal128Type::is_valid_decimal_precision(value, precision) {
        return Ok(());
    }
    // All of its digits are shown only if there is said to be room for them.
    let text = Decimal128Type::format_decimal(value, DECIMAL128_MAX_PRECISION + 1, scale);
    Err(ArrowError::ArithmeticOverflow(text))
}

impl Widest {
    /// `None` if `inner`, of type `data_type`, cannot have too many digits: its type has room for
    /// all that the operation may come to.
    pub(crate) fn when_needed(
        inner: &Arc<dyn PhysicalExpr>,
        data_type: &DataType,
    ) -> Option<Arc<dyn PhysicalExpr>> {
        match data_type {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) => Widest::of(inner, data_type),
            _ => None,
        }
    }

    /// Checks whatever `inner` gives; `None` if that is no decimal.
    pub(crate) fn of(
        inner: &Arc<dyn PhysicalExpr>,
        data_type: &DataType,
    ) -> Option<Arc<dyn PhysicalExpr>> {
        let DataType::Decimal128(precision, scale) = *data_type else { return None };
        Some(Widest { precision, scale }.over(vec![inner.clone()]))
    }

    fn check(&self, value: i128) -> Result<(), ArrowError> {
        check_digits(value, self.precision, self.scale)
    }
}

impl Compose for Widest {
    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let evaluated = parts[0].evaluate(batch)?;
        match &evaluated {
            ColumnarValue::Array(array) => {
                let Some(array) = array.as_primitive_opt::<Decimal128Type>() else {
                    return internal_err!("a decimal of type {}", array.data_type());
                };
                array.iter().flatten().try_for_each(|value| self.check(value))?;
            }
            ColumnarValue::Scalar(ScalarValue::Decimal128(Some(value), ..)) => {
                self.check(*value)?
            }
            ColumnarValue::Scalar(_) => {}
        }
        Ok(evaluated)
    }
}
