//! `PARSE_URL`, `URL_ENCODE`, `URL_DECODE` and `STR_TO_MAP` as Flink has them.

use std::fmt::Write;

use arrow::array::{MapArray, StringBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use regex::Regex;

use super::regexps::{Patterns, compile, parts};
use super::rows::{Arguments, TEXT, function, push};
use crate::syntax::prelude::*;
use crate::syntax::type_grammar::map_type;

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let (one, two, three): (&[DataType], &[DataType], &[DataType]) =
        (&[TEXT], &[TEXT, TEXT], &[TEXT, TEXT, TEXT]);
    vec![
        function("parse_url", &[], &[two, three], TEXT, parse_url),
        function("url_encode", &[], &[one], TEXT, url_encode),
        function("url_decode", &[], &[one], TEXT, url_decode),
        function("str_to_map", &[], &[one, two, three], map_type(TEXT, TEXT, true), str_to_map),
    ]
}

/// A part of a URL, NULL if it has none or is no URL; of the query, the value of a key.
fn parse_url(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let (url, part) = (args.text(0, row)?, args.text(1, row)?);
        let Some(url) = Url::parse(url) else { return Ok(None) };
        if part == "PROTOCOL" && args.count() == 2 {
            push(out, &url.protocol.to_ascii_lowercase());
            return Ok(Some(()));
        }
        let found = match args.count() {
            2 => url.part(part),
            _ if part != "QUERY" => None,
            _ => {
                let key = args.text(2, row)?;
                let mut pairs = url.query.unwrap_or_default().split('&');
                pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
            }
        };
        Ok(found.map(|found| push(out, found)))
    })
}

/// A text as a value in a URL (`application/x-www-form-urlencoded`).
fn url_encode(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        for byte in args.text(0, row)?.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                    push(out, char::from(byte).encode_utf8(&mut [0; 4]));
                }
                b' ' => push(out, "+"),
                // Writing to memory does not fail.
                other => _ = write!(out, "%{other:02X}"),
            }
        }
        Ok(Some(()))
    })
}

/// The text of which [`url_encode`] makes this; NULL if a percent sign is not followed by two
/// hexadecimal digits. Bytes that are no text become U+FFFD, as in Java.
fn url_decode(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let decoded = decoded(args.text(0, row)?.as_bytes());
        Ok(decoded.map(|bytes| push(out, &String::from_utf8_lossy(&bytes))))
    })
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                digit(high)? << 4 | digit(low)?
            }
            (b'%', _) => return None,
            (b'+', _) => b' ',
            (other, _) => *other,
        });
    }
    Some(bytes)
}

/// Parts of a URL, as `java.net.URL` takes it apart.
struct Url<'u> {
    protocol: &'u str,
    authority: Option<&'u str>,
    user: Option<&'u str>,
    host: &'u str,
    /// Path and query.
    file: &'u str,
    path: &'u str,
    query: Option<&'u str>,
    reference: Option<&'u str>,
}

impl<'u> Url<'u> {
    fn parse(text: &'u str) -> Option<Url<'u>> {
        let text = text.trim_matches(|c: char| c <= ' ');
        let (protocol, rest) = text.split_once(':')?;
        let mut letters = protocol.bytes();
        let is_protocol = letters.next()?.is_ascii_alphabetic()
            && letters.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        if !is_protocol {
            return None;
        }
        let (rest, reference) = match rest.split_once('#') {
            Some((rest, reference)) => (rest, Some(reference)),
            None => (rest, None),
        };
        let (authority, file) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, file) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                (Some(authority), file)
            }
            None => (None, rest),
        };
        let (path, query) = match file.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (file, None),
        };
        let (user, place) = match authority.unwrap_or_default().split_once('@') {
            Some((_, place)) if place.contains('@') => return None,
            Some((user, place)) => (Some(user), place),
            None => (None, authority.unwrap_or_default()),
        };
        let host = host(place)?;
        Some(Url { protocol, authority, user, host, file, path, query, reference })
    }

    /// All but the protocol.
    fn part(&self, name: &str) -> Option<&'u str> {
        match name {
            "AUTHORITY" => self.authority,
            "USERINFO" => self.user,
            "HOST" => Some(self.host),
            "FILE" => Some(self.file),
            "PATH" => Some(self.path),
            "QUERY" => self.query,
            "REF" => self.reference,
            _ => None,
        }
    }
}

/// The host without its port; `None` if that is no number. An IPv6 address keeps its brackets.
fn host(place: &str) -> Option<&str> {
    let end = match place.starts_with('[') {
        true => place.find(']')? + 1,
        false => place.find(':').unwrap_or(place.len()),
    };
    let (host, port) = place.split_at(end);
    match port.strip_prefix(':') {
        Some(port) => (port.is_empty() || port.parse::<u32>().is_ok()).then_some(host),
        None => port.is_empty().then_some(host),
    }
}

/// Entries of a text; both separators are regular expressions. What has no second separator is a
/// key without a value; of the same keys, the last counts.
fn str_to_map(args: &Arguments) -> DfResult<ArrayRef> {
    let mut patterns = Patterns::new(compile);
    let separator = |at: usize, row: usize| match args.count() > at {
        true => args.text(at, row),
        false => Ok([",", "="][at - 1]),
    };
    let (mut keys, mut values) = (StringBuilder::new(), StringBuilder::new());
    let (mut lengths, mut known) = (Vec::new(), Vec::new());
    let rows = args.rows(|row| {
        let text = args.text(0, row)?;
        let pairs = pairs(text, patterns.get(separator(1, row)?)?);
        let within = patterns.get(separator(2, row)?)?;
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut entries: Vec<(&str, Option<&str>)> = Vec::new();
        for pair in pairs {
            let parts = parts(within, pair, 2);
            let entry = (parts[0], parts.get(1).copied());
            match places.get(entry.0) {
                Some(at) => entries[*at] = entry,
                None => {
                    places.insert(entry.0, entries.len());
                    entries.push(entry);
                }
            }
        }
        Ok(Some(entries))
    });
    for entries in rows {
        let entries = entries?;
        known.push(entries.is_some());
        let entries = entries.unwrap_or_default();
        lengths.push(entries.len());
        for (key, value) in entries {
            keys.append_value(key);
            values.append_option(value);
        }
    }
    let DataType::Map(entry, sorted) = map_type(TEXT, TEXT, true) else {
        return internal_err!("the type of a map is none");
    };
    let DataType::Struct(fields) = entry.data_type() else {
        return internal_err!("a map without entries");
    };
    let columns: Vec<ArrayRef> = vec![Arc::new(keys.finish()), Arc::new(values.finish())];
    let entries = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let map = MapArray::try_new(entry, offsets, entries, Some(NullBuffer::from(known)), sorted);
    Ok(Arc::new(map.map_err(|e| exec_datafusion_err!("{e}"))?))
}

/// The parts between separators, without the empty ones at the end.
fn pairs<'t>(text: &'t str, separator: &Regex) -> Vec<&'t str> {
    let mut pairs: Vec<&str> = match text {
        "" => vec![],
        text => parts(separator, text, usize::MAX),
    };
    while pairs.last().is_some_and(|last| last.is_empty()) {
        pairs.pop();
    }
    pairs
}
