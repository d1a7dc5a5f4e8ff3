//! State of the program, for everything that shows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream::observe::{Snapshot, duration};
use serde::{Deserialize, Serialize};

use super::rates::Rates;
use super::waiting::{self, Awaited};
use crate::log;

/// A snapshot is as good as new for so long: a hundred who ask at once cost the job one look.
const FRESH: Duration = Duration::from_millis(100);

/// How far the program is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Reading the script, opening its files, or starting processes.
    #[default]
    Starting,
    /// Planning a statement.
    Planning,
    /// A query runs.
    Running,
    /// Running, but asked to read no more.
    Draining,
    /// A result is complete and gets its names.
    Committing,
    /// The last statement has ended.
    Ending,
}

impl Phase {
    /// Whether a query can be looked at.
    fn has_query(self) -> bool {
        matches!(self, Phase::Running | Phase::Draining)
    }

    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Planning => "planning",
            Phase::Running => "running",
            Phase::Draining => "draining",
            Phase::Committing => "committing",
            Phase::Ending => "ending",
        }
    }

    /// The program's state as text: for how long, which pipes it waits for, and the process that
    /// has not joined.
    pub(crate) fn described(
        self,
        since: Duration,
        awaited: &[Awaited],
        missing: Option<usize>,
    ) -> String {
        let since = duration(since.as_micros() as u64);
        match self {
            Phase::Starting => match missing {
                Some(process) => {
                    format!("starting for {since}: waiting for process {process} to join")
                }
                None => {
                    format!("starting for {since}: it reads the script, and what the script names")
                }
            },
            Phase::Planning => {
                let what = waiting::described(awaited);
                let what = what.as_deref().unwrap_or("it plans the statement and opens its tables");
                format!("planning for {since}: {what}")
            }
            Phase::Running => format!("running for {since}"),
            Phase::Draining => format!(
                "draining for {since}: it reads no more, fires what is open, and writes its rows"
            ),
            Phase::Committing => format!("committing for {since}: the result gets its names"),
            Phase::Ending => format!("ending for {since}: the last statement has ended"),
        }
    }
}

/// Answer to a request for the program's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The process id, which names the job.
    pub(crate) job: u32,
    /// The script.
    pub(crate) script: String,
    pub(crate) phase: Phase,
    /// How long the program has been in that phase, and how long it has run.
    pub(crate) phase_us: u64,
    pub(crate) running_us: u64,
    /// The present statement, with a number from 1.
    pub(crate) statement: Option<(usize, String)>,
    /// Pipes to wait for before a query runs.
    #[serde(default)]
    pub(crate) awaited: Vec<Awaited>,
    /// The process that it waits for, as long as not all have joined.
    #[serde(default)]
    pub(crate) missing: Option<usize>,
    /// State of the running query, if any.
    pub(crate) snapshot: Option<Snapshot>,
}

impl Report {
    /// The program's state as text.
    pub(crate) fn doing(&self) -> String {
        self.phase.described(Duration::from_micros(self.phase_us), &self.awaited, self.missing)
    }
}

/// Answer to a request to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StopAnswer {
    /// The job has been told.
    Yes,
    /// The job cannot end so, for this reason.
    No(String),
}

type Observe = Arc<dyn Fn() -> Snapshot + Send + Sync>;
type Missing = Arc<dyn Fn() -> Option<usize> + Send + Sync>;
type IsLate = Arc<dyn Fn() -> bool + Send + Sync>;
type Stop = Arc<dyn Fn(bool) -> StopAnswer + Send + Sync>;

/// Place where the program notes its state, and readers find it.
pub(crate) struct StatusBoard {
    script: String,
    started: Instant,
    state: Mutex<State>,
    /// The last snapshot, of the query that is so many; held while one is taken.
    last: Mutex<Option<(u64, Instant, Arc<Snapshot>)>>,
    rates: Mutex<Rates>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    since: Option<Instant>,
    statement: Option<(usize, String)>,
    observe: Option<Observe>,
    /// Whether the query that runs has ended, and its result gets its names.
    is_late: Option<IsLate>,
    stop: Option<Stop>,
    /// The process that has not joined.
    missing: Option<Missing>,
    /// Queries that have begun.
    queries: u64,
}

impl State {
    fn turn_to(&mut self, phase: Phase) {
        (self.phase, self.since) = (phase, Some(Instant::now()));
        if !phase.has_query() {
            (self.observe, self.is_late) = (None, None);
        }
    }
}

impl StatusBoard {
    /// Of a program that starts with this script.
    pub(crate) fn new(script: &str) -> StatusBoard {
        StatusBoard {
            script: script.to_string(),
            started: Instant::now(),
            state: Mutex::default(),
            last: Mutex::new(None),
            rates: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn_to(&self, phase: Phase) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.turn_to(phase);
        state
    }

    /// The query that runs has ended once `is_late` says so, and its result gets its names.
    pub(crate) fn commits_once(&self, is_late: impl Fn() -> bool + Send + Sync + 'static) {
        self.lock().is_late = Some(Arc::new(is_late));
    }

    /// `stop` is called when somebody asks the program to end; with `true`, to drain.
    pub(crate) fn on_stop(&self, stop: impl Fn(bool) -> StopAnswer + Send + Sync + 'static) {
        self.lock().stop = Some(Arc::new(stop));
    }

    /// `missing` says which process has not joined the job.
    pub(crate) fn starts(&self, missing: impl Fn() -> Option<usize> + Send + Sync + 'static) {
        self.lock().missing = Some(Arc::new(missing));
    }

    /// The process that the program waits for before it begins.
    pub(super) fn missing(&self) -> Option<usize> {
        let state = self.lock();
        let missing = state.missing.clone().filter(|_| state.phase == Phase::Starting)?;
        drop(state);
        missing()
    }

    /// The program is planning the statement of this number, from 0.
    pub(crate) fn plans(&self, number: usize, text: &str) {
        self.turn_to(Phase::Planning).statement = Some((number + 1, text.to_string()));
    }

    /// The query of that statement runs.
    pub(crate) fn runs(&self, observe: impl Fn() -> Snapshot + Send + Sync + 'static) {
        let mut state = self.turn_to(Phase::Running);
        state.queries += 1;
        let (number, text) = state.statement.as_ref().map_or((0, ""), |(n, text)| (*n, text));
        log::started(number, text);
        state.observe = Some(Arc::new(observe));
    }

    /// Takes note that the query has ended, and its result gets its names.
    pub(crate) fn commits(&self) {
        drop(self.turn_to(Phase::Committing));
    }

    /// Nothing is left to be done.
    pub(crate) fn ends(&self) {
        drop(self.turn_to(Phase::Ending));
    }

    /// Asks the program to end.
    pub(crate) fn stop(&self, drain: bool) -> StopAnswer {
        // The program may turn to something else meanwhile.
        let stop = self.lock().stop.clone();
        let told =
            stop.map_or_else(|| StopAnswer::No("it has not begun yet".into()), |stop| stop(drain));
        let mut state = self.lock();
        if drain && told == StopAnswer::Yes && state.phase == Phase::Running {
            (state.phase, state.since) = (Phase::Draining, Some(Instant::now()));
        }
        told
    }

    /// The phase before the query runs, and its duration so far.
    pub(super) fn before_query(&self) -> Option<(Phase, Duration)> {
        let state = self.lock();
        let since = state.since.unwrap_or(self.started).elapsed();
        matches!(state.phase, Phase::Starting | Phase::Planning).then_some((state.phase, since))
    }

    /// State of the running query, if any, and its number.
    pub(crate) fn observe(&self) -> Option<(u64, Arc<Snapshot>)> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (observe, query) = {
            let state = self.lock();
            (state.observe.clone()?, state.queries)
        };
        if let Some((of, at, snapshot)) = &*last
            && *of == query
            && at.elapsed() < FRESH
        {
            return Some((query, snapshot.clone()));
        }
        let snapshot = Arc::new(observe());
        *last = Some((query, Instant::now(), snapshot.clone()));
        Some((query, snapshot))
    }

    /// Notes how far the query is that runs, if one does.
    pub(super) fn sample(&self) {
        if let Some((query, snapshot)) = self.observe() {
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            rates.add(query, &snapshot);
        }
    }

    /// How far it was in the last minutes.
    pub(super) fn rates(&self) -> Rates {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the query of this number, as [`StatusBoard::observe`] has it, still runs.
    pub(super) fn is_running(&self, query: u64) -> bool {
        let state = self.lock();
        state.observe.is_some() && state.queries == query
    }

    /// How long the program has run.
    pub(crate) fn running(&self) -> Duration {
        self.started.elapsed()
    }

    /// Queries that have begun.
    pub(crate) fn queries(&self) -> u64 {
        self.lock().queries
    }

    /// The answer to a request for the program's state.
    pub(crate) fn report(&self) -> Report {
        let snapshot = self.observe().map(|(_, snapshot)| (*snapshot).clone());
        let missing = self.missing();
        let mut state = self.lock();
        if state.is_late.as_ref().is_some_and(|is_late| is_late()) {
            state.turn_to(Phase::Committing);
        }
        let us = |duration: Duration| duration.as_micros() as u64;
        Report {
            job: std::process::id(),
            script: self.script.clone(),
            phase: state.phase,
            phase_us: us(state.since.unwrap_or(self.started).elapsed()),
            running_us: us(self.running()),
            statement: state.statement.clone(),
            awaited: if state.phase == Phase::Planning { waiting::awaited() } else { vec![] },
            missing: missing.filter(|_| state.phase == Phase::Starting),
            // It may have ended meanwhile.
            snapshot: snapshot.filter(|_| state.phase.has_query()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_hundred_who_ask_at_once_cost_the_job_one_look() {
        let (board, looks) = (StatusBoard::new("-e"), Arc::new(AtomicU64::new(0)));
        assert!(board.observe().is_none());
        let counted = looks.clone();
        board.runs(move || {
            let records = counted.fetch_add(1, Ordering::Relaxed) + 1;
            Snapshot { records, ..Snapshot::default() }
        });
        let begun = Instant::now();
        thread::scope(|scope| {
            (0..100).for_each(|_| drop(scope.spawn(|| board.observe().unwrap())));
        });
        // On a slow machine, another look for each look that has grown old.
        let most = 1 + begun.elapsed().as_millis() as u64 / FRESH.as_millis() as u64;
        assert!((1..=most).contains(&looks.load(Ordering::Relaxed)), "{looks:?} of {most}");
        // What the last query said is not said of the next.
        board.runs(|| Snapshot { records: 1_000_000, ..Snapshot::default() });
        assert_eq!(board.observe().unwrap().1.records, 1_000_000);
        assert!(!board.is_running(1) && board.is_running(2));
        board.commits();
        assert!(board.observe().is_none() && board.report().snapshot.is_none());
        assert!(!board.is_running(2));
    }

    #[test]
    fn a_query_that_ends_elsewhere_commits_once_that_is_said() {
        let (board, late) = (StatusBoard::new("q.sql"), Arc::new(AtomicU64::new(0)));
        board.runs(Snapshot::default);
        let looked = late.clone();
        board.commits_once(move || looked.load(Ordering::Relaxed) > 0);
        assert_eq!(board.report().phase, Phase::Running);
        late.store(1, Ordering::Relaxed);
        let report = board.report();
        assert!(report.phase == Phase::Committing && report.snapshot.is_none());
        board.plans(1, "SELECT 1");
        assert_eq!(board.report().phase, Phase::Planning);
    }

    #[test]
    fn who_stops_it_is_told_what_came_of_that() {
        let board = StatusBoard::new("q.sql");
        assert!(matches!(board.stop(false), StopAnswer::No(_)));
        board.on_stop(|drain| if drain { StopAnswer::No("no".into()) } else { StopAnswer::Yes });
        assert_eq!(board.stop(false), StopAnswer::Yes);
        assert_eq!(board.stop(true), StopAnswer::No("no".into()));
        // State can be read during draining.
        let draining = StatusBoard::new("q.sql");
        draining.on_stop(|_| StopAnswer::Yes);
        draining.runs(Snapshot::default);
        assert_eq!(draining.report().phase, Phase::Running);
        assert_eq!(draining.stop(true), StopAnswer::Yes);
        let report = draining.report();
        assert!(report.phase == Phase::Draining && report.snapshot.is_some());
        board.plans(1, "SELECT 1");
        let report = board.report();
        assert_eq!(
            (report.phase, report.statement),
            (Phase::Planning, Some((2, "SELECT 1".into())))
        );
    }
}
