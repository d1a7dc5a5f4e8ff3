//! A topic as a sink.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_connect::Options;
use millstream_connect::messages::MessageWriter;
use millstream_contract::sink::{Manner, Prepared, RowOrder, Sealed, Sink, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};
use uuid::Uuid;

use super::options::{Guarantee, SinkOptions};
use super::rows::RowWriter;
use super::sender::{Base, Sender};
use crate::columns::{Beside, Columns, Origin};
use crate::formats;

/// A topic that is written.
pub struct KafkaSink {
    options: SinkOptions,
    table: String,
    rows: RowWriter,
    state: Mutex<SinkState>,
}

#[derive(Default)]
struct SinkState {
    manner: Manner,
    /// Where the job goes on.
    base: Option<Base>,
    sender: Option<Arc<Sender>>,
    series: String,
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("table", &self.table).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// A sink from `WITH` options. Connects only when it is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<KafkaSink> {
        let options = Options::new(table);
        let of = SinkOptions::from_options(table, &options)?;
        let key = formats::key(&options);
        let columns = Columns::new(table, &options, key.is_some())?;
        let value = formats::value(&options)?;
        let writer = |prefix: &str, schema: &SchemaRef| {
            let inner = formats::options(table, &options, prefix, schema)?;
            MessageWriter::from_options(&inner, schema)
                .map_err(|error| formats::with_prefix(error, prefix))
        };
        let all_of = |wanted: fn(&Origin) -> bool| -> Vec<usize> {
            let origins = columns.origins.iter().enumerate();
            origins.filter(|(_, origin)| wanted(origin)).map(|(column, _)| column).collect()
        };
        let beside = |which: Beside| {
            columns.origins.iter().position(|origin| *origin == Origin::Beside(which))
        };
        let key = key.map(|prefix| {
            let writer = writer(prefix, &columns.key)?;
            Ok::<_, Error>((writer, columns.key_columns.clone()))
        });
        let rows = RowWriter {
            value: writer(value, &columns.value)?,
            value_columns: all_of(|origin| matches!(origin, Origin::Value(_))),
            key: key.transpose()?,
            timestamp: beside(Beside::Timestamp),
            headers: beside(Beside::Headers),
        };
        options.finish("a table of Kafka")?;
        Ok(KafkaSink { options: of, table: table.name.clone(), rows, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_exact(&self) -> bool {
        self.options.guarantee == Guarantee::ExactlyOnce
    }

    fn with<T>(&self, of: impl FnOnce(&Sender) -> Result<T>) -> Option<Result<T>> {
        // The sender may wait, and other threads use the sink meanwhile.
        let sender = self.lock().sender.clone();
        sender.map(|sender| of(&sender))
    }
}

impl Sink for KafkaSink {
    fn expect(&self, manner: Manner) -> bool {
        self.lock().manner = manner;
        !manner.overwrites
    }

    fn open(&self, _schema: &SchemaRef, writers: Writers) -> Result<()> {
        let mut state = self.lock();
        if self.is_exact() && !state.manner.intervals {
            return Err(Error::Option {
                table: self.table.clone(),
                option: "sink.delivery-guarantee".into(),
                message: "'exactly-once' needs checkpoints: without them a job that is started \
                          again writes all rows again"
                    .into(),
                help: "run it with --checkpoint DIR, or write 'at-least-once'".into(),
            });
        }
        if let Some(why) = state.manner.varies.filter(|_| self.is_exact()) {
            return Err(Error::Option {
                table: self.table.clone(),
                option: "sink.delivery-guarantee".into(),
                message: format!(
                    "the rows of the query cannot be written exactly once: {why}, so that they, or \
                     their order, are others when they are computed again after a crash"
                ),
                help: "write 'at-least-once', or change the query".into(),
            });
        }
        let new = || Base { series: Uuid::from_u128(random()).to_string(), rows: 0 };
        let base = state.base.take().unwrap_or_else(new);
        state.series = base.series.clone();
        state.sender = Some(Arc::new(Sender::start(&self.options, &base, writers.memory_bytes)?));
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }

    fn commits(&self) -> bool {
        self.is_exact()
    }

    fn waits_for_checkpoint(&self) -> bool {
        self.is_exact()
    }

    fn replays(&self) -> bool {
        matches!(self.with(|sender| Ok(sender.replays())), Some(Ok(true)))
    }

    fn write(&self, _worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        let not_open = || Error::Internal("the sink is not open".into());
        let partitioner = self.options.partitioner;
        let written = self.with(|sender| {
            sender.take(rows.num_rows(), flush, |first, skipped| {
                let new = rows.slice(skipped, rows.num_rows() - skipped);
                let records = self.rows.records(&new)?.into_iter().enumerate();
                let numbered = records.map(|(at, record)| {
                    let number = first + at as u64;
                    let key = record.key.as_deref();
                    (partitioner.partition(number, key, sender.partitions), record)
                });
                Ok(numbered.collect())
            })
        });
        written.unwrap_or_else(|| Err(not_open()))
    }

    fn finish(&self) -> Result<()> {
        match self.with(|sender| sender.written(sender.rows())) {
            Some(result) => result,
            None => Ok(()),
        }
    }

    fn prepare(&self, interval: u64) -> Result<Prepared> {
        let state = self.lock();
        let sealed = state
            .sender
            .as_ref()
            .map(|sender| Sealed { from: state.series.clone(), to: sender.rows().to_string() });
        Ok(Prepared { interval, sealed: sealed.into_iter().collect() })
    }

    fn seal(&self, prepared: &mut Prepared) -> Result<()> {
        let rows = prepared.sealed.first().and_then(|sealed| sealed.to.parse().ok());
        match (rows, self.options.guarantee) {
            (Some(rows), Guarantee::AtLeastOnce | Guarantee::ExactlyOnce) => {
                self.with(|sender| sender.written(rows)).unwrap_or(Ok(()))
            }
            _ => Ok(()),
        }
    }

    fn commit(&self, prepared: &Prepared) -> Result<()> {
        let mut state = self.lock();
        match &state.sender {
            Some(sender) => sender.note_checkpoint(),
            None => {
                let base = prepared.sealed.first().and_then(|sealed| {
                    Some(Base { series: sealed.from.clone(), rows: sealed.to.parse().ok()? })
                });
                state.base = base.or(state.base.take());
            }
        }
        Ok(())
    }
}

/// A random number, the name of a new series.
fn random() -> u128 {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 16];
    // Without random numbers the clock has to do.
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return now.unwrap_or_default().as_nanos();
    }
    u128::from_be_bytes(bytes)
}
