//! Instants of 96 bits: a day and the nanoseconds of it, as Spark, Hive and Impala write them.
//!
//! They are read as microseconds, as Spark does: these reach all years, where nanoseconds in 64
//! bits would wrap around before 1677 and after 2262.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::basic::Type as Physical;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

/// The fields of a file as Arrow has them by itself, with instants of 96 bits in microseconds;
/// `None` if there are none.
pub(super) fn in_micros(fields: &Fields, schema: &SchemaDescriptor) -> Option<Fields> {
    let is_instant = |leaf: &ColumnDescPtr| leaf.physical_type() == Physical::INT96;
    if !schema.columns().iter().any(is_instant) {
        return None;
    }
    let mut leaves = schema.columns().iter().map(is_instant);
    Some(fields.iter().map(|field| with_leaves(field, &mut leaves)).collect())
}

/// The field with instants' types; `leaves` tells for each leaf column, in order, if it is an
/// instant.
fn with_leaves(field: &FieldRef, leaves: &mut dyn Iterator<Item = bool>) -> FieldRef {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct, Timestamp};
    let data_type = match field.data_type() {
        List(item) => List(with_leaves(item, leaves)),
        LargeList(item) => LargeList(with_leaves(item, leaves)),
        FixedSizeList(item, length) => FixedSizeList(with_leaves(item, leaves), *length),
        Map(entries, sorted) => Map(with_leaves(entries, leaves), *sorted),
        Struct(fields) => Struct(fields.iter().map(|field| with_leaves(field, leaves)).collect()),
        leaf => match (leaf, leaves.next()) {
            (Timestamp(TimeUnit::Nanosecond, zone), Some(true)) => {
                Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            _ => return field.clone(),
        },
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
}
