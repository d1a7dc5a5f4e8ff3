//! `CEIL` and `FLOOR` of a DECIMAL, which have no digits after the point, as in Flink: a
//! `DECIMAL(p, s)` gives a `DECIMAL(p, 0)`. DataFusion keeps the argument's type, in which 10.00
//! for 9.99 has no room.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion_common::{Result as DfResult, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole(Arc<ScalarUDF>);

/// `CEIL(x)` or `FLOOR(x)`; `inner` is DataFusion's.
pub(super) fn to_whole(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Whole(inner))
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [DataType::Decimal128(precision, 1..)] => Ok(DataType::Decimal128(*precision, 0)),
            _ => self.0.return_type(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [value] = &args.args[..] else { return self.0.invoke_with_args(args) };
        let DataType::Decimal128(precision, scale @ 1..) = value.data_type() else {
            return self.0.invoke_with_args(args);
        };
        let (array, is_scalar) = match value {
            ColumnarValue::Array(array) => (array.clone(), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        // At most 10^38, which 128 bits hold.
        let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
        let up = self.name() == "ceil";
        let whole = array.as_primitive::<Decimal128Type>().unary::<_, Decimal128Type>(|value| {
            value.div_euclid(one) + i128::from(up && value.rem_euclid(one) != 0)
        });
        let whole = whole.with_precision_and_scale(precision, 0)?;
        match is_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?)),
            false => Ok(ColumnarValue::Array(Arc::new(whole))),
        }
    }
}
