//! The columns of a table: those of the value, those of the key, and those beside the message.
//!
//! | key | type | |
//! |---|---|---|
//! | `topic` | STRING | |
//! | `partition` | INT | |
//! | `offset` | BIGINT | |
//! | `timestamp` | TIMESTAMP_LTZ(3) | by the producer or the log |
//! | `timestamp-type` | STRING | `CreateTime` or `LogAppendTime` |
//! | `headers` | MAP<STRING, BYTES> | of several headers of one name the last |
//! | `header-list` | ARRAY<ROW<key STRING, value BYTES>> | all |
//! | `leader-epoch` | INT | |

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, Int32Array, Int64Array, ListArray, MapArray, StringArray,
    StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use millstream_connect::Options;
use millstream_contract::calendar::tick_ns;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

/// A column beside the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
    HeaderList,
    LeaderEpoch,
}

const BESIDE: [(&str, Beside); 8] = [
    ("topic", Beside::Topic),
    ("partition", Beside::Partition),
    ("offset", Beside::Offset),
    ("timestamp", Beside::Timestamp),
    ("timestamp-type", Beside::TimestampType),
    ("headers", Beside::Headers),
    ("header-list", Beside::HeaderList),
    ("leader-epoch", Beside::LeaderEpoch),
];

/// The keys that are written, too.
pub(crate) const WRITTEN: [&str; 2] = ["timestamp", "headers"];

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The column of this number in the value.
    Value(usize),
    /// The column of this number in the key.
    Key(usize),
    Beside(Beside),
}

/// The columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(crate) all: SchemaRef,
    pub(crate) value: SchemaRef,
    pub(crate) origins: Vec<Origin>,
    /// The columns of the key in the order of `key.fields`, also those that the value has, too: as
    /// the key names them, and as numbers of the table's.
    pub(crate) key: SchemaRef,
    pub(crate) key_columns: Vec<usize>,
}

/// The keys of metadata columns, and their types.
pub(crate) fn metadata() -> Vec<(&'static str, DataType)> {
    let of = |beside: Beside| match beside {
        Beside::Topic | Beside::TimestampType => DataType::Utf8,
        Beside::Partition | Beside::LeaderEpoch => DataType::Int32,
        Beside::Offset => DataType::Int64,
        Beside::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, None),
        Beside::Headers => {
            let entries = header_fields("key", "value");
            let entries = Field::new("entries", DataType::Struct(entries), false);
            DataType::Map(Arc::new(entries), false)
        }
        Beside::HeaderList => {
            let row = DataType::Struct(header_fields("key", "value"));
            DataType::List(Arc::new(Field::new("item", row, true)))
        }
    };
    BESIDE.iter().map(|(key, beside)| (*key, of(*beside))).collect()
}

fn header_fields(name: &str, value: &str) -> Fields {
    Fields::from(vec![
        Field::new(name, DataType::Utf8, false),
        Field::new(value, DataType::Binary, true),
    ])
}

impl Columns {
    /// From the options `key.fields`, `key.fields-prefix` and `value.fields-include`.
    pub(crate) fn new(table: &TableOptions, options: &Options<'_>, keyed: bool) -> Result<Columns> {
        let fields = options.text("key.fields").unwrap_or_default();
        let fields: Vec<&str> =
            fields.split(';').map(str::trim).filter(|field| !field.is_empty()).collect();
        let prefix = options.text("key.fields-prefix").unwrap_or_default();
        let form = "'ALL' or 'EXCEPT_KEY'";
        let include = options.parsed("value.fields-include", form, |text| match text.trim() {
            "ALL" => Some(true),
            "EXCEPT_KEY" => Some(false),
            _ => None,
        })?;
        let all_in_value = include.unwrap_or(true);
        if keyed && fields.is_empty() {
            let message = "the option 'key.format' needs the columns of the key".to_string();
            return Err(options.error("key.fields", message, "name them with ';' between"));
        }
        if !keyed && !fields.is_empty() {
            let message = "columns of the key need the format of the key".to_string();
            return Err(options.error("key.format", message, "for example 'key.format' = 'raw'"));
        }
        if !prefix.is_empty() && all_in_value {
            let message = "a prefix needs 'value.fields-include' = 'EXCEPT_KEY'".to_string();
            return Err(options.error("key.fields-prefix", message, "as in Flink"));
        }
        let found = key_fields(table, options, &fields, prefix)?;
        let (mut value, mut origins) = (Vec::new(), Vec::new());
        for (column, field) in table.schema.fields().iter().enumerate() {
            let in_key = found.iter().position(|of_key| *of_key == column);
            origins.push(match table.metadata.get(field.name()) {
                Some(metadata) => {
                    let found = BESIDE.iter().find(|(name, _)| name == metadata);
                    let (_, beside) = found.ok_or_else(|| {
                        Error::Internal(format!("metadata '{metadata}' was not refused"))
                    })?;
                    Origin::Beside(*beside)
                }
                None => match in_key {
                    Some(number) if !all_in_value => Origin::Key(number),
                    // A column in both is read from the value, as in Flink.
                    _ => {
                        value.push(field.clone());
                        Origin::Value(value.len() - 1)
                    }
                },
            });
        }
        let key_field = |column: &usize| {
            let field = table.schema.field(*column);
            field.clone().with_name(field.name().strip_prefix(prefix).unwrap_or(field.name()))
        };
        let key: Vec<Field> = found.iter().map(key_field).collect();
        Ok(Columns {
            all: table.schema.clone(),
            value: Arc::new(Schema::new(value)),
            key: Arc::new(Schema::new(key)),
            origins,
            key_columns: found,
        })
    }
}

/// The columns of the key as numbers, in the order of the option. They have to be in messages, and
/// to begin with the prefix.
fn key_fields(
    table: &TableOptions,
    options: &Options<'_>,
    fields: &[&str],
    prefix: &str,
) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for field in fields {
        let column = table.schema.index_of(field).ok();
        let what = match column.filter(|_| !table.metadata.contains_key(*field)) {
            None => format!("there is no column '{}' in messages", field.escape_debug()),
            Some(_) if !field.starts_with(prefix) => {
                format!("'{field}' does not begin with the prefix '{prefix}'")
            }
            Some(column) if found.contains(&column) => format!("'{field}' is named twice"),
            Some(column) => {
                found.push(column);
                continue;
            }
        };
        return Err(options.error("key.fields", what, ""));
    }
    Ok(found)
}

/// Values beside the messages of a chunk: offsets, times, headers.
#[derive(Debug, Default)]
pub(crate) struct BesideValues {
    pub(crate) offsets: Vec<i64>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) appended: Vec<bool>,
    pub(crate) epochs: Vec<i32>,
    pub(crate) headers: HeaderValues,
}

/// The headers of the messages of a chunk.
#[derive(Debug, Default)]
pub(crate) struct HeaderValues {
    /// By message, the number of headers up to its last.
    pub(crate) ends: Vec<usize>,
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<Option<Vec<u8>>>,
}

impl BesideValues {
    /// The column of a table's field, of the messages with these numbers.
    pub(crate) fn column(
        &self,
        beside: Beside,
        field: &Field,
        (topic, partition): (&str, i32),
        rows: &[u32],
    ) -> Result<ArrayRef> {
        let numbers = |of: &[i64]| -> Int64Array {
            rows.iter().map(|row| of.get(*row as usize).copied()).collect()
        };
        let array: ArrayRef = match beside {
            Beside::Topic => Arc::new(StringArray::from_iter_values(rows.iter().map(|_| topic))),
            Beside::Partition => {
                Arc::new(Int32Array::from_iter_values(rows.iter().map(|_| partition)))
            }
            Beside::Offset => Arc::new(numbers(&self.offsets)),
            Beside::Timestamp => {
                let DataType::Timestamp(unit, _) = field.data_type() else {
                    return Err(Error::Internal(format!("'{}' is no timestamp", field.name())));
                };
                let ticks = |ms: i64| {
                    let ns = i128::from(ms) * tick_ns(TimeUnit::Millisecond);
                    i64::try_from(ns.div_euclid(tick_ns(*unit))).ok()
                };
                let ticks = rows.iter().map(|row| ticks(*self.timestamps.get(*row as usize)?));
                Arc::new(ticks.collect::<Int64Array>())
            }
            Beside::TimestampType => {
                let name = |appended: Option<&bool>| match appended {
                    Some(true) => "LogAppendTime",
                    _ => "CreateTime",
                };
                let names = rows.iter().map(|row| name(self.appended.get(*row as usize)));
                Arc::new(StringArray::from_iter_values(names))
            }
            Beside::LeaderEpoch => {
                let epochs = rows.iter().map(|row| self.epochs.get(*row as usize).copied());
                Arc::new(epochs.collect::<Int32Array>())
            }
            Beside::Headers => return self.headers.map(field, rows),
            Beside::HeaderList => return self.headers.list(field, rows),
        };
        match array.data_type() == field.data_type() {
            true => Ok(array),
            false => Ok(cast(&array, field.data_type())?),
        }
    }
}

impl HeaderValues {
    fn of(&self, row: u32) -> impl Iterator<Item = (&String, &Option<Vec<u8>>)> {
        let row = row as usize;
        let end = self.ends.get(row).copied().unwrap_or(0);
        let start = row.checked_sub(1).and_then(|row| self.ends.get(row)).copied().unwrap_or(0);
        let names = self.names.get(start..end).unwrap_or_default();
        names.iter().zip(self.values.get(start..end).unwrap_or_default())
    }

    /// Entries of rows, and how many each row has.
    fn entries(
        &self,
        fields: &Fields,
        rows: &[u32],
        last_only: bool,
    ) -> Result<(StructArray, OffsetBuffer<i32>)> {
        let (mut names, mut values) = (StringBuilder::new(), BinaryBuilder::new());
        let mut lengths = Vec::with_capacity(rows.len());
        for row in rows {
            let last: HashMap<&String, usize> = match last_only {
                true => self.of(*row).enumerate().map(|(at, (name, _))| (name, at)).collect(),
                false => HashMap::new(),
            };
            let mut length = 0;
            for (at, (name, value)) in self.of(*row).enumerate() {
                if last.get(name).is_none_or(|last| *last == at) {
                    names.append_value(name);
                    values.append_option(value.as_ref());
                    length += 1;
                }
            }
            lengths.push(length);
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(names.finish()), Arc::new(values.finish())];
        let entries = StructArray::try_new(fields.clone(), columns, None)?;
        Ok((entries, OffsetBuffer::from_lengths(lengths)))
    }

    fn map(&self, field: &Field, rows: &[u32]) -> Result<ArrayRef> {
        if let DataType::Map(of, sorted) = field.data_type()
            && let DataType::Struct(fields) = of.data_type()
        {
            let (entries, offsets) = self.entries(fields, rows, true)?;
            return Ok(Arc::new(MapArray::try_new(of.clone(), offsets, entries, None, *sorted)?));
        }
        Err(Error::Internal(format!("'{}' is no map", field.name())))
    }

    fn list(&self, field: &Field, rows: &[u32]) -> Result<ArrayRef> {
        if let DataType::List(of) = field.data_type()
            && let DataType::Struct(fields) = of.data_type()
        {
            let (entries, offsets) = self.entries(fields, rows, false)?;
            return Ok(Arc::new(ListArray::try_new(of.clone(), offsets, Arc::new(entries), None)?));
        }
        Err(Error::Internal(format!("'{}' is no array of rows", field.name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::table;

    /// The columns of a table `a INT, b STRING, c BIGINT` with a key.
    fn columns(options: &[(&str, &str)]) -> Result<Columns> {
        let columns = [("a", DataType::Int32), ("b", DataType::Utf8), ("c", DataType::Int64)];
        let table = table(&columns, options);
        Columns::new(&table, &Options::new(&table), true)
    }

    #[test]
    fn of_headers_with_one_name_a_map_has_the_last() {
        let value = |byte: u8| Some(vec![byte]);
        let headers = HeaderValues {
            ends: vec![3, 4],
            names: ["x", "y", "x", "x"].map(String::from).to_vec(),
            values: vec![value(1), None, value(2), value(3)],
        };
        let fields = header_fields("key", "value");
        for (last_only, expected) in [(true, "yxx"), (false, "xyxx")] {
            let (entries, offsets) = headers.entries(&fields, &[0, 1], last_only).unwrap();
            let names = entries.column(0).as_any().downcast_ref::<StringArray>().unwrap();
            assert_eq!(names.iter().flatten().collect::<String>(), expected);
            assert_eq!(offsets.last(), Some(&(expected.len() as i32)));
        }
        let (entries, _) = headers.entries(&fields, &[0], true).unwrap();
        let values =
            entries.column(1).as_any().downcast_ref::<arrow::array::BinaryArray>().unwrap();
        assert_eq!(values.iter().collect::<Vec<_>>(), [None, Some([2u8].as_slice())]);
    }

    #[test]
    fn the_key_has_the_order_of_the_option() {
        let found =
            columns(&[("key.fields", "c;a"), ("value.fields-include", "EXCEPT_KEY")]).unwrap();
        let names: Vec<&String> = found.key.fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["c", "a"]);
        assert_eq!(found.key_columns, [2, 0]);
        assert_eq!(found.origins, [Origin::Key(1), Origin::Value(0), Origin::Key(0)]);
        let twice = columns(&[("key.fields", "a;b;a")]).unwrap_err().to_string();
        assert!(twice.contains("'a' is named twice"), "{twice}");
    }
}
