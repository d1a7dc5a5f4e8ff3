//! `SPLIT_INDEX` and `REGEXP_EXTRACT`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::{Result as DfResult, exec_datafusion_err, exec_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use regex::Regex;

/// `SPLIT_INDEX(text, separator, index)`: the part at `index`, counted from 0; NULL if there is
/// none.
pub(super) fn split_index() -> ScalarUDF {
    let types = vec![DataType::Utf8, DataType::Utf8, DataType::Int64];
    let signature = Signature::exact(types, Volatility::Immutable);
    ScalarUDF::from(Strings { name: "split_index", signature })
}

/// `REGEXP_EXTRACT(text, pattern [, group])`: the group's first match; group 0 is the whole match.
pub(super) fn regexp_extract() -> ScalarUDF {
    let text = DataType::Utf8;
    let two = TypeSignature::Exact(vec![text.clone(), text.clone()]);
    let three = TypeSignature::Exact(vec![text.clone(), text, DataType::Int64]);
    let signature = Signature::one_of(vec![two, three], Volatility::Immutable);
    ScalarUDF::from(Strings { name: "regexp_extract", signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Strings {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Strings {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (Some(text), Some(second)) = (arrays.first(), arrays.get(1)) else {
            return exec_err!("{} takes two arguments at least", self.name);
        };
        let (text, second) = (text.as_string::<i32>(), second.as_string::<i32>());
        let third = arrays.get(2).map(|a| a.as_primitive::<Int64Type>());
        // All scalars make arrays of one row.
        let len = arrays.iter().map(|a| a.len()).max().unwrap_or(rows);
        let number = |row: usize| match third {
            Some(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
            None => Some(0),
        };
        let mut patterns = Patterns::default();
        let mut results: Vec<Option<&str>> = Vec::with_capacity(len);
        for row in 0..len {
            let (true, true, Some(number)) =
                (text.is_valid(row), second.is_valid(row), number(row))
            else {
                results.push(None);
                continue;
            };
            let (text, second) = (text.value(row), second.value(row));
            results.push(match self.name {
                "split_index" => part(text, second, number),
                _ => patterns.extract(text, second, number)?,
            });
        }
        let results: StringArray = results.into_iter().collect();
        Ok(ColumnarValue::Array(Arc::new(results)))
    }
}

fn part<'a>(text: &'a str, separator: &str, index: i64) -> Option<&'a str> {
    let index = usize::try_from(index).ok()?;
    if separator.is_empty() {
        return (index == 0).then_some(text);
    }
    text.split(separator).nth(index)
}

/// Compiled patterns of one batch: mostly it is the same in every row.
#[derive(Default)]
struct Patterns(HashMap<String, Regex>);

impl Patterns {
    fn extract<'a>(
        &mut self,
        text: &'a str,
        pattern: &str,
        group: i64,
    ) -> DfResult<Option<&'a str>> {
        if !self.0.contains_key(pattern) {
            let regex = Regex::new(pattern).map_err(|e| exec_datafusion_err!("{e}"))?;
            self.0.insert(pattern.to_string(), regex);
        }
        let Ok(group) = usize::try_from(group) else { return Ok(None) };
        let found = self.0[pattern].captures(text);
        Ok(found.and_then(|c| c.get(group)).map(|m| m.as_str()))
    }
}
