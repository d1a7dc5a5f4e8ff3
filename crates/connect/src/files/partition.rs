//! Partitions: `PARTITIONED BY (a, b)` puts rows into directories `a=1/b=x`, as Hive names them.
//!
//! The columns stand in the names of the directories, and not in the files. Values are written as
//! in CSV; characters that have a meaning in paths are percent-encoded, NULL and the empty text are
//! [`NULL_PARTITION`].

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Field, SchemaRef};
use arrow::util::display::FormatOptions;
use millstream_contract::{Error, Result};

use crate::csv;
use crate::text::Cells;
use crate::types::sql_name;

/// The directory of rows that have no value.
const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// How rows are told apart.
#[derive(Debug)]
pub(super) struct Partitions {
    /// Name, encoded, and position.
    columns: Vec<(String, usize)>,
    /// Positions of the columns that the files have.
    rest: Vec<usize>,
    /// Of the files.
    pub(super) schema: SchemaRef,
}

/// Rows of one partition, and its directory, without a slash at the end.
pub(super) type PartitionRows = (String, RecordBatch);

impl Partitions {
    /// `by` are columns of `schema`.
    pub(super) fn new(by: &[String], schema: &SchemaRef) -> Result<Partitions> {
        let column = |name: &String| {
            let position = schema.index_of(name);
            let position = position.map_err(|error| Error::Internal(error.to_string()))?;
            Ok((encoded(name, false), position))
        };
        let columns = by.iter().map(column).collect::<Result<Vec<_>>>()?;
        let is_rest = |at: &usize| columns.iter().all(|(_, position)| position != at);
        let rest: Vec<usize> = (0..schema.fields().len()).filter(is_rest).collect();
        let schema = match columns.is_empty() {
            true => schema.clone(),
            false => Arc::new(schema.project(&rest).map_err(internal)?),
        };
        Ok(Partitions { columns, rest, schema })
    }

    /// How deep the directories are.
    pub(super) fn depth(&self) -> usize {
        self.columns.len()
    }

    /// Rows by partition, each partition's rows in their order.
    pub(super) fn split(&self, rows: &RecordBatch) -> Result<Vec<PartitionRows>> {
        if self.columns.is_empty() {
            return Ok(vec![(String::new(), rows.clone())]);
        }
        let mut partitions: Vec<(String, Vec<u32>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (row, directory) in self.directories(rows)?.into_iter().enumerate() {
            let place = match places.get(&directory) {
                Some(place) => *place,
                None => {
                    partitions.push((directory.clone(), Vec::new()));
                    places.insert(directory, partitions.len() - 1);
                    partitions.len() - 1
                }
            };
            partitions[place].1.push(row as u32);
        }
        let data = rows.project(&self.rest).map_err(internal)?;
        let count = partitions.len();
        let of_one = |(directory, chosen): (String, Vec<u32>)| {
            let rows = match count {
                1 => Ok(data.clone()),
                _ => take_record_batch(&data, &UInt32Array::from(chosen)),
            };
            rows.map(|rows| (directory, rows)).map_err(internal)
        };
        partitions.into_iter().map(of_one).collect()
    }

    /// The directory of each row.
    fn directories(&self, rows: &RecordBatch) -> Result<Vec<String>> {
        let options = FormatOptions::default();
        let mut directories = vec![String::new(); rows.num_rows()];
        let mut text = Vec::new();
        for (name, position) in &self.columns {
            let cells = Cells::new(rows.column(*position), &options)?;
            for (row, directory) in directories.iter_mut().enumerate() {
                if !directory.is_empty() {
                    directory.push('/');
                }
                directory.push_str(name);
                directory.push('=');
                text.clear();
                if !cells.is_null(row) {
                    cells.write(row, &mut text);
                }
                match text.is_empty() {
                    true => directory.push_str(NULL_PARTITION),
                    false => directory.push_str(&encoded(&String::from_utf8_lossy(&text), true)),
                }
            }
        }
        Ok(directories)
    }
}

/// A name or value as part of a path: what Hive and Flink encode, and a first underscore of a text
/// that would be taken for NULL.
fn encoded(text: &str, is_value: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let special = character.is_ascii_control()
            || "\"#%'*/:=?\\{[]^".contains(character)
            || is_value && at == 0 && text == NULL_PARTITION;
        match special {
            // Writing into a text cannot fail.
            true => _ = write!(out, "%{:02X}", u32::from(character)),
            false => out.push(character),
        }
    }
    out
}

/// Inverse of [`encoded`]; `%` without two digits behind stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let is_code = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let code = digits.filter(is_code).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(code) => {
                bytes.push(code);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The value, as it is written, that a directory's name has for a column; `None`: the directory is
/// no partition of it. Whoever writes for Hive has names of columns in small letters.
pub(crate) fn value_in<'a>(directory: &'a str, column: &str) -> Option<&'a str> {
    let (name, value) = directory.split_once('=')?;
    let name = decoded(name);
    (name == column || name.to_lowercase() == column.to_lowercase()).then_some(value)
}

/// The column and the value that a directory's name has, if it is that of a partition.
pub(crate) fn partition_in(directory: &str) -> Option<(String, Option<String>)> {
    let (name, value) = directory.split_once('=').filter(|(name, _)| !name.is_empty())?;
    let value = Some(value).filter(|value| *value != NULL_PARTITION && !value.is_empty());
    Some((decoded(name), value.map(decoded)))
}

/// The value of a column in the path of a file, as a column of one row.
pub(crate) fn value_of(path: &str, field: &Field, columns: &[String]) -> Result<ArrayRef> {
    let directories = path.rsplit('/').skip(1);
    let found = directories.filter_map(|name| value_in(name, field.name())).next();
    let text = found.ok_or_else(|| misplaced(Path::new(path), field.name(), columns))?;
    let wrong = |message: String, help: &str| Error::Data {
        place: path.to_string(),
        message,
        help: help.to_string(),
    };
    if text == NULL_PARTITION || text.is_empty() {
        return match field.is_nullable() {
            true => Ok(new_null_array(field.data_type(), 1)),
            false => Err(wrong(
                format!("column '{}' is NOT NULL, and this partition has no value", field.name()),
                "declare the column without NOT NULL",
            )),
        };
    }
    let text = decoded(text);
    csv::value(text.as_bytes(), field.data_type())?.ok_or_else(|| {
        let (of, name) = (sql_name(field.data_type()), field.name());
        let message = format!(
            "expected {of} for column '{name}', found '{}' in the path",
            text.escape_debug()
        );
        wrong(message, "declare the column STRING, or give the directory another name")
    })
}

/// Something lies where a directory of a column's partitions should be.
pub(crate) fn misplaced(path: &Path, column: &str, columns: &[String]) -> Error {
    let directory = format!("{}=…", encoded(column, false));
    Error::Data {
        place: path.display().to_string(),
        message: format!(
            "it is in no directory '{directory}', as PARTITIONED BY ({}) has it",
            columns.join(", ")
        ),
        help: "move it away or give it a name that begins with '_'; or name the columns in the \
               order of the directories"
            .into(),
    }
}

fn internal(error: arrow::error::ArrowError) -> Error {
    Error::Internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray, TimestampMillisecondArray};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;

    use super::*;

    fn split(texts: Vec<Option<&str>>) -> Vec<(String, Vec<u32>)> {
        let numbers = UInt32Array::from_iter_values(0..texts.len() as u32);
        let columns: [(&str, ArrayRef); 2] =
            [("a/b", Arc::new(StringArray::from(texts))), ("n", Arc::new(numbers))];
        let rows = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, true)),
        )
        .unwrap();
        let partitions = Partitions::new(&["a/b".to_string()], &rows.schema()).unwrap();
        let numbers = |rows: &RecordBatch| {
            assert_eq!(rows.num_columns(), 1, "the column stands in the path");
            let column = rows.column(0).as_any().downcast_ref::<UInt32Array>().unwrap();
            column.values().to_vec()
        };
        let split = partitions.split(&rows).unwrap();
        split.iter().map(|(directory, rows)| (directory.clone(), numbers(rows))).collect()
    }

    #[test]
    fn names_are_hives() {
        let texts = vec![Some("x"), None, Some("a b/c=%"), Some(""), Some("x"), Some("..")];
        let expected = [
            ("a%2Fb=x", vec![0, 4]),
            ("a%2Fb=__HIVE_DEFAULT_PARTITION__", vec![1, 3]),
            ("a%2Fb=a b%2Fc%3D%25", vec![2]),
            ("a%2Fb=..", vec![5]),
        ];
        assert_eq!(split(texts), expected.map(|(name, rows)| (name.to_string(), rows)));
        let taken = split(vec![None, Some("__HIVE_DEFAULT_PARTITION__"), Some("é\0\u{7f}")]);
        assert_eq!(taken[1].0, "a%2Fb=%5F_HIVE_DEFAULT_PARTITION__");
        assert_eq!(taken[2].0, "a%2Fb=é%00%7F");
    }

    #[test]
    fn several_columns_stand_in_each_other() {
        let times = TimestampMillisecondArray::from(vec![Some(0), None]);
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from(vec![-5, 7]))),
            ("t", Arc::new(times)),
            ("x", Arc::new(Int64Array::from(vec![1, 2]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let by = ["t".to_string(), "n".to_string()];
        let partitions = Partitions::new(&by, &rows.schema()).unwrap();
        let split = partitions.split(&rows).unwrap();
        let names: Vec<&str> = split.iter().map(|(name, _)| name.as_str()).collect();
        let zero = "t=1970-01-01 00%3A00%3A00.000/n=-5";
        assert_eq!(names, [zero, "t=__HIVE_DEFAULT_PARTITION__/n=7"]);
        assert_eq!(partitions.schema.fields().len(), 1);
    }

    proptest! {
        #[test]
        fn different_values_have_different_directories_below(
            one in proptest::option::of(".{0,12}"), other in proptest::option::of(".{0,12}"),
        ) {
            let found = split(vec![one.as_deref(), other.as_deref()]);
            let none = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
            let same = one == other || none(&one) && none(&other);
            prop_assert_eq!(found.len() == 1, same);
            for (texts, (directory, rows)) in std::iter::repeat([&one, &other]).zip(&found) {
                let path = format!("out/{directory}/part-0-0");
                let field = Field::new("a/b", DataType::Utf8, true);
                let read = value_of(&path, &field, &["a/b".to_string()]).unwrap();
                let written = texts[rows[0] as usize].as_deref().filter(|text| !text.is_empty());
                prop_assert_eq!(read.as_string::<i32>().iter().next().unwrap(), written);
            }
            for (directory, _) in found {
                prop_assert_eq!(directory.matches('/').count(), 0);
                prop_assert!(directory.chars().all(|c| !c.is_ascii_control()));
            }
        }
    }
}
