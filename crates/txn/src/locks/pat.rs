//! PAT: a numbered turn for each partition (paper, section 3, "partition-based approach").

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::footprint::{Footprint, LockAccess};
use super::{Attempt, Protocol};
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::store::Store;
use crate::ticket::Ticket;

/// The turn of a partition, alone in its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct PartitionTurn(AtomicU64);

/// Turns of all partitions.
#[derive(Debug)]
pub(crate) struct Partitions(Box<[PartitionTurn]>);

impl Partitions {
    pub(crate) fn new(partitions: usize) -> Partitions {
        Partitions((0..partitions).map(|_| PartitionTurn::default()).collect())
    }
}

/// A transaction waits until it is its turn in all its partitions, and runs without other locks.
pub(crate) struct Pat {
    partitions: Arc<Partitions>,
}

impl Protocol for Pat {
    type Common = Partitions;

    fn new(_: usize, partitions: Arc<Partitions>, _: &Store) -> Pat {
        Pat { partitions }
    }

    fn begin(&mut self) {}

    fn attempt<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        ticket: &Ticket,
        footprint: &mut Footprint,
    ) -> Attempt {
        let turn_of = |partition: usize| &self.partitions.0[partition].0;
        let awaited = if planted(Fault::OnePartition) { 1 } else { usize::MAX };
        let mut turns = ticket.turns().take(awaited);
        if !turns.all(|(partition, turn)| turn_of(partition).load(Acquire) == turn) {
            return Attempt::Blocked;
        }
        let load = |access: &LockAccess, row: &mut [u64]| store.words(access.record).load(row);
        let verdict = footprint.run(store, program, event, load);
        if verdict.is_ok() {
            footprint.each_change(store, |access, exists, row| {
                store.words(access.record).store(exists, row);
            });
        }
        for (partition, turn) in ticket.turns() {
            turn_of(partition).store(turn + 1, Release);
        }
        Attempt::Over(verdict, ticket.order())
    }
}
