//! The paper's template of an operator (section 5, listing 1): pre_process, access to state,
//! post_process.

use std::fmt;
use std::sync::Arc;

use crate::outcome::Verdict;
use crate::program::slots::{NO_SLOT, Slots, Value};
use crate::program::unrolled::Unrolled;
use crate::program::view::Op;
use crate::program::{Access, Program};
use crate::scheme::Settings;
use crate::store::Store;

/// An operator over shared state.
pub trait Application: Send + Sync + 'static {
    /// Input.
    type Event: Send + Sync + 'static;
    /// Output, one for each event.
    type Output;

    /// Number of the program that an event runs, in the list given to
    /// [`Manager::start`](crate::Manager::start).
    fn program(&self, _event: &Self::Event) -> usize {
        0
    }

    /// Prepares an event. It must change neither the event's program nor what keys and lists are
    /// computed from: PAT numbers events before.
    fn pre_process(&self, _event: &mut Self::Event) {}

    /// Makes the output, when the transaction is decided and its placeholders are filled.
    fn post_process(&self, event: &Self::Event, outcome: &Outcome<'_>) -> Self::Output;
}

/// Result of an event's transaction.
pub struct Outcome<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) order: u64,
    pub(crate) serial: u64,
    pub(crate) ops: &'a [Op],
    pub(crate) slots: &'a Slots,
}

impl<'a> Outcome<'a> {
    /// Committed, or aborted with a reason.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Number of the event in the order of events.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Number of the transaction in an order of one by one execution that gives the same result.
    /// NOCC numbers transactions as they commit. The other schemes give [`Outcome::order`].
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The value of an access with RETURNING or a read; `None` if the transaction was aborted, or
    /// the access is in a loop over an empty list. In a loop: the first element's.
    pub fn value(&self, access: Access) -> Option<Value<'a>> {
        self.values(access).next()
    }

    /// The values of an access in a loop, in the order of elements.
    pub fn values(&self, access: Access) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let ops = if self.verdict.is_ok() { self.ops } else { &[] };
        let slots = self.slots;
        ops.iter()
            .filter(move |op| op.statement == access.0 && op.slot != NO_SLOT)
            .map(move |op| slots.value(op.slot))
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome {{ order {}, {:?} }}", self.order, self.verdict)
    }
}

/// Progress of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A piece of work was done.
    Worked,
    /// There is nothing to do until another worker goes on, or more events come.
    Idle,
    /// All events before the punctuation are executed and emitted.
    Done,
}

/// Parts that all workers of a manager share.
pub(crate) struct Shared<A: Application> {
    pub(crate) store: Store,
    pub(crate) programs: Vec<Program<A::Event>>,
    pub(crate) application: A,
    pub(crate) settings: Settings,
    pub(crate) workers: usize,
}

pub(crate) type SharedParts<A> = Arc<Shared<A>>;

impl<A: Application> Shared<A> {
    /// Hands a transaction's placeholders to post_process.
    pub(crate) fn post_process(
        &self,
        event: &A::Event,
        unrolled: &Unrolled,
        ops: std::ops::Range<usize>,
        (verdict, order, serial): (Verdict, u64, u64),
    ) -> A::Output {
        let ops = &unrolled.ops[ops];
        let outcome = Outcome { verdict, order, serial, ops, slots: &unrolled.slots };
        self.application.post_process(event, &outcome)
    }
}
