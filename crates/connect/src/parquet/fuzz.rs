//! A fuzz target: a Parquet file of any content gives rows or an error, never a panic, and the same
//! rows from any position, with any columns left out and with statistics looked at.

use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use millstream_contract::compare::Comparison;
use millstream_contract::pruning::{AnyOf, Condition, Pruning};

use super::{ParquetSplit, schema_of};
use crate::fuzz::check;
use crate::input::Input;
use crate::records::Reading;

/// Reads `data` as a Parquet file of the columns that it declares, the first byte choosing what is
/// asked of them. Returns whether it can be read.
///
/// # Panics
///
/// If the rows depend on how the file is read, which would be a bug.
#[doc(hidden)]
pub fn fuzz_parquet(data: &[u8]) -> bool {
    let (choice, content) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let Ok((schema, _)) = schema_of(Input::memory(content), "fuzz".into()) else { return false };
    let asked = schema.fields().iter().position(|field| *field.data_type() == DataType::Int64);
    let condition = asked.map(|column| Condition {
        column,
        comparison: [Comparison::Less, Comparison::GreaterOrEqual][usize::from(choice) & 1],
        constant: Arc::new(Int64Array::from(vec![i64::from(choice)])),
    });
    let pruning = Pruning {
        conditions: condition.into_iter().map(|one| AnyOf(vec![one])).collect(),
        always: Vec::new(),
    };
    let open = |reading: &Reading<'_>| {
        ParquetSplit::open(Input::memory(content), reading).map(|split| Box::new(split) as _)
    };
    check(&open, &Arc::new(schema), usize::from(choice), &pruning).is_some()
}
