//! The first pass over a chunk: it finds the records and the fields.
//!
//! For 64 bytes at a time, it computes a bit mask of the delimiters, quotes and line ends among
//! them (eight bytes at a time in a register, without processor-specific code). The set bits drive
//! a small state machine. The second pass then goes over the chunk column by column.
//!
//! A field is quoted if its first character is the quote character. A quote elsewhere in an
//! unquoted field is an ordinary character. [`super::cut`] cuts chunks by the same rules, and
//! decides which quoted fields are broken; after a broken field the scan goes back to the line
//! after the one in which the field begins.
//!
//! A blank line is skipped, unless records are known to have a single field; then the blank line is
//! a record with NULL in it.

use memchr::{memchr, memchr_iter};

use super::dialect::Dialect;

/// Field boundaries of the well-formed records of a chunk; each has the same number of fields.
#[derive(Debug, Default)]
pub(crate) struct Index {
    fields: usize,
    /// Per record, the offset of its first field.
    starts: Vec<u32>,
    /// Per record and field, the offset just after it: that of the delimiter or line end.
    ends: Vec<u32>,
    /// Misshapen records that were left out.
    misshapen: usize,
}

/// A record that does not have the shape it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misshapen {
    /// Offset of what is wrong.
    pub(crate) at: usize,
    pub(crate) what: ShapeFault,
}

/// Fault in a record's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShapeFault {
    /// A record of `found` fields over `lines` lines.
    Fields { found: usize, lines: usize },
    /// After a closing quote comes something other than a delimiter or a line end.
    TextAfterQuote,
    /// So does after a quote so many lines further on, which may be another field's.
    TextAfterLines(usize),
    /// Never closed: the input ends inside quotes, or the field is broken.
    Unterminated,
    /// A quoted field is longer than it may be, in its first line alone.
    TooLong,
}

impl Index {
    pub(crate) fn rows(&self) -> usize {
        self.starts.len()
    }

    /// The range of a field, quotes included.
    #[inline]
    pub(crate) fn field(&self, row: usize, field: usize) -> (usize, usize) {
        let at = row * self.fields + field;
        let start = if field == 0 { self.starts[row] } else { self.ends[at - 1] + 1 };
        (start as usize, self.ends[at] as usize)
    }

    pub(crate) fn fields(&self) -> usize {
        self.fields
    }

    /// Per record, the offset of its first field.
    pub(crate) fn into_starts(self) -> Vec<u32> {
        self.starts
    }

    /// How many misshapen records were left out.
    pub(crate) fn misshapen(&self) -> usize {
        self.misshapen
    }
}

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// `byte` in each of eight bytes.
const fn repeat(byte: u8) -> u64 {
    0x0101_0101_0101_0101 * byte as u64
}

/// The top bit of each byte of `word` that equals the byte repeated in `pattern`; exact.
#[inline]
fn equal(word: u64, pattern: u64) -> u64 {
    let x = word ^ pattern;
    !(((x & LOW) + LOW) | x | LOW)
}

/// The top bits of the eight bytes, gathered into the low eight bits.
#[inline]
fn gather(tops: u64) -> u64 {
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// A bit for each of 64 bytes that is one of three.
#[inline]
fn mask(block: &[u8; 64], patterns: [u64; 3]) -> u64 {
    let mut bits = 0;
    for (at, bytes) in block.chunks_exact(8).enumerate() {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        let hits = equal(word, patterns[0]) | equal(word, patterns[1]) | equal(word, patterns[2]);
        bits |= gather(hits) << (at * 8);
    }
    bits
}

/// Indexes a chunk that starts and ends with a record (the last line end may be missing), at most 4
/// GiB. `fields` is the number of fields that each record must have; `None`: as many as the first
/// record has. Stops at the first misshapen record, or leaves such records out if `skip`.
pub(crate) fn index(
    data: &[u8],
    dialect: &Dialect,
    fields: Option<usize>,
    skip: bool,
) -> (Index, Option<Misshapen>) {
    let mut scan = Scan {
        data,
        delimiter: dialect.delimiter,
        quote: dialect.quote,
        comments: dialect.comments,
        skip,
        quoted_bytes_max: if skip { dialect.quoted_bytes_max } else { NEVER },
        blank_is_record: fields == Some(1),
        expected: fields,
        index: Index::default(),
        row_start: 0,
        field_start: 0,
        state: ScanState::Plain,
        closed_at: NEVER,
        ignore: NEVER,
        restart: None,
        wrong: None,
        first_wrong: None,
    };
    scan.index.starts.reserve(data.len() / 64 + 1);
    scan.index.ends.reserve(data.len() / 8 + 1);
    scan.run();
    scan.index.fields = scan.expected.unwrap_or(0);
    (scan.index, scan.first_wrong)
}

const NEVER: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Plain,
    Quoted,
    Comment,
}

struct Scan<'a> {
    data: &'a [u8],
    delimiter: u8,
    quote: Option<u8>,
    comments: bool,
    skip: bool,
    quoted_bytes_max: usize,
    blank_is_record: bool,
    expected: Option<usize>,
    index: Index,
    row_start: usize,
    field_start: usize,
    state: ScanState,
    /// Just after the closing quote of the current field.
    closed_at: usize,
    /// The second of two quotes that stand for one.
    ignore: usize,
    /// Where to go on after a broken field.
    restart: Option<usize>,
    /// First fault of the current record.
    wrong: Option<Misshapen>,
    first_wrong: Option<Misshapen>,
}

impl Scan<'_> {
    fn run(&mut self) {
        let mut from = 0;
        loop {
            self.start_row(from);
            self.pass(from);
            match self.restart.take() {
                Some(next) => from = next,
                None => return,
            }
        }
    }

    /// Scans from the start of a record to the end, to where it stops, or has to start again.
    fn pass(&mut self, from: usize) {
        let quote = self.quote.unwrap_or(b'\n');
        let patterns = [repeat(self.delimiter), repeat(b'\n'), repeat(quote)];
        let (blocks, rest) = self.data[from..].as_chunks::<64>();
        for (number, block) in blocks.iter().enumerate() {
            self.hits(from + number * 64, mask(block, patterns));
            if self.stopped() {
                return;
            }
        }
        if !rest.is_empty() {
            let mut last = [0; 64];
            last[..rest.len()].copy_from_slice(rest);
            let valid = (1u64 << rest.len()) - 1;
            self.hits(from + blocks.len() * 64, mask(&last, patterns) & valid);
        }
        let pending = self.row_start < self.data.len() && self.state != ScanState::Comment;
        if pending && !self.stopped() {
            if self.state == ScanState::Quoted {
                if self.skip {
                    return self.leave_broken();
                }
                let at = self.field_start;
                self.wrong.get_or_insert(Misshapen { at, what: ShapeFault::Unterminated });
            }
            self.end_row(self.data.len());
        }
    }

    #[inline]
    fn stopped(&self) -> bool {
        self.restart.is_some() || !self.skip && self.first_wrong.is_some()
    }

    #[inline]
    fn hits(&mut self, base: usize, mut bits: u64) {
        while bits != 0 {
            let at = base + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let byte = self.data[at];
            if self.state == ScanState::Plain {
                if byte == self.delimiter {
                    if self.closed_at != NEVER && !self.closed_well(at) {
                        return;
                    }
                    self.index.ends.push(at as u32);
                    self.field_start = at + 1;
                } else if byte == b'\n' {
                    self.end_row(at);
                    if self.stopped() {
                        return;
                    }
                } else if at == self.field_start {
                    self.state = ScanState::Quoted;
                }
            } else {
                self.in_quotes_or_comment(at, byte);
                if self.restart.is_some() {
                    return;
                }
            }
        }
    }

    #[inline]
    fn in_quotes_or_comment(&mut self, at: usize, byte: u8) {
        if self.state == ScanState::Comment {
            if byte == b'\n' {
                self.start_row(at + 1);
            }
        } else if Some(byte) == self.quote && at != self.ignore {
            if self.data.get(at + 1) == Some(&byte) {
                self.ignore = at + 1;
            } else if at - self.field_start > self.quoted_bytes_max {
                self.leave_broken();
            } else {
                self.state = ScanState::Plain;
                self.closed_at = at + 1;
            }
        }
    }

    /// After a closing quote the field must end, or its record is wrong; `false` if it is broken
    /// and the scan has to start again.
    fn closed_well(&mut self, end: usize) -> bool {
        let (open, closed) = (self.field_start, std::mem::replace(&mut self.closed_at, NEVER));
        if closed == end {
            return true;
        }
        let lines = memchr_iter(b'\n', &self.data[open..closed]).count();
        if lines > 0 && self.skip {
            self.leave_broken();
            return false;
        }
        self.wrong.get_or_insert(match lines {
            0 => Misshapen { at: closed, what: ShapeFault::TextAfterQuote },
            _ => Misshapen { at: open, what: ShapeFault::TextAfterLines(lines) },
        });
        true
    }

    /// Leaves a record out whose field is broken. The next one is on the next line.
    #[cold]
    fn leave_broken(&mut self) {
        let open = self.field_start;
        let before = self.index.starts.len() * self.expected.unwrap_or(0);
        let line = memchr(b'\n', &self.data[open..]).map(|end| open + end);
        let what = match line.unwrap_or(self.data.len()) - open > self.quoted_bytes_max {
            true => ShapeFault::TooLong,
            false => ShapeFault::Unterminated,
        };
        self.leave_out(before, Misshapen { at: open, what });
        (self.closed_at, self.ignore) = (NEVER, NEVER);
        self.restart = Some(line.map_or(self.data.len(), |end| end + 1));
    }

    /// Leaves the current record out, of which this is wrong if nothing else is.
    fn leave_out(&mut self, before: usize, wrong: Misshapen) {
        self.index.ends.truncate(before);
        self.index.misshapen += 1;
        let wrong = self.wrong.take().unwrap_or(wrong);
        self.first_wrong.get_or_insert(wrong);
    }

    #[inline]
    fn end_row(&mut self, at: usize) {
        let carriage = at > self.field_start && self.data[at - 1] == b'\r';
        let end = if carriage { at - 1 } else { at };
        let blank = self.row_start == end && self.closed_at == NEVER;
        if blank && !self.blank_is_record {
            return self.start_row(at + 1);
        }
        if self.closed_at != NEVER && !self.closed_well(end) {
            return;
        }
        self.index.ends.push(end as u32);
        let before = self.index.starts.len() * self.expected.unwrap_or(0);
        let found = self.index.ends.len() - before;
        let expected = *self.expected.get_or_insert(found);
        if found == expected && self.wrong.is_none() {
            self.index.starts.push(self.row_start as u32);
        } else {
            let start = self.row_start;
            let lines = 1 + memchr_iter(b'\n', &self.data[start..at]).count();
            let what = ShapeFault::Fields { found, lines };
            self.leave_out(before, Misshapen { at: start, what });
        }
        self.start_row(at + 1);
    }

    #[inline]
    fn start_row(&mut self, at: usize) {
        self.row_start = at;
        self.field_start = at;
        let comment = self.comments && self.data.get(at) == Some(&b'#');
        self.state = if comment { ScanState::Comment } else { ScanState::Plain };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(data: &str, dialect: &Dialect) -> (Vec<Vec<String>>, Option<Misshapen>) {
        let (index, wrong) = index(data.as_bytes(), dialect, None, dialect.skip_errors);
        let row = |r| {
            let text = |f| {
                let (start, end) = index.field(r, f);
                data[start..end].to_string()
            };
            (0..index.fields()).map(text).collect()
        };
        ((0..index.rows()).map(row).collect(), wrong)
    }

    #[test]
    fn the_mask_is_exact_for_every_byte() {
        for byte in 0..=255u8 {
            let mut block = [byte; 64];
            block[63] = b',';
            let expected = if byte == b',' { u64::MAX } else { 1 << 63 };
            assert_eq!(mask(&block, [repeat(b','); 3]), expected, "{byte}");
        }
        let mut block = [0; 64];
        for at in [0, 7, 8, 31, 63] {
            block[at] = b'\n';
        }
        let expected = 1 | 1 << 7 | 1 << 8 | 1 << 31 | 1 << 63;
        assert_eq!(mask(&block, [repeat(b'\n'), repeat(b','), repeat(b'"')]), expected);
    }

    #[test]
    fn records_of_every_shape() {
        let plain = Dialect::default();
        let (found, wrong) = rows("a,b\r\n\n\r\n1,\"x\ny\"\n\"\"\"\",5\" pipe\n,", &plain);
        assert_eq!(found, [["a", "b"], ["1", "\"x\ny\""], ["\"\"\"\"", "5\" pipe"], ["", ""]]);
        assert_eq!(wrong, None);

        let comments = Dialect { comments: true, ..Dialect::default() };
        assert_eq!(rows("#a,\"b\n1,2\n#\n", &comments).0, [["1", "2"]]);
        assert_eq!(rows("1,2\n# \",", &comments), (vec![vec!["1".into(), "2".into()]], None));
        let unquoted = Dialect { quote: None, ..Dialect::default() };
        assert_eq!(rows("\"a,b\"\n", &unquoted).0, [["\"a", "b\""]]);
        assert_eq!(rows("", &plain), (vec![], None));
        // One empty quoted field is a record, an empty line is none.
        assert_eq!(rows("\"\"\n\n", &plain).0, [["\"\""]]);
    }

    fn row(a: &str, b: &str) -> Vec<String> {
        vec![a.to_string(), b.to_string()]
    }

    #[test]
    fn a_blank_line_is_a_record_where_records_have_one_field() {
        let found = |fields| index(b"\n\"\"\n\r\nx\n\n", &Dialect::default(), fields, false).0;
        assert_eq!((found(Some(1)).rows(), found(None).rows()), (5, 2));
    }

    #[test]
    fn misshapen_records_stop_or_are_left_out() {
        let stop = Dialect::default();
        let skip = Dialect { skip_errors: true, ..Dialect::default() };
        for (data, at, what, kept) in [
            ("1,2\n3\n4,5\n", 4, ShapeFault::Fields { found: 1, lines: 1 }, 2),
            ("1,2\n3,4,\"\n\"\n4,5\n", 4, ShapeFault::Fields { found: 3, lines: 2 }, 2),
            ("1,2\n\"3\"x,4\n4,5\n", 7, ShapeFault::TextAfterQuote, 2),
            ("1,2\n3,\"4\" \r\n4,5\n", 9, ShapeFault::TextAfterQuote, 2),
            ("1,2\n3,\"4\n", 6, ShapeFault::Unterminated, 1),
            ("1,2\n3,\"4", 6, ShapeFault::Unterminated, 1),
            // What stands behind a quote that is never closed is kept.
            ("1,2\n3,\"4\n5,6\n7,8\n", 6, ShapeFault::Unterminated, 3),
        ] {
            let (found, wrong) = rows(data, &stop);
            assert_eq!((found.len(), wrong), (1, Some(Misshapen { at, what })), "{data}");
            let (found, wrong) = rows(data, &skip);
            assert_eq!((found.len(), wrong), (kept, Some(Misshapen { at, what })), "{data}");
        }
        // Closed by the next field's opening quote, behind which text follows.
        let data = format!("1,2\n3,\"4\n{}7,\"8\"\n\"9\n\",0\n", "5,6\n".repeat(40));
        let (found, wrong) = rows(&data, &stop);
        let lines = Misshapen { at: 6, what: ShapeFault::TextAfterLines(41) };
        assert_eq!((found.len(), wrong), (1, Some(lines)));
        let (found, wrong) = rows(&data, &skip);
        assert_eq!(wrong, Some(Misshapen { at: 6, what: ShapeFault::Unterminated }));
        assert_eq!(
            (found.len(), &found[41], &found[42]),
            (43, &row("7", "\"8\""), &row("\"9\n\"", "0"))
        );
        // Closed too late.
        let skip = Dialect { quoted_bytes_max: 4, ..skip };
        let (found, wrong) = rows("1,\"2\n3\"\n1,\"2\n34\"\n5,6\n", &skip);
        assert_eq!(wrong, Some(Misshapen { at: 10, what: ShapeFault::Unterminated }));
        assert_eq!(found, [row("1", "\"2\n3\""), row("5", "6")]);
    }
}
