//! Pushing many tuples at once, from memory or in place.

use millstream_fabric::Fabric;

use crate::error::{Error, Result};
use crate::source::rings::RingSource;
use crate::source::router::Router;
use crate::thread::wait;

impl<F: Fabric> RingSource<F> {
    pub(crate) fn push_all_to(&mut self, target: usize, tuples: &[u8]) -> Result<()> {
        if !tuples.len().is_multiple_of(self.tuple_bytes) {
            return Err(self.bad_length(tuples.len()));
        }
        self.check_target(target)?;
        let mut rest = tuples;
        while !rest.is_empty() {
            let mut pushed = self.put_some(target, rest)?;
            if pushed == 0 {
                wait(self.polls(), || {
                    pushed = self.put_some(target, rest)?;
                    Ok::<bool, Error>(pushed > 0)
                })?;
            }
            rest = &rest[pushed..];
        }
        Ok(())
    }

    pub(crate) fn try_push_with(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool> {
        if !matches!(self.router, Router::All | Router::One) {
            let what = "a segment is filled in place where all tuples have the same targets: push";
            return Err(Error::Route { what });
        }
        if bytes == 0 || !bytes.is_multiple_of(self.tuple_bytes) {
            return Err(self.bad_length(bytes));
        }
        if bytes > self.shape.payload {
            return Err(Error::Route { what: "the tuples take more than a segment: push" });
        }
        if self.outboxes[0].has_tuples() {
            self.seal(0)?;
        }
        if !self.outboxes[0].is_open() && !self.open_for_push(0)? {
            return Ok(false);
        }
        self.outboxes[0].fill_with(bytes, fill);
        self.seal(0)?;
        Ok(true)
    }

    /// Copies as many tuples as fit into the open segment of an outbox. Returns their bytes, 0 if
    /// there is no segment.
    fn put_some(&mut self, at: usize, tuples: &[u8]) -> Result<usize> {
        if !self.outboxes[at].has_room(self.tuple_bytes) && !self.open_for_push(at)? {
            return Ok(0);
        }
        let outbox = &mut self.outboxes[at];
        let bytes = tuples.len().min(outbox.room() / self.tuple_bytes * self.tuple_bytes);
        outbox.copy(&tuples[..bytes]);
        if !outbox.has_room(self.tuple_bytes) {
            self.seal(at)?;
        }
        Ok(bytes)
    }
}
