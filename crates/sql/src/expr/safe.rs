//! Expressions that give a value for every row, and so can be evaluated for rows that no query
//! needs.

use arrow::datatypes::DECIMAL128_MAX_PRECISION;
use datafusion_common::tree_node::TreeNode;

use crate::expr::scalars::{DECIDED, SAFE, digits_of};
use crate::expr::{located::within_mark, one_form::compares};
use crate::syntax::prelude::*;

/// Functions that give a value for any arguments, never longer than the arguments.
const FUNCTIONS: &str = "\
    ascii btrim character_length coalesce contains ends_with greatest ifnull isnan least ltrim \
    nullif nvl2 octet_length rtrim starts_with";

/// Whether evaluation gives a value whatever the row.
pub(crate) fn cannot_fail(expr: &Expr, schema: &DFSchema) -> bool {
    if let Some(inner) = within_mark(expr) {
        return cannot_fail(inner, schema);
    }
    let own = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            use Operator::*;
            // A decimal with room for a digit more has room for all that comes.
            let has_room = |t: DataType| match t {
                DataType::Decimal128(precision, _) => precision < DECIMAL128_MAX_PRECISION,
                t => t.is_floating(),
            };
            let computes = matches!(op, Plus | Minus | Multiply)
                && expr.get_type(schema).is_ok_and(has_room)
                && left.get_type(schema).is_ok_and(|t| t.is_floating() || t.is_decimal());
            let divides = matches!(op, Divide | Modulo)
                && left.get_type(schema).is_ok_and(|t| t.is_signed_integer())
                && is_divisor(right);
            compares(op) || computes || divides || matches!(op, And | Or)
        }
        Expr::Cast(Cast { expr, field }) => {
            expr.get_type(schema).is_ok_and(|from| widens(&from, field.data_type()))
        }
        Expr::ScalarFunction(call) => {
            let own = FUNCTIONS.split_whitespace().chain([DECIDED]);
            own.chain(SAFE).any(|name| name == call.name())
        }
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::InList(_)
        | Expr::Like(_)
        | Expr::Case(_) => true,
        _ => false,
    };
    own && arguments(expr).into_iter().all(|(argument, _)| cannot_fail(argument, schema))
}

/// Whether all integers can be divided by this constant.
fn is_divisor(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => {
            let value = value.cast_to(&DataType::Int64);
            matches!(value, Ok(ScalarValue::Int64(Some(by))) if by != 0 && by != -1)
        }
        Expr::Cast(Cast { expr, .. }) => is_divisor(expr),
        _ => false,
    }
}

/// Whether every value of the type `from` is a value of `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let bits = |t: &DataType| match t {
        Int8 => Some(8),
        Int16 => Some(16),
        Int32 => Some(32),
        Int64 => Some(64),
        _ => None,
    };
    match (from, to) {
        (Decimal128(..), Float64) => true,
        (from, Decimal128(precision, scale)) => {
            let before_point = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
            digits_of(from).is_some_and(|(p, s)| {
                s <= *scale && before_point(p, s) <= before_point(*precision, *scale)
            })
        }
        (Float32, Float64) => true,
        (from, Float64) if bits(from).is_some() => true,
        (from, to) => matches!((bits(from), bits(to)), (Some(from), Some(to)) if from <= to),
    }
}

/// Direct parts of an expression; for each part, whether it is evaluated for every row for which
/// the whole is.
pub(crate) fn arguments(expr: &Expr) -> Vec<(&Expr, bool)> {
    let first_alone = match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }) => true,
        Expr::InList(InList { .. }) | Expr::Case(_) => true,
        Expr::ScalarFunction(call) => call.func.short_circuits(),
        _ => false,
    };
    let mut all = Vec::new();
    let added = expr.apply_children(|child| {
        all.push((child, !first_alone || all.is_empty()));
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(added.is_ok(), "listing does not fail");
    all
}
