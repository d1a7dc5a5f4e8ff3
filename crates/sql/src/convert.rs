//! DataFusion's errors in our words, with their place.

use arrow::error::ArrowError;
use datafusion_common::{Column, DataFusionError, SchemaError};
use millstream_engine::settings::closest;

use crate::aggregates::aggregate_named;
use crate::error::{ErrorKind, Span, SqlError};
use crate::script::lower_first;
use crate::types::with_sql_types;

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        convert(error, None)
    }
}

fn convert(error: DataFusionError, place: Option<Span>) -> SqlError {
    match error {
        DataFusionError::Context(_, inner) => convert(*inner, place),
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let place = diagnostic.span.map(Span::from).or(place);
            convert(*inner, place)
        }
        // Several mistakes: the first is enough.
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => convert(first, place),
            None => SqlError::internal("an empty list of errors"),
        },
        DataFusionError::External(inner) => match inner.downcast::<SqlError>() {
            Ok(ours) => ours.at(place),
            Err(other) => SqlError::internal(other).at(place),
        },
        DataFusionError::Shared(inner) => match inner.find_root() {
            DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
                Some(ours) => ours.clone().at(place),
                None => message(ErrorKind::Unsupported, &inner.to_string()).at(place),
            },
            other => message(ErrorKind::Unsupported, &other.message()).at(place),
        },
        DataFusionError::SchemaError(inner, _) => schema_error(*inner).at(place),
        DataFusionError::SQL(inner, _) => SqlError::from(*inner).at(place),
        DataFusionError::Internal(text) => SqlError::internal(text).at(place),
        DataFusionError::ArrowError(inner, _) => arrow_error(&inner).at(place),
        DataFusionError::NotImplemented(text) => message(ErrorKind::Unsupported, &text).at(place),
        other => message(ErrorKind::Type, &other.message()).at(place),
    }
}

fn arrow_error(error: &ArrowError) -> SqlError {
    let text = error.to_string();
    let text = text.split_once(" error: ").map_or(text.as_str(), |(_, rest)| rest);
    message(ErrorKind::Type, text)
}

/// One sentence, without prefixes, debug output and help for DataFusion's own users.
fn message(kind: ErrorKind, text: &str) -> SqlError {
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text);
    let mut text = text.trim();
    for prefix in
        ["Error during planning: ", "This feature is not implemented: ", "Execution error: "]
    {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    let (text, candidates) = match text.split_once("No function matches the given name") {
        // Keep the functions signatures it lists as help.
        Some((_, rest)) => {
            let call = rest.split('\'').nth(1).unwrap_or("this call");
            if let Some((name, types)) = call.trim_end_matches(')').split_once('(')
                && aggregate_named(name).is_some()
            {
                let types = with_sql_types(types);
                let error =
                    SqlError::types(format!("there is no {} of {types}", name.to_uppercase()));
                return error.help("cast the argument, for example CAST(x AS DOUBLE)");
            }
            let candidates = rest.split_once("Candidate functions:").map(|(_, list)| list.trim());
            (format!("{call} does not go with these types of arguments"), candidates)
        }
        None => (text.to_string(), None),
    };
    if text.starts_with("Projections require unique expression names") {
        return SqlError::name("two columns of the result have the same name")
            .help("give one of them another name with AS");
    }
    if let Some((predicate, data_type)) = text
        .strip_prefix("Cannot create filter with non-boolean predicate '")
        .and_then(|rest| rest.split_once("' returning "))
    {
        let data_type = with_sql_types(data_type);
        let error = format!("a condition must be BOOLEAN, and '{predicate}' is {data_type}");
        return SqlError::types(error).help("compare it with something, for example x <> 0");
    }
    let text = with_sql_types(&lower_first(text.trim_end_matches('.')));
    let mut error = SqlError::new(kind, first_lines(&text));
    if let Some(candidates) = candidates {
        let list: Vec<&str> = candidates.lines().map(str::trim).take(4).collect();
        error = error.help(format!("it takes {}", with_sql_types(&list.join(" or "))));
    }
    error
}

/// Cuts what is too long to be read.
fn first_lines(text: &str) -> String {
    const LENGTH: usize = 400;
    match text.char_indices().nth(LENGTH) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

fn schema_error(error: SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => unknown_column(&field, &valid_fields),
        SchemaError::AmbiguousReference { field } => {
            SqlError::name(format!("the column name '{}' is ambiguous", field.name()))
                .at(field.spans.first().map(Span::from))
                .help("write the table's name before it: table.column")
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::name(format!("there are two columns named '{name}'"))
                .help("give one of them another name with AS")
        }
    }
}

/// Says that there is no such column, and which was probably meant.
pub(crate) fn unknown_column(field: &Column, valid: &[Column]) -> SqlError {
    let name = field.name();
    let mut tables: Vec<String> =
        valid.iter().filter_map(|c| c.relation.as_ref()).map(|r| r.table().to_string()).collect();
    tables.dedup();
    let message = match (&field.relation, &tables[..]) {
        (Some(relation), _) if !tables.iter().any(|t| t == relation.table()) => {
            let error = SqlError::name(format!("there is no table '{}' here", relation.table()))
                .at(field.spans.first().map(Span::from));
            return match &tables[..] {
                [] => error,
                _ => error.help(format!("the tables of this query are {}", tables.join(", "))),
            };
        }
        (Some(relation), _) => {
            format!("there is no column '{name}' in table '{}'", relation.table())
        }
        (None, [table]) => format!("there is no column '{name}' in table '{table}'"),
        (None, _) => format!("there is no column '{name}'"),
    };
    let error = SqlError::name(message).at(field.spans.first().map(Span::from));
    let names: Vec<&str> = valid.iter().map(|c| c.name()).collect();
    let other_case = names.iter().find(|n| n.eq_ignore_ascii_case(name)).copied();
    match other_case.or_else(|| closest(name, names.iter().copied())) {
        Some(meant) => error.help(format!("did you mean '{meant}'?")),
        None if names.is_empty() => error,
        None => {
            let more = if names.len() > 12 { ", …" } else { "" };
            let list: Vec<&str> = names.into_iter().take(12).collect();
            error.help(format!("the columns are {}{more}", list.join(", ")))
        }
    }
}
