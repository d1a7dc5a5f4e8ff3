//! How many arguments an aggregate is called with, and calls without records.

use std::ops::RangeInclusive;

use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Values,
};

use crate::expr::aggregates::arguments_of;
use crate::stages::functions::Functions;
use crate::syntax::prelude::*;

/// Checks an aggregate's number of arguments; COUNT has several with DISTINCT only.
pub(crate) fn check_arguments(call: &Function, name: &str) -> ControlFlow<SqlError> {
    let FunctionArguments::List(list) = &call.args else { return Continue(()) };
    let upper = name.to_uppercase();
    let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let wanted = match arguments_of(name) {
        None if distinct => list.args.len().max(1),
        wanted => wanted.unwrap_or(1),
    };
    let is_value =
        |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    let right = match &list.args[..] {
        [] | [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => name == "count" && !distinct,
        args => args.len() == wanted && args.iter().all(is_value),
    };
    if right {
        return Continue(());
    }
    let found = match &list.args[..] {
        [_] if wanted == 1 => "*".to_string(),
        many => many.len().to_string(),
    };
    let (takes, form) = match wanted {
        2 => ("two arguments", "y, x"),
        _ => ("one argument", "x"),
    };
    Break(
        SqlError::types(format!("{upper} takes {takes}, not {found}"))
            .at(Span::new(call.name.span()))
            .help(format!("write {upper}({form})")),
    )
}

/// Checks that a call has as many arguments as it may have.
pub(crate) fn check_counts(
    call: &Function,
    name: &str,
    counts: &RangeInclusive<usize>,
    form: &str,
) -> ControlFlow<SqlError> {
    let FunctionArguments::List(list) = &call.args else { return Continue(()) };
    let plain = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    if counts.contains(&list.args.len()) && list.args.iter().all(plain) {
        return Continue(());
    }
    let (least, most) = (counts.start(), counts.end());
    let wanted = if least == most { most.to_string() } else { format!("{least} or {most}") };
    let arguments = if *most == 1 { "argument" } else { "arguments" };
    let message = match list.args.iter().all(plain) {
        true => format!("{name} takes {wanted} {arguments}, not {}", list.args.len()),
        false => format!("{name} takes {wanted} {arguments}"),
    };
    let error = SqlError::types(message).at(Span::new(call.name.span()));
    Break(error.help(format!("write {form}")))
}

/// Refuses an aggregate in VALUES.
pub(crate) fn check_values(values: &Values, functions: &Functions) -> ControlFlow<SqlError> {
    let found = values.each_expr(|expr| match expr {
        Expr::Function(call)
            if call.over.is_some()
                || functions.is_aggregate(&call.name.to_string().to_lowercase()) =>
        {
            let name = call.name.to_string().to_uppercase();
            let error = SqlError::unsupported(format!("{name} is of records, and VALUES has none"));
            let error = error.at(Span::new(call.name.span()));
            Break(Some(error.help(format!("write SELECT {name}(…) FROM a table"))))
        }
        // A query within has records.
        Expr::Subquery(_) => Break(None),
        _ => Continue(()),
    });
    match found.break_value().flatten() {
        Some(error) => Break(error),
        None => Continue(()),
    }
}
