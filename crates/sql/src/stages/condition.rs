//! Conditions of which only a single outcome counts. A filter, and a WHEN of CASE, test for TRUE
//! alone: once a part of an AND is NULL, the whole cannot be TRUE, and the parts behind it are not
//! to be evaluated, since they may fail. AND as a value differs: `NULL AND FALSE` is FALSE.
//!
//! So `b > 0 AND 7 / a > 1` becomes `b > 0 IS TRUE AND 7 / a > 1`, where `b` can be NULL. Under
//! NOT, FALSE alone counts, and OR takes the role of AND. Messages do not show the added IS TRUE
//! ([`decided`]).

use crate::expr::{evaluate::spelled_out, safe::cannot_fail, scalars::decided};
use crate::stages::schemas::nullable;
use crate::syntax::prelude::*;

/// The outcome that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counts {
    True,
    False,
}

/// A filter's condition: TRUE for the same rows, and evaluated for no more than it takes to know.
pub(crate) fn filter(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(rewrite(expr, Counts::True, schema)?)
}

/// A value, with the conditions within it.
pub(crate) fn value(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let asks = |expr: Box<Expr>, counts| rewrite(*expr, counts, schema).map(Box::new);
    let rewritten = expr.changed_up(|e| {
        Ok(Transformed::yes(match e {
            Expr::Case(mut case) if case.expr.is_none() => {
                let branches = std::mem::take(&mut case.when_then_expr);
                let branches = branches.into_iter().map(|(w, t)| Ok((asks(w, Counts::True)?, t)));
                case.when_then_expr = branches.collect::<DfResult<_>>()?;
                Expr::Case(case)
            }
            Expr::IsTrue(e) => Expr::IsTrue(asks(e, Counts::True)?),
            Expr::IsNotTrue(e) => Expr::IsNotTrue(asks(e, Counts::True)?),
            Expr::IsFalse(e) => Expr::IsFalse(asks(e, Counts::False)?),
            Expr::IsNotFalse(e) => Expr::IsNotFalse(asks(e, Counts::False)?),
            other => return Ok(Transformed::no(other)),
        }))
    })?;
    Ok(rewritten.data)
}

/// An expression with the same outcome wherever `counts` is the outcome; the rest may differ.
fn rewrite(expr: Expr, counts: Counts, schema: &DFSchema) -> DfResult<Expr> {
    Ok(part(expr, counts, false, schema)?.0)
}

/// A part of a chain; `before_risk` if a later part can fail. Also returns whether the part can
/// fail.
fn part(
    expr: Expr,
    counts: Counts,
    before_risk: bool,
    schema: &DFSchema,
) -> DfResult<(Expr, bool)> {
    let chain = if counts == Counts::True { Operator::And } else { Operator::Or };
    let expr = spelled_out(expr, schema)?;
    let (expr, can_fail) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == chain => {
            let (right, right_fails) = part(*right, counts, before_risk, schema)?;
            let (left, left_fails) = part(*left, counts, before_risk || right_fails, schema)?;
            return Ok((binary(left, op, right), left_fails || right_fails));
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let (left, left_fails) = part(*left, counts, false, schema)?;
            let (right, right_fails) = part(*right, counts, false, schema)?;
            (binary(left, op, right), left_fails || right_fails)
        }
        Expr::Not(inner) => {
            let counts = if counts == Counts::True { Counts::False } else { Counts::True };
            let (inner, fails) = part(*inner, counts, false, schema)?;
            (Expr::Not(Box::new(inner)), fails)
        }
        leaf => {
            let can_fail = !cannot_fail(&leaf, schema);
            (leaf, can_fail)
        }
    };
    if !before_risk || !nullable(&expr, schema) {
        return Ok((expr, can_fail));
    }
    Ok((decided(expr, counts == Counts::False), can_fail))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}
