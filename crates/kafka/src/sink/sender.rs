//! The thread that sends rows.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use millstream_contract::{Error, Result};

use super::numbered::{Base, Row, write_rows};
use super::options::{Guarantee, SinkOptions};
use crate::client::cluster::Cluster;
use crate::client::fault::Fault;
use crate::client::producer::Producer;

/// Rows of so many bytes are sent before their window is whole.
const SEND_BYTES: usize = 1 << 20;
/// Rows of so many bytes may wait before the first checkpoint.
const WITHOUT_CHECKPOINT_BYTES: usize = 256 << 20;

struct State {
    /// The numbers of rows, from the first that waits.
    waiting: Vec<Row>,
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
            true => base.known_rows(&mut producer, options).map_err(failed)?,
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

    /// Takes the next rows. `records` makes records of the rows from a number on.
    pub(super) fn take(
        &self,
        rows: usize,
        flush: bool,
        records: impl FnOnce(u64, usize) -> Result<Vec<Row>>,
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
        let exactly = shared.options.guarantee == Guarantee::ExactlyOnce;
        let series = exactly.then_some(shared.series.as_str());
        let sent = write_rows(&mut producer, series, &rows, first);
        let mut state = shared.lock();
        state.waiting_bytes = state.waiting_bytes.saturating_sub(bytes);
        match sent {
            Ok(()) => state.written = state.written.max(first + rows.len() as u64),
            Err(fault) => {
                state.failed = Some(shared.failed(fault));
                shared.changed.notify_all();
                return;
            }
        }
        shared.changed.notify_all();
    }
}
