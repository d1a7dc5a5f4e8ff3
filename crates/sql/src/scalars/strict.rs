//! `GREATEST` and `LEAST` as Flink has them: NULL if any argument is NULL. DataFusion's skip NULLs.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::NullBuffer;
use arrow::compute::nullif;
use arrow::datatypes::DataType;
use datafusion_common::{Result as DfResult, plan_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Strict(Arc<ScalarUDF>);

/// The same function, but NULL where an argument is NULL.
pub(super) fn null_if_any_null(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Strict(function))
}

/// The rows in which an argument is NULL.
pub(super) fn nulls_of_any(args: &[ColumnarValue], rows: usize) -> DfResult<Option<NullBuffer>> {
    let mut nulls = None;
    for arg in args {
        nulls = NullBuffer::union(nulls.as_ref(), arg.to_array(rows)?.logical_nulls().as_ref());
    }
    Ok(nulls)
}

impl ScalarUDFImpl for Strict {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.0.return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        if types.iter().any(|t| matches!(t, DataType::Interval(_))) {
            return plan_err!("Arrow's order of intervals is not that of their lengths");
        }
        self.0.coerce_types(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let nulls = nulls_of_any(&args.args, rows)?;
        let value = self.0.invoke_with_args(args)?.into_array(rows)?;
        let Some(nulls) = nulls else { return Ok(ColumnarValue::Array(value)) };
        let is_null = BooleanArray::new(!nulls.inner(), None);
        Ok(ColumnarValue::Array(nullif(&value, &is_null)?))
    }
}
