//! The partitions of a process, each with a queue of fetched batches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uuid::Uuid;

use crate::client::address::Address;
use crate::client::batch::Head;
use crate::client::cluster::{Leader, Partition};
use crate::client::fault::Fault;
use crate::source::options::FetchSettings;

/// Bytes of a chunk, unless one batch has more.
pub(in crate::source) const CHUNK_BYTES: usize = 256 << 10;
/// Pauses between tries: the first, and the longest.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The end of a log is asked for again after this time, if nothing is fetched.
pub(super) const STALE: Duration = Duration::from_secs(5);
/// A fault that lasts as long is told.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// A batch that was fetched.
#[derive(Debug, Clone)]
pub(in crate::source) struct Fetched {
    pub(in crate::source) head: Head,
    pub(in crate::source) bytes: Bytes,
    /// Whether its records count: those of aborted transactions and the ends of transactions do
    /// not.
    pub(in crate::source) counts: bool,
}

/// The next batches of a queue.
#[derive(Debug)]
pub(in crate::source) enum Ready {
    /// Batches, in order.
    Batches(Vec<Fetched>),
    /// There are no records before this offset.
    Nothing(i64),
    /// Nothing yet.
    Later,
}

/// The offsets of a partition's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::source) struct Log {
    pub(in crate::source) start: i64,
    /// Behind the last record that may be read.
    pub(in crate::source) end: i64,
}

pub(super) struct Lane {
    pub(super) partition: Partition,
    pub(super) topic_id: Uuid,
    pub(super) leader: Option<Leader>,
    /// Whether its split has asked.
    pub(super) wanted: bool,
    /// The offset to fetch next, and the last to be fetched but one; the epoch of the last batch.
    pub(super) next: i64,
    pub(super) until: i64,
    pub(super) epoch: i32,
    pub(super) queue: VecDeque<Fetched>,
    pub(super) queued_bytes: usize,
    /// There is nothing from the end of the queue up to `next`.
    pub(super) gap: bool,
    /// The last answer was empty, though the log ends further on. The keeper finds out why.
    pub(super) doubt: bool,
    /// Answers have been empty so since then.
    pub(super) empty_since: Option<Instant>,
    /// There is nothing from `next` up to this offset.
    pub(super) empty_to: i64,
    /// Bytes to ask for.
    pub(super) bytes: i32,
    pub(super) busy: bool,
    /// The ends of the log, and when a broker has told them.
    pub(super) log: Option<Log>,
    pub(super) told: Instant,
    /// When a broker last answered a request for records, and whether there are records behind the
    /// end, of open transactions.
    pub(super) answered: Option<Instant>,
    pub(super) open: bool,
    pub(super) waker: Option<Waker>,
    pub(super) failed: Option<Fault>,
    /// The topic has been unknown since then.
    pub(super) unknown_since: Option<Instant>,
    /// A broker has just refused to answer for it, so who leads it is asked after a pause.
    pub(super) refused: bool,
    /// The broker says that `next` is outside of the log.
    pub(super) outside: bool,
}

pub(super) struct State {
    pub(super) lanes: Vec<Lane>,
    pub(super) brokers: BTreeMap<i32, Address>,
    /// Brokers that have threads.
    pub(super) threads: BTreeSet<i32>,
    /// The partitions that there are, as far as the keeper has seen.
    pub(super) seen: BTreeSet<Partition>,
    pub(super) commit: Option<BTreeMap<Partition, i64>>,
    /// Why offsets were not committed the last time.
    pub(super) uncommitted: Option<String>,
    /// A fault since, and whether it has been told.
    pub(super) trouble: Option<(Instant, String, bool)>,
    pub(super) news: VecDeque<String>,
    pub(super) stop: bool,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) settings: FetchSettings,
    pub(super) servers: String,
}

impl Lane {
    /// Whether the queue is not filled further. A bounded partition's queue holds a whole chunk,
    /// as the split waits for a chunk.
    pub(super) fn is_full(&self, queue_bytes: usize) -> bool {
        let least = if self.until < i64::MAX { CHUNK_BYTES + 1 } else { 0 };
        self.queued_bytes >= queue_bytes.max(least)
    }

    /// Whether nothing is fetched, as the queue is full, and what is known of the log has grown
    /// old. How far the split is behind is asked for most where a job does not keep up.
    pub(super) fn is_stale(&self, queue_bytes: usize) -> bool {
        let is_full = self.is_full(queue_bytes) && self.failed.is_none();
        is_full && self.told.elapsed() >= STALE
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        longest: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits so long, or until the end.
    pub(super) fn rest(&self, pause: Duration) {
        let end = Instant::now() + pause;
        let mut state = self.lock();
        let mut left = pause;
        while !state.stop && !left.is_zero() {
            state = self.wait(state, left);
            left = end.saturating_duration_since(Instant::now());
        }
    }
}

/// Does the work of a thread. If it panics, all threads end, and splits say so.
pub(super) fn guarded(shared: &Shared, work: impl FnOnce(&Shared)) {
    if catch_unwind(AssertUnwindSafe(|| work(shared))).is_err() {
        let mut state = shared.lock();
        state.stop = true;
        wake_all(&mut state);
        drop(state);
        shared.changed.notify_all();
    }
}

pub(super) fn wake_all(state: &mut State) {
    state.lanes.iter_mut().filter_map(|lane| lane.waker.take()).for_each(Waker::wake);
}

/// Tells a fault once it has lasted, and its end.
pub(super) fn note_trouble(shared: &Shared, fault: Option<&Fault>) {
    let mut state = shared.lock();
    match fault {
        None => {
            if let Some((since, _, true)) = state.trouble.take() {
                let seconds = since.elapsed().as_secs();
                let text = format!("kafka {}: reads again, after {seconds} s", shared.servers);
                state.news.push_back(text);
                wake_all(&mut state);
            }
        }
        Some(fault) => {
            let text = fault.text();
            let (since, last, told) =
                state.trouble.take().unwrap_or_else(|| (Instant::now(), text.clone(), false));
            let tells = !told && since.elapsed() >= TOLD_AFTER;
            state.trouble = Some((since, last, told || tells));
            if tells {
                state.news.push_back(format!("kafka: {text}; tries again until it is there"));
                wake_all(&mut state);
            }
        }
    }
}
