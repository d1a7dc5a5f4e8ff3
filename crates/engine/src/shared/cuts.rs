//! Cuts: how the workers of a process stand still together, between the records before a cut and
//! those behind it; and, in the coordinator, how far the other processes are.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::checkpoint::CutPart;
use crate::error::{Error, Result};
use crate::roles::Place;
use crate::totals::Totals;
use millstream_operators::operator::saved::Cut;

/// The state of a cut that all workers see.
#[derive(Debug)]
pub(crate) struct Cuts {
    begun: AtomicBool,
    /// How many cuts are being written, and the process may not end before: parts of another
    /// process than the coordinator, or the last cut, at which all workers stand.
    writes: AtomicUsize,
    state: Mutex<CutState>,
}

#[derive(Debug)]
struct CutState {
    /// A worker has ended, or the job has: no cut begins any more.
    closed: bool,
    workers: usize,
    cut: Cut,
    /// By stage and worker: how many epochs the worker had ended when it sealed the stage.
    sealed: Vec<Vec<Option<u64>>>,
    /// By stage and worker: up to where the worker has fired all rows before the cut.
    fired: Vec<Vec<Option<i64>>>,
    /// How many workers have saved their state, and their counts.
    saved: usize,
    totals: Totals,
    /// A worker completes the cut; the cut has been handed over.
    completes: bool,
    handed: bool,
    /// In the coordinator: the number of other processes, and their parts of the cut so far.
    others: usize,
    parts: Vec<(usize, CutPart)>,
    /// By worker: nothing is left to do. In the coordinator: the number of other processes without
    /// work since the last cut. Whether this process has reported the same of itself.
    over: Vec<bool>,
    others_over: usize,
    told_over: bool,
    /// How many workers have the state of the job before, and, in the coordinator, how many other
    /// processes.
    restored: usize,
}

impl Cuts {
    /// For so many stages and workers, in the process at `place`.
    pub(crate) fn new(stages: usize, workers: usize, place: Place) -> Cuts {
        let state = CutState {
            closed: false,
            workers,
            cut: Cut::default(),
            sealed: vec![vec![None; workers]; stages],
            fired: vec![vec![None; workers]; stages],
            saved: 0,
            totals: Totals::default(),
            completes: false,
            handed: false,
            others: if place.process == 0 { place.processes - 1 } else { 0 },
            parts: Vec::new(),
            over: vec![false; workers],
            others_over: 0,
            told_over: false,
            restored: 0,
        };
        Cuts {
            begun: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            state: Mutex::new(state),
        }
    }

    /// A worker has the state of the job before, or another process has. True when all have.
    pub(super) fn note_restored(&self) -> bool {
        let mut state = self.lock();
        state.restored += 1;
        state.restored == state.workers + state.others
    }

    fn lock(&self) -> MutexGuard<'_, CutState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a cut is being taken.
    fn has_begun(&self) -> bool {
        self.begun.load(Acquire)
    }

    /// The number of the cut that is being taken.
    pub(crate) fn current(&self) -> Option<u64> {
        self.has_begun().then(|| self.lock().cut.number)
    }

    /// The last cut that has begun.
    pub(crate) fn last(&self) -> Cut {
        self.lock().cut
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

    /// Notes the state of a worker as saved, and the worker's counts.
    pub(crate) fn note_saved(&self, totals: &Totals) {
        let mut state = self.lock();
        state.saved += 1;
        state.totals.add(totals);
    }

    /// The counts of all workers at the cut.
    pub(super) fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// Notes the part of another process.
    pub(super) fn note_part(&self, process: usize, part: CutPart) {
        self.lock().parts.push((process, part));
    }

    /// In the coordinator, until a cut is handed over: the processes of which not all workers have
    /// saved their state. `None` without a cut.
    pub(super) fn awaited(&self) -> Option<Vec<usize>> {
        let state = self.lock();
        if !self.has_begun() || state.handed {
            return None;
        }
        let own = (state.saved < state.workers).then_some(0);
        let has_saved = |process: &usize| state.parts.iter().any(|(of, _)| of == process);
        let others = (1..=state.others).filter(|process| !has_saved(process));
        Some(own.into_iter().chain(others).collect())
    }

    /// True for one worker, which completes the cut of this number: when all workers have saved
    /// their state, and the other processes, and the outputs stand.
    pub(crate) fn completes(&self, number: u64, stands: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        let is_now = self.has_begun() && state.cut.number == number && !state.completes;
        let saved = state.saved == state.workers && state.parts.len() == state.others;
        let completes = is_now && saved && stands();
        state.completes |= completes;
        completes
    }

    /// The cut is handed over, or this process's part of it.
    pub(super) fn note_handed(&self) {
        self.lock().handed = true;
    }

    /// The parts of the other processes.
    pub(super) fn take_parts(&self) -> Vec<CutPart> {
        let parts = std::mem::take(&mut self.lock().parts);
        parts.into_iter().map(|(_, part)| part).collect()
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
    pub(super) fn begin(&self, cut: Cut) -> bool {
        let mut state = self.lock();
        let begins = !state.closed && !self.has_begun();
        if begins {
            state.cut = cut;
            // A process without work has a part of the cut, and is over when that is written.
            (state.others_over, state.told_over) = (0, false);
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

    /// The process may not end before the state of a cut is written.
    pub(super) fn begin_write(&self) {
        self.writes.fetch_add(1, AcqRel);
    }

    /// The state of a cut is written.
    pub(super) fn end_write(&self) {
        self.writes.fetch_sub(1, AcqRel);
    }

    /// Whether the process may not end before the state of a cut is written.
    pub(crate) fn writes(&self) -> bool {
        self.writes.load(Acquire) > 0
    }

    /// Notes that a worker of a job of several processes has nothing left to do. The number of the
    /// last cut, once after each, when all workers have nothing left to do, and the processes that
    /// report here, and no part of this process is being written. In the coordinator, no cut begins
    /// after that.
    pub(super) fn note_over(&self, worker: usize) -> Option<u64> {
        let mut state = self.lock();
        state.over[worker] = true;
        let all = state.over.iter().all(|over| *over) && state.others_over == state.others;
        let tells = all && !state.told_over && !self.writes() && !self.has_begun();
        state.told_over |= tells;
        state.closed |= tells && state.others > 0;
        tells.then_some(state.cut.number)
    }

    /// Notes another process without work, unless it was so before its part of the last cut.
    pub(super) fn note_other_over(&self, after_cut: u64) {
        let mut state = self.lock();
        state.others_over += usize::from(state.cut.number == after_cut);
    }

    /// Notes that no process has anything left to do.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// Whether no cut begins any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The job has ended: the cut that will not be completed, if there is one.
    pub(crate) fn finish(&self) -> Option<u64> {
        let mut state = self.lock();
        state.closed = true;
        let is_open = self.begun.swap(false, AcqRel) && !state.handed;
        is_open.then_some(state.cut.number)
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.sealed.iter_mut().flatten().for_each(|sealed| *sealed = None);
        state.fired.iter_mut().flatten().for_each(|fired| *fired = None);
        (state.saved, state.totals) = (0, Totals::default());
        (state.completes, state.handed) = (false, false);
        self.begun.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::JobMarks;

    #[test]
    fn a_cut_knows_the_processes_that_it_waits_for() {
        let cuts = Cuts::new(0, 2, Place { process: 0, processes: 3 });
        let part = || CutPart {
            marks: JobMarks::new(),
            frontiers: Vec::new(),
            totals: Totals::default(),
            joins: false,
        };
        assert_eq!(cuts.awaited(), None);
        assert!(cuts.begin(Cut { number: 1, durable: 0 }));
        assert_eq!(cuts.awaited(), Some(vec![0, 1, 2]));
        cuts.note_saved(&Totals::default());
        cuts.note_part(2, part());
        assert_eq!(cuts.awaited(), Some(vec![0, 1]));
        cuts.note_saved(&Totals::default());
        assert_eq!(cuts.awaited(), Some(vec![1]));
        cuts.note_part(1, part());
        assert_eq!(cuts.awaited(), Some(vec![]));
        cuts.note_handed();
        assert_eq!(cuts.awaited(), None, "it waits for the store");
    }

    #[test]
    fn a_process_is_over_again_after_its_part_of_another_cut() {
        let [first, second] =
            [0, 1].map(|process| Cuts::new(0, 1, Place { process, processes: 2 }));
        let cut = |number| Cut { number, durable: 0 };
        let early = second.note_over(0);
        assert_eq!((early, second.note_over(0)), (Some(0), None));
        // The second process is over, but a cut has begun before the first one hears of that.
        assert!(first.begin(cut(1)) && second.begin(cut(1)));
        first.note_other_over(0);
        second.begin_write();
        first.end();
        second.end();
        assert_eq!(
            (first.note_over(0), second.note_over(0)),
            (None, None),
            "its part is unwritten"
        );
        second.end_write();
        assert_eq!(second.note_over(0), Some(1));
        first.note_other_over(1);
        assert_eq!(first.note_over(0), Some(1));
        assert!(first.is_closed() && !first.begin(cut(2)));
    }
}
