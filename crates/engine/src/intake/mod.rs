//! Intake: from splits to stamped batches that any worker may take.
//!
//! A split's chunks are numbered as they are read, prepared by any worker in any order, and stamped
//! in order: a stamp is the split's watermark before the batch's first record, so the split alone
//! decides which records are late. Stamped batches wait in order until taken by a worker; a worker
//! prefers the splits that it reads, unless they are ahead of others.
//!
//! The splits of all sources stand in a single list. Each source has its *low watermark*: the least
//! stamp of all batches not yet finished. Every worker announces the low watermark at the end of
//! its epochs, not only for its own splits: a worker may take a batch with any stamp at or above
//! the low watermark, so a higher announcement would not hold.

mod cut;
mod cutting;
mod drain;
mod joining;
mod marks;
mod news;
mod notices;
mod observed;
mod order;
mod read;
mod source;
mod split;
mod take;
mod watermark;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use crate::checkpoint::same_name;
use crate::error::Result;
use crate::network::Net;
use crate::roles::{Place, Reading};
use crate::table::{JobMarks, Sharing, SourceMarks, Split};
use cut::Cut;
use millstream_operators::budget::Budget;
use millstream_operators::env::Env;
use millstream_operators::event_time::BEGINNING;
use source::{SourceIn, SourceState};
use split::{Joining, SplitState};

pub use marks::table_names;
pub(crate) use notices::Notices;
pub(crate) use source::Origin;
pub(crate) use take::Offer;

/// The table of a split, as in [`JobMarks`], and the split's number there.
pub(crate) type SplitName = (String, u32);

/// All splits of a job.
pub(crate) struct Intake {
    sources: Vec<SourceIn>,
    splits: Vec<SplitIn>,
    /// Number of the first spare split ([`joining`]).
    spare_from: usize,
    state: Mutex<IntakeState>,
    env: Arc<dyn Env>,
    waker: Waker,
    workers: usize,
    budget: Arc<Budget>,
    /// The job's other processes; `None` if there are none.
    net: Option<Arc<Net>>,
    reading: Reading,
    notices: Arc<Notices>,
}

/// Constant properties of a split.
struct SplitIn {
    /// None of a spare split.
    name: OnceLock<String>,
    /// How much it has, where processes have to agree on that.
    extent: Option<u64>,
    /// Whether all processes read it, each of them for some of its chunks.
    by_chunk: bool,
    source: usize,
    reader: Mutex<Box<dyn Split>>,
}

impl SplitIn {
    /// A split that has not joined the job.
    fn spare(source: usize) -> SplitIn {
        let reader = Mutex::new(marks::no_split());
        SplitIn { name: OnceLock::new(), extent: None, by_chunk: false, source, reader }
    }
}

/// The splits of a source that may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// All splits.
    All,
    /// The splits that keep the low watermark of their group where it is: state is at its budget.
    Lowest,
    /// These splits: rows of the others wait for their rows, and have all the room they may take.
    Awaited(Vec<usize>),
    /// None: a stage or an output that takes its rows cannot.
    Nothing,
}

#[derive(Debug)]
struct IntakeState {
    splits: Vec<SplitState>,
    sources: Vec<SourceState>,
    /// Per worker: the batch in work.
    current: Vec<Option<Current>>,
    /// Per worker: the next source in turn, among independent sources.
    turns: Vec<usize>,
    cut: Cut,
    /// Whether new splits may be part of the cut.
    cut_has_joins: bool,
}

/// A batch in the hands of a worker.
#[derive(Debug, Clone)]
struct Current {
    source: usize,
    split: usize,
    /// The number of its chunk.
    sequence: u64,
    /// Its stamp.
    holds: i64,
}

impl IntakeState {
    fn new(splits: Vec<SplitState>, sources: Vec<SourceState>, workers: usize) -> IntakeState {
        IntakeState {
            splits,
            sources,
            current: vec![None; workers],
            turns: (0..workers).collect(),
            cut: Cut::None,
            cut_has_joins: false,
        }
    }

    /// Chunks of a split, from the first on, all batches of which workers have finished.
    fn chunks_done(&self, split: usize) -> u64 {
        let s = &self.splits[split];
        let current = self.current.iter().flatten().filter(|current| current.split == split);
        let ready = s.ready.front().map(|batch| batch.sequence);
        let open = current.map(|current| current.sequence).chain(ready);
        open.min().unwrap_or(s.stamped)
    }
}

/// Whether a split is read by other processes alone.
fn is_elsewhere(split: usize, sharing: Sharing, reading: Reading, place: Place) -> bool {
    let Reading { process, processes, .. } = reading;
    match sharing {
        Sharing::Whole => split % processes != process,
        Sharing::ByChunk => process == processes,
        Sharing::Coordinator => place.process != 0,
        Sharing::Reader(number) => number % processes != process,
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
        origins: Vec<Origin>,
        env: Arc<dyn Env>,
        net: Option<Arc<Net>>,
        workers: usize,
        reading: Reading,
        budget: Arc<Budget>,
    ) -> Intake {
        let now = env.now_us();
        let place = net.as_ref().map_or(Place { process: 0, processes: 1 }, |net| net.place);
        let (mut sources, mut splits, mut states) = (Vec::new(), Vec::new(), Vec::new());
        let (mut states_of_sources, mut spare) = (Vec::new(), Vec::new());
        for origin in origins {
            let source = sources.len();
            let Origin { name, about, bounded, live, splits: its, from, preparer, .. } = origin;
            let Origin { idle_timeout_us, windowings, group, .. } = origin;
            let low = from.as_ref().map_or(BEGINNING, |from| from.low_us);
            spare.push((source, marks::free_number(&its, from.as_ref()), origin.spare));
            states_of_sources.push(SourceState::new(place.processes, low));
            let senders = its.iter().find_map(|split| split.senders());
            for (split, mark) in marks::marked(its, from) {
                let sharing = match split.sharing() {
                    // There is one clock for each split.
                    Sharing::ByChunk if preparer.has_clock() => Sharing::Whole,
                    sharing => sharing,
                };
                let elsewhere = is_elsewhere(states.len(), sharing, reading, place);
                states.push(SplitState::new(elsewhere, now, mark));
                splits.push(SplitIn {
                    name: OnceLock::from(split.name().to_string()),
                    extent: split.extent(),
                    by_chunk: sharing == Sharing::ByChunk,
                    source,
                    reader: Mutex::new(split),
                });
            }
            sources.push(SourceIn {
                name,
                about,
                bounded,
                live,
                senders,
                preparer,
                idle_timeout_us,
                windowings,
                group,
            });
        }
        let spare_from = splits.len();
        for (source, number, count) in spare {
            splits.extend((0..count).map(|_| SplitIn::spare(source)));
            states.extend((number..).take(count).map(|number| SplitState::spare(now, number)));
        }
        Intake {
            state: Mutex::new(IntakeState::new(states, states_of_sources, workers)),
            sources,
            splits,
            spare_from,
            waker: Waker::from(Arc::new(WakeAll { env: env.clone(), workers })),
            env,
            workers,
            budget,
            net,
            reading,
            notices: Arc::default(),
        }
    }

    /// News for the user on the reading of splits, and of sinks.
    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Facts on which processes have to agree before they start: the splits, and their sizes.
    pub(crate) fn described(&self) -> Vec<String> {
        let described = |split: usize| match (self.name(split), self.splits[split].extent) {
            (name, Some(extent)) => format!("{name} ({extent} bytes)"),
            (name, None) => name.to_string(),
        };
        (0..self.spare_from).map(described).collect()
    }

    /// The tables of all splits and their numbers, as in the marks.
    pub(crate) fn split_names(&self) -> Vec<SplitName> {
        let tables = table_names(self.sources.iter().map(|source| source.name.as_str()));
        let state = self.lock();
        let splits = self.splits.iter().zip(&state.splits);
        splits.map(|(split, s)| (tables[split.source].clone(), s.number())).collect()
    }

    /// By split: chunks up to the last one of which a batch has been taken.
    pub(crate) fn chunks_taken(&self) -> Vec<u64> {
        self.lock().splits.iter().map(|split| split.taken).collect()
    }

    /// The marks of all splits that this process reads, before the first record that no worker has
    /// finished, or at the cut that has been reached. Splits that all processes read are left to
    /// the coordinator. A job goes on there ([`Job::resume`](crate::job::Job::resume)).
    ///
    /// # Errors
    /// A table has two splits of one name.
    pub(crate) fn marks(&self) -> Result<JobMarks> {
        let state = self.lock();
        let is_coordinator = self.net.as_ref().is_none_or(|net| net.is_coordinator());
        let is_here = |split: &usize| {
            let s = &state.splits[*split];
            s.joining == Some(Joining::Recorded)
                || !s.elsewhere && (is_coordinator || !self.splits[*split].by_chunk)
        };
        let mut all = JobMarks::new();
        let names = table_names(self.sources.iter().map(|source| source.name.as_str()));
        for (number, (source, name)) in self.sources.iter().zip(names).enumerate() {
            let low_us = self.low_of(&state, number);
            let mut splits = BTreeMap::new();
            for split in self.splits_of(number).filter(is_here) {
                let done = state.cut.reached(split).unwrap_or_else(|| state.chunks_done(split));
                let mark = state.splits[split].mark(done, low_us);
                let name = self.name(split);
                if splits.insert(name.to_string(), mark).is_some() {
                    return Err(same_name(&source.name, name));
                }
            }
            all.insert(name, SourceMarks { low_us, splits });
        }
        Ok(all)
    }

    /// A split's name, for messages; empty of a spare split.
    pub(crate) fn name(&self, split: usize) -> &str {
        self.splits[split].name.get().map_or("", String::as_str)
    }

    /// The splits of a source.
    pub(crate) fn splits_of(&self, source: usize) -> impl Iterator<Item = usize> {
        let splits = self.splits.iter().enumerate();
        splits.filter(move |(_, split)| split.source == source).map(|(number, _)| number)
    }

    fn lock(&self) -> MutexGuard<'_, IntakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no worker of this process reads.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.reading.process == self.reading.processes
    }

    /// Whether `split` is a split that `worker` prefers.
    pub(crate) fn prefers(&self, worker: usize, split: usize) -> bool {
        let Reading { processes, process, workers } = self.reading;
        split % (processes * workers) == process + worker * processes
    }

    /// Splits that have ended, with the number of their batches.
    pub(crate) fn ended_splits(&self) -> Vec<Option<u64>> {
        let ended = |s: &SplitState| match s.elsewhere {
            true => s.ended_elsewhere,
            false => s.ended.then_some(s.read),
        };
        self.lock().splits.iter().map(ended).collect()
    }

    /// Text about the obstacle to this process's progress; `None` if it is a source.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let now = self.env.now_us();
        let state = self.lock();
        let others = if self.reading.processes > 1 { "processes" } else { "workers" };
        let mut waits_for = format!("what other {others} have yet to merge and to announce");
        for (split, s) in state.splits.iter().enumerate().filter(|(_, s)| !s.exhausted()) {
            if s.pending || s.retry_at_us > now {
                return None;
            }
            let (name, chunk) = (self.name(split), s.stamped);
            let other = chunk % self.reading.processes as u64;
            waits_for = if s.outstanding() == 0 {
                format!("others, before it reads on in {name}")
            } else if s.stamped == s.read {
                format!("room in channels and memory for records of {name}")
            } else if self.splits[split].by_chunk && other != self.reading.process as u64 {
                format!("word of chunk {chunk} of {name}, which process {other} decodes")
            } else {
                format!("chunk {chunk} of {name}, which one of its workers decodes")
            };
        }
        Some(waits_for)
    }

    /// The source of a split.
    pub(crate) fn source_of(&self, split: usize) -> usize {
        self.splits[split].source
    }

    /// Whether a split still has records to come.
    pub(crate) fn has_more(&self) -> bool {
        self.lock().splits.iter().any(|s| !s.exhausted())
    }

    /// Closes a source without readers: it counts as ended.
    pub(crate) fn close(&self, source: usize) {
        let mut state = self.lock();
        state.sources[source].closed = true;
        for split in self.splits_of(source) {
            state.splits[split].close();
        }
        drop(state);
        self.wake_all();
    }

    fn wake_all(&self) {
        (0..self.workers).for_each(|worker| self.env.wake(worker));
    }
}

#[cfg(test)]
mod tests;
