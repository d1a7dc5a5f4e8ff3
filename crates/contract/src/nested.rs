//! Types with member types: `ROW`, `ARRAY` and `MAP`, and their SQL names.

use arrow::datatypes::{DataType, Field};

/// The SQL name of a type with member types, as in a `CREATE TABLE`; `None` for other types.
/// `name_of` names the member types.
pub fn nested_name(data_type: &DataType, name_of: &dyn Fn(&DataType) -> String) -> Option<String> {
    use DataType::*;
    let member = |field: &Field| {
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        name_of(field.data_type()) + not_null
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
                format!("MAP<{}, {}>", name_of(fields[0].data_type()), member(&fields[1]))
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

    fn name(data_type: &DataType) -> String {
        let plain = |other: &DataType| match other {
            DataType::Int32 => "INT".to_string(),
            DataType::Utf8 => "STRING".to_string(),
            other => panic!("{other} here"),
        };
        nested_name(data_type, &name).unwrap_or_else(|| plain(data_type))
    }

    #[test]
    fn types_within_types_are_written_as_sql_reads_them() {
        let field = |name: &str, of: DataType, nullable| Field::new(name, of, nullable);
        let row = DataType::Struct(
            vec![field("a", DataType::Int32, true), field("b c", DataType::Utf8, false)].into(),
        );
        assert_eq!(name(&row), "ROW<a INT, `b c` STRING NOT NULL>");
        let list = DataType::List(Arc::new(field("item", row, false)));
        assert_eq!(name(&list), "ARRAY<ROW<a INT, `b c` STRING NOT NULL> NOT NULL>");
        let entry = vec![field("key", DataType::Utf8, false), field("value", list, true)];
        let entries = Arc::new(field("entries", DataType::Struct(entry.into()), false));
        let map = DataType::Map(entries, false);
        assert_eq!(name(&map), "MAP<STRING, ARRAY<ROW<a INT, `b c` STRING NOT NULL> NOT NULL>>");
        assert!(is_nested(&map) && !is_nested(&DataType::Utf8));
    }
}
