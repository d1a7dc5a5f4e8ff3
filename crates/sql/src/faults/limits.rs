//! Refusals of numbers and units as they are written: of LIMIT, OFFSET, ORDER BY and INTERVAL.

use datafusion_sql::sqlparser::ast::{Expr, Interval, LimitClause, UnaryOperator, Value};
use datafusion_sql::sqlparser::tokenizer;

use crate::syntax::calls::{double_text, number_of, value_of};
use crate::syntax::prelude::*;

pub(super) type Flow = ControlFlow<SqlError>;

pub(super) const LEAVE_OUT: &str = "leave it out";

pub(super) fn refuse(what: &str, help: &str, place: tokenizer::Span) -> Flow {
    let error = SqlError::unsupported(format!("{what} does not run here")).at(Span::new(place));
    Break(if help.is_empty() { error } else { error.help(help) })
}

/// Expressions after LIMIT and OFFSET.
pub(crate) fn limits(query: &Query) -> Vec<&Expr> {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            limit.iter().chain(offset.as_ref().map(|o| &o.value)).collect()
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => vec![offset, limit],
        None => vec![],
    }
}

pub(super) fn is_count(expr: &Expr) -> bool {
    number_of(expr).is_some_and(|digits| digits.parse::<i64>().is_ok())
}

/// An order within another query, which DataFusion leaves out: it has no meaning without a LIMIT.
pub(crate) fn refuse_inner_order(query: &Query) -> ControlFlow<SqlError> {
    match (&query.order_by, &query.limit_clause, &*query.body) {
        (Some(order_by), None, _) => Break(
            SqlError::unsupported("an ORDER BY within another query orders nothing")
                .at(Span::new(order_by.span()))
                .help("put the ORDER BY at the end of the whole query"),
        ),
        (None, None, SetExpr::Query(inner)) => refuse_inner_order(inner),
        _ => Continue(()),
    }
}

pub(super) fn refuse_count(expr: &Expr) -> Flow {
    let text = double_text(expr).map_or_else(|| expr.to_string(), str::to_string);
    let whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let error = match whole {
        true => SqlError::types(format!("LIMIT and OFFSET take at most {}, not {text}", i64::MAX))
            .help("leave LIMIT out to get all rows"),
        false => SqlError::types(format!("LIMIT and OFFSET take whole numbers, not {text}"))
            .help("write for example LIMIT 10"),
    };
    Break(error.at(Span::new(expr.span())))
}

/// A constant orders nothing; only a whole number stands for a column.
pub(super) fn check_order_key(key: &Expr) -> Flow {
    let (constant, negative) = match key {
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => (&**expr, true),
        other => (other, false),
    };
    let Some(value) = value_of(constant) else { return Continue(()) };
    let error = match value {
        Value::Number(digits, _) if !negative && digits.parse::<usize>().is_ok_and(|n| n > 0) => {
            return Continue(());
        }
        Value::Number(digits, _) if digits == "0" => {
            SqlError::name(format!("ORDER BY {key}: columns are counted from 1"))
        }
        Value::Number(digits, _) if !negative && digits.bytes().all(|b| b.is_ascii_digit()) => {
            SqlError::name(format!("ORDER BY {key}: SELECT has fewer columns"))
        }
        Value::Number(..) => {
            SqlError::name(format!("ORDER BY {key}: a column's number is whole and positive"))
        }
        Value::SingleQuotedString(text) => {
            let error = SqlError::name(format!("ORDER BY {key}: a constant orders nothing"));
            let help = format!("a column's name stands without quotes: ORDER BY {text}");
            return Break(error.help(help).at(Span::new(key.span())));
        }
        _ => return Continue(()),
    };
    let help = "write the column's name, for example ORDER BY a DESC";
    Break(error.help(help).at(Span::new(key.span())))
}

/// `INTERVAL '10'` alone would be ten of something.
pub(super) fn check_unit(interval: &Interval) -> Flow {
    let number = match value_of(&interval.value) {
        Some(Value::SingleQuotedString(text)) => text.trim(),
        Some(Value::Number(number, _)) => number,
        _ => return Continue(()),
    };
    if interval.leading_precision.is_some() || interval.fractional_seconds_precision.is_some() {
        let unit = interval.leading_field.as_ref().map_or("DAY".to_string(), |f| f.to_string());
        let error = SqlError::unsupported("the unit of an interval takes no number of digits here");
        return Break(
            error
                .at(Span::new(interval.value.span()))
                .help(format!("leave it out: INTERVAL '{number}' {unit}")),
        );
    }
    if interval.leading_field.is_some() || number.parse::<f64>().is_err() {
        return Continue(());
    }
    Break(
        SqlError::syntax("an interval needs a unit")
            .at(Span::new(interval.value.span()))
            .help(format!("write for example INTERVAL '{number}' SECOND")),
    )
}
