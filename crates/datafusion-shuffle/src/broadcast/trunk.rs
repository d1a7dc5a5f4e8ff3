//! The writing end of a broadcast's flow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_dfi::{Registry, RegistryService, Source, SourceSetup};
use millstream_fabric::Fabric;
use tokio::sync::{Notify, SetOnce};

use super::{LINE, WRITER, flow};
use crate::common::{Common, Registered};
use crate::error::{Error, Result};
use crate::frame::{Frame, HEADER_BYTES};
use crate::image::Part;
use crate::mover::{Member, Turn, lock};
use crate::outbound::Exit;

/// A task that waits for a segment looks again after this time, though it should be woken before.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A flow that readers can join until this is dropped.
pub(crate) struct Published {
    registry: Arc<RegistryService>,
    flow: String,
}

impl Published {
    /// Declares the flow, for so many readers.
    pub(crate) fn new<F: Fabric>(
        exchange: (&F, &Common),
        registry: Arc<RegistryService>,
        (name, readers): (String, u32),
    ) -> Result<Published> {
        flow(exchange.0, exchange.1, &name, readers).publish(registry.local())?;
        Ok(Published { registry, flow: name })
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        drop(self.registry.local().withdraw(&self.flow));
    }
}

/// The writing end, to all readers of a group.
pub(crate) struct Trunk<F: Fabric> {
    common: Arc<Common>,
    source: Mutex<Source<F>>,
    /// Number of tasks that wait for a segment, and their waker.
    waiting: AtomicUsize,
    freed: Notify,
    /// Streams that have not ended.
    streams: AtomicUsize,
    failed: SetOnce<Error>,
    _registered: Registered,
    _published: Published,
}

impl<F: Fabric> Trunk<F> {
    /// Joins the flow, and waits for all readers. Blocks. Readers may still ask the registry when
    /// this returns.
    pub(crate) fn connect(
        fabric: &F,
        common: Arc<Common>,
        published: Published,
        streams: usize,
    ) -> Result<Trunk<F>> {
        let (registry, patience) = (published.registry.local(), common.config.patience);
        let setup = SourceSetup::join(fabric, registry, &published.flow, WRITER, patience)?;
        let source = setup.connect(registry, patience)?;
        let _registered = Registered::new(&common, source.counters().ring_bytes);
        let readers = source.targets() as u64;
        common.count(|counters| {
            counters.broadcasts += 1;
            counters.broadcast_readers += readers;
        });
        Ok(Trunk {
            common,
            source: Mutex::new(source),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            streams: AtomicUsize::new(streams),
            failed: SetOnce::new(),
            _registered,
            _published: published,
        })
    }

    fn fail(&self, error: Error) -> Error {
        // An earlier failure keeps its error.
        drop(self.failed.set(error.clone()));
        self.freed.notify_waiters();
        error
    }

    /// Writes a message into a segment of its own, unless there is none.
    fn try_put(&self, frame: &Frame, part: &Part<'_>) -> Result<bool> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        let bytes = HEADER_BYTES + part.bytes;
        let written = lock(&self.source).try_push_with(bytes.next_multiple_of(LINE), |segment| {
            let (header, room) = segment.split_at_mut(HEADER_BYTES);
            header.copy_from_slice(&frame.encode());
            for (at, bytes) in &part.pieces {
                room[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        });
        let written = written.map_err(|error| self.fail(error.into()))?;
        if written {
            self.common.count(|counters| {
                counters.messages_sent += 1;
                counters.bytes_sent += bytes as u64;
            });
        }
        Ok(written)
    }
}

impl<F: Fabric> Exit for Trunk<F> {
    fn common(&self) -> &Common {
        &self.common
    }

    async fn put(&self, _stream: u32, frame: &Frame, part: &Part<'_>) -> Result<()> {
        loop {
            if self.try_put(frame, part)? {
                return Ok(());
            }
            let freed = self.freed.notified();
            self.waiting.fetch_add(1, Ordering::AcqRel);
            self.common.bell.ring();
            let waited = tokio::time::timeout(LOOK_AGAIN, freed).await;
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            // Woken or not, it looks again.
            drop(waited);
        }
    }

    fn over(&self) {
        self.streams.fetch_sub(1, Ordering::AcqRel);
        self.common.bell.ring();
    }
}

impl<F: Fabric> Member for Trunk<F> {
    fn turn(&self) -> Turn {
        if self.failed.get().is_some() {
            return Turn::Gone;
        }
        let over = self.streams.load(Ordering::Acquire) == 0;
        let mut source = lock(&self.source);
        let turned = if over { source.try_close() } else { source.progress().map(|()| false) };
        drop(source);
        match turned {
            Ok(true) => Turn::Gone,
            Ok(false) => {
                if self.waiting.load(Ordering::Acquire) > 0 {
                    self.freed.notify_waiters();
                }
                Turn::Waiting
            }
            Err(error) => {
                self.fail(error.into());
                Turn::Gone
            }
        }
    }
}
