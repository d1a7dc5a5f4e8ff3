//! Rows as text: where each begins in a file, and what its fields are.

use std::borrow::Cow;

use serde_json::Value;

/// The format of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RowFormat {
    /// With a header line.
    Csv,
    Ndjson,
}

/// A row, with the line in which it begins, from 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// The rows of a text. A field in quotes may have line ends.
pub(crate) fn records(text: &str, format: RowFormat) -> Vec<Record<'_>> {
    let (mut found, mut quoted) = (Vec::new(), false);
    let (mut start, mut line, mut lines) = (0, 1, 1);
    let mut add = |from: usize, to: usize, line: usize| {
        let text = text[from..to].strip_suffix('\r').unwrap_or(&text[from..to]);
        found.push(Record { text, line });
    };
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if format == RowFormat::Csv => quoted = !quoted,
            b'\n' => {
                lines += 1;
                if !quoted {
                    add(start, at, line);
                    (start, line) = (at + 1, lines);
                }
            }
            _ => {}
        }
    }
    if start < text.len() {
        add(start, text.len(), line);
    }
    found
}

/// The fields of a row of CSV.
pub(crate) fn fields(record: &str) -> Vec<Cow<'_, str>> {
    let (mut found, mut quoted, mut start) = (Vec::new(), false, 0);
    for (at, byte) in record.bytes().chain([b',']).enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted || at == record.len() => {
                let field = &record[start..at];
                let inner = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
                found.push(match inner {
                    Some(inner) if inner.contains("\"\"") => inner.replace("\"\"", "\"").into(),
                    Some(inner) => inner.into(),
                    None => field.into(),
                });
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The columns of a row by name. `header` is that of CSV.
pub(crate) fn columns(record: &str, header: &str, format: RowFormat) -> Vec<(String, String)> {
    match format {
        RowFormat::Csv => {
            let names = fields(header).into_iter().map(Cow::into_owned);
            names.zip(fields(record).into_iter().map(Cow::into_owned)).collect()
        }
        RowFormat::Ndjson => match serde_json::from_str(record) {
            Ok(Value::Object(object)) => object
                .into_iter()
                .map(|(name, value)| match value {
                    Value::String(text) => (name, text),
                    other => (name, other.to_string()),
                })
                .collect(),
            _ => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_where_no_quote_is_open() {
        let text = "a,b\r\n\"1\n2\",\"x\"\"y\"\n\n3,";
        let found = records(text, RowFormat::Csv);
        let found: Vec<(&str, usize)> = found.iter().map(|r| (r.text, r.line)).collect();
        assert_eq!(found, [("a,b", 1), ("\"1\n2\",\"x\"\"y\"", 2), ("", 4), ("3,", 5)]);
        assert_eq!(fields("\"1\n2\",\"x\"\"y\",,z"), ["1\n2", "x\"y", "", "z"]);
        assert_eq!(records("{\"a\":\"\\\"\"}\n{}", RowFormat::Ndjson).len(), 2);
        assert_eq!(records("", RowFormat::Csv), []);
    }

    #[test]
    fn columns_have_names() {
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(columns("1,x", "k,v", RowFormat::Csv), [pair("k", "1"), pair("v", "x")]);
        let row = r#"{"k":1,"v":"x","n":null}"#;
        let mut found = columns(row, "", RowFormat::Ndjson);
        found.sort();
        assert_eq!(found, [pair("k", "1"), pair("n", "null"), pair("v", "x")]);
        assert_eq!(columns("no json", "", RowFormat::Ndjson), []);
    }
}
