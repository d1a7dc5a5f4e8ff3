//! Intake: from splits to stamped batches that any worker may take.
//!
//! A split's chunks are numbered as they are read, prepared by any worker in any order, and stamped
//! in order: a stamp is the split's watermark before the batch's first record, so who is late is
//! decided by the split alone. Stamped batches wait in order until a worker takes them; a worker
//! prefers the splits that it reads.
//!
//! The *low watermark* is the least stamp of anything not yet taken or not yet finished. Every
//! worker announces it at the end of its epochs, and not only its own part of it: a worker may take
//! a batch with any stamp at or above the low watermark, so a higher announcement would not hold.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::budget::{Budget, Kind};
use crate::cluster::{self, Head, Net, Place};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::event_time::{BEGINNING, END};
use crate::meter;
use crate::plan::Tumble;
use crate::prepare::{Prepared, Preparer};
use crate::table::{Sharing, Split, SplitPoll};

/// A batch with its place in its split.
#[derive(Debug)]
pub(crate) struct Stamped {
    pub(crate) split: usize,
    /// Number of its chunk within the split.
    pub(crate) sequence: u64,
    /// Number of its first row among those of its chunk, which may have been cut.
    pub(crate) first_row: usize,
    /// Number of its first record within the split.
    pub(crate) first_record: u64,
    /// The split's watermark before the batch's first record.
    pub(crate) stamp: i64,
    /// The split's watermark after its last record.
    pub(crate) after: i64,
    pub(crate) prepared: Prepared,
}

/// What there is for a worker to do.
pub(crate) enum Taken {
    /// A batch; [`Intake::finish`] when it is done.
    Batch(Box<Stamped>),
    /// Something was prepared, or a split was put aside: look again.
    Again,
    /// Nothing before `until_us`, or before somebody wakes the worker.
    Wait { until_us: Option<i64> },
    /// Nothing now: the splits that have something must wait for others.
    Held,
    /// All splits have ended and every batch has been taken.
    Ended,
}

/// All splits of a job.
pub(crate) struct Intake {
    /// The splits' names.
    names: Vec<String>,
    /// How much each has, where processes have to agree on that.
    extents: Vec<Option<u64>>,
    /// Which of them all processes read, each of them for some of their chunks.
    by_chunk: Vec<bool>,
    readers: Vec<Mutex<Reader>>,
    state: Mutex<State>,
    preparer: Preparer,
    env: Arc<dyn Env>,
    waker: Waker,
    workers: usize,
    idle_timeout_us: Option<i64>,
    /// The window and the lateness it waits for, to see when a window's end has passed.
    window: Option<(Tumble, i64)>,
    budget: Arc<Budget>,
    /// The job's other processes, if it has any.
    net: Option<Arc<Net>>,
    reading: Reading,
}

/// Who reads: in a repartitioned job not all workers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Processes that read.
    pub(crate) processes: usize,
    /// The number of this one among them; as many as there are if it does not.
    pub(crate) process: usize,
    /// Workers of a process that read: the first ones.
    pub(crate) workers: usize,
}

/// Which splits may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    /// All.
    Any,
    /// Those that keep the low watermark where it is: state is at its budget.
    Lowest,
    /// One: rows of the others wait for its rows, and have all the room they may take.
    Split(usize),
}

struct Reader {
    split: Box<dyn Split>,
    ended: bool,
}

#[derive(Debug)]
struct State {
    splits: Vec<SplitState>,
    /// Per worker: the stamp of the batch it works on.
    current: Vec<Option<i64>>,
    /// The highest low watermark so far.
    low: i64,
    /// How many windows the low watermark has passed; see [`Tumble::passed`].
    passed: i64,
    /// When the stamped watermark reached a value: `(watermark, clock)`, the latest ones.
    reached: VecDeque<(i64, i64)>,
}

#[derive(Debug)]
struct SplitState {
    /// Chunks read so far.
    read: u64,
    /// Chunks stamped so far, and their records.
    stamped: u64,
    records: u64,
    /// The watermark after the last stamped batch.
    watermark: i64,
    /// Chunks that wait for earlier ones to be stamped.
    prepared: BTreeMap<u64, Chunk>,
    ready: VecDeque<Stamped>,
    ended: bool,
    /// Read by another process, and how many chunks it had when it ended there.
    elsewhere: bool,
    ended_elsewhere: Option<u64>,
    retry_at_us: i64,
    last_data_us: i64,
    /// Whether the last look found nothing.
    pending: bool,
    /// Whether it has been without data for so long that the others no longer wait for it.
    idle: bool,
}

/// A chunk that has been prepared.
#[derive(Debug)]
enum Chunk {
    Own(Box<Prepared>),
    /// By another process, which tells its greatest event time and how many records it has.
    Other {
        greatest: i64,
        records: u64,
    },
}

impl SplitState {
    /// Chunks read and batches stamped that have not been taken yet.
    fn outstanding(&self) -> u64 {
        self.read - self.stamped + self.ready.len() as u64
    }

    fn exhausted(&self) -> bool {
        self.elsewhere || self.ended && self.outstanding() == 0
    }

    /// When it will count as idle if nothing comes.
    fn idle_at(&self, timeout_us: i64) -> Option<i64> {
        let waiting = self.pending && !self.ended && !self.idle && self.outstanding() == 0;
        waiting.then(|| self.last_data_us.saturating_add(timeout_us))
    }

    /// The least stamp of anything of this split that nobody has taken yet.
    fn low(&self) -> i64 {
        // In their order, in which stamps only rise.
        match self.ready.front() {
            Some(batch) => batch.stamp,
            None if self.exhausted() => END,
            None => self.watermark,
        }
    }

    fn stamp_ready(&mut self, split: usize) {
        // Others may be ahead with reading.
        while self.stamped < self.read {
            let Some(chunk) = self.prepared.remove(&self.stamped) else { return };
            let sequence = self.stamped;
            self.stamped += 1;
            let prepared = match chunk {
                Chunk::Own(prepared) => *prepared,
                Chunk::Other { greatest, records } => {
                    self.watermark = self.watermark.max(greatest);
                    self.records += records;
                    continue;
                }
            };
            for (first_row, prepared) in prepared.cut() {
                let stamp = self.watermark;
                let greatest = prepared.times.as_ref().map_or(BEGINNING, |t| t.greatest);
                self.watermark = self.watermark.max(greatest);
                let (after, first_record) = (self.watermark, self.records);
                self.records += prepared.batch.num_rows() as u64;
                self.ready.push_back(Stamped {
                    split,
                    sequence,
                    first_row,
                    first_record,
                    stamp,
                    after,
                    prepared,
                });
            }
        }
    }
}

/// Wakes every worker when a source has something.
struct WakeAll {
    env: Arc<dyn Env>,
    workers: usize,
}

impl Wake for WakeAll {
    fn wake(self: Arc<Self>) {
        (0..self.workers).for_each(|worker| self.env.wake(worker));
    }
}

impl Intake {
    pub(crate) fn new(
        splits: Vec<Box<dyn Split>>,
        preparer: Preparer,
        (env, net): (Arc<dyn Env>, Option<Arc<Net>>),
        (workers, reading): (usize, Reading),
        idle_timeout_us: Option<i64>,
        window: Option<(Tumble, i64)>,
        budget: Arc<Budget>,
    ) -> Intake {
        let now = env.now_us();
        let place = net.as_ref().map_or(Place { process: 0, processes: 1 }, |net| net.place);
        let state = |(i, sharing)| SplitState {
            elsewhere: match sharing {
                Sharing::Whole => i % reading.processes != reading.process,
                Sharing::ByChunk => reading.process == reading.processes,
                Sharing::Asker => place.process != 0,
            },
            ended_elsewhere: None,
            read: 0,
            stamped: 0,
            records: 0,
            watermark: BEGINNING,
            prepared: BTreeMap::new(),
            ready: VecDeque::new(),
            ended: false,
            retry_at_us: i64::MIN,
            last_data_us: now,
            pending: false,
            idle: false,
        };
        Intake {
            state: Mutex::new(State {
                splits: splits.iter().map(|s| s.sharing()).enumerate().map(state).collect(),
                current: vec![None; workers],
                low: BEGINNING,
                passed: BEGINNING,
                reached: VecDeque::new(),
            }),
            names: splits.iter().map(|split| split.name().to_string()).collect(),
            extents: splits.iter().map(|split| split.extent()).collect(),
            by_chunk: splits.iter().map(|split| split.sharing() == Sharing::ByChunk).collect(),
            readers: splits
                .into_iter()
                .map(|split| Mutex::new(Reader { split, ended: false }))
                .collect(),
            preparer,
            waker: Waker::from(Arc::new(WakeAll { env: env.clone(), workers })),
            env,
            workers,
            idle_timeout_us,
            window,
            budget,
            net,
            reading,
        }
    }

    /// What processes have to agree on before they start: the splits, and how much there is in
    /// them.
    pub(crate) fn described(&self) -> Vec<String> {
        let described = |(name, extent): (&String, &Option<u64>)| match extent {
            Some(extent) => format!("{name} ({extent} bytes)"),
            None => name.clone(),
        };
        self.names.iter().zip(&self.extents).map(described).collect()
    }

    /// A split's name, for messages.
    pub(crate) fn name(&self, split: usize) -> &str {
        &self.names[split]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the next thing to do for `worker`, of the splits that may go on.
    pub(crate) fn take(&self, worker: usize, only: Only) -> Result<Taken> {
        // In simulation, sometimes read on although batches are ready, so that they can be
        // shuffled.
        let read_first = self.env.choose(2) == Some(1);
        if !read_first && let Some(batch) = self.take_ready(worker, only) {
            return Ok(Taken::Batch(batch));
        }
        let mut until: Option<i64> = None;
        let mut held = false;
        for split in self.preference(worker) {
            let now = self.env.now_us();
            {
                let state = self.lock();
                let s = &state.splits[split];
                if s.ended || s.elsewhere {
                    continue;
                }
                if s.retry_at_us > now {
                    until = Some(until.map_or(s.retry_at_us, |u| u.min(s.retry_at_us)));
                    continue;
                }
                // A split that may go on always has one chunk at least, or it could not.
                let ahead_max = if self.budget.input_full() { 1 } else { self.ahead_max() };
                if s.outstanding() >= ahead_max as u64 {
                    continue;
                }
                if !self.may_go_on(&state, split, only) {
                    held = true;
                    continue;
                }
            }
            match self.read(split, now)? {
                Read::Prepared => {
                    return Ok(match self.take_ready(worker, only) {
                        Some(batch) if !read_first => Taken::Batch(batch),
                        Some(batch) if self.env.choose(2) == Some(0) => Taken::Batch(batch),
                        Some(batch) => {
                            self.put_back(worker, batch);
                            Taken::Again
                        }
                        None => Taken::Again,
                    });
                }
                Read::Ended | Read::Skipped => return Ok(Taken::Again),
                Read::Pending(retry) => until = [until, retry].into_iter().flatten().min(),
            }
        }
        if let Some(batch) = self.take_ready(worker, only) {
            return Ok(Taken::Batch(batch));
        }
        let state = self.lock();
        if state.splits.iter().all(SplitState::exhausted) {
            return Ok(Taken::Ended);
        }
        if held || only != Only::Any && state.splits.iter().any(|s| !s.ready.is_empty()) {
            return Ok(Taken::Held);
        }
        let timeout = self.idle_timeout_us;
        let idle_at = timeout.and_then(|t| state.splits.iter().filter_map(|s| s.idle_at(t)).min());
        Ok(Taken::Wait { until_us: [until, idle_at].into_iter().flatten().min() })
    }

    /// Chunks of a split that may be read ahead.
    fn ahead_max(&self) -> usize {
        // Of those that all processes read, only some are ours.
        (2 * self.workers + 2) * self.reading.processes
    }

    /// The worker's own splits first, then the others.
    fn preference(&self, worker: usize) -> impl Iterator<Item = usize> + use<> {
        let (splits, Reading { processes, process, workers }) = (self.readers.len(), self.reading);
        let (first, step) = (process + worker * processes, processes * workers);
        let own = (first..splits).step_by(step);
        own.chain((0..splits).filter(move |s| s % step != first))
    }

    /// Whether no worker of this process reads.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.reading.process == self.reading.processes
    }

    /// Whether `worker` is the one that prefers `split`.
    pub(crate) fn prefers(&self, worker: usize, split: usize) -> bool {
        let Reading { processes, process, workers } = self.reading;
        split % (processes * workers) == process + worker * processes
    }

    /// The other processes, if they read this split, too.
    fn others_of(&self, split: usize) -> Option<&Arc<Net>> {
        self.net.as_ref().filter(|_| self.by_chunk[split])
    }

    /// Whether this process has chunk `sequence` of `split`.
    pub(crate) fn has_chunk(&self, split: usize, sequence: u64) -> bool {
        match self.by_chunk[split] {
            true => sequence % self.reading.processes as u64 == self.reading.process as u64,
            false => !self.lock().splits[split].elsewhere,
        }
    }

    /// Reads on, over chunks of other processes, in a split that all processes read: only so is it
    /// known that it has ended before chunk `sequence`, which is another's. Whether there was
    /// anything to read.
    pub(crate) fn look_for_end(&self, split: usize, sequence: u64) -> Result<bool> {
        let now = self.env.now_us();
        {
            let state = self.lock();
            let s = &state.splits[split];
            if s.ended || s.elsewhere || s.read > sequence || s.retry_at_us > now {
                return Ok(false);
            }
        }
        Ok(!matches!(self.read(split, now)?, Read::Pending(_)))
    }

    fn may_go_on(&self, state: &State, split: usize, only: Only) -> bool {
        match only {
            Only::Any => true,
            Only::Lowest => state.splits[split].low() <= self.low_of(state),
            Only::Split(one) => split == one,
        }
    }

    fn take_ready(&self, worker: usize, only: Only) -> Option<Box<Stamped>> {
        let mut state = self.lock();
        for split in self.preference(worker) {
            if state.splits[split].ready.is_empty() || !self.may_go_on(&state, split, only) {
                continue;
            }
            let s = &mut state.splits[split];
            let pick = match only {
                // The batch that holds the low watermark, or windows could not fire.
                Only::Lowest => Some(0),
                _ => self.env.choose(s.ready.len() as u64).map(|pick| pick as usize),
            };
            let batch = s.ready.remove(pick.unwrap_or(0))?;
            state.current[worker] = Some(batch.stamp);
            return Some(Box::new(batch));
        }
        None
    }

    pub(crate) fn put_back(&self, worker: usize, batch: Box<Stamped>) {
        let mut state = self.lock();
        state.current[worker] = None;
        // It may have been taken for idle while its last batch was away: it holds the low watermark
        // again.
        state.splits[batch.split].idle = false;
        let ready = &mut state.splits[batch.split].ready;
        let place = |b: &Stamped| (b.sequence, b.first_row);
        let at = ready.partition_point(|b| place(b) < place(&batch));
        ready.insert(at, *batch);
    }

    fn read(&self, split: usize, now: i64) -> Result<Read> {
        let mut reader = self.readers[split].lock().unwrap_or_else(PoisonError::into_inner);
        if reader.ended {
            return Ok(Read::Ended);
        }
        let poll = reader.split.poll_next(now, &self.waker)?;
        // The chunk's number must be fixed before anybody else reads from the split.
        let mut state = self.lock();
        let low = state.low;
        let s = &mut state.splits[split];
        match poll {
            SplitPoll::Chunk(chunk) => {
                let sequence = s.read;
                s.read += 1;
                (s.retry_at_us, s.last_data_us, s.pending) = (i64::MIN, now, false);
                if std::mem::take(&mut s.idle) {
                    // It resumes where the others have got to meanwhile.
                    s.watermark = s.watermark.max(low);
                }
                let Reading { process, processes, .. } = self.reading;
                if self.by_chunk[split] && sequence % processes as u64 != process as u64 {
                    // It may have been prepared already.
                    s.stamp_ready(split);
                    return Ok(Read::Skipped);
                }
                drop(state);
                drop(reader);
                // While it is decoded, the chunk and what comes of it.
                let mut held = self.budget.hold(Kind::Input, 2 * chunk.bytes());
                let mut span = meter::span(meter::Kind::Prepare);
                let mut prepared = self.preparer.prepare(chunk, now)?;
                span.add(prepared.batch.num_rows());
                drop(span);
                held.resize(prepared.bytes());
                prepared.held = Some(Arc::new(held));
                if let Some(net) = self.others_of(split) {
                    let (greatest, records) = prepared.summary();
                    net.broadcast(Head {
                        id: split as u32,
                        number: sequence,
                        count: records,
                        watermark: greatest,
                        ..Head::new(cluster::Kind::Stamp)
                    })?;
                }
                self.stamp(split, sequence, Chunk::Own(Box::new(prepared)));
                Ok(Read::Prepared)
            }
            SplitPoll::Pending { retry_at_us } => {
                s.retry_at_us = retry_at_us.unwrap_or(i64::MIN);
                s.pending = true;
                Ok(Read::Pending(retry_at_us))
            }
            SplitPoll::Ended => {
                s.ended = true;
                let chunks = s.read;
                drop(state);
                reader.ended = true;
                if let Some(net) = self.net.as_ref().filter(|_| !self.by_chunk[split]) {
                    net.broadcast(Head {
                        id: split as u32,
                        count: chunks,
                        ..Head::new(cluster::Kind::Ended)
                    })?;
                }
                self.wake_all();
                Ok(Read::Ended)
            }
        }
    }

    /// Another process has prepared a chunk of a split that all read.
    pub(crate) fn stamp_other(&self, head: &Head) -> Result<()> {
        let split = self.checked(head)?;
        if self.reads_nothing() {
            return Ok(());
        }
        if self.has_chunk(split, head.number) {
            return Err(Error::Internal("a peer tells of a chunk that is ours".into()));
        }
        let other = Chunk::Other { greatest: head.watermark, records: head.count };
        self.stamp(split, head.number, other);
        // What waited for it, and the low watermark that may have risen.
        self.wake_all();
        Ok(())
    }

    /// Another process has come to the end of a split.
    pub(crate) fn ended_elsewhere(&self, head: &Head) -> Result<()> {
        let split = self.checked(head)?;
        self.lock().splits[split].ended_elsewhere = Some(head.count);
        Ok(())
    }

    /// The split that a letter is about, if there is such a one.
    pub(crate) fn checked(&self, head: &Head) -> Result<usize> {
        let split = head.id as usize;
        let unknown =
            || Error::Internal(format!("a peer tells of split {split}, which is not there"));
        (split < self.names.len()).then_some(split).ok_or_else(unknown)
    }

    fn stamp(&self, split: usize, sequence: u64, chunk: Chunk) {
        let mut state = self.lock();
        let s = &mut state.splits[split];
        s.prepared.insert(sequence, chunk);
        let before = s.ready.len();
        s.stamp_ready(split);
        let several = s.ready.len() > before + 1;
        if let Some((tumble, lateness)) = self.window {
            let stamped = state.splits.iter().filter(|s| !s.exhausted() && !s.idle);
            let stamped = stamped.map(|s| s.watermark).min().unwrap_or(END);
            let stamped = stamped.saturating_sub(lateness);
            let last = state.reached.back().map_or(BEGINNING, |(w, _)| *w);
            if tumble.passed(stamped) > tumble.passed(last) {
                state.reached.push_back((stamped, self.env.now_us()));
                if state.reached.len() > 4096 {
                    state.reached.pop_front();
                }
            }
        }
        drop(state);
        if several {
            self.wake_all();
        }
    }

    /// The clock when the watermark of what was read passed `end_us` (less lateness), if it is
    /// known.
    pub(crate) fn reached_at(&self, end_us: i64) -> Option<i64> {
        let state = self.lock();
        let at = state.reached.partition_point(|(watermark, _)| *watermark < end_us);
        if at == 0 && state.reached.len() >= 4096 {
            return None;
        }
        state.reached.get(at).map(|(_, clock)| *clock)
    }

    fn low_of(&self, state: &State) -> i64 {
        let active = state.splits.iter().filter(|s| !s.idle && !s.exhausted());
        let low = active.map(SplitState::low).chain(state.current.iter().flatten().copied()).min();
        let low = low.unwrap_or_else(|| {
            if state.splits.iter().all(SplitState::exhausted) {
                return END;
            }
            // Only idle splits are left: nothing holds the watermark back, but nothing moves it on,
            // unless other processes do.
            let own = state.splits.iter().map(|s| s.watermark).max().unwrap_or(BEGINNING);
            let others = self.net.as_ref().and_then(|net| net.others_low());
            own.max(others.unwrap_or(BEGINNING))
        });
        // A split that was idle and has data again stands at or above what was announced.
        low.max(state.low)
    }

    /// Notes that `worker` has finished the batch it had taken, and returns the low watermark. If
    /// it has passed the end of a window, all workers are woken to announce it.
    pub(crate) fn finish(&self, worker: usize) -> i64 {
        let mut state = self.lock();
        state.current[worker] = None;
        if let Some(timeout) = self.idle_timeout_us {
            let now = self.env.now_us();
            for split in &mut state.splits {
                split.idle |= split.idle_at(timeout).is_some_and(|at| at <= now);
            }
        }
        let low = self.low_of(&state);
        state.low = low;
        let passed = self.passed(low);
        if passed > state.passed {
            state.passed = passed;
            drop(state);
            self.wake_all();
        }
        low
    }

    /// How many windows a watermark has passed, lateness included.
    pub(crate) fn passed(&self, watermark: i64) -> i64 {
        match (self.window, watermark) {
            (_, BEGINNING | END) => watermark,
            (Some((tumble, lateness)), w) => tumble.passed(w.saturating_sub(lateness)),
            (None, _) => BEGINNING,
        }
    }

    /// Whether only splits are left that have been without data for their idle time.
    pub(crate) fn is_idle(&self) -> bool {
        if self.idle_timeout_us.is_none() {
            return false;
        }
        let state = self.lock();
        let mut left = state.splits.iter().filter(|s| !s.exhausted()).peekable();
        left.peek().is_some() && left.all(|s| s.idle)
    }

    /// Splits that have ended, with the number of their batches.
    pub(crate) fn ended_splits(&self) -> Vec<Option<u64>> {
        let ended = |s: &SplitState| match s.elsewhere {
            true => s.ended_elsewhere,
            false => s.ended.then_some(s.read),
        };
        self.lock().splits.iter().map(ended).collect()
    }

    /// Whether a split still has records to come.
    pub(crate) fn has_more(&self) -> bool {
        self.lock().splits.iter().any(|s| !s.exhausted())
    }

    fn wake_all(&self) {
        (0..self.workers).for_each(|worker| self.env.wake(worker));
    }
}

enum Read {
    Prepared,
    /// A chunk of another process.
    Skipped,
    Pending(Option<i64>),
    Ended,
}

#[cfg(test)]
mod tests;
