//! Casts of decimals that lose digits. DataFusion would compare the decimal itself in place of what
//! the cast makes of it: `CAST(5.7 AS INT) <= 5` is true, and `5.7 <= 5` is not.

use crate::expr::udf::{argument_of, call_of, called, gives_argument};
use crate::syntax::prelude::*;

/// Gives back its argument, a cast, which is not looked into.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rounded;

/// Keeps such casts within `expr`, which is over `schema`, as they are.
pub(super) fn keep_rounding(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    expr.replaced(|e| match e {
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema)?;
            Ok(loses_digits(&from, cast.field.data_type()).then(|| kept(e.clone())))
        }
        // It was kept before.
        call => Ok(argument_of::<Rounded>(call).cloned()),
    })
}

/// A cast that is not looked into.
pub(super) fn kept(cast: Expr) -> Expr {
    call_of(Rounded, vec![cast])
}

fn loses_digits(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to < from,
        (DataType::Decimal128(_, from), to) => *from > 0 && to.is_integer(),
        _ => false,
    }
}

impl ScalarUDFImpl for Rounded {
    called!("$rounded", ONE);
    gives_argument!();
}
