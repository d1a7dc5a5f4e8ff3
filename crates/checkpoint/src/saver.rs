//! Writing checkpoints: the engine's contract over the store.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millstream_contract::sink::{Prepared, Sink};
use millstream_contract::table::JobMarks;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};
use millstream_engine::{CutTaken, StageIdentity, Stopper};
use millstream_operators::operator::Operator;
use millstream_store::{Checkpoints, FORMAT, Manifest, Output, Stage, StateFile};

use crate::failing::{Failed, Failing, io};
use crate::file::{Place, read};

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
    last: Option<u64>,
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
            last: None,
        };
        Saver { fixed, from, state: Mutex::new(state), notice }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the last checkpoint that this job has written.
    pub fn last(&self) -> Option<u64> {
        self.lock().last
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
        drop(state);
        let begun = stopper.cut(number);
        if !begun {
            self.lock().taking = None;
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
        state.last = Some(number);
        for (sink, waiting) in self.fixed.sinks.iter().zip(&mut state.waiting) {
            waiting.iter().try_for_each(|prepared| sink.commit(prepared))?;
            waiting.clear();
        }
        let missed = state.failing.ends();
        if missed > 0 {
            let missed = counted(missed, "checkpoint");
            (self.notice)(&format!("checkpoint {number} is written, after {missed} that failed"));
        }
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
        let place = Place {
            store: &self.fixed.store,
            checkpoint: cut,
            attempt: &self.fixed.attempt,
            stage,
            leader,
            partitions: partition(leader)..partition(leader + 1),
        };
        match place.save(operator) {
            Ok(mut files) => self.lock().files[stage].append(&mut files),
            Err(Failed::Store(error)) if error.may_pass() => self.lock().failed = Some(error),
            Err(Failed::Store(error)) => return Err(io(&error)),
            Err(Failed::Job(error)) => return Err(error),
        }
        Ok(())
    }

    fn complete(&self, cut: CutTaken) -> Result<()> {
        let mut state = self.lock();
        let CutTaken { number, marks, frontiers, prepared, .. } = cut;
        for (waiting, prepared) in state.waiting.iter_mut().zip(prepared) {
            waiting.push(prepared);
        }
        let stages = self.fixed.stages.len();
        let files = mem::replace(&mut state.files, vec![Vec::new(); stages]);
        let mut manifest = self.manifest(number, false, &state.waiting);
        manifest.sources = marks;
        let stage = |((stage, mut files), frontier_us): ((&StageIdentity, Vec<StateFile>), i64)| {
            files.sort();
            let identity = serde_json::to_value(&stage.identity)
                .map_err(|error| Error::Internal(format!("a stage's identity: {error}")))?;
            let layout = Default::default();
            Ok(Stage { names: stage.names.clone(), identity, layout, frontier_us, files })
        };
        let stages = self.fixed.stages.iter().zip(files).zip(frontiers);
        manifest.stages = stages.map(stage).collect::<Result<_>>()?;
        let saved = match state.failed.take() {
            Some(error) => Err(error),
            None => self.fixed.store.publish(&manifest),
        };
        match saved {
            Ok(()) => self.published(&mut state, number)?,
            Err(error) if error.may_pass() => self.missed(&mut state, number, &error)?,
            Err(error) => return Err(io(&error)),
        }
        state.taking = None;
        if let Some(stopper) = state.ends.take() {
            // No row after the cut has come: all workers stand.
            stopper.stop();
        }
        Ok(())
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
