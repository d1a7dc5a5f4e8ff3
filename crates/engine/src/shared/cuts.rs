//! Cuts: how the workers of a process stand still together, between the records before a cut and
//! those behind it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// The state of a cut that all workers see.
#[derive(Debug)]
pub(crate) struct Cuts {
    begun: AtomicBool,
    state: Mutex<CutState>,
}

#[derive(Debug)]
struct CutState {
    /// A worker has ended, or the job has: no cut begins any more.
    closed: bool,
    workers: usize,
    /// The number of the cut.
    number: u64,
    /// By stage and worker: how many epochs the worker had ended when it sealed the stage.
    sealed: Vec<Vec<Option<u64>>>,
    /// By stage and worker: up to where the worker has fired all rows before the cut.
    fired: Vec<Vec<Option<i64>>>,
    /// How many workers have saved their state.
    saved: usize,
}

impl Cuts {
    /// For so many stages and workers.
    pub(crate) fn new(stages: usize, workers: usize) -> Cuts {
        let state = CutState {
            closed: false,
            workers,
            number: 0,
            sealed: vec![vec![None; workers]; stages],
            fired: vec![vec![None; workers]; stages],
            saved: 0,
        };
        Cuts { begun: AtomicBool::new(false), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, CutState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a cut is being taken.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Acquire)
    }

    /// Whether a worker has sealed a stage.
    pub(crate) fn has_sealed(&self, stage: usize, worker: usize) -> bool {
        self.lock().sealed[stage][worker].is_some()
    }

    /// A worker has sealed a stage, after so many epochs.
    pub(crate) fn note_sealed(&self, stage: usize, worker: usize, epochs: u64) {
        self.lock().sealed[stage][worker] = Some(epochs);
    }

    /// Of a stage that all workers have sealed: the epochs of each.
    pub(crate) fn all_sealed(&self, stage: usize) -> Option<Vec<u64>> {
        self.lock().sealed[stage].iter().copied().collect()
    }

    /// Whether a worker has fired all rows of a stage from before the cut.
    pub(crate) fn has_fired(&self, stage: usize, worker: usize) -> bool {
        self.lock().fired[stage][worker].is_some()
    }

    /// A worker has fired all rows of a stage from before the cut, up to a watermark.
    pub(crate) fn note_fired(&self, stage: usize, worker: usize, frontier: i64) {
        self.lock().fired[stage][worker] = Some(frontier);
    }

    /// Whether all workers have fired all rows of all stages from before the cut.
    pub(crate) fn all_fired(&self) -> bool {
        self.lock().fired.iter().flatten().all(Option::is_some)
    }

    /// The number of the cut.
    pub(crate) fn number(&self) -> u64 {
        self.lock().number
    }

    /// A worker has saved its state. True for the last worker.
    pub(crate) fn note_saved(&self) -> bool {
        let mut state = self.lock();
        state.saved += 1;
        state.saved == state.workers
    }

    /// By stage: up to where all workers have fired. Leaders are at the same place, as all complete
    /// windows have fired.
    pub(super) fn frontiers(&self) -> Result<Vec<i64>> {
        let state = self.lock();
        let frontier = |fired: &Vec<Option<i64>>| match fired[0] {
            Some(first) if fired.iter().all(|other| *other == Some(first)) => Ok(first),
            _ => Err(Error::Internal(format!("leaders at a cut have fired up to {fired:?}"))),
        };
        state.fired.iter().map(frontier).collect()
    }

    /// Begins a cut, unless one is being taken, or none can be any more.
    pub(super) fn begin(&self, number: u64) -> bool {
        let mut state = self.lock();
        let begins = !state.closed && !self.has_begun();
        if begins {
            state.number = number;
            self.begun.store(true, Release);
        }
        begins
    }

    /// A worker has nothing left to do. Whether it may end: not while a cut is being taken. No cut
    /// begins after that.
    pub(crate) fn may_end(&self) -> bool {
        let mut state = self.lock();
        state.closed |= !self.has_begun();
        state.closed
    }

    /// The job has ended: the cut that will not be completed, if there is one.
    pub(crate) fn finish(&self) -> Option<u64> {
        let mut state = self.lock();
        state.closed = true;
        self.begun.swap(false, AcqRel).then_some(state.number)
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.sealed.iter_mut().flatten().for_each(|sealed| *sealed = None);
        state.fired.iter_mut().flatten().for_each(|fired| *fired = None);
        state.saved = 0;
        self.begun.store(false, Release);
    }
}
