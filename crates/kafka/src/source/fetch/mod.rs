//! Fetching: threads that keep a few batches of each partition ready.
//!
//! Each broker that leads partitions has a thread. The thread asks for the next batches of all
//! partitions that have room, and fills their queues. One more thread, the *keeper*, asks which
//! broker leads what, looks for new partitions, and commits offsets. Splits only take from queues,
//! and never wait.

mod aborted;
mod broker;
mod faults;
mod keeper;
mod lanes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

pub(super) use self::faults::{is_other, made_again, out_of_range};
use self::keeper::keep;
pub(super) use self::lanes::{CHUNK_BYTES, Fetched, Log, Ready};
use self::lanes::{Lane, Shared, State, guarded};
use super::options::FetchSettings;
use crate::client::cluster::Partition;
use crate::client::fault::Fault;

/// How much later than asked for an answer may come, until the broker may have gone.
const LATE: Duration = Duration::from_secs(2);

/// The partitions of a table that one process reads.
pub(super) struct Fetcher(Arc<Shared>);

/// A partition to be fetched.
pub(in crate::source) struct Start {
    pub(in crate::source) partition: Partition,
    pub(in crate::source) topic_id: Uuid,
    pub(in crate::source) offset: i64,
    pub(in crate::source) epoch: i32,
    pub(in crate::source) until: i64,
}

impl Fetcher {
    /// Begins to fetch nothing: each partition from when its split first asks.
    pub(super) fn start(settings: FetchSettings, seen: BTreeSet<Partition>) -> Fetcher {
        let servers = settings.client.shown();
        let state = State {
            lanes: Vec::new(),
            brokers: BTreeMap::new(),
            threads: BTreeSet::new(),
            seen,
            commit: None,
            uncommitted: None,
            trouble: None,
            news: VecDeque::new(),
            stop: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            settings,
            servers,
        });
        let keeper = shared.clone();
        let name = "kafka keeper".to_string();
        let work = move || guarded(&keeper, |_| keep(&keeper));
        if thread::Builder::new().name(name).spawn(work).is_err() {
            shared.lock().stop = true;
        }
        Fetcher(shared)
    }

    /// Adds partitions; returns the number of the first.
    pub(super) fn add(&self, starts: Vec<Start>) -> usize {
        let mut state = self.0.lock();
        let first = state.lanes.len();
        for start in starts {
            state.seen.insert(start.partition.clone());
            state.lanes.push(Lane {
                partition: start.partition,
                topic_id: start.topic_id,
                leader: None,
                wanted: false,
                next: start.offset,
                until: start.until,
                epoch: start.epoch,
                queue: VecDeque::new(),
                queued_bytes: 0,
                gap: false,
                doubt: false,
                empty_since: None,
                empty_to: 0,
                bytes: self.0.settings.partition_bytes,
                busy: false,
                log: None,
                told: Instant::now(),
                answered: None,
                open: false,
                waker: None,
                failed: None,
                unknown_since: None,
                refused: false,
                outside: false,
            });
        }
        first
    }

    /// Takes batches of a lane: about so many bytes or records, at least one batch. `fill`: where
    /// one answer ends and the next begins depends on the log alone, so too few batches wait for
    /// more.
    pub(super) fn take(
        &self,
        lane: usize,
        (bytes, records): (usize, usize),
        fill: bool,
        waker: &Waker,
    ) -> Result<Ready, Fault> {
        let mut state = self.0.lock();
        let stopped = state.stop;
        let lane = &mut state.lanes[lane];
        if !lane.wanted {
            lane.wanted = true;
            self.0.changed.notify_all();
        }
        let (mut batches, mut of_bytes, mut of_records, mut is_full) = (0, 0, 0, false);
        for front in &lane.queue {
            let (of, count) = (front.head.bytes, front.head.records.max(0) as usize);
            is_full = of_bytes + of > bytes || of_records + count > records;
            if is_full && batches > 0 {
                break;
            }
            (batches, of_bytes, of_records) = (batches + 1, of_bytes + of, of_records + count);
        }
        let more_comes = lane.next < lane.until
            && lane.failed.is_none()
            && lane.log.is_some_and(|log| lane.until <= log.end);
        if batches > 0 && !(fill && more_comes && !is_full) {
            lane.queued_bytes -= of_bytes;
            self.0.changed.notify_all();
            return Ok(Ready::Batches(lane.queue.drain(..batches).collect()));
        }
        if batches == 0 && std::mem::take(&mut lane.gap) {
            return Ok(Ready::Nothing(lane.next));
        }
        if let Some(fault) = &lane.failed {
            return Err(fault.clone());
        }
        if stopped {
            return Err(Fault::internal("the threads that fetch have stopped".into()));
        }
        lane.waker = Some(waker.clone());
        Ok(Ready::Later)
    }

    /// The log of a lane's partition, if a broker has told it.
    pub(super) fn log(&self, lane: usize) -> Option<Log> {
        self.0.lock().lanes[lane].log
    }

    /// Whether all of the partition has been taken, as a broker has told just now. Records of open
    /// transactions are still to come.
    pub(super) fn caught_up(&self, lane: usize) -> bool {
        let longest = Duration::from_millis(self.0.settings.max_wait_ms.max(0) as u64) + LATE;
        let state = self.0.lock();
        let lane = &state.lanes[lane];
        let is_told =
            lane.leader.is_some() && lane.answered.is_some_and(|at| at.elapsed() < longest);
        let reached = lane.next.max(lane.empty_to);
        let is_taken = lane.queue.is_empty() && lane.log.is_some_and(|log| reached >= log.end);
        is_told && is_taken && !lane.open
    }

    /// The partitions that there are, as far as the keeper has seen.
    pub(super) fn seen(&self) -> BTreeSet<Partition> {
        self.0.lock().seen.clone()
    }

    pub(super) fn news(&self) -> Option<String> {
        self.0.lock().news.pop_front()
    }

    /// Has offsets committed to the group, if there is a group.
    pub(super) fn commit(&self, offsets: BTreeMap<Partition, i64>) {
        let mut state = self.0.lock();
        state.commit.get_or_insert_default().extend(offsets);
        self.0.changed.notify_all();
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.0.lock().stop = true;
        self.0.changed.notify_all();
    }
}
