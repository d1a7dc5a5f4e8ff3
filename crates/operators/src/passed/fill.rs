//! Filling slots: rows go on from one slot to the next.

use super::{Format, Outgoing};
use crate::error::Result;

/// The way to one receiver: a channel's open slot.
pub trait Outlet {
    /// The words of the slot that is being filled; written words stay until they are sent. `None`
    /// while there is no credit.
    fn slot(&mut self) -> Result<Option<&mut [u64]>>;
    /// Sends the first `words` words of the slot.
    fn send(&mut self, words: usize) -> Result<()>;
}

/// Few rows do not begin a section in what is left of a slot.
const SLIVER_ROWS: usize = 16;

/// How far rows have been written into slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// All rows are written.
    All,
    /// Up to the next slot, for which there is no credit.
    NoCredit,
    /// Up to a row that is longer than a slot.
    TooLong,
}

/// Writes rows behind the first `used` words of the open slot, and into further slots; sends full
/// slots. Returns the number of written rows.
pub fn fill<O: Outlet>(
    format: &Format,
    rows: &Outgoing<'_>,
    used: &mut usize,
    outlet: &mut O,
    scratch: &mut Vec<u32>,
) -> Result<(usize, Filled)> {
    let mut written = 0;
    while written < rows.picked.len() {
        let rows = Outgoing { picked: &rows.picked[written..], ..*rows };
        let Some(slot) = outlet.slot()? else { return Ok((written, Filled::NoCredit)) };
        let (count, words) = format.fit(&rows, slot.len() - *used);
        if count < rows.picked.len().min(SLIVER_ROWS) && *used > 0 {
            outlet.send(std::mem::take(used))?;
            continue;
        }
        if count == 0 {
            return Ok((written, Filled::TooLong));
        }
        let rows = Outgoing { picked: &rows.picked[..count], ..rows };
        format.write(&rows, &mut slot[*used..*used + words], scratch)?;
        *used += words;
        written += count;
    }
    Ok((written, Filled::All))
}
