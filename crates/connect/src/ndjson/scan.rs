//! Reading JSON from bytes: strings, numbers, and values to be skipped.
//!
//! Positions are offsets in the block. A reading function returns the offset behind the value, or
//! `None` if there is no JSON. Eight bytes are read at a time where possible. A line end is no
//! blank here: it ends the record.

use std::borrow::Cow;

use super::members::DEPTH_MAX;

/// The byte at an offset; 0, which JSON has nowhere, at the end.
#[inline]
pub(super) fn byte(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

/// Eight bytes as a number, the first of them lowest.
#[inline]
pub(super) fn word(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Behind the blanks.
#[inline]
pub(super) fn blanks(data: &[u8], mut at: usize) -> usize {
    while matches!(byte(data, at), b' ' | b'\t' | b'\r') {
        at += 1;
    }
    at
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The first quote, backslash or control character from `at`, and what it is.
///
/// Of eight bytes, a bit of `found` tells which is one. A carry may mark a byte behind the first
/// one found, never one before it.
#[inline]
fn special(data: &[u8], mut at: usize) -> Option<(usize, u8)> {
    while let Some(word) = word(data, at) {
        let (quote, backslash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        let found = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let found = found & HIGHS;
        if found != 0 {
            let at = at + found.trailing_zeros() as usize / 8;
            return Some((at, byte(data, at)));
        }
        at += 8;
    }
    let rest = data.get(at..)?;
    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some((at + end, rest[end]))
}

/// A string's text as it stands, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quoted<'a> {
    pub(super) text: &'a [u8],
    /// Whether there are escapes in it.
    pub(super) escapes: bool,
}

impl<'a> Quoted<'a> {
    /// The text without escapes; `None` if an escape is malformed.
    pub(super) fn unescaped(&self) -> Option<Cow<'a, [u8]>> {
        if !self.escapes {
            return Some(Cow::Borrowed(self.text));
        }
        let mut text = Vec::with_capacity(self.text.len());
        unescape(self.text, &mut text)?;
        Some(Cow::Owned(text))
    }
}

/// The string whose opening quote stands before `start`. Its escapes are not looked into.
#[inline]
pub(super) fn string(data: &[u8], start: usize) -> Option<(Quoted<'_>, usize)> {
    let (at, found) = special(data, start)?;
    if found != b'"' {
        return with_escapes(data, start, at);
    }
    Some((Quoted { text: data.get(start..at)?, escapes: false }, at + 1))
}

/// As [`string`], of one with a backslash at `at`, if there is one.
fn with_escapes(data: &[u8], start: usize, mut at: usize) -> Option<(Quoted<'_>, usize)> {
    let mut found = byte(data, at);
    while found == b'\\' {
        // What is escaped is looked at later: it may be a quote.
        (at, found) = special(data, at + 2)?;
    }
    let text = data.get(start..at)?;
    (found == b'"').then_some((Quoted { text, escapes: true }, at + 1))
}

/// Appends what a string with escapes says. `None` where an escape is none, or half of a character
/// is missing.
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let escape = *rest.get(at + 1)?;
        rest = &rest[at + 2..];
        let plain = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, behind) = character(rest)?;
                rest = behind;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return None,
        };
        out.push(plain);
    }
    out.extend_from_slice(rest);
    Some(())
}

/// The character after `\u`: four hexadecimal digits, or two times four, and what comes behind it.
fn character(rest: &[u8]) -> Option<(char, &[u8])> {
    let (unit, rest) = hex4(rest)?;
    match unit {
        0xd800..0xdc00 => {
            let (low, rest) = hex4(rest.strip_prefix(b"\\u")?)?;
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            Some((char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + low)?, rest))
        }
        _ => Some((char::from_u32(unit)?, rest)),
    }
}

fn hex4(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = rest.split_at_checked(4)?;
    let digit = |value: u32, byte: &u8| Some(value << 4 | char::from(*byte).to_digit(16)?);
    Some((digits.iter().try_fold(0, digit)?, rest))
}

/// A number as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) negative: bool,
    /// All digits before the exponent as one whole number, unless there are more than 19.
    pub(super) digits: Option<u64>,
    /// How many of them stand behind the point.
    pub(super) fraction: u32,
    /// Whether it is written with a point or an exponent, and with an exponent.
    pub(super) whole: bool,
    pub(super) exponent: bool,
    /// Offset behind it.
    pub(super) end: usize,
}

/// The decimal digits from `at`: their value if there are at most 19 with those of `value`, which
/// are `count`.
#[inline(always)]
fn digits(data: &[u8], mut at: usize, value: &mut u64, count: &mut u32) -> usize {
    while let Some(word) = word(data, at) {
        // The bytes less '0': a digit has no high half, also with 6 added.
        let less = word ^ (ONES * 0x30);
        let others = (less.wrapping_add(ONES * 6) | less) & (ONES * 0xf0);
        if others != 0 {
            let found = others.trailing_zeros() / 8;
            if found > 0 {
                let eight = eight_digits(less << (64 - 8 * found));
                *value = value.wrapping_mul(POW10[found as usize]).wrapping_add(eight);
                *count += found;
            }
            return at + found as usize;
        }
        *value = value.wrapping_mul(100_000_000).wrapping_add(eight_digits(less));
        *count = count.saturating_add(8);
        at += 8;
    }
    while let digit @ 0..=9 = byte(data, at).wrapping_sub(b'0') {
        *value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        *count = count.saturating_add(1);
        at += 1;
    }
    at
}

const POW10: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The value of eight digits, the first in the lowest byte: pairs, then fours, then all.
#[inline]
fn eight_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff
}

/// The number that begins at `at`, as JSON writes it: no `+`, no leading zero, digits on both sides
/// of the point.
#[inline(always)]
pub(super) fn number(data: &[u8], at: usize) -> Option<Number> {
    let negative = byte(data, at) == b'-';
    let start = at + usize::from(negative);
    let (mut value, mut count) = (0, 0);
    let mut end = digits(data, start, &mut value, &mut count);
    if count == 0 || (count > 1 && byte(data, start) == b'0') {
        return None;
    }
    let mut number =
        Number { negative, digits: None, fraction: 0, whole: true, exponent: false, end };
    if matches!(byte(data, end), b'.' | b'e' | b'E') {
        number.whole = false;
        if byte(data, end) == b'.' {
            let before = count;
            end = digits(data, end + 1, &mut value, &mut count);
            number.fraction = count - before;
            if number.fraction == 0 {
                return None;
            }
        }
        if matches!(byte(data, end), b'e' | b'E') {
            number.exponent = true;
            end += 1 + usize::from(matches!(byte(data, end + 1), b'+' | b'-'));
            let mut count = 0;
            end = digits(data, end, &mut 0, &mut count);
            if count == 0 {
                return None;
            }
        }
        number.end = end;
    }
    number.digits = (count <= 19).then_some(value);
    Some(number)
}

/// The member's name whose opening quote may stand behind blanks at `at`, and the offset of its
/// value.
#[inline]
pub(super) fn name(data: &[u8], at: usize) -> Option<(Quoted<'_>, usize)> {
    let at = blanks(data, at);
    let start = (byte(data, at) == b'"').then_some(at + 1)?;
    let (name, at) = string(data, start)?;
    let at = blanks(data, at);
    (byte(data, at) == b':').then(|| (name, blanks(data, at + 1)))
}

/// Skips a value that begins at `at`, inside of so many objects and arrays. The stack is explicit,
/// of one bit each: whether it is an object.
pub(super) fn skip(data: &[u8], mut at: usize, depth: usize) -> Option<usize> {
    let (mut objects, mut open) = (0u128, 0usize);
    let mut opened;
    loop {
        opened = false;
        at = match byte(data, at) {
            b'"' => skip_string(data, at + 1)?,
            b'-' | b'0'..=b'9' => number(data, at)?.end,
            first @ (b'{' | b'[') => {
                if depth + open >= DEPTH_MAX {
                    return None;
                }
                objects = objects << 1 | u128::from(first == b'{');
                open += 1;
                opened = true;
                at + 1
            }
            _ => literal(data, at)?,
        };
        // Behind a value, or behind an opening bracket: up to where the next value begins.
        loop {
            if open == 0 {
                return Some(at);
            }
            at = blanks(data, at);
            let object = objects & 1 == 1;
            match (byte(data, at), object) {
                (b'}', true) | (b']', false) => {
                    (objects, open, opened) = (objects >> 1, open - 1, false);
                    at += 1;
                    continue;
                }
                (b',', _) if !opened => at += 1,
                _ if opened => {}
                _ => return None,
            }
            at = if object { skip_name(data, at)? } else { blanks(data, at) };
            break;
        }
    }
}

/// The offset of the value behind a name that nobody wants.
#[inline]
fn skip_name(data: &[u8], at: usize) -> Option<usize> {
    let (name, at) = name(data, at)?;
    (!name.escapes || escapes_are_valid(name.text)).then_some(at)
}

/// Skips a string: its escapes must be well formed, but may be half a surrogate pair.
#[inline]
fn skip_string(data: &[u8], start: usize) -> Option<usize> {
    let (quoted, end) = string(data, start)?;
    if quoted.escapes && !escapes_are_valid(quoted.text) {
        return None;
    }
    Some(end)
}

pub(super) fn escapes_are_valid(mut text: &[u8]) -> bool {
    while let Some(at) = memchr::memchr(b'\\', text) {
        let length = match text.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') if hex4(&text[at + 2..]).is_some() => 6,
            _ => return false,
        };
        text = &text[at + length..];
    }
    true
}

/// Behind `true`, `false` or `null`.
#[inline]
pub(super) fn literal(data: &[u8], at: usize) -> Option<usize> {
    let rest = data.get(at..)?;
    match rest {
        [b't', b'r', b'u', b'e', ..] | [b'n', b'u', b'l', b'l', ..] => Some(at + 4),
        [b'f', b'a', b'l', b's', b'e', ..] => Some(at + 5),
        _ => None,
    }
}
