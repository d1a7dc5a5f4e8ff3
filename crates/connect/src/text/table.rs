//! Formatting rows as a table for people, which grows as windows fire.
//!
//! The widths of the columns follow from what their types usually need and from the first rows. So
//! nothing has to wait for the end of a stream, and the header is printed once. A later value that
//! is wider makes its own line wider.
//!
//! On a terminal with enough room, a column of numbers gets the width of the widest number of its
//! type, or a share of the room that is left. On a narrower terminal the table is made to fit:
//! first columns give up spare width, then times lose the zeros after their seconds, and then
//! strings are cut, which `…` marks. Numbers and times are never cut; if there is no room for them,
//! lines are longer than the terminal is wide. Output that does not go to a terminal is never cut.

use arrow::datatypes::{DataType, Schema, TimeUnit};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::TextOptions;
use super::value::{Cells, Class, class};

/// A text column is not made narrower than this to make the table fit.
const WIDTH_MIN: usize = 6;

/// A table being written.
#[derive(Debug)]
pub(super) struct TableWriter {
    columns: Vec<TextColumn>,
    /// Terminal columns, if the table has to fit a terminal.
    limit: Option<usize>,
    /// Rows so far, of a table with a line for each value.
    expanded: Option<u64>,
    started: bool,
    /// The texts of a batch, one after the other, and their lengths and widths; used again.
    texts: Vec<u8>,
    cells: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct TextColumn {
    name: String,
    name_width: usize,
    class: Class,
    /// Usual width of values of this type.
    usual: usize,
    /// Greatest width of a number of this type; 0 for other types.
    greatest: usize,
    /// Width that the first values need.
    needed: usize,
    /// Terminal columns of its values.
    width: usize,
    /// Times go without zeros behind their seconds.
    short: bool,
}

impl TextColumn {
    fn new(name: &str, data_type: &DataType) -> TextColumn {
        let (name, usual) = (harmless(name), usual_width(data_type));
        let (name_width, class) = (width(&name), class(data_type));
        let greatest = greatest_width(data_type);
        Self { name, name_width, class, usual, greatest, needed: 0, width: usual, short: false }
    }

    fn right(&self) -> bool {
        matches!(self.class, Class::Number | Class::Float)
    }

    /// Width at which no value so far is cut.
    fn whole(&self) -> usize {
        self.needed.max(self.name_width)
    }

    /// Its least width.
    fn least(&self) -> usize {
        match self.class {
            Class::Text => self.whole().min(WIDTH_MIN),
            _ => self.needed.max(self.name_width.min(WIDTH_MIN)),
        }
    }
}

impl TableWriter {
    pub(super) fn new(schema: &Schema, options: &TextOptions) -> TableWriter {
        let fields = schema.fields().iter();
        TableWriter {
            columns: fields.map(|field| TextColumn::new(field.name(), field.data_type())).collect(),
            limit: options.width.map(usize::from),
            expanded: options.expanded.then_some(0),
            started: false,
            texts: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Appends a batch, and a header before the first.
    pub(super) fn write_rows(&mut self, cells: &[Cells<'_>], rows: usize, out: &mut Vec<u8>) {
        if rows == 0 {
            return;
        }
        if let Some(before) = self.expanded {
            self.expanded = Some(before + rows as u64);
            return self.write_expanded(before, cells, rows, out);
        }
        if self.started {
            self.render_all(cells, rows);
        } else {
            self.start(cells, rows, out);
        }
        let mut texts = &self.texts[..];
        for row in self.cells.chunks(self.columns.len().max(1)).take(rows) {
            let too_wide = self.columns.iter().zip(row).any(|(c, (_, taken))| *taken > c.width);
            let rooms = if too_wide { self.rooms(row) } else { Vec::new() };
            out.extend_from_slice("│".as_bytes());
            for (at, (column, (bytes, taken))) in self.columns.iter().zip(row).enumerate() {
                let (text, rest) = texts.split_at(*bytes);
                texts = rest;
                let text = std::str::from_utf8(text).unwrap_or_default();
                let room = rooms.get(at).copied().unwrap_or(column.width);
                pad(text, *taken, room, column.right(), out);
            }
            out.push(b'\n');
        }
    }

    /// Appends a batch with a line for each value, behind so many rows.
    fn write_expanded(&self, before: u64, cells: &[Cells<'_>], rows: usize, out: &mut Vec<u8>) {
        let widest = self.columns.iter().map(|column| column.name_width).max().unwrap_or(0);
        let mut text = Vec::new();
        for row in 0..rows {
            out.extend_from_slice(format!("── row {} ──\n", before + 1 + row as u64).as_bytes());
            for (cells, column) in cells.iter().zip(&self.columns) {
                out.extend_from_slice(column.name.as_bytes());
                out.resize(out.len() + widest - column.name_width, b' ');
                let value = render(cells, row, false, &mut text);
                out.extend_from_slice(format!(" │ {value}\n").as_bytes());
            }
        }
    }

    /// Widths of a row's cells, if a value is wider than its column. Later cells with room to spare
    /// make up for the excess. On a terminal a text takes no more than the free width, and is cut
    /// to make up for the rest.
    fn rooms(&self, row: &[(usize, usize)]) -> Vec<usize> {
        let line_width = self.line_width();
        let mut free = self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(line_width));
        let (mut rooms, mut over) = (Vec::with_capacity(row.len()), 0);
        for (column, (_, taken)) in self.columns.iter().zip(row) {
            if *taken > column.width {
                let mut more = taken - column.width;
                if column.class == Class::Text {
                    more = more.min(free);
                    free -= more;
                }
                over += more;
                rooms.push(column.width + more);
            } else {
                let spare = (column.width - taken).min(over);
                over -= spare;
                rooms.push(column.width - spare);
            }
        }
        let mut lacking = self.limit.map_or(0, |limit| (line_width + over).saturating_sub(limit));
        for (column, room) in self.columns.iter().zip(&mut rooms) {
            if column.class == Class::Text {
                let less = room.saturating_sub(column.least()).min(lacking);
                *room -= less;
                lacking -= less;
            }
        }
        rooms
    }

    /// Renders a batch into `texts` and `cells`; returns the greatest width of each column.
    fn render_all(&mut self, cells: &[Cells<'_>], rows: usize) -> Vec<usize> {
        self.texts.clear();
        self.cells.clear();
        let mut greatest = vec![0; cells.len()];
        let mut text = Vec::new();
        for row in 0..rows {
            for ((cells, column), greatest) in cells.iter().zip(&self.columns).zip(&mut greatest) {
                let value = render(cells, row, column.short, &mut text);
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
        if self.expanded.is_some() {
            return;
        }
        if !self.started {
            self.start(&[], 0, out);
        }
        self.border(["└", "┴", "┘"], out);
    }

    /// Renders the first batch, chooses the columns' widths, and appends the header.
    fn start(&mut self, cells: &[Cells<'_>], rows: usize, out: &mut Vec<u8>) {
        self.started = true;
        self.measure(cells, rows);
        if !self.shrink(TextColumn::whole) {
            for column in &mut self.columns {
                column.short = column.class == Class::Plain;
            }
            self.measure(cells, rows);
            let _ = self.shrink(TextColumn::whole) || self.shrink(TextColumn::least);
        }
        self.grow();
        self.border(["┌", "┬", "┐"], out);
        out.extend_from_slice("│".as_bytes());
        for column in &self.columns {
            pad(&column.name, column.name_width, column.width, column.right(), out);
        }
        out.push(b'\n');
        self.border(["├", "┼", "┤"], out);
    }

    /// Renders the first batch and gives columns the widths that they should have.
    fn measure(&mut self, cells: &[Cells<'_>], rows: usize) {
        let mut needed = self.render_all(cells, rows).into_iter();
        for column in &mut self.columns {
            column.needed = needed.next().unwrap_or(0);
            let usual = if column.short { 0 } else { column.usual };
            column.width = column.whole().max(usual);
        }
    }

    /// Terminal columns of a line: a value has a blank on either side, and borders between.
    fn line_width(&self) -> usize {
        self.columns.iter().map(|column| column.width + 3).sum::<usize>() + 1
    }

    /// Takes from the widest columns what does not fit, down to `floor`; whether it fits then.
    fn shrink(&mut self, floor: impl Fn(&TextColumn) -> usize) -> bool {
        let Some(limit) = self.limit else { return true };
        while self.line_width() > limit {
            let wider = self.columns.iter_mut().filter(|column| column.width > floor(column));
            match wider.max_by_key(|column| column.width) {
                Some(column) => column.width -= 1,
                None => return false,
            }
        }
        true
    }

    /// Gives the room that a terminal has left to numbers, the narrowest column first; half of it
    /// where there are texts, of which later ones may be longer.
    fn grow(&mut self) {
        let Some(limit) = self.limit else { return };
        let mut free = limit.saturating_sub(self.line_width());
        if self.columns.iter().any(|column| column.class == Class::Text) {
            free /= 2;
        }
        while free > 0 {
            let numbers = self.columns.iter_mut().filter(|column| column.width < column.greatest);
            let Some(column) = numbers.min_by_key(|column| column.width) else { break };
            column.width += 1;
            free -= 1;
        }
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

/// Usual width of values of a type, so that later values fit, too.
fn usual_width(data_type: &DataType) -> usize {
    let fraction = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 4,
        TimeUnit::Microsecond => 7,
        TimeUnit::Nanosecond => 10,
    };
    match data_type {
        DataType::Boolean => 5,
        DataType::Int8 | DataType::UInt8 => 4,
        DataType::Int16 | DataType::UInt16 => 6,
        DataType::Float64 => 18,
        DataType::Decimal128(precision, _) => usize::from(*precision).min(12) + 2,
        DataType::Date32 | DataType::Date64 | DataType::Float32 => 10,
        DataType::Time32(unit) | DataType::Time64(unit) => 8 + fraction(unit),
        DataType::Timestamp(unit, zone) => 19 + fraction(unit) + usize::from(zone.is_some()),
        _ => 8,
    }
}

/// Width of the widest number of a type; 0 for other types.
fn greatest_width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Int32 => 11,
        DataType::UInt32 => 10,
        DataType::Int64 | DataType::UInt64 => 20,
        // -3.4028235e38 and -2.2250738585072014e-308.
        DataType::Float32 => 14,
        DataType::Float64 => 24,
        // A sign, a point, a zero before it.
        DataType::Decimal128(precision, _) | DataType::Decimal256(precision, _) => {
            usize::from(*precision) + 3
        }
        _ => 0,
    }
}

/// A value's text, harmless on a terminal.
fn render<'a>(cells: &Cells<'_>, row: usize, short: bool, text: &'a mut Vec<u8>) -> &'a str {
    text.clear();
    if cells.is_null(row) {
        return "NULL";
    }
    cells.write(row, text);
    if short {
        shorten(text);
    }
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

/// Takes zeros behind the seconds of a time away.
fn shorten(text: &mut Vec<u8>) {
    let zone = text.last() == Some(&b'Z');
    let end = text.len() - usize::from(zone);
    let zeros = text[..end].iter().rev().take_while(|byte| **byte == b'0').count();
    if let Some(point) = (end - zeros).checked_sub(1).filter(|at| text[*at] == b'.') {
        text.drain(point..end);
    }
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
