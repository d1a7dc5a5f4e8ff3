//! Requests in flight in the simulation.

use super::world::{Buffer, Bytes};
use crate::memory::RemoteAddress;
use crate::work::{Kind, Operation, WorkRequest};

pub(super) struct Work {
    pub(super) id: u64,
    pub(super) signalled: bool,
    pub(super) kind: Kind,
    pub(super) bytes: u32,
    pub(super) action: Action,
    pub(super) arrived: bool,
}

pub(super) enum Action {
    Write { bytes: Bytes, to: RemoteAddress, immediate: Option<u32> },
    Read { into: Buffer, from: RemoteAddress, data: Vec<u8> },
    Send { bytes: Bytes, immediate: Option<u32> },
    Atomic { into: Buffer, at: RemoteAddress, change: Change, old: u64 },
}

#[derive(Clone, Copy)]
pub(super) enum Change {
    Add(u64),
    Swap { expected: u64, new: u64 },
}

impl Work {
    pub(super) fn new(request: &WorkRequest<'_>) -> Work {
        let mut sent = 0;
        let action = match &request.operation {
            Operation::Write { source, to, immediate } => {
                sent = source.bytes();
                Action::Write { bytes: Bytes::new(source), to: *to, immediate: *immediate }
            }
            Operation::Send { source, immediate } => {
                sent = source.bytes();
                Action::Send { bytes: Bytes::new(source), immediate: *immediate }
            }
            Operation::Read { into, from } => {
                Action::Read { into: Buffer::new(into), from: *from, data: Vec::new() }
            }
            Operation::FetchAdd { into, at, add } => Action::Atomic {
                into: Buffer::new(into),
                at: *at,
                change: Change::Add(*add),
                old: 0,
            },
            Operation::CompareSwap { into, at, expected, new } => Action::Atomic {
                into: Buffer::new(into),
                at: *at,
                change: Change::Swap { expected: *expected, new: *new },
                old: 0,
            },
        };
        Work {
            id: request.id,
            signalled: request.signalled,
            kind: request.operation.kind(),
            bytes: u32::try_from(sent).unwrap_or(u32::MAX),
            action,
            arrived: false,
        }
    }
}

impl Change {
    pub(super) fn apply(self, word: &std::sync::atomic::AtomicU64) -> u64 {
        use std::sync::atomic::Ordering::SeqCst;
        match self {
            Change::Add(add) => word.fetch_add(add, SeqCst),
            Change::Swap { expected, new } => {
                word.compare_exchange(expected, new, SeqCst, SeqCst).unwrap_or_else(|old| old)
            }
        }
    }
}
