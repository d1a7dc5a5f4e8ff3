//! Layouts in which many values share the same bytes.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type, RunEndIndexType};

/// Bytes that the values of an array take once each has its own, where they may share them now;
/// otherwise 0.
pub(super) fn repeated_bytes(array: &ArrayRef) -> u64 {
    use DataType::*;
    match array.data_type() {
        Utf8View => array.as_string_view().views().iter().map(view_bytes).sum(),
        BinaryView => array.as_binary_view().views().iter().map(view_bytes).sum(),
        ListView(_) => {
            let lists = array.as_list_view::<i32>();
            elements_bytes(lists.values(), lists.sizes().iter().map(|size| i64::from(*size)))
        }
        LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            elements_bytes(lists.values(), lists.sizes().iter().copied())
        }
        Dictionary(_, _) => {
            let Some(dictionary) = array.as_any_dictionary_opt() else { return 0 };
            let (values, keys) = (dictionary.values(), dictionary.keys());
            if values.is_empty() {
                return 0;
            }
            let places = dictionary.normalized_keys().into_iter().enumerate();
            places.filter(|(row, _)| keys.is_valid(*row)).map(|(_, at)| bytes_at(values, at)).sum()
        }
        RunEndEncoded(ends, _) => match ends.data_type() {
            Int16 => runs_bytes::<Int16Type>(array),
            Int32 => runs_bytes::<Int32Type>(array),
            _ => runs_bytes::<Int64Type>(array),
        },
        _ => 0,
    }
}

/// Of a view, whose first four bytes are its length.
fn view_bytes(view: &u128) -> u64 {
    u64::from(*view as u32)
}

/// Of lists of so many elements each.
fn elements_bytes(values: &ArrayRef, sizes: impl Iterator<Item = i64>) -> u64 {
    let elements: u64 = sizes.map(|size| u64::try_from(size).unwrap_or(0)).sum();
    elements.saturating_mul(mean_bytes(values))
}

fn runs_bytes<R: RunEndIndexType>(array: &ArrayRef) -> u64 {
    let Some(runs) = array.as_run_opt::<R>() else { return 0 };
    let values = runs.values();
    (0..runs.len()).map(|row| bytes_at(values, runs.get_physical_index(row))).sum()
}

/// Of one value of several.
fn bytes_at(values: &ArrayRef, at: usize) -> u64 {
    use DataType::*;
    let length = match values.data_type() {
        Utf8 => values.as_string::<i32>().value_length(at) as u64,
        LargeUtf8 => values.as_string::<i64>().value_length(at) as u64,
        Binary => values.as_binary::<i32>().value_length(at) as u64,
        LargeBinary => values.as_binary::<i64>().value_length(at) as u64,
        Utf8View => view_bytes(&values.as_string_view().views()[at]),
        BinaryView => view_bytes(&values.as_binary_view().views()[at]),
        List(_) => {
            let lists = values.as_list::<i32>();
            (lists.value_length(at) as u64).saturating_mul(mean_bytes(lists.values()))
        }
        other => match other.primitive_width() {
            Some(width) => return width as u64,
            None => return mean_bytes(values),
        },
    };
    // With its offset.
    length + 4
}

/// Of any value, if all are alike.
fn mean_bytes(values: &ArrayRef) -> u64 {
    let bytes = values.to_data().get_slice_memory_size().unwrap_or(0);
    bytes.div_ceil(values.len().max(1)) as u64
}
