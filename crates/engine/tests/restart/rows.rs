//! The sinks of jobs that are stopped and resumed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use millstream_contract::Result;
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};

use super::kept::Kept;
use crate::support::lines;

/// The sink of an output in a process.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) kept: Arc<Kept>,
    pub(crate) output: usize,
    pub(crate) process: usize,
    pub(crate) order: RowOrder,
    /// Each process writes its own rows.
    pub(crate) is_local: bool,
}

impl Sink for Rows {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        self.order
    }
    fn is_local(&self) -> bool {
        self.is_local
    }
    fn replays(&self) -> bool {
        let log = self.kept.log.lock().unwrap();
        log.get(self.output).is_some_and(|(all, at)| *at < all.len())
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        let rows = lines(rows);
        if self.kept.replays.load(Relaxed) {
            self.kept.note_written(self.output, &rows);
        }
        let mut pending = self.kept.pending.lock().unwrap();
        pending.entry((self.output, self.process)).or_default().extend(rows);
        Ok(())
    }
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        Ok(self.kept.seal(self.output, self.process, interval))
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
