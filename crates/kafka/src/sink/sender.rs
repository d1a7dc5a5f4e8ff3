//! The thread that sends rows.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use millstream_contract::{Error, Result};

use super::options::{Guarantee, SinkOptions};
use crate::client::cluster::Cluster;
use crate::client::encode::NewRecord;
use crate::client::fault::{Fault, Outcome};
use crate::client::producer::{Marker, Producer};

/// Rows of so many bytes are sent before their window is whole.
const SEND_BYTES: usize = 1 << 20;
/// Rows of so many bytes may wait before the first checkpoint.
const WITHOUT_CHECKPOINT_BYTES: usize = 256 << 20;
/// Faults in a row after which a transaction is given up.
const TRIES: usize = 5;

/// Where a job's rows begin that goes on: the number of rows before the cut, and the name of the
/// series of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) series: String,
    pub(super) rows: u64,
}

struct State {
    /// The numbers of rows, from the first that waits.
    waiting: Vec<(i32, NewRecord)>,
    waiting_bytes: usize,
    /// The number of the next row that comes.
    next: u64,
    /// Rows below this number are in Kafka.
    written: u64,
    /// Rows below this number came before, and are left out.
    known: u64,
    flush: bool,
    /// Whether a checkpoint is there from which the series of numbers goes on.
    has_checkpoint: bool,
    stop: bool,
    failed: Option<Error>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    options: SinkOptions,
    series: String,
    waiting_bytes_max: usize,
}

/// The rows on their way to a topic.
pub(super) struct Sender {
    shared: Arc<Shared>,
    pub(super) partitions: i32,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, Duration::from_secs(5));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn failed(&self, fault: Fault) -> Error {
        fault.error(&self.options.client.shown())
    }
}

impl Sender {
    /// Begins: finds the topic, and, of a job that goes on, the rows that are there.
    pub(super) fn start(options: &SinkOptions, base: &Base, memory_bytes: u64) -> Result<Sender> {
        let cluster = Cluster::new(options.client.clone(), true);
        let mut producer = Producer::new(cluster, options.producer.clone());
        let failed = |fault: Fault| fault.error(&options.client.shown());
        producer.begin().map_err(failed)?;
        let exactly = options.guarantee == Guarantee::ExactlyOnce;
        let known = match exactly {
            true => known_rows(&mut producer, options, base).map_err(failed)?,
            false => base.rows,
        };
        let partitions = producer.partitions();
        let most = usize::try_from(memory_bytes / 16).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                waiting: Vec::new(),
                waiting_bytes: 0,
                next: base.rows,
                written: known,
                known,
                flush: false,
                has_checkpoint: !exactly || base.rows > 0 || known > 0,
                stop: false,
                failed: None,
            }),
            changed: Condvar::new(),
            options: options.clone(),
            series: base.series.clone(),
            waiting_bytes_max: most.clamp(1 << 20, 64 << 20),
        });
        let own = shared.clone();
        let spawned =
            thread::Builder::new().name("kafka sender".into()).spawn(move || send(&own, producer));
        spawned.map_err(|error| failed(Fault::internal(error.to_string())))?;
        Ok(Sender { shared, partitions })
    }

    /// Whether the next row is one that is there.
    pub(super) fn replays(&self) -> bool {
        let state = self.shared.lock();
        state.next < state.known
    }

    /// Takes the next rows. `records` makes records of the rows from a number on.
    pub(super) fn take(
        &self,
        rows: usize,
        flush: bool,
        records: impl FnOnce(u64, usize) -> Result<Vec<(i32, NewRecord)>>,
    ) -> Result<()> {
        let (next, known) = {
            let state = self.shared.lock();
            (state.next, state.known)
        };
        let skipped = usize::try_from(known.saturating_sub(next)).unwrap_or(usize::MAX).min(rows);
        let first = next + skipped as u64;
        let new = if skipped == rows { Vec::new() } else { records(first, skipped)? };
        let bytes: usize = new.iter().map(|(_, record)| record.bytes()).sum();
        let mut state = self.shared.lock();
        // Together: the thread numbers the rows that wait from `next` on backwards.
        state.next += rows as u64;
        state.waiting.extend(new);
        state.waiting_bytes += bytes;
        state.flush |= flush;
        self.shared.changed.notify_all();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if !state.has_checkpoint {
                // Its workers must not wait here, or there will be none.
                return match state.waiting_bytes > WITHOUT_CHECKPOINT_BYTES {
                    false => Ok(()),
                    true => Err(self.shared.failed(Fault::Fatal {
                        place: format!("topic '{}'", self.shared.options.producer.topic),
                        message: "rows wait for the job's first checkpoint, and there is none"
                            .into(),
                        help: "see why checkpoints fail, or write 'at-least-once'".into(),
                    })),
                };
            }
            if state.waiting_bytes <= self.shared.waiting_bytes_max {
                return Ok(());
            }
            state = self.shared.wait(state);
        }
    }

    /// How many rows have come, with those before the job went on.
    pub(super) fn rows(&self) -> u64 {
        self.shared.lock().next
    }

    /// The job's first checkpoint is there.
    pub(super) fn note_checkpoint(&self) {
        self.shared.lock().has_checkpoint = true;
        self.shared.changed.notify_all();
    }

    /// Waits until so many rows are in Kafka.
    pub(super) fn written(&self, rows: u64) -> Result<()> {
        let mut state = self.shared.lock();
        state.flush = true;
        // A first checkpoint behind some rows: these rows have to be in the topic.
        state.has_checkpoint |= rows > state.written;
        self.shared.changed.notify_all();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.written >= rows {
                return Ok(());
            }
            state = self.shared.wait(state);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
    }
}

/// Rows below this number are in Kafka, as the last marker says.
fn known_rows(producer: &mut Producer, options: &SinkOptions, base: &Base) -> Outcome<u64> {
    let id = options.producer.transactional_id.as_deref().unwrap_or_default();
    let lost = |message: String| Fault::Fatal {
        place: format!("transactional id '{}'", id.escape_debug()),
        message,
        help: "begin anew with --fresh and another 'sink.transactional-id-prefix', or write \
               'at-least-once'"
            .into(),
    };
    match producer.marker()? {
        // The first start of this job: markers of other jobs do not count.
        None if base.rows == 0 => Ok(0),
        Some(marker) if !of_series(&marker, &base.series) && base.rows == 0 => Ok(0),
        None => Err(lost(format!(
            "{} rows are in the topic, and the broker has forgotten how many more \
             (offsets.retention.minutes)",
            base.rows
        ))),
        Some(marker) if !of_series(&marker, &base.series) => Err(lost(
            "another job has written with the same 'sink.transactional-id-prefix' since".into(),
        )),
        Some(marker) => {
            let rows = u64::try_from(marker.offset).unwrap_or(0);
            match rows >= base.rows {
                true => Ok(rows),
                false => Err(lost(format!(
                    "the checkpoint has {} rows written, and the broker only {rows}",
                    base.rows
                ))),
            }
        }
    }
}

fn of_series(marker: &Marker, series: &str) -> bool {
    marker.text == text_of(series)
}

fn text_of(series: &str) -> String {
    format!("millstream {series}")
}

/// The thread's loop.
fn send(shared: &Shared, mut producer: Producer) {
    loop {
        let mut state = shared.lock();
        let (rows, first) = loop {
            if state.stop && state.waiting.is_empty() {
                return;
            }
            let due = state.flush || state.waiting_bytes >= SEND_BYTES;
            if due && !state.waiting.is_empty() && state.has_checkpoint {
                let rows = std::mem::take(&mut state.waiting);
                let first = state.next - rows.len() as u64;
                state.flush = false;
                break (rows, first);
            }
            if state.stop {
                return;
            }
            state = shared.wait(state);
        };
        let bytes: usize = rows.iter().map(|(_, record)| record.bytes()).sum();
        drop(state);
        let sent = send_rows(shared, &mut producer, rows, first);
        let mut state = shared.lock();
        state.waiting_bytes = state.waiting_bytes.saturating_sub(bytes);
        match sent {
            Ok(written) => state.written = state.written.max(written),
            Err(fault) => {
                state.failed = Some(shared.failed(fault));
                shared.changed.notify_all();
                return;
            }
        }
        shared.changed.notify_all();
    }
}

/// Sends rows, the first of which has this number; the number behind the last.
fn send_rows(
    shared: &Shared,
    producer: &mut Producer,
    mut rows: Vec<(i32, NewRecord)>,
    mut first: u64,
) -> Outcome<u64> {
    let end = first + rows.len() as u64;
    let exactly = shared.options.guarantee == Guarantee::ExactlyOnce;
    let number = i64::try_from(end).unwrap_or(i64::MAX);
    let marker = exactly.then(|| Marker { offset: number, text: text_of(&shared.series) });
    let mut tries = 0;
    loop {
        match producer.write(&rows, marker.as_ref()) {
            Ok(()) => return Ok(end),
            Err(Fault::Retry(message)) if tries < TRIES => {
                tracing::warn!("records are written again: {message}");
                tries += 1;
                producer.begin_again()?;
                if !exactly {
                    continue;
                }
                // The transaction may be there, or not.
                let there = producer.marker()?.filter(|marker| of_series(marker, &shared.series));
                let there = there.map_or(0, |marker| u64::try_from(marker.offset).unwrap_or(0));
                let done = usize::try_from(there.saturating_sub(first)).unwrap_or(usize::MAX);
                rows.drain(..done.min(rows.len()));
                first = first.max(there);
                if rows.is_empty() {
                    return Ok(end);
                }
            }
            Err(fault) => return Err(fault),
        }
    }
}
