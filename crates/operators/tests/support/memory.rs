//! A table in memory.

use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::table::{OpenOptions, Position, Sharing, Split, SplitPoll, Table};

/// Batches in memory, one list per split.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) schema: SchemaRef,
    pub(crate) splits: Vec<Vec<RecordBatch>>,
    /// How processes share them.
    pub(crate) sharing: Sharing,
}

struct MemorySplit(std::vec::IntoIter<RecordBatch>, Sharing);

impl Split for MemorySplit {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "memory"
    }
    fn sharing(&self) -> Sharing {
        self.1
    }
    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        Ok(self.0.next().map_or(SplitPoll::Ended, |batch| SplitPoll::Chunk(Box::new(batch))))
    }
}

impl Table for Memory {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, projection: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let split = |batches: &Vec<RecordBatch>| -> Box<dyn Split> {
            let project = |b: &RecordBatch| b.project(projection).unwrap();
            let batches = batches.iter().map(project).collect::<Vec<_>>();
            Box::new(MemorySplit(batches.into_iter(), self.sharing))
        };
        Ok(self.splits.iter().map(split).collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "memory".into()
    }
}
