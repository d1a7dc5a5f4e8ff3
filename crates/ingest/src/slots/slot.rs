//! A slot of a producer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use millstream_contract::table::Chunk;

use crate::merged::Merged;
use crate::ring::Ring;
use crate::sent::{Queued, Stream};

/// Most rows of merged batches.
const MERGED_ROWS: u64 = 16 << 10;

#[derive(Default)]
pub(super) struct Slot {
    pub(super) producer: Option<Arc<Stream>>,
    /// The producer counts ([`Sender::begin`]); and whether its batches come over a ring.
    pub(super) has_begun: bool,
    pub(super) has_ring: bool,
    /// Waiting batches, and their bytes.
    pub(super) waiting: VecDeque<Queued>,
    pub(super) bytes: u64,
    /// Whom to wake when something comes, and when there is room.
    pub(super) reader: Option<Waker>,
    pub(super) sender: Option<Waker>,
    /// The ring of the producer, until the slot's reader takes it.
    pub(super) ring: Option<Box<dyn Ring>>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("producer", &self.producer).finish_non_exhaustive()
    }
}

impl Slot {
    /// The next chunk. Short batches are merged into one chunk.
    pub(super) fn take_chunk(&mut self) -> Option<Box<dyn Chunk>> {
        let (mut sent, mut rows) = (Vec::new(), 0);
        while let Some(queued) = self.waiting.front_mut() {
            rows += queued.rows();
            if !sent.is_empty() && (queued.rows() == 0 || rows > MERGED_ROWS) {
                break;
            }
            let merges = queued.merges();
            let (one, is_last) = queued.next();
            sent.push(one);
            if is_last && let Some(queued) = self.waiting.pop_front() {
                self.bytes -= queued.bytes;
            }
            if !merges || !is_last {
                break;
            }
        }
        match sent.len() {
            0 => None,
            1 => sent.pop().map(|one| Box::new(one) as Box<dyn Chunk>),
            _ => Some(Box::new(Merged(sent))),
        }
    }

    pub(super) fn queue(&mut self, queued: Queued) {
        self.bytes += queued.bytes;
        self.waiting.push_back(queued);
    }
}
