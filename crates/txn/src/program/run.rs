//! Execution of one operation on the row of its key (paper, section 4.4: evaluation is pushed down
//! into the operation).

use super::Program;
use super::slots::NO_SLOT;
use super::statement::{Action, Change};
use super::unrolled::Unrolled;
use super::view::{Op, View};
use crate::outcome::{Abort, Cause};
use crate::store::Store;

/// Copies of rows that a transaction works on, private until the commit. One for each key.
#[derive(Debug, Default)]
pub(crate) struct Images {
    row_words: usize,
    heads: Vec<Head>,
    words: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Head {
    exists: bool,
    changed: bool,
    loaded: bool,
}

impl Images {
    pub(crate) fn new(row_words_max: usize) -> Images {
        Images { row_words: row_words_max, ..Images::default() }
    }

    /// Forgets all rows, and has room for `count`.
    pub(crate) fn reset(&mut self, count: usize) {
        self.heads.clear();
        self.heads.resize(count, Head::default());
        if self.words.len() < count * self.row_words {
            self.words.resize(count * self.row_words, 0);
        }
    }

    #[inline]
    pub(crate) fn is_loaded(&self, number: usize) -> bool {
        self.heads[number].loaded
    }

    /// Takes a row in: `load` copies the words and says whether the row exists.
    #[inline]
    pub(crate) fn load(
        &mut self,
        number: usize,
        row_words: usize,
        load: impl FnOnce(&mut [u64]) -> bool,
    ) {
        let start = number * self.row_words;
        let row = &mut self.words[start..start + row_words];
        let exists = load(row);
        if !exists {
            row.fill(0);
        }
        self.heads[number] = Head { exists, changed: false, loaded: true };
    }

    /// The row, if it was changed, and whether it exists.
    #[inline]
    pub(crate) fn changed(&self, number: usize, row_words: usize) -> Option<(bool, &[u64])> {
        let start = number * self.row_words;
        let head = self.heads[number];
        head.changed.then(|| (head.exists, &self.words[start..start + row_words]))
    }

    #[inline]
    fn parts(&mut self, number: usize, row_words: usize) -> (&mut Head, &mut [u64]) {
        let start = number * self.row_words;
        (&mut self.heads[number], &mut self.words[start..start + row_words])
    }
}

impl<E> Program<E> {
    /// Runs an operation on image `image`. For a REQUIRE the number does not matter.
    #[inline]
    pub(crate) fn run(
        &self,
        store: &Store,
        event: &E,
        unrolled: &Unrolled,
        op: &Op,
        images: &mut Images,
        image: usize,
    ) -> Result<(), Abort> {
        let statement = &self.statements[usize::from(op.statement)];
        let first = op.links as usize;
        let mut view = View {
            event,
            element: op.element as usize,
            existed: false,
            links: &unrolled.links[first..first + statement.uses.len()],
            ops: &unrolled.ops,
            slots: &unrolled.slots,
        };
        let abort = |cause| Abort { statement: op.statement, element: op.element, cause };
        let Some((table, _)) = &statement.access else {
            return match &statement.action {
                Action::Require(holds, _) if !holds(&view) => Err(abort(Cause::Required)),
                _ => Ok(()),
            };
        };
        let (head, row) = images.parts(image, usize::from(table.row_words));
        view.existed = head.exists;
        if statement.needs_row() && !head.exists {
            return Err(abort(Cause::MissingRow));
        }
        if let Action::Write(change, new_row) = &statement.action {
            if *change == Change::Insert && head.exists {
                return Err(abort(Cause::Duplicate));
            }
            if !head.exists {
                row.fill(0);
            }
            if new_row.as_ref().is_some_and(|new_row| !new_row(&view, row)) {
                return Err(abort(Cause::Overflow));
            }
            (head.changed, head.exists) = (true, *change != Change::Delete);
            if table.has_checks && *change != Change::Delete {
                let checks = &store.table(table.number).spec.checks;
                if let Some(failed) = checks.iter().position(|(_, holds)| !holds(row)) {
                    return Err(abort(Cause::Check(failed as u8)));
                }
            }
        }
        if op.slot != NO_SLOT {
            unrolled.slots.fill(op.slot, head.exists || statement.is_delete(), row);
        }
        if statement.is_delete() {
            // The placeholder has the deleted row. Later statements meet no row.
            row.fill(0);
        }
        Ok(())
    }
}
