//! Statements of a program.

use super::view::View;
use crate::store::TableId;

/// A condition of a REQUIRE.
pub(crate) type Condition<E> = Box<dyn Fn(&View<'_, E>) -> bool + Send + Sync>;
/// Computes a row in place; says no if a value does not fit its type.
pub(crate) type NewRow<E> = Box<dyn Fn(&View<'_, E>, &mut [u64]) -> bool + Send + Sync>;
type KeyWords<E> = Box<dyn Fn(&E, usize, &mut [u64]) + Send + Sync>;

/// A key, computed from the event and, in a loop, the number of the element.
pub struct Key<E> {
    pub(crate) words: usize,
    pub(crate) compute: KeyWords<E>,
}

impl<E> Key<E> {
    /// A key of `N` words.
    pub fn of<const N: usize>(
        key: impl Fn(&E, usize) -> [u64; N] + Send + Sync + 'static,
    ) -> Key<E> {
        let compute = move |event: &E, element: usize, words: &mut [u64]| {
            words.copy_from_slice(&key(event, element));
        };
        Key { words: N, compute: Box::new(compute) }
    }

    /// A key of as many words as `fill` is given to fill.
    pub fn filled(
        words: usize,
        fill: impl Fn(&E, usize, &mut [u64]) + Send + Sync + 'static,
    ) -> Key<E> {
        Key { words, compute: Box::new(fill) }
    }
}

/// A computed value is too large for its column. The transaction is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

/// Kinds of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Of a row that exists.
    Update,
    /// Of a key without a row.
    Insert,
    /// Of any key.
    Upsert,
    /// Of a row that exists.
    Delete,
}

pub(crate) enum Action<E> {
    /// Reads a row that exists.
    Read,
    /// Reads a row, if it exists.
    Find,
    Write(Change, Option<NewRow<E>>),
    Require(Condition<E>, String),
}

pub(crate) struct Statement<E> {
    pub(crate) action: Action<E>,
    /// Table and key; `None` for REQUIRE.
    pub(crate) access: Option<(TableId, Key<E>)>,
    /// Numbers of the used statements.
    pub(crate) uses: Vec<u16>,
    /// Whether its value has a placeholder.
    pub(crate) is_kept: bool,
    /// Whether its own computation may fail, be there a row or not.
    pub(crate) may_fail: bool,
}

impl<E> Statement<E> {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.action, Action::Write(..))
    }

    /// Whether it fails without a row.
    pub(crate) fn needs_row(&self) -> bool {
        match self.action {
            Action::Read => true,
            Action::Write(change, _) => matches!(change, Change::Update | Change::Delete),
            Action::Find | Action::Require(..) => false,
        }
    }

    pub(crate) fn is_delete(&self) -> bool {
        matches!(self.action, Action::Write(Change::Delete, _))
    }
}
