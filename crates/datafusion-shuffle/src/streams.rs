//! The streams of a link, at the writer.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use datafusion::execution::SendableRecordBatchStream;
use futures::{FutureExt, StreamExt};
use millstream_fabric::Fabric;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::error::Error;
use crate::mover::lock;
use crate::outbound::{Exit, Outbound, Outgoing};

/// The streams of a link that are open, or about to be.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// All tasks of the link; dropped, they end.
    tasks: JoinSet<()>,
    /// Streams that are about to be opened, and the closed ones among them.
    opening: Vec<Range<u32>>,
    closed: Vec<u32>,
    /// Credit of each stream, and the task that sends the stream; `None`: a broadcast's flow does.
    open: HashMap<u32, (watch::Sender<u64>, Option<AbortHandle>)>,
    ended: bool,
}

impl Streams {
    /// Starts what opens a range of streams.
    pub(crate) fn begin(
        &self,
        range: Range<u32>,
        opening: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut open = lock(&self.0);
        while open.tasks.try_join_next().is_some() {}
        open.opening.push(range);
        open.tasks.spawn(opening);
    }

    /// Streams are there: starts what sends them.
    pub(crate) fn add<F: Fabric>(
        self: &Arc<Self>,
        link: &Arc<Outbound<F>>,
        first: u32,
        batches: Vec<SendableRecordBatchStream>,
    ) {
        let mut open = lock(&self.0);
        if open.ended {
            return;
        }
        open.opening.retain(|range| range.start != first);
        for (number, batches) in (first..).zip(batches) {
            if let Some(at) = open.closed.iter().position(|closed| *closed == number) {
                open.closed.swap_remove(at);
                continue;
            }
            let (credit, granted) = watch::channel(0);
            let (outgoing, streams) = (link.stream(number), self.clone());
            let task = open.tasks.spawn(async move {
                send(outgoing, batches, vec![granted]).await;
                streams.forget(number);
            });
            open.open.insert(number, (credit, Some(task)));
        }
    }

    /// Streams come through the flow of a broadcast: their credit.
    pub(crate) fn follow(&self, first: u32, count: usize) -> Vec<watch::Receiver<u64>> {
        let mut open = lock(&self.0);
        open.opening.retain(|range| range.start != first);
        let follow = |number| {
            let (credit, granted) = watch::channel(0);
            if let Some(at) = open.closed.iter().position(|closed| *closed == number) {
                open.closed.swap_remove(at);
            } else if !open.ended {
                open.open.insert(number, (credit, None));
            }
            granted
        };
        (first..).take(count).map(follow).collect()
    }

    /// A range of streams cannot be opened.
    pub(crate) fn refuse(&self, first: u32) {
        let mut open = lock(&self.0);
        let refused = open.opening.iter().position(|range| range.start == first);
        if let Some(at) = refused {
            let range = open.opening.swap_remove(at);
            open.closed.retain(|closed| !range.contains(closed));
        }
    }

    pub(crate) fn grant(&self, stream: u32, bytes: u64) {
        if let Some((credit, _)) = lock(&self.0).open.get(&stream) {
            credit.send_if_modified(|granted| {
                let more = bytes > *granted;
                *granted = bytes.max(*granted);
                more
            });
        }
    }

    pub(crate) fn close(&self, stream: u32) {
        let mut open = lock(&self.0);
        if let Some((_, task)) = open.open.remove(&stream) {
            task.iter().for_each(AbortHandle::abort);
        } else if open.opening.iter().any(|range| range.contains(&stream)) {
            open.closed.push(stream);
        }
    }

    fn forget(&self, stream: u32) {
        lock(&self.0).open.remove(&stream);
    }

    pub(crate) fn end(&self) {
        let mut open = lock(&self.0);
        open.ended = true;
        open.tasks.abort_all();
        open.open.clear();
    }
}

/// Sends a stream to its end, to all readers. An error of the plan, or its panic, ends the stream,
/// too; an error of the link has broken that, so the reader knows.
pub(crate) async fn send<E: Exit>(
    mut outgoing: Outgoing<E>,
    mut batches: SendableRecordBatchStream,
    mut granted: Vec<watch::Receiver<u64>>,
) {
    let error = loop {
        // The slowest reader decides. A reader that has closed the stream does not count.
        let (sent, mut at) = (outgoing.sent, 0);
        while let Some(credit) = granted.get_mut(at) {
            let is_open = credit.wait_for(|granted| *granted > sent).await.is_ok();
            match is_open {
                true => at += 1,
                false => drop(granted.swap_remove(at)),
            }
        }
        if granted.is_empty() {
            return;
        }
        match AssertUnwindSafe(batches.next()).catch_unwind().await {
            Ok(Some(Ok(batch))) => match outgoing.batch(&batch).await {
                Ok(()) => {}
                Err(Error::Batch(reason)) => break Some(reason),
                Err(_) => return,
            },
            Ok(Some(Err(error))) => break Some(error.to_string()),
            Ok(None) => break None,
            Err(_) => break Some("its plan panicked; the worker's standard error says why".into()),
        }
    };
    // What the plan holds is let go before the reader knows of the end.
    drop(batches);
    drop(outgoing.end(error).await);
}
