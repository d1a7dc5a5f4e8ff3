//! Outgoing messages to another process that are not part of a delta: credit, stamps, result rows.

use std::collections::VecDeque;

use millstream_flow::channel::Result;

use super::port::Outlet;
use super::wire::{Head, Kind, LAST, MORE};

/// Bytes of result rows that may wait here to be sent.
const QUEUED_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Postbox {
    outlet: Box<dyn Outlet>,
    queue: VecDeque<QueuedMessage>,
    queued_bytes: usize,
    /// Closed once the peer has announced that all outputs have enough rows, or that its stream
    /// ends.
    closed: bool,
}

struct QueuedMessage {
    head: Head,
    body: Vec<u8>,
    sent: usize,
}

impl Postbox {
    pub(crate) fn new(outlet: Box<dyn Outlet>) -> Postbox {
        Postbox { outlet, queue: VecDeque::new(), queued_bytes: 0, closed: false }
    }

    pub(crate) fn put(&mut self, head: Head, body: Vec<u8>) {
        if self.closed {
            return;
        }
        self.closed = head.kind == Kind::Enough && head.has(LAST);
        // Only the latest frontier counts.
        let tells = |kind| matches!(kind, Kind::Fired | Kind::Written | Kind::Awaited);
        let about = |head: &Head| (head.kind, head.id, head.output, head.count);
        if let Some(last) = self.queue.back_mut()
            && tells(head.kind)
            && about(&last.head) == about(&head)
            && last.sent == 0
        {
            last.head = head;
            return;
        }
        self.queued_bytes += body.len();
        self.queue.push_back(QueuedMessage { head, body, sent: 0 });
    }

    /// Whether result rows have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes > QUEUED_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what there is, as far as there is credit for slots. Returns whether anything was sent.
    pub(crate) fn pump(&mut self) -> Result<bool> {
        let mut some = false;
        let max = self.outlet.body_bytes();
        while let Some(message) = self.queue.front_mut() {
            let end = (message.sent + max).min(message.body.len());
            let more = if end < message.body.len() { MORE } else { 0 };
            let head = Head { flags: message.head.flags | more, ..message.head };
            if !self.outlet.try_send(&head, &message.body[message.sent..end])? {
                break;
            }
            (some, message.sent) = (true, end);
            if more == 0 {
                self.queued_bytes -= message.body.len();
                self.queue.pop_front();
            }
        }
        Ok(some)
    }

    /// One step of ending the stream in order. Whoever asks for something after that, such as to
    /// drain the job, is too late. Returns whether it has ended.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        self.closed = true;
        self.outlet.try_finish()
    }

    pub(crate) fn outlet(&mut self) -> &mut dyn Outlet {
        &mut *self.outlet
    }
}
