//! Table fed by another thread: bounded queues of Arrow batches, one per split.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::table::{OpenOptions, Position, Split, SplitPoll, Table};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::memory::{Slicer, conform_batch, conformed_schema};

/// The table's end of [`channel`]: unbounded, and read once.
#[derive(Debug)]
pub struct ChannelTable {
    schema: SchemaRef,
    splits: usize,
    /// Taken when the table is opened.
    receivers: Mutex<Option<Vec<Receiver>>>,
}

/// Feeds one split of a [`ChannelTable`]. Dropping it ends the split.
#[derive(Debug)]
pub struct ChannelWriter {
    schema: SchemaRef,
    /// The table's schema.
    kept: SchemaRef,
    split: usize,
    queue: Arc<Queue>,
}

/// Creates a table of one split, and its writer. `capacity` is how many batches may wait (at least
/// one).
///
/// ```
/// use std::sync::Arc;
/// use arrow::array::{Int64Array, RecordBatch};
/// use millstream_connect::channel;
///
/// let column = Arc::new(Int64Array::from(vec![1, 2, 3])) as _;
/// let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
/// let (writer, table) = channel(batch.schema(), 4);
/// writer.send(batch).unwrap();
/// drop(writer); // no more records
/// ```
pub fn channel(schema: SchemaRef, capacity: usize) -> (ChannelWriter, ChannelTable) {
    let (mut writers, table) = channels(schema, capacity, 1);
    (writers.remove(0), table)
}

/// A table of `splits` splits (at least one) and as many writers. They take batches of `schema`;
/// columns in another of Arrow's layouts are conformed as those of a
/// [`MemoryTable`](crate::MemoryTable) are.
pub fn channels(
    schema: SchemaRef,
    capacity: usize,
    splits: usize,
) -> (Vec<ChannelWriter>, ChannelTable) {
    let (splits, kept) = (splits.max(1), conformed_schema(&schema));
    let queues: Vec<Arc<Queue>> = (0..splits).map(|_| Arc::new(Queue::new(capacity))).collect();
    let writer = |(split, queue): (usize, &Arc<Queue>)| ChannelWriter {
        schema: schema.clone(),
        kept: kept.clone(),
        split,
        queue: queue.clone(),
    };
    let writers = queues.iter().enumerate().map(writer).collect();
    let receivers = queues.into_iter().map(Receiver).collect();
    (writers, ChannelTable { schema: kept, splits, receivers: Mutex::new(Some(receivers)) })
}

impl ChannelWriter {
    /// Hands a batch over; waits while the queue is full, which is how a slow job slows its feeder.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if the batch does not have the table's columns, or a value does not fit the
    /// type in which it is kept; [`Error::OutputClosed`] if nobody reads the table any more, or
    /// the job is being drained: the batches that were taken before count.
    pub fn send(&self, batch: RecordBatch) -> Result<()> {
        let place = || format!("channel, split {}", self.split);
        let batch = conform_batch(&self.schema, &self.kept, batch, place)?;
        let mut state = self.queue.lock();
        while state.batches.len() >= self.queue.capacity && !state.abandoned {
            state = self.queue.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.abandoned {
            return Err(Error::OutputClosed);
        }
        state.batches.push_back(batch);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl Drop for ChannelWriter {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.ended = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Queue between the writer and the reader of a split.
#[derive(Debug)]
struct Queue {
    capacity: usize,
    state: Mutex<QueueState>,
    /// Signals free room, or the end of reading.
    room: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    batches: VecDeque<RecordBatch>,
    /// The writer is gone.
    ended: bool,
    /// The reader is gone, or takes no more.
    abandoned: bool,
    /// Whom to wake when a batch arrives or the writer goes.
    waker: Option<Waker>,
}

impl Queue {
    fn new(capacity: usize) -> Queue {
        Queue { capacity: capacity.max(1), state: Mutex::default(), room: Condvar::new() }
    }

    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader's end of a queue; dropping it tells the writer.
#[derive(Debug)]
struct Receiver(Arc<Queue>);

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.abandoned = true;
        state.batches.clear();
        drop(state);
        self.0.room.notify_all();
    }
}

impl Table for ChannelTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        false
    }

    fn check_resumable(&self) -> Result<()> {
        Err(Error::not_resumable("channel"))
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        if options.from.values().any(|from| !from.is_beginning()) {
            return Err(Error::Data {
                place: "channel".into(),
                message: "its records come once, and nothing goes on in the middle of them".into(),
                help: "read from a file, or begin anew".into(),
            });
        }
        let mut receivers = self.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(receivers) = receivers.take() else {
            return Err(Error::Data {
                place: "channel".into(),
                message: "its records have been read already".into(),
                help: "a channel feeds one query; make another for the next".into(),
            });
        };
        let open = |(split, receiver)| -> Box<dyn Split> {
            Box::new(ChannelSplit {
                name: format!("channel, split {split}"),
                receiver,
                rest: Slicer::new(projection, options.batch_rows),
                read: 0,
            })
        };
        Ok(receivers.into_iter().enumerate().map(open).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.schema.fields().len());
        let (splits, all) = (counted(self.splits as u64, "split"), counted(all as u64, "column"));
        format!("channel ({splits}, {read} of {all})")
    }
}

struct ChannelSplit {
    name: String,
    receiver: Receiver,
    rest: Slicer,
    /// Rows handed out.
    read: u64,
}

impl Split for ChannelSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn position(&self) -> Position {
        Position(vec![self.read])
    }

    fn drain(&mut self) -> bool {
        self.receiver.0.lock().abandoned = true;
        self.receiver.0.room.notify_all();
        true
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        loop {
            if let Some(slice) = self.rest.next() {
                self.read += slice.num_rows() as u64;
                return Ok(SplitPoll::Chunk(Box::new(slice)));
            }
            let queue = &self.receiver.0;
            let mut state = queue.lock();
            match state.batches.pop_front() {
                Some(batch) => {
                    drop(state);
                    queue.room.notify_one();
                    self.rest.put(&batch)?;
                }
                None if state.ended || state.abandoned => return Ok(SplitPoll::Ended),
                None => {
                    state.waker = Some(waker.clone());
                    return Ok(SplitPoll::Pending { retry_at_us: None });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let column = Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn open(table: &ChannelTable) -> Vec<Box<dyn Split>> {
        table.open(&[0], &OpenOptions::alone(4, 0, 1)).unwrap()
    }

    #[derive(Default)]
    struct Bell(AtomicUsize);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_split_waits_is_woken_and_ends() {
        let (writer, table) = channel(batch(0).schema(), 2);
        assert!(!table.bounded());
        let mut split = open(&table).remove(0);
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let pending = split.poll_next(0, &waker).unwrap();
        assert!(matches!(pending, SplitPoll::Pending { retry_at_us: None }));
        assert_eq!(bell.0.load(Ordering::SeqCst), 0);
        writer.send(batch(6)).unwrap();
        assert_eq!(bell.0.load(Ordering::SeqCst), 1);
        for expected in [4, 2] {
            let SplitPoll::Chunk(chunk) = split.poll_next(0, &waker).unwrap() else { panic!() };
            assert_eq!(chunk.decode().unwrap().num_rows(), expected);
        }
        assert!(matches!(split.poll_next(0, &waker).unwrap(), SplitPoll::Pending { .. }));
        drop(writer);
        assert_eq!(bell.0.load(Ordering::SeqCst), 2);
        assert!(matches!(split.poll_next(0, &waker).unwrap(), SplitPoll::Ended));
        let again = table.open(&[0], &OpenOptions::alone(4, 0, 1));
        assert!(again.err().unwrap().to_string().contains("read already"));
    }

    #[test]
    fn what_was_sent_before_it_is_drained_counts() {
        let (writer, table) = channel(batch(0).schema(), 2);
        let mut split = open(&table).remove(0);
        (0..2).for_each(|_| writer.send(batch(3)).unwrap());
        std::thread::scope(|scope| {
            // The queue is full: the writer waits, and learns that the reader has gone.
            let waits = scope.spawn(|| writer.send(batch(4)));
            assert!(split.drain());
            assert!(matches!(waits.join().unwrap(), Err(Error::OutputClosed)));
        });
        assert!(matches!(writer.send(batch(1)), Err(Error::OutputClosed)));
        for _ in 0..2 {
            let poll = split.poll_next(0, Waker::noop()).unwrap();
            let SplitPoll::Chunk(chunk) = poll else { panic!("two have been taken") };
            assert_eq!(chunk.decode().unwrap().num_rows(), 3);
        }
        assert!(matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Ended));
    }

    #[test]
    fn a_full_queue_holds_its_writer_back() {
        let (writers, table) = channels(batch(0).schema(), 2, 3);
        assert_eq!(writers.len(), 3);
        let mut splits = open(&table);
        let sent = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for writer in writers {
                let sent = &sent;
                scope.spawn(move || {
                    for rows in 1..=4 {
                        writer.send(batch(rows)).unwrap();
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let mut received = 0;
            while !splits.is_empty() {
                splits.retain_mut(|split| match split.poll_next(0, Waker::noop()).unwrap() {
                    SplitPoll::Chunk(_) => {
                        received += 1;
                        // At most what was received, and two waiting in each of three queues.
                        assert!(sent.load(Ordering::SeqCst) <= received + 6);
                        true
                    }
                    SplitPoll::Pending { .. } => true,
                    SplitPoll::Ended => false,
                });
            }
            assert_eq!(received, 12);
        });
    }

    #[test]
    fn a_writer_learns_that_nobody_reads() {
        let (writer, table) = channel(batch(0).schema(), 1);
        writer.send(batch(1)).unwrap();
        let waiting = std::thread::spawn(move || {
            let result = writer.send(batch(1));
            (writer, result)
        });
        drop(table);
        let (writer, result) = waiting.join().unwrap();
        assert!(matches!(result, Err(Error::OutputClosed)));
        assert!(matches!(writer.send(batch(1)), Err(Error::OutputClosed)));
    }

    #[test]
    fn a_batch_of_another_schema_is_refused() {
        let (writer, _table) = channel(batch(0).schema(), 1);
        let other = Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
        let error = writer.send(RecordBatch::try_from_iter([("n", other)]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("expected column 'n' of type Int64"), "{error}");
    }
}
