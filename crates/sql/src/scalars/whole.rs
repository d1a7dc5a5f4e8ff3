//! `CEIL` and `FLOOR` of a DECIMAL, with room for one more digit: the next integer after 9.99 is
//! 10.00. DataFusion keeps the argument's type.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field};
use datafusion_common::Result as DfResult;
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole(Arc<ScalarUDF>);

/// `CEIL(x)` or `FLOOR(x)`; `inner` is DataFusion's.
pub(super) fn to_whole(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Whole(inner))
}

/// A digit more before the point, where there are any behind it.
fn wider(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal128(precision, scale) if *scale > 0 => {
            DataType::Decimal128((precision + 1).min(DECIMAL128_MAX_PRECISION), *scale)
        }
        other => other.clone(),
    }
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
        self.0.return_type(types).map(|data_type| wider(&data_type))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        for (arg, field) in args.args.iter_mut().zip(&mut args.arg_fields) {
            let wide = wider(&arg.data_type());
            if wide == arg.data_type() {
                continue;
            }
            *arg = match &*arg {
                ColumnarValue::Array(array) => ColumnarValue::Array(cast(array, &wide)?),
                ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.cast_to(&wide)?),
            };
            *field = Arc::new(Field::new(field.name(), wide, field.is_nullable()));
        }
        self.0.invoke_with_args(args)
    }
}
