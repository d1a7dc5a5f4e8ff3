//! Paths into JSON texts, and what they lead to: `$.a.b[0]`, `$['a b']`, with `lax` or `strict`
//! before it, as in the SQL standard (ISO/IEC TR 19075-6). A path leads to one value: wildcards and
//! filters are not part of it.
//!
//! A text is looked through without recursion, so it may be nested as deeply as it is long.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::syntax::prelude::*;

/// Steps that a path may have.
const STEPS_MAX: usize = 100;

/// A path from a JSON text to a value in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonPath {
    /// Whether what is not there is an error.
    pub(crate) strict: bool,
    steps: Vec<PathStep>,
}

#[derive(Debug, PartialEq, Eq)]
enum PathStep {
    Member(String),
    /// Counted from 0.
    Element(usize),
}

impl JsonPath {
    /// Reads a path; without a mode it is strict, as in Flink. The error says what is wrong.
    pub(crate) fn parse(path: &str) -> Result<JsonPath, String> {
        let text = path.trim();
        let mode = |word: &str| {
            let (first, rest) = text.split_at_checked(word.len())?;
            let is_it = first.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace);
            is_it.then(|| rest.trim_start())
        };
        let (strict, text) = match (mode("lax"), mode("strict")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => (true, text),
        };
        let Some(mut rest) = text.strip_prefix('$') else {
            return Err("a path begins with $, the whole value".into());
        };
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            steps.push(step);
            rest = after;
            if steps.len() > STEPS_MAX {
                return Err(format!("a path has {STEPS_MAX} steps at most"));
            }
        }
        Ok(JsonPath { strict, steps })
    }

    /// The JSON text of the value that the path leads to in `json`; `None` if there is none. Of
    /// several members with the same name, the last counts. The error is of a text that is no JSON.
    pub(crate) fn find<'j>(&self, json: &'j str) -> Result<Option<&'j str>, serde_json::Error> {
        let mut value: &'j str = whole(json)?;
        for step in &self.steps {
            let mut within = serde_json::Deserializer::from_str(value);
            let found = match step {
                PathStep::Member(name) if value.starts_with('{') => {
                    within.deserialize_map(MemberOf(name))?
                }
                PathStep::Element(at) if value.starts_with('[') => {
                    within.deserialize_seq(ElementAt(*at))?
                }
                _ => None,
            };
            let Some(found) = found else { return Ok(None) };
            value = found.get();
        }
        Ok(Some(value))
    }
}

pub(super) fn path(path: &str) -> DfResult<JsonPath> {
    JsonPath::parse(path).or_else(|wrong| exec_err!("{path} is no path: {wrong}"))
}

pub(super) fn no_json<T>(error: &serde_json::Error) -> DfResult<T> {
    exec_err!("the text is not JSON: {error}")
}

/// A JSON text without the blanks around it; the error is of a text that is none.
pub(crate) fn whole(json: &str) -> Result<&str, serde_json::Error> {
    Ok(serde_json::from_str::<&RawValue>(json)?.get())
}

/// The first step, and the rest of the path.
fn step(path: &str) -> Result<(PathStep, &str), String> {
    let dotted = path.strip_prefix('.');
    if let Some(bracket) = dotted.unwrap_or(path).strip_prefix('[') {
        return in_brackets(bracket.trim_start());
    }
    let Some(rest) = dotted else {
        let found: String = path.chars().take(1).collect();
        return Err(format!("'{found}' stands where .name or [number] belongs"));
    };
    if let Some(text) = rest.strip_prefix('"') {
        let (name, rest) = quoted(text, '"')?;
        return Ok((PathStep::Member(name), rest));
    }
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let name = name.trim_end();
    match name {
        "" => Err("a name is missing after a dot".into()),
        "*" => Err("a * leads to several values, and a path leads to one".into()),
        name if name.contains([' ', '\t', '\n', '"', '\'', '(', ')', ']', '?', '@', '*', ',']) => {
            Err(format!("the name {name} must stand in brackets and quotes"))
        }
        name => Ok((PathStep::Member(name.to_string()), rest)),
    }
}

/// A step after its bracket.
fn in_brackets(text: &str) -> Result<(PathStep, &str), String> {
    let (step, rest) = match text.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (name, rest) = quoted(&text[1..], quote)?;
            (PathStep::Member(name), rest)
        }
        Some('*') => return Err("[*] leads to several values, and a path leads to one".into()),
        _ => {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let number = text[..end].parse();
            let number =
                number.map_err(|_| "in brackets stands a number from 0 or a name in quotes")?;
            (PathStep::Element(number), &text[end..])
        }
    };
    match rest.trim_start().strip_prefix(']') {
        Some(rest) => Ok((step, rest)),
        None => Err("a ] is missing".into()),
    }
}

/// A name up to its quote, and what follows; a backslash takes the meaning of what it precedes.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut name = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => name.extend(chars.next()),
            c if c == quote => return Ok((name, chars.as_str())),
            c => name.push(c),
        }
    }
    Err(format!("a {quote} is missing"))
}

/// The last member with a name.
struct MemberOf<'p>(&'p str);

impl<'de> Visitor<'de> for MemberOf<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = members.next_key_seed(IsName(self.0))? {
            match is_it {
                true => found = Some(members.next_value()?),
                false => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// Whether a member has a name.
struct IsName<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// The element at a place, counted from 0.
struct ElementAt(usize);

impl<'de> Visitor<'de> for ElementAt {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        for _ in 0..self.0 {
            if elements.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = elements.next_element()?;
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, json: &str) -> Option<String> {
        JsonPath::parse(path).unwrap().find(json).unwrap().map(str::to_string)
    }

    #[test]
    fn paths_lead_to_values() {
        let json =
            r#" {"a": {"b": [10, {"c d": "x"}]}, "a.b": [1.50], "e": 1, "e": 2, "\u0066": 3} "#;
        for (path, value) in [
            ("$.a.b[0]", Some("10")),
            ("lax $.a.b[1]['c d']", Some("\"x\"")),
            ("strict $.a.b[ 1 ].\"c d\"", Some("\"x\"")),
            ("$.[\"a.b\"][0]", Some("1.50")),
            ("$.e", Some("2")),
            ("$.f", Some("3")),
            ("$.a.b", Some(r#"[10, {"c d": "x"}]"#)),
            ("$.a.b[2]", None),
            ("$.a[0]", None),
            ("$.a.b.c", None),
            ("$.e.x", None),
        ] {
            assert_eq!(found(path, json).as_deref(), value, "{path}");
        }
        assert_eq!(found("$", " 7 ").as_deref(), Some("7"));
        assert_eq!(
            found("$['it''s']".replace("''", "\\'").as_str(), r#"{"it's": 1}"#).as_deref(),
            Some("1")
        );
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [
            "",
            "a",
            "$a",
            "$.",
            "$..a",
            "$.*",
            "$[*]",
            "$[-1]",
            "$[1",
            "$['a]",
            "$[a]",
            "$[]",
            "$.a b",
            "$?(@.a)",
            "$[0,1]",
            "$[0:2]",
            "$[99999999999999999999999]",
            "strict",
            "$ .a",
            "$.a?(@ > 1)",
            "$\u{e9}",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        assert!(JsonPath::parse(&format!("${}", ".a".repeat(STEPS_MAX))).is_ok());
        assert!(JsonPath::parse(&format!("${}", ".a".repeat(STEPS_MAX + 1))).is_err());
    }

    #[test]
    fn no_text_overflows_the_stack() {
        let path = JsonPath::parse("$.a[0]").unwrap();
        let depth = 1_000_000;
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(path.find(&deep).unwrap().map(str::len), Some(2 * depth - 2));
        for json in ["", "{", "[", "{\"a\": 1} x", "{'a': 1}", "nul", "\"a\u{1}\"", "[1,]", "01"] {
            assert!(path.find(json).is_err(), "{json}");
        }
        assert!(path.find(&"[".repeat(depth)).is_err());
    }
}
