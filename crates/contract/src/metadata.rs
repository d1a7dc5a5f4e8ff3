//! Types of metadata columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

/// Whether a metadata column of type `declared` can hold all values of a key of type `key`: the
/// same type, a wider integer, a timestamp of any precision, or a MAP, ARRAY or ROW of types which
/// can. The connector converts the values.
pub fn may_hold(declared: &DataType, key: &DataType) -> bool {
    use DataType::*;
    let member = |declared: &Field, key: &Field| {
        let nulls = declared.is_nullable() || !key.is_nullable();
        nulls && may_hold(declared.data_type(), key.data_type())
    };
    match (declared, key) {
        (Timestamp(..), Timestamp(..)) => true,
        (declared, key) if declared.is_signed_integer() && key.is_signed_integer() => {
            declared.primitive_width() >= key.primitive_width()
        }
        (List(declared), List(key)) => member(declared, key),
        // The names of entries are no part of the type.
        (Map(declared, _), Map(key, _)) => match (declared.data_type(), key.data_type()) {
            (Struct(declared), Struct(key)) => {
                declared.len() == key.len() && declared.iter().zip(key).all(|(d, k)| member(d, k))
            }
            _ => false,
        },
        (Struct(declared), Struct(key)) => {
            let same = |(declared, key): (&Arc<Field>, &Arc<Field>)| {
                declared.name() == key.name() && member(declared, key)
            };
            declared.len() == key.len() && declared.iter().zip(key).all(same)
        }
        (declared, key) => declared == key,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    fn map(names: [&str; 2], value: DataType, nullable: bool) -> DataType {
        let key = Field::new(names[0], DataType::Utf8, false);
        let entry = vec![key, Field::new(names[1], value, nullable)];
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry.into()), false)), false)
    }

    #[test]
    fn a_column_holds_all_values_of_its_key() {
        use DataType::*;
        let millis = Timestamp(TimeUnit::Millisecond, None);
        let micros = Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        assert!(may_hold(&millis, &micros) && may_hold(&micros, &millis));
        assert!(may_hold(&Int64, &Int32) && may_hold(&Int32, &Int32) && !may_hold(&Int32, &Int64));
        assert!(!may_hold(&Utf8, &Int32) && !may_hold(&Int64, &UInt32));
        let headers = map(["key", "value"], Binary, true);
        assert!(may_hold(&map(["keys", "values"], Binary, true), &headers));
        assert!(!may_hold(&map(["key", "value"], Binary, false), &headers));
        assert!(!may_hold(&map(["key", "value"], Utf8, true), &headers));
        let list = |of| List(Arc::new(Field::new("item", of, true)));
        assert!(may_hold(&list(Int64), &list(Int32)) && !may_hold(&list(Utf8), &list(Int32)));
        let row = |name: &str, of| Struct(vec![Field::new(name, of, true)].into());
        assert!(may_hold(&row("a", headers.clone()), &row("a", headers)));
        assert!(!may_hold(&row("a", Int32), &row("b", Int32)));
    }
}
