//! Histories of operations, and the search for a linearization.
//!
//! A history is linearizable if each operation can be given a moment between its call and its
//! answer, such that a store without replicas gives the same answers. Keys are independent, so each
//! key is searched alone (Herlihy and Wing, 1990).

use std::collections::{HashMap, HashSet};

/// An operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) key: u64,
    pub(crate) write: bool,
    /// The value written or read. A key's first value is 0.
    pub(crate) value: u64,
    pub(crate) called: u64,
    /// `None`: there was no answer. A write may have been done nevertheless.
    pub(crate) answered: Option<u64>,
}

/// A key whose operations cannot be put in order, if there is one.
pub(crate) fn contradiction(history: &[Operation]) -> Option<u64> {
    let mut by_key: HashMap<u64, Vec<Operation>> = HashMap::new();
    for operation in history {
        // A read without an answer says nothing.
        if operation.write || operation.answered.is_some() {
            by_key.entry(operation.key).or_default().push(*operation);
        }
    }
    let mut keys: Vec<_> = by_key.into_iter().collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    keys.into_iter().find(|(_, operations)| !is_linearizable(operations)).map(|(key, _)| key)
}

/// Searches all orders of at most 64 operations on one key.
fn is_linearizable(operations: &[Operation]) -> bool {
    assert!(operations.len() <= 64, "too many operations on one key");
    let answered = |at: usize| operations[at].answered.unwrap_or(u64::MAX);
    let all = 0..operations.len();
    let needed: u64 =
        all.clone().filter(|at| operations[*at].answered.is_some()).map(|at| 1 << at).sum();
    let mut seen = HashSet::new();
    let mut open = vec![(0_u64, 0_u64)];
    while let Some((done, value)) = open.pop() {
        if done & needed == needed {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let left = || all.clone().filter(|at| done >> at & 1 == 0);
        // An operation can be next if no other has been answered before its call.
        let first = left().map(answered).min().unwrap_or(u64::MAX);
        for at in left().filter(|at| operations[*at].called <= first) {
            let operation = operations[at];
            if operation.write {
                open.push((done | 1 << at, operation.value));
            } else if operation.value == value {
                open.push((done | 1 << at, value));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(write: bool, value: u64, called: u64, answered: Option<u64>) -> Operation {
        Operation { key: 1, write, value, called, answered }
    }

    #[test]
    fn reads_see_the_last_write() {
        let write = operation(true, 7, 0, Some(2));
        assert_eq!(contradiction(&[write, operation(false, 7, 3, Some(4))]), None);
        assert_eq!(contradiction(&[write, operation(false, 0, 3, Some(4))]), Some(1), "stale");
        assert_eq!(contradiction(&[write, operation(false, 9, 3, Some(4))]), Some(1), "invented");
        // At the same time: both answers are right.
        assert_eq!(contradiction(&[write, operation(false, 0, 1, Some(4))]), None);
    }

    #[test]
    fn a_value_that_was_overwritten_does_not_come_back() {
        let history = [
            operation(true, 1, 0, Some(1)),
            operation(true, 2, 2, Some(3)),
            operation(false, 2, 4, Some(5)),
            operation(false, 1, 6, Some(7)),
        ];
        assert_eq!(contradiction(&history), Some(1));
        assert_eq!(contradiction(&history[..3]), None);
    }

    #[test]
    fn a_write_without_an_answer_may_be_done_or_not() {
        let open = operation(true, 5, 0, None);
        for value in [0, 5] {
            assert_eq!(contradiction(&[open, operation(false, value, 3, Some(4))]), None);
        }
        let back = [open, operation(false, 5, 3, Some(4)), operation(false, 0, 5, Some(6))];
        assert_eq!(contradiction(&back), Some(1), "done and undone");
    }
}
