//! `JSON_QUERY` as Flink has it: a call with texts in place of its clauses,
//! `JSON_QUERY(json, path, wrapper, on empty, on error)`, which
//! [`json_calls`](crate::stages::json_calls) makes.

use super::json::{no_json, path, text_of};
use super::json_path::JsonPath;
use crate::expr::udf::{called, no_such, result_of, rows_of};
use crate::syntax::prelude::*;

/// The function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(JsonQuery)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonQuery;

impl ScalarUDFImpl for JsonQuery {
    called!("json_query", CHECKED, DataType::Utf8);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let is_text = |given: &DataType| given.is_null() || given.is_string();
        if matches!(types.len(), 2 | 5) && types.iter().all(is_text) {
            return Ok(vec![DataType::Utf8; types.len()]);
        }
        no_such("JSON_QUERY", types, "JSON_QUERY(STRING, STRING)")
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Some((json, constants)) = args.args.split_first() else {
            return exec_err!("JSON_QUERY without arguments");
        };
        let constant = |at: usize| match constants.get(at) {
            Some(ColumnarValue::Scalar(value)) => text_of(value),
            _ => None,
        };
        let Some(named) = constant(0) else {
            return exec_err!("the path of JSON_QUERY must be a text in quotes");
        };
        let query = Query {
            path: path(named)?,
            named,
            wrapper: constant(1).unwrap_or("WITHOUT ARRAY"),
            on_empty: constant(2).unwrap_or("NULL"),
            on_error: constant(3).unwrap_or("NULL"),
        };
        let json = json.to_array(rows_of(&args))?;
        let json = cast(&json, &DataType::Utf8)?;
        let texts = json.as_string::<i32>().iter();
        let found = texts.map(|text| text.map_or(Ok(None), |text| query.of(text)));
        let found = found.collect::<DfResult<StringArray>>()?;
        result_of(&args, Arc::new(found))
    }
}

/// A call.
struct Query<'a> {
    path: JsonPath,
    named: &'a str,
    wrapper: &'a str,
    on_empty: &'a str,
    on_error: &'a str,
}

impl Query<'_> {
    /// The JSON text of a value.
    fn of(&self, json: &str) -> DfResult<Option<String>> {
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
