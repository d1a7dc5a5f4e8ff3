//! Finding the end of a chunk: after a whole record, without parsing the fields.
//!
//! If a chunk contains no quote character, a record ends with its line. Otherwise the rules of
//! [`super::index`] decide whether a line end is inside a quoted field.
//!
//! If malformed records are skipped, a quote that is never closed must not take the records after
//! it along. So a quoted field counts as *broken* if it goes on for too long, or if its closing
//! quote is on a later line and more text follows the quote, which then must belong to another
//! field. A broken field makes its record malformed; the record ends with the line in which the
//! field begins.

use memchr::{memchr, memchr2};

use super::dialect::Dialect;
use crate::records::{Cut, cut_lines};

/// Finds the end of as many whole records as the (non-empty) buffer holds, at most `records_max`.
/// The buffer starts with a record; if `last`, it ends with the input.
pub(crate) fn cut(buffer: &[u8], last: bool, records_max: usize, dialect: &Dialect) -> Cut {
    match dialect.quote {
        Some(quote) if memchr(quote, buffer).is_some() => {
            cut_quoted(buffer, last, records_max, quote, dialect)
        }
        _ => cut_lines(buffer, last, records_max),
    }
}

fn cut_quoted(buffer: &[u8], last: bool, records_max: usize, quote: u8, dialect: &Dialect) -> Cut {
    // `start`: of the current record. `at`: from where to look on.
    let (mut start, mut at, mut records) = (0, 0, 0);
    let unfinished = |start: usize| match (last, start) {
        (true, _) => Cut::At(buffer.len()),
        (false, 0) => Cut::More,
        (false, _) => Cut::At(start),
    };
    while start < buffer.len() {
        let comment = dialect.comments && buffer[start] == b'#';
        let found = if comment {
            memchr(b'\n', &buffer[at..])
        } else {
            memchr2(quote, b'\n', &buffer[at..])
        };
        let Some(found) = found.map(|f| at + f) else { return unfinished(start) };
        if buffer[found] == b'\n' {
            (start, at, records) = (found + 1, found + 1, records + 1);
            if records >= records_max {
                return Cut::At(start);
            }
        } else if found == start || buffer[found - 1] == dialect.delimiter {
            match quoted(buffer, found, last, dialect) {
                QuoteEnd::Before(end) => at = end,
                QuoteEnd::Broken => {
                    let Some(end) = memchr(b'\n', &buffer[found..]) else {
                        return unfinished(start);
                    };
                    (start, at, records) = (found + end + 1, found + end + 1, records + 1);
                    if records >= records_max {
                        return Cut::At(start);
                    }
                }
                QuoteEnd::Open if start > 0 => return Cut::At(start),
                QuoteEnd::Open if last => return Cut::Unterminated(found),
                QuoteEnd::Open => return Cut::More,
            }
        } else {
            at = found + 1;
        }
    }
    Cut::At(start)
}

/// How a quoted field ends.
enum QuoteEnd {
    /// With the closing quote just before this offset.
    Before(usize),
    /// Broken quote: the record ends with the line.
    Broken,
    /// Not in this buffer.
    Open,
}

/// The end of the field whose quote is at `open`.
fn quoted(buffer: &[u8], open: usize, last: bool, dialect: &Dialect) -> QuoteEnd {
    let skip = dialect.skip_errors;
    match close(buffer, open, last, dialect) {
        Some(end) if skip => match buffer[end..] {
            [b'\r'] if !last => QuoteEnd::Open,
            [] | [b'\n', ..] | [b'\r'] | [b'\r', b'\n', ..] => QuoteEnd::Before(end),
            [next, ..] if next == dialect.delimiter => QuoteEnd::Before(end),
            _ if memchr(b'\n', &buffer[open..end]).is_some() => QuoteEnd::Broken,
            _ => QuoteEnd::Before(end),
        },
        Some(end) => QuoteEnd::Before(end),
        None if skip && (last || buffer.len() - open > dialect.quoted_bytes_max + 1) => {
            QuoteEnd::Broken
        }
        None => QuoteEnd::Open,
    }
}

/// Just after the closing quote for the one at `open`, if it is in this buffer and, where that
/// counts, not too far off.
fn close(buffer: &[u8], open: usize, last: bool, dialect: &Dialect) -> Option<usize> {
    let quote = dialect.quote?;
    let mut at = open + 1;
    while let Some(found) = memchr(quote, buffer.get(at..)?) {
        let found = at + found;
        if dialect.skip_errors && found - open > dialect.quoted_bytes_max {
            return None;
        }
        match buffer.get(found + 1) {
            Some(next) if *next == quote => at = found + 2,
            Some(_) => return Some(found + 1),
            // What comes next decides, and is yet to be read.
            None => return last.then_some(found + 1),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_end_with_records() {
        let dialect = Dialect { comments: true, ..Dialect::default() };
        let cut = |text: &str, last, max| super::cut(text.as_bytes(), last, max, &dialect);
        assert_eq!(cut("a\nb\nc", false, 10), Cut::At(4));
        assert_eq!(cut("a\nb\nc", true, 10), Cut::At(5));
        assert_eq!(cut("a\nb\nc", true, 2), Cut::At(4));
        assert_eq!(cut("a\nb\nc", false, 1), Cut::At(2));
        assert_eq!(cut("abc", false, 1), Cut::More);
        assert_eq!(cut("abc", true, 1), Cut::At(3));
        assert_eq!(cut("a,\"x\ny\"\nb", false, 10), Cut::At(8));
        assert_eq!(cut("a,\"x\ny\"\nb", true, 1), Cut::At(8));
        assert_eq!(cut("a\n\"x\ny", true, 10), Cut::At(2));
        assert_eq!(cut("\"x\ny", false, 10), Cut::More);
        assert_eq!(cut("a,\"x\ny", true, 10), Cut::Unterminated(2));
        // A quote at the very end may be the first half of an escaped one.
        assert_eq!(cut("\"x\"", false, 10), Cut::More);
        assert_eq!(cut("\"x\"\"\n\"", false, 10), Cut::More);
        assert_eq!(cut("\"x\"\"\n\"\n", false, 10), Cut::At(7));
        // Where malformed records are left out, one whose quote is not closed as it should be ends
        // with its line.
        let dialect = Dialect { skip_errors: true, quoted_bytes_max: 8, ..dialect.clone() };
        let skip = |text: &str, last, max| super::cut(text.as_bytes(), last, max, &dialect);
        assert_eq!(skip("a,\"x\ny", true, 1), Cut::At(5));
        assert_eq!(skip("a,\"x\ny\nz", true, 2), Cut::At(7));
        assert_eq!(skip("a,\"x\ny\n", false, 10), Cut::More);
        assert_eq!(skip("a,\"x\nb,\"y\",z\n", false, 1), Cut::At(5));
        assert_eq!(skip("a,\"x\nb,\"\r", false, 1), Cut::More);
        assert_eq!(skip("a,\"x\nb,\"\r\n", false, 1), Cut::At(10));
        assert_eq!(skip("a,\"x\" y\nb\n", false, 1), Cut::At(8));
        // The closing quote may be eight bytes from the other, not nine.
        assert_eq!(skip("\"123\n567\"\nb\n", false, 1), Cut::At(10));
        assert_eq!(skip("\"123\n5678\"\nb\n", false, 1), Cut::At(5));
        assert_eq!(skip("\"123\n567", false, 1), Cut::More);
        assert_eq!(skip("\"123\n567\"", false, 1), Cut::More);
        assert_eq!(skip("\"123\n5678x", false, 1), Cut::At(5));
        // Quotes in a comment or in the middle of an unquoted field mean nothing.
        assert_eq!(cut("# it's \"\n1,5\" pipe\n2", false, 10), Cut::At(19));
    }
}
