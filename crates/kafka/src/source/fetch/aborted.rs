//! Which batches count where transactions were aborted.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::AbortedTransaction;

use crate::client::batch::{Flaw, Head, is_abort};

/// Aborted transactions, while batches go by.
pub(super) struct Aborted {
    /// By first offset; those still to come from the end.
    coming: Vec<(i64, i64)>,
    producers: BTreeSet<i64>,
    committed_only: bool,
}

impl Aborted {
    pub(super) fn new(listed: Option<&[AbortedTransaction]>, committed_only: bool) -> Aborted {
        let listed = listed.unwrap_or_default().iter();
        let mut coming: Vec<(i64, i64)> =
            listed.map(|aborted| (aborted.first_offset, aborted.producer_id.0)).collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Aborted { coming, producers: BTreeSet::new(), committed_only }
    }

    /// Whether the records of the next batch count.
    pub(super) fn counts(&mut self, head: &Head, batch: &Bytes) -> Result<bool, Flaw> {
        if self.committed_only {
            while self.coming.last().is_some_and(|(first, _)| *first < head.end()) {
                self.producers.extend(self.coming.pop().map(|(_, producer)| producer));
            }
        }
        if head.is_control() {
            if is_abort(head, batch)? {
                self.producers.remove(&head.producer_id);
            }
            return Ok(false);
        }
        Ok(!head.is_transactional() || !self.producers.contains(&head.producer_id))
    }
}
