//! A condition that is never NULL, within a filter: what counts there is one outcome alone
//! ([`crate::condition`]).

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result as DfResult, internal_err};
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Decided {
    /// What NULL is taken for.
    null_is: bool,
    signature: Signature,
}

/// The name of the function, which no query can call.
pub(crate) const DECIDED: &str = "decided";

/// `condition`, with NULL taken for one of the two outcomes.
pub(crate) fn decided(condition: Expr, null_is: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Decided { null_is, signature })).call(vec![condition])
}

/// The condition in it, if `expr` is a decided one.
pub(crate) fn within_decided(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    call.func.inner().is::<Decided>().then(|| call.args.first()).flatten()
}

impl ScalarUDFImpl for Decided {
    fn name(&self) -> &str {
        DECIDED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> DfResult<FieldRef> {
        Ok(Arc::new(Field::new(DECIDED, DataType::Boolean, false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [condition] = &args.args[..] else { return internal_err!("a condition is one") };
        let condition = condition.to_array(args.number_rows)?;
        let Some(outcomes) = condition.as_boolean_opt() else {
            return internal_err!("a condition of type {}", condition.data_type());
        };
        let Some(nulls) = outcomes.nulls() else { return Ok(ColumnarValue::Array(condition)) };
        let values = match self.null_is {
            false => outcomes.values() & nulls.inner(),
            true => outcomes.values() | &!nulls.inner(),
        };
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(values, None))))
    }
}
