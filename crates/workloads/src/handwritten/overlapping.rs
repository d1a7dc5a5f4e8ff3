//! Windows that hop or cumulate: a table for each pane, which is as wide as windows are apart, and
//! common state of several windows.
//!
//! Windows that hop are combined by two stacks (Tangwongsan and others: *General incremental
//! sliding-window aggregation*, VLDB 2015). The panes before the last flip have become suffixes:
//! each covers the records from its pane up to the flip. Later records are in one running table. So
//! a window is the oldest suffix and the running table. Windows that cumulate need the running
//! table alone.

use std::collections::VecDeque;

use super::kinds::Kind;
use super::table::Table;
use crate::error::Result;
use crate::verify::{Bounds, Verifier};
use crate::window;

/// Common state of the open windows.
pub(super) struct Overlapping<K: Kind> {
    /// Panes of a window.
    panes: i64,
    pane_ms: i64,
    hop: bool,
    keys_max: usize,
    /// The next pane; `None` while all that there are are empty.
    next: Option<i64>,
    /// The suffixes that windows may need, that of the oldest pane last.
    suffixes: Vec<Table<K>>,
    /// Panes since the flip; `None`: an empty one.
    since: VecDeque<Option<Table<K>>>,
    /// All that came since the flip, or since windows began anew.
    running: Table<K>,
    /// A window that is put together.
    window: Table<K>,
    /// Empty tables whose memory is kept.
    spare: Vec<Table<K>>,
}

impl<K: Kind> Overlapping<K> {
    /// State for windows of this length and kind; `None` for windows that do not overlap.
    pub(super) fn new(
        kind: window::WindowKind,
        length_ms: u64,
        keys_max: usize,
    ) -> Result<Option<Overlapping<K>>> {
        let (pane_ms, hop) = match kind {
            window::WindowKind::Tumble | window::WindowKind::Session => return Ok(None),
            window::WindowKind::Hop { slide_ms } => (slide_ms, true),
            window::WindowKind::Cumulate { step_ms } => (step_ms, false),
        };
        Ok(Some(Overlapping {
            panes: (length_ms / pane_ms) as i64,
            pane_ms: pane_ms as i64,
            hop,
            keys_max,
            next: None,
            suffixes: Vec::new(),
            since: VecDeque::new(),
            running: Table::new(keys_max, false)?,
            window: Table::new(keys_max, false)?,
            spare: Vec::new(),
        }))
    }

    pub(super) fn pane_ms(&self) -> i64 {
        self.pane_ms
    }

    /// The start of the pane that is complete next, if the first that there is begins at `first`.
    pub(super) fn next_start(&self, first: Option<i64>) -> Option<i64> {
        self.next.map(|pane| pane * self.pane_ms).or(first)
    }

    /// Takes the next pane, which begins at `start`, and emits the window that ends with the pane.
    /// Returns a table that has become free.
    pub(super) fn take(
        &mut self,
        start: i64,
        pane: Option<Table<K>>,
        verifier: &mut Verifier,
    ) -> Result<Option<Table<K>>> {
        let number = start.div_euclid(self.pane_ms);
        self.next = Some(number + 1);
        match self.hop {
            true => self.hop(number, pane, verifier)?,
            false => self.cumulate(number, pane, verifier),
        }
        Ok(self.spare.pop())
    }

    fn hop(
        &mut self,
        number: i64,
        mut pane: Option<Table<K>>,
        verifier: &mut Verifier,
    ) -> Result<()> {
        if self.suffixes.len() + self.since.len() == self.panes as usize {
            if self.suffixes.is_empty() {
                self.flip()?;
            }
            self.spare.extend(self.suffixes.pop().map(Table::emptied));
        }
        if let Some(pane) = &mut pane {
            self.running.merge(pane);
        }
        self.since.push_back(pane);
        if let Some(oldest) = self.suffixes.last_mut() {
            self.window.merge(oldest);
        }
        self.window.merge(&mut self.running);
        if self.window.is_empty() {
            // What comes next begins with a pane that has records.
            self.spare.extend(self.suffixes.drain(..).map(Table::emptied));
            self.since.clear();
            self.next = None;
            return Ok(());
        }
        let start = (number + 1 - self.panes) * self.pane_ms;
        let end = (number + 1) * self.pane_ms;
        K::emit(&mut self.window, Bounds { start, end }, verifier);
        Ok(())
    }

    /// Panes become suffixes, in their own tables.
    fn flip(&mut self) -> Result<()> {
        self.running.clear();
        while let Some(pane) = self.since.pop_back() {
            let mut suffix = match (pane, self.spare.pop()) {
                (Some(pane), spare) => {
                    self.spare.extend(spare);
                    pane
                }
                (None, Some(spare)) => spare,
                (None, None) => Table::new(self.keys_max, false)?,
            };
            if let Some(newer) = self.suffixes.last_mut() {
                suffix.merge(newer);
            }
            self.suffixes.push(suffix);
        }
        Ok(())
    }

    fn cumulate(&mut self, number: i64, pane: Option<Table<K>>, verifier: &mut Verifier) {
        if let Some(mut pane) = pane {
            self.running.merge(&mut pane);
            self.spare.push(pane.emptied());
        }
        let last = number.rem_euclid(self.panes) == self.panes - 1;
        let start = number.div_euclid(self.panes) * self.panes * self.pane_ms;
        let window = Bounds { start, end: (number + 1) * self.pane_ms };
        if last {
            K::emit(&mut self.running, window, verifier);
        } else {
            self.window.merge(&mut self.running);
            K::emit(&mut self.window, window, verifier);
        }
        if self.running.is_empty() {
            self.next = None;
        }
    }
}
