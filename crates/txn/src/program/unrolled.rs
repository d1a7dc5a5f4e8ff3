//! Transactions as lists of operations: loops are unrolled and keys are computed, from the event
//! alone.

use std::sync::atomic::AtomicU32;

use super::Program;
use super::slots::{NO_SLOT, Slots};
use super::statement::Statement;
use super::view::{NO_GROUP, Op};
use crate::store::TableId;

/// Operations of transactions, with their placeholders.
#[derive(Debug, Default)]
pub(crate) struct Unrolled {
    pub(crate) ops: Vec<Op>,
    pub(crate) links: Vec<u32>,
    pub(crate) slots: Slots,
    /// For each statement, its newest operation.
    newest: Vec<u32>,
    key: Vec<u64>,
}

impl Unrolled {
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.links.clear();
        self.slots.clear();
    }

    /// Adds the operations of an event. `on_access` is given the number of each that has a key,
    /// its statement, table and key.
    pub(crate) fn add<E>(
        &mut self,
        program: &Program<E>,
        event: &E,
        txn: u32,
        mut on_access: impl FnMut(u32, &Statement<E>, TableId, &[u64]),
    ) {
        self.newest.clear();
        self.newest.resize(program.statements.len(), u32::MAX);
        program.each_instance(event, |number, statement, element| {
            let op = self.ops.len() as u32;
            let links = self.links.len() as u32;
            self.newest[number] = op;
            let newest = &self.newest;
            self.links.extend(statement.uses.iter().map(|used| newest[usize::from(*used)]));
            let mut slot = NO_SLOT;
            if let Some((table, _)) = &statement.access
                && statement.is_kept
            {
                slot = self.slots.reserve(usize::from(table.row_words));
            }
            let group = AtomicU32::new(NO_GROUP);
            let statement_number = number as u16;
            let element_number = element as u32;
            self.ops.push(Op {
                txn,
                element: element_number,
                links,
                slot,
                group,
                statement: statement_number,
            });
            if let Some((table, key)) = &statement.access {
                self.key.resize(key.words, 0);
                (key.compute)(event, element, &mut self.key);
                on_access(op, statement, *table, &self.key);
            }
        });
    }
}

impl<E> Program<E> {
    /// Visits the statements as an event runs them: number, statement, element.
    pub(crate) fn each_instance(
        &self,
        event: &E,
        mut visit: impl FnMut(usize, &Statement<E>, usize),
    ) {
        for section in &self.sections {
            let rounds = section.length.as_ref().map_or(1, |length| length(event));
            for element in 0..rounds {
                for number in section.statements.clone() {
                    visit(number, &self.statements[number], element);
                }
            }
        }
    }
}
