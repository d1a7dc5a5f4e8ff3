//! Writing one value as JSON.
//!
//! Integers and decimals are numbers with all their digits, however large. (A reader that needs
//! more than 53 bits has to look at the text.) JSON has no NaN and no infinity, so they are the
//! strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

use super::value::{Cells, Class};

/// Appends a value, or `null`. `text` is memory to work in.
#[inline]
pub(super) fn write_value(column: &Cells<'_>, row: usize, text: &mut Vec<u8>, out: &mut Vec<u8>) {
    if column.is_null(row) {
        out.extend_from_slice(b"null");
        return;
    }
    match column.class {
        Class::Number | Class::Boolean => column.write(row, out),
        Class::Float => {
            let start = out.len();
            column.write(row, out);
            if matches!(out.last(), Some(b'N' | b'y')) {
                out.insert(start, b'"');
                out.push(b'"');
            }
        }
        Class::Plain => {
            out.push(b'"');
            column.write(row, out);
            out.push(b'"');
        }
        Class::Text => match column.nested() {
            Some(nested) => nested.write(row, out),
            None => write_text(column, row, text, out),
        },
    }
}

/// Appends a value's text as a JSON string.
pub(super) fn write_text(column: &Cells<'_>, row: usize, text: &mut Vec<u8>, out: &mut Vec<u8>) {
    text.clear();
    column.write(row, text);
    write_string(text, out);
}

/// `"name":`, ready to be copied.
pub(super) fn key(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 3);
    write_string(name.as_bytes(), &mut out);
    out.push(b':');
    out
}

/// Appends UTF-8 text as a JSON string.
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut plain = 0;
    for (at, byte) in text.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[plain..at]);
        plain = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit & 15)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(*byte)]);
            }
        }
    }
    out.extend_from_slice(&text[plain..]);
    out.push(b'"');
}
