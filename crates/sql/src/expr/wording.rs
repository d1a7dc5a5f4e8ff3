//! DataFusion's messages, reworded.

use millstream_contract::wording::counted;

use crate::expr::aggregates::aggregate_named;
use crate::syntax::prelude::*;
use crate::syntax::{types::with_sql_types, words::lower_first};

/// One sentence, without prefixes, debug output and help for DataFusion's own users.
pub(crate) fn reworded(kind: ErrorKind, text: &str) -> SqlError {
    let text = plain(text);
    if let Some(error) = known(kind, text) {
        return error;
    }
    let text = with_sql_types(&lower_first(text.trim_end_matches('.')));
    SqlError::new(kind, first_lines(&text))
}

/// The message itself, without the text around.
pub(crate) fn plain(text: &str) -> &str {
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text);
    let mut text = text.trim();
    for prefix in [
        "type_coercion\ncaused by\n",
        "Error during planning: ",
        "This feature is not implemented: ",
        "Execution error: ",
        "Optimizer rule 'simplify_expressions' failed\ncaused by\n",
    ] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    text
}

/// Messages that we have better words for.
fn known(kind: ErrorKind, text: &str) -> Option<SqlError> {
    own(text)
        .or_else(|| coercion(text))
        .or_else(|| arguments(text))
        .or_else(|| operator(text))
        .or_else(|| grouping(text))
        .or_else(|| value(text))
        .or_else(|| other(kind, text))
}

/// Text between two texts.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.split_once(start)?.1;
    Some(if end.is_empty() { rest } else { rest.split_once(end)?.0 })
}

/// Message of our own functions, with help behind a semicolon.
fn own(text: &str) -> Option<SqlError> {
    let coercion = "user-defined coercion failed with: ";
    let text = text.split_once(coercion).map_or(text, |(_, own)| plain(own));
    let (message, help) = text.split(" No function matches").next()?.split_once("; ")?;
    let ours = message.starts_with("there is no ") || message.contains(" has no ");
    ours.then(|| SqlError::types(message).help(help.trim_end_matches('.')))
}

/// Mistakes of the query that DataFusion takes for faults of its own.
pub(crate) fn internal(text: &str) -> Option<SqlError> {
    if text.contains("failed to match any signature") {
        return Some(other_arguments(between(text, "Function '", "'")?));
    }
    let pair = between(text, "Failed to coerce types ", " in BETWEEN expression")?;
    let (left, right) = pair.split_once(" and ")?;
    Some(not_comparable(&with_sql_types(left), &with_sql_types(right)))
}

fn not_comparable(left: &str, right: &str) -> SqlError {
    let time = |t: &str| t.starts_with("TIMESTAMP");
    let number =
        |t: &str| t.ends_with("INT") || t.starts_with("DECIMAL") || matches!(t, "DOUBLE" | "FLOAT");
    let error = SqlError::types(format!("{left} cannot be compared with {right}"));
    match time(left) && number(right) || number(left) && time(right) {
        true => error.help("make a time of the number, for example to_timestamp_millis(x)"),
        false if left == "DATE" && number(right) || number(left) && right == "DATE" => {
            error.help("compare with a date, for example DATE '2024-01-31'")
        }
        false if left.starts_with("TIME(") && right.starts_with("TIME(") => {
            error.help(format!("cast the one with fewer digits: CAST(x AS {})", left.max(right)))
        }
        false => error.help(CAST_ONE_SIDE),
    }
}

/// Arguments, results or sides that have no common type.
fn coercion(text: &str) -> Option<SqlError> {
    let lower = text.to_lowercase();
    if let Some(call) = between(text, "to satisfy a call to '", "") {
        let types = with_sql_types(between(call, "coercion from ", " to the signature")?);
        return Some(wrong_arguments(call.split('\'').next()?, &types));
    }
    let listed = text.contains("No function matches the given name");
    if let (false, Some(pair)) =
        (listed, between(text, "Unsupported argument types ", " for function "))
    {
        let types = with_sql_types(pair).replace(" and ", ", ");
        return Some(wrong_arguments(between(text, " for function ", "")?, &types));
    }
    if let (false, Some(rest)) =
        (listed, between(text, "unction '", " user-defined coercion failed with"))
    {
        let name = rest.trim_end_matches('\'');
        return Some(match text.contains("the coerced type") {
            true => SqlError::types(format!(
                "the arguments of {} have no common type",
                name.to_uppercase()
            ))
            .help("cast some of them, for example CAST(x AS STRING)"),
            false => other_arguments(name),
        });
    }
    if lower.contains("to common types in case when expression") {
        let what = match lower.contains("coerce case") {
            true => "what a CASE compares has no common type",
            false => "the results of a CASE have no common type",
        };
        let error = SqlError::types(what);
        return Some(error.help("cast some of them, for example CAST(x AS STRING)"));
    }
    let list = between(&lower, "find compatible types to compare ", "")?;
    let list = &text[text.len() - list.len()..];
    let (one, others) = list.split_once(" with [")?;
    let (one, others) = (with_sql_types(one), with_sql_types(others.trim_end_matches(']')));
    let message = format!("IN compares {one} with {others}, which have no common type");
    Some(SqlError::types(message).help(CAST_ONE_SIDE))
}

fn other_arguments(name: &str) -> SqlError {
    SqlError::types(format!("{} does not go with these arguments", name.to_uppercase()))
        .help("give it others, or cast them, for example CAST(x AS STRING)")
}

/// A call with arguments of wrong types or number.
fn arguments(text: &str) -> Option<SqlError> {
    if text.contains("No function matches the given name") {
        let rest = between(text, "No function matches the given name", "")?;
        let call = between(rest, "'", "'")?;
        let (name, types) = call.split_once('(')?;
        let types = with_sql_types(types.strip_suffix(')').unwrap_or(types));
        let error = wrong_arguments(name, &types);
        if let Some((function, takes)) = aggregate_named(&name.to_lowercase()) {
            let help = crate::expr::collecting::help(function);
            let other = || crate::expr::aggregates::other_argument(function, takes, &types);
            let help = help.unwrap_or_else(other);
            return Some(error.help(help));
        }
        let forms = between(rest, "Candidate functions:", "").map(|list| {
            list.trim().lines().map(|l| form(l.trim())).take(4).collect::<Vec<_>>().join(" or ")
        });
        let forms = forms.filter(|forms| !forms.contains("USERDEFINED"));
        return Some(error.maybe_help(forms.map(|forms| format!("it takes {forms}"))));
    }
    if let Some(rest) = text.strip_prefix("Function '") {
        let (name, rest) = rest.split_once('\'')?;
        let wanted = between(rest, " requires ", ",");
        let given = between(rest, "but received ", " (").or_else(|| between(rest, "received ", ""));
        let given = with_sql_types(given?);
        let error = wrong_arguments(name, &given);
        return Some(error.maybe_help(wanted.map(|w| format!("it takes {}", upper_types(w)))));
    }
    None
}

fn wrong_arguments(name: &str, types: &str) -> SqlError {
    let name = name.to_uppercase();
    match types.trim() {
        "" => SqlError::types(format!("{name} needs arguments")),
        types => SqlError::types(format!("there is no {name} of {types}")),
    }
}

/// `substr(str: String, start_pos: Int64)` as `SUBSTR(STRING, BIGINT)`.
fn form(signature: &str) -> String {
    let (name, arguments) = signature.split_once('(').unwrap_or((signature, ")"));
    let arguments = arguments.strip_suffix(')').unwrap_or(arguments);
    let arguments = if arguments.eq_ignore_ascii_case("nullary()") { "" } else { arguments };
    let types: Vec<String> = arguments
        .split(", ")
        .map(|argument| upper_types(argument.rsplit(": ").next().unwrap_or(argument)))
        .collect();
    format!("{}({})", name.to_uppercase(), types.join(", "))
}

/// The names that DataFusion has for kinds of types.
fn upper_types(text: &str) -> String {
    let text = with_sql_types(text);
    for (theirs, ours) in [("Numeric(1)", "NUMBER"), ("Numeric(2)", "NUMBER, NUMBER")] {
        if text == theirs {
            return ours.into();
        }
    }
    text.replace("TIME(9)", "TIME").replace("TIME(6)", "TIME").to_uppercase()
}

const CAST_ONE_SIDE: &str = "cast one side, for example CAST(x AS BIGINT)";

/// Arithmetic between types that it does not go with.
fn arithmetic(text: &str) -> Option<SqlError> {
    if let Some(rest) = text.strip_prefix("Cannot coerce arithmetic expression ") {
        let pair = with_sql_types(rest.strip_suffix(" to valid types").unwrap_or(rest));
        let (left, op, right) = split_operator(&pair)?;
        let error = SqlError::types(format!("{op} does not go with {left} and {right}"));
        let time = |t: &str| t.starts_with("TIMESTAMP") || t == "DATE";
        let number = |t: &str| t.ends_with("INT") || t == "DOUBLE";
        return Some(if time(left) && number(right) {
            error.help(format!("write for example x {op} INTERVAL '5' SECOND"))
        } else {
            error.help(CAST_ONE_SIDE)
        });
    }
    if let Some(rest) = text.strip_prefix("Cannot get result type for arithmetic operation ") {
        let pair = with_sql_types(rest.split(':').next().unwrap_or(rest));
        let (left, op, right) = split_operator(&pair)?;
        let error = SqlError::types(format!("{op} does not go with {left} and {right}"));
        return Some(error.help("cast both sides, for example CAST(x AS BIGINT)"));
    }
    if let Some(rest) = text.strip_prefix("Cannot get result type for temporal operation ") {
        let pair = with_sql_types(rest.split(':').next().unwrap_or(rest));
        let (left, op, right) = split_operator(&pair)?;
        let error = SqlError::types(format!("{op} does not go with {left} and {right}"));
        return Some(error.help(
            "an interval is a constant, or the difference of two times; compute with seconds, for \
             example to_timestamp_seconds(x)",
        ));
    }
    None
}

/// An operator between types that it does not go with.
fn operator(text: &str) -> Option<SqlError> {
    if let Some(error) = arithmetic(text) {
        return Some(error);
    }
    if let Some(pair) = between(text, "common argument type for comparison operation ", "") {
        let pair = with_sql_types(pair);
        let (left, _, right) = split_operator(&pair)?;
        return Some(not_comparable(left, right));
    }
    if let Some(pair) = between(text, "common argument type for logical boolean operation ", "") {
        let pair = with_sql_types(pair);
        let (left, op, right) = split_operator(&pair)?;
        let wrong = if left == "BOOLEAN" { right } else { left };
        let error =
            SqlError::types(format!("{op} goes between conditions, and one side is {wrong}"));
        return Some(error.help("compare it with something, for example x <> 0"));
    }
    if let Some(rest) = text.strip_prefix("Unary operator 'NOT' requires a boolean expression") {
        let given = with_sql_types(between(rest, "got ", "").unwrap_or("something else"));
        let error = SqlError::types(format!("NOT takes a condition, a BOOLEAN, not {given}"));
        return Some(error.help("compare it with something, for example NOT (x <> 0)"));
    }
    if text.starts_with("Unary operator '-' only supports") {
        let error = SqlError::types("the sign - goes with numbers and intervals only");
        return Some(error.help("cast what follows it, for example -CAST(x AS BIGINT)"));
    }
    if let Some(pair) = between(text, "common string type for string concat operation ", "") {
        let pair = with_sql_types(pair);
        let (left, _, right) = split_operator(&pair)?;
        let error = SqlError::types(format!("|| joins texts, not {left} and {right}"));
        return Some(error.help("cast one of them: CAST(x AS STRING)"));
    }
    let matching = ["LIKE", "SIMILAR TO"].into_iter().find(|name| text.contains(name));
    if let (true, Some(name)) = (text.contains("common type to coerce"), matching) {
        let types = with_sql_types(between(text, "to coerce ", " in ")?);
        let error = SqlError::types(format!("{name} compares texts, not {types}"));
        return Some(error.help("cast what is no text: CAST(x AS STRING)"));
    }
    None
}

/// `BIGINT + STRING` in three.
fn split_operator(text: &str) -> Option<(&str, &str, &str)> {
    const OPERATORS: &str =
        "IS NOT DISTINCT FROM,IS DISTINCT FROM,AND,OR,||,<>,!=,<=,>=,+,-,*,/,%,=,<,>";
    OPERATORS
        .split(',')
        .filter_map(|op| {
            let (left, right) = text.split_once(&format!(" {op} "))?;
            Some((left.trim(), op, right.trim()))
        })
        .next()
}

/// An aggregate in GROUP BY, perhaps by its position.
pub(crate) fn aggregate_as_key() -> SqlError {
    SqlError::unsupported("an aggregate cannot stand in GROUP BY, which sees single records")
        .help("group by columns, or by what is computed of them")
}

/// GROUP BY and aggregates.
fn grouping(text: &str) -> Option<SqlError> {
    if let Some(rest) = text.to_lowercase().strip_prefix("tuple expressions are not supported for ")
    {
        let name = rest.split(' ').next()?.to_uppercase();
        let error = format!("{name} takes single keys, not keys in brackets");
        let error = SqlError::unsupported(error);
        return Some(error.help("write the sets themselves: GROUPING SETS ((a, b), ())"));
    }
    if text.starts_with("Column in ") && text.contains("must appear in the GROUP BY clause") {
        let column = between(text, "column \"", "\" must appear")?;
        let name = column.rsplit('.').next().unwrap_or(column);
        let error =
            SqlError::name(format!("'{name}' is neither in GROUP BY nor within an aggregate"));
        return Some(
            error.help(format!("add {name} to GROUP BY, or aggregate it, for example MAX({name})")),
        );
    }
    if text.starts_with("HAVING clause references: ") {
        let error = SqlError::unsupported("HAVING goes with a GROUP BY or an aggregate");
        return Some(error.help("write WHERE for a condition on single records"));
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        let error =
            SqlError::unsupported("an aggregate cannot stand in WHERE, which sees single records");
        return Some(error.help("write the condition after GROUP BY …: HAVING …"));
    }
    if text.contains("does not support logical expression AggregateFunction") {
        return Some(aggregate_as_key());
    }
    if text.contains("does not support logical expression Wildcard") {
        let error = SqlError::unsupported("'*' is no value for a function");
        return Some(error.help("name a column; to count rows, write COUNT(*)"));
    }
    if text.starts_with("Aggregate function calls cannot be nested") {
        let error = SqlError::unsupported("an aggregate cannot stand within another one");
        return Some(error.help("aggregate the column itself"));
    }
    if let Some(rest) = text.strip_prefix("Order by column out of bounds, specified: ") {
        let (position, columns) = rest.split_once(", max: ")?;
        return Some(no_such_position("ORDER BY", position, columns));
    }
    if let Some(rest) = text.strip_prefix("Cannot find column with position ") {
        let position = rest.split_whitespace().next()?;
        return Some(no_such_position("GROUP BY", position, rest.rsplit(' ').next()?));
    }
    None
}

/// A number that stands for a column of SELECT, and is none.
fn no_such_position(clause: &str, position: &str, columns: &str) -> SqlError {
    let error = match columns.parse() {
        _ if position == "0" => "columns are counted from 1".to_string(),
        Ok(columns) => format!("SELECT has only {}", counted(columns, "column")),
        Err(_) => "SELECT has fewer columns".to_string(),
    };
    SqlError::name(format!("{clause} {position}: {error}"))
        .help("write the column's name or expression")
}

/// The reason why a text is no TIMESTAMP.
pub(crate) const HAS_OFFSET: &str = "it has an offset from UTC";
/// The words between a text and the form that it does not have.
pub(crate) const NOT_OF_FORM: &str = "' does not have the form of the pattern: '";

/// Texts that are no time.
fn time_text(text: &str) -> Option<SqlError> {
    if let Some((found, form)) = text.split_once(NOT_OF_FORM) {
        let (_, found) = found.rsplit_once('\'')?;
        return Some(
            SqlError::types(format!("'{found}{NOT_OF_FORM}{form}"))
                .help("write texts of that form; or NULL comes of others with TRY_TO_TIMESTAMP"),
        );
    }
    let found = between(text, "rror parsing timestamp from '", "'")?;
    let (message, help) = match text.contains(HAS_OFFSET) {
        true => (
            format!("'{found}' is no TIMESTAMP: {HAS_OFFSET}"),
            "it is a TIMESTAMP_LTZ: CAST(x AS TIMESTAMP_LTZ(3))",
        ),
        false => (format!("'{found}' is no timestamp"), "write for example '2024-01-31 12:30:00'"),
    };
    Some(SqlError::types(message).help(help))
}

/// Errors for texts that give no value of the wanted type.
pub(crate) fn value(text: &str) -> Option<SqlError> {
    if text.contains("annot cast string '") {
        let found = between(text, "annot cast string '", "' to value of ")?;
        let wanted = with_sql_types(between(text, "' to value of ", " type")?);
        // The message's digits differ from the digits of the requested type.
        let wanted = if wanted.starts_with("DECIMAL") { "DECIMAL".into() } else { wanted };
        return Some(SqlError::types(format!("cannot cast '{found}' to {wanted}")));
    }
    if let Some(rest) = text.strip_prefix("Can't cast value ") {
        let (found, wanted) = rest.split_once(" to type ")?;
        let wanted = with_sql_types(wanted);
        return Some(SqlError::types(format!("cannot cast {found} to {wanted}: it does not fit")));
    }
    if let Some(error) = time_text(text) {
        return Some(error);
    }
    if text.contains("nvalid input syntax for type interval") {
        let found = between(text, "interval: \"", "\"").unwrap_or("this");
        let error = SqlError::types(format!("'{found}' is no interval"));
        return Some(error.help("write for example INTERVAL '10' SECOND"));
    }
    if let Some((_, rest)) = text.split_once("regex parse error:") {
        let first_line = |text: &str| text.trim().lines().next().unwrap_or_default().to_string();
        let pattern = first_line(rest);
        let why = rest.rsplit_once("error: ").map_or("it is malformed".into(), |r| first_line(r.1));
        return Some(
            SqlError::types(format!("'{pattern}' is no regular expression: {why}")).help(
                "a backslash before ( ) [ ] { } . * + ? | ^ $ makes it an ordinary character",
            ),
        );
    }
    if text.contains("is no pattern of SIMILAR TO: ") {
        return Some(SqlError::types(text).help(
            "for one of []()|^-+*_%?{} itself, name a character that stands before it: SIMILAR TO \
             'a!*' ESCAPE '!'",
        ));
    }
    if text.contains("CompiledTooBig") {
        return Some(
            SqlError::types("the regular expression is too large").help("repeat less in it"),
        );
    }
    if let Some(number) = between(text, " overflow on abs(", ")") {
        let error = SqlError::types(format!("there is no {} of its type", number.replace('-', "")));
        return Some(
            error.help("cast to a wider type first, for example CAST(x AS DECIMAL(38, 0))"),
        );
    }
    if let Some(error) = time_out_of_range(text) {
        return Some(error);
    }
    if text.contains("ate arithmetic overflow") {
        return Some(
            SqlError::types("the date is out of range").help("dates reach to the year 5,881,580"),
        );
    }
    if let Some(rest) = text.strip_prefix("Unsupported CAST from ") {
        let (from, to) = rest.split_once(" to ")?;
        let (from, to) = (with_sql_types(from), with_sql_types(to));
        return Some(SqlError::types(format!("{from} cannot be cast to {to}")));
    }
    None
}

fn time_out_of_range(text: &str) -> Option<SqlError> {
    let to_nanoseconds = text.contains("TIMESTAMP(9)") || text.contains("(ns");
    if text.contains("represented as nanoseconds have to be between")
        || to_nanoseconds && text.contains("exceeds the representable i64 range")
    {
        let error = SqlError::types("the time does not fit TIMESTAMP(9)");
        return Some(
            error.help("nanoseconds reach from 1677 to 2262, and CAST(x AS TIMESTAMP(6)) farther"),
        );
    }
    let is_far = text == "the time is out of range"
        || text.contains("annot cast timezone to different timezone")
        || text.contains("annot convert arrow_array::types::Timestamp");
    is_far.then(|| {
        SqlError::types("the time is out of range")
            .help("times reach from the year -262,143 to 262,142")
    })
}

/// Two columns of a result that are called so.
pub(crate) fn same_name(name: &str) -> SqlError {
    SqlError::name(format!("two columns of the result have the same name, '{name}'"))
        .help("give one of them another name with AS")
}

fn other(kind: ErrorKind, text: &str) -> Option<SqlError> {
    if text.starts_with("Projections require unique expression names") {
        let expr = between(text, "the expression \"", "\" at position").unwrap_or_default();
        let name = expr.rsplit(['.', ' ']).next().unwrap_or_default();
        return Some(same_name(name));
    }
    if let Some((predicate, data_type)) = text
        .strip_prefix("Cannot create filter with non-boolean predicate '")
        .and_then(|rest| rest.split_once("' returning "))
    {
        let data_type = with_sql_types(data_type);
        let error = format!("a condition must be BOOLEAN, and '{predicate}' is {data_type}");
        return Some(SqlError::types(error).help("compare it with something, for example x <> 0"));
    }
    if text.to_lowercase().starts_with("substring without for/from") {
        return Some(
            SqlError::types("SUBSTRING needs a start").help("write for example SUBSTRING(x, 2)"),
        );
    }
    if text.starts_with("Cannot access field at argument") {
        let data_type = with_sql_types(between(text, ": type ", " is not").unwrap_or("this type"));
        let error = SqlError::types(format!("a value of type {data_type} has no parts"));
        return Some(error.help("before a point stands a table: table.column"));
    }
    if text.starts_with("Unsupported Value '") {
        let error = SqlError::unsupported("this way to write a constant does not run here");
        return Some(error.help("write 1, 1.5, 'text', X'00ff', TRUE or DATE '2024-01-31'"));
    }
    if let Some(found) = between(text, "nvalid HexStringLiteral '", "'") {
        let error = SqlError::types(format!("X'{found}' is no constant of bytes"));
        return Some(error.help("write two hexadecimal digits for each byte: X'00ff'"));
    }
    if text.to_lowercase().starts_with("inconsistent data length across values list") {
        let error = SqlError::types("the rows of VALUES have different numbers of values");
        return Some(error.help("write as many values in each row"));
    }
    if let Some(rest) = text.strip_prefix("Source table contains ") {
        let (has, rest) = rest.split_once(" columns but only ")?;
        let named = rest.split(' ').next()?;
        let error = format!("a WITH with names for {named} columns, whose query has {has}");
        return Some(SqlError::name(error).help("name each column of the query once, or none"));
    }
    if let Some(rest) = text.strip_prefix("For SELECT DISTINCT, ORDER BY expressions ") {
        let (expr, _) = rest.split_once(" must appear")?;
        let expr = expr.rsplit('.').next().unwrap_or(expr);
        let error = format!("SELECT DISTINCT has no column '{expr}' to order by");
        return Some(SqlError::name(error).help("order by columns that are selected"));
    }
    if text.to_lowercase().starts_with("union schemas have different number of fields") {
        let error = "ORDER BY names a column that the first query of the UNION does not have";
        return Some(SqlError::name(error).help("order by a column of the first query"));
    }
    if let Some(qualifier) = text.strip_prefix("Invalid qualifier ") {
        return Some(SqlError::name(format!("there is no table '{qualifier}' here")));
    }
    // It goes on with a syntax tree.
    if text.to_lowercase().starts_with("unsupported ast node") || text.contains("Span(Location(") {
        return Some(SqlError::unsupported("this form of an expression does not run here"));
    }
    if text.contains("DataFusion") {
        let text = text.split(". Hint").next().unwrap_or(text).replace("DataFusion", "Millstream");
        return Some(SqlError::new(kind, first_lines(&lower_first(&text))));
    }
    None
}

/// Cuts what is too long to be read.
fn first_lines(text: &str) -> String {
    const LENGTH: usize = 400;
    match text.char_indices().nth(LENGTH) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}
