//! Tables for tests, and tests of the connector.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use millstream_contract::table::TableOptions;

use super::*;

/// A table of columns that may be NULL, read from its first record on if it is read.
pub(crate) fn table(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> TableOptions {
    let fields = columns.iter().map(|(name, of)| Field::new(*name, of.clone(), true));
    let usual = [
        ("topic", "t"),
        ("properties.bootstrap.servers", "localhost:1"),
        ("scan.startup.mode", "earliest-offset"),
    ];
    let options = usual.iter().chain(options);
    TableOptions {
        name: "t".into(),
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        metadata: BTreeMap::new(),
        options: options.map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        partitioned_by: Vec::new(),
        base_dir: ".".into(),
        exact: false,
    }
}

#[test]
fn what_one_side_does_not_use_is_accepted_by_both() {
    let options = [
        ("format", "json"),
        ("sink.transaction-naming-strategy", "POOLING"),
        ("properties.key.serializer", "a"),
        ("properties.value.serializer", "b"),
        ("properties.key.deserializer", "c"),
    ];
    let table = table(&[("v", DataType::Int32)], &options);
    check(&table).unwrap();
    KafkaTable::from_options(&table).unwrap();
    KafkaSink::from_options(&table).unwrap();
}
