//! A stage with state, as shared by all workers of a process: its operator, the limits of its
//! memory, and how far it has fired.
//!
//! A stage reads sources and the fired rows of earlier stages. The worker that fires rows also
//! pushes them into all stages that read the rows ([`crate::edges`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};

use crate::edges::Root;
use crate::error::{Error, Result};
use crate::settings::Settings;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::operator::{MergeTimes, Program};
use millstream_operators::windowing::{SliceId, Windowing};

/// Passed rows are shipped when a fragment has this part of the size that ends an epoch: passed
/// rows gain nothing by waiting, and are merged while they lie in a cache.
const PASSED_SHARE: u64 = 4;
/// The same where it is kept as keys and arguments: it need not be much.
const KEPT_SHARE: u64 = 32;

/// A stage that has state.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Its number, in topological order.
    pub(crate) number: usize,
    /// Its number among all stages of the plan, which `EXPLAIN` counts from 1.
    pub(crate) place: usize,
    /// Its names ([`crate::plan::Stage::names`]).
    pub(crate) names: Vec<String>,
    /// Whose rows it takes.
    pub(crate) inputs: Vec<Root>,
    /// Operator in executable form.
    pub(crate) program: Arc<dyn Program>,
    windowing: Windowing,
    /// Whether the state keeps computed texts, computed by the stage or on the way to it.
    pub(crate) computes_texts: bool,
    /// Its part of the budget.
    pub(crate) limits: StageLimits,
    /// Per worker of this process: up to where it has fired.
    fired: Vec<AtomicI64>,
    /// How many workers of this process have a window that is firing.
    firing: AtomicUsize,
    /// Whether a record has come late here.
    late: AtomicBool,
    /// Merging by leaders, as reported.
    pub(crate) merging: Merging,
}

/// Sums of what leaders have merged for workers of this process, and of the time that merging took
/// them.
#[derive(Debug, Default)]
pub(crate) struct Merging([AtomicU64; 4]);

impl Merging {
    /// A leader has merged so much more.
    pub(crate) fn add(&self, times: &MergeTimes) {
        let MergeTimes { rows, ns, passed_rows, passed_ns } = *times;
        for (sum, more) in self.0.iter().zip([rows, ns, passed_rows, passed_ns]) {
            sum.fetch_add(more, Relaxed);
        }
    }

    /// All merging so far.
    pub(crate) fn times(&self) -> MergeTimes {
        let [rows, ns, passed_rows, passed_ns] = [0, 1, 2, 3].map(|at| self.0[at].load(Relaxed));
        MergeTimes { rows, ns, passed_rows, passed_ns }
    }
}

/// Operator of a stage.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) program: Arc<dyn Program>,
    /// See [`Stage::computes_texts`].
    pub(crate) computes_texts: bool,
    /// Its number among all stages of the plan, and its names there.
    pub(crate) place: usize,
    pub(crate) names: Vec<String>,
}

/// How much of the budget parts of a stage may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageLimits {
    /// State is counted at the latest when so many tables of windows have been opened.
    pub(crate) tables_max: usize,
    /// Bytes of keys and values in one fragment after which an epoch ends.
    pub(crate) fragment_bytes: u64,
    /// Idle chunks that a worker may keep.
    pub(crate) pool_bytes: usize,
}

impl StageLimits {
    /// For one of so many stages of a job with these settings, all of whose processes have so many
    /// `leaders`.
    pub(crate) fn new(
        settings: &Settings,
        stages: usize,
        leaders: usize,
        program: Option<&dyn Program>,
    ) -> StageLimits {
        let (memory, workers) = (settings.memory_bytes / stages as u64, settings.workers as u64);
        // Tables that all workers open before state is counted take a 32nd of the budget at the
        // most.
        let tables = memory / 32 / workers;
        let table_bytes = program.map_or(1, |program| program.small_slice_bytes(leaders));
        // All fragments and the deltas on their way, at most two per worker and leader, take a
        // quarter.
        let fragment_bytes = memory / 12 / (workers * leaders as u64);
        StageLimits {
            tables_max: (tables as usize / table_bytes).max(1),
            fragment_bytes: settings.fragment_bytes.min(fragment_bytes),
            pool_bytes: (memory / 16 / workers).min(64 << 20) as usize,
        }
    }

    /// Bytes of keys and values passed through to one leader that are shipped together.
    pub(crate) fn passed_bytes(&self) -> u64 {
        self.fragment_bytes.div_ceil(PASSED_SHARE)
    }

    /// Bytes allocated for what is passed through to one leader as keys and arguments, and kept,
    /// that are shipped together.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.fragment_bytes.div_ceil(KEPT_SHARE)
    }
}

impl Stage {
    pub(crate) fn new(
        number: usize,
        inputs: Vec<Root>,
        Operation { program, computes_texts, place, names }: Operation,
        limits: StageLimits,
        workers: usize,
    ) -> Stage {
        let fired = (0..workers).map(|_| AtomicI64::new(BEGINNING)).collect();
        Stage {
            number,
            place,
            names,
            inputs,
            windowing: program.windowing(),
            program,
            computes_texts,
            limits,
            fired,
            firing: AtomicUsize::new(0),
            late: AtomicBool::new(false),
            merging: Merging::default(),
        }
    }

    /// Notes that a record has come late. Whether it is the first in this process.
    pub(crate) fn note_late(&self) -> bool {
        !self.late.swap(true, Relaxed)
    }

    /// How it divides event time.
    pub(crate) fn windowing(&self) -> &Windowing {
        &self.windowing
    }

    /// Checks that whoever has announced `watermark` may have state for a slice: the
    /// slice exists, and the watermark has not closed it. So it has not fired either.
    pub(crate) fn check_slice(&self, slice: SliceId, watermark: i64) -> Result<()> {
        let windowing = self.windowing();
        if windowing.has_slice(slice) && windowing.closes_at(slice) > watermark {
            return Ok(());
        }
        let name = self.names.first().map_or(String::new(), |name| format!(" of '{name}'"));
        Err(Error::Internal(match windowing.has_slice(slice) {
            true => format!("state{name} for the window {slice} after its end"),
            false => format!("state{name} for {slice}, where no window begins"),
        }))
    }

    /// `worker` of this process has fired all windows that fire up to a watermark.
    pub(crate) fn note_fired(&self, worker: usize, watermark: i64) {
        self.fired[worker].fetch_max(watermark, Relaxed);
    }

    /// A window begins to fire.
    pub(crate) fn note_firing(&self) {
        self.firing.fetch_add(1, Relaxed);
    }

    /// A window has fired.
    pub(crate) fn note_end_of_firing(&self) {
        self.firing.fetch_sub(1, Relaxed);
    }

    /// Whether some worker of this process has a window that is firing.
    pub(crate) fn is_firing(&self) -> bool {
        self.firing.load(Relaxed) > 0
    }

    /// Up to where all workers of this process have fired.
    pub(crate) fn fired(&self) -> i64 {
        self.fired.iter().map(|fired| fired.load(Relaxed)).min().unwrap_or(BEGINNING)
    }
}
