//! How messages of one schema become columns: the schema of the writer and that of the reader, for
//! the library.
//!
//! The reader's schema has the types that the writer's schema has, in the order of the columns, so
//! that the library decodes and leaves fields out, and converts nothing: [`crate::conform`] does,
//! and finds values out of range. Columns that the writer does not have are fields with a default.
//! Rules are those of Avro's specification, with promotion; beyond them an enum is read as STRING,
//! a fixed as BYTES, and times by the unit that the writer's schema names.

use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use serde_json::Value;

use super::derive;
use super::schema::{Avro, AvroField};
use crate::conform;
use crate::types::sql_name;

/// Field of a root that may be null, in a record around it.
const ROOT: &str = "root";

/// Schemas for the library.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) writer: String,
    pub(super) reader: String,
    /// Whether the columns are the fields of one field.
    pub(super) within: bool,
}

/// Resolves a writer's schema for columns. `given` is a reader's schema, with aliases and defaults.
/// The error says which column or field cannot be read.
pub(super) fn resolve(
    writer: &Avro,
    given: Option<&Avro>,
    columns: &Fields,
) -> Result<Resolved, String> {
    let (of, null_first) = match writer.nullable() {
        Some((null_first, of)) => (of, Some(null_first)),
        None => (writer, None),
    };
    if !matches!(of, Avro::Record { .. }) {
        return Err(format!("the schema is {}, expected a record", of.shown()));
    }
    if of.is_empty() {
        return Err("the schema's record has no fields".into());
    }
    let given = given.map(|given| given.nullable().map_or(given, |(_, of)| of));
    let (mut writer, mut reader) = pair(of, given, &DataType::Struct(columns.clone()), "")?;
    if let Some(null_first) = null_first {
        let around = |of: Avro| Avro::Record {
            number: usize::MAX,
            fields: vec![AvroField {
                name: ROOT.into(),
                aliases: Vec::new(),
                of: of.or_null(null_first),
                default: None,
            }],
        };
        (writer, reader) = (around(writer), around(reader));
    }
    let (writer, reader) = (writer.json().to_string(), reader.json().to_string());
    Ok(Resolved { writer, reader, within: null_first.is_some() })
}

/// Whether a schema has a field for any of these columns.
pub(super) fn has_any(writer: &Avro, columns: &Schema) -> bool {
    let of = writer.nullable().map_or(writer, |(_, of)| of);
    let Avro::Record { fields, .. } = of else { return true };
    columns.fields().is_empty()
        || columns.fields().iter().any(|column| index_of(column.name(), fields).is_some())
}

/// The type of a writer and that of the reader, for values of a type. `path` is where they stand.
fn pair(
    writer: &Avro,
    given: Option<&Avro>,
    to: &DataType,
    path: &str,
) -> Result<(Avro, Avro), String> {
    if let Some((null_first, of)) = writer.nullable() {
        let (writer, reader) = pair(of, given, to, path)?;
        return Ok((writer.or_null(null_first), reader.or_null(null_first)));
    }
    let given = given.map(|given| given.nullable().map_or(given, |(_, of)| of));
    match (writer, to) {
        (Avro::Record { number, fields }, DataType::Struct(columns)) => {
            let given = match given {
                Some(Avro::Record { fields, .. }) => &fields[..],
                _ => &[],
            };
            record(*number, fields, given, columns, path)
        }
        (Avro::Array(items), DataType::List(item)) => {
            let given = match given {
                Some(Avro::Array(items)) => Some(&**items),
                _ => None,
            };
            let (writer, reader) = pair(items, given, item.data_type(), &format!("{path}[]"))?;
            Ok((Avro::Array(Box::new(writer)), Avro::Array(Box::new(reader))))
        }
        (Avro::Map(values), DataType::Map(entries, _)) => {
            let given = match given {
                Some(Avro::Map(values)) => Some(&**values),
                _ => None,
            };
            let (key, value) = match entries.data_type() {
                DataType::Struct(entry) if entry.len() == 2 => (&entry[0], &entry[1]),
                _ => return Err(unlike(writer, to, path)),
            };
            if *key.data_type() != DataType::Utf8 {
                return Err(unlike(writer, to, path));
            }
            let (writer, reader) = pair(values, given, value.data_type(), &format!("{path}[]"))?;
            Ok((Avro::Map(Box::new(writer)), Avro::Map(Box::new(reader))))
        }
        _ => {
            let of = plain(writer, to).ok_or_else(|| unlike(writer, to, path))?;
            Ok((of.clone(), of))
        }
    }
}

/// The fields of a record: the writer's in the writer's order, the reader's in the columns' order.
fn record(
    number: usize,
    fields: &[AvroField],
    given: &[AvroField],
    columns: &Fields,
    path: &str,
) -> Result<(Avro, Avro), String> {
    // Unread fields get names that no column has; the library takes no name that JSON escapes.
    let unread = |(at, field): (usize, &AvroField)| AvroField {
        name: format!("\u{7f}{at}"),
        aliases: Vec::new(),
        default: None,
        of: field.of.clone(),
    };
    let mut written: Vec<AvroField> = fields.iter().enumerate().map(unread).collect();
    let mut read = Vec::with_capacity(columns.len());
    for column in columns {
        let path = match path {
            "" => column.name().clone(),
            path => format!("{path}.{}", column.name()),
        };
        let given = index_of(column.name(), given).and_then(|at| given.get(at));
        let aliases = given.map_or(&[][..], |given| &given.aliases);
        let found = index_of(column.name(), fields).or_else(|| {
            aliases.iter().find_map(|alias| fields.iter().position(|field| field.name == *alias))
        });
        // A field that is always null has no type of its own.
        let found = found.filter(|at| fields[*at].of != Avro::Null);
        let (of, default) = match found {
            None => missing(column, given, &path)?,
            Some(at) => {
                let (writer, reader) =
                    pair(&fields[at].of, given.map(|given| &given.of), column.data_type(), &path)?;
                written[at] =
                    AvroField { name: column.name().clone(), of: writer, ..written[at].clone() };
                (reader, None)
            }
        };
        read.push(AvroField { name: column.name().clone(), aliases: Vec::new(), of, default });
    }
    let record = |fields| Avro::Record { number, fields };
    Ok((record(written), record(read)))
}

/// Type and default of a column that the writer does not have.
fn missing(
    column: &Field,
    given: Option<&AvroField>,
    path: &str,
) -> Result<(Avro, Option<Value>), String> {
    if let Some(AvroField { of, default: Some(default), .. }) = given
        && !default.is_null()
    {
        let (of, _) = pair(of, None, column.data_type(), path)?;
        return Ok((of, Some(default.clone())));
    }
    if !column.is_nullable() {
        return Err(format!("the schema has no field '{path}', and the column is NOT NULL"));
    }
    let of = derive::column(&column.clone().with_nullable(true), "missing", false);

    let of = of.and_then(|of| Avro::parse(&of.to_string()))?;
    Ok((of, Some(Value::Null)))
}

/// The field of this name: as it is written, or else whatever the case, if there is only one.
fn index_of(name: &str, fields: &[AvroField]) -> Option<usize> {
    let named: Fields =
        fields.iter().map(|field| Field::new(&field.name, DataType::Null, true)).collect();
    conform::index_of(name, &named).ok()
}

/// The type as which values without others inside are decoded.
fn plain(writer: &Avro, to: &DataType) -> Option<Avro> {
    use DataType as D;
    let number = matches!(to, D::Float32 | D::Float64);
    Some(match (writer, to) {
        (Avro::Boolean, D::Boolean)
        | (Avro::Float, D::Float32 | D::Float64)
        | (Avro::Double, D::Float64)
        | (Avro::String | Avro::Bytes, D::Utf8 | D::Binary)
        | (Avro::Fixed(_), D::Binary)
        | (Avro::Enum { .. }, D::Utf8)
        | (Avro::Date, D::Date32)
        | (Avro::Time(_), D::Time32(_) | D::Time64(_)) => writer.clone(),
        (Avro::Int | Avro::Date | Avro::Time(TimeUnit::Millisecond), _)
            if to.is_signed_integer() || number =>
        {
            Avro::Int
        }
        (Avro::Int, D::Date32) => Avro::Date,
        (Avro::Int, D::Time32(_) | D::Time64(_)) => Avro::Time(TimeUnit::Millisecond),
        (Avro::Long | Avro::Timestamp { .. } | Avro::Time(_), _) if *to == D::Int64 || number => {
            Avro::Long
        }
        (Avro::Long, D::Time32(_) | D::Time64(_)) => Avro::Time(TimeUnit::Microsecond),
        // As the schema of the column has it.
        (Avro::Long, D::Timestamp(unit, zone)) => {
            let unit = (*unit).max(TimeUnit::Millisecond);
            Avro::Timestamp { unit, local: zone.is_none() }
        }
        (Avro::Timestamp { unit, .. }, D::Timestamp(_, zone)) => {
            Avro::Timestamp { unit: *unit, local: zone.is_none() }
        }
        (Avro::Decimal { precision, scale, .. }, D::Decimal128(..)) => {
            let from = D::Decimal128(*precision, *scale);
            return conform::widens(&from, to).then(|| writer.clone());
        }
        _ => return None,
    })
}

fn unlike(writer: &Avro, to: &DataType, path: &str) -> String {
    let (field, found) = (path.escape_debug(), writer.shown());
    format!("the field '{field}' is {found}, which a column of type {} does not take", sql_name(to))
}
