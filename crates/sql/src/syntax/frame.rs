//! A line of SQL with a range of it underlined, as messages show it.
//!
//! Widths are those of a terminal: a Chinese character takes two columns, a combining accent none.

use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::syntax::source::{Source, Span};

/// Terminal columns of a line that are shown at most.
const WIDTH_MAX: usize = 160;

/// The name, line and column, and the line with the range underlined; of several lines, the first.
/// See [`SqlError::render`](crate::SqlError::render).
pub(crate) fn frame(source: &Source, span: Span) -> String {
    let (line, ascii) = source.line(span.line);
    let column = span.column as usize - 1;
    // Of a long line only what is around the place matters.
    let from = if ascii { column.min(line.len()).saturating_sub(2 * WIDTH_MAX) } else { 0 };
    let to = if ascii { line.len().min(from + 4 * WIDTH_MAX) } else { line.len() };
    let chars: Vec<char> = line[from..to].chars().map(visible).collect();
    let start = (column - from).min(chars.len());
    let end = match span.end_line > span.line {
        true => chars.len(),
        false => (span.end_column as usize - 1 - from).clamp(start, chars.len()),
    };
    let shown = shown_range(&chars, start);
    let text = |range: &[char]| range.iter().collect::<String>();
    let ellipsis = |cut: bool| if cut { "…" } else { "" };
    let (cut_before, cut_after) =
        (from + shown.start > 0, shown.end < chars.len() || to < line.len());
    let before = usize::from(cut_before) + text(&chars[shown.start..start]).width();
    let marked = text(&chars[start..end.min(shown.end)]).width().max(1);
    let number = span.line.to_string();
    let gutter = " ".repeat(number.len());
    let mut out = String::new();
    let _ = writeln!(out, " {gutter}--> {}:{}:{}", source.name, span.line, span.column);
    let _ = writeln!(out, " {gutter} |");
    let (open, close) = (ellipsis(cut_before), ellipsis(cut_after));
    let _ = writeln!(out, " {number} | {open}{}{close}", text(&chars[shown]));
    let _ = write!(out, " {gutter} | {}{}", " ".repeat(before), "^".repeat(marked));
    out
}

/// Replaces a character that would move the cursor or turn the writing direction.
fn visible(c: char) -> char {
    match c {
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => ' ',
        c => c,
    }
}

/// The part of a line to show, around the character of interest if the line is very long.
fn shown_range(chars: &[char], interest: usize) -> std::ops::Range<usize> {
    let width = |c: &char| c.width().unwrap_or(0);
    let fits = |widths: &mut dyn Iterator<Item = usize>, room: usize| {
        let sums = widths.scan(0, |sum, width| {
            *sum += width;
            Some(*sum)
        });
        sums.take_while(|sum| *sum <= room).count()
    };
    if chars.iter().map(width).sum::<usize>() <= WIDTH_MAX {
        return 0..chars.len();
    }
    let before = fits(&mut chars[..interest].iter().rev().map(width), WIDTH_MAX / 2);
    let from = interest - before;
    from..from + fits(&mut chars[from..].iter().map(width), WIDTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last two lines of the frame around the first `part` of a text of one line.
    fn lines(text: &str, part: &str) -> (String, String) {
        let at = text.find(part).unwrap();
        let column = text[..at].chars().count() as u32 + 1;
        let end_column = column + part.chars().count() as u32;
        let source = Source::new("q.sql", text);
        let frame = frame(&source, Span { line: 1, column, end_line: 1, end_column });
        let mut lines = frame.lines().skip(2).map(str::to_string);
        (lines.next().unwrap(), lines.next().unwrap())
    }

    #[test]
    fn marks_stand_under_what_they_mark_whatever_its_width() {
        for (text, part, shown, marks) in [
            ("SELECT x, y", "y", "SELECT x, y", "          ^"),
            ("SELECT '日本語', y", "y", "SELECT '日本語', y", "                 ^"),
            ("SELECT 列名, y", "列名", "SELECT 列名, y", "       ^^^^"),
            // A combining accent takes no column of its own.
            ("SELECT 'e\u{301}', y", "y", "SELECT 'e\u{301}', y", "            ^"),
            ("\tSELECT\ty", "y", " SELECT y", "        ^"),
            ("SELECT '\u{1b}[31m', y", "y", "SELECT ' [31m', y", "                ^"),
            ("SELECT '\u{202e}', y", "y", "SELECT '\u{fffd}', y", "            ^"),
        ] {
            let expected = (format!(" 1 | {shown}"), format!("   | {marks}"));
            assert_eq!(lines(text, part), expected);
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_mark() {
        for filler in ["a", "語"] {
            let text = format!("{} HERE {}", filler.repeat(500), filler.repeat(500));
            let (shown, marks) = lines(&text, "HERE");
            assert!(shown.contains("HERE") && shown.starts_with(" 1 | …") && shown.ends_with('…'));
            assert!(shown.width() <= WIDTH_MAX + 7, "{}", shown.width());
            let at = shown.find("HERE").unwrap();
            assert_eq!(marks.width(), shown[..at].width() + 4);
            assert!(marks.ends_with("^^^^"));
        }
        // What is marked may be longer than what is shown.
        let (shown, marks) = lines(&"x".repeat(1000), &"x".repeat(1000));
        assert_eq!(marks.width(), shown.width() - 1);
    }

    #[test]
    fn a_place_at_or_beyond_the_end_of_the_line_has_a_mark() {
        let source = Source::new("q.sql", "SELECT\n");
        for (line, column) in [(1, 7), (1, 40), (2, 1), (9, 3)] {
            let span = Span { line, column, end_line: line, end_column: column + 3 };
            assert!(frame(&source, span).ends_with('^'), "{line}:{column}");
        }
    }
}
