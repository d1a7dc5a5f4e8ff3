//! The receiving role: rows in slots update the tables of the partitions that this worker owns.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::operator::MayAdd;
use crate::operator::aggregate::grouping::Grouping;
use crate::operator::aggregate::slices::Slices;
use crate::passed::{Format, Incoming, ReceivedVars, Section};
use crate::windowing::SliceId;

/// What one sender's slots are taken in by.
pub(crate) struct Receiver {
    format: Arc<Format>,
    offsets: Vec<usize>,
    /// Parts of a section longer than a slot.
    long: Vec<u64>,
    rows: u64,
    /// The slice of the last ones.
    last_slice: Option<SliceId>,
}

impl Receiver {
    pub(crate) fn new(format: Arc<Format>) -> Receiver {
        Receiver { format, offsets: Vec::new(), long: Vec::new(), rows: 0, last_slice: None }
    }

    /// Rows taken in so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The slice whose rows came last.
    pub(crate) fn last_slice(&self) -> Option<SliceId> {
        self.last_slice
    }

    /// Takes in what a slot holds; returns the last watermark that the sender has put behind its
    /// rows. Rows for a slice that may not be added to are an error.
    pub(crate) fn take(
        &mut self,
        mut words: &[u64],
        grouping: &Grouping,
        slices: &mut Slices,
        may_add: MayAdd<'_>,
    ) -> Result<Option<i64>> {
        let mut marked = None;
        while !words.is_empty() {
            match self.format.next(&mut words)? {
                Section::Rows(rows) => self.update(&rows, grouping, slices, may_add)?,
                Section::Mark { rows, .. } if rows != self.rows as u32 => {
                    let message = format!("a watermark behind {rows} rows, not {}", self.rows);
                    return Err(Error::Internal(message));
                }
                Section::Mark { watermark, .. } => marked = Some(watermark),
                Section::Part { total, words } => {
                    self.part((total, words), grouping, slices, may_add)?;
                }
            }
            if !self.long.is_empty() && marked.is_some() {
                return Err(Error::Internal("a watermark within a row".into()));
            }
        }
        Ok(marked)
    }

    /// Takes in a slot of rows alone. Rows for a slice that may not be added to are an error, and a
    /// slot whose first row is of a key that this worker does not lead.
    pub(crate) fn take_rows(
        &mut self,
        mut words: &[u64],
        grouping: &Grouping,
        slices: &mut Slices,
        may_add: MayAdd<'_>,
    ) -> Result<()> {
        let mut is_first = true;
        while !words.is_empty() {
            match self.format.next(&mut words)? {
                Section::Rows(rows) => {
                    if std::mem::take(&mut is_first) && !slices.leads(grouping, rows.keys) {
                        return Err(Error::Internal("rows of another leader's keys".into()));
                    }
                    self.update(&rows, grouping, slices, may_add)?;
                }
                Section::Mark { .. } | Section::Part { .. } => {
                    return Err(Error::Internal("something else among passed rows".into()));
                }
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        incoming: &Incoming<'_>,
        grouping: &Grouping,
        slices: &mut Slices,
        may_add: MayAdd<'_>,
    ) -> Result<()> {
        may_add(incoming.slice)?;
        self.format.list_offsets(incoming, &mut self.offsets);
        let (incoming, offsets) = (&incoming, &self.offsets);
        let feeds = self.format.feeds(incoming, offsets);
        let vars = |first| ReceivedVars { incoming, offsets, first };
        slices.update_own(incoming.slice, grouping, incoming.keys, incoming.rows, vars, &feeds);
        self.rows += incoming.rows as u64;
        self.last_slice = Some(incoming.slice);
        Ok(())
    }

    /// Puts a part behind the others; the last one completes the section.
    fn part(
        &mut self,
        (total, words): (usize, &[u64]),
        grouping: &Grouping,
        slices: &mut Slices,
        may_add: MayAdd<'_>,
    ) -> Result<()> {
        self.long.extend_from_slice(words);
        if self.long.len() < total {
            return Ok(());
        }
        let long = std::mem::take(&mut self.long);
        let mut rest = &long[..];
        match self.format.next(&mut rest)? {
            Section::Rows(rows) if rest.is_empty() => self.update(&rows, grouping, slices, may_add),
            _ => Err(Error::Internal("parts that make no rows".into())),
        }
    }
}
