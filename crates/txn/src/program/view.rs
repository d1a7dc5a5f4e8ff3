//! Operations, and the view of them that closures of statements get.

use std::sync::atomic::AtomicU32;

use super::slots::{Slots, Value};

/// One instance of a statement in a transaction. For an access it is the paper's operation
/// (section 4.3: "atomic state access operations").
#[derive(Debug)]
pub(crate) struct Op {
    /// Number of the transaction in its notes.
    pub(crate) txn: u32,
    /// Number of the element in its loop.
    pub(crate) element: u32,
    /// Where the numbers of the operations begin that it uses.
    pub(crate) links: u32,
    /// Its placeholder.
    pub(crate) slot: u32,
    /// The group of all operations of the transaction on this key; set when the key is looked up.
    pub(crate) group: AtomicU32,
    pub(crate) statement: u16,
}

/// The number of no group: that of a REQUIRE.
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// Arguments of a statement's closure: the event, the element, and values of earlier accesses.
pub struct View<'a, E> {
    pub(crate) event: &'a E,
    pub(crate) element: usize,
    pub(crate) existed: bool,
    pub(crate) links: &'a [u32],
    pub(crate) ops: &'a [Op],
    pub(crate) slots: &'a Slots,
}

impl<'a, E> View<'a, E> {
    /// The event.
    #[inline]
    pub fn event(&self) -> &'a E {
        self.event
    }

    /// Number of the element in its list, from 0; 0 outside of a loop.
    #[inline]
    pub fn element(&self) -> usize {
        self.element
    }

    /// Whether the row existed before this statement. For UPSERT.
    #[inline]
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// The value of entry `number` of the statement's list of used accesses: the row that was read,
    /// the row after a write, or the deleted row.
    ///
    /// # Panics
    /// If the list has no such entry.
    #[inline]
    pub fn used(&self, number: usize) -> Value<'a> {
        self.slots.value(self.ops[self.links[number] as usize].slot)
    }
}
