//! Casts of decimals that lose digits. DataFusion would compare the decimal itself in place of what
//! the cast makes of it: `CAST(5.7 AS INT) <= 5` is true, and `5.7 <= 5` is not.

use crate::expr::udf::called;
use crate::syntax::prelude::*;

static ROUNDED: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Rounded(Signature::any(1, Volatility::Immutable)))));

/// Gives back its argument, a cast, which is not looked into.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rounded(Signature);

/// Keeps such casts within `expr`, which is over `schema`, as they are.
pub(super) fn keep_rounding(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let kept = expr.changed_up(|e| match &e {
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema)?;
            Ok(match loses_digits(&from, cast.field.data_type()) {
                true => Transformed::yes(kept(e)),
                false => Transformed::no(e),
            })
        }
        // It was kept before.
        Expr::ScalarFunction(call) if call.func.inner().is::<Rounded>() => match &call.args[..] {
            [kept] => Ok(Transformed::yes(kept.clone())),
            _ => internal_err!("a cast is one value"),
        },
        _ => Ok(Transformed::no(e)),
    })?;
    Ok(kept.data)
}

/// A cast that is not looked into.
pub(super) fn kept(cast: Expr) -> Expr {
    ROUNDED.call(vec![cast])
}

fn loses_digits(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to < from,
        (DataType::Decimal128(_, from), to) => *from > 0 && to.is_integer(),
        _ => false,
    }
}

impl ScalarUDFImpl for Rounded {
    called!("$rounded", 0);

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [own] => Ok(own.clone()),
            _ => internal_err!("a cast is one value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        match args.arg_fields {
            [own] => Ok(own.clone()),
            _ => internal_err!("a cast is one value"),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.pop() {
            Some(own) => Ok(own),
            None => exec_err!("a cast is one value"),
        }
    }
}
