//! The options `format`, `key.format` and `value.format`, and those of the formats.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_connect::Options;
use millstream_connect::messages::{MessageFormat, MessageWriter, SchemaRegistry};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use crate::registry::Registry;

/// Prefix of the options of the key's format.
const KEY: &str = "key.";
/// Options of `avro-confluent` that are not the registry's.
const OF_AVRO: [&str; 2] = ["schema", "timestamp_mapping.legacy"];

/// The prefix of options of the key's format. `None`: the key has no format.
pub(crate) fn key(options: &Options<'_>) -> Option<&'static str> {
    options.text("key.format").map(|_| KEY)
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

/// How the messages of a table are read, the values or the keys.
pub(crate) fn reader(
    table: &TableOptions,
    options: &Options<'_>,
    prefix: &str,
    schema: &SchemaRef,
) -> Result<MessageFormat> {
    let (own, registry) = own(table, options, prefix, schema)?;
    MessageFormat::from_options(&own, schema, registry).map_err(|error| with_prefix(error, prefix))
}

/// How the messages of a table are written.
pub(crate) fn writer(
    table: &TableOptions,
    options: &Options<'_>,
    prefix: &str,
    schema: &SchemaRef,
) -> Result<MessageWriter> {
    let (own, registry) = own(table, options, prefix, schema)?;
    MessageWriter::from_options(&own, schema, registry).map_err(|error| with_prefix(error, prefix))
}

/// The options of a format, without the prefix, and the registry of its schemas.
fn own(
    table: &TableOptions,
    options: &Options<'_>,
    prefix: &str,
    schema: &SchemaRef,
) -> Result<(TableOptions, Option<Arc<dyn SchemaRegistry>>)> {
    let name = options.text(&format!("{prefix}format")).unwrap_or_default();
    let mut own = BTreeMap::from([("format".to_string(), name.to_string())]);
    let json = matches!(name, "json" | "ndjson" | "jsonl");
    let of_format = format!("{prefix}{}.", if json { "json" } else { name });
    let registry: Option<Arc<dyn SchemaRegistry>> = match name.ends_with("avro-confluent") {
        true => {
            let part = if prefix == KEY { "key" } else { "value" };
            let topic = options.text("topic").unwrap_or_default().trim();
            let subject = format!("{topic}-{part}");
            Some(Arc::new(Registry::from_options(table, options, &of_format, subject)?))
        }
        false => None,
    };
    for (option, value) in &table.options {
        let Some(of) = option.strip_prefix(&of_format) else { continue };
        let is_format = registry.is_none() || OF_AVRO.contains(&of);
        if is_format {
            options.text(option);
            let inner = option.strip_prefix(prefix).unwrap_or(option);
            own.insert(inner.to_string(), value.clone());
        }
    }
    if let Some(value) = options.text("on_error") {
        own.insert("on_error".to_string(), value.to_string());
    }
    let metadata = BTreeMap::new();
    let own = TableOptions { options: own, schema: schema.clone(), metadata, ..table.clone() };
    Ok((own, registry))
}

/// An error about an option of a format, which stands behind a prefix.
fn with_prefix(error: Error, prefix: &str) -> Error {
    match error {
        Error::Option { table, option, message, help } if option != "on_error" => {
            Error::Option { table, option: format!("{prefix}{option}"), message, help }
        }
        other => other,
    }
}
