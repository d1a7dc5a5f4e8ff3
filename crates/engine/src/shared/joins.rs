//! The tables of a job that may grow while the job runs, and their new splits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::table::{OpenOptions, SplitSpec, Table};

/// A table that may grow, as the job has opened it.
#[derive(Debug)]
pub(crate) struct Growing {
    pub(crate) source: usize,
    pub(crate) table: Arc<dyn Table>,
    pub(crate) projection: Vec<usize>,
    pub(crate) options: OpenOptions,
}

/// The tables that may grow, and their new splits.
#[derive(Debug)]
pub(crate) struct Joins {
    pub(super) growing: Vec<Growing>,
    state: Mutex<JoinState>,
}

#[derive(Debug, Default)]
pub(super) struct JoinState {
    /// In the coordinator: by source, the names of all splits, also of those that cannot join.
    pub(super) known: BTreeMap<usize, BTreeSet<String>>,
    /// Spare splits that this process has yet to open.
    pub(super) to_open: VecDeque<(usize, SplitSpec)>,
    /// A split could not be opened, and the user knows.
    pub(super) told: bool,
}

impl Joins {
    pub(crate) fn new(growing: Vec<Growing>) -> Joins {
        Joins { growing, state: Mutex::default() }
    }

    /// Whether no table may grow.
    pub(crate) fn is_empty(&self) -> bool {
        self.growing.is_empty()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, JoinState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
