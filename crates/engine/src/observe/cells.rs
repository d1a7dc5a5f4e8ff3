//! Published facts of workers: their time at each step, and a report on request.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Doing, OpenWindow, WorkerStatus};
use crate::obstacle::Obstacle;
use crate::stats::Stats;

/// So long at most somebody who asks waits for workers that are in the middle of a step.
const PATIENCE: Duration = Duration::from_millis(20);

/// A cell for each worker of a process.
#[derive(Debug)]
pub(crate) struct Cells {
    /// How often somebody has asked.
    asked: AtomicU64,
    cells: Vec<Cell>,
    /// Signals an answer of a worker to waiting observers.
    answered: (Mutex<()>, Condvar),
}

/// Of one worker, on cache lines of its own: only the worker writes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    busy_us: AtomicU64,
    idle_us: AtomicU64,
    blocked_us: AtomicU64,
    /// Start of the current activity, by the job's clock; 0 before the worker runs.
    since_us: AtomicI64,
    doing: AtomicU8,
    /// Number of the last answered request.
    answered: AtomicU64,
    report: Mutex<Report>,
}

/// A worker's answer to the observer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) stats: Stats,
    /// By source: why the worker does not read it.
    pub(crate) held: Vec<Option<Obstacle>>,
    /// By number, of stages with state.
    pub(crate) stages: Vec<StageReport>,
}

/// A worker's part of a stage, in its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageReport {
    pub(crate) frontier: i64,
    /// Its vector clock.
    pub(crate) clock: Vec<i64>,
    pub(crate) open: Vec<OpenWindow>,
    pub(crate) open_more: bool,
    /// Why the rows of its window do not go on.
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) state_rows: u64,
    pub(crate) state_bytes: u64,
}

fn add(to: &AtomicU64, us: i64) {
    // Only its worker writes.
    to.store(to.load(Relaxed) + us.max(0) as u64, Relaxed);
}

impl Cells {
    pub(crate) fn new(workers: usize) -> Cells {
        let cells = (0..workers).map(|_| Cell::default()).collect();
        Cells { asked: AtomicU64::new(0), cells, answered: Default::default() }
    }

    /// The question that is to be answered.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// A worker begins a step; the time since its last step counts for `was`. A step is the
    /// worker's activity before it waits, if it does.
    pub(crate) fn pass(&self, worker: usize, was: Doing, now_us: i64) {
        let Cell { since_us, busy_us, idle_us, blocked_us, doing, .. } = &self.cells[worker];
        let since = since_us.load(Relaxed);
        if since != 0 {
            add(kept_in(was, busy_us, idle_us, blocked_us), now_us - since);
        }
        since_us.store(now_us, Relaxed);
        doing.store(Doing::Step as u8, Relaxed);
    }

    /// A worker does something else than working on a step from now on.
    pub(crate) fn turn_to(&self, worker: usize, doing: Doing) {
        self.cells[worker].doing.store(doing as u8, Relaxed);
    }

    /// A worker answers a question.
    pub(crate) fn answer(&self, worker: usize, question: u64, report: Report) {
        let cell = &self.cells[worker];
        *cell.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
        cell.answered.store(question, Release);
        let _waits = self.answered.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.answered.1.notify_all();
    }

    /// Asks all workers, which `wake` wakes, and waits a moment for their answers. What a worker
    /// says that is in the middle of a long step is what it said before.
    pub(crate) fn ask(&self, wake: impl FnOnce()) {
        let question = self.asked.fetch_add(1, Relaxed) + 1;
        wake();
        let (lock, answered) = &self.answered;
        let (mut guard, end) =
            (lock.lock().unwrap_or_else(PoisonError::into_inner), Instant::now() + PATIENCE);
        let done = Doing::Done as u8;
        let waits = |cell: &Cell| {
            cell.answered.load(Acquire) < question && cell.doing.load(Relaxed) != done
        };
        while self.cells.iter().any(waits) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = answered.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The last answers of the workers.
    pub(crate) fn reports(&self) -> Vec<Report> {
        let of = |cell: &Cell| cell.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.cells.iter().map(of).collect()
    }

    /// Workers with the uses of their time.
    pub(crate) fn workers(&self, process: usize, now_us: i64) -> Vec<WorkerStatus> {
        let worker = |(worker, cell): (usize, &Cell)| {
            let doing = cell.doing.load(Relaxed);
            let doing = Doing::ALL.into_iter().find(|d| *d as u8 == doing).unwrap_or_default();
            let since = cell.since_us.load(Relaxed);
            let since_us = if since == 0 { 0 } else { (now_us - since).max(0) as u64 };
            let [busy, idle, blocked] =
                [&cell.busy_us, &cell.idle_us, &cell.blocked_us].map(|us| us.load(Relaxed));
            let (busy_us, idle_us, blocked_us) = (busy, idle, blocked);
            let mut worker =
                WorkerStatus { process, worker, doing, since_us, busy_us, idle_us, blocked_us };
            let WorkerStatus { busy_us, idle_us, blocked_us, .. } = &mut worker;
            match doing {
                Doing::Done => {}
                doing => *kept_in(doing, busy_us, idle_us, blocked_us) += since_us,
            }
            worker
        };
        self.cells.iter().enumerate().map(worker).collect()
    }
}

/// Which of three kinds of time something counts as.
fn kept_in<T>(doing: Doing, busy: T, idle: T, blocked: T) -> T {
    match doing {
        Doing::Step => busy,
        Doing::Input | Doing::Done => idle,
        Doing::Credit | Doing::Memory | Doing::Output => blocked,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn time_counts_as_what_it_went_into() {
        let cells = Cells::new(2);
        // Before it runs, no time passes.
        cells.pass(0, Doing::Step, 1_000);
        cells.pass(0, Doing::Step, 1_010);
        cells.turn_to(0, Doing::Input);
        cells.pass(0, Doing::Input, 1_110);
        cells.pass(0, Doing::Memory, 1_117);
        let [worker, other] = &cells.workers(0, 1_120)[..] else { panic!("two workers") };
        let WorkerStatus { busy_us, idle_us, blocked_us, doing, since_us, .. } = *worker;
        // The step that is under way counts as far as it has got.
        assert_eq!((busy_us, idle_us, blocked_us), (13, 100, 7));
        assert_eq!((doing, since_us), (Doing::Step, 3));
        assert_eq!((other.busy_us, other.since_us), (0, 0));
        cells.turn_to(0, Doing::Output);
        assert_eq!(cells.workers(0, 1_120)[0].blocked_us, 10);
        cells.turn_to(0, Doing::Done);
        assert_eq!(cells.workers(0, 9_999)[0].busy_us, 10);
    }

    #[test]
    fn who_asks_waits_for_answers_but_not_for_ever() {
        let cells = Arc::new(Cells::new(2));
        cells.turn_to(1, Doing::Done);
        // The first worker never answers.
        cells.ask(|| {});
        let answering = cells.clone();
        let stats = Stats { records: 17, ..Stats::default() };
        let told = Report { stats, ..Report::default() };
        let (ring, rung) = std::sync::mpsc::channel::<()>();
        let worker = thread::spawn(move || {
            rung.recv().unwrap();
            answering.answer(0, answering.asked(), told);
        });
        cells.ask(|| ring.send(()).unwrap());
        worker.join().unwrap();
        assert_eq!(cells.reports()[0].stats.records, 17);
    }
}
