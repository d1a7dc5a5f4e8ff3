//! Roles of groups within their transactions, and the count of inputs of each decision (paper,
//! section 4.3, "handling cross-states dependency").
//!
//! Groups that may fail, or that other keys or a REQUIRE use, are inputs of the decision. All other
//! writes of a transaction that may be aborted follow the decision. A transaction without inputs
//! needs no decision: its groups are free.

use super::batch::Batch;
use super::execute::Executor;
use super::plan::{Group, Role};
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::store::Store;

use std::sync::atomic::Ordering::Relaxed;

/// Sets the roles of some transactions of worker `worker`.
pub(crate) fn classify<E>(
    store: &Store,
    programs: &[Program<E>],
    batch: &Batch<E>,
    (worker, txns): (usize, std::ops::Range<usize>),
    executor: &mut Executor,
) {
    let any_absent = batch.any_absent.load(Relaxed);
    for number in txns {
        let txn = &batch.notes[worker].txns[number];
        let program = &programs[usize::from(txn.program)];
        if program.is_plain && !any_absent {
            continue;
        }
        let count = Count::of(program, batch, worker, number, any_absent);
        let halved = planted(Fault::HalfOfInputs) && count.inputs > 1;
        txn.missing.set(if halved { count.inputs / 2 } else { count.inputs });
        if count.may_fail && count.inputs == 0 {
            executor.decide(store, programs, batch, (worker, number as u32), None);
        }
    }
}

/// Inputs of a transaction's decision.
#[derive(Debug, Default)]
struct Count {
    inputs: u32,
    may_fail: bool,
}

impl Count {
    fn of<E>(
        program: &Program<E>,
        batch: &Batch<E>,
        worker: usize,
        txn: usize,
        any_absent: bool,
    ) -> Count {
        let mut count = Count::default();
        let notes = &batch.notes[worker];
        let ops = notes.ops_of(&notes.txns[txn]);
        for number in ops.clone() {
            let op = &notes.unrolled.ops[number];
            let statement = &program.statements[usize::from(op.statement)];
            let own = batch.group_of(worker, number);
            let meets_no_row = || {
                let chain = own.map(|(group, own)| batch.chain(chain_of(group, own)));
                any_absent && statement.needs_row() && chain.is_some_and(|chain| chain.maybe_absent)
            };
            if statement.may_fail || meets_no_row() {
                count.may_fail = true;
                count.add(own.map(|(_, own)| own));
            }
            let first = op.links as usize;
            for link in &notes.unrolled.links[first..first + statement.uses.len()] {
                let used = batch.group_of(worker, *link as usize);
                if used.map(|(group, _)| group) != own.map(|(group, _)| group) {
                    count.add(used.map(|(_, used)| used));
                    if let Some((_, own)) = own.filter(|(_, own)| own.role() == Role::Free) {
                        own.set_role(Role::Follower);
                    }
                }
            }
        }
        for number in ops.filter(|_| count.may_fail) {
            if let Some((_, group)) = batch.group_of(worker, number)
                && group.writes
                && group.role() == Role::Free
            {
                group.set_role(Role::Follower);
            }
        }
        count
    }

    /// A group is an input of the decision.
    fn add(&mut self, group: Option<&Group>) {
        let is_new = |group: &&Group| matches!(group.role(), Role::Free | Role::Follower);
        if let Some(group) = group.filter(is_new) {
            group.set_role(if group.writes { Role::Member } else { Role::Source });
            self.inputs += 1;
        }
    }
}

/// The chain of a group, by the numbers of both.
fn chain_of(group: u32, of: &Group) -> u32 {
    let (shard, _) = super::notes::local(group);
    super::notes::global(shard, of.chain)
}
