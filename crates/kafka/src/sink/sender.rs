//! The thread that sends rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream_contract::{Error, Result};

use super::numbered::{Base, MARKER_AGE, Row, Write, mark, write_rows};
use super::options::{Guarantee, SinkOptions};
use crate::client::fault::Fault;

/// Rows of so many bytes are sent before their window is whole.
const SEND_BYTES: usize = 1 << 20;
/// Rows of so many bytes may wait before the first checkpoint.
const WITHOUT_CHECKPOINT_BYTES: usize = 256 << 20;
/// The time after which a waiting thread looks again.
const LOOK: Duration = Duration::from_secs(1);

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
    /// Whether a checkpoint is there from which the series of numbers goes on. Without one a job
    /// that is killed leaves rows that no later run knows of.
    has_checkpoint: bool,
    /// When the marker was written last, and whether it is to be written again.
    marked: Instant,
    mark_again: bool,
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
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for the thread; not in a job that is to end while the brokers are away.
    fn wait_for_rows<'a>(&'a self, state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        if self.options.away.has_given_up() {
            return Err(Error::Interrupted);
        }
        Ok(self.wait(state))
    }

    fn failed(&self, fault: Fault) -> Error {
        self.options.failed(fault)
    }
}

impl Sender {
    /// Begins: finds the topic, and, of a job that goes on, the rows that are there.
    pub(super) fn start(
        options: &SinkOptions,
        (base, resumes): (&Base, bool),
        memory_bytes: u64,
    ) -> Result<Sender> {
        let mut producer = options.new_producer();
        let failed = |fault| options.failed(fault);
        producer.begin().map_err(failed)?;
        let exactly = options.guarantee == Guarantee::ExactlyOnce;
        let known = match (exactly, resumes) {
            (false, _) => base.rows,
            (true, true) => base.known_rows(&mut producer, options).map_err(failed)?,
            (true, false) => base.begin(&mut producer).map_err(failed)?,
        };
        let partitions = producer.partitions();
        Sender::run(options, (base, known, resumes), memory_bytes, producer, partitions)
    }

    /// Starts the thread. Rows below `known` are in the topic.
    fn run(
        options: &SinkOptions,
        (base, known, resumes): (&Base, u64, bool),
        memory_bytes: u64,
        producer: impl Write,
        partitions: i32,
    ) -> Result<Sender> {
        let exactly = options.guarantee == Guarantee::ExactlyOnce;
        let most = usize::try_from(memory_bytes / 16).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                waiting: Vec::new(),
                waiting_bytes: 0,
                next: base.rows,
                written: known,
                known,
                flush: false,
                has_checkpoint: !exactly || resumes,
                marked: Instant::now(),
                mark_again: false,
                stop: false,
                failed: None,
            }),
            changed: Condvar::new(),
            options: options.clone(),
            series: base.series.clone(),
            waiting_bytes_max: most.clamp(1 << 20, 64 << 20),
        });
        let own = shared.clone();
        let send = move || {
            let sent = catch_unwind(AssertUnwindSafe(|| send(&own, producer)));
            if sent.is_err() {
                let fault = Fault::internal("the thread that writes rows has panicked".into());
                let error = own.failed(fault);
                own.lock().failed = Some(error);
                own.changed.notify_all();
            }
        };
        let spawned = thread::Builder::new().name("kafka sender".into()).spawn(send);
        spawned.map_err(|error| shared.failed(Fault::internal(error.to_string())))?;
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
            state = self.shared.wait_for_rows(state)?;
        }
    }

    /// Lets waiting threads look again.
    pub(super) fn wake(&self) {
        self.shared.changed.notify_all();
    }

    /// How many rows have come, with those before the job went on.
    pub(super) fn rows(&self) -> u64 {
        self.shared.lock().next
    }

    /// A checkpoint is there.
    pub(super) fn note_checkpoint(&self) {
        let mut state = self.shared.lock();
        state.has_checkpoint = true;
        state.mark_again |= state.marked.elapsed() > MARKER_AGE;
        self.shared.changed.notify_all();
    }

    /// While there is no checkpoint: the number of the first row, and all rows below the number
    /// `end`. They are sent when a checkpoint is there.
    pub(super) fn unsent(&self, end: u64) -> Option<(u64, Vec<Row>)> {
        let state = self.shared.lock();
        let first = state.next - state.waiting.len() as u64;
        let count = usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX);
        let rows = || state.waiting[..count.min(state.waiting.len())].to_vec();
        (!state.has_checkpoint).then(|| (first, rows()))
    }

    /// Waits until so many rows are in Kafka, unless they wait for the first checkpoint.
    pub(super) fn written(&self, rows: u64) -> Result<()> {
        let mut state = self.shared.lock();
        state.flush = true;
        self.shared.changed.notify_all();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.written >= rows || !state.has_checkpoint {
                return Ok(());
            }
            state = self.shared.wait_for_rows(state)?;
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
fn send(shared: &Shared, mut producer: impl Write) {
    loop {
        let mut state = shared.lock();
        let (rows, first) = loop {
            if state.stop && state.waiting.is_empty() {
                return;
            }
            let due = state.flush || state.waiting_bytes >= SEND_BYTES;
            let due = (due && !state.waiting.is_empty()) || state.mark_again;
            if due && state.has_checkpoint {
                let rows = std::mem::take(&mut state.waiting);
                // Rows below `known` are in the topic already, and never wait.
                let first = (state.next - rows.len() as u64).max(state.known);
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
        let sent = match (rows.is_empty(), series) {
            (true, Some(series)) => mark(&mut producer, series, first),
            _ => write_rows(&mut producer, series, &rows, first),
        };
        let mut state = shared.lock();
        (state.marked, state.mark_again) = (Instant::now(), false);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::client::encode::NewRecord;
    use crate::client::fault::Outcome;
    use crate::client::producer::Marker;
    use crate::sink::tests::exactly_once;

    /// Tells each transaction, as a number of rows and the marker.
    struct Told(mpsc::Sender<(u64, i64)>);

    impl Write for Told {
        fn write(&mut self, rows: &[Row], marker: Option<&Marker>) -> Outcome<()> {
            let marker = marker.map_or(-1, |marker| marker.offset);
            let told = self.0.send((rows.len() as u64, marker));
            told.map_err(|error| Fault::internal(error.to_string()))
        }

        fn begin_again(&mut self) -> Outcome<()> {
            Ok(())
        }

        fn marker(&mut self) -> Outcome<Option<Marker>> {
            Ok(None)
        }
    }

    fn rows(count: usize) -> Vec<Row> {
        vec![(0, NewRecord::default()); count]
    }

    /// A marker counts the rows in the topic, and no row that is still being encoded.
    #[test]
    fn rows_that_come_while_others_are_sent_do_not_count_as_written() {
        let (tell, told) = mpsc::channel();
        let base = Base { series: "s".into(), rows: 0, spooled: false };
        let sender =
            Sender::run(&exactly_once(), (&base, 0, true), 1 << 30, Told(tell), 1).unwrap();
        sender.take(2, false, |_, _| Ok(rows(2))).unwrap();
        // The transaction of the first two rows happens while the next three are encoded.
        let mut first = None;
        let encode = |number, _| {
            assert_eq!(number, 2);
            sender.shared.lock().flush = true;
            sender.shared.changed.notify_all();
            first = told.recv().ok();
            Ok(rows(3))
        };
        sender.take(3, true, encode).unwrap();
        assert_eq!(first, Some((2, 2)));
        assert_eq!(told.recv(), Ok((3, 5)));
        sender.written(5).unwrap();
    }

    /// A job that is killed before its first checkpoint begins anew, so none of its rows is there.
    #[test]
    fn rows_before_the_first_checkpoint_are_kept_with_it() {
        let (tell, told) = mpsc::channel();
        let base = Base { series: "s".into(), rows: 0, spooled: false };
        let sender =
            Sender::run(&exactly_once(), (&base, 0, false), 1 << 30, Told(tell), 1).unwrap();
        sender.take(2, true, |_, _| Ok(rows(2))).unwrap();
        let unsent = |end| sender.unsent(end).map(|(first, rows)| (first, rows.len()));
        // A first checkpoint, whose manifest cannot be written.
        assert_eq!(unsent(2), Some((0, 2)));
        sender.take(3, true, |_, _| Ok(rows(3))).unwrap();
        // Nothing waits for rows that wait for a checkpoint.
        sender.written(5).unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        assert_eq!(unsent(4), Some((0, 4)));
        sender.note_checkpoint();
        assert_eq!(unsent(5), None);
        assert_eq!(told.recv(), Ok((5, 5)));
        sender.written(5).unwrap();
    }

    /// Brokers forget old markers, so one is written again, and it counts the rows that are there.
    #[test]
    fn an_old_marker_is_written_again() {
        let (tell, told) = mpsc::channel();
        let base = Base { series: "s".into(), rows: 3, spooled: false };
        let sender =
            Sender::run(&exactly_once(), (&base, 7, true), 1 << 30, Told(tell), 1).unwrap();
        sender.note_checkpoint();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        sender.shared.lock().marked = Instant::now().checked_sub(2 * MARKER_AGE).unwrap();
        sender.note_checkpoint();
        assert_eq!(told.recv(), Ok((0, 7)));
        sender.take(5, true, |_, left_out| Ok(rows(5 - left_out))).unwrap();
        assert_eq!(told.recv(), Ok((1, 8)));
    }
}
