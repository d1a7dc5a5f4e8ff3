//! Batches of a partition, for the reader.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use futures::Stream;
use millstream_fabric::Fabric;

use crate::error::{Error, Result};
use crate::image::Parts;
use crate::inbound::Inbound;
use crate::inbox::{Inbox, Item};
use crate::mover::Member;

/// A stream of batches. The writer begins when it is polled for the first time, and is told when it
/// is dropped before its end.
pub(crate) struct Incoming<F: Fabric> {
    link: Arc<Inbound<F>>,
    inbox: Arc<Inbox>,
    stream: u32,
    schema: SchemaRef,
    /// Bytes that the reader has taken, and that the writer may send, since the beginning.
    taken: u64,
    granted: u64,
    ended: bool,
}

impl<F: Fabric> Incoming<F> {
    pub(crate) fn new(
        link: Arc<Inbound<F>>,
        inbox: Arc<Inbox>,
        stream: u32,
        schema: SchemaRef,
    ) -> Incoming<F> {
        Incoming { link, inbox, stream, schema, taken: 0, granted: 0, ended: false }
    }

    /// Lets the writer send a window's bytes ahead, and says so for each quarter of it.
    fn grant(&mut self) {
        let window = self.link.common.config.window_bytes;
        let granted = self.taken + window;
        if self.granted == 0 || granted - self.granted >= window.div_ceil(4) {
            self.granted = granted;
            self.link.grant(self.stream, granted);
        }
    }

    fn item(&mut self, item: Item) -> Option<Result<RecordBatch>> {
        let bytes = item.bytes();
        match item {
            Item::Batch(frame, parts) => {
                self.taken += bytes;
                self.grant();
                let common = &self.link.common;
                let parts = Parts {
                    parts: &parts,
                    room: common.config.room(),
                    kind: frame.kind,
                    rows: frame.rows,
                    table_bytes: frame.table_bytes,
                };
                Some(parts.batch(&self.schema).map_err(Error::from).map(|(batch, joined)| {
                    common.count(|counters| {
                        counters.joined_bytes += joined;
                        counters.batches_received += 1;
                    });
                    batch
                }))
            }
            Item::End => {
                self.end();
                None
            }
            Item::Failed(reason) => {
                self.end();
                Some(Err(Error::Worker { worker: self.link.worker.clone(), reason }))
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.link.forget(self.stream);
    }
}

impl<F: Fabric> Stream for Incoming<F> {
    type Item = std::result::Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if this.granted == 0 {
            this.grant();
        }
        let mut item = this.inbox.poll(context);
        if item.is_pending() {
            // It may be there, and the thread that looks after links asleep.
            this.link.turn();
            item = this.inbox.poll(context);
        }
        let item = match ready!(item) {
            Ok(item) => this.item(item),
            Err(error) => {
                this.end();
                Some(Err(error))
            }
        };
        Poll::Ready(item.map(|item| item.map_err(DataFusionError::from)))
    }
}

impl<F: Fabric> Drop for Incoming<F> {
    fn drop(&mut self) {
        if !self.ended {
            self.link.close(self.stream);
        }
    }
}
