//! Parts that the implementations of scalar functions share.

use crate::syntax::prelude::*;

/// Methods of a function: its name, its signature in a field, and the type that it always gives.
macro_rules! called {
    ($name:expr, $signature:tt) => {
        fn name(&self) -> &str {
            $name
        }

        fn signature(&self) -> &datafusion_expr::Signature {
            &self.$signature
        }
    };
    ($name:expr, $signature:tt, $returns:expr) => {
        called!($name, $signature);

        fn return_type(
            &self,
            _: &[arrow::datatypes::DataType],
        ) -> datafusion_common::Result<arrow::datatypes::DataType> {
            Ok($returns)
        }
    };
}
pub(crate) use called;

/// Rows to compute: one if all arguments are constants.
pub(crate) fn rows_of(args: &ScalarFunctionArgs) -> usize {
    if is_constant(args) { 1 } else { args.number_rows }
}

/// The result of a call: a constant if all arguments are constants.
pub(crate) fn result_of(args: &ScalarFunctionArgs, array: ArrayRef) -> DfResult<ColumnarValue> {
    Ok(match is_constant(args) {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
        false => ColumnarValue::Array(array),
    })
}

fn is_constant(args: &ScalarFunctionArgs) -> bool {
    args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)))
}
