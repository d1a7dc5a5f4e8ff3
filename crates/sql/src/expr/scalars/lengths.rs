//! How long the texts of a column are, also those within rows, arrays and maps.

use crate::syntax::prelude::*;

use std::ops::Range;

use arrow::array::OffsetSizeTrait;
use arrow::datatypes::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};

/// Whether values of a type are texts, or may have texts within them.
pub(super) fn has_texts(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView => true,
        Struct(fields) => fields.iter().any(|field| has_texts(field.data_type())),
        List(element) | Map(element, _) => has_texts(element.data_type()),
        _ => false,
    }
}

/// Bytes of all texts of an array.
pub(crate) fn text_bytes(array: &ArrayRef) -> u64 {
    if let Some(rows) = array.as_struct_opt() {
        return rows.columns().iter().map(text_bytes).sum();
    }
    match Lengths::of_array(array) {
        Lengths::All(_) => 0,
        Lengths::Short(offsets) => (offsets[array.len()] - offsets[0]) as u64,
        Lengths::Long(offsets) => (offsets[array.len()] - offsets[0]) as u64,
        lengths @ (Lengths::Views(_) | Lengths::Each(_)) => lengths.sum(0..array.len()),
    }
}

/// The lengths of a column's texts, in bytes; of what is no text 0.
pub(super) enum Lengths<'a> {
    All(u64),
    Short(&'a [i32]),
    Long(&'a [i64]),
    Views(&'a [u128]),
    Each(Vec<u64>),
}

impl Lengths<'_> {
    pub(super) fn of_scalar(value: &ScalarValue) -> Lengths<'static> {
        use ScalarValue::*;
        Lengths::All(match value {
            Utf8(Some(text)) | LargeUtf8(Some(text)) | Utf8View(Some(text)) => text.len() as u64,
            Binary(Some(bytes)) | LargeBinary(Some(bytes)) | BinaryView(Some(bytes)) => {
                bytes.len() as u64
            }
            List(_) | Struct(_) | Map(_) => value.to_array().map_or(0, |one| text_bytes(&one)),
            _ => 0,
        })
    }

    pub(super) fn of_array(array: &ArrayRef) -> Lengths<'_> {
        fn offsets<T: ByteArrayType>(array: &ArrayRef) -> &[T::Offset] {
            array.as_bytes::<T>().value_offsets()
        }
        let data_type = array.data_type();
        match data_type {
            DataType::Utf8 => Lengths::Short(offsets::<Utf8Type>(array)),
            DataType::Binary => Lengths::Short(offsets::<BinaryType>(array)),
            DataType::LargeUtf8 => Lengths::Long(offsets::<LargeUtf8Type>(array)),
            DataType::LargeBinary => Lengths::Long(offsets::<LargeBinaryType>(array)),
            DataType::Utf8View => Lengths::Views(array.as_string_view().views()),
            DataType::BinaryView => Lengths::Views(array.as_binary_view().views()),
            _ if !has_texts(data_type) => Lengths::All(0),
            DataType::Struct(_) => {
                let fields: Vec<Lengths<'_>> =
                    array.as_struct().columns().iter().map(Lengths::of_array).collect();
                let sum = |row| fields.iter().map(|field| field.of(row)).sum();
                Lengths::Each((0..array.len()).map(sum).collect())
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Lengths::of_elements(list.value_offsets(), &[list.values()])
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Lengths::of_elements(map.value_offsets(), &[map.keys(), map.values()])
            }
            _ => Lengths::All(0),
        }
    }

    /// Of rows whose elements stand between two offsets each.
    fn of_elements(offsets: &[i32], columns: &[&ArrayRef]) -> Lengths<'static> {
        let columns: Vec<Lengths<'_>> = columns.iter().map(|c| Lengths::of_array(c)).collect();
        let of_row = |ends: &[i32]| {
            let elements = ends[0] as usize..ends[1] as usize;
            columns.iter().map(|column| column.sum(elements.clone())).sum()
        };
        Lengths::Each(offsets.windows(2).map(of_row).collect())
    }

    pub(super) fn of(&self, row: usize) -> u64 {
        fn between<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> u64 {
            (offsets[row + 1] - offsets[row]).as_usize() as u64
        }
        match self {
            Lengths::All(length) => *length,
            Lengths::Short(offsets) => between(offsets, row),
            Lengths::Long(offsets) => between(offsets, row),
            // The lowest 32 bits of a view are the length.
            Lengths::Views(views) => u64::from(views[row] as u32),
            Lengths::Each(lengths) => lengths[row],
        }
    }

    /// Sum of all lengths, of so many rows, if known without a look at each.
    pub(super) fn sum_of_all(&self, rows: usize) -> Option<u64> {
        fn ends<O: OffsetSizeTrait>(offsets: &[O]) -> Option<u64> {
            Some((*offsets.last()? - *offsets.first()?).as_usize() as u64)
        }
        match self {
            Lengths::All(length) => Some(length.saturating_mul(rows as u64)),
            Lengths::Short(offsets) => ends(offsets),
            Lengths::Long(offsets) => ends(offsets),
            Lengths::Views(_) | Lengths::Each(_) => None,
        }
    }

    fn sum(&self, rows: Range<usize>) -> u64 {
        rows.map(|row| self.of(row)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
    use arrow::array::{Int32Array, StringArray, StructArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn texts_within_values_count() {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("abc"), None, Some("d")]);
        lists.append_null();
        lists.append_value([Some("\u{e9}")]);
        let lists: ArrayRef = Arc::new(lists.finish());
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        for row in 0..3 {
            maps.keys().append_value("x".repeat(row));
            maps.values().append_value(1);
            maps.append(true).unwrap();
        }
        let maps: ArrayRef = Arc::new(maps.finish());
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["", "12345", "1"]));
        let columns = vec![lists.clone(), maps.clone(), numbers.clone(), texts];
        let field = |column: &ArrayRef| Field::new("f", column.data_type().clone(), true);
        let fields = columns.iter().map(field).collect();
        let rows: ArrayRef = Arc::new(StructArray::new(fields, columns, None));
        let each = |array: &ArrayRef| {
            let lengths = Lengths::of_array(array);
            (0..array.len()).map(|row| lengths.of(row)).collect::<Vec<_>>()
        };
        assert_eq!(each(&lists), [4, 0, 2]);
        assert_eq!(each(&maps), [0, 1, 2]);
        assert_eq!(each(&rows), [4, 6, 5]);
        assert_eq!(each(&rows.slice(1, 2)), [6, 5]);
        assert_eq!((text_bytes(&rows), text_bytes(&rows.slice(2, 1))), (15, 5));
        assert_eq!((text_bytes(&numbers), has_texts(numbers.data_type())), (0, false));
        let constant = ScalarValue::try_from_array(&rows, 1).unwrap();
        assert_eq!(Lengths::of_scalar(&constant).of(7), 6);
    }
}
