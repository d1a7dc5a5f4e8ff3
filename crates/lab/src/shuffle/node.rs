//! Work of a process of the benchmark, over any fabric.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_flow::shuffle::{Buffer, Error, Groups, Received, Receiver, Result, Sender, State};

use super::options::{COMPUTE_BYTES, Options, ShuffleFailure, TUPLE_BYTES};
use super::report::NodeReport;
use crate::tuple::{tuple, weight};

/// Tuples that a thread makes before the next look for messages.
const TURN: u64 = 4096;
/// Messages that a thread takes before the next tuples.
const MESSAGES: usize = 8;
/// Time without events after which some peer counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// A thread that computes calls its endpoints so often, or it would count as lost (see
/// [`Settings::silence`](millstream_flow::shuffle::Settings::silence)).
const ABSENCE: Duration = Duration::from_millis(100);

/// Place for a group's next tuples.
enum Place<'a, F: Fabric> {
    Sent(Buffer<'a, F>),
    /// The process's own stay where they are.
    Kept(Vec<u8>),
}

/// A group's next tuples.
struct Filling<'a, F: Fabric> {
    /// Without a buffer there is none.
    place: Option<Place<'a, F>>,
    /// How many there are.
    filled: usize,
}

/// Room for the tuples of a group.
struct Room<'a> {
    rows: &'a mut [[u8; TUPLE_BYTES]],
    filled: usize,
}

impl<F: Fabric> Filling<'_, F> {
    fn room(&mut self) -> Room<'_> {
        let bytes = match &mut self.place {
            Some(Place::Sent(buffer)) => buffer.payload(),
            Some(Place::Kept(bytes)) => bytes.as_mut_slice(),
            None => &mut [],
        };
        Room { rows: bytes.as_chunks_mut::<TUPLE_BYTES>().0, filled: self.filled }
    }
}

/// How far [`fill`] came.
struct Filled {
    /// The first number whose tuple was not made.
    next: u64,
    /// Sum of the tuples.
    sum: u64,
    /// The group without room.
    stopped_at: Option<usize>,
}

/// Fills tuples into the groups' rooms, until one of them is full.
#[inline(never)]
fn fill(out: &mut [Room<'_>], groups: &Groups, numbers: Range<u64>) -> Filled {
    let mut sum = 0u64;
    for number in numbers.clone() {
        let (key, value) = tuple(number);
        let group = groups.of_hash(key);
        let room = &mut out[group];
        let Some(row) = room.rows.get_mut(room.filled) else {
            return Filled { next: number, sum, stopped_at: Some(group) };
        };
        room.filled += 1;
        *row = (u128::from(value) << 64 | u128::from(key)).to_le_bytes();
        sum = sum.wrapping_add(weight(key, value));
    }
    Filled { next: numbers.end, sum, stopped_at: None }
}

/// The sum over a message's tuples.
#[inline(never)]
fn sum(payload: &[u8]) -> u64 {
    payload.as_chunks::<TUPLE_BYTES>().0.iter().fold(0, |sum: u64, tuple| {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| tuple[at + i]));
        sum.wrapping_add(weight(word(0), word(8)))
    })
}

/// The endpoints of one process, connected.
pub(super) struct Node<F: Fabric> {
    pub(super) senders: Vec<Sender<F>>,
    pub(super) receivers: Vec<Receiver<F>>,
    pub(super) setup: Duration,
}

/// One thread's work.
struct Worker<'a, F: Fabric> {
    sender: &'a Sender<F>,
    receiver: &'a Receiver<F>,
    groups: &'a Groups,
    /// Threads of the sender that still make tuples.
    active: &'a AtomicUsize,
    /// Whether the run was stopped from outside.
    stopped: &'a AtomicBool,
    out: Vec<Filling<'a, F>>,
    /// Numbers of the tuples to make.
    next: u64,
    end: u64,
    compute: Duration,
    /// When the endpoints were called last.
    called: Instant,
    sent: (u64, u64),
    received: (u64, u64),
}

/// Tuples sent and received: counts and sums.
type Sums = ((u64, u64), (u64, u64));

/// Remaining work of a worker.
#[derive(PartialEq, Eq)]
enum Stage {
    Making,
    Ending,
    Sent,
}

impl<F: Fabric> Node<F> {
    /// Sends and receives everything.
    pub(super) fn work(
        &self,
        options: &Options,
        process: usize,
        stopped: &AtomicBool,
    ) -> std::result::Result<NodeReport, ShuffleFailure> {
        let groups = options.pattern.groups(options.processes);
        let each = options.threads / self.senders.len();
        let active: Vec<_> = self.senders.iter().map(|_| AtomicUsize::new(each)).collect();
        let start = Instant::now();
        let parts: Vec<std::result::Result<_, ShuffleFailure>> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..options.threads {
                let at = thread % self.senders.len();
                let first = process as u64 * options.tuples;
                let share =
                    |thread: usize| first + options.tuples * thread as u64 / options.threads as u64;
                let worker = Worker {
                    sender: &self.senders[at],
                    receiver: &self.receivers[at],
                    groups: &groups,
                    active: &active[at],
                    stopped,
                    out: (0..groups.len())
                        .map(|group| {
                            let own = options.keep_own && groups.destinations(group) == [process];
                            let kept = || Place::Kept(vec![0; options.message_bytes]);
                            Filling { place: own.then(kept), filled: 0 }
                        })
                        .collect(),
                    next: share(thread),
                    end: share(thread + 1),
                    compute: Duration::from_secs_f64(options.compute_us_of(process) / 1e6),
                    called: start,
                    sent: (0, 0),
                    received: (0, 0),
                };
                threads.push(scope.spawn(|| worker.run()));
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        let mut report =
            NodeReport { time: start.elapsed(), setup: self.setup, ..NodeReport::default() };
        for part in parts {
            let (sent, received) = part?;
            report.sent = (report.sent.0 + sent.0, report.sent.1.wrapping_add(sent.1));
            let (count, sum) = report.received;
            report.received = (count + received.0, sum.wrapping_add(received.1));
        }
        self.senders.iter().for_each(|sender| report.sender += sender.counters());
        for receiver in &self.receivers {
            receiver.finish(PATIENCE)?;
            report.receiver += receiver.counters();
        }
        Ok(report)
    }
}

impl<F: Fabric> Worker<'_, F> {
    fn run(mut self) -> std::result::Result<Sums, ShuffleFailure> {
        let mut stage = Stage::Making;
        let mut ended = false;
        let mut moved = Instant::now();
        while stage != Stage::Sent || !ended {
            if self.stopped.load(Ordering::Acquire) {
                return Err(ShuffleFailure::Stopped);
            }
            let before = (self.next, self.received.0);
            self.called = Instant::now();
            stage = match stage {
                Stage::Making => self.make()?,
                Stage::Ending if self.sender.try_finish()? => Stage::Sent,
                other => other,
            };
            if !ended {
                ended = self.take()?;
            }
            if before != (self.next, self.received.0) {
                moved = Instant::now();
            } else if moved.elapsed() > PATIENCE {
                return Err(Error::TimedOut { what: "anything to happen" }.into());
            } else {
                std::thread::yield_now();
            }
        }
        Ok((self.sent, self.received))
    }

    /// Makes tuples, as far as there are buffers.
    fn make(&mut self) -> Result<Stage> {
        let sender = self.sender;
        let end = self.end.min(self.next + TURN);
        loop {
            let mut rooms: Vec<_> = self.out.iter_mut().map(Filling::room).collect();
            let filled = fill(&mut rooms, self.groups, self.next..end);
            let counts: Vec<usize> = rooms.iter().map(|room| room.filled).collect();
            self.out.iter_mut().zip(counts).for_each(|(filling, count)| filling.filled = count);
            self.sent.0 += filled.next - self.next;
            self.sent.1 = self.sent.1.wrapping_add(filled.sum);
            self.next = filled.next;
            let Some(group) = filled.stopped_at else { break };
            self.put(group)?;
            let out = &mut self.out[group];
            if out.place.is_none() {
                out.place = sender.try_acquire()?.map(Place::Sent);
            }
            if out.place.is_none() {
                break;
            }
        }
        if self.next == self.end { self.end_making() } else { Ok(Stage::Making) }
    }

    /// Sends a group's tuples, or takes them, if they are the process's own.
    fn put(&mut self, group: usize) -> Result<()> {
        let out = &mut self.out[group];
        let bytes = std::mem::take(&mut out.filled) * TUPLE_BYTES;
        match out.place.take() {
            None => Ok(()),
            Some(Place::Sent(buffer)) => {
                self.sender.put(buffer, bytes, self.groups.destinations(group), State::MoreData)
            }
            Some(Place::Kept(own)) => {
                self.receive(&own[..bytes])?;
                self.out[group].place = Some(Place::Kept(own));
                Ok(())
            }
        }
    }

    /// Adds up what is received, and computes.
    fn receive(&mut self, tuples: &[u8]) -> Result<()> {
        let begin = Instant::now();
        self.received.0 += (tuples.len() / TUPLE_BYTES) as u64;
        self.received.1 = self.received.1.wrapping_add(sum(tuples));
        let share = tuples.len() as f64 / COMPUTE_BYTES as f64;
        while begin.elapsed() < self.compute.mul_f64(share) {
            std::hint::black_box(sum(tuples));
            if self.called.elapsed() > ABSENCE {
                self.called = Instant::now();
                self.sender.keep_alive()?;
                self.receiver.keep_alive()?;
            }
        }
        Ok(())
    }

    /// Sends what is left. The endpoint's last thread ends its streams.
    fn end_making(&mut self) -> Result<Stage> {
        for group in 0..self.out.len() {
            self.put(group)?;
        }
        let last = self.active.fetch_sub(1, Ordering::AcqRel) == 1;
        Ok(if last { Stage::Ending } else { Stage::Sent })
    }

    /// Takes what has come. Returns whether all streams have ended.
    fn take(&mut self) -> Result<bool> {
        for _ in 0..MESSAGES {
            match self.receiver.try_get()? {
                Received::Message(message) => {
                    self.receive(&message)?;
                    message.release()?;
                }
                Received::Empty => break,
                Received::End => return Ok(true),
            }
        }
        Ok(false)
    }
}
