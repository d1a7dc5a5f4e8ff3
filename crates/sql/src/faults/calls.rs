//! Refusals of calls.

use datafusion_sql::sqlparser::ast::{Expr, Function, FunctionArguments};

use crate::expr::{aggregates::aggregate_named, collecting, scalars::CURRENT_WATERMARK};
use crate::faults::arguments::{check_arguments, check_counts};
use crate::faults::limits::{Flow, LEAVE_OUT, refuse};
use crate::faults::unavailable::reason;
use crate::stages::windows::group_windows;
use crate::stages::{functions::Functions, ranking, watermarks::not_of_clock};
use crate::syntax::calls::{MAP, PARTITIONED};
use crate::syntax::prelude::*;
use crate::syntax::tree::arguments;

/// Refuses a call that does not run, or of a function that there is not; whether it stands within a
/// window function in FROM counts.
pub(super) fn check_call(call: &Function, functions: &Functions, in_table: bool) -> Flow {
    let place = call.name.span();
    if call.over.is_some() {
        return match ranking::refused(call) {
            Some(error) => Break(error.at(Span::new(call.span()))),
            None => Continue(()),
        };
    }
    if call.uses_odbc_syntax || !matches!(call.parameters, FunctionArguments::None) {
        return refuse("this form of a call", "write name(argument, …)", place);
    }
    let name = call.name.to_string();
    let lower = name.trim_matches('`').trim_matches('"').to_lowercase();
    if !call.within_group.is_empty() && reason(&lower).is_none() {
        return refuse("WITHIN GROUP", LEAVE_OUT, call.span());
    }
    let function = aggregate_named(&lower).map(|(function, _)| function);
    if let Some((counts, form)) = function.and_then(collecting::arguments) {
        check_counts(call, &name.to_uppercase(), &counts, form)?;
    } else if function.is_some() {
        check_arguments(call, &lower)?;
    }
    if lower == MAP && matches!(&call.args, FunctionArguments::List(l) if l.args.is_empty()) {
        let error = SqlError::types("a MAP is made of keys and values").at(Span::new(place));
        return Break(error.help("write for example MAP['a', 1, 'b', 2]"));
    }
    if lower == PARTITIONED && !in_table {
        let error = SqlError::syntax("PARTITION BY stands after the name of SESSION's table");
        return Break(error.at(Span::new(place)));
    }
    if lower == CURRENT_WATERMARK && is_of_clock(call) {
        return Break(not_of_clock("PROCTIME()").at(Span::new(place)));
    }
    if functions.knows(&lower) {
        return Continue(());
    }
    if in_table && is_window_function(&lower) {
        return Continue(());
    }
    let error = match reason(&lower) {
        Some((message, help)) => {
            let error = SqlError::unsupported(format!("{} {message}", name.to_uppercase()));
            if help.is_empty() { error } else { error.help(help) }
        }
        None if let Some(form) = functions.form(&lower) => {
            let name = name.to_uppercase();
            SqlError::types(format!("{name} is not called like this")).help(format!("write {form}"))
        }
        None => {
            let error = SqlError::name(format!("there is no function '{name}'"));
            let meant = [functions.closest(&lower), closest_elsewhere(&lower)];
            match closest(&lower, meant.iter().flatten().map(String::as_str)) {
                Some(meant) => error.help(format!("did you mean {meant}?")),
                None => error,
            }
        }
    };
    Break(error.at(Span::new(place)))
}

/// Whether a call's argument is the time of reading.
fn is_of_clock(call: &Function) -> bool {
    let arguments = arguments(call).unwrap_or_default();
    arguments.iter().any(|argument| {
        matches!(argument, Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("PROCTIME"))
    })
}

/// The function among those that are none of an expression, but of FROM, of OVER or of the group
/// windows, whose name is most like `name`.
fn closest_elsewhere(name: &str) -> Option<String> {
    const NAMES: &str =
        "EXISTS TUMBLE HOP CUMULATE SESSION DESCRIPTOR UNNEST ROW_NUMBER RANK DENSE_RANK";
    let bounds = group_windows::bound_names();
    let names = NAMES.split_whitespace().chain(bounds.iter().map(String::as_str));
    closest(name, names).map(str::to_string)
}

fn is_window_function(name: &str) -> bool {
    // What is none of these is answered by the window function's planner.
    reason(name).is_none()
        || matches!(name, "tumble" | "hop" | "session" | "cumulate" | "descriptor")
}
