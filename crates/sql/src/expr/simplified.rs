//! Simplifying an expression by DataFusion's rules, without those that join conditions.
//!
//! Of two conditions on one value those rules make one, and take it for known where a value is
//! NULL: `i NOT IN (1) OR i NOT IN (2)` becomes TRUE. So each condition stands within a
//! [function](crate::expr::scalars::held) that they do not know, and only AND, OR, NOT and CASE are
//! left around it. Within one, `i = 1 OR i IN (2, 3)` may well become a list.

use datafusion_expr::expr::Like;
use datafusion_optimizer::simplify_expressions::ExprSimplifier;

use crate::expr::scalars::{held, released, within_held};
use crate::syntax::prelude::*;

/// Simplifies an expression.
pub(crate) fn simplified(expr: Expr, context: SimplifyContext) -> DfResult<Expr> {
    let held = expr.changed_up(|e| Ok(hold(e)))?.data;
    let simple = ExprSimplifier::new(context).simplify(held)?;
    Ok(simple.changed_up(|e| Ok(release(e)))?.data)
}

fn hold(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            match [&left, &right].iter().all(|side| within_held(side).is_some_and(is_one_of)) {
                true => Transformed::yes(held(released(*left).or(released(*right)))),
                false => Transformed::no((*left).or(*right)),
            }
        }
        Expr::BinaryExpr(ref binary) if binary.op.negate().is_some() => {
            Transformed::yes(held(expr))
        }
        Expr::InList(_) | Expr::Like(_) | Expr::Between(_) => Transformed::yes(held(expr)),
        other => Transformed::no(other),
    }
}

/// Whether a condition lists values, which an OR adds to.
fn is_one_of(condition: &Expr) -> bool {
    match condition {
        Expr::InList(list) => !list.negated,
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Or => true,
            Operator::Eq => {
                let is = |e: &Expr| matches!(e, Expr::Literal(..));
                is(left) || is(right)
            }
            _ => false,
        },
        _ => false,
    }
}

fn release(expr: Expr) -> Transformed<Expr> {
    let Expr::Not(inner) = expr else { return Transformed::yes(released(expr)) };
    Transformed::yes(match *inner {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if let Some(op) = op.negate() => {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        Expr::InList(list) => Expr::InList(InList { negated: !list.negated, ..list }),
        Expr::Like(like) => Expr::Like(Like { negated: !like.negated, ..like }),
        other => Expr::Not(Box::new(other)),
    })
}
