//! The jobs of a submitted script, which run one after the other in a separate thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_contract::Error;
use millstream_contract::sink::Sink;
use millstream_engine::observe::Snapshot;
use millstream_engine::{STACK_BYTES, Stats};

use crate::failure::Failure;
use crate::program::saved::Stopping;
use crate::rows::{Queue, Rows};

/// The jobs of a script, in the order in which they run: one for each query (`SELECT`, `INSERT`, a
/// statement set) and each `EXPLAIN`.
///
/// A job begins when the job before has ended well. If a job fails or is stopped, later jobs end
/// with [`Failure::NotRun`].
#[must_use = "an INSERT goes on without its handle, and nobody hears of its failure"]
pub struct Jobs(VecDeque<JobHandle>);

/// A submitted job.
///
/// Dropping the handle of a `SELECT` whose rows have not been taken ends the job, as dropping its
/// [`Rows`] does. An `INSERT` goes on without its handle.
pub struct JobHandle {
    shared: Arc<SharedJobs>,
    number: usize,
    statement: String,
    rows: Option<Rows>,
}

impl Jobs {
    /// Waits until all have ended, and returns their counters, or the first failure. Rows have to
    /// be taken before: see [`JobHandle::wait`].
    pub fn wait(self) -> Result<Vec<Stats>, Failure> {
        self.0.iter().try_for_each(JobHandle::refuse_unread)?;
        self.into_iter().map(JobHandle::wait).collect()
    }

    /// Stops all that have not ended.
    pub fn stop(&self) {
        self.0.iter().for_each(JobHandle::stop);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none: the script only declares and sets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The jobs, to look at.
    pub fn iter(&self) -> impl Iterator<Item = &JobHandle> {
        self.0.iter()
    }

    /// The jobs, to take rows of.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut JobHandle> {
        self.0.iter_mut()
    }
}

impl IntoIterator for Jobs {
    type Item = JobHandle;
    type IntoIter = std::collections::vec_deque::IntoIter<JobHandle>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl JobHandle {
    /// The statement's text.
    pub fn statement(&self) -> &str {
        &self.statement
    }

    /// The rows of a `SELECT`, or the lines of an `EXPLAIN`, as they come. `None` for an `INSERT`,
    /// and if they have been taken already.
    pub fn rows(&mut self) -> Option<Rows> {
        self.rows.take()
    }

    /// Waits for the job's end and returns its counters.
    ///
    /// # Errors
    /// The reason of an early end. [`Failure::Script`] if the job is a `SELECT` whose rows were not
    /// taken: the job would wait for its reader, and this call for the job.
    pub fn wait(self) -> Result<Stats, Failure> {
        self.refuse_unread()?;
        self.shared.wait(self.number)
    }

    /// Waits for the job's end and returns all its rows, which have to fit into memory, and its
    /// counters.
    ///
    /// # Errors
    /// Why the job has ended early; [`Failure::Script`] if it has no rows for the program.
    pub fn collect(mut self) -> Result<(Vec<RecordBatch>, Stats), Failure> {
        let rows = self.rows.take().ok_or_else(|| {
            Failure::Script(format!(
                "this job has no rows to collect: {}\n  help: only a SELECT has, until they are taken",
                self.statement
            ))
        })?;
        let batches = rows.collect::<Result<_, _>>()?;
        Ok((batches, self.shared.wait(self.number)?))
    }

    /// Stops the job, which then ends with [`Error::Interrupted`]. A job that has not begun never
    /// will; a job that has ended is not changed. Complete results are kept.
    pub fn stop(&self) {
        self.shared.stop(self.number);
    }

    /// The counters: complete once the job has ended; while the job runs, only the number of
    /// written rows.
    pub fn counters(&self) -> Stats {
        match &self.shared.lock().jobs[self.number] {
            Phase::Waiting | Phase::Unwanted => Stats::default(),
            Phase::Running(running) => running.counters(),
            Phase::Ended(stats, _) => (**stats).clone(),
        }
    }

    /// Snapshot of the job ([`crate::observe`]). `None` while it does not run. A snapshot costs
    /// each worker a moment; take a few per second at most.
    pub fn observe(&self) -> Option<Snapshot> {
        let running = match &self.shared.lock().jobs[self.number] {
            Phase::Running(running) => running.clone(),
            _ => return None,
        };
        // It takes a moment, which the other handles should not have to wait for.
        Some(running.observe())
    }

    /// Lets the job read no more, and end well, as if its input had ended here: open windows fire.
    /// Data accepted by sources count: batches in a channel, bodies answered with 202. False if the
    /// job does not run.
    pub fn drain(&self) -> bool {
        match &self.shared.lock().jobs[self.number] {
            Phase::Running(running) => {
                running.drain();
                true
            }
            _ => false,
        }
    }

    /// Whether the job has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.shared.lock().jobs[self.number], Phase::Ended(..))
    }

    /// Remarks for the user on the job's sources, a line each, once the job runs; later also news
    /// about them.
    pub fn remarks(&self) -> Vec<String> {
        let state = self.shared.lock();
        let mut remarks = state.remarks[self.number].clone();
        if let Phase::Running(running) = &state.jobs[self.number] {
            remarks.extend(running.notices());
        }
        remarks
    }

    fn refuse_unread(&self) -> Result<(), Failure> {
        match self.rows {
            Some(_) => Err(Failure::Script(format!(
                "nobody has taken the rows of this query, so it cannot end: {}\n  help: read them \
                 with rows() before wait(), or use collect()",
                self.statement
            ))),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({})", self.statement)
    }
}

/// Where the rows of a query go that names no sink.
#[derive(Clone)]
pub(crate) enum Shown {
    /// To the program, as a stream.
    Rows(Arc<Queue>),
    /// To a sink that the program gave.
    Sink(Arc<dyn Sink>),
    /// Nowhere: it has none.
    Nothing,
}

impl Shown {
    fn queue(&self) -> Option<&Arc<Queue>> {
        match self {
            Shown::Rows(queue) => Some(queue),
            Shown::Sink(_) | Shown::Nothing => None,
        }
    }
}

/// A job that is to be submitted.
pub(crate) struct Submitted {
    pub(crate) statement: String,
    pub(crate) schema: SchemaRef,
    pub(crate) shown: Shown,
}

/// How a job that runs is stopped and asked.
pub(crate) trait Running: Send + Sync {
    /// Lets it end with [`Error::Interrupted`].
    fn stop(&self);
    /// Lets it end well: there are all rows that are wanted.
    fn enough(&self);
    /// Counters so far.
    fn counters(&self) -> Stats;
    /// News for the user.
    fn notices(&self) -> Vec<String>;
    /// Snapshot of the job.
    fn observe(&self) -> Snapshot;
    /// Lets it end as if its input had ended.
    fn drain(&self);
}

impl Running for Stopping {
    fn stop(&self) {
        Stopping::stop(self);
    }
    fn enough(&self) {
        self.stopper().enough();
    }
    fn counters(&self) -> Stats {
        self.stopper().counters()
    }
    fn notices(&self) -> Vec<String> {
        self.stopper().notices()
    }
    fn observe(&self) -> Snapshot {
        self.stopper().observe()
    }
    fn drain(&self) {
        self.stopper().drain();
    }
}

/// State shared by the handles and the thread of the jobs.
pub(crate) struct SharedJobs {
    state: Mutex<State>,
    /// A job has ended.
    ended: Condvar,
    shown: Vec<Shown>,
}

struct State {
    jobs: Vec<Phase>,
    remarks: Vec<Vec<String>>,
}

enum Phase {
    Waiting,
    /// The job was stopped before it began.
    Unwanted,
    Running(Arc<dyn Running>),
    Ended(Box<Stats>, Result<(), Failure>),
}

impl SharedJobs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, number: usize) -> Result<Stats, Failure> {
        let mut state = self.lock();
        loop {
            if let Phase::Ended(stats, result) = &state.jobs[number] {
                return result.clone().map(|()| (**stats).clone());
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self, number: usize) {
        let mut state = self.lock();
        match &state.jobs[number] {
            Phase::Running(running) => running.stop(),
            Phase::Waiting => state.jobs[number] = Phase::Unwanted,
            Phase::Unwanted | Phase::Ended(..) => {}
        }
        drop(state);
        if let Some(queue) = self.shown[number].queue() {
            queue.stop();
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.shown.len()
    }

    /// Where a job's rows go.
    pub(crate) fn shown(&self, number: usize) -> Shown {
        self.shown[number].clone()
    }

    /// Whether the next job is to run: it may have been stopped, or its rows may have lost their
    /// reader.
    pub(crate) fn may_run(&self, number: usize) -> Result<bool, Failure> {
        if matches!(self.lock().jobs[number], Phase::Unwanted) {
            return Err(Failure::Run(Error::Interrupted));
        }
        Ok(!self.shown[number].queue().is_some_and(|queue| queue.is_abandoned()))
    }

    /// A job runs from now on.
    pub(crate) fn runs(&self, number: usize, running: Arc<dyn Running>, remarks: &[String]) {
        let mut state = self.lock();
        state.remarks[number] = remarks.to_vec();
        if matches!(state.jobs[number], Phase::Unwanted) {
            running.stop();
        }
        state.jobs[number] = Phase::Running(running.clone());
        drop(state);
        if let Some(queue) = self.shown[number].queue() {
            queue.on_abandon(move || running.enough());
        }
    }

    /// The first job that has not ended.
    pub(crate) fn first_open(&self) -> Option<usize> {
        self.lock().jobs.iter().position(|job| !matches!(job, Phase::Ended(..)))
    }

    /// A job has ended.
    pub(crate) fn ends(&self, number: usize, stats: Stats, result: Result<(), Failure>) {
        let failure = result.clone().err();
        let mut state = self.lock();
        if let Phase::Running(running) = &state.jobs[number] {
            let notices = running.notices();
            state.remarks[number].extend(notices);
        }
        state.jobs[number] = Phase::Ended(Box::new(stats), result);
        drop(state);
        self.ended.notify_all();
        if let Some(queue) = self.shown[number].queue() {
            queue.end(failure);
        }
    }
}

/// Handles of jobs that `run` runs in a separate thread, one after the other, until a job fails.
pub(crate) fn submit(
    submitted: Vec<Submitted>,
    run: impl FnOnce(&SharedJobs) + Send + 'static,
) -> Result<Jobs, Failure> {
    let shared = Arc::new(SharedJobs {
        state: Mutex::new(State {
            jobs: submitted.iter().map(|_| Phase::Waiting).collect(),
            remarks: vec![Vec::new(); submitted.len()],
        }),
        ended: Condvar::new(),
        shown: submitted.iter().map(|job| job.shown.clone()).collect(),
    });
    let handles = submitted.into_iter().enumerate().map(|(number, job)| JobHandle {
        shared: shared.clone(),
        number,
        statement: job.statement,
        rows: job.shown.queue().map(|queue| Rows::new(queue.clone(), job.schema)),
    });
    let jobs = Jobs(handles.collect());
    if jobs.is_empty() {
        return Ok(jobs);
    }
    let ending = Ending(shared);
    let started = thread::Builder::new()
        .name("jobs".into())
        .stack_size(STACK_BYTES)
        .spawn(move || run(&ending.0));
    started.map_err(|error| {
        Failure::Run(Error::Io {
            place: "the thread of the jobs".into(),
            message: format!("cannot be started: {error}"),
            help: String::new(),
        })
    })?;
    Ok(jobs)
}

/// Ends the jobs that have not been run, also if the thread panics: nobody waits for ever.
struct Ending(Arc<SharedJobs>);

impl Drop for Ending {
    fn drop(&mut self) {
        while let Some(number) = self.0.first_open() {
            self.0.ends(number, Stats::default(), Err(Failure::NotRun));
        }
    }
}

/// Schema of the answer of `EXPLAIN`: a single column.
pub(crate) fn explained_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]))
}

/// A text as rows, a line each.
pub(crate) fn lines(text: &str) -> Result<RecordBatch, Failure> {
    let lines: StringArray = text.lines().map(Some).collect();
    RecordBatch::try_new(explained_schema(), vec![Arc::new(lines)])
        .map_err(|e| Failure::Run(Error::Internal(e.to_string())))
}
