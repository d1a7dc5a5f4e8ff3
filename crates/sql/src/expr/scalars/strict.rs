//! `GREATEST` and `LEAST` as Flink has them: NULL if any argument is NULL. DataFusion's skip NULLs.
//! `GREATEST`, `LEAST` and `NULLIF` see a single NaN, greater than all numbers, and a single zero.

use crate::expr::udf::called;
use crate::syntax::prelude::*;

use arrow::buffer::NullBuffer;
use arrow::compute::{is_null, nullif};
use millstream_contract::floats::{one_form, one_nan};

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
    called!(like 0);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        if types.iter().any(|t| matches!(t, DataType::Interval(_))) {
            return plan_err!("Arrow's order of intervals is not that of their lengths");
        }
        self.0.coerce_types(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let nulls = nulls_of_any(&args.args, rows)?;
        let args = compared(args, one_nan)?;
        let value = self.0.invoke_with_args(args)?.into_array(rows)?;
        let Some(nulls) = nulls else { return Ok(ColumnarValue::Array(value)) };
        let is_null = BooleanArray::new(!nulls.inner(), None);
        Ok(ColumnarValue::Array(nullif(&value, &is_null)?))
    }
}

/// `NULLIF`: where the result is not NULL, the value itself rather than its form for comparison.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NullIf(Arc<ScalarUDF>);

/// DataFusion's function, which compares the bits of floating-point numbers.
pub(super) fn null_if(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(NullIf(function))
}

/// The arguments as they are to be compared.
fn compared(
    mut args: ScalarFunctionArgs,
    form: impl Fn(&ArrayRef) -> ArrayRef,
) -> DfResult<ScalarFunctionArgs> {
    for arg in args.args.iter_mut().filter(|arg| arg.data_type().is_floating()) {
        *arg = ColumnarValue::Array(form(&arg.to_array(args.number_rows)?));
    }
    Ok(args)
}

impl ScalarUDFImpl for NullIf {
    called!(like 0);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let value = args.args.first().filter(|value| value.data_type().is_floating()).cloned();
        let found = self.0.invoke_with_args(compared(args, one_form)?)?;
        let Some(value) = value else { return Ok(found) };
        let equal = is_null(&found.into_array(rows)?)?;
        Ok(ColumnarValue::Array(nullif(&value.into_array(rows)?, &equal)?))
    }
}
