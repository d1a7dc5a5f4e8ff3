//! Where to end a chunk: after a record, without parsing.
//!
//! Without a quote character in sight a record ends with its line. With one, the rules of
//! [`super::index`] decide whether a line end stands inside a quoted field.

use memchr::{memchr, memchr_iter, memchr2, memrchr};

use super::dialect::Dialect;

/// Where the records at the front of a buffer end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// This many bytes are whole records.
    At(usize),
    /// Not one record is complete yet.
    More,
    /// The input ends inside the quotes opened at this offset, in the buffer's first record.
    Unterminated(usize),
}

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

fn cut_lines(buffer: &[u8], last: bool, records_max: usize) -> Cut {
    let unfinished = buffer.last() != Some(&b'\n');
    let lines = memchr_iter(b'\n', buffer).count();
    if lines + usize::from(last && unfinished) > records_max {
        let end = memchr_iter(b'\n', buffer).nth(records_max.saturating_sub(1));
        return end.map_or(Cut::More, |at| Cut::At(at + 1));
    }
    if last {
        return Cut::At(buffer.len());
    }
    memrchr(b'\n', buffer).map_or(Cut::More, |at| Cut::At(at + 1))
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
            match close(buffer, found, quote, last) {
                Close::After(end) => at = end,
                Close::Never if start > 0 => return Cut::At(start),
                Close::Never if last => return Cut::Unterminated(found),
                Close::Never => return Cut::More,
            }
        } else {
            at = found + 1;
        }
    }
    Cut::At(start)
}

enum Close {
    /// Just after the closing quote.
    After(usize),
    /// Not in this buffer.
    Never,
}

/// The closing quote for the one at `open`.
fn close(buffer: &[u8], open: usize, quote: u8, last: bool) -> Close {
    let mut at = open + 1;
    while let Some(found) = memchr(quote, &buffer[at..]) {
        let found = at + found;
        match buffer.get(found + 1) {
            Some(next) if *next == quote => at = found + 2,
            Some(_) => return Close::After(found + 1),
            // What comes next decides, and is yet to be read.
            None if last => return Close::After(found + 1),
            None => return Close::Never,
        }
    }
    Close::Never
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
        // Quotes in a comment or in the middle of an unquoted field mean nothing.
        assert_eq!(cut("# it's \"\n1,5\" pipe\n2", false, 10), Cut::At(19));
    }
}
