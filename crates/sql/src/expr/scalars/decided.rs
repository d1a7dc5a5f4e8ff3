//! Conditions within a filter that are never NULL, since the filter needs only a single outcome
//! ([`crate::stages::condition`]). And conditions that stay whole while the expression around is
//! simplified ([`crate::expr::simplified`]).

use crate::expr::udf::{call_of, called, called_in, first};
use crate::syntax::prelude::*;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Decided {
    /// The outcome that NULL is taken for; `None`: NULL stays.
    null_is: Option<bool>,
}

/// The name of the function, which no query can call.
pub(crate) const DECIDED: &str = "decided";

/// `condition`, with NULL taken for one of the two outcomes.
pub(crate) fn decided(condition: Expr, null_is: bool) -> Expr {
    call_of(Decided { null_is: Some(null_is) }, vec![condition])
}

/// `condition` itself; no rule takes its parts together with its neighbours.
pub(crate) fn held(condition: Expr) -> Expr {
    call_of(Decided { null_is: None }, vec![condition])
}

/// The condition in it, if `expr` is a decided one.
pub(crate) fn within_decided(expr: &Expr) -> Option<&Expr> {
    within(expr, false)
}

/// The condition in it, if `expr` is a held one.
pub(crate) fn within_held(expr: &Expr) -> Option<&Expr> {
    within(expr, true)
}

/// The condition in it, if `expr` is a held one; otherwise `expr`.
pub(crate) fn released(expr: Expr) -> Expr {
    let is_held = within_held(&expr).is_some();
    match expr {
        Expr::ScalarFunction(mut call) if is_held => call.args.swap_remove(0),
        other => other,
    }
}

fn within(expr: &Expr, held: bool) -> Option<&Expr> {
    let (Decided { null_is }, args) = called_in(expr)?;
    (null_is.is_none() == held).then(|| args.first()).flatten()
}

impl ScalarUDFImpl for Decided {
    called!(DECIDED, ONE, DataType::Boolean);

    /// No text of what is within, which DataFusion would write anew at every level.
    fn schema_name(&self, _: &[Expr]) -> DfResult<String> {
        Ok(DECIDED.into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let nulls = self.null_is.is_none() && args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(Field::new(DECIDED, DataType::Boolean, nulls)))
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        match &args[..] {
            [Expr::Literal(..)] if self.null_is.is_none() => {
                Ok(ExprSimplifyResult::Simplified(args.remove(0)))
            }
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let condition = first(&args.args)?;
        let Some(null_is) = self.null_is else { return Ok(condition) };
        let condition = condition.into_array(args.number_rows)?;
        let Some(outcomes) = condition.as_boolean_opt() else {
            return internal_err!("a condition of type {}", condition.data_type());
        };
        let Some(nulls) = outcomes.nulls() else { return Ok(ColumnarValue::Array(condition)) };
        let values = match null_is {
            false => outcomes.values() & nulls.inner(),
            true => outcomes.values() | &!nulls.inner(),
        };
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(values, None))))
    }
}
