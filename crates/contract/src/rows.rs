//! Rows on their way from a stage to stages, outputs and sinks: final, or changes of earlier ones.

use arrow::array::RecordBatch;

use crate::error::{Error, Result};

/// Rows of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// The rows.
    pub batch: RecordBatch,
    /// Their kind.
    pub kind: RowsKind,
}

/// The relation of rows to earlier rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowsKind {
    /// Each row is new, and no later row changes it.
    #[default]
    Final,
    /// A row may take the place of an earlier one, or take it back.
    Changes,
}

impl Rows {
    /// Final rows.
    pub fn of_final(batch: RecordBatch) -> Rows {
        Rows { batch, kind: RowsKind::Final }
    }

    /// The batch of final rows, for a taker that knows no others; an error for changes.
    pub fn finals(&self, taker: &str) -> Result<&RecordBatch> {
        match self.kind {
            RowsKind::Final => Ok(&self.batch),
            RowsKind::Changes => Err(changes_refused(taker)),
        }
    }
}

/// The error of a taker that knows final rows only.
pub fn changes_refused(taker: &str) -> Error {
    Error::Io {
        place: taker.into(),
        message: "it takes final rows only, and the query gives changes of earlier rows".into(),
        help: "group by windows (TUMBLE, HOP, SESSION), whose rows are final".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn changes_are_refused_by_a_taker_of_final_rows() {
        let rows = Rows::of_final(RecordBatch::new_empty(Arc::new(Schema::empty())));
        assert_eq!(rows.finals("table 'out'").unwrap(), &rows.batch);
        let changes = Rows { kind: RowsKind::Changes, ..rows };
        let error = changes.finals("table 'out'").unwrap_err().to_string();
        assert!(error.contains("table 'out'") && error.contains("final rows only"), "{error}");
    }
}
