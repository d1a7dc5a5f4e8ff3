//! Results of transactions.

use std::fmt;

/// Why a statement aborts its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// There is no row of the key to read, update or delete.
    MissingRow,
    /// There is a row of the key already.
    Duplicate,
    /// A REQUIRE is false.
    Required,
    /// The table's CHECK of this number, from 0, is false.
    Check(u8),
    /// A value does not fit its type.
    Overflow,
}

/// An aborted transaction's first failing statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Abort {
    /// Number of the statement in its program, from 0.
    pub statement: u16,
    /// Number of the element, from 0, if the statement is in a loop.
    pub element: u32,
    /// Reason.
    pub cause: Cause,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Abort { statement, element, cause } = self;
        write!(f, "statement {statement}, element {element}: {cause:?}")
    }
}

/// Committed, or aborted with a reason.
pub type Verdict = Result<(), Abort>;

const UNDECIDED: u64 = 0;
const COMMITTED: u64 = 1;

/// A verdict in one word; `None`: undecided.
pub(crate) fn encode(verdict: Option<Verdict>) -> u64 {
    let abort = match verdict {
        None => return UNDECIDED,
        Some(Ok(())) => return COMMITTED,
        Some(Err(abort)) => abort,
    };
    let (cause, check) = match abort.cause {
        Cause::MissingRow => (2, 0),
        Cause::Duplicate => (3, 0),
        Cause::Required => (4, 0),
        Cause::Check(check) => (5, check),
        Cause::Overflow => (6, 0),
    };
    let place = u64::from(abort.statement) << 32 | u64::from(abort.element);
    cause << 56 | u64::from(check) << 48 | place
}

/// The opposite of [`encode`].
pub(crate) fn decode(word: u64) -> Option<Verdict> {
    if word <= COMMITTED {
        return (word == COMMITTED).then_some(Ok(()));
    }
    let cause = match word >> 56 {
        2 => Cause::MissingRow,
        3 => Cause::Duplicate,
        4 => Cause::Required,
        5 => Cause::Check((word >> 48) as u8),
        _ => Cause::Overflow,
    };
    Some(Err(Abort { statement: (word >> 32) as u16, element: word as u32, cause }))
}
