//! A record before its columns are known: numbers keep their text, objects the order of their
//! members.
//!
//! Reading is the same as in decoding: a line that is no record is refused in the same words.

use std::borrow::Cow;

use arrow::datatypes::Fields;
use millstream_contract::Error;

use super::fault::{SKIP_HELP, Wrong};
use super::members::{DEPTH_MAX, find};
use super::names::Names;
use super::scan::{self, blanks, byte, escapes_are_valid, literal};
use crate::records::{Unit, place};

const OBJECT_HELP: &str = "each line must be a JSON object";

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Boolean,
    Number(&'a [u8]),
    Text(Cow<'a, [u8]>),
    Array(Vec<Json<'a>>),
    Object(Members<'a>),
}

/// The members of an object.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

/// The members of the object in a line of `data`, at `start..end`. `path` names the file that
/// begins with `data`.
///
/// # Errors
///
/// The line's fault.
pub(crate) fn record<'a>(
    path: &str,
    data: &'a [u8],
    start: usize,
    end: usize,
) -> Result<Members<'a>, Error> {
    let line = &data[start..end];
    let parsed = std::str::from_utf8(line).ok().and_then(|_| whole_object(line));
    parsed.ok_or_else(|| {
        let Wrong { at, message, help } = why_not(line, start);
        // There is no table yet that could have an option.
        let help = if help == SKIP_HELP { OBJECT_HELP.to_string() } else { help };
        Error::Data { place: place(path, data, 1, at), message, help }
    })
}

/// The object that is all of a line.
fn whole_object(line: &[u8]) -> Option<Members<'_>> {
    let at = blanks(line, 0);
    match value(line, at, 0)? {
        (Json::Object(members), end) if blanks(line, end) == line.len() => Some(members),
        _ => None,
    }
}

/// Fault of a line that is no record.
#[cold]
fn why_not(line: &[u8], start: usize) -> Wrong {
    let names = Names::new(&Fields::empty(), &[]);
    // Half a character is the name of nothing, in whatever column it stands.
    let otherwise = || Wrong::new(start, "a name in it is not valid Unicode", SKIP_HELP);
    find(&names, line, start, Unit::Line, &mut []).err().unwrap_or_else(otherwise)
}

/// The value that begins at `at`, inside of so many objects and arrays, and the offset behind it.
fn value(data: &[u8], at: usize, depth: usize) -> Option<(Json<'_>, usize)> {
    match byte(data, at) {
        b'"' => text(data, at),
        b'{' | b'[' if depth >= DEPTH_MAX => None,
        b'{' => members(data, at, depth),
        b'[' => elements(data, at, depth),
        b'-' | b'0'..=b'9' => {
            let end = scan::number(data, at)?.end;
            Some((Json::Number(&data[at..end]), end))
        }
        b'n' => Some((Json::Null, literal(data, at)?)),
        _ => Some((Json::Boolean, literal(data, at)?)),
    }
}

/// A string. Half a surrogate pair is no fault here: only a column with this value refuses it.
fn text(data: &[u8], at: usize) -> Option<(Json<'_>, usize)> {
    let (quoted, end) = scan::string(data, at + 1)?;
    if quoted.escapes && !escapes_are_valid(quoted.text) {
        return None;
    }
    Some((Json::Text(quoted.unescaped().unwrap_or(Cow::Borrowed(quoted.text))), end))
}

fn members(data: &[u8], at: usize, depth: usize) -> Option<(Json<'_>, usize)> {
    let (mut members, mut at) = (Vec::new(), blanks(data, at + 1));
    if byte(data, at) == b'}' {
        return Some((Json::Object(members), at + 1));
    }
    loop {
        let (name, start) = scan::name(data, at)?;
        let name = match name.unescaped()? {
            Cow::Borrowed(name) => std::str::from_utf8(name).ok()?.into(),
            Cow::Owned(name) => String::from_utf8(name).ok()?.into(),
        };
        let (member, end) = value(data, start, depth + 1)?;
        members.push((name, member));
        at = blanks(data, end);
        match byte(data, at) {
            b',' => at += 1,
            b'}' => return Some((Json::Object(members), at + 1)),
            _ => return None,
        }
    }
}

fn elements(data: &[u8], at: usize, depth: usize) -> Option<(Json<'_>, usize)> {
    let (mut elements, mut at) = (Vec::new(), blanks(data, at + 1));
    if byte(data, at) == b']' {
        return Some((Json::Array(elements), at + 1));
    }
    loop {
        let (element, end) = value(data, at, depth + 1)?;
        elements.push(element);
        at = blanks(data, end);
        match byte(data, at) {
            b',' => at = blanks(data, at + 1),
            b']' => return Some((Json::Array(elements), at + 1)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use proptest::prelude::*;

    use super::*;
    use crate::ndjson::NdjsonFormat;
    use crate::records::read_whole;

    fn parsed(line: &str) -> Result<Members<'_>, String> {
        record("x", line.as_bytes(), 0, line.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read_as_they_stand() {
        let line =
            r#" {"a": [1, -2.50e3 ], "b\u00e9": {"c":null,"d":true}, "e": "x\n\ud83d\ude00"} "#;
        let expected = vec![
            ("a".into(), Json::Array(vec![Json::Number(b"1"), Json::Number(b"-2.50e3")])),
            (
                "b\u{e9}".into(),
                Json::Object(vec![("c".into(), Json::Null), ("d".into(), Json::Boolean)]),
            ),
            ("e".into(), Json::Text("x\n\u{1f600}".as_bytes().into())),
        ];
        assert_eq!(parsed(line), Ok(expected));
        assert_eq!(parsed("{}"), Ok(vec![]));
        assert_eq!(parsed(r#"{"a":[]}"#), Ok(vec![("a".into(), Json::Array(vec![]))]));
    }

    /// Where it is refused and why, without what to do.
    fn message<T>(result: &Result<T, String>) -> Option<&str> {
        result.as_ref().err().and_then(|error| error.split('\n').next())
    }

    /// Result of reading a line without any column.
    fn read(line: &str) -> Result<usize, String> {
        let (format, schema) = (Arc::new(NdjsonFormat::default()), Arc::new(Schema::empty()));
        let outcome = read_whole(format, "x", line.as_bytes(), &schema, &[], usize::MAX);
        outcome.map(|outcome| outcome.rows.num_rows()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_refused_as_when_it_is_read() {
        for line in [
            "{",
            r#"{"a":1"#,
            r#"{"a":1} x"#,
            r#"{"a" 1}"#,
            r#"{"a":[1 2]}"#,
            r#"{"a":"\"}"#,
            r#"{"a":nul}"#,
            "{'a':1}",
            "1",
            "\"x\"",
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":1,}"#,
            "{\"a\":\"\t\"}",
            r#"{"a":"\x"}"#,
        ] {
            assert_eq!(message(&parsed(line)), message(&read(line)), "{line}");
        }
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(127), "]".repeat(127));
        assert!(parsed(&deep).is_ok() && read(&deep).is_ok());
        let deeper = format!(r#"{{"a":{}1{}}}"#, "[".repeat(128), "]".repeat(128));
        assert_eq!(message(&parsed(&deeper)), message(&read(&deeper)));
        let latin = record("x", b"{\"a\":\"\xe9\"}", 0, 9).unwrap_err().to_string();
        assert!(latin.starts_with("x:1:7: the line is not valid UTF-8"), "{latin}");
    }

    proptest! {
        #[test]
        fn what_is_a_record_here_is_one_when_it_is_read(
            parts in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", " ", "\"a\"", "\"b\\n\"", "\"", "\\", "\\u00e9", "1",
                "-", "0", ".5", "e3", "null", "true", "{\"a\":", "{\"a\":1,", "\"c\":[]",
            ]), 0..12),
        ) {
            let line = parts.concat();
            match (parsed(&line), read(&line)) {
                (Ok(_), Ok(rows)) => prop_assert_eq!(rows, 1),
                (Err(_), Ok(rows)) => prop_assert_eq!(rows, 0),
                (Err(here), Err(there)) if !line.trim_start().starts_with("[{") => {
                    prop_assert_eq!(here.split('\n').next(), there.split('\n').next());
                }
                (here, there) => prop_assert!(here.is_err() && there.is_err()),
            }
        }
    }
}
