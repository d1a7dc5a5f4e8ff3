//! The schema of a table's columns, as Flink derives it.
//!
//! | SQL | Avro |
//! |---|---|
//! | TINYINT, SMALLINT, INT | int |
//! | BIGINT | long |
//! | STRING, BYTES, BOOLEAN, FLOAT, DOUBLE | string, bytes, boolean, float, double |
//! | DECIMAL(p, s) | bytes, decimal |
//! | DATE, TIME(3), TIME(6) | int: date, time-millis; long: time-micros |
//! | TIMESTAMP(3), (6), (9) | long: timestamp-millis, -micros, -nanos |
//! | ROW, ARRAY, MAP | record, array, map |
//!
//! A type that may be NULL is a union with null, and a field of such a type has the default null.
//! Without the legacy mapping a TIMESTAMP is a local timestamp.

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use millstream_contract::Result;
use serde_json::{Value, json};

use super::schema::Avro;
use crate::options::Options;
use crate::types::sql_name;

/// Flink's name of a table's record.
const NAMESPACE: &str = "org.apache.flink.avro.generated";
const RECORD: &str = "record";

/// The schema of a table, as an option says or as it is derived.
pub(super) fn schema_of(
    options: &Options<'_>,
    name: &str,
    columns: &Schema,
) -> Result<(String, Option<Avro>)> {
    let legacy_option = format!("{name}.timestamp_mapping.legacy");
    let legacy = options.text(&legacy_option).is_none() || options.flag(&legacy_option)?;
    let option = format!("{name}.schema");
    let Some(text) = options.text(&option) else {
        let derived = derived(columns.fields(), legacy).map(|value| value.to_string());
        return Ok((derived.map_err(|why| options.error("format", why, ""))?, None));
    };
    let help = "it is the JSON of a record's schema";
    match Avro::parse(text) {
        Ok(given) => Ok((text.to_string(), Some(given))),
        Err(why) => Err(options.error(&option, format!("no schema of Avro: {why}"), help)),
    }
}

/// The schema of a record with these fields. An error names a field without a type in Avro.
pub(super) fn derived(fields: &Fields, legacy: bool) -> std::result::Result<Value, String> {
    let mut record = row(fields, RECORD, legacy)?;
    record["namespace"] = NAMESPACE.into();
    Ok(record)
}

/// The type of a column, with its union.
pub(super) fn column(
    field: &Field,
    name: &str,
    legacy: bool,
) -> std::result::Result<Value, String> {
    let of = plain(field, name, legacy)?;
    Ok(if field.is_nullable() { json!(["null", of]) } else { of })
}

fn row(fields: &Fields, name: &str, legacy: bool) -> std::result::Result<Value, String> {
    let field = |field: &FieldRef| {
        if !is_name(field.name()) {
            return Err(format!(
                "Avro has no field '{}': its names are letters, digits and '_'",
                field.name().escape_debug()
            ));
        }
        let of = column(field, &format!("{name}_{}", field.name()), legacy)?;
        Ok(match field.is_nullable() {
            true => json!({"name": field.name(), "type": of, "default": null}),
            false => json!({"name": field.name(), "type": of}),
        })
    };
    let fields = fields.iter().map(field).collect::<std::result::Result<Vec<Value>, String>>()?;
    Ok(json!({"type": "record", "name": name, "fields": fields}))
}

fn plain(field: &Field, name: &str, legacy: bool) -> std::result::Result<Value, String> {
    use DataType as D;
    let logical = |of: &str, name: &str| json!({"type": of, "logicalType": name});
    Ok(match field.data_type() {
        D::Boolean => "boolean".into(),
        D::Int8 | D::Int16 | D::Int32 => "int".into(),
        D::Int64 => "long".into(),
        D::Float32 => "float".into(),
        D::Float64 => "double".into(),
        D::Utf8 => "string".into(),
        D::Binary => "bytes".into(),
        D::Date32 => logical("int", "date"),
        D::Time32(_) => logical("int", "time-millis"),
        D::Time64(TimeUnit::Microsecond) => logical("long", "time-micros"),
        D::Decimal128(precision, scale) => json!({
            "type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale
        }),
        D::Timestamp(unit, zone) => {
            let unit = match unit {
                TimeUnit::Second | TimeUnit::Millisecond => "millis",
                TimeUnit::Microsecond => "micros",
                TimeUnit::Nanosecond => "nanos",
            };
            let local = if zone.is_none() && !legacy { "local-" } else { "" };
            logical("long", &format!("{local}timestamp-{unit}"))
        }
        D::Struct(fields) => row(fields, name, legacy)?,
        D::List(item) => json!({"type": "array", "items": column(item, name, legacy)?}),
        D::Map(entries, _) => match entries.data_type() {
            D::Struct(entry) if entry.len() == 2 && *entry[0].data_type() == D::Utf8 => {
                json!({"type": "map", "values": column(&entry[1], name, legacy)?})
            }
            _ => return Err("keys of a MAP are of type STRING in Avro".into()),
        },
        other => {
            let name = name.strip_prefix(RECORD).unwrap_or(name).trim_start_matches('_');
            return Err(format!("column '{name}' is {}, which Avro has not", sql_name(other)));
        }
    })
}

/// Whether a field can have this name.
fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}
