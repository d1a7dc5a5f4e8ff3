//! NDJSON: the fields of the objects, one of which stands on each line.
//!
//! A field that is an object becomes a ROW, unless its objects have many different keys, each of
//! which is in few of them: then it is a MAP. Arrays are ARRAY. Text is DATE, TIME or TIMESTAMP if
//! all of it is; text that looks like a number stays text. What is a number in one record and text
//! or an object in another is STRING.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use memchr::memchr_iter;
use millstream_contract::{Error, Result};

use super::sample::Sample;
use super::value::{TextShape, ValueStats, shape};
use super::{Inferred, InferredColumn, RECORDS_MAX, declared_type};
use crate::ndjson::{Json, Members, NdjsonFormat, record};

/// The option by which a STRING takes what is no JSON string.
const ANY_AS_STRING: &str = "json.any-as-string";

/// More keys than that, and an object may be a map.
const ROW_KEYS_MAX: usize = 32;

/// Values of a field.
#[derive(Debug, Default)]
struct Node {
    values: ValueStats,
    /// Number of values that are JSON strings.
    texts: u64,
    arrays: u64,
    element: Option<Box<Node>>,
    objects: u64,
    /// Keys of the largest object.
    keys_max: usize,
    /// Whether there are more of them than have been looked at.
    more: bool,
    fields: Vec<(String, Node)>,
    /// Where each field stands in `fields`.
    by_name: HashMap<String, usize>,
}

/// The columns of the samples.
///
/// # Errors
///
/// If what stands on the first lines is mostly no object.
pub(super) fn columns(samples: &[Sample]) -> Result<Inferred> {
    let (root, wrong) = root(samples);
    match wrong {
        Some(LineFaults { error, lines }) if lines >= root.objects => Err(error),
        wrong => {
            let wrong = wrong.map(|wrong| wrong.error);
            Ok(Inferred { wrong, ..of_root(root) })
        }
    }
}

/// Lines with no object on them.
struct LineFaults {
    /// Of the first.
    error: Error,
    lines: u64,
}

/// Properties common to all objects, and the fault of the first file's first lines.
fn root(samples: &[Sample]) -> (Node, Option<LineFaults>) {
    let (mut root, mut wrong) = (Node::default(), None);
    for (at, sample) in samples.iter().enumerate() {
        root.gap();
        let found = root.lines(&sample.head, sample.whole, &sample.name);
        // Further on, reading will report it.
        if at == 0 {
            wrong = found;
        }
        for part in &sample.later {
            root.gap();
            root.lines(part, true, &sample.name);
        }
    }
    (root, wrong)
}

/// The columns that can be read, and what is to be said of the others.
fn of_root(root: Node) -> Inferred {
    let mut found = Inferred { more: root.more, ..Inferred::default() };
    for (name, node) in root.fields {
        let data_type = node.data_type();
        if !NdjsonFormat::supported(&data_type) {
            let sql_type = declared_type(&data_type);
            found.remarks.push(format!("{name} is left out: {sql_type} cannot be read yet"));
            continue;
        }
        if found.options.is_empty() && node.mixed() {
            found.options.push((ANY_AS_STRING.to_string(), "true".to_string()));
            found.remarks.push(format!(
                "{name} has values that are no strings and others that are; they are read as they \
                 are written"
            ));
        }
        let mut values = node.values;
        values.count += node.arrays + node.objects;
        values.nulls = root.objects.saturating_sub(values.count);
        found.columns.push(InferredColumn::new(name, data_type, values));
    }
    found
}

impl Node {
    /// Takes in the records of whole lines. `name` is the name of the file that begins with them.
    fn lines(&mut self, data: &[u8], last: bool, name: &str) -> Option<LineFaults> {
        let ends = memchr_iter(b'\n', data).chain(last.then_some(data.len()));
        let (mut start, mut records) = (0, 0);
        let mut wrong: Option<LineFaults> = None;
        for end in ends {
            let line = &data[start..end];
            if !line.trim_ascii().is_empty() {
                match (record(name, data, start, end), &mut wrong) {
                    (Ok(members), _) => self.object(members),
                    (Err(_), Some(wrong)) => wrong.lines += 1,
                    (Err(error), None) => wrong = Some(LineFaults { error, lines: 1 }),
                }
                records += 1;
            }
            start = end + 1;
            if records == RECORDS_MAX {
                self.more |= start < data.len();
                break;
            }
        }
        wrong
    }

    fn add(&mut self, value: Json<'_>) {
        match value {
            Json::Null => self.values.add_null(),
            Json::Boolean => self.values.add(TextShape::Boolean),
            Json::Number(text) => self.values.add(match shape(text) {
                number @ (TextShape::Integer(_)
                | TextShape::WideInteger { .. }
                | TextShape::Float { .. }) => number,
                _ => TextShape::Text,
            }),
            Json::Text(text) => {
                self.texts += 1;
                self.values.add(match shape(&text) {
                    time @ (TextShape::Date
                    | TextShape::Time(_)
                    | TextShape::Timestamp { .. }
                    | TextShape::Form { .. }) => time,
                    _ => TextShape::Text,
                });
            }
            Json::Array(values) => {
                self.arrays += 1;
                let element = self.element.get_or_insert_default();
                values.into_iter().for_each(|value| element.add(value));
            }
            Json::Object(fields) => self.object(fields),
        }
    }

    fn object(&mut self, members: Members<'_>) {
        self.objects += 1;
        self.keys_max = self.keys_max.max(members.len());
        for (name, value) in members {
            let at = match self.by_name.get(&*name) {
                Some(at) => *at,
                None => {
                    let at = self.fields.len();
                    self.by_name.insert(name.to_string(), at);
                    let mut node = Node::default();
                    // It was missing before.
                    node.values.nulls = self.objects - 1;
                    self.fields.push((name.into_owned(), node));
                    at
                }
            };
            if let Some((_, node)) = self.fields.get_mut(at) {
                node.add(value);
            }
        }
    }

    fn gap(&mut self) {
        self.values.gap();
        self.fields.iter_mut().for_each(|(_, node)| node.gap());
    }

    fn data_type(&self) -> DataType {
        match (self.values.count, self.arrays, self.objects) {
            (_, 0, 0) => self.values.data_type(),
            (0, _, 0) => {
                let element = self.element.as_ref().map_or(DataType::Utf8, |e| e.data_type());
                DataType::List(Arc::new(Field::new_list_field(element, true)))
            }
            (0, 0, _) => self.of_objects(),
            _ => DataType::Utf8,
        }
    }

    /// Whether it has a STRING, itself or within, for values that are no JSON strings.
    fn mixed(&self) -> bool {
        let any = |node: &Node| node.texts < node.values.count + node.arrays + node.objects;
        let fields = || self.fields.iter().map(|(_, node)| node);
        match self.data_type() {
            DataType::Utf8 => any(self),
            DataType::List(_) => self.element.as_ref().is_some_and(|element| element.mixed()),
            DataType::Struct(_) => fields().any(Node::mixed),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(of)
                    if of.last().is_some_and(|f| *f.data_type() == DataType::Utf8) =>
                {
                    fields().any(any)
                }
                _ => fields().any(Node::mixed),
            },
            _ => false,
        }
    }

    fn of_objects(&self) -> DataType {
        let field = |(name, node): &(String, Node)| Field::new(name, node.data_type(), true);
        let fields: Vec<Field> = self.fields.iter().map(field).collect();
        let many = fields.len() > ROW_KEYS_MAX && fields.len() > 2 * self.keys_max;
        if !many && !fields.is_empty() {
            return DataType::Struct(fields.into());
        }
        let first = fields.first().map_or(DataType::Utf8, |field| field.data_type().clone());
        let value = match fields.iter().all(|field| *field.data_type() == first) {
            true => first,
            false => common(fields.iter().map(Field::data_type)),
        };
        let entries =
            vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)];
        let entries = Field::new("entries", DataType::Struct(entries.into()), false);
        DataType::Map(Arc::new(entries), false)
    }
}

/// The type of numbers of which some have a point; otherwise text.
fn common<'a>(mut types: impl Iterator<Item = &'a DataType>) -> DataType {
    match types.all(|t| matches!(t, DataType::Int64 | DataType::Float64)) {
        true => DataType::Float64,
        false => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Sample {
        Sample { name: "x".into(), head: text.as_bytes().to_vec(), whole: true, later: Vec::new() }
    }

    fn inferred(text: &str) -> Vec<(String, String)> {
        let fields = root(&[sample(text)]).0.fields;
        fields.into_iter().map(|(name, n)| (name, declared_type(&n.data_type()))).collect()
    }

    fn types(text: &str) -> String {
        let list: Vec<String> =
            inferred(text).into_iter().map(|(n, t)| format!("{n} {t}")).collect();
        list.join(", ")
    }

    #[test]
    fn fields_have_the_type_of_all_their_values() {
        assert_eq!(
            types("{\"a\":1,\"b\":\"x\",\"c\":null}\n\n{\"b\":\"007\",\"a\":1.5,\"d\":true}\r\n"),
            "a DOUBLE, b STRING, c STRING, d BOOLEAN"
        );
        assert_eq!(
            types("{\"t\":\"2024-05-01T00:00:00Z\",\"n\":\"12\"}"),
            "t TIMESTAMP_LTZ(3), n STRING"
        );
        assert_eq!(types("{\"a\":1}\n{\"a\":\"x\"}\n{\"a\":{}}"), "a STRING");
        assert_eq!(types("{\"a\":1.0}"), "a DOUBLE");
        assert_eq!(types("{\"a\":18446744073709551615}"), "a DECIMAL(38, 0)");
    }

    #[test]
    fn objects_are_rows_or_maps_and_arrays_have_elements() {
        assert_eq!(
            types("{\"u\":{\"id\":1,\"tags\":[\"x\"]}}\n{\"u\":{\"id\":2,\"of it\":[]}}"),
            "u ROW<id BIGINT, tags ARRAY<STRING>, `of it` ARRAY<STRING>>"
        );
        let map: String =
            (0..50).map(|n| format!("{{\"m\":{{\"k{n}\":{n},\"x{n}\":0.5}}}}\n")).collect();
        assert_eq!(types(&map), "m MAP<STRING, DOUBLE>");
        assert_eq!(types("{\"m\":{}}"), "m MAP<STRING, STRING>");
        assert_eq!(types("{\"a\":[[1],[2,null]]}"), "a ARRAY<ARRAY<BIGINT>>");
    }

    #[test]
    fn what_is_no_ndjson_is_refused_with_its_place() {
        for (text, expected_place, expected_help) in [
            ("[{\"a\":1}]", "x:1:1", "jq -c .[]"),
            ("{\n  \"a\": 1\n}", "x:1:1", "'jq -c .'"),
            ("{\"a\":1}\n{\"a\":}", "x:2:6", "JSON object"),
            ("1\n", "x:1:1", "one object per line"),
            ("{\"a\":1}\nx\n", "x:2:1", "one object per line"),
        ] {
            let error = columns(&[sample(text)]).unwrap_err();
            let Error::Data { place, help, .. } = &error else { panic!("{error}") };
            assert!(place == expected_place && help.contains(expected_help), "{error}");
        }
    }

    /// Most lines are objects, so the declaration is known, and with it what to write.
    #[test]
    fn a_line_among_objects_that_is_none_is_noted() {
        let found = columns(&[sample("{\"a\":1}\nx y\n{\"a\":2.5}\n{\"b\":1}\n-\n")]).unwrap();
        let Some(Error::Data { place, .. }) = &found.wrong else { panic!("{:?}", found.wrong) };
        assert_eq!(place, "x:2:1");
        let names: Vec<&str> = found.columns.iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(found.columns[0].data_type, DataType::Float64);
    }
}
