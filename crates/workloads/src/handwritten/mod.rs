//! The hand-written baseline: single-purpose loops over the same Arrow batches, as good as we can
//! make them.
//!
//! A loop knows its query at compile time: which column is the key, what is filtered, how a value
//! is updated. Each window has one open-addressing table, which starts with 1024 slots and grows.
//! Records pass in pieces: check whether all timestamps are in the window (`columns.rs`), find
//! those that pass the filter (`vectors.rs`), then hash, prefetch and update. When a window has
//! passed, its rows go one by one to the [`Verifier`]. A loop does not do what makes an engine:
//! plan a query, account for memory, exchange state, or give one answer with several workers.
//!
//! # Instructions per input record
//!
//! The instructions of a whole run at the default size, verification included, minus those of a run
//! with `--generate-only`, divided by the number of records:
//!
//! | `ysb` | `ysb_small` | `ysb_str` | `nb7` | `cm` | `ro` |
//! |---|---|---|---|---|---|
//! | 19.7 | 10.5 | 36.3 | 35.8 | 34.4 | 42.0 |
//!
//! ```text
//! cargo build --release -p millstream-workloads --example handwritten
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/handwritten ysb [--generate-only]
//! ```
//!
//! These numbers are with AVX2. Without it everything works, but takes longer.

mod columns;
mod joined;
mod joined_rows;
mod joined_sessions;
mod kinds;
mod memory;
mod overlapping;
mod sessions;
mod table;
mod vectors;

use arrow_array::RecordBatch;

use crate::error::{Error, Result};
use crate::generate::{generate, generate_by_key};
use crate::golden::expected;
use crate::oracle::{oracle, oracle_by_split};
use crate::spec::{Spec, Workload};
use crate::verify::{Bounds, Verifier};
use crate::window;
use columns::{Filtered, FilteredText, Mean, Plain, Priced, Source};
use kinds::Kind;
use overlapping::Overlapping;
use table::Table;

/// Records looked at together. Their selected keys stay in the first-level cache.
const PIECE: usize = 4096;

/// Open windows whose tables are in huge pages.
const HUGE_WINDOWS_MAX: usize = 8;

/// Runs the workload over the batches of one split, which must be in order.
///
/// # Errors
///
/// If a column is missing or has another type than [`crate::schema`] says, or if a table cannot be
/// reserved.
pub fn run(spec: &Spec, batches: &[RecordBatch]) -> Result<Verifier> {
    match spec.workload {
        Workload::Ysb => Loop::<Filtered<8>>::run(spec, batches),
        Workload::YsbSmall => Loop::<Filtered<2>>::run(spec, batches),
        Workload::YsbStr => Loop::<FilteredText>::run(spec, batches),
        Workload::Nb7 => Loop::<Priced>::run(spec, batches),
        Workload::Cm => Loop::<Mean>::run(spec, batches),
        Workload::Ro | Workload::Nb8Count => Loop::<Plain>::run(spec, batches),
        Workload::Nb8 => joined::run(spec, batches),
        Workload::Nb8Rows => joined_rows::run(spec, batches),
        Workload::Nb11 => joined_sessions::run(spec, batches),
    }
}

/// Input of several independent loops: an even share of the records for each; for a join, the
/// records of a share of the keys ([`generate_by_key`]), since loops over arbitrary records would
/// find fewer pairs.
pub fn splits(spec: &Spec, loops: usize, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    match spec.workload.is_join() {
        true => generate_by_key(spec, loops, batch_rows),
        false => generate(spec, loops, batch_rows),
    }
}

/// Runs one independent loop per split, each on a thread of its own, and returns each loop's
/// answer.
///
/// No answers are merged: a key in several splits yields a row for each, so with more than one
/// split the answers' sum is **not** the workload's answer (except for a join); each answer is
/// right for its own records ([`is_right`]). The speed-up is the limit that this machine's memory
/// sets to threads without communication.
pub fn run_parallel(spec: &Spec, splits: &[Vec<RecordBatch>]) -> Result<Vec<Verifier>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            splits.iter().map(|batches| scope.spawn(move || run(spec, batches))).collect();
        let panicked = |_| Err(Error::Batch("a loop's thread panicked".to_string()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}

/// Whether each loop saw what it must have, one for each of the [`splits`] of `spec`. One loop over
/// all records is compared with the published answer, where there is one.
pub fn is_right(spec: &Spec, loops: &[Verifier]) -> bool {
    let right = match loops.len() {
        1 => vec![expected(spec).unwrap_or_else(|| oracle(spec))],
        splits => oracle_by_split(spec, splits),
    };
    loops.iter().map(Verifier::answer).eq(right)
}

/// A window whose end the watermark has not passed.
struct Open<K: Kind> {
    start: i64,
    table: Table<K>,
}

/// The loop, for one way to read records and one kind of value.
struct Loop<'a, S: Source> {
    spec: &'a Spec,
    /// Open windows, in order of their start. Nearly always one.
    open: Vec<Open<S::Kind>>,
    /// Common state of overlapping windows: then panes are open instead of windows.
    overlapping: Option<Overlapping<S::Kind>>,
    /// Length of open windows or panes, milliseconds.
    length: i64,
    /// Tables of fired windows: empty and small again, their memory kept.
    spare: Vec<Table<S::Kind>>,
    /// Highest timestamp seen.
    ts_max: i64,
    /// Upper bound of a table's keys.
    rows_max: usize,
    scratch: S::Scratch,
    verifier: Verifier,
}

impl<'a, S: Source> Loop<'a, S> {
    fn run(spec: &'a Spec, batches: &[RecordBatch]) -> Result<Verifier> {
        if spec.windowed() && spec.windows == window::WindowKind::Session {
            return sessions::run::<S>(spec, batches);
        }
        let rows_max = batches.iter().map(RecordBatch::num_rows).sum();
        let overlapping = match spec.windowed() {
            true => Overlapping::new(spec.windows, spec.window_ms, rows_max)?,
            false => None,
        };
        let length = overlapping.as_ref().map_or(spec.window_ms.max(1) as i64, |o| o.pane_ms());
        let mut this: Loop<'_, S> = Loop {
            spec,
            open: Vec::new(),
            overlapping,
            length,
            spare: Vec::new(),
            ts_max: i64::MIN,
            rows_max,
            scratch: S::Scratch::default(),
            verifier: Verifier::new(spec),
        };
        for batch in batches {
            let source = S::new(batch)?;
            for from in (0..batch.num_rows()).step_by(PIECE) {
                let to = (from + PIECE).min(batch.num_rows());
                if spec.windowed() {
                    this.piece(&source, from, to)?;
                } else {
                    this.update(&source, 0, from, to)?;
                }
            }
        }
        this.fire(i64::MAX)?;
        Ok(this.verifier)
    }

    /// Takes records `from..to`, which may lie in several windows.
    fn piece(&mut self, source: &S, from: usize, to: usize) -> Result<()> {
        let length = self.length;
        let ts = source.ts();
        if let [only] = &self.open[..] {
            let start = only.start;
            if columns::all_within(&ts[from..to], start, start.saturating_add(length - 1)) {
                return self.update(source, start, from, to);
            }
        }
        let mut at = from;
        while at < to {
            let start = ts[at].saturating_sub(ts[at].rem_euclid(length));
            let end = start.saturating_add(length);
            let run = ts[at..to].iter().take_while(|t| (start..end).contains(*t)).count().max(1);
            self.update(source, start, at, at + run)?;
            at += run;
        }
        self.ts_max = ts[from..to].iter().fold(self.ts_max, |max, t| max.max(*t));
        self.fire(self.ts_max.saturating_sub(self.spec.watermark_delay_ms() as i64))
    }

    /// Takes records `from..to`, which lie in the window at `start`.
    #[inline]
    fn update(&mut self, source: &S, start: i64, from: usize, to: usize) -> Result<()> {
        let at = match self.open.iter().position(|open| open.start == start) {
            Some(at) => at,
            None => self.open_window(start)?,
        };
        let (keys, inputs) = source.select(from, to, &mut self.scratch);
        self.open[at].table.update(keys, inputs);
        Ok(())
    }

    fn open_window(&mut self, start: i64) -> Result<usize> {
        let table = match self.spare.pop() {
            Some(table) => table,
            // With very many windows open at once each is small.
            None => Table::new(self.rows_max, self.open.len() < HUGE_WINDOWS_MAX)?,
        };
        let at = self.open.partition_point(|open| open.start < start);
        self.open.insert(at, Open { start, table });
        Ok(at)
    }

    /// Emits the windows that end at or before `watermark`.
    fn fire(&mut self, watermark: i64) -> Result<()> {
        let length = self.length;
        if let Some(overlapping) = &mut self.overlapping {
            while let first = self.open.first().map(|open| open.start)
                && let Some(start) = overlapping.next_start(first)
                && start.saturating_add(length) <= watermark
            {
                let pane = (first == Some(start)).then(|| self.open.remove(0).table);
                self.spare.extend(overlapping.take(start, pane, &mut self.verifier)?);
            }
            return Ok(());
        }
        while self.open.first().is_some_and(|w| w.start.saturating_add(length) <= watermark) {
            let mut window = self.open.remove(0);
            let bounds = Bounds { start: window.start, end: window.start.saturating_add(length) };
            S::Kind::emit(&mut window.table, bounds, &mut self.verifier);
            self.spare.push(window.table);
        }
        Ok(())
    }
}
