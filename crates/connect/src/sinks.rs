//! Sinks without output: [`BlackholeSink`] counts rows, [`CollectSink`] keeps batches for the
//! program.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::sink::{RowOrder, Sink, Writers};

/// Counts rows and forgets them: `'connector' = 'blackhole'`.
#[derive(Debug, Default)]
pub struct BlackholeSink {
    rows: AtomicU64,
}

impl BlackholeSink {
    /// A sink that has seen no rows.
    pub fn new() -> BlackholeSink {
        BlackholeSink::default()
    }

    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

impl Sink for BlackholeSink {
    fn open(&self, _schema: &SchemaRef, _writers: Writers) -> Result<()> {
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Any
    }

    fn is_local(&self) -> bool {
        true
    }

    fn write(&self, _worker: usize, rows: &RecordBatch, _flush: bool) -> Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// Keeps all rows in memory, for programs and tests that want them as Arrow batches.
#[derive(Debug)]
pub struct CollectSink {
    order: RowOrder,
    collected: Mutex<Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    finished: bool,
}

impl CollectSink {
    /// An empty sink that wants its rows in `order`.
    pub fn new(order: RowOrder) -> CollectSink {
        CollectSink { order, collected: Mutex::default() }
    }

    /// Batches that have arrived since the last call, in order of arrival. Empty batches are left
    /// out.
    pub fn take(&self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.lock().batches)
    }

    /// The schema of the rows, once the job has opened the sink.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.lock().schema.clone()
    }

    /// Whether the job has delivered its last row.
    pub fn finished(&self) -> bool {
        self.lock().finished
    }

    /// A panic elsewhere cannot leave the content half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for CollectSink {
    fn open(&self, schema: &SchemaRef, _writers: Writers) -> Result<()> {
        *self.lock() = Collected { schema: Some(schema.clone()), ..Collected::default() };
        Ok(())
    }

    fn order(&self) -> RowOrder {
        self.order
    }

    fn write(&self, _worker: usize, rows: &RecordBatch, _flush: bool) -> Result<()> {
        if rows.num_rows() > 0 {
            self.lock().batches.push(rows.clone());
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.lock().finished = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn rows_are_counted_and_kept() {
        let column = |rows| Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
        let batch = |rows| RecordBatch::try_from_iter([("n", column(rows))]).unwrap();
        let (hole, kept) = (BlackholeSink::new(), CollectSink::new(RowOrder::Any));
        for sink in [&hole as &dyn Sink, &kept] {
            sink.open(&batch(0).schema(), Writers::alone()).unwrap();
            for rows in [3, 0, 4] {
                sink.write(0, &batch(rows), false).unwrap();
            }
            sink.finish().unwrap();
        }
        assert_eq!(hole.rows(), 7);
        assert_eq!(kept.take(), [batch(3), batch(4)]);
        assert!(kept.take().is_empty() && kept.finished());
        assert_eq!(kept.schema(), Some(batch(0).schema()));
    }
}
