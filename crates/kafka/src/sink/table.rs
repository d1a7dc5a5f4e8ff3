//! A topic as a sink.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_connect::Options;
use millstream_contract::sink::{Manner, Prepared, RowOrder, Sealed, Sink, Tell, Writers};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};
use uuid::Uuid;

use super::numbered::{Base, Row, random};
use super::options::{Guarantee, SinkOptions};
use super::rows::RowWriter;
use super::sender::Sender;
use super::spool::{Interval, Place, Spool};
use super::upsert::as_kafka;
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
    /// A place beside the checkpoints.
    beside: Option<PathBuf>,
    /// Where the job goes on.
    base: Option<Base>,
    way: Option<Way>,
    series: String,
}

/// The way of rows to Kafka, once the sink is open.
#[derive(Clone)]
enum Way {
    /// At once.
    Sender(Arc<Sender>),
    /// At their checkpoint.
    Spool(Arc<Spool>),
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
        let writer =
            |prefix: &str, schema: &SchemaRef| formats::writer(table, &options, prefix, schema);
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
            needs_key: false,
            timestamp: beside(Beside::Timestamp),
            headers: beside(Beside::Headers),
        };
        options.finish("a table of Kafka")?;
        Ok(KafkaSink { options: of, table: table.name.clone(), rows, state: Mutex::default() })
    }

    /// A sink of the connector `upsert-kafka`, as [`KafkaSink::from_options`].
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn of_upserts(table: &TableOptions) -> Result<KafkaSink> {
        let mut sink = KafkaSink::from_options(&as_kafka(table)?)?;
        sink.rows.needs_key = true;
        Ok(sink)
    }

    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_exact(&self) -> bool {
        self.options.guarantee == Guarantee::ExactlyOnce
    }

    /// Why rows wait for their checkpoint; `None`: they do not.
    fn why_spooled(&self, manner: Manner) -> Option<&'static str> {
        let named = self.options.spool.is_some().then_some("'sink.spool' is given");
        manner.varies.or(named).filter(|_| self.is_exact())
    }

    /// Where rows wait for their checkpoint.
    fn place(&self, beside: Option<&Path>) -> Result<Place> {
        let refused = |option: &str, message: &str, help: &str| Error::Option {
            table: self.table.clone(),
            option: option.into(),
            message: message.into(),
            help: help.into(),
        };
        let path = self.options.spool.as_deref().or(beside).ok_or_else(|| {
            let message = "rows have to wait for their checkpoint, and there is no place for them";
            refused("sink.spool", message, "write 'sink.spool' = 'DIR'")
        })?;
        let id = self.options.producer.transactional_id.as_deref().ok_or_else(|| {
            let message = "rows of the last checkpoint have yet to be written exactly once";
            refused("sink.delivery-guarantee", message, "run the job as it was once more")
        })?;
        Place::new(path, id)
    }

    /// A place beside the checkpoints.
    fn beside(&self) -> Option<PathBuf> {
        self.lock().beside.clone()
    }

    /// The records of rows, the first of which has this number.
    fn records(&self, rows: &RecordBatch, first: u64, partitions: i32) -> Result<Vec<Row>> {
        let records = self.rows.records(rows)?.into_iter().zip(first..);
        let numbered = records.map(|(record, number)| {
            let key = record.key.as_deref();
            (self.options.partitioner.partition(number, key, partitions), record)
        });
        Ok(numbered.collect())
    }

    /// The way of rows. A call of it may wait, and other threads use the sink meanwhile.
    fn way(&self) -> Option<Way> {
        self.lock().way.clone()
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
        self.rows.open()?;
        let new =
            || Base { series: Uuid::from_u128(random()).to_string(), rows: 0, spooled: false };
        let resumed = state.base.take();
        let resumes = resumed.is_some();
        let base = resumed.unwrap_or_else(new);
        state.series = base.series.clone();
        state.way = Some(match self.why_spooled(state.manner) {
            None => {
                let sender = Sender::start(&self.options, (&base, resumes), writers.memory_bytes)?;
                Way::Sender(Arc::new(sender))
            }
            Some(_) => {
                let place = self.place(state.beside.as_deref())?;
                let how = (resumes, state.manner.varies.is_some());
                Way::Spool(Arc::new(Spool::start(place, &self.options, &base, how)?))
            }
        });
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }

    fn commits(&self) -> bool {
        self.is_exact()
    }

    fn waits_for_checkpoint(&self) -> bool {
        self.is_exact() && self.why_spooled(self.lock().manner).is_none()
    }

    fn keep_in(&self, path: &Path) {
        self.lock().beside = Some(path.to_path_buf());
    }

    fn listen(&self, tell: Tell) {
        self.options.away.listen(tell);
    }

    fn interrupt(&self) -> bool {
        let saves = self.lock().manner.intervals && self.options.guarantee != Guarantee::None;
        let loss = if saves { "no row is lost" } else { "rows that wait for it are lost" };
        let is_away = self.options.away.end(loss);
        if let Some(Way::Sender(sender)) = self.way() {
            sender.wake();
        }
        is_away
    }

    fn promise(&self) -> Option<String> {
        let once = "each row exactly once by";
        self.is_exact().then(|| match self.why_spooled(self.lock().manner) {
            None => format!("{once} replay, visible at once"),
            Some(why) => format!("{once} a spool, visible when its checkpoint is written: {why}"),
        })
    }

    fn replays(&self) -> bool {
        match self.way() {
            Some(Way::Sender(sender)) => sender.replays(),
            Some(Way::Spool(spool)) => spool.replays(),
            None => false,
        }
    }

    fn write(&self, _worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        let count = rows.num_rows();
        let rest = |left_out: usize| rows.slice(left_out, count - left_out);
        match self.way() {
            None => Err(Error::Internal("the sink is not open".into())),
            Some(Way::Sender(sender)) => sender.take(count, flush, |first, left_out| {
                self.records(&rest(left_out), first, sender.partitions)
            }),
            Some(Way::Spool(spool)) => spool.take(count, |first, left_out| {
                self.records(&rest(left_out), first, spool.partitions)
            }),
        }
    }

    fn finish(&self) -> Result<()> {
        match self.way() {
            Some(Way::Sender(sender)) => sender.written(sender.rows()),
            Some(Way::Spool(_)) | None => Ok(()),
        }
    }

    fn prepare(&self, interval: u64) -> Result<Prepared> {
        let state = self.lock();
        let sealed = match &state.way {
            Some(Way::Sender(sender)) => {
                vec![Sealed { from: state.series.clone(), to: sender.rows().to_string() }]
            }
            Some(Way::Spool(spool)) => spool.prepare(),
            None => Vec::new(),
        };
        Ok(Prepared { interval, sealed })
    }

    fn seal(&self, prepared: &mut Prepared) -> Result<()> {
        match self.way() {
            Some(Way::Sender(sender)) if self.options.guarantee != Guarantee::None => {
                let rows = prepared.sealed.first().and_then(|sealed| sealed.to.parse().ok());
                let Some(rows) = rows else { return Ok(()) };
                // Rows before the first checkpoint are kept with it, and are sent behind it.
                match sender.unsent(rows) {
                    None => sender.written(rows),
                    Some((_, unsent)) if unsent.is_empty() => Ok(()),
                    Some((first, unsent)) => {
                        let kept = self.place(self.beside().as_deref())?.keep(first, &unsent)?;
                        prepared.sealed.push(kept);
                        Ok(())
                    }
                }
            }
            Some(Way::Spool(spool)) => spool.seal(prepared),
            Some(Way::Sender(_)) | None => Ok(()),
        }
    }

    fn commit(&self, prepared: &Prepared) -> Result<()> {
        match self.way() {
            Some(Way::Sender(sender)) => {
                sender.note_checkpoint();
                let kept = Interval::new(prepared)?.filter(|interval| interval.is_spooled());
                if let Some(interval) = kept {
                    sender.written(interval.base.rows)?;
                    self.place(self.beside().as_deref())?.delete_of(&interval);
                }
            }
            Some(Way::Spool(spool)) => spool.commit(prepared)?,
            None => {
                let Some(interval) = Interval::new(prepared)? else { return Ok(()) };
                if interval.is_spooled() {
                    let place = self.place(self.beside().as_deref())?;
                    interval.commit(&place, &self.options)?;
                }
                self.lock().base = Some(interval.base);
            }
        }
        Ok(())
    }
}
