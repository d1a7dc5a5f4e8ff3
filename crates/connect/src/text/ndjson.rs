//! Formatting rows as JSON, one object per line.

use std::ops::Range;

use super::json::{key, write_value};
use super::value::Cells;

/// `"name":` for each column, ready to be copied.
pub(crate) fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    names.map(key).collect()
}

/// Appends rows of a batch. `keys` are those of the columns.
pub(crate) fn write_rows(
    keys: &[Vec<u8>],
    columns: &[Cells<'_>],
    rows: Range<usize>,
    out: &mut Vec<u8>,
) {
    let mut text = Vec::new();
    for row in rows {
        out.push(b'{');
        for (at, (key, column)) in keys.iter().zip(columns).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            write_value(column, row, &mut text, out);
        }
        out.extend_from_slice(b"}\n");
    }
}
