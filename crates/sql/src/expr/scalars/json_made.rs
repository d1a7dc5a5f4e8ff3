//! Values as JSON texts, as Flink has them: `JSON_OBJECT`, `JSON_ARRAY`, `JSON_STRING`,
//! `JSON_QUOTE` and `JSON_UNQUOTE`.
//!
//! [`json_calls`](crate::stages::json_calls) makes the calls of `JSON_OBJECT` and `JSON_ARRAY`. The
//! first argument says what NULL becomes. Each member or element follows, as its key (of members
//! only), its kind, and its value.

use std::fmt::Write;

use arrow::array::StringBuilder;
use arrow::datatypes::{Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::rows::{Arguments, TEXT, function, push};
use crate::expr::udf::{called, result_of, rows_of};
use crate::syntax::calls::{JSON_ARRAY, JSON_IS_JSON, JSON_OBJECT};
use crate::syntax::prelude::*;

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let made = |kind| ScalarUDF::from(Made { kind });
    let one: &[&[DataType]] = &[&[TEXT]];
    vec![
        made(MadeKind::Object),
        made(MadeKind::Array),
        made(MadeKind::Text),
        function("json_quote", &[], one, TEXT, quote),
        function("json_unquote", &[], one, TEXT, unquote),
    ]
}

/// A text as a JSON text.
fn quote(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        push(out, &quoted(args.text(0, row)?));
        Ok(Some(()))
    })
}

/// The string in a JSON text; a text of another kind stays as it is.
fn unquote(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let text = args.text(0, row)?;
        match serde_json::from_str::<String>(text) {
            Ok(plain) => push(out, &plain),
            Err(_) => push(out, text),
        }
        Ok(Some(()))
    })
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MadeKind {
    Object,
    Array,
    /// `JSON_STRING`.
    Text,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Made {
    kind: MadeKind,
}

impl Made {
    /// Whether an argument is a value: neither a key nor the kind of a value.
    fn is_value(&self, at: usize) -> bool {
        match self.kind {
            MadeKind::Text => true,
            MadeKind::Object => at > 0 && at.is_multiple_of(3),
            MadeKind::Array => at > 0 && at.is_multiple_of(2),
        }
    }

    /// As it is written.
    fn written(&self) -> &'static str {
        match self.kind {
            MadeKind::Object => "JSON_OBJECT",
            MadeKind::Array => "JSON_ARRAY",
            MadeKind::Text => "JSON_STRING",
        }
    }
}

impl ScalarUDFImpl for Made {
    fn name(&self) -> &str {
        match self.kind {
            MadeKind::Object => JSON_OBJECT,
            MadeKind::Array => JSON_ARRAY,
            MadeKind::Text => "json_string",
        }
    }

    called!(@ CHECKED, DataType::Utf8);

    /// Times become texts.
    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        if self.kind == MadeKind::Text && types.len() != 1 {
            return plan_err!("JSON_STRING takes one argument, not {}", types.len());
        }
        let taken = |(at, given): (usize, &DataType)| match given {
            _ if !self.is_value(at) => Ok(DataType::Utf8),
            DataType::Null => Ok(DataType::Utf8),
            given if given.is_temporal() => Ok(DataType::Utf8),
            given if is_written(given) => Ok(given.clone()),
            given => plan_err!(
                "there is no {} of {}; write bytes as a text, for example ENCODE(x, 'base64')",
                self.written(),
                sql_type_name(given)
            ),
        };
        types.iter().enumerate().map(taken).collect()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let nullable =
            self.kind == MadeKind::Text && args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Utf8, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = rows_of(&args);
        let arrays =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        let mut texts = StringBuilder::new();
        for row in 0..rows {
            if self.write(&arrays, row, &mut texts)? {
                texts.append_value("");
            } else {
                texts.append_null();
            }
        }
        let texts: ArrayRef = Arc::new(texts.finish());
        result_of(&args, texts)
    }
}

impl Made {
    /// Writes a row's text; whether it is one.
    fn write(&self, args: &[ArrayRef], row: usize, out: &mut StringBuilder) -> DfResult<bool> {
        let text = |array: &ArrayRef| array.as_string::<i32>().value(row).to_string();
        let (size, brackets) = match self.kind {
            MadeKind::Object => (3, ['{', '}']),
            MadeKind::Array => (2, ['[', ']']),
            MadeKind::Text => {
                let [value] = args else { return exec_err!("JSON_STRING takes one argument") };
                let is_there = value.is_valid(row);
                if is_there {
                    write_value(value, row, out)?;
                }
                return Ok(is_there);
            }
        };
        let Some((on_null, members)) = args.split_first() else {
            return exec_err!("{} without arguments", self.written());
        };
        let keeps_null = text(on_null) == "NULL";
        let mut separator = "";
        push(out, &brackets[0].to_string());
        for member in members.chunks_exact(size) {
            let (value, kind) = (&member[size - 1], &member[size - 2]);
            if value.is_null(row) && !keeps_null {
                continue;
            }
            push(out, separator);
            separator = ",";
            if self.kind == MadeKind::Object {
                push(out, &quoted(&text(&member[0])));
                push(out, ":");
            }
            match text(kind) == JSON_IS_JSON && value.is_valid(row) {
                true => push(out, &text(value)),
                false => write_value(value, row, out)?,
            }
        }
        push(out, &brackets[1].to_string());
        Ok(true)
    }
}

/// Whether values of a type have a JSON text.
fn is_written(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(element) => is_written(element.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_written(field.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.iter().all(|field| is_written(field.data_type())),
            _ => false,
        },
        other => {
            other.is_numeric()
                || other.is_string()
                || matches!(other, DataType::Boolean | DataType::Null | DataType::Date32)
                || matches!(other, DataType::Timestamp(..) | DataType::Time32(_))
                || matches!(other, DataType::Time64(_))
        }
    }
}

/// Writes a value of an array.
fn write_value(array: &ArrayRef, row: usize, out: &mut StringBuilder) -> DfResult<()> {
    if array.is_null(row) {
        push(out, "null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            write_double(value.is_finite(), &format!("{value:?}"), out);
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            write_double(value.is_finite(), &format!("{value:?}"), out);
        }
        DataType::Utf8 => push(out, &quoted(array.as_string::<i32>().value(row))),
        DataType::List(_) => {
            let elements = array.as_list::<i32>().value(row);
            push(out, "[");
            for at in 0..elements.len() {
                push(out, if at > 0 { "," } else { "" });
                write_value(&elements, at, out)?;
            }
            push(out, "]");
        }
        DataType::Struct(fields) => {
            push(out, "{");
            let columns = array.as_struct().columns();
            for (at, (field, column)) in fields.iter().zip(columns).enumerate() {
                push(out, if at > 0 { "," } else { "" });
                push(out, &quoted(field.name()));
                push(out, ":");
                write_value(column, row, out)?;
            }
            push(out, "}");
        }
        DataType::Map(..) => write_map(array, row, out)?,
        DataType::Boolean => {
            push(out, if array.as_boolean().value(row) { "true" } else { "false" })
        }
        data_type => {
            let options = FormatOptions::new();
            let text = ArrayFormatter::try_new(array, &options)?.value(row).to_string();
            match data_type.is_numeric() {
                true => push(out, &text),
                false => push(out, &quoted(&text.replace('T', " "))),
            }
        }
    }
    Ok(())
}

/// A map is an object with its keys as texts.
fn write_map(array: &ArrayRef, row: usize, out: &mut StringBuilder) -> DfResult<()> {
    let entries = array.as_map().value(row);
    let (keys, values) = (entries.column(0), entries.column(1));
    push(out, "{");
    for at in 0..entries.len() {
        push(out, if at > 0 { "," } else { "" });
        let mut key = StringBuilder::new();
        write_value(keys, at, &mut key)?;
        key.append_value("");
        let key = key.finish();
        match key.value(0) {
            text if text.starts_with('"') => push(out, text),
            other => push(out, &quoted(other)),
        }
        push(out, ":");
        write_value(values, at, out)?;
    }
    push(out, "}");
    Ok(())
}

/// Writes NaN and infinity as strings, since JSON has no such numbers.
fn write_double(is_number: bool, text: &str, out: &mut StringBuilder) {
    // Writing to memory does not fail.
    let _ = if is_number { out.write_str(text) } else { write!(out, "\"{text}\"") };
}
