//! Messages about tables without an event time: the table's columns, and what to write.

use millstream_contract::declaration::{identifier, literal};
use millstream_contract::wording::counted;

use crate::names::catalog::{Origin, TableEntry};
use crate::syntax::prelude::*;

/// The statement that declares a table.
pub(crate) fn declaration(table: &TableEntry) -> String {
    match &table.origin {
        Origin::Connector(declared) if declared.inferred.is_some() => {
            format!("the CREATE TABLE that millstream init {} writes", literal(&table.name))
        }
        _ => format!("CREATE TABLE {}", table.name),
    }
}

/// Lines of a declaration by which a table has an event time that is computed so.
pub(crate) fn computed_time_of(table: &TableEntry, value: &str) -> String {
    let time = table.free_name();
    format!("{time} AS {value},\nWATERMARK FOR {time} AS {time} - INTERVAL '5' SECOND")
}

/// The same, of a column; `None` if no time can be made of its type.
pub(crate) fn computed_time(
    table: &TableEntry,
    name: &str,
    data_type: &DataType,
) -> Option<String> {
    let name = identifier(name);
    Some(match data_type {
        DataType::Timestamp(..) => {
            format!("WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND")
        }
        DataType::Utf8 => computed_time_of(table, &format!("CAST({name} AS TIMESTAMP(3))")),
        of if of.is_integer() => computed_time_of(table, &format!("to_timestamp_seconds({name})")),
        _ => return None,
    })
}

/// Columns of a table that a message names at most.
const COLUMNS_SHOWN: usize = 20;

/// Error for a DESCRIPTOR that names no column of the table, not even by a near spelling. Lists the
/// columns, and says what to write.
pub(crate) fn no_such_time(table: &TableEntry, name: &str) -> SqlError {
    let error = |more: String| SqlError::name(format!("there is no column '{name}'{more}"));
    if let Some(time) = table.time_name() {
        let help =
            format!("the event time of '{}' is '{time}': write DESCRIPTOR({time})", table.name);
        return error(String::new()).help(help);
    }
    let columns = table.columns.iter().take(COLUMNS_SHOWN);
    let columns =
        columns.map(|c| format!("{} {}", identifier(&c.name), sql_type_name(&c.data_type)));
    let mut columns = columns.collect::<Vec<_>>().join(", ");
    let others = table.columns.len().saturating_sub(COLUMNS_SHOWN);
    if others > 0 {
        columns.push_str(&format!(" and {}", counted(others as u64, "other")));
    }
    let of = |wanted: fn(&DataType) -> bool| {
        let column = table.columns.iter().find(|column| wanted(&column.data_type))?;
        computed_time(table, &column.name, &column.data_type)
    };
    let example = of(|t| matches!(t, DataType::Timestamp(..)))
        .or_else(|| of(DataType::is_integer))
        .or_else(|| of(|t| *t == DataType::Utf8));
    let has = match &table.origin {
        Origin::Connector(declared) if declared.inferred.is_some() => {
            format!(", and the file has none that can be the event time: {columns}")
        }
        _ => format!(", and table '{}' has no WATERMARK: its columns are {columns}", table.name),
    };
    error(has).help(match example {
        Some(example) => format!(
            "a window needs an event time: add one to {}, for example:\n{example}",
            declaration(table)
        ),
        None => "a window needs an event time, and no time can be made of these columns".into(),
    })
}
