//! How many arguments the calls of aggregates have.

use std::ops::{ControlFlow, RangeInclusive};

use datafusion_sql::sqlparser::ast::{
    Function, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned,
};

use crate::error::{Span, SqlError};

/// That a call has as many arguments as it may have.
pub(crate) fn check_arguments(
    call: &Function,
    name: &str,
    counts: &RangeInclusive<usize>,
    form: &str,
) -> ControlFlow<SqlError> {
    let FunctionArguments::List(list) = &call.args else { return ControlFlow::Continue(()) };
    let plain = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    if counts.contains(&list.args.len()) && list.args.iter().all(plain) {
        return ControlFlow::Continue(());
    }
    let (least, most) = (counts.start(), counts.end());
    let wanted = if least == most { most.to_string() } else { format!("{least} or {most}") };
    let arguments = if *most == 1 { "argument" } else { "arguments" };
    let message = match list.args.iter().all(plain) {
        true => format!("{name} takes {wanted} {arguments}, not {}", list.args.len()),
        false => format!("{name} takes {wanted} {arguments}"),
    };
    let error = SqlError::types(message).at(Span::new(call.name.span()));
    ControlFlow::Break(error.help(format!("write {form}")))
}

/// All aggregates but COUNT are of one thing.
pub(crate) fn check_one_argument(call: &Function, name: &str) -> ControlFlow<SqlError> {
    let FunctionArguments::List(list) = &call.args else { return ControlFlow::Continue(()) };
    let right = match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(_))] => true,
        [] | [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => name == "COUNT",
        _ => false,
    };
    if right {
        return ControlFlow::Continue(());
    }
    let found = match &list.args[..] {
        [_] => "*".to_string(),
        many => many.len().to_string(),
    };
    ControlFlow::Break(
        SqlError::types(format!("{name} takes one argument, not {found}"))
            .at(Span::new(call.name.span()))
            .help(format!("write {name}(x)")),
    )
}
