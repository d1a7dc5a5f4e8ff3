//! Reading slots and buffers: the rows of each section are handed to a callback, in place.

use std::sync::Arc;

use super::Format;
use super::read::{Incoming, Received, ReceivedVars, Section};
use crate::error::{Error, Result};
use crate::windowing::SliceId;

/// Reads what one sender has put into slots or buffers.
pub struct Reader {
    format: Arc<Format>,
    offsets: Vec<usize>,
    /// Parts of a section longer than a slot.
    long: Vec<u64>,
    rows: u64,
    /// The slice of the last ones.
    last_slice: Option<SliceId>,
}

/// Rows of one slice, in place. Their form has been checked.
pub struct ReadRows<'a> {
    format: &'a Format,
    incoming: &'a Incoming<'a>,
    offsets: &'a [usize],
}

impl ReadRows<'_> {
    /// The slice of the rows.
    pub fn slice(&self) -> SliceId {
        self.incoming.slice
    }

    /// How many there are: one at least.
    pub(crate) fn rows(&self) -> usize {
        self.incoming.rows
    }

    /// The side of a join that they are of.
    pub(crate) fn side(&self) -> usize {
        self.incoming.side
    }

    /// All words of the section, from the head on.
    pub(crate) fn words(&self) -> &[u64] {
        self.incoming.words
    }

    /// Their encoded keys, row after row.
    pub(crate) fn keys(&self) -> &[u64] {
        self.incoming.keys
    }

    /// The variable-length keys of the rows from `first` on.
    pub(crate) fn vars(&self, first: usize) -> ReceivedVars<'_> {
        ReceivedVars { incoming: self.incoming, offsets: self.offsets, first }
    }

    /// Inputs of the values.
    pub(crate) fn feeds(&self) -> Vec<Received<'_>> {
        self.format.feeds(self.incoming, self.offsets)
    }
}

/// Callback for rows. An error ends the reading.
pub(crate) type TakeIn<'a> = dyn FnMut(&ReadRows<'_>) -> Result<()> + 'a;

impl Reader {
    /// A reader of this format.
    pub fn new(format: Arc<Format>) -> Reader {
        Reader { format, offsets: Vec::new(), long: Vec::new(), rows: 0, last_slice: None }
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The slice whose rows came last.
    pub fn last_slice(&self) -> Option<SliceId> {
        self.last_slice
    }

    /// Reads what a slot holds; returns the last watermark that the sender has put behind its rows.
    pub fn read(&mut self, mut words: &[u64], take_in: &mut TakeIn<'_>) -> Result<Option<i64>> {
        let mut marked = None;
        while !words.is_empty() {
            match self.format.next(&mut words)? {
                Section::Rows(rows) => self.give(&rows, take_in)?,
                Section::Mark { rows, .. } if rows != self.rows as u32 => {
                    let message = format!("a watermark behind {rows} rows, not {}", self.rows);
                    return Err(Error::Internal(message));
                }
                Section::Mark { watermark, .. } => marked = Some(watermark),
                Section::Part { total, words } => self.add_part(total, words, take_in)?,
            }
            if !self.long.is_empty() && marked.is_some() {
                return Err(Error::Internal("a watermark within a row".into()));
            }
        }
        Ok(marked)
    }

    /// Reads rows alone, perhaps in parts; a mark is an error.
    pub fn read_rows(&mut self, mut words: &[u64], take_in: &mut TakeIn<'_>) -> Result<()> {
        while !words.is_empty() {
            match self.format.next(&mut words)? {
                Section::Rows(_) if self.is_within_row() => {
                    return Err(Error::Internal("rows within a row".into()));
                }
                Section::Rows(rows) => self.give(&rows, take_in)?,
                Section::Part { total, words } => self.add_part(total, words, take_in)?,
                Section::Mark { .. } => {
                    return Err(Error::Internal("something else among passed rows".into()));
                }
            }
        }
        Ok(())
    }

    /// Whether a part of a section has come whose other parts have not.
    pub fn is_within_row(&self) -> bool {
        !self.long.is_empty()
    }

    fn give(&mut self, incoming: &Incoming<'_>, take_in: &mut TakeIn<'_>) -> Result<()> {
        let format = self.format.of_side(incoming.side).unwrap_or(&self.format);
        format.list_offsets(incoming, &mut self.offsets);
        take_in(&ReadRows { format, incoming, offsets: &self.offsets })?;
        self.rows += incoming.rows as u64;
        self.last_slice = Some(incoming.slice);
        Ok(())
    }

    /// Puts a part behind the others; the last one completes the section, of `total` words.
    fn add_part(&mut self, total: usize, words: &[u64], take_in: &mut TakeIn<'_>) -> Result<()> {
        self.long.extend_from_slice(words);
        if self.long.len() < total {
            return Ok(());
        }
        let long = std::mem::take(&mut self.long);
        let mut rest = &long[..];
        match self.format.next(&mut rest)? {
            Section::Rows(rows) if rest.is_empty() => self.give(&rows, take_in),
            _ => Err(Error::Internal("parts that make no rows".into())),
        }
    }
}
