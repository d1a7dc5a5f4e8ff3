//! SQL names of types, and types that are made of others: `ROW`, `ARRAY` and `MAP`.

use arrow::datatypes::{DataType, Field};

use crate::calendar::digits;

/// The SQL name of a type, as a `CREATE TABLE` would have it. A type that SQL lacks has Arrow's
/// name in capitals.
pub fn sql_name(data_type: &DataType) -> String {
    use DataType::*;
    let name = match data_type {
        Null => "NULL",
        Boolean => "BOOLEAN",
        Int8 => "TINYINT",
        Int16 => "SMALLINT",
        Int32 => "INT",
        Int64 => "BIGINT",
        UInt8 => "TINYINT UNSIGNED",
        UInt16 => "SMALLINT UNSIGNED",
        UInt32 => "INT UNSIGNED",
        UInt64 => "BIGINT UNSIGNED",
        Float32 => "FLOAT",
        Float64 => "DOUBLE",
        Utf8 | LargeUtf8 | Utf8View => "STRING",
        Binary | LargeBinary | BinaryView => "BYTES",
        Date32 | Date64 => "DATE",
        Interval(_) | Duration(_) => "INTERVAL",
        Decimal128(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        Time32(unit) | Time64(unit) => return format!("TIME({})", digits(*unit)),
        Timestamp(unit, None) => return format!("TIMESTAMP({})", digits(*unit)),
        Timestamp(unit, Some(_)) => return format!("TIMESTAMP_LTZ({})", digits(*unit)),
        Dictionary(_, value) => return sql_name(value),
        other => return nested_name(other).unwrap_or_else(|| other.to_string().to_uppercase()),
    };
    name.to_string()
}

/// The SQL name of a type that is made of others; `None` for any other type.
fn nested_name(data_type: &DataType) -> Option<String> {
    use DataType::*;
    let member = |field: &Field| {
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        sql_name(field.data_type()) + not_null
    };
    Some(match data_type {
        Struct(fields) => {
            let named = |field: &Field| format!("{} {}", field_name(field.name()), member(field));
            let fields: Vec<String> = fields.iter().map(|field| named(field)).collect();
            format!("ROW<{}>", fields.join(", "))
        }
        List(element)
        | LargeList(element)
        | ListView(element)
        | LargeListView(element)
        | FixedSizeList(element, _) => format!("ARRAY<{}>", member(element)),
        Map(entries, _) => match entries.data_type() {
            Struct(fields) if fields.len() == 2 => {
                format!("MAP<{}, {}>", sql_name(fields[0].data_type()), member(&fields[1]))
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether a type is made of others.
pub fn is_nested(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Dictionary(_, value) => is_nested(value),
        other => matches!(
            other,
            Struct(_)
                | List(_)
                | LargeList(_)
                | ListView(_)
                | LargeListView(_)
                | FixedSizeList(..)
                | Map(..)
        ),
    }
}

/// A field's name, in quotes if it is not a plain word.
fn field_name(name: &str) -> String {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    match starts && chars.all(|c| c.is_alphanumeric() || c == '_') {
        true => name.to_string(),
        false => format!("`{}`", name.replace('`', "``")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn types_within_types_are_written_as_sql_reads_them() {
        let field = |name: &str, of: DataType, nullable| Field::new(name, of, nullable);
        let row = DataType::Struct(
            vec![field("a", DataType::Int32, true), field("b c", DataType::Utf8, false)].into(),
        );
        assert_eq!(sql_name(&row), "ROW<a INT, `b c` STRING NOT NULL>");
        let list = DataType::List(Arc::new(field("item", row, false)));
        assert_eq!(sql_name(&list), "ARRAY<ROW<a INT, `b c` STRING NOT NULL> NOT NULL>");
        let entry = vec![field("key", DataType::Utf8, false), field("value", list, true)];
        let entries = Arc::new(field("entries", DataType::Struct(entry.into()), false));
        let map = DataType::Map(entries, false);
        assert_eq!(
            sql_name(&map),
            "MAP<STRING, ARRAY<ROW<a INT, `b c` STRING NOT NULL> NOT NULL>>"
        );
        assert!(is_nested(&map) && !is_nested(&DataType::Utf8));
    }
}
