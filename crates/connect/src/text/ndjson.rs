//! Formatting rows as JSON, one object per line.

use super::json::{key, write_value};
use super::value::Cells;

/// `"name":` for each column, ready to be copied.
pub(super) fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    names.map(key).collect()
}

/// Appends a batch. `keys` are those of the columns.
pub(super) fn write_rows(keys: &[Vec<u8>], columns: &[Cells<'_>], rows: usize, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    for row in 0..rows {
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
