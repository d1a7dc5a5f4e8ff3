//! Rows as a table for people, growing as windows fire.
//!
//! The widths of the first rows, and what their types usually need, set the columns. Where wider
//! values come later, the table ends before them and a new one begins, with a header and wider
//! columns: so all rows stand under their header, and nothing has to wait for the end of a stream.
//! On a terminal a table is never wider than the terminal: what does not fit ends in `…`. Elsewhere
//! nothing is cut off.

use arrow::datatypes::{DataType, Schema};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::value::{Cells, Class, class};

/// A column is not made narrower than this to make the table fit.
const WIDTH_MIN: usize = 6;

/// A table being written.
#[derive(Debug)]
pub(super) struct TableWriter {
    columns: Vec<Column>,
    /// Terminal columns, if the table has to fit a terminal.
    limit: Option<usize>,
    started: bool,
    /// The texts of a batch, one after the other, and their lengths and widths; used again.
    texts: Vec<u8>,
    cells: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Column {
    name: String,
    right: bool,
    /// Terminal columns of its values.
    width: usize,
}

impl TableWriter {
    pub(super) fn new(schema: &Schema, limit: Option<u16>) -> TableWriter {
        let columns = schema
            .fields()
            .iter()
            .map(|field| {
                let name = harmless(field.name());
                let usual = usual_width(field.data_type());
                Column {
                    width: width(&name).max(usual),
                    name,
                    right: matches!(class(field.data_type()), Class::Number | Class::Float),
                }
            })
            .collect();
        TableWriter {
            columns,
            limit: limit.map(usize::from),
            started: false,
            texts: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Appends a batch; a header before it if it is the first or needs wider columns.
    pub(super) fn write_rows(&mut self, cells: &[Cells<'_>], rows: usize, out: &mut Vec<u8>) {
        if rows == 0 {
            return;
        }
        let needed = self.render_all(cells, rows);
        if !self.started {
            for (column, needed) in self.columns.iter_mut().zip(needed) {
                column.width = column.width.max(needed);
            }
            self.fit();
            self.start(out);
        } else {
            let mut end = Vec::new();
            self.border(["└", "┴", "┘"], &mut end);
            if self.widen(&needed) {
                out.append(&mut end);
                self.start(out);
            }
        }
        let mut texts = &self.texts[..];
        for row in self.cells.chunks(self.columns.len().max(1)).take(rows) {
            out.extend_from_slice("│".as_bytes());
            for (column, (bytes, width)) in self.columns.iter().zip(row) {
                let (text, rest) = texts.split_at(*bytes);
                texts = rest;
                let text = std::str::from_utf8(text).unwrap_or_default();
                pad(text, *width, column.width, column.right, out);
            }
            out.push(b'\n');
        }
    }

    /// Renders a batch into `texts` and `cells`; returns the greatest width of each column.
    fn render_all(&mut self, cells: &[Cells<'_>], rows: usize) -> Vec<usize> {
        self.texts.clear();
        self.cells.clear();
        let mut greatest = vec![0; cells.len()];
        let mut text = Vec::new();
        for row in 0..rows {
            for (cells, greatest) in cells.iter().zip(&mut greatest) {
                let value = render(cells, row, &mut text);
                let width = width(value);
                *greatest = width.max(*greatest);
                self.texts.extend_from_slice(value.as_bytes());
                self.cells.push((value.len(), width));
            }
        }
        greatest
    }

    /// Appends the header, if there were no rows, and the last border.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.started {
            self.fit();
            self.start(out);
        }
        self.border(["└", "┴", "┘"], out);
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        self.started = true;
        self.border(["┌", "┬", "┐"], out);
        out.extend_from_slice("│".as_bytes());
        for column in &self.columns {
            pad(&column.name, width(&column.name), column.width, column.right, out);
        }
        out.push(b'\n');
        self.border(["├", "┼", "┤"], out);
    }

    /// Terminal columns of a line: a value has a blank on either side, and borders between.
    fn line_width(&self) -> usize {
        self.columns.iter().map(|column| column.width + 3).sum::<usize>() + 1
    }

    /// Takes from the widest columns what does not fit.
    fn fit(&mut self) {
        let Some(limit) = self.limit else { return };
        while self.line_width() > limit {
            let widest = self.columns.iter_mut().max_by_key(|column| column.width);
            match widest {
                Some(column) if column.width > WIDTH_MIN => column.width -= 1,
                _ => return,
            }
        }
    }

    /// Makes room for wider values, as far as there is any; says whether a column became wider.
    fn widen(&mut self, needed: &[usize]) -> bool {
        let mut widened = false;
        for (at, needed) in needed.iter().enumerate() {
            let missing = needed.saturating_sub(self.columns[at].width);
            let room = match self.limit {
                None => missing,
                Some(limit) => limit.saturating_sub(self.line_width()).min(missing),
            };
            self.columns[at].width += room;
            widened |= room > 0;
        }
        widened
    }

    fn border(&self, [left, middle, right]: [&str; 3], out: &mut Vec<u8>) {
        for (at, column) in self.columns.iter().enumerate() {
            out.extend_from_slice(if at == 0 { left } else { middle }.as_bytes());
            out.extend_from_slice("─".repeat(column.width + 2).as_bytes());
        }
        out.extend_from_slice(right.as_bytes());
        out.push(b'\n');
    }
}

/// What values of a type usually take, so that the table need not widen soon.
fn usual_width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Boolean => 5,
        DataType::Int8 | DataType::UInt8 => 4,
        integer if integer.is_integer() => 6,
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(_, _) => 8,
        _ => 4,
    }
}

/// A value's text, harmless on a terminal.
fn render<'a>(cells: &Cells<'_>, row: usize, text: &'a mut Vec<u8>) -> &'a str {
    text.clear();
    if cells.is_null(row) {
        return "NULL";
    }
    cells.write(row, text);
    if cells.class == Class::Text {
        // What is written is UTF-8; should it not be, it must not reach the terminal.
        let shown = match std::str::from_utf8(text) {
            Ok(shown) if !shown.chars().any(is_harmful) => None,
            Ok(shown) => Some(harmless(shown)),
            Err(_) => Some(harmless(&String::from_utf8_lossy(text))),
        };
        if let Some(shown) = shown {
            *text = shown.into_bytes();
        }
    }
    std::str::from_utf8(text).unwrap_or_default()
}

/// Escapes what could move the cursor, colour the screen or turn the writing direction.
fn harmless(text: &str) -> String {
    let escape = |c: char| match is_harmful(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[inline]
fn is_harmful(c: char) -> bool {
    c.is_control()
        || (!c.is_ascii()
            && matches!(c,
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
}

/// Terminal columns of a harmless text.
#[inline]
fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Appends ` value │`, cut or filled from `taken` to `room` terminal columns.
fn pad(value: &str, taken: usize, room: usize, right: bool, out: &mut Vec<u8>) {
    out.push(b' ');
    if taken > room {
        let (mut end, mut used) = (0, 0);
        for (at, c) in value.char_indices() {
            let next = used + c.width().unwrap_or(0);
            if next + 1 > room {
                break;
            }
            (end, used) = (at + c.len_utf8(), next);
        }
        out.extend_from_slice(&value.as_bytes()[..end]);
        out.extend_from_slice("…".as_bytes());
        out.resize(out.len() + room - used - 1, b' ');
    } else if right {
        out.resize(out.len() + room - taken, b' ');
        out.extend_from_slice(value.as_bytes());
    } else {
        out.extend_from_slice(value.as_bytes());
        out.resize(out.len() + room - taken, b' ');
    }
    out.extend_from_slice(" │".as_bytes());
}
