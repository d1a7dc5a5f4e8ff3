//! String functions as Flink has them. DataFusion's follow PostgreSQL, which differs at the edges:
//! with a negative, zero or too large position or length. A position counts characters (code
//! points) from 1.

use crate::syntax::prelude::*;

use arrow::array::Int32Array;

use super::rows::{Arguments, NUMBER, TEXT, function, push};

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let (two, three) = (&[TEXT, NUMBER], &[TEXT, NUMBER, NUMBER]);
    vec![
        substr_function(),
        function("left", &[], &[two], TEXT, left),
        function("right", &[], &[two], TEXT, right),
        function("lpad", &[], &[two, &[TEXT, NUMBER, TEXT]], TEXT, |args| pad(args, true)),
        function("rpad", &[], &[two, &[TEXT, NUMBER, TEXT]], TEXT, |args| pad(args, false)),
        strpos_function(),
        instr_function(),
        overlay_function(),
        replace_function(),
        function("chr", &[], &[&[NUMBER]], TEXT, chr),
        function("split_index", &[], &[&[TEXT, TEXT, NUMBER], three], TEXT, split_index),
    ]
}

/// `SUBSTRING(text, start [, length])`.
pub(super) fn substr_function() -> ScalarUDF {
    let forms: [&[DataType]; 2] = [&[TEXT, NUMBER], &[TEXT, NUMBER, NUMBER]];
    function("substr", &["substring"], &forms, TEXT, substr)
}

/// `STRPOS(text, what [, from])`.
pub(super) fn strpos_function() -> ScalarUDF {
    let forms: [&[DataType]; 2] = [&[TEXT, TEXT], &[TEXT, TEXT, NUMBER]];
    function("strpos", &["position"], &forms, DataType::Int32, strpos)
}

/// `INSTR(text, what [, from [, nth]])`.
fn instr_function() -> ScalarUDF {
    let forms: [&[DataType]; 3] =
        [&[TEXT, TEXT], &[TEXT, TEXT, NUMBER], &[TEXT, TEXT, NUMBER, NUMBER]];
    function("instr", &[], &forms, DataType::Int32, instr)
}

/// `OVERLAY(text, by, start [, length])`.
pub(super) fn overlay_function() -> ScalarUDF {
    let forms: [&[DataType]; 2] = [&[TEXT, TEXT, NUMBER], &[TEXT, TEXT, NUMBER, NUMBER]];
    function("overlay", &[], &forms, TEXT, overlay)
}

/// `REPLACE(text, what, by)`.
pub(super) fn replace_function() -> ScalarUDF {
    function("replace", &[], &[&[TEXT, TEXT, TEXT]], TEXT, replace)
}

/// The byte at which the character after `count` others begins; the text's end if there is none.
fn offset(text: &str, count: u64) -> usize {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // No text has more characters than bytes.
    if count >= text.len() {
        return text.len();
    }
    if text.is_ascii() {
        return count;
    }
    text.char_indices().nth(count).map_or(text.len(), |(at, _)| at)
}

fn length(text: &str) -> i64 {
    let chars = if text.is_ascii() { text.len() } else { text.chars().count() };
    chars as i64
}

/// The first `count` characters; none if `count` is negative.
fn first(text: &str, count: i64) -> &str {
    &text[..offset(text, count.max(0) as u64)]
}

/// A start below zero counts from the end; a start of zero is one of 1. Nothing begins before the
/// text does, and a negative length gives NULL.
fn substr(args: &Arguments) -> DfResult<ArrayRef> {
    args.parts(|row| {
        let (text, start) = (args.text(0, row)?, args.number(1, row)?);
        let count = if args.count() == 3 { args.number(2, row)? } else { i64::MAX };
        if count < 0 {
            return Ok(None);
        }
        let skipped = match start {
            1.. => start - 1,
            0 => 0,
            _ => match length(text).checked_add(start) {
                Some(skipped @ 0..) => skipped,
                _ => return Ok(Some("")),
            },
        };
        let rest = &text[offset(text, skipped as u64)..];
        Ok(Some(first(rest, count)))
    })
}

fn left(args: &Arguments) -> DfResult<ArrayRef> {
    args.parts(|row| Ok(Some(first(args.text(0, row)?, args.number(1, row)?))))
}

fn right(args: &Arguments) -> DfResult<ArrayRef> {
    args.parts(|row| {
        let (text, count) = (args.text(0, row)?, args.number(1, row)?.max(0));
        let skipped = length(text).saturating_sub(count).max(0);
        Ok(Some(&text[offset(text, skipped as u64)..]))
    })
}

/// Fills a text up to a length, or cuts it; NULL if the length is negative or there is nothing to
/// fill with.
fn pad(args: &Arguments, before: bool) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let (text, wanted) = (args.text(0, row)?, args.number(1, row)?);
        let filling = if args.count() == 3 { args.text(2, row)? } else { " " };
        if wanted < 0 || filling.is_empty() {
            return Ok(None);
        }
        let kept = first(text, wanted);
        let missing = wanted - length(kept);
        if !before {
            push(out, kept);
        }
        // Whole fillings, then a part of one.
        let width = length(filling);
        push(out, &filling.repeat(usize::try_from(missing / width).unwrap_or(0)));
        push(out, first(filling, missing % width));
        if before {
            push(out, kept);
        }
        Ok(Some(()))
    })
}

/// Where `what` begins in a text, from a position on; 0 if it does not. An empty text begins
/// everywhere: at 1.
fn strpos(args: &Arguments) -> DfResult<ArrayRef> {
    let positions = args.rows(|row| {
        let (text, what) = (args.text(0, row)?, args.text(1, row)?);
        let from = if args.count() == 3 { args.number(2, row)? } else { 1 };
        if what.is_empty() {
            return Ok(Some(1));
        }
        let skipped = offset(text, from.saturating_sub(1).max(0) as u64);
        let found = text[skipped..].find(what);
        position(found.map_or(0, |at| length(&text[..skipped + at]) + 1))
    });
    Ok(Arc::new(positions.collect::<DfResult<Int32Array>>()?))
}

fn position(position: i64) -> DfResult<Option<i32>> {
    let too_long = |_| exec_datafusion_err!("position {position} does not fit INT");
    i32::try_from(position).map(Some).map_err(too_long)
}

/// Where `what` begins for the nth time, from a position on; 0 if it does not.
fn instr(args: &Arguments) -> DfResult<ArrayRef> {
    let positions = args.rows(|row| {
        let (text, what) = (args.text(0, row)?, args.text(1, row)?);
        let from = if args.count() > 2 { args.number(2, row)? } else { 1 };
        let nth = if args.count() > 3 { args.number(3, row)? } else { 1 };
        if nth <= 0 {
            return exec_err!("the fourth argument of INSTR counts from 1, and is {nth}");
        }
        position(nth_place(text, what, from, nth))
    });
    Ok(Arc::new(positions.collect::<DfResult<Int32Array>>()?))
}

/// As Flink's `INSTR`: from 0 nothing is found; from a negative position the search goes backwards,
/// and the position counts from the end. Two occurrences may overlap.
fn nth_place(text: &str, what: &str, from: i64, nth: i64) -> i64 {
    let skipped = from.unsigned_abs().saturating_sub(1);
    if from == 0 {
        return 0;
    }
    if what.is_empty() {
        return if from > 0 { 1 } else { length(text) + 1 };
    }
    let (mut start, mut end) = (0, text.len());
    if from > 0 {
        start = offset(text, skipped);
    } else {
        let kept = (length(text) as u64).saturating_sub(skipped);
        end = offset(text, kept);
    }
    for n in 1.. {
        let part = &text[start..end];
        let found = if from > 0 { part.find(what) } else { part.rfind(what) };
        let Some(found) = found.map(|at| start + at) else { return 0 };
        if n == nth {
            return length(&text[..found]) + 1;
        }
        if from > 0 {
            start = found + what.chars().next().map_or(1, char::len_utf8);
        } else {
            end = found + what.len() - what.chars().next_back().map_or(1, char::len_utf8);
        }
    }
    0
}

/// Puts a text in place of characters of another; a start outside the text changes nothing.
fn overlay(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let (text, by, start) = (args.text(0, row)?, args.text(1, row)?, args.number(2, row)?);
        if start < 1 || start > length(text) {
            push(out, text);
            return Ok(Some(()));
        }
        let replaced = if args.count() == 4 { args.number(3, row)?.max(0) } else { length(by) };
        let (before, rest) = text.split_at(offset(text, start as u64 - 1));
        for part in [before, by, &rest[offset(rest, replaced as u64)..]] {
            push(out, part);
        }
        Ok(Some(()))
    })
}

/// The character of a text that has just one: it is found much faster than a text.
fn only_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.as_str().is_empty())
}

/// Replaces every occurrence; an empty text occurs between all characters and at both ends.
fn replace(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let (text, what, by) = (args.text(0, row)?, args.text(1, row)?, args.text(2, row)?);
        let mut kept = 0;
        let mut put = |(at, found): (usize, &str)| {
            push(out, &text[kept..at]);
            push(out, by);
            kept = at + found.len();
        };
        match only_char(what) {
            Some(what) if what.is_ascii() => {
                let (bytes, mut from) = (text.as_bytes(), 0);
                while let Some(at) = nth_byte(&bytes[from..], what as u8, 0) {
                    put((from + at, &text[from + at..from + at + 1]));
                    from += at + 1;
                }
            }
            Some(what) => text.match_indices(what).for_each(&mut put),
            None => text.match_indices(what).for_each(&mut put),
        }
        push(out, &text[kept..]);
        Ok(Some(()))
    })
}

/// The character of a number's lowest byte; nothing of a negative number.
fn chr(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let number = args.number(0, row)?;
        if number >= 0 {
            push(out, char::from((number & 0xff) as u8).encode_utf8(&mut [0; 4]));
        }
        Ok(Some(()))
    })
}

/// The part at an index, counted from 0; NULL if there is none. An empty text has no parts. The
/// separator is a text, spaces of any kind if it is empty, or the number of a character up to 255.
fn split_index(args: &Arguments) -> DfResult<ArrayRef> {
    let by_number = args.is_number(1);
    args.parts(|row| {
        let text = args.text(0, row)?;
        let Ok(index) = usize::try_from(args.number(2, row)?) else { return Ok(None) };
        if text.is_empty() {
            return Ok(None);
        }
        if by_number {
            let separator = u8::try_from(args.number(1, row)?).ok().filter(|n| *n > 0);
            return Ok(separator.and_then(|byte| nth_part(text, char::from(byte), index)));
        }
        Ok(match args.text(1, row)? {
            "" => text.split(char::is_whitespace).nth(index),
            separator => match only_char(separator) {
                Some(separator) => nth_part(text, separator, index),
                None => text.split(separator).nth(index),
            },
        })
    })
}

/// The part at an index, counted from 0, between separators.
fn nth_part(text: &str, separator: char, index: usize) -> Option<&str> {
    if !separator.is_ascii() {
        return text.split(separator).nth(index);
    }
    let separator = separator as u8;
    let start = match index.checked_sub(1) {
        Some(before) => nth_byte(text.as_bytes(), separator, before)? + 1,
        None => 0,
    };
    let rest = &text[start..];
    Some(&rest[..nth_byte(rest.as_bytes(), separator, 0).unwrap_or(rest.len())])
}

/// The place of the byte `wanted` that has `before` bytes like it before it. Eight bytes are
/// compared at a time, which texts of a few dozen bytes pay back and a call of `memchr` for each
/// separator does not.
fn nth_byte(bytes: &[u8], wanted: u8, mut before: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW_BITS: u64 = 0x7f * ONES;
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let differing = u64::from_le_bytes(*word) ^ (u64::from(wanted) * ONES);
        // The highest bit of each byte that is the wanted one.
        let mut places = !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS);
        let count = ((places >> 7).wrapping_mul(ONES) >> 56) as usize;
        if before < count {
            for _ in 0..before {
                places &= places - 1;
            }
            return Some(8 * number + places.trailing_zeros() as usize / 8);
        }
        before -= count;
    }
    let mut places = rest.iter().enumerate().filter(|(_, byte)| **byte == wanted);
    places.nth(before).map(|(at, _)| bytes.len() - rest.len() + at)
}

#[cfg(test)]
mod tests {
    use super::{nth_part, nth_place};

    /// As the standard library splits.
    #[test]
    fn parts_are_counted_from_0() {
        let texts = ["", "/", "a", "//a//", "https://www.nexmark.com/item.htm?query=1/", "é/ä/0.ö"];
        let long = ["0123456/89abcdef/", "\u{1}/\u{80}//////////////x"];
        for text in
            texts.iter().chain(&long).flat_map(|text| (0..=text.len()).map(move |n| (text, n)))
        {
            let (text, end) = text;
            let Some(text) = text.get(..end) else { continue };
            for separator in ['/', '.', '0', '\u{1}', '\u{80}', 'é'] {
                for index in 0..20 {
                    let expected = text.split(separator).nth(index);
                    assert_eq!(nth_part(text, separator, index), expected, "{text} {separator}");
                }
            }
        }
    }

    /// By the rule of Flink's `SqlFunctionUtils.instr`, worked out by hand.
    #[test]
    fn instr_counts_from_both_ends() {
        for (text, what, from, nth, place) in [
            ("abcabc", "c", 1, 1, 3),
            ("abcabc", "c", 4, 1, 6),
            ("abcabc", "c", 1, 2, 6),
            ("abcabc", "c", 1, 3, 0),
            ("abcabc", "c", 0, 1, 0),
            ("abcabc", "c", -1, 1, 6),
            ("abcabc", "c", -2, 1, 3),
            ("abcabc", "c", -1, 2, 3),
            ("abcabc", "c", -1, 3, 0),
            ("abcabc", "bc", -1, 1, 5),
            ("abcabc", "bc", -2, 1, 2),
            ("abcabc", "c", 7, 1, 0),
            ("abcabc", "c", -7, 1, 0),
            ("aaaa", "aa", 1, 2, 2),
            ("aaaa", "aa", -1, 2, 2),
            ("aaaa", "aa", -1, 3, 1),
            ("éaéa", "é", 2, 1, 3),
            ("éaéa", "é", -1, 2, 1),
            ("éaéa", "éa", 1, 2, 3),
            ("abc", "", 1, 1, 1),
            ("abc", "", -1, 2, 4),
            ("", "a", 1, 1, 0),
            ("abc", "c", i64::MAX, 1, 0),
            ("abc", "c", i64::MIN, i64::MAX, 0),
        ] {
            assert_eq!(nth_place(text, what, from, nth), place, "{text} {what} {from} {nth}");
        }
    }
}
