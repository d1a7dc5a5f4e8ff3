//! A sink that notes how much of the input had been handed out when its rows came.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, TimestampMillisecondType};
use millstream_contract::Result;
use millstream_contract::sink::{RowOrder, Sink, Writers};

/// Notes, for each window, how far the input had been handed out when its first row came.
#[derive(Debug)]
pub(crate) struct Watch {
    /// What each split has handed out.
    pub(crate) handed_out: Arc<Vec<AtomicI64>>,
    /// Window start (ms) and the least watermark handed out at that moment.
    pub(crate) seen: Mutex<Vec<(i64, i64)>>,
}

impl Sink for Watch {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        let least = self.handed_out.iter().map(|w| w.load(Ordering::SeqCst)).min().unwrap();
        let starts = rows.column(0).as_primitive::<TimestampMillisecondType>();
        let mut seen = self.seen.lock().unwrap();
        seen.extend(starts.values().iter().map(|start| (*start, least)));
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
