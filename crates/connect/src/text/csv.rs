//! Rows as CSV, RFC 4180 with `\n` line ends: NULL is an empty field, the empty string is `""`.
//!
//! A row of one NULL is an empty line, which CSV readers skip; ours does too.

use super::value::{Cells, Class};

/// Appends the header line.
pub(super) fn write_header<'a>(names: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    for (at, name) in names.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let start = out.len();
        out.extend_from_slice(name.as_bytes());
        quote_if_needed(start, out);
    }
    out.push(b'\n');
}

/// Appends a batch.
pub(super) fn write_rows(columns: &[Cells<'_>], rows: usize, out: &mut Vec<u8>) {
    for row in 0..rows {
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if column.is_null(row) {
                continue;
            }
            let start = out.len();
            column.write(row, out);
            if column.class == Class::Text {
                quote_if_needed(start, out);
            }
        }
        out.push(b'\n');
    }
}

/// Puts what was appended since `start` between quotes, if it could be misread without.
#[inline]
fn quote_if_needed(start: usize, out: &mut Vec<u8>) {
    let text = &out[start..];
    if text.is_empty() || text.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r')) {
        quote(start, out);
    }
}

fn quote(start: usize, out: &mut Vec<u8>) {
    let text = out.split_off(start);
    out.push(b'"');
    for part in text.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}
