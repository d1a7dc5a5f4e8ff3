//! Costs of modes, in nanoseconds: assumed at first, measured as soon as possible.
//!
//! A mode's total is what a record costs all workers together: its own worker, and the leaders that
//! merge sealed rows. Updating a leader's row costs the same in every mode. Let `f` be the share of
//! records whose keys other workers lead, and `d` the share of distinct keys among the records of
//! an epoch. Passing through costs writing and reading for `f` of the records. The other modes cost
//! sealing and merging for `f · d` of the records. The number of workers counts through `d`: the
//! more workers share a key's records, the fewer records of a key each worker has in an epoch.

use millstream_state::{Mode, RowLayout};

use crate::operator::MergeTimes;

// Assumed costs of a record or a row, and of each of its words. Merging is dear: rows come at the
// end of a window, all at once, from the cache of another core.
const UPDATE: f64 = 8.0;
const ROUTE: f64 = 1.2;
const WRITE: f64 = 0.15;
const WRITE_WORD: f64 = 0.5;
const READ: f64 = 0.15;
const READ_WORD: f64 = 0.5;
const SEAL: f64 = 5.0;
const MERGE_NEAR: f64 = 4.0;
const MERGE_FAR: f64 = 22.0;
const MERGE_WORD: f64 = 4.0;
/// Moving rows takes so many times as long where there are texts.
const TEXTS: f64 = 2.0;
/// So many bytes of the near cache for each key.
const NEAR_BYTES_OF_KEY: usize = 512;

/// Measured rows weigh so much beside what was measured before.
const WEIGHT: f64 = 0.5;
/// Fewer rows are measured together with the next rows.
const ROWS_MIN: u64 = 4096;
/// A batch that takes so many times the usual time was interrupted, and counts as so much.
const INTERRUPTED: f64 = 4.0;

/// A measured cost of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    ns: Option<f64>,
    /// Measured again since: the first rows meet cold caches and fresh memory.
    warm: bool,
    /// Rows measured since, and their time.
    rows: u64,
    rows_ns: u64,
}

impl Rate {
    /// Takes note of measured rows.
    pub(super) fn note(&mut self, rows: u64, ns: u64) {
        if rows == 0 {
            return;
        }
        let usual = self.usual().map(|usual| (INTERRUPTED * usual * rows as f64) as u64);
        self.rows = self.rows.saturating_add(rows);
        self.rows_ns = self.rows_ns.saturating_add(usual.map_or(ns, |usual| ns.min(usual)));
    }

    /// The usual time of a row, if enough rows have been measured.
    fn usual(&self) -> Option<f64> {
        let since = (self.rows >= ROWS_MIN).then(|| self.rows_ns as f64 / self.rows as f64);
        self.ns.or(since)
    }

    /// The cost of a row; no more than assumed, as long as only cold rows have been measured.
    fn cost(&self, assumed: f64) -> f64 {
        match self.ns {
            Some(ns) if self.warm => ns,
            Some(ns) => ns.min(assumed),
            None => assumed,
        }
    }

    /// Brings the cost up to date, if there are enough rows.
    pub(super) fn settle(&mut self) {
        if self.rows < ROWS_MIN || self.rows_ns == 0 {
            return;
        }
        let ns = self.rows_ns as f64 / self.rows as f64;
        let before = self.ns.filter(|_| self.warm).unwrap_or(ns);
        self.warm = self.ns.is_some();
        self.ns = Some(before + WEIGHT * (ns - before));
        (self.rows, self.rows_ns) = (0, 0);
    }
}

/// Assumed costs for rows of one layout.
#[derive(Debug, Clone, Copy)]
struct Assumed {
    write: f64,
    read: f64,
    merge: f64,
}

/// Costs of all modes for a worker of a stage.
#[derive(Debug)]
pub(super) struct Costs {
    assumed: Assumed,
    /// Share of records of other leaders.
    others: f64,
    /// More keys of a worker are far away.
    near_keys: usize,
    /// A worker's own time for a record, by mode.
    worker: [Rate; 3],
    /// A worker's time for sealing a row of a joint table.
    seal: Rate,
    /// Leaders' time for merging a row of state, and for taking in a passed row.
    merge: Rate,
    take: Rate,
    /// The last report of leaders.
    reported: MergeTimes,
}

impl Costs {
    /// Of rows of a layout, which are passed through with so many words.
    pub(super) fn new(
        layout: &RowLayout,
        passed_words: usize,
        leaders: usize,
        near_cache: usize,
    ) -> Costs {
        let texts = if layout.texts() > 0 { TEXTS } else { 1.0 };
        let (passed_words, words) = (passed_words as f64, layout.row_words() as f64);
        let assumed = Assumed {
            write: texts * (WRITE + WRITE_WORD * passed_words),
            read: texts * (READ + READ_WORD * passed_words),
            merge: texts * MERGE_WORD * words,
        };
        let others = (leaders as f64 - 1.0) / leaders.max(1) as f64;
        let (worker, seal, merge, take, reported) = Default::default();
        let near_keys = near_cache / NEAR_BYTES_OF_KEY;
        Costs { assumed, others, near_keys, worker, seal, merge, take, reported }
    }

    /// A batch took so long in a mode.
    pub(super) fn note_batch(&mut self, mode: Mode, rows: u64, ns: u64) {
        self.worker[mode as usize].note(rows, ns);
    }

    /// Sealing rows of joint tables took so long.
    pub(super) fn note_sealed(&mut self, rows: u64, ns: u64) {
        self.seal.note(rows, ns);
    }

    /// Leaders report all merging so far.
    pub(super) fn note_merged(&mut self, times: &MergeTimes) {
        let MergeTimes { rows, ns, passed_rows, passed_ns } = times.since(&self.reported);
        self.merge.note(rows, ns);
        self.take.note(passed_rows, passed_ns);
        self.reported = *times;
    }

    /// Brings all costs up to date.
    pub(super) fn settle(&mut self) {
        let leaders = [&mut self.seal, &mut self.merge, &mut self.take];
        self.worker.iter_mut().chain(leaders).for_each(Rate::settle);
    }

    /// Whether a mode's own time has been measured.
    pub(super) fn is_measured(&self, mode: Mode) -> bool {
        self.worker[mode as usize].ns.is_some()
    }

    /// Nanoseconds of a record in a mode, of which `share` are distinct in an epoch that has so
    /// many `keys` in this worker.
    pub(super) fn of_record(&self, mode: Mode, share: f64, keys: usize) -> f64 {
        let look_up = if keys <= self.near_keys { MERGE_NEAR } else { MERGE_FAR };
        let merge = self.merge.cost(self.assumed.merge + look_up);
        let seal = self.seal.cost(SEAL);
        let update = self.update();
        let take = self.take.cost(self.assumed.read + update);
        let worker = |assumed| self.worker[mode as usize].cost(assumed);
        let others = self.others;
        match mode {
            Mode::Joint => worker(update) + others * share * (seal + merge),
            Mode::Aggregate => worker(update + others * ROUTE) + others * share * merge,
            Mode::PassThrough => {
                let own = update * (1.0 - others);
                worker(own + others * (ROUTE + self.assumed.write)) + others * take
            }
        }
    }

    /// The cost of updating a row, as far as any mode has shown it.
    fn update(&self) -> f64 {
        let warm = |rate: Rate, rest: f64| rate.ns.filter(|_| rate.warm).map(|ns| ns - rest);
        let joint = warm(self.worker[Mode::Joint as usize], 0.0);
        let aggregated = || warm(self.worker[Mode::Aggregate as usize], self.others * ROUTE);
        let passed = || warm(self.take, self.assumed.read);
        joint.or_else(aggregated).or_else(passed).map_or(UPDATE, |ns| ns.max(1.0))
    }

    /// Measured nanoseconds, for reports: of a record in each mode, of a merged row and of a passed
    /// row.
    pub(super) fn measured(&self) -> [Option<f64>; 5] {
        let [joint, aggregate, pass] = self.worker.map(|rate| rate.ns);
        [joint, aggregate, pass, self.merge.ns, self.take.ns]
    }
}
