//! Senders of a table in several processes: the word that the processes pass on to each other.

use crate::error::Result;

/// The part of a table, in this process, that senders reach
/// ([`Split::senders`](crate::table::Split::senders)). The parts of all processes count their
/// senders together.
pub trait Senders: Send + Sync {
    /// The word for the parts in the other processes; `None` if it is the same as at the last call.
    /// Asked often, so it must be cheap.
    fn word(&self) -> Option<Vec<u8>>;
    /// Takes the latest word of the part in `process`.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`](crate::Error::Internal) if the bytes are no word.
    fn hear(&self, process: usize, word: &[u8]) -> Result<()>;
}
