//! Formatting expressions as SQL text, for messages, `EXPLAIN` and the names of columns.
//!
//! Two different expressions of one query must have different texts, because the engine lets
//! aggregates share values if their arguments have the same text. (That of a condition tells where
//! it stands, and so how it is evaluated.)

use datafusion_expr::expr::{Alias, Between, Cast, Like, TryCast};
use millstream_contract::interval::write_interval;

use crate::expr::located::within_mark;
use crate::expr::scalars::{
    Access, access, exact_operation, joined_texts, measured_interval, number_cast, similar_parts,
    within_conformed, within_decided, written_time,
};
use crate::syntax::prelude::*;

/// The text of `expr`.
pub(crate) fn sql_text(expr: &Expr) -> String {
    let t = |e: &Expr| nested(e);
    if let Some(inner) = unwritten(expr) {
        return sql_text(inner);
    }
    match expr {
        Expr::Alias(Alias { expr, .. }) => sql_text(expr),
        Expr::Column(column) => column.name.clone(),
        Expr::Literal(value, _) => literal(value),
        infix if let Some((left, op, right)) = operation(infix) => {
            format!("{} {} {}", operand(left, &op), operator(&op), operand(right, &op))
        }
        joined if let Some((left, right)) = joined_texts(joined) => {
            format!("{} || {}", t(left), t(right))
        }
        Expr::Not(e) => format!("NOT {}", t(e)),
        Expr::Negative(e) => format!("-{}", t(e)),
        Expr::IsNull(e) => format!("{} IS NULL", t(e)),
        Expr::IsNotNull(e) => format!("{} IS NOT NULL", t(e)),
        Expr::IsTrue(e) => format!("{} IS TRUE", t(e)),
        Expr::IsFalse(e) => format!("{} IS FALSE", t(e)),
        Expr::IsUnknown(e) => format!("{} IS UNKNOWN", t(e)),
        Expr::IsNotTrue(e) => format!("{} IS NOT TRUE", t(e)),
        Expr::IsNotFalse(e) => format!("{} IS NOT FALSE", t(e)),
        Expr::IsNotUnknown(e) => format!("{} IS NOT UNKNOWN", t(e)),
        Expr::Like(like) => like_text(like, if like.case_insensitive { "ILIKE" } else { "LIKE" }),
        Expr::SimilarTo(like) => like_text(like, "SIMILAR TO"),
        similar if let Some((text, pattern, escape)) = similar_parts(similar) => {
            let escape = escape.map_or(String::new(), |c| format!(" ESCAPE '{c}'"));
            format!("{} SIMILAR TO {}{escape}", t(text), t(pattern))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let not = if *negated { " NOT" } else { "" };
            format!("{}{not} BETWEEN {} AND {}", t(expr), t(low), t(high))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let not = if *negated { " NOT" } else { "" };
            format!("{}{not} IN ({})", t(expr), list_text(list))
        }
        Expr::Case(case) => case_text(case),
        Expr::Cast(Cast { expr, field }) => {
            format!("CAST({} AS {})", sql_text(expr), sql_type_name(field.data_type()))
        }
        Expr::TryCast(TryCast { expr, field }) => {
            format!("TRY_CAST({} AS {})", sql_text(expr), sql_type_name(field.data_type()))
        }
        measured if let Some(interval) = measured_interval(measured) => sql_text(interval),
        own if let Some(text) = own_cast(own) => text,
        accessed if let Some(access) = access(accessed) => access_text(access),
        Expr::ScalarFunction(call) => {
            format!("{}({})", call.name().to_uppercase(), list_text(&call.args))
        }
        Expr::AggregateFunction(call) => {
            let distinct = if call.params.distinct { "DISTINCT " } else { "" };
            let star = call.func.name() == "count"
                && matches!(&call.params.args[..], [Expr::Literal(value, _)] if !value.is_null());
            let args = if star { "*".into() } else { list_text(&call.params.args) };
            let filter = match &call.params.filter {
                Some(filter) => format!(" FILTER (WHERE {})", sql_text(filter)),
                None => String::new(),
            };
            format!("{}({distinct}{args}){filter}", call.func.name().to_uppercase())
        }
        other => other.to_string(),
    }
}

/// A cast that is a function of ours.
fn own_cast(expr: &Expr) -> Option<String> {
    if let Some(time) = written_time(expr) {
        return Some(format!("CAST({} AS STRING)", sql_text(time)));
    }
    let (of, to, tries) = number_cast(expr)?;
    let cast = if tries { "TRY_CAST" } else { "CAST" };
    Some(format!("{cast}({} AS {})", sql_text(of), sql_type_name(to)))
}

/// An operator and its sides, if an expression is that.
fn operation(expr: &Expr) -> Option<(&Expr, Operator, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => Some((left, *op, right)),
        other => exact_operation(other),
    }
}

/// A part of a value, or an array, as SQL writes them.
fn access_text(access: Access<'_>) -> String {
    match access {
        Access::Field(row, name) => format!("{}.{name}", nested(row)),
        Access::Item(of, key) => format!("{}[{}]", nested(of), sql_text(key)),
        Access::Made(kind, of) => format!("{kind}[{}]", list_text(of)),
    }
}

/// The written part of an expression of which only a part is written.
fn unwritten(expr: &Expr) -> Option<&Expr> {
    within_mark(expr).or_else(|| within_decided(expr)).or_else(|| within_conformed(expr))
}

fn list_text(list: &[Expr]) -> String {
    list.iter().map(sql_text).collect::<Vec<_>>().join(", ")
}

/// In brackets unless the text is a single term.
pub(crate) fn nested(expr: &Expr) -> String {
    if let Some(inner) = unwritten(expr) {
        return nested(inner);
    }
    let text = sql_text(expr);
    match expr {
        Expr::Alias(alias) => nested(&alias.expr),
        infix if joined_texts(infix).is_some() || similar_parts(infix).is_some() => {
            format!("({text})")
        }
        infix if exact_operation(infix).is_some() => format!("({text})"),
        Expr::Column(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::ScalarFunction(_)
        | Expr::AggregateFunction(_)
        | Expr::Case(_) => text,
        Expr::Literal(..) if !text.starts_with('-') => text,
        _ => format!("({text})"),
    }
}

/// `a AND b AND c` needs no brackets; anything mixed gets them.
fn operand(expr: &Expr, outer: &Operator) -> String {
    if let Some(inner) = unwritten(expr) {
        return operand(inner, outer);
    }
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. })
            if op == outer && matches!(op, Operator::And | Operator::Or) =>
        {
            sql_text(expr)
        }
        Expr::BinaryExpr(BinaryExpr { op, .. })
            if matches!(outer, Operator::And | Operator::Or) && is_comparison(op) =>
        {
            sql_text(expr)
        }
        Expr::BinaryExpr(BinaryExpr { op, .. })
            if is_comparison(outer) && op.is_numerical_operators() =>
        {
            sql_text(expr)
        }
        exact if is_comparison(outer) && exact_operation(exact).is_some() => sql_text(exact),
        _ => nested(expr),
    }
}

fn is_comparison(op: &Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn operator(op: &Operator) -> String {
    match op {
        Operator::NotEq => "<>".into(),
        other => other.to_string(),
    }
}

fn like_text(like: &Like, word: &str) -> String {
    let not = if like.negated { " NOT" } else { "" };
    let escape = like.escape_char.map_or(String::new(), |c| format!(" ESCAPE '{c}'"));
    format!("{}{not} {word} {}{escape}", nested(&like.expr), nested(&like.pattern))
}

fn case_text(case: &Case) -> String {
    let mut text = String::from("CASE");
    if let Some(expr) = &case.expr {
        text.push_str(&format!(" {}", sql_text(expr)));
    }
    for (when, then) in &case.when_then_expr {
        text.push_str(&format!(" WHEN {} THEN {}", sql_text(when), sql_text(then)));
    }
    if let Some(otherwise) = &case.else_expr {
        text.push_str(&format!(" ELSE {}", sql_text(otherwise)));
    }
    text + " END"
}

fn literal(value: &ScalarValue) -> String {
    use ScalarValue::*;
    if value.is_null() {
        return match value {
            Null => "NULL".into(),
            typed => format!("CAST(NULL AS {})", sql_type_name(&typed.data_type())),
        };
    }
    match value {
        Utf8(Some(s)) | LargeUtf8(Some(s)) | Utf8View(Some(s)) => {
            format!("'{}'", s.replace('\'', "''"))
        }
        Boolean(Some(b)) => b.to_string().to_uppercase(),
        Float32(Some(f)) => format!("{f:?}"),
        Float64(Some(f)) => format!("{f:?}"),
        Binary(Some(bytes)) | LargeBinary(Some(bytes)) | BinaryView(Some(bytes)) => {
            let hex: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
            format!("X'{hex}'")
        }
        Date32(_) | Date64(_) => format!("DATE '{}'", shown(value)),
        Time32Second(_) | Time32Millisecond(_) | Time64Microsecond(_) | Time64Nanosecond(_) => {
            format!("TIME '{}'", shown(value))
        }
        TimestampSecond(..)
        | TimestampMillisecond(..)
        | TimestampMicrosecond(..)
        | TimestampNanosecond(..) => {
            format!("TIMESTAMP '{}'", shown(value).replace('T', " "))
        }
        // Days are written as such: 24 hours are another value.
        IntervalMonthDayNano(Some(value)) if value.months != 0 || value.days != 0 => {
            let mut text = Vec::new();
            let (months, days) = (value.months.into(), value.days.into());
            write_interval(months, days, value.nanoseconds.into(), &mut text);
            format!("INTERVAL '{}'", String::from_utf8_lossy(&text))
        }
        IntervalYearMonth(_) | IntervalDayTime(_) | IntervalMonthDayNano(_) => {
            match crate::syntax::durations::interval_us(value) {
                Some(Some(us)) => format!("INTERVAL '{}'", crate::syntax::durations::duration(us)),
                _ => format!("INTERVAL '{}'", shown(value)),
            }
        }
        other => shown(other),
    }
}

/// The value as Arrow prints it.
fn shown(value: &ScalarValue) -> String {
    value
        .to_array()
        .and_then(|array| Ok(arrow::util::display::array_value_to_string(&array, 0)?))
        .unwrap_or_else(|_| value.to_string())
}
