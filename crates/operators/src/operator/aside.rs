//! Tables that have been set aside for a checkpoint: small ones are copied. Of large ones the
//! table itself is set aside, and the operator goes on with another table until the rows have been
//! saved.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use millstream_state::{RowsRef, Table, TableCopy};

use super::saved::{Cut, SavePoint, Since, StateRows, Unchanged};
use crate::windowing::SliceId;

/// Tables by slice, in the order in which they are saved. A table leaves with its last row.
#[derive(Debug, Default)]
pub(crate) struct AsideTables {
    tables: VecDeque<(SliceId, Aside)>,
    copied_bytes: usize,
    cut: Cut,
    /// Slices that are left out.
    unchanged: Vec<SliceId>,
}

#[derive(Debug)]
enum Aside {
    Copy(TableCopy),
    Shared(Arc<Table>),
}

impl Aside {
    fn shared_bytes(&self) -> usize {
        match self {
            Aside::Copy(_) => 0,
            Aside::Shared(table) => table.copy_bytes(),
        }
    }

    /// The rows of a block; `None` beyond the last one.
    fn block(&self, number: usize) -> Option<RowsRef<'_>> {
        match self {
            Aside::Copy(copy) => (number == 0).then(|| copy.rows()),
            Aside::Shared(table) => (number < table.scan_blocks()).then(|| table.scan(number)),
        }
    }
}

impl AsideTables {
    /// No tables yet, of a cut.
    pub(crate) fn new(cut: Cut) -> AsideTables {
        AsideTables { cut, ..AsideTables::default() }
    }

    /// Whether a slice is left out. Otherwise its table is to be added.
    pub(crate) fn leave_out(&mut self, slice: SliceId, since: &mut Since) -> bool {
        let leaves = self.cut.leaves_out(since);
        self.unchanged.extend(leaves.then_some(slice));
        leaves
    }

    /// The slices that are left out, of the only part.
    pub(crate) fn unchanged(&self) -> Unchanged {
        let slices = self.unchanged.iter().map(|slice| (0, *slice)).collect();
        Unchanged { durable: self.cut.durable, slices }
    }

    /// Whether no slice is both saved and left out.
    pub(crate) fn are_disjoint(&self) -> bool {
        let left_out: BTreeSet<_> = self.unchanged.iter().collect();
        !self.tables.iter().any(|(slice, _)| left_out.contains(slice))
    }

    /// Adds a copy.
    pub(crate) fn copy(&mut self, slice: SliceId, copy: TableCopy) {
        self.copied_bytes += copy.bytes();
        self.tables.push_back((slice, Aside::Copy(copy)));
    }

    /// Adds a table that does not change any more.
    pub(crate) fn share(&mut self, slice: SliceId, table: Arc<Table>) {
        self.tables.push_back((slice, Aside::Shared(table)));
    }

    /// Bytes of copies.
    pub(crate) fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Bytes of tables that are not copied.
    pub(crate) fn shared_bytes(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.shared_bytes()).sum()
    }

    /// Copies these tables.
    pub(crate) fn copy_shared(&mut self) {
        for (_, table) in &mut self.tables {
            if let Aside::Shared(shared) = table {
                let copy = shared.copy();
                self.copied_bytes += copy.bytes();
                *table = Aside::Copy(copy);
            }
        }
    }

    /// Moves the next rows to those of a batch, until that is full.
    pub(crate) fn fill(&mut self, at: &mut SavePoint, to: &mut StateRows) {
        while let Some((slice, table)) = self.tables.front() {
            while let Some(rows) = table.block(at.block) {
                if !at.copy(*slice, &rows, to) {
                    return;
                }
            }
            at.next_step();
            self.tables.pop_front();
        }
    }
}
