//! `JSON_VALUE`, `JSON_QUERY`, `JSON_EXISTS` and `IS JSON` as Flink has them.
//!
//! The forms with clauses are calls with texts: `JSON_VALUE(json, path, type, on empty, on error)`,
//! `JSON_QUERY(json, path, wrapper, on empty, on error)` and `JSON_EXISTS(json, path, on error)`,
//! which [`json_calls`](crate::stages::json_calls) makes.

use std::borrow::Cow;

use arrow::array::{Float64Array, Int32Array};

use super::json_path::{JsonPath, no_json, path, whole};
use super::json_query::Query;
use crate::expr::udf::{called, no_such, result_of, rows_of};
use crate::syntax::calls::{DEFAULT, IS_JSON};
use crate::syntax::prelude::*;

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |kind| ScalarUDF::from(Json { kind });
    use JsonFunction::*;
    [Value, Query, Exists, Is].map(function).into()
}

/// The type that RETURNING names; `None` if JSON_VALUE does not give it.
pub(crate) fn returned_type(name: &str) -> Option<DataType> {
    let name = name.to_uppercase();
    Some(match name.split('(').next().unwrap_or_default().trim_end() {
        "STRING" | "VARCHAR" => DataType::Utf8,
        "BOOLEAN" => DataType::Boolean,
        "INT" | "INTEGER" => DataType::Int32,
        "BIGINT" => DataType::Int64,
        "DOUBLE" => DataType::Float64,
        _ => return None,
    })
}

/// Whether the text of a value is one of a type.
pub(crate) fn fits(text: &str, data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean => boolean(text).is_some(),
        DataType::Int32 => integer(text).is_some_and(|n| i32::try_from(n).is_ok()),
        DataType::Int64 => integer(text).is_some(),
        DataType::Float64 => double(text).is_some(),
        _ => true,
    }
}

fn boolean(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    (is("true") || is("false")).then(|| is("true"))
}

/// A whole number, which may also be written as `5.0` or `5e3`.
fn integer(text: &str) -> Option<i64> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    text.parse().ok().or_else(|| {
        let number = double(text).filter(|n| n.fract() == 0.0 && n.abs() <= EXACT);
        number.map(|n| n as i64)
    })
}

fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonFunction {
    Value,
    Query,
    Exists,
    Is,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Json {
    kind: JsonFunction,
}

impl ScalarUDFImpl for Json {
    fn name(&self) -> &str {
        match self.kind {
            JsonFunction::Value => "json_value",
            JsonFunction::Query => "json_query",
            JsonFunction::Exists => "json_exists",
            JsonFunction::Is => IS_JSON,
        }
    }

    called!(@ CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let is_text = |given: &DataType| given.is_null() || given.is_string();
        let counts: &[usize] = match self.kind {
            JsonFunction::Value | JsonFunction::Query => &[2, 5],
            JsonFunction::Exists => &[2, 3],
            JsonFunction::Is => &[2],
        };
        if counts.contains(&types.len()) && types.iter().all(is_text) {
            return Ok(vec![DataType::Utf8; types.len()]);
        }
        if self.kind == JsonFunction::Is {
            return no_such("IS JSON", types.get(..1).unwrap_or_default(), "STRING");
        }
        let name = self.name().to_uppercase();
        no_such(&name, types, &format!("{name}(STRING, STRING)"))
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        let text = matches!(self.kind, JsonFunction::Value | JsonFunction::Query);
        Ok(if text { DataType::Utf8 } else { DataType::Boolean })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let returning = args.scalar_arguments.get(2).copied().flatten();
        let data_type = match (self.kind, returning.and_then(text_of)) {
            (JsonFunction::Value, Some(name)) => match returned_type(name) {
                Some(data_type) => data_type,
                None => return plan_err!("JSON_VALUE does not return {name}"),
            },
            _ => self.return_type(&[])?,
        };
        Ok(Arc::new(Field::new(self.name(), data_type, self.kind != JsonFunction::Is)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Some((json, constants)) = args.args.split_first() else {
            return exec_err!("{} without arguments", self.name());
        };
        let constant = |at: usize| match constants.get(at) {
            Some(ColumnarValue::Scalar(value)) => text_of(value),
            _ => None,
        };
        let json = cast(&json.to_array(rows_of(&args))?, &DataType::Utf8)?;
        let json = json.as_string::<i32>();
        let Some(first) = constant(0) else {
            return exec_err!(
                "the path of {} must be a text in quotes",
                self.name().to_uppercase()
            );
        };
        let result = match self.kind {
            JsonFunction::Is => is_json(json, first),
            JsonFunction::Query => {
                let query = Query {
                    path: path(first)?,
                    named: first,
                    wrapper: constant(1).unwrap_or("WITHOUT ARRAY"),
                    on_empty: constant(2).unwrap_or("NULL"),
                    on_error: constant(3).unwrap_or("NULL"),
                };
                let found = json.iter().map(|text| text.map_or(Ok(None), |text| query.of(text)));
                Arc::new(found.collect::<DfResult<StringArray>>()?)
            }
            JsonFunction::Exists => exists(json, &path(first)?, constant(1).unwrap_or("FALSE"))?,
            JsonFunction::Value => {
                let on = |at| On::named(constant(at).unwrap_or("NULL"));
                let lookup = Lookup {
                    path: path(first)?,
                    named: first,
                    data_type: args.return_field.data_type(),
                    on_empty: on(2),
                    on_error: on(3),
                };
                lookup.values(json)?
            }
        };
        result_of(&args, result)
    }
}

fn text_of(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

/// NULL is no JSON.
fn is_json(json: &StringArray, kind: &str) -> ArrayRef {
    let is_it = |text: &str| {
        let Ok(text) = whole(text) else { return false };
        match kind {
            "OBJECT" => text.starts_with('{'),
            "ARRAY" => text.starts_with('['),
            "SCALAR" => !text.starts_with(['{', '[']),
            _ => true,
        }
    };
    let is: BooleanArray = json.iter().map(|text| Some(text.is_some_and(is_it))).collect();
    Arc::new(is)
}

/// Whether a path leads to a value that is not null.
fn exists(json: &StringArray, path: &JsonPath, on_error: &str) -> DfResult<ArrayRef> {
    let failed = |wrong: DataFusionError| match on_error {
        "TRUE" => Ok(Some(true)),
        "UNKNOWN" => Ok(None),
        "ERROR" => Err(wrong),
        _ => Ok(Some(false)),
    };
    let of = |text: &str| match path.find(text) {
        Ok(Some(value)) => Ok(Some(value != "null")),
        Ok(None) if path.strict => exec_err!("the path leads nowhere").or_else(failed),
        Ok(None) => Ok(Some(false)),
        Err(error) => no_json(&error).or_else(failed),
    };
    let exist = json.iter().map(|text| text.map_or(Ok(None), of));
    Ok(Arc::new(exist.collect::<DfResult<BooleanArray>>()?))
}

/// Result in place of a missing value or an error.
#[derive(Debug, Clone, Copy)]
enum On<'a> {
    Null,
    Error,
    Default(&'a str),
}

impl On<'_> {
    fn named(text: &str) -> On<'_> {
        match text.strip_prefix(DEFAULT) {
            Some(default) => On::Default(default),
            None if text == "ERROR" => On::Error,
            None => On::Null,
        }
    }
}

/// A call of JSON_VALUE.
struct Lookup<'a> {
    path: JsonPath,
    named: &'a str,
    data_type: &'a DataType,
    on_empty: On<'a>,
    on_error: On<'a>,
}

impl<'a> Lookup<'a> {
    fn values(&self, json: &'a StringArray) -> DfResult<ArrayRef> {
        let texts = json.iter().map(|text| text.map_or(Ok(None), |text| self.value(text)));
        let texts = texts.collect::<DfResult<Vec<Option<Cow<'a, str>>>>>()?;
        let texts = texts.iter().map(Option::as_deref);
        Ok(match self.data_type {
            DataType::Boolean => {
                Arc::new(texts.map(|text| text.and_then(boolean)).collect::<BooleanArray>())
            }
            DataType::Int32 => {
                let number = |text: &str| integer(text).and_then(|n| i32::try_from(n).ok());
                Arc::new(texts.map(|text| text.and_then(number)).collect::<Int32Array>())
            }
            DataType::Int64 => {
                Arc::new(texts.map(|text| text.and_then(integer)).collect::<Int64Array>())
            }
            DataType::Float64 => {
                Arc::new(texts.map(|text| text.and_then(double)).collect::<Float64Array>())
            }
            _ => Arc::new(texts.collect::<StringArray>()),
        })
    }

    /// The text of a value that is of the type.
    fn value(&self, json: &'a str) -> DfResult<Option<Cow<'a, str>>> {
        let (value, named) = (self.path.find(json), self.named);
        let value = match value {
            Err(error) => return self.failed(|| no_json(&error)),
            Ok(None) if self.path.strict => {
                return self.failed(|| exec_err!("the path {named} leads nowhere"));
            }
            Ok(value) => value.unwrap_or("null"),
        };
        let text = match value.as_bytes().first() {
            Some(b'{' | b'[') if self.path.strict => {
                let is = if value.starts_with('{') { "an object" } else { "an array" };
                return self.failed(|| exec_err!("the path {named} leads to {is}, not to a value"));
            }
            Some(b'{' | b'[' | b'n') | None => {
                return instead(self.on_empty, || exec_err!("the path {named} leads to no value"));
            }
            Some(b'"') => match serde_json::from_str::<String>(value) {
                Ok(text) => Cow::from(text),
                Err(error) => return self.failed(|| no_json(&error)),
            },
            Some(_) => Cow::from(value),
        };
        if !fits(&text, self.data_type) {
            let wanted = sql_type_name(self.data_type);
            let shown: String = text.chars().take(40).collect();
            return self
                .failed(|| exec_err!("the path {named} leads to {shown}, which is no {wanted}"));
        }
        Ok(Some(text))
    }

    fn failed(
        &self,
        error: impl FnOnce() -> DfResult<Option<Cow<'a, str>>>,
    ) -> DfResult<Option<Cow<'a, str>>> {
        instead(self.on_error, error)
    }
}

fn instead<'a>(
    on: On<'a>,
    error: impl FnOnce() -> DfResult<Option<Cow<'a, str>>>,
) -> DfResult<Option<Cow<'a, str>>> {
    match on {
        On::Null => Ok(None),
        On::Default(text) => Ok(Some(Cow::from(text))),
        On::Error => error(),
    }
}
