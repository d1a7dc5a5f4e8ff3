//! Conversion of DataFusion's errors into ours, with their place in the text.

use arrow::error::ArrowError;
use datafusion_common::SchemaError;

use crate::expr::wording::{aggregate_as_key, internal, reworded, value};
use crate::expr::{aggregates::aggregate_named, window_node::WINDOW_COLUMNS};
use crate::names::catalog::INPUT;
use crate::syntax::prelude::*;

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        convert(error, None)
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
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
            Err(other) => {
                value(&other.to_string()).unwrap_or_else(|| SqlError::internal(other)).at(place)
            }
        },
        DataFusionError::Shared(inner) => match inner.find_root() {
            DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
                Some(ours) => ours.clone().at(place),
                None => reworded(ErrorKind::Unsupported, &inner.to_string()).at(place),
            },
            other => reworded(ErrorKind::Unsupported, &other.message()).at(place),
        },
        DataFusionError::SchemaError(inner, _) => schema_error(*inner).at(place),
        DataFusionError::SQL(inner, _) => SqlError::from(*inner).at(place),
        DataFusionError::Internal(text) => {
            internal(&text).unwrap_or_else(|| SqlError::internal(text)).at(place)
        }
        DataFusionError::ArrowError(inner, _) => arrow_error(&inner).at(place),
        DataFusionError::NotImplemented(text) => reworded(ErrorKind::Unsupported, &text).at(place),
        other => reworded(ErrorKind::Type, &other.message()).at(place),
    }
}

fn arrow_error(error: &ArrowError) -> SqlError {
    let text = error.to_string();
    let text = text.split_once(" error: ").map_or(text.as_str(), |(_, rest)| rest);
    reworded(ErrorKind::Type, text)
}

fn schema_error(error: SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => unknown_column(&field, &valid_fields),
        SchemaError::AmbiguousReference { field } => {
            SqlError::name(format!("the column name '{}' is ambiguous", field.name()))
                .at(field.spans.first().map(Span::from))
                .help("write the table's name before it: table.column")
        }
        SchemaError::DuplicateUnqualifiedField { name }
            if name.split_once('(').is_some_and(|(name, _)| aggregate_named(name).is_some()) =>
        {
            aggregate_as_key()
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
    // A table's own name is not known while it is being declared.
    tables.retain(|table| table != INPUT);
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
        None if WINDOW_COLUMNS.contains(&name) => error.help(format!(
            "{name} comes from a window: FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(time), INTERVAL '10' \
             SECOND))",
            tables.first().map_or("events", String::as_str)
        )),
        None => {
            let more = if names.len() > 12 { ", …" } else { "" };
            let list: Vec<&str> = names.into_iter().take(12).collect();
            error.help(format!("the columns are {}{more}", list.join(", ")))
        }
    }
}
