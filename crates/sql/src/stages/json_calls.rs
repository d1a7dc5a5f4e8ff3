//! Calls that replace the [syntax](crate::syntax::json_syntax) of SQL/JSON in planning, with texts
//! in place of clauses. Finds mistakes in such calls.

use datafusion_sql::sqlparser::ast::{Expr, Function, UnaryOperator};

use crate::expr::scalars::{JsonPath, fits, returned_type};
use crate::syntax::calls::{
    DEFAULT, IS_JSON, JSON_ARRAY, JSON_IS_JSON, JSON_OBJECT, function, string,
};
use crate::syntax::json_syntax::{
    EXISTS, IS, IS_NOT, MEMBER, OBJECT, QUERY, VALUE, constant, word_of, worded,
};
use crate::syntax::prelude::*;

/// `x IS [NOT] JSON kind`, if an expression is that.
pub(crate) fn is_json(expr: &Expr) -> Option<Expr> {
    let (text, words, kind) = worded(expr)?;
    let place = Ident { span: text.span(), ..Ident::new("") };
    let is = function(&place, IS_JSON, vec![text.clone(), string(word_of(kind)?)]);
    match words {
        IS => Some(is),
        IS_NOT => {
            let not = Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(is) };
            Some(Expr::Nested(Box::new(not)))
        }
        _ => None,
    }
}

/// A call of JSON_VALUE or JSON_EXISTS with texts in place of its clauses; `None` without clauses.
pub(crate) fn rewrite(name: &Ident, call: &Function, args: &[Expr]) -> Result<Option<Expr>> {
    let [json, path] = args else { return check(call, args).map(|()| None) };
    let Some(args) = with_texts(json, path, name.value.eq_ignore_ascii_case(VALUE)) else {
        return check(call, args).map(|()| None);
    };
    check(call, &args)?;
    Ok(Some(function(name, &name.value.to_lowercase(), args)))
}

/// A call of JSON_QUERY with texts in place of its clauses; `None` without clauses.
pub(crate) fn rewrite_query(name: &Ident, call: &Function, args: &[Expr]) -> Result<Option<Expr>> {
    let [json, path] = args else { return check(call, args).map(|()| None) };
    let (mut wrapper, mut on_empty, mut on_error) = ("WITHOUT ARRAY", "NULL", "NULL");
    let mut rest = path;
    while let Some((before, words, last)) = worded(rest) {
        rest = before;
        let instead = words.trim_end_matches(" ON");
        match word_of(last) {
            Some("WRAPPER") => wrapper = words,
            Some("EMPTY") => on_empty = instead,
            Some("ERROR") => on_error = instead,
            Some(returned) if returned_type(returned) != Some(DataType::Utf8) => {
                return Err(SqlError::types(format!("JSON_QUERY does not return {returned}"))
                    .at(Span::new(call.name.span()))
                    .help("it returns STRING"));
            }
            _ => {}
        }
    }
    let texts = [wrapper, on_empty, on_error].map(string);
    let args = [&[json.clone(), rest.clone()][..], &texts].concat();
    check(call, &args)?;
    Ok(Some(function(name, "json_query", args)))
}

/// A call of JSON_OBJECT or JSON_ARRAY as one of texts and values.
pub(crate) fn rewrite_made(name: &Ident, args: &[Expr]) -> Option<Expr> {
    let is_object = name.value.eq_ignore_ascii_case(OBJECT);
    let mut on_null = if is_object { "NULL" } else { "ABSENT" };
    let mut all = vec![string(on_null)];
    for arg in args {
        let mut arg = arg;
        if let Some((before, words @ ("NULL ON" | "ABSENT ON"), _)) = worded(arg) {
            (arg, on_null) = (before, words.trim_end_matches(" ON"));
        }
        let value = match worded(arg) {
            Some((key, MEMBER, value)) if is_object => {
                all.push(key.clone());
                value
            }
            _ if is_object => return None,
            _ => arg,
        };
        all.push(string(if is_json_made(value) { JSON_IS_JSON } else { "" }));
        all.push(value.clone());
    }
    all[0] = string(on_null);
    Some(function(name, if is_object { JSON_OBJECT } else { JSON_ARRAY }, all))
}

/// Whether a value is one of JSON_OBJECT or JSON_ARRAY.
fn is_json_made(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_json_made(inner),
        Expr::Function(call) => {
            let name = call.name.to_string();
            name == JSON_OBJECT || name == JSON_ARRAY
        }
        _ => false,
    }
}

fn with_texts(json: &Expr, path: &Expr, of_value: bool) -> Option<Vec<Expr>> {
    let (mut returning, mut on_empty, mut on_error) = ("STRING", "NULL".to_string(), None);
    let mut rest = path;
    while let Some((before, words, last)) = worded(rest) {
        rest = before;
        let last = word_of(last)?;
        if words == "RETURNING" {
            returning = last;
            continue;
        }
        let mut instead = words.trim_end_matches(" ON").to_string();
        if words == "ON" {
            let (before, _, default) = worded(rest)?;
            rest = before;
            instead = constant(default)?.map_or("NULL".into(), |text| format!("{DEFAULT}{text}"));
        }
        match last {
            "EMPTY" => on_empty = instead,
            _ => on_error = Some(instead),
        }
    }
    if std::ptr::eq(rest, path) {
        return None;
    }
    let mut args = vec![json.clone(), rest.clone()];
    if of_value {
        args.extend([string(returning), string(&on_empty)]);
    }
    args.push(string(&on_error.unwrap_or_else(|| "NULL".into())));
    Some(args)
}

/// Refuses a call of JSON_VALUE, JSON_EXISTS or JSON_QUERY with a wrong path or clause.
fn check(call: &Function, args: &[Expr]) -> Result<()> {
    let name = call.name.to_string().to_uppercase();
    let at = |expr: &Expr| Span::new(expr.span()).or(Span::new(call.name.span()));
    let takes = format!("write for example {name}(x, '$.a.b[0]')");
    let (Some(path), true) =
        (args.get(1), matches!((&*name, args.len()), (_, 2) | (VALUE | QUERY, 5) | (EXISTS, 3)))
    else {
        let message = format!("{name} takes a text and a path");
        return Err(SqlError::types(message).at(Span::new(call.name.span())).help(takes));
    };
    let Some(Some(text)) = constant(path).filter(|_| !matches!(path, Expr::UnaryOp { .. })) else {
        let message = format!("the path of {name} must be a text in quotes");
        return Err(SqlError::unsupported(message).at(at(path)).help(takes));
    };
    JsonPath::parse(&text).map_err(|wrong| {
        SqlError::types(format!("{text} is no path: {wrong}"))
            .at(at(path))
            .help("write for example '$.a.b[0]', or '$[''a b'']' for other names")
    })?;
    let clause = |at: usize| args.get(at).and_then(constant).flatten().unwrap_or_default();
    if name == VALUE && args.len() == 5 {
        let returning = clause(2);
        let Some(data_type) = returned_type(&returning) else {
            return Err(SqlError::types(format!("JSON_VALUE does not return {returning}"))
                .at(Span::new(call.name.span()))
                .help(format!(
                    "it returns STRING, BOOLEAN, INT, BIGINT or DOUBLE; write for example \
                     CAST(JSON_VALUE(x, '$.a') AS {returning})"
                )));
        };
        for on in [clause(3), clause(4)] {
            if let Some(default) = on.strip_prefix(DEFAULT).filter(|text| !fits(text, &data_type)) {
                return Err(SqlError::types(format!("the default {default} is no {returning}"))
                    .at(Span::new(call.name.span()))
                    .help(format!("write a default that is of type {returning}")));
            }
        }
    }
    Ok(())
}
