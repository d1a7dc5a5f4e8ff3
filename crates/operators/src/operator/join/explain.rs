//! Texts about a join for messages and `EXPLAIN`: its name, and the kept part of each side's rows.

use std::fmt::Write;

use arrow::datatypes::DataType;

use super::sides::{JoinSide, Kept};
use crate::plan::Join;

pub(super) fn name_of(join: &Join) -> String {
    const CHARS_MAX: usize = 60;
    let keys: Vec<&str> = join.keys.iter().map(|[left, _]| left.name.as_str()).collect();
    let keys = keys.join(", ");
    match keys.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("join on ({}…)", &keys[..end]),
        None => format!("join on ({keys})"),
    }
}

/// Appends the kept part of a side's row. Writing to a `String` cannot fail.
pub(super) fn add_side(
    text: &mut String,
    side: &JoinSide,
    type_name: &dyn Fn(&DataType) -> String,
) {
    let bytes = side.format.row_bytes();
    let values = side.columns.iter().take(side.shown);
    let values = values.filter(|column| matches!(column.kept, Kept::Value(_)));
    let values: Vec<String> = values.map(|column| type_name(&column.data_type)).collect();
    let values = if values.is_empty() { "nothing".into() } else { values.join(", ") };
    let key_bytes = 8 * side.codec.words();
    let _ = writeln!(
        text,
        "  up to {bytes} bytes a row, texts besides: {key_bytes} for its key, and {values}"
    );
}
