//! The columns of records that do not count.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::error::Result;
use crate::table::LeftOut;

/// The column that says where a record stands that does not count, for example `events.csv:17`.
pub const PLACE: &str = "place";
/// The column that says why it does not count.
pub const REASON: &str = "reason";
/// The column that has the bytes of a malformed record.
pub const RAW: &str = "raw";

/// The columns of [`Node::Malformed`](super::Node::Malformed): [`RAW`], [`PLACE`] and [`REASON`],
/// none of them ever NULL.
pub fn malformed_schema() -> SchemaRef {
    MALFORMED.clone()
}

/// Malformed records as rows of [`malformed_schema`]: the bytes of each, and what is wrong with it.
///
/// # Errors
/// If they are not as many, or take more than 2 GB.
pub fn malformed_rows(raw: &[Vec<u8>], wrong: &[LeftOut]) -> Result<RecordBatch> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(raw.iter().map(Some).collect::<BinaryArray>()),
        Arc::new(StringArray::from_iter_values(wrong.iter().map(|wrong| &wrong.place))),
        Arc::new(StringArray::from_iter_values(wrong.iter().map(|wrong| &wrong.message))),
    ];
    Ok(RecordBatch::try_new(malformed_schema(), columns)?)
}

pub(super) static MALFORMED: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new(RAW, DataType::Binary, false),
        Field::new(PLACE, DataType::Utf8, false),
        Field::new(REASON, DataType::Utf8, false),
    ]))
});

/// The two columns that follow those of a source whose records are late.
pub fn late_fields() -> [Field; 2] {
    [PLACE, REASON].map(|name| Field::new(name, DataType::Utf8, false))
}
