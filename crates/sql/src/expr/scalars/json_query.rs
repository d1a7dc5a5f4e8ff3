//! `JSON_QUERY` as Flink has it: the value of a call.

use super::json_path::{JsonPath, no_json};
use crate::syntax::prelude::*;

/// A call.
pub(super) struct Query<'a> {
    pub(super) path: JsonPath,
    pub(super) named: &'a str,
    pub(super) wrapper: &'a str,
    pub(super) on_empty: &'a str,
    pub(super) on_error: &'a str,
}

impl Query<'_> {
    /// The JSON text of a value.
    pub(super) fn of(&self, json: &str) -> DfResult<Option<String>> {
        let named = self.named;
        let value = match self.path.find(json) {
            Err(error) => return instead(self.on_error, || no_json(&error)),
            Ok(None) if self.path.strict => {
                return instead(self.on_error, || exec_err!("the path {named} leads nowhere"));
            }
            Ok(value) => value.unwrap_or("null"),
        };
        let wraps = match self.wrapper {
            "WITHOUT ARRAY" => false,
            "WITH CONDITIONAL ARRAY" => !value.starts_with('['),
            _ => true,
        };
        let nothing = || exec_err!("the path {named} leads to no object and no array");
        match value.as_bytes().first() {
            Some(b'n') | None => instead(self.on_empty, nothing),
            Some(b'{' | b'[') if !wraps => Ok(Some(compact(value))),
            _ if wraps => Ok(Some(format!("[{}]", compact(value)))),
            _ if self.path.strict => instead(self.on_error, nothing),
            _ => instead(self.on_empty, nothing),
        }
    }
}

fn instead(on: &str, error: impl FnOnce() -> DfResult<Option<String>>) -> DfResult<Option<String>> {
    match on {
        "ERROR" => error(),
        "EMPTY ARRAY" => Ok(Some("[]".into())),
        "EMPTY OBJECT" => Ok(Some("{}".into())),
        _ => Ok(None),
    }
}

/// A JSON text without the blanks between its parts.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_quotes, mut escaped) = (false, false);
    for c in json.chars() {
        if !in_quotes && matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        text.push(c);
        if c == '"' && !escaped {
            in_quotes = !in_quotes;
        }
        escaped = in_quotes && c == '\\' && !escaped;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_stay_in_texts() {
        let json = "{ \"a b\" : [ 1 ,\n 2.50 ] , \"c\\\" d\" : \"e \\\\\" , \"f\":{ } }";
        let compacted = "{\"a b\":[1,2.50],\"c\\\" d\":\"e \\\\\",\"f\":{}}";
        assert_eq!(compact(json), compacted);
    }
}
