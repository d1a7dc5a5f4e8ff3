//! Columns beside a batch's own: times of rows, and places of rows in the order of all records.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::{Error, Result};

/// The column of a batch that has the event times of its rows, in microseconds.
pub(crate) const TIMES: &str = "$time";
/// Column of the order, and of its beginning alone.
pub(crate) const ORDER: &str = "$order";
pub(crate) const HEADS: &str = "$heads";

/// How far the order of rows is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ordering {
    Nothing,
    /// Of fired rows, the beginning: few rows need to be compared by their values.
    Heads,
    Whole,
}

/// Places of a batch's records in the order of all records: the batch's last column.
pub(crate) fn order_of(batch: &RecordBatch) -> Result<&BinaryArray> {
    let order = batch.columns().last().and_then(|column| column.as_binary_opt::<i32>());
    order.ok_or_else(|| Error::Internal("records without an order".into()))
}

/// Of rows with the beginning of their order alone: this, and the columns that decide further.
pub(crate) fn of_heads(batch: &RecordBatch) -> Option<(&BinaryArray, Vec<ArrayRef>)> {
    let schema = batch.schema_ref();
    let heads = schema.fields().last().filter(|field| field.name() == HEADS)?;
    let own = |field: &str| field != HEADS && field != TIMES;
    let fields = schema.fields().iter().zip(batch.columns());
    let columns = fields.filter(|(field, _)| own(field.name())).map(|(_, column)| column.clone());
    let (columns, heads) = (columns.collect(), batch.column_by_name(heads.name())?);
    Some((heads.as_binary_opt::<i32>()?, columns))
}

/// Values of rows as comparable bytes: of some rows, or of all; `None` if no column has an order.
pub(crate) fn values_in_order(columns: &[ArrayRef], rows: Option<&[u32]>) -> Result<Option<Rows>> {
    // Maps have no order: rows that differ in maps alone come in any order.
    let field = |column: &&ArrayRef| SortField::new(column.data_type().clone());
    let ordered = |column: &&ArrayRef| RowConverter::supports_fields(&[field(column)]);
    let columns: Vec<&ArrayRef> = columns.iter().filter(ordered).collect();
    if columns.is_empty() {
        return Ok(None);
    }
    let converter = RowConverter::new(columns.iter().map(field).collect())?;
    let columns: Vec<ArrayRef> = match rows.map(|rows| UInt32Array::from(rows.to_vec())) {
        None => columns.into_iter().cloned().collect(),
        Some(rows) => {
            let taken = columns.into_iter().map(|column| take(column, &rows, None));
            taken.collect::<std::result::Result<_, _>>()?
        }
    };
    Ok(Some(converter.convert_columns(&columns)?))
}
