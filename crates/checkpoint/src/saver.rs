//! The engine's contract over the store: workers hand their state over, and a thread writes it.
//!
//! State is set aside while workers stand, and written when they go on.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use millstream_contract::sink::Prepared;
use millstream_contract::table::JobMarks;
use millstream_contract::{Error, Result};
use millstream_engine::observe::{Awaited, CheckpointStatus};
use millstream_engine::{CutTaken, PartWritten, Stopper, add_marks};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::SetAside;
use millstream_store::StateFile;
use serde::{Deserialize, Serialize};

use crate::file::read;
use crate::writer::{Fixed, Held, Part, Writer};

/// Files with saved state, by stage of the plan.
pub(crate) type Restored = Vec<Vec<StateFile>>;

/// Saves the cuts of a job in a store. See the [crate's](crate) promise.
pub struct Saver {
    from: Restored,
    /// The line that says where the job goes on, until the line is told.
    resumed: Mutex<Option<Resumed>>,
    shared: Arc<Shared>,
    /// The writing thread and its queue; `None` at the end.
    thread: Mutex<Option<(Sender<Work>, JoinHandle<()>)>>,
}

/// Makes the line that says where a job goes on, when the job does.
pub(crate) type Resumed = Box<dyn FnOnce() -> String + Send>;

/// State shared with the writing thread.
struct Shared {
    writer: Writer,
    state: Mutex<State>,
    /// No cut is being taken any more, or a part has come.
    changed: Condvar,
}

/// Work of the writing thread.
enum Work {
    Cut(Box<CutTaken>, Vec<Held>),
    /// Of a cut that is given up only the prepared rows of other processes count.
    GivenUp {
        cut: u64,
        others: usize,
    },
    /// Of a process that is not the first.
    Part {
        cut: u64,
        held: Vec<Held>,
        prepared: Vec<Prepared>,
        written: PartWritten,
    },
}

struct State {
    /// The number of the next cut.
    next: u64,
    /// A cut is being taken or written.
    taking: bool,
    /// Of this cut: the state of workers.
    held: Vec<Held>,
    /// The parts of the last cut with parts, of other processes: its number, the process, the part.
    parts: Vec<(u64, usize, Part)>,
    /// How far the writing thread is with a cut.
    writing: Option<Writing>,
    /// The job has ended, and no part comes any more.
    ended: bool,
    /// A cut that cannot be written and ends the job, though the job may have ended before.
    failed: Option<Error>,
    /// In a process that is not the first: its last part, which the first may not have.
    part: Result<Option<(u64, Part)>>,
    /// The job, and what ends it when the next cut is written.
    stopper: Option<Stopper>,
    end: Option<Box<dyn FnOnce() + Send>>,
    /// The cut with new splits, behind which the job goes on when it is written.
    joins: Option<u64>,
}

/// A cut that has been handed over.
#[derive(Clone, Copy)]
struct Writing {
    number: u64,
    others: usize,
    /// The state of this process is written; the parts of all others have come.
    is_written: bool,
    has_parts: bool,
}

/// Report of another process at the end of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Others {
    /// The marks of its splits.
    marks: JobMarks,
    /// Its prepared rows, by output.
    prepared: Vec<Prepared>,
    /// Its part of the last cut.
    part: Option<(u64, Part)>,
}

impl Saver {
    pub(crate) fn new(
        fixed: Fixed,
        (from, resumed): (Restored, Option<Resumed>),
        next: u64,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Saver> {
        let state = State {
            next,
            taking: false,
            held: Vec::new(),
            parts: Vec::new(),
            writing: None,
            ended: false,
            failed: None,
            part: Ok(None),
            stopper: None,
            end: None,
            joins: None,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared {
            writer: Writer::new(fixed, next.saturating_sub(1), notice),
            state,
            changed,
        });
        let (works, to_write) = channel();
        let of_thread = shared.clone();
        let write = move || {
            while let Ok(work) = to_write.recv() {
                of_thread.write(work);
            }
        };
        let started = thread::Builder::new().name("checkpoint writer".into()).spawn(write);
        let thread = started.map_err(|error| Error::Io {
            place: "the thread that writes checkpoints".into(),
            message: format!("cannot be started: {error}"),
            help: String::new(),
        })?;
        let (resumed, thread) = (Mutex::new(resumed), Mutex::new(Some((works, thread))));
        Ok(Saver { from, resumed, shared, thread })
    }

    /// Takes a cut, unless one is being taken or all input has been read.
    pub fn cut(&self, stopper: &Stopper) -> bool {
        let mut state = self.shared.lock();
        if state.taking {
            return true;
        }
        let number = state.next;
        // The job may complete the cut before this call returns.
        (state.taking, state.next) = (true, number + 1);
        state.stopper = Some(stopper.clone());
        self.shared.writer.report(|_, taking| *taking = Some(Instant::now()));
        drop(state);
        let begun = stopper.cut(number);
        if !begun {
            let mut state = self.shared.lock();
            state.taking = false;
            // Somebody may have asked meanwhile to stop behind this cut.
            let end = state.end.take();
            drop(state);
            self.shared.writer.report(|_, taking| *taking = None);
            self.shared.changed.notify_all();
            end.into_iter().for_each(|end| end());
        }
        begun
    }

    /// Takes a last cut, behind which `stop` ends the job. False if all input has been read.
    pub fn cut_and_stop(&self, stopper: &Stopper, stop: impl FnOnce() + Send + 'static) -> bool {
        self.shared.lock().end = Some(Box::new(stop));
        self.cut(stopper)
    }

    /// Report of a process for the first one, at the end of a job whose sinks are finished.
    ///
    /// # Errors
    /// Rows that cannot be prepared.
    pub fn part_of_end(&self, marks: JobMarks) -> Result<Others> {
        // The last interval of all.
        let sinks = self.shared.writer.fixed.sinks.iter();
        let prepared = sinks.map(|sink| {
            let mut prepared = sink.prepare(u64::MAX)?;
            sink.seal(&mut prepared).map(|()| prepared)
        });
        let prepared = prepared.collect::<Result<_>>()?;
        // A LIMIT may have ended the job in the middle of a cut.
        let part = mem::replace(&mut self.shared.wait().part, Ok(None))?;
        Ok(Others { marks, prepared, part })
    }

    /// Publishes the end of a job whose sinks are finished, and makes the last rows visible, those
    /// of the other processes included.
    ///
    /// # Errors
    /// The store has failed for longer than is tolerated, or another job has taken its place.
    pub fn end(&self, mut marks: JobMarks, others: Vec<Others>) -> Result<()> {
        let mut state = self.shared.wait();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let mut prepared = Vec::new();
        for of_process in others {
            add_marks(&mut marks, of_process.marks)?;
            prepared.push(of_process.prepared);
            let is_known = |(cut, part): &(u64, Part)| {
                state.parts.iter().any(|(number, _, known)| number == cut && known == part)
            };
            let lost = of_process.part.filter(|part| !is_known(part));
            prepared.extend(lost.map(|(_, part)| part.prepared));
        }
        let number = state.next;
        state.next += 1;
        drop(state);
        self.shared.writer.end(number, marks, prepared)
    }

    /// Gives the writing thread something to do.
    fn send(&self, work: Work) -> Result<()> {
        self.shared.lock().taking = true;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = thread.as_ref().and_then(|(works, _)| works.send(work).ok());
        if sent.is_none() {
            self.shared.lock().taking = false;
        }
        sent.ok_or_else(|| Error::Internal("no thread writes checkpoints".into()))
    }

    /// Lets [`Saver::end`] wait for the store no longer: it ends with [`Error::Interrupted`] if the
    /// end cannot be published at once. Whether it waits.
    pub fn give_up(&self) -> bool {
        self.shared.writer.give_up()
    }

    /// Waits until what was begun is written: the job has ended, well or not.
    pub fn wait(&self) {
        // The job has this saver, too: neither would ever be dropped.
        self.shared.wait().stopper = None;
    }
}

/// Runs a piece of the writing thread's work, so that a panic is an error.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |_| Err(Error::Internal("writing a checkpoint panicked".into()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// The error of a part that is not JSON as expected.
fn malformed(error: serde_json::Error) -> Error {
    Error::Internal(format!("a part of a checkpoint: {error}"))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no cut is being taken.
    fn wait(&self) -> MutexGuard<'_, State> {
        let idle = self.changed.wait_while(self.lock(), |state| state.taking);
        idle.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the parts of so many other processes; `None` of some if the job has ended before.
    fn parts(&self, cut: u64, others: usize) -> Vec<Option<Part>> {
        let of_cut = |state: &State| {
            let of_cut = state.parts.iter().filter(|(number, ..)| *number == cut);
            of_cut.map(|(.., part)| Some(part.clone())).collect::<Vec<_>>()
        };
        let waits = |state: &mut State| !state.ended && of_cut(state).len() < others;
        let mut state = self.lock();
        state.writing.iter_mut().for_each(|writing| writing.is_written = true);
        let state = self.changed.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.writing.iter_mut().for_each(|writing| writing.has_parts = true);
        let mut parts = of_cut(&state);
        parts.resize(others, None);
        parts
    }

    /// The step for which the cut waits that has been handed over.
    fn awaits(&self) -> Option<Awaited> {
        let state = self.lock();
        let Writing { number, others, is_written, has_parts } = state.writing?;
        if has_parts {
            return Some(Awaited::Publish);
        }
        let own = (!is_written).then_some(0);
        let has_come = |process: &usize| {
            state.parts.iter().any(|(cut, of, _)| (cut, of) == (&number, process))
        };
        let others = (1..=others).filter(|process| !has_come(process));
        Some(Awaited::Write(own.into_iter().chain(others).collect()))
    }

    /// Does a piece of work, in the writing thread.
    fn write(&self, work: Work) {
        match work {
            Work::Cut(cut, held) => {
                let (number, others) = (cut.number, cut.others);
                let parts = || self.parts(number, others);
                self.end_cut(guarded(|| self.writer.write(*cut, held, parts)));
            }
            Work::GivenUp { cut, others } => {
                self.writer.keep(cut, self.parts(cut, others));
                self.end_cut(Ok(()));
            }
            Work::Part { cut, held, prepared, written } => {
                let part = guarded(|| self.writer.write_part(cut, held, prepared));
                let mut state = self.lock();
                // When the first process knows, the next cut may begin.
                state.taking = false;
                state.part = part.clone().map(|part| Some((cut, part)));
                drop(state);
                self.changed.notify_all();
                written(part.and_then(|part| serde_json::to_vec(&part).map_err(malformed)));
            }
        }
    }

    /// No cut is being taken any more.
    fn end_cut(&self, written: Result<()>) {
        let mut state = self.lock();
        (state.taking, state.writing) = (false, None);
        state.held.clear();
        if let Err(error) = &written {
            state.failed.get_or_insert_with(|| error.clone());
        }
        self.writer.report(|_, taking| *taking = None);
        let (stopper, end, joins) = (state.stopper.clone(), state.end.take(), state.joins.take());
        drop(state);
        self.changed.notify_all();
        match (written, stopper, end) {
            // A job that is being stopped waits no longer for the receiver of its rows.
            (Err(Error::Interrupted), _, Some(end)) => end(),
            (Err(error), Some(stopper), _) => stopper.stop_with(error),
            (Ok(()), _, Some(end)) => end(),
            (Ok(()), Some(stopper), None) => {
                let durable = self.writer.written.durable();
                joins.into_iter().for_each(|cut| stopper.go_on(cut, durable == cut));
            }
            _ => {}
        }
    }
}

impl millstream_engine::Checkpoints for Saver {
    fn restore(&self, leader: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        let own = self.shared.writer.partitions(leader);
        let by_key = operator.saves_by_key();
        let has_own = |file: &&StateFile| {
            let (first, end) = file.partitions;
            !by_key || first < own.end && own.start < end
        };
        // Each worker picks its own rows.
        self.from[stage].iter().filter(has_own).try_for_each(|file| {
            let store = &self.shared.writer.fixed.store;
            for rows in read(store, file, &|name| operator.restores(name))? {
                operator.restore(file.part, &rows?, file.slices.as_deref())?;
            }
            Ok(())
        })
    }

    fn restored(&self) -> Option<String> {
        let resumed = self.resumed.lock().unwrap_or_else(PoisonError::into_inner).take();
        resumed.map(|line| line())
    }

    fn durable(&self) -> u64 {
        self.shared.writer.written.durable()
    }

    fn save(&self, _cut: u64, leader: usize, stage: usize, state: Box<dyn SetAside>) {
        self.shared.lock().held.push(Held { stage, leader, state });
    }

    fn part(&self, cut: u64, prepared: Vec<Prepared>, written: PartWritten) -> Result<()> {
        let held = mem::take(&mut self.shared.lock().held);
        self.send(Work::Part { cut, held, prepared, written })
    }

    fn part_written(&self, cut: u64, process: usize, part: &[u8]) -> Result<()> {
        let part = serde_json::from_slice(part).map_err(malformed)?;
        let mut state = self.shared.lock();
        state.parts.retain(|(number, ..)| *number == cut);
        state.parts.push((cut, process, part));
        self.shared.changed.notify_all();
        Ok(())
    }

    fn complete(&self, cut: CutTaken) -> Result<bool> {
        let mut state = self.shared.lock();
        let goes_on = state.end.is_none() && !cut.joins;
        state.joins = cut.joins.then_some(cut.number);
        let held = mem::take(&mut state.held);
        let (number, others) = (cut.number, cut.others);
        state.writing = Some(Writing { number, others, is_written: false, has_parts: false });
        drop(state);
        self.send(Work::Cut(Box::new(cut), held))?;
        Ok(goes_on)
    }

    fn status(&self) -> Option<CheckpointStatus> {
        let awaits = self.shared.awaits();
        self.shared.writer.report(|status, taking| {
            let taking_us = taking.map(|since| since.elapsed().as_micros() as u64);
            Some(CheckpointStatus { taking_us, awaits, ..status.clone() })
        })
    }

    fn given_up(&self, cut: u64, others: usize) {
        self.shared.lock().held.clear();
        // Without other processes the next cut need not wait for the thread.
        if others == 0 || self.send(Work::GivenUp { cut, others }).is_err() {
            self.shared.end_cut(Ok(()));
        }
    }

    fn ended(&self, cut: Option<u64>) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if cut.is_some() {
            self.shared.end_cut(Ok(()));
        }
    }
}

/// The thread has the sinks, which have locks of their directories: it ends before.
impl Drop for Saver {
    fn drop(&mut self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((works, thread)) = thread {
            drop(works);
            // The thread itself may be the last that knows of the job.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").field("writer", &self.shared.writer).finish_non_exhaustive()
    }
}
