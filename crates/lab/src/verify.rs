//! A sink that keeps checksums of the result rows, but not the rows.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream::{Error, RowOrder, Sink, Writers};
use millstream_workloads::{Spec, Verifier};

/// Reduces result rows to their checksums as they come, one verifier per worker.
#[derive(Debug)]
pub(crate) struct VerifySink(Vec<Mutex<Verifier>>);

impl VerifySink {
    pub(crate) fn new(spec: &Spec, workers: usize) -> Arc<VerifySink> {
        let verifiers = (0..workers).map(|_| Mutex::new(Verifier::new(spec)));
        Arc::new(VerifySink(verifiers.collect()))
    }

    /// Adds all that has come to `sum`.
    pub(crate) fn add_to(&self, sum: &mut Verifier) {
        for verifier in &self.0 {
            sum.merge(&verifier.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Sink for VerifySink {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, worker: usize, rows: &RecordBatch, _: bool) -> millstream::Result<()> {
        let mut verifier = self.0[worker].lock().unwrap_or_else(PoisonError::into_inner);
        verifier.add_batch(rows).map_err(|e| Error::Internal(e.to_string()))
    }
    /// Each process of a job checks its own rows.
    fn is_local(&self) -> bool {
        true
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}
