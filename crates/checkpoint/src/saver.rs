//! Writing checkpoints: the engine's contract over the store.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millstream_contract::sink::{Prepared, Sink};
use millstream_contract::table::JobMarks;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};
use millstream_engine::observe::CheckpointStatus;
use millstream_engine::{CutTaken, StageIdentity, Stopper};
use millstream_operators::operator::Operator;
use millstream_store::{Checkpoints, FORMAT, Manifest, Output, Stage, StateFile};

use crate::failing::{Failing, SaveError, Saved, io};
use crate::file::{StageTarget, read, save_waiting};

/// How often publishing is tried again at the end of a job.
const RETRY: Duration = Duration::from_secs(1);

/// Partitions of the keys, for the files' entries: see [`millstream_store::StateFile::partitions`].
const PARTITIONS: usize = 256;

/// What does not change while a job runs.
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
    pub(crate) sinks: Vec<Arc<dyn Sink>>,
    pub(crate) leaders: usize,
    pub(crate) keep: usize,
    pub(crate) tolerance: Duration,
}

/// By stage of the plan: the files from which it goes on.
pub(crate) type Restored = Vec<Vec<StateFile>>;

/// Saves the cuts of a job in a store. See the [crate's](crate) promise.
pub struct Saver {
    fixed: Fixed,
    from: Restored,
    state: Mutex<State>,
    /// For reports, which do not wait for the store.
    status: Mutex<(CheckpointStatus, Option<Instant>)>,
    /// Is told of checkpoints that fail, and of the first that succeeds again.
    notice: Box<dyn Fn(&str) + Send + Sync>,
}

struct State {
    /// The number of the next cut.
    next: u64,
    /// The number of the cut that is being taken.
    taking: Option<u64>,
    /// Its files so far, by stage.
    files: Vec<Vec<StateFile>>,
    /// Why the cut cannot be saved.
    failed: Option<millstream_store::Error>,
    /// By output: prepared rows that no durable manifest names.
    waiting: Vec<Vec<Prepared>>,
    failing: Failing,
    /// Is stopped after the next cut.
    ends: Option<Stopper>,
}

impl Saver {
    pub(crate) fn new(
        fixed: Fixed,
        from: Restored,
        next: u64,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Saver {
        let state = State {
            next,
            taking: None,
            files: vec![Vec::new(); fixed.stages.len()],
            failed: None,
            waiting: vec![Vec::new(); fixed.outputs.len()],
            failing: Failing::default(),
            ends: None,
        };
        Saver { fixed, from, state: Mutex::new(state), status: Mutex::default(), notice }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at, or changes, what is reported: the status, and since when a cut is being taken.
    fn report<T>(&self, with: impl FnOnce(&mut CheckpointStatus, &mut Option<Instant>) -> T) -> T {
        let mut report = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, taking) = &mut *report;
        with(status, taking)
    }

    /// Takes a cut, unless one is being taken or all input has been read.
    pub fn cut(&self, stopper: &Stopper) -> bool {
        let mut state = self.lock();
        if state.taking.is_some() {
            return true;
        }
        let number = state.next;
        // The job may complete the cut before this call returns.
        (state.taking, state.next) = (Some(number), number + 1);
        self.report(|_, taking| *taking = Some(Instant::now()));
        drop(state);
        let begun = stopper.cut(number);
        if !begun {
            self.lock().taking = None;
            self.report(|_, taking| *taking = None);
        }
        begun
    }

    /// Takes a last cut, behind which the job stops. False if all input has been read.
    pub fn cut_and_stop(&self, stopper: &Stopper) -> bool {
        self.lock().ends = Some(stopper.clone());
        self.cut(stopper)
    }

    /// A manifest of everything but what a cut has.
    fn manifest(&self, checkpoint: u64, ended: bool, waiting: &[Vec<Prepared>]) -> Manifest {
        let fixed = &self.fixed;
        let output = |(name, prepared): (&String, &Vec<Prepared>)| Output {
            name: name.clone(),
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
            outputs: fixed.outputs.iter().zip(waiting).map(output).collect(),
            counters: serde_json::Value::Null,
        }
    }

    /// The manifest is durable: its rows become visible, and older checkpoints go.
    fn published(&self, state: &mut State, number: u64) -> Result<()> {
        for (sink, waiting) in self.fixed.sinks.iter().zip(&mut state.waiting) {
            waiting.iter().try_for_each(|prepared| sink.commit(prepared))?;
            waiting.clear();
        }
        let missed = state.failing.ends();
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
        Ok(())
    }

    /// The checkpoint could not be written: the job goes on, unless that has lasted too long.
    fn missed(
        &self,
        state: &mut State,
        number: u64,
        error: &millstream_store::Error,
    ) -> Result<()> {
        let was_failing = state.failing.is_failing();
        if !state.failing.missed(self.fixed.tolerance) {
            return Err(io(error));
        }
        self.report(|status, _| {
            status.failed += 1;
            status.error = Some(error.to_string());
        });
        tracing::warn!(checkpoint = number, %error, "a checkpoint cannot be written");
        if !was_failing {
            (self.notice)(&format!(
                "checkpoint {number} cannot be written, and the job goes on without it: {error}"
            ));
        }
        Ok(())
    }

    /// A job has ended well, and its sinks are finished: publishes its end, and makes its rows
    /// visible.
    ///
    /// # Errors
    /// The store has failed for longer than is tolerated, or another job has taken its place.
    pub fn end(&self, marks: JobMarks) -> Result<()> {
        let mut state = self.lock();
        let number = state.next;
        for (sink, waiting) in self.fixed.sinks.iter().zip(&mut state.waiting) {
            waiting.push(sink.prepare(number)?);
        }
        let mut manifest = self.manifest(number, true, &state.waiting);
        manifest.sources = marks;
        let since = Instant::now();
        loop {
            match self.fixed.store.publish(&manifest) {
                Ok(()) => break,
                Err(error) if error.may_pass() && since.elapsed() < self.fixed.tolerance => {
                    self.missed(&mut state, number, &error)?;
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(io(&error)),
            }
        }
        state.next = number + 1;
        self.published(&mut state, number)
    }
}

impl millstream_engine::Checkpoints for Saver {
    fn restore(&self, _leader: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        // Each worker picks the rows of its own keys.
        self.from[stage].iter().try_for_each(|file| {
            read(&self.fixed.store, file, |rows| operator.restore(file.part, rows))
        })
    }

    fn save(
        &self,
        cut: u64,
        leader: usize,
        stage: usize,
        operator: &mut dyn Operator,
    ) -> Result<()> {
        if self.lock().failed.is_some() {
            return Ok(());
        }
        let partition = |leader: usize| (leader * PARTITIONS).div_ceil(self.fixed.leaders) as u32;
        let target = StageTarget {
            store: &self.fixed.store,
            checkpoint: cut,
            attempt: &self.fixed.attempt,
            stage,
            leader,
            partitions: partition(leader)..partition(leader + 1),
        };
        match target.save(operator) {
            Ok(mut files) => self.lock().files[stage].append(&mut files),
            Err(SaveError::Store(error)) if error.may_pass() => self.lock().failed = Some(error),
            Err(SaveError::Store(error)) => return Err(io(&error)),
            Err(SaveError::Job(error)) => return Err(error),
        }
        Ok(())
    }

    fn complete(&self, cut: CutTaken) -> Result<()> {
        let mut state = self.lock();
        let number = cut.number;
        for (waiting, prepared) in state.waiting.iter_mut().zip(&cut.prepared) {
            waiting.push(prepared.clone());
        }
        match self.publish(&mut state, cut) {
            Ok(()) => self.published(&mut state, number)?,
            Err(SaveError::Store(error)) if error.may_pass() => {
                self.missed(&mut state, number, &error)?;
            }
            Err(SaveError::Store(error)) => return Err(io(&error)),
            Err(SaveError::Job(error)) => return Err(error),
        }
        self.end_cut(&mut state);
        Ok(())
    }

    fn status(&self) -> Option<CheckpointStatus> {
        self.report(|status, taking| {
            let taking_us = taking.map(|since| since.elapsed().as_micros() as u64);
            Some(CheckpointStatus { taking_us, ..status.clone() })
        })
    }

    fn given_up(&self, _cut: u64) {
        let mut state = self.lock();
        state.files.iter_mut().for_each(Vec::clear);
        state.failed = None;
        self.end_cut(&mut state);
    }
}

impl Saver {
    /// Writes what is left of a cut, and its manifest.
    fn publish(&self, state: &mut State, cut: CutTaken) -> Saved<()> {
        let mut stages = Vec::new();
        let files = state.files.iter_mut().map(mem::take);
        let rows = self.fixed.stages.iter().zip(files).zip(cut.frontiers).zip(cut.layouts);
        for (((stage, mut files), frontier_us), layout) in rows {
            files.sort();
            let identity = serde_json::to_value(&stage.identity)
                .map_err(|error| Error::Internal(format!("a stage's identity: {error}")))?;
            stages.push(Stage { names: stage.names.clone(), identity, layout, frontier_us, files });
        }
        if let Some(error) = state.failed.take() {
            return Err(error.into());
        }
        let mut manifest = self.manifest(cut.number, false, &state.waiting);
        (manifest.sources, manifest.stages) = (cut.marks, stages);
        let place = (cut.number, self.fixed.attempt.as_str());
        for (number, (output, mark)) in manifest.outputs.iter_mut().zip(cut.outputs).enumerate() {
            (output.limit, output.offset) = (mark.limit, mark.offset);
            let waiting = save_waiting(&self.fixed.store, place, number, &mark.waiting)?;
            output.waiting.extend(waiting);
        }
        self.report(|status, _| status.bytes = manifest.bytes());
        Ok(self.fixed.store.publish(&manifest)?)
    }

    /// No cut is being taken any more.
    fn end_cut(&self, state: &mut State) {
        state.taking = None;
        self.report(|_, taking| *taking = None);
        if let Some(stopper) = state.ends.take() {
            // No row after the cut has come: all workers stand.
            stopper.stop();
        }
    }
}

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").field("fixed", &self.fixed).finish_non_exhaustive()
    }
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
