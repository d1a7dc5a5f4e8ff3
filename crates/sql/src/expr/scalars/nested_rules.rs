//! Refuses what is not computed of rows, arrays and maps as a whole: comparisons, and casts to
//! and from other types; and, as Flink does, casts of numbers to TIMESTAMP.

use crate::expr::{located::within_mark, one_form::compares};
use crate::syntax::prelude::*;

/// Functions with compared arguments.
const COMPARING: [&str; 3] = ["nullif", "greatest", "least"];

pub(super) fn refuse_whole_values(expr: &Expr, schema: &DFSchema) -> DfResult<()> {
    let nested = |e: &Expr| e.get_type(schema).ok().filter(is_nested);
    expr.each_node(|e| {
        let compared = match e {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                nested(left).or_else(|| nested(right))
            }
            Expr::InList(InList { expr, .. }) | Expr::Between(Between { expr, .. }) => nested(expr),
            Expr::Case(Case { expr: Some(expr), when_then_expr, .. }) => {
                let whens = when_then_expr.iter().map(|(when, _)| &**when);
                for side in std::iter::once(&**expr).chain(whens) {
                    refuse_number_as_time(within_mark(side).unwrap_or(side), schema)?;
                }
                nested(expr)
            }
            Expr::ScalarFunction(call) if COMPARING.contains(&call.name()) => {
                call.args.iter().find_map(nested)
            }
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                refuse_cast(&expr.get_type(schema)?, field.data_type())?;
                None
            }
            _ => None,
        };
        if let Some(of) = compared {
            let of = sql_type_name(&of);
            return plan_err!(
                "there is no comparison of {of}; compare what it is made of: row.field, array[1] \
                 or map['key']"
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// In a CASE, numbers beside times have become times by now.
fn refuse_number_as_time(side: &Expr, schema: &DFSchema) -> DfResult<()> {
    let Expr::Cast(Cast { expr, field }) = side else { return Ok(()) };
    let (from, to) = (expr.get_type(schema)?, field.data_type());
    if !from.is_numeric() || !matches!(to, DataType::Timestamp(_, None)) {
        return Ok(());
    }
    let (from, to) = (sql_type_name(&from), sql_type_name(to));
    plan_err!(
        "there is no comparison of {from} with {to}; make a time of it: TO_TIMESTAMP_LTZ(x, 3)"
    )
}

/// Refuses a cast of a nested value to another kind of type, and of a number to a TIMESTAMP: the
/// number's unit is unknown.
fn refuse_cast(from: &DataType, to: &DataType) -> DfResult<()> {
    use DataType::*;
    // AT TIME ZONE casts its operand to a TIMESTAMP_LTZ.
    if from.is_numeric() && matches!(to, Timestamp(_, None)) {
        let (from, to) = (sql_type_name(from), sql_type_name(to));
        return plan_err!(
            "there is no CAST of {from} to {to}; write TO_TIMESTAMP_LTZ(x, 0) where it counts \
             seconds, or TO_TIMESTAMP_LTZ(x, 3) where it counts milliseconds"
        );
    }
    let fits = match (from, to) {
        (Null, _) => true,
        (Struct(from), Struct(to)) => from.len() == to.len(),
        (List(_), List(_)) | (Map(..), Map(..)) => true,
        (from, to) => !is_nested(from) && !is_nested(to),
    };
    if fits {
        return Ok(());
    }
    let (from, to) = (sql_type_name(from), sql_type_name(to));
    plan_err!("there is no CAST of {from} to {to}; cast what it is made of")
}
