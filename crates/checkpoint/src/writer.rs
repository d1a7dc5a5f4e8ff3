//! Writing a cut into the store: files of state, the manifest, then the commit of the outputs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millstream_contract::sink::{Prepared, Sink};
use millstream_contract::table::{JobMarks, Table};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};
use millstream_engine::observe::CheckpointStatus;
use millstream_engine::{CutTaken, StageIdentity, add_prepared};
use millstream_operators::operator::saved::SetAside;
use millstream_operators::windowing::SliceId;
use millstream_state::Leaders;
use millstream_store::{Checkpoints, FORMAT, Manifest, Output, Stage, StateFile};
use serde::{Deserialize, Serialize};

use crate::failing::{Failing, SaveError, Saved, io};
use crate::file::{StageTarget, save_waiting};
use crate::written::{Written, WrittenFile};

/// How often publishing is tried again at the end of a job.
const RETRY: Duration = Duration::from_secs(1);

/// Constants of a running job.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) store: Checkpoints,
    /// Tells runs apart.
    pub(crate) attempt: String,
    /// The job's text.
    pub(crate) job: String,
    pub(crate) first: u64,
    pub(crate) started_us: i64,
    pub(crate) stages: Vec<StageIdentity>,
    /// Names of the outputs, and their sinks.
    pub(crate) outputs: Vec<String>,
    /// By output: the meaning of its rows.
    pub(crate) identities: Vec<Vec<String>>,
    pub(crate) sinks: Vec<Arc<dyn Sink>>,
    /// Tables that are read, under their names in marks.
    pub(crate) tables: Vec<(String, Arc<dyn Table>)>,
    pub(crate) leaders: usize,
    pub(crate) keep: usize,
    pub(crate) tolerance: Duration,
}

/// Writes cuts into a store, one after the other.
pub(crate) struct Writer {
    pub(crate) fixed: Fixed,
    progress: Mutex<Progress>,
    pub(crate) written: Written,
    /// For reports, which do not wait for the store: the status, and since when a cut is being
    /// taken.
    report: Mutex<(CheckpointStatus, Option<Instant>)>,
    /// The wait of a job that has ended, and a bell for its end.
    ending: (Mutex<Ending>, Condvar),
    /// Is told of checkpoints that fail, and of the first that succeeds again.
    notice: Box<dyn Fn(&str) + Send + Sync>,
}

/// The wait of a job that has ended, for a store that is away.
#[derive(Default)]
struct Ending {
    waits: bool,
    /// The job is to end without the store.
    is_given_up: bool,
}

struct Progress {
    /// By output: prepared rows that no durable manifest names.
    waiting: Vec<Vec<Prepared>>,
    failing: Failing,
    /// Number of the checkpoint that was adopted or published last.
    last: u64,
    /// Marks of the checkpoints that stay, the oldest first.
    kept: VecDeque<JobMarks>,
}

/// Durable part of a cut, of a process that is not the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Files of state, or why they could not be written.
    files: std::result::Result<Vec<WrittenFile>, String>,
    /// By output.
    pub(crate) prepared: Vec<Prepared>,
}

/// The state of a stage in a worker, that has been set aside.
pub(crate) struct Held {
    pub(crate) stage: usize,
    pub(crate) leader: usize,
    pub(crate) state: Box<dyn SetAside>,
}

impl Writer {
    /// `last`: number of the last checkpoint of the runs before.
    pub(crate) fn new(fixed: Fixed, last: u64, notice: Box<dyn Fn(&str) + Send + Sync>) -> Writer {
        let waiting = vec![Vec::new(); fixed.outputs.len()];
        let (failing, kept) = (Failing::default(), VecDeque::new());
        let progress = Mutex::new(Progress { waiting, failing, last, kept });
        let (written, report, ending) = Default::default();
        Writer { fixed, progress, written, report, ending, notice }
    }

    /// Looks at, or changes, what is reported.
    pub(crate) fn report<T>(
        &self,
        with: impl FnOnce(&mut CheckpointStatus, &mut Option<Instant>) -> T,
    ) -> T {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, taking) = &mut *report;
        with(status, taking)
    }

    /// Writes a cut. `parts` waits for the parts of the other processes: `None` of some if the job
    /// has ended before. An error ends the job.
    pub(crate) fn write(
        &self,
        mut cut: CutTaken,
        held: Vec<Held>,
        parts: impl FnOnce() -> Vec<Option<Part>>,
    ) -> Result<()> {
        let number = cut.number;
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.write_state(number, held);
        self.seal(&mut cut.prepared)?;
        let parts = parts();
        let has_all = parts.iter().all(Option::is_some);
        for Part { files, prepared } in parts.into_iter().flatten() {
            add_prepared(&mut cut.prepared, vec![prepared]);
            state = state.and_then(|mut all| {
                all.append(&mut files.map_err(unavailable)?);
                Ok(all)
            });
        }
        for (waiting, prepared) in progress.waiting.iter_mut().zip(&cut.prepared) {
            waiting.push(prepared.clone());
        }
        if !has_all {
            return Ok(());
        }
        let marks = cut.marks.clone();
        match state.and_then(|files| self.publish(&progress, cut, files)) {
            Ok(()) => {
                progress.kept.push_back(marks);
                self.written.set_durable(number);
                self.published(&mut progress, number)
            }
            Err(SaveError::Store(error)) if error.may_pass() => {
                let was_failing = progress.failing.is_failing();
                self.missed(&mut progress, number, &error)?;
                if !was_failing {
                    (self.notice)(&format!(
                        "checkpoint {number} cannot be written, and the job goes on without it: \
                         {error}"
                    ));
                }
                Ok(())
            }
            Err(SaveError::Store(error)) => Err(io(&error)),
            Err(SaveError::Job(error)) => Err(error),
        }
    }

    /// Keeps rows that other processes have prepared for a cut that is given up, for the next
    /// manifest.
    pub(crate) fn keep(&self, number: u64, parts: Vec<Option<Part>>) {
        let others = parts.into_iter().flatten().map(|part| part.prepared).collect();
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |_| Prepared { interval: number, sealed: Vec::new() };
        let mut prepared: Vec<Prepared> = self.fixed.outputs.iter().map(none).collect();
        add_prepared(&mut prepared, others);
        for (waiting, prepared) in progress.waiting.iter_mut().zip(prepared) {
            waiting.extend(Some(prepared).filter(|prepared| !prepared.sealed.is_empty()));
        }
    }

    /// Where the state of a stage in a worker goes.
    fn target(&self, checkpoint: u64, stage: usize, leader: usize) -> StageTarget<'_> {
        StageTarget {
            store: &self.fixed.store,
            checkpoint,
            attempt: &self.fixed.attempt,
            stage,
            leader,
            partitions: self.partitions(leader),
        }
    }

    /// Partitions of the keys that a worker leads.
    pub(crate) fn partitions(&self, leader: usize) -> Range<u32> {
        let partitions = Leaders::even(self.fixed.leaders).partitions(leader);
        // At most 256.
        partitions.start as u32..partitions.end as u32
    }

    /// Writes what a process that is not the first has of a cut, and completes its interval.
    pub(crate) fn write_part(
        &self,
        number: u64,
        held: Vec<Held>,
        mut prepared: Vec<Prepared>,
    ) -> Result<Part> {
        let files = match self.write_state(number, held) {
            Ok(files) => Ok(files),
            Err(SaveError::Store(error)) if error.may_pass() => Err(error.to_string()),
            Err(SaveError::Store(error)) => return Err(io(&error)),
            Err(SaveError::Job(error)) => return Err(error),
        };
        self.seal(&mut prepared)?;
        Ok(Part { files, prepared })
    }

    /// Makes the prepared rows of this process durable, by output.
    fn seal(&self, prepared: &mut [Prepared]) -> Result<()> {
        self.fixed.sinks.iter().zip(prepared).try_for_each(|(sink, prepared)| sink.seal(prepared))
    }

    /// Writes the state of a cut.
    fn write_state(&self, number: u64, mut held: Vec<Held>) -> Saved<Vec<WrittenFile>> {
        // Tables may wait for copies, and windows for the state.
        held.iter_mut().for_each(|held| held.state.copy_shared());
        let (mut all, mut durable) = (Vec::new(), number);
        for Held { stage, leader, mut state } in held {
            let unchanged = state.unchanged();
            durable = durable.min(unchanged.durable);
            all.extend(self.written.unchanged((stage, leader), &unchanged)?);
            all.extend(self.target(number, stage, leader).save(&mut *state)?);
        }
        self.written.note(number, all.clone(), durable);
        Ok(all)
    }

    /// Writes what is left of a cut, and its manifest.
    fn publish(&self, progress: &Progress, cut: CutTaken, written: Vec<WrittenFile>) -> Saved<()> {
        let mut stages = Vec::new();
        let windows = cut.frontiers.into_iter().zip(cut.windowings).zip(cut.layouts);
        let rows = self.fixed.stages.iter().enumerate().zip(windows);
        for ((number, stage), ((frontier_us, windowing), layout)) in rows {
            let of_stage = || written.iter().filter(|of| of.stage == number);
            let mut files: Vec<StateFile> = of_stage().map(|of| of.file.clone()).collect();
            files.sort();
            let slices: BTreeSet<i64> = of_stage().flat_map(|of| of.rows.keys().copied()).collect();
            let slices = slices.into_iter().map(|slice| SliceId::from_word(slice as u64));
            let windows = windowing.and_then(|windowing| windowing.open(slices, frontier_us));
            let identity = serde_json::to_value(&stage.identity)
                .map_err(|error| Error::Internal(format!("a stage's identity: {error}")))?;
            let (names, tables) = (stage.names.clone(), stage.tables.clone());
            stages.push(Stage { names, identity, tables, layout, frontier_us, windows, files });
        }
        let mut manifest = self.manifest(cut.number, false, &progress.waiting);
        (manifest.sources, manifest.stages) = (cut.marks, stages);
        manifest.lookups = cut.lookups;
        manifest.counters = serde_json::to_value(cut.totals)
            .map_err(|error| Error::Internal(format!("counts of a job: {error}")))?;
        let place = (cut.number, self.fixed.attempt.as_str());
        for (number, (output, mark)) in manifest.outputs.iter_mut().zip(cut.outputs).enumerate() {
            (output.limit, output.offset) = (mark.limit, mark.offset);
            let waiting = save_waiting(&self.fixed.store, place, number, &mark.waiting)?;
            output.waiting.extend(waiting);
        }
        if let Some(name) = self.fixed.store.missing(&manifest)? {
            // The next cut has everything.
            self.written.set_durable(0);
            return Err(deleted(name).into());
        }
        self.report(|status, _| status.bytes = manifest.bytes());
        Ok(self.fixed.store.publish_behind(&manifest, progress.last)?)
    }

    /// A manifest of everything but what a cut has.
    fn manifest(&self, checkpoint: u64, ended: bool, waiting: &[Vec<Prepared>]) -> Manifest {
        let fixed = &self.fixed;
        let named = fixed.outputs.iter().zip(&fixed.identities);
        let output = |((name, identity), prepared): ((&String, &Vec<String>), &Vec<_>)| Output {
            name: name.clone(),
            identity: identity.clone(),
            prepared: prepared.clone(),
            limit: None,
            offset: 0,
            waiting: Vec::new(),
        };
        Manifest {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").into(),
            checkpoint,
            attempt: fixed.attempt.clone(),
            job: fixed.job.clone(),
            time_us: now_us(),
            first: fixed.first,
            started_us: fixed.started_us,
            ended,
            sources: JobMarks::default(),
            stages: Vec::new(),
            outputs: named.zip(waiting).map(output).collect(),
            lookups: BTreeMap::new(),
            counters: serde_json::Value::Null,
        }
    }

    /// The manifest is durable: its rows become visible, and older checkpoints go.
    fn published(&self, progress: &mut Progress, number: u64) -> Result<()> {
        progress.last = number;
        for (sink, waiting) in self.fixed.sinks.iter().zip(&mut progress.waiting) {
            waiting.iter().try_for_each(|prepared| sink.commit(prepared))?;
            waiting.clear();
        }
        let missed = progress.failing.ends();
        if missed > 0 {
            let missed = counted(missed, "checkpoint");
            (self.notice)(&format!("checkpoint {number} is written, after {missed} that failed"));
        }
        self.report(|status, taking| {
            (status.last, status.error) = (Some((number, now_us())), None);
            status.written += 1;
            status.duration_us = taking.map_or(0, |since| since.elapsed().as_micros() as u64);
        });
        tracing::info!(checkpoint = number, "a checkpoint is written");
        match self.fixed.store.trim(self.fixed.first..=number, self.fixed.keep) {
            // The next one tries again.
            Err(error) => tracing::warn!(%error, "older checkpoints cannot be deleted"),
            Ok(removed) => tracing::debug!(?removed, "older checkpoints are deleted"),
        }
        if progress.kept.len() > self.fixed.keep {
            progress.kept.pop_front();
        }
        // Until then there may be an older one, of an earlier run.
        if progress.kept.len() == self.fixed.keep {
            committed(&self.fixed.tables, &progress.kept[0]);
        }
        Ok(())
    }

    /// A job that has ended does not wait for its store any more. Whether it does.
    pub(crate) fn give_up(&self) -> bool {
        let mut ending = self.ending();
        ending.is_given_up = true;
        self.ending.1.notify_all();
        ending.waits
    }

    fn ending(&self) -> MutexGuard<'_, Ending> {
        self.ending.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long, or until nobody is to wait any more, which is returned.
    fn is_given_up_within(&self, time: Duration) -> bool {
        let bell = &self.ending.1;
        let waited = bell.wait_timeout_while(self.ending(), time, |ending| !ending.is_given_up);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_given_up
    }

    /// The checkpoint could not be written: the job goes on, unless that has lasted too long.
    fn missed(
        &self,
        progress: &mut Progress,
        number: u64,
        error: &millstream_store::Error,
    ) -> Result<()> {
        if !progress.failing.missed(self.fixed.tolerance) {
            return Err(io(error));
        }
        self.report(|status, _| {
            status.failed += 1;
            status.error = Some(error.to_string());
        });
        tracing::warn!(checkpoint = number, %error, "a checkpoint cannot be written");
        Ok(())
    }

    /// Publishes the end of a job whose sinks are finished, and makes the last rows visible.
    /// `others`: rows that other processes have prepared, by process and output.
    pub(crate) fn end(
        &self,
        number: u64,
        marks: JobMarks,
        others: Vec<Vec<Prepared>>,
    ) -> Result<()> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.fixed.sinks.iter().map(|sink| sink.prepare(number));
        let mut prepared = prepared.collect::<Result<Vec<_>>>()?;
        self.seal(&mut prepared)?;
        add_prepared(&mut prepared, others);
        progress.waiting.iter_mut().zip(prepared).for_each(|(waiting, of)| waiting.push(of));
        let mut manifest = self.manifest(number, true, &progress.waiting);
        manifest.sources = marks.clone();
        let (since, mut told) = (Instant::now(), false);
        loop {
            match self.fixed.store.publish_behind(&manifest, progress.last) {
                Ok(()) => break,
                Err(error) if error.may_pass() && since.elapsed() < self.fixed.tolerance => {
                    self.missed(&mut progress, number, &error)?;
                    self.ending().waits = true;
                    if !std::mem::replace(&mut told, true) {
                        let patience = self.fixed.tolerance;
                        (self.notice)(&format!(
                            "the job has ended, and its last checkpoint cannot be written; it is \
                             tried again for {patience:?}, or until Ctrl-C: {error}"
                        ));
                    }
                    if self.is_given_up_within(RETRY) {
                        (self.notice)(&format!(
                            "checkpoint {number} is not written, and no row is lost: {error}"
                        ));
                        return Err(Error::Interrupted);
                    }
                }
                Err(error) => return Err(io(&error)),
            }
        }
        self.published(&mut progress, number)?;
        committed(&self.fixed.tables, &marks);
        Ok(())
    }
}

/// The error of another process's store.
fn unavailable(text: String) -> millstream_store::Error {
    let (message, help) = text.split_once("\n  help: ").unwrap_or((&text, ""));
    let (object, message) = message.split_once(": ").unwrap_or(("checkpoint", message));
    let [object, message, help] = [object, message, help].map(str::to_string);
    millstream_store::Error::Unavailable { object, message, help }
}

/// The error of an earlier checkpoint's file that is not there any more.
fn deleted(object: String) -> millstream_store::Error {
    millstream_store::Error::Unavailable {
        object,
        message: "it was deleted while the job runs".into(),
        help: "the next checkpoint has all state again".into(),
    }
}

/// Tells tables that no job will go on before these marks.
pub(crate) fn committed(tables: &[(String, Arc<dyn Table>)], marks: &JobMarks) {
    for (name, table) in tables {
        let Some(marks) = marks.get(name) else { continue };
        if let Err(error) = table.committed(&marks.positions(), &marks.ended()) {
            // The next checkpoint tries again.
            tracing::warn!(table = name, %error, "what has been read cannot be forgotten");
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("fixed", &self.fixed).finish_non_exhaustive()
    }
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
