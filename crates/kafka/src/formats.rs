//! The options `format`, `key.format` and `value.format`, and those of the formats.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use millstream_connect::Options;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

/// The prefix of options of the key's format. `None`: the key has no format.
pub(crate) fn key(options: &Options<'_>) -> Option<&'static str> {
    options.text("key.format").map(|_| "key.")
}

/// The prefix of options of the value's format.
pub(crate) fn value(options: &Options<'_>) -> Result<&'static str> {
    match (options.text("format"), options.text("value.format")) {
        (Some(_), Some(_)) => {
            let message = "the format of the value is given twice".to_string();
            Err(options.error("value.format", message, "leave 'format' out"))
        }
        (None, Some(_)) => Ok("value."),
        (Some(_), None) => Ok(""),
        (None, None) => {
            let message = "messages need a format".to_string();
            Err(options.error("format", message, "write 'format' = 'json' among the options"))
        }
    }
}

/// The options of a format, without the prefix.
pub(crate) fn options(
    table: &TableOptions,
    options: &Options<'_>,
    prefix: &str,
    schema: &SchemaRef,
) -> Result<TableOptions> {
    let name = options.text(&format!("{prefix}format")).unwrap_or_default();
    let mut own = BTreeMap::from([("format".to_string(), name.to_string())]);
    let of_format = format!("{prefix}{}.", if name.ends_with("json") { "json" } else { name });
    for (option, value) in &table.options {
        if option.starts_with(&of_format) || option == "on_error" {
            options.text(option);
            let inner = option.strip_prefix(prefix).unwrap_or(option);
            own.insert(inner.to_string(), value.clone());
        }
    }
    let metadata = BTreeMap::new();
    Ok(TableOptions { options: own, schema: schema.clone(), metadata, ..table.clone() })
}

/// An error about an option of a format, which stands behind a prefix.
pub(crate) fn with_prefix(error: Error, prefix: &str) -> Error {
    match error {
        Error::Option { table, option, message, help } if option != "on_error" => {
            Error::Option { table, option: format!("{prefix}{option}"), message, help }
        }
        other => other,
    }
}
