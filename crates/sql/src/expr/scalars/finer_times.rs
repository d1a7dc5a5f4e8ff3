//! Timestamps compared with constants of more digits. DataFusion would compare the column itself
//! with what its type has of the constant: of a `TIMESTAMP(3)`, `ts < TIMESTAMP '… 00:00:00.1235'`
//! would be false at `.123`.

use super::calendar::tick_ns;
use super::dates::compared;
use super::rounded::kept;
use crate::expr::located::within_mark;
use crate::syntax::prelude::*;

/// Keeps casts of timestamps to more digits as they are, within `expr`, which is over `schema`,
/// where these digits count.
pub(super) fn keep_digits(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let kept = expr.changed_up(|mut e| {
        let mut sides = compared(&mut e);
        let mut changes = false;
        for at in 0..sides.len() {
            let Some(ticks) = ticks_of(sides[at], schema)? else { continue };
            let others = sides.iter().enumerate().filter(|(other, _)| *other != at);
            if others.into_iter().any(|(_, other)| has_more(other, ticks)) {
                let cast = std::mem::take(&mut *sides[at]);
                *sides[at] = kept(cast);
                changes = true;
            }
        }
        Ok(if changes { Transformed::yes(e) } else { Transformed::no(e) })
    })?;
    Ok(kept.data)
}

/// Of a cast of a column's timestamps to more digits: the new type's ticks in one of the old.
fn ticks_of(expr: &Expr, schema: &DFSchema) -> DfResult<Option<i128>> {
    let Expr::Cast(Cast { expr: of, field }) = expr else { return Ok(None) };
    let (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) =
        (of.get_type(schema)?, field.data_type())
    else {
        return Ok(None);
    };
    let ticks = tick_ns(from) / tick_ns(*to);
    Ok((ticks > 1 && !of.column_refs().is_empty()).then_some(ticks))
}

/// Whether a constant is between two values of a type whose ticks are so many of its own; also if
/// that is not known before it is computed.
fn has_more(expr: &Expr, ticks: i128) -> bool {
    use ScalarValue::{TimestampMicrosecond, TimestampMillisecond, TimestampNanosecond};
    if !expr.column_refs().is_empty() {
        return false;
    }
    match literal(expr) {
        Some(
            TimestampMillisecond(value, _)
            | TimestampMicrosecond(value, _)
            | TimestampNanosecond(value, _),
        ) => value.is_some_and(|value| i128::from(value) % ticks != 0),
        _ => true,
    }
}

/// The value of a constant that is written out, also within casts.
fn literal(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        marked if let Some(inner) = within_mark(marked) => literal(inner),
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(Cast { expr, field }) => literal(expr)?.cast_to(field.data_type()).ok(),
        _ => None,
    }
}
