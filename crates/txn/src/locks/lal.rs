//! LAL: lock ahead, strict two-phase locking in order (paper, section 3).

use std::sync::Arc;

use super::footprint::Footprint;
use super::order::{Reads, Turn, insert, is_granted, release};
use super::{Attempt, Protocol};
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::store::Store;
use crate::ticket::Ticket;

/// In turn a transaction inserts all its requests. It runs when all are granted, and releases them
/// when it is over.
pub(crate) struct Lal {
    turn: Arc<Turn>,
    is_inserted: bool,
    /// Requests from the first on that are known to be granted.
    granted: usize,
}

impl Protocol for Lal {
    type Common = Turn;

    fn new(_: usize, turn: Arc<Turn>, _: &Store) -> Lal {
        Lal { turn, is_inserted: false, granted: 0 }
    }

    fn begin(&mut self) {
        (self.is_inserted, self.granted) = (false, 0);
    }

    fn attempt<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        ticket: &Ticket,
        footprint: &mut Footprint,
    ) -> Attempt {
        if !self.is_inserted {
            if !self.turn.is(ticket.order()) {
                return Attempt::Blocked;
            }
            for access in &mut footprint.accesses {
                access.ticket = insert(store.words(access.record), access.writes, Reads::Block);
            }
            self.turn.pass(ticket.order());
            self.is_inserted = true;
            return Attempt::Advanced;
        }
        while let Some(access) = footprint.accesses.get(self.granted) {
            let words = store.words(access.record);
            let granted = is_granted(words, access.ticket, access.writes, Reads::Block);
            if !granted && !planted(Fault::SkipGrant) {
                return Attempt::Blocked;
            }
            self.granted += 1;
        }
        let load = |access: &super::footprint::LockAccess, row: &mut [u64]| {
            store.words(access.record).load(row)
        };
        let verdict = footprint.run(store, program, event, load);
        if verdict.is_ok() {
            footprint.each_change(store, |access, exists, row| {
                store.words(access.record).store(exists, row);
            });
        }
        for access in &footprint.accesses {
            release(store.words(access.record), access.writes, Reads::Block);
        }
        Attempt::Over(verdict, ticket.order())
    }
}
