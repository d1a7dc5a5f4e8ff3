//! Results of planning a script before it runs, to be used in the run.
//!
//! A statement means the same in both if the catalog is the same before it. Each state of a catalog
//! has a number of its own ([`Catalog::version`](crate::names::catalog::Catalog)).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Logical;
use crate::names::catalog::{TableEntry, ViewEntry};
use crate::syntax::prelude::*;
use crate::syntax::script::Statement;

/// Results of the statements of a rehearsal, shared by a planner and its rehearsals.
#[derive(Clone, Default)]
pub(super) struct Rehearsed(Arc<Mutex<HashMap<Key, Known>>>);

/// A source by its address, which is unique as long as [`Known::source`] lives, and the start of
/// the statement in the source.
type Key = (usize, u32, u32);

/// Result of a statement.
#[derive(Clone)]
pub(super) enum StatementResult {
    Table(Arc<TableEntry>),
    View(Arc<ViewEntry>),
    Queries(Arc<Vec<Logical>>),
}

pub(super) struct Known {
    source: Arc<Source>,
    /// The catalog's state before the statement.
    before: u64,
    /// The same after it.
    pub(super) after: u64,
    pub(super) found: Option<StatementResult>,
}

impl Rehearsed {
    /// Forgets what an earlier rehearsal gave.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    pub(super) fn note(
        &self,
        statement: &Statement,
        states: (u64, u64),
        found: Option<StatementResult>,
    ) {
        let Some(key) = key(statement) else { return };
        let (before, after) = states;
        let known = Known { source: statement.source.clone(), before, after, found };
        self.lock().insert(key, known);
    }

    /// Result of a statement, if the catalog was in the same state.
    pub(super) fn take(&self, statement: &Statement, before: u64) -> Option<Known> {
        let known = self.lock().remove(&key(statement)?)?;
        let same = known.before == before && Arc::ptr_eq(&known.source, &statement.source);
        same.then_some(known)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` for a statement without a place: such a statement has no identity.
fn key(statement: &Statement) -> Option<Key> {
    let Span { line, column, .. } = statement.span?;
    Some((Arc::as_ptr(&statement.source).addr(), line, column))
}
