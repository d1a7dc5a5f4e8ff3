//! Intake: from splits to stamped batches that any worker may take.
//!
//! A split's chunks are numbered as they are read, prepared by any worker in any order, and stamped
//! in order. A stamp is the split's watermark before the batch's first record, so who is late is
//! decided by the split alone. Stamped batches wait, in order, until a worker takes them. A worker
//! prefers the splits that it reads.
//!
//! The *low watermark* is the least stamp of anything that is not yet taken or not yet finished.
//! Every worker announces it at the end of its epochs, although its own part may be further ahead.
//! A worker may still take a batch with any stamp at or above the low watermark, so announcing more
//! would not hold.

mod read;
mod split;
mod watermark;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::budget::Budget;
use crate::cluster::{Net, Place};
use crate::env::Env;
use crate::error::Result;
use crate::event_time::BEGINNING;
use crate::prepare::Preparer;
use crate::table::{Sharing, Split};
use crate::windowing::Windowing;
use read::Read;
use split::SplitState;

pub(crate) use split::Stamped;

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
    /// To see when a window may fire.
    windowing: Windowing,
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
    /// How many windows the low watermark has passed; see [`Windowing::passed`].
    passed: i64,
    /// When the stamped watermark reached a value: `(watermark, clock)`, the latest ones.
    reached: VecDeque<(i64, i64)>,
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
        windowing: Windowing,
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
            windowing,
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

    /// Splits that have ended, with the number of their batches.
    pub(crate) fn ended_splits(&self) -> Vec<Option<u64>> {
        let ended = |s: &SplitState| match s.elsewhere {
            true => s.ended_elsewhere,
            false => s.ended.then_some(s.read),
        };
        self.lock().splits.iter().map(ended).collect()
    }

    /// What keeps this process from going on, in words, unless it is a source.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let now = self.env.now_us();
        let state = self.lock();
        let mut waits_for = "what other processes have yet to merge and to announce".to_string();
        for (split, s) in state.splits.iter().enumerate().filter(|(_, s)| !s.exhausted()) {
            if s.pending || s.retry_at_us > now {
                return None;
            }
            let (name, chunk) = (&self.names[split], s.stamped);
            let other = chunk % self.reading.processes as u64;
            waits_for = if s.outstanding() == 0 {
                format!("others, before it reads on in {name}")
            } else if s.stamped == s.read {
                format!("room in channels and memory for records of {name}")
            } else if self.by_chunk[split] && other != self.reading.process as u64 {
                format!("word of chunk {chunk} of {name}, which process {other} decodes")
            } else {
                format!("chunk {chunk} of {name}, which one of its workers decodes")
            };
        }
        Some(waits_for)
    }

    /// Whether a split still has records to come.
    pub(crate) fn has_more(&self) -> bool {
        self.lock().splits.iter().any(|s| !s.exhausted())
    }

    fn wake_all(&self) {
        (0..self.workers).for_each(|worker| self.env.wake(worker));
    }
}

#[cfg(test)]
mod tests;
