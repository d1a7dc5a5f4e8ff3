//! The sink: a job's rows go to a table of another job, as those of a producer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_connect::Options;
use millstream_contract::sink::{RowOrder, Sink, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use crate::producer::{Producer, ProducerOptions};

/// The option that tells a table to write from a table to read.
pub(crate) const CONNECT: &str = "connect";

/// Rows for a table of another job, which listens for producers with rings.
#[derive(Debug)]
pub struct ChannelSink {
    options: ProducerOptions,
    producer: Mutex<Option<Producer>>,
}

impl ChannelSink {
    /// A sink from `WITH` options. Connects when it is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<ChannelSink> {
        let options = Options::new(table);
        let Some(address) = options.text(CONNECT) else {
            let help = "say where the other job listens, for example 'connect' = '127.0.0.1:8815'";
            return Err(options.error(CONNECT, "INSERT INTO needs the option".into(), help));
        };
        let mut producer =
            ProducerOptions::new(address, options.text("name").unwrap_or(&table.name));
        if let Some(name) = options.text("producer") {
            producer = producer.name(name);
        }
        if let Some(token) = options.text("token") {
            producer = producer.token(token);
        }
        options.finish("a channel table to write")?;
        Ok(ChannelSink { options: producer, producer: Mutex::new(None) })
    }

    /// A panic elsewhere cannot leave the producer half changed, so a poisoned lock is as good.
    fn producer(&self) -> MutexGuard<'_, Option<Producer>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a table to write.
pub(crate) fn refuse_reading(table: &TableOptions) -> Result<()> {
    let options = Options::new(table);
    match options.text(CONNECT) {
        None => Ok(()),
        Some(_) => {
            let message = "a table with this option is written, and cannot be read".to_string();
            Err(options.error(CONNECT, message, "say 'listen' for a table to read"))
        }
    }
}

impl Sink for ChannelSink {
    fn open(&self, schema: &SchemaRef, _writers: Writers) -> Result<()> {
        *self.producer() = Some(self.options.connect(schema)?);
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }

    fn write(&self, _worker: usize, rows: &RecordBatch, _flush: bool) -> Result<()> {
        let not_open = || Error::Internal("a channel sink that is not open".into());
        self.producer().as_mut().ok_or_else(not_open)?.send(rows)
    }

    /// Waits until the other job has taken all rows.
    fn finish(&self) -> Result<()> {
        let producer = self.producer().take();
        producer.map_or(Ok(0), Producer::finish).map(drop)
    }
}

/// Whether the options are those of a table that may be read or written.
pub(crate) fn check(table: &TableOptions) -> Result<()> {
    match table.options.contains_key(CONNECT) {
        true => ChannelSink::from_options(table).map(drop),
        false => crate::ChannelSource::from_options(table).map(drop),
    }
}

/// As a connector makes it.
pub(crate) fn make(table: &TableOptions) -> Result<Arc<dyn Sink>> {
    Ok(Arc::new(ChannelSink::from_options(table)?))
}
