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
use millstream_engine::observe::CheckpointStatus;
use millstream_engine::{CutTaken, Stopper, add_marks, add_prepared};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::SetAside;
use millstream_store::StateFile;

use crate::failing::{SaveError, io};
use crate::file::read;
use crate::writer::{Fixed, Held, Work, Writer};
use crate::written::WrittenFile;

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
    /// No cut is being taken any more.
    idle: Condvar,
}

struct State {
    /// The number of the next cut.
    next: u64,
    /// A cut is being taken or written.
    taking: bool,
    /// Of this cut: the state of workers.
    held: Vec<Held>,
    /// In a process that is not the first: prepared rows of the part that the first may not have.
    part: Vec<Prepared>,
    /// The job, and what ends it when the next cut is written.
    stopper: Option<Stopper>,
    end: Option<Box<dyn FnOnce() + Send>>,
}

/// Report of another process at the end of a job: the marks of its splits, and its prepared rows,
/// by output.
pub type Others = (JobMarks, Vec<Prepared>);

impl Saver {
    pub(crate) fn new(
        fixed: Fixed,
        (from, resumed): (Restored, Option<Resumed>),
        next: u64,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Saver> {
        let (held, part) = (Vec::new(), Vec::new());
        let state = State { next, taking: false, held, part, stopper: None, end: None };
        let (state, idle) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { writer: Writer::new(fixed, notice), state, idle });
        let (works, to_write) = channel();
        let of_thread = shared.clone();
        let write = move || {
            while let Ok(work) = to_write.recv() {
                let written = catch_unwind(AssertUnwindSafe(|| of_thread.writer.write(work)));
                let panicked = |_| Err(Error::Internal("writing a checkpoint panicked".into()));
                of_thread.end_cut(written.unwrap_or_else(panicked));
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
            self.shared.idle.notify_all();
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
        let mut prepared: Vec<Prepared> = prepared.collect::<Result<_>>()?;
        // A LIMIT may have ended the job in the middle of a cut.
        add_prepared(&mut prepared, vec![mem::take(&mut self.shared.lock().part)]);
        Ok((marks, prepared))
    }

    /// Publishes the end of a job whose sinks are finished, and makes the last rows visible, those
    /// of the other processes included.
    ///
    /// # Errors
    /// The store has failed for longer than is tolerated, or another job has taken its place.
    pub fn end(&self, mut marks: JobMarks, others: Vec<Others>) -> Result<()> {
        let mut prepared = Vec::new();
        for (theirs, of_process) in others {
            add_marks(&mut marks, theirs)?;
            prepared.push(of_process);
        }
        let mut state = self.shared.wait();
        let number = state.next;
        state.next += 1;
        drop(state);
        self.shared.writer.end(number, marks, prepared)
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

/// Files of another process, or why they could not be written.
type Part = std::result::Result<Vec<WrittenFile>, String>;

/// The error of another process's store.
fn unavailable(text: String) -> millstream_store::Error {
    let (message, help) = text.split_once("\n  help: ").unwrap_or((&text, ""));
    let (object, message) = message.split_once(": ").unwrap_or(("checkpoint", message));
    let [object, message, help] = [object, message, help].map(str::to_string);
    millstream_store::Error::Unavailable { object, message, help }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no cut is being taken.
    fn wait(&self) -> MutexGuard<'_, State> {
        let idle = self.idle.wait_while(self.lock(), |state| state.taking);
        idle.unwrap_or_else(PoisonError::into_inner)
    }

    /// No cut is being taken any more.
    fn end_cut(&self, written: Result<()>) {
        let mut state = self.lock();
        state.taking = false;
        state.held.clear();
        self.writer.report(|_, taking| *taking = None);
        let (stopper, end) = (state.stopper.clone(), state.end.take());
        drop(state);
        self.idle.notify_all();
        match (written, stopper, end) {
            (Err(error), Some(stopper), _) => stopper.stop_with(error),
            (Ok(()), _, Some(end)) => end(),
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

    fn part(&self, cut: u64, prepared: &mut [Prepared]) -> Result<String> {
        let held = mem::take(&mut self.shared.lock().held);
        // The first process may name them in the manifest as soon as it knows of them.
        let part = self.shared.writer.write_part(cut, held, prepared);
        self.shared.lock().part = prepared.to_vec();
        let part: Part = match part {
            Ok(files) => Ok(files),
            Err(SaveError::Store(error)) if error.may_pass() => Err(error.to_string()),
            Err(SaveError::Store(error)) => return Err(io(&error)),
            Err(SaveError::Job(error)) => return Err(error),
        };
        serde_json::to_string(&part).map_err(|error| Error::Internal(format!("a part: {error}")))
    }

    fn part_taken(&self) {
        self.shared.lock().part.clear();
    }

    fn complete(&self, cut: CutTaken) -> Result<()> {
        let mut state = self.shared.lock();
        let mut others = Vec::new();
        for part in &cut.others {
            let part: Part = serde_json::from_str(part)
                .map_err(|error| Error::Internal(format!("a part of another process: {error}")))?;
            others.push(part.map_err(unavailable));
        }
        let work = Work { cut, held: mem::take(&mut state.held), others };
        if state.end.is_some() {
            // Workers stand until the job is told to stop: no row behind the cut is computed.
            drop(state);
            let written = self.shared.writer.write(work);
            let result = written.clone();
            self.shared.end_cut(written);
            return result;
        }
        drop(state);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = thread.as_ref().and_then(|(works, _)| works.send(work).ok());
        sent.ok_or_else(|| Error::Internal("no thread writes checkpoints".into()))
    }

    fn status(&self) -> Option<CheckpointStatus> {
        self.shared.writer.report(|status, taking| {
            let taking_us = taking.map(|since| since.elapsed().as_micros() as u64);
            Some(CheckpointStatus { taking_us, ..status.clone() })
        })
    }

    fn given_up(&self, cut: u64, prepared: Vec<Vec<Prepared>>) {
        self.shared.writer.keep(cut, prepared);
        self.shared.end_cut(Ok(()));
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
