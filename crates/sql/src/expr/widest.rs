//! Decimals that may have more digits than their type. A `DECIMAL(38, s)` has 38 digits, but its
//! 128 bits hold values of 39. So arithmetic that has reached the widest type, and results of
//! functions, must be checked.

use crate::syntax::prelude::*;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, Decimal128Type, DecimalType};
use arrow::error::ArrowError;

/// An operation on decimals that fails where its value has more digits than its type.
#[derive(Debug, Clone, Eq)]
pub(crate) struct Widest {
    inner: Arc<dyn PhysicalExpr>,
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
    ) -> Option<Widest> {
        match data_type {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) => Widest::of(inner, data_type),
            _ => None,
        }
    }

    /// Checks whatever `inner` gives; `None` if that is no decimal.
    pub(crate) fn of(inner: &Arc<dyn PhysicalExpr>, data_type: &DataType) -> Option<Widest> {
        match data_type {
            DataType::Decimal128(precision, scale) => {
                Some(Widest { inner: inner.clone(), precision: *precision, scale: *scale })
            }
            _ => None,
        }
    }

    fn check(&self, value: i128) -> Result<(), ArrowError> {
        check_digits(value, self.precision, self.scale)
    }
}

impl PartialEq for Widest {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
            && (self.precision, self.scale) == (other.precision, other.scale)
    }
}

impl Hash for Widest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.inner, self.precision, self.scale).hash(state);
    }
}

impl fmt::Display for Widest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

impl PhysicalExpr for Widest {
    fn data_type(&self, schema: &Schema) -> DfResult<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> DfResult<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let evaluated = self.inner.evaluate(batch)?;
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

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DfResult<Arc<dyn PhysicalExpr>> {
        let Ok([inner]) = <[_; 1]>::try_from(children) else {
            return internal_err!("one operation is checked");
        };
        Ok(Arc::new(Widest { inner, precision: self.precision, scale: self.scale }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
