//! Planted faults prove that the seeded tests notice real ones. Outside of the unit tests no
//! fault can be planted, and the compiler removes the questions.

#[cfg(test)]
use std::cell::Cell;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A chain does not wait for the decision of a transaction.
    SkipWait,
    /// An abort leaves what the transaction has written.
    AbortLeavesVersion,
    /// A read sees what later transactions have written.
    LateRead,
    /// A transaction is decided when half of its inputs are there.
    HalfOfInputs,
    /// Transactions of a worker are ordered as they came.
    OrderOfArrival,
    /// Results are emitted before all chains are finished.
    EarlyPunctuation,
    /// A decision does not wake the chains that wait for it.
    LostWaking,
    /// Records without a row stay.
    NoSweep,
    /// LAL and LWM do not wait for earlier requests.
    SkipGrant,
    /// LWM reads the latest version.
    LatestVersion,
    /// PAT waits for a single partition.
    OnePartition,
    /// NOCC does not restore rows.
    NoUndo,
    /// NOCC numbers a transaction after the release of the locks.
    LateNumber,
}

#[cfg(test)]
std::thread_local! {
    pub(crate) static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Whether a test has planted this fault.
#[inline(always)]
pub(crate) fn planted(fault: Fault) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(fault);
    #[cfg(not(test))]
    {
        let _ = fault;
        false
    }
}
