//! The table that a query without FROM reads: one row without columns.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use millstream_contract::error::Result;
use millstream_contract::table::{OpenOptions, Split, SplitPoll, Table};

use crate::catalog::{Origin, TableEntry};

/// A table of one row.
#[derive(Debug)]
struct OneRow;

/// Its entry, which no name stands for.
pub(crate) fn one_row() -> Arc<TableEntry> {
    let origin = Origin::Table(Arc::new(OneRow));
    Arc::new(TableEntry { name: "one row".into(), columns: vec![], event_time: None, origin })
}

impl Table for OneRow {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::empty())
    }

    fn bounded(&self) -> bool {
        true
    }

    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        Ok(vec![Box::new(OneSplit { ended: false })])
    }

    fn describe(&self, _: &[usize]) -> String {
        "one row, without a table".into()
    }
}

struct OneSplit {
    ended: bool,
}

impl Split for OneSplit {
    fn name(&self) -> &str {
        "one row"
    }

    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(SplitPoll::Ended);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let schema = Arc::new(Schema::empty());
        let row = RecordBatch::try_new_with_options(schema, vec![], &options)?;
        Ok(SplitPoll::Chunk(Box::new(row)))
    }
}
