//! Completion queues of an RDMA device: polling and waiting.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;
use std::time::Duration;

use millstream_verbs as ibv;

use super::{Device, Part, os};
use crate::contract::{CompletionQueue, Events};
use crate::error::{Error, NO_EVENTS, Result};
use crate::event_file::EventFile;
use crate::queue::check_limit;
use crate::work::{Completion, Kind, Status};

/// A completion channel, the device's events, and a file for who wakes.
pub struct VerbsEvents {
    pub(super) device: Arc<Device>,
    channel: Arc<ibv::CompletionChannel>,
    woken: Arc<EventFile>,
}

impl VerbsEvents {
    pub(super) fn new(device: &Arc<Device>) -> Result<VerbsEvents> {
        let channel = ibv::CompletionChannel::new(&device.context).map_err(os)?;
        Ok(VerbsEvents { device: device.clone(), channel, woken: Arc::new(EventFile::new()?) })
    }
}

impl Events for VerbsEvents {
    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let all = [self.channel.as_fd(), self.device.context.as_fd(), self.woken.as_fd()];
        if !ibv::wait_readable(all, timeout).map_err(os)? {
            return Ok(false);
        }
        self.woken.hear();
        while self.channel.wait(Duration::ZERO).map_err(os)?.is_some() {}
        self.device.take_events()?;
        Ok(true)
    }

    fn waker(&self) -> Waker {
        self.woken.clone().into()
    }
}

/// A completion queue.
pub struct VerbsCompletionQueue {
    pub(super) device: Arc<Device>,
    pub(super) queue: Arc<ibv::CompletionQueue>,
    pub(super) overflowed: Arc<AtomicBool>,
    has_events: bool,
    empty_polls: u32,
}

/// Completions taken at a time.
const BATCH: usize = 16;

/// After so many polls that found nothing the device's events are looked at: a system call.
const EMPTY_POLLS_PER_LOOK: u32 = 4096;

impl VerbsCompletionQueue {
    pub(super) fn new(
        device: &Arc<Device>,
        entries: u32,
        events: Option<&VerbsEvents>,
    ) -> Result<VerbsCompletionQueue> {
        check_limit("completion queue entries", entries, device.limits.completion_entries)?;
        if events.is_some_and(|events| !Arc::ptr_eq(&events.device, device)) {
            return Err(Error::ForeignObject { what: "events" });
        }
        let tag = device.failures.tag();
        let overflowed = device.failures.add(Part::Queue(tag));
        let channel = events.map(|events| &events.channel);
        let queue = ibv::CompletionQueue::new(&device.context, entries.max(1), channel, tag);
        Ok(VerbsCompletionQueue {
            device: device.clone(),
            queue: queue.map_err(os)?,
            overflowed,
            has_events: events.is_some(),
            empty_polls: 0,
        })
    }

    #[cold]
    fn look_for_overflow(&mut self) -> Result<()> {
        self.empty_polls = 0;
        self.device.take_events()?;
        self.check_overflow()
    }

    fn check_overflow(&self) -> Result<()> {
        match self.overflowed.load(Ordering::Relaxed) {
            true => Err(Error::CompletionOverflow),
            false => Ok(()),
        }
    }
}

impl CompletionQueue for VerbsCompletionQueue {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize> {
        self.check_overflow()?;
        let mut found = [ibv::Completion::default(); BATCH];
        let room = out.len().min(BATCH);
        let count = self.queue.poll(&mut found[..room]).map_err(os)?;
        if count == 0 {
            self.empty_polls += 1;
            if self.empty_polls == EMPTY_POLLS_PER_LOOK {
                self.look_for_overflow()?;
            }
            return Ok(0);
        }
        self.empty_polls = 0;
        // What the device placed before these completions is read after them.
        fence(Ordering::Acquire);
        for (to, from) in out.iter_mut().zip(&found[..count]) {
            *to = converted(from);
            if !from.status().is_success() {
                self.device.failures.mark(Part::Pair(from.queue_pair()));
            }
        }
        Ok(count)
    }

    fn arm(&mut self) -> Result<()> {
        if !self.has_events {
            return Err(NO_EVENTS);
        }
        self.queue.request_event().map_err(os)
    }
}

fn converted(from: &ibv::Completion) -> Completion {
    let to = Completion {
        id: from.id(),
        status: status(from.status()),
        queue_pair: from.queue_pair(),
        ..Completion::default()
    };
    if !from.status().is_success() {
        return to;
    }
    let to = Completion { kind: kind(from.operation()), ..to };
    if !from.is_receive() {
        return to;
    }
    Completion {
        bytes: from.bytes(),
        immediate: from.immediate(),
        source_queue_pair: from.source_queue_pair(),
        ..to
    }
}

fn kind(operation: ibv::Operation) -> Kind {
    match operation {
        ibv::Operation::Send => Kind::Send,
        ibv::Operation::Read => Kind::Read,
        ibv::Operation::CompareAndSwap => Kind::CompareSwap,
        ibv::Operation::FetchAndAdd => Kind::FetchAdd,
        ibv::Operation::Receive => Kind::Receive,
        ibv::Operation::ReceiveWriteWithImmediate => Kind::ReceiveWrite,
        // Nothing else is posted.
        ibv::Operation::Write | ibv::Operation::Other(_) => Kind::Write,
    }
}

fn status(status: ibv::Status) -> Status {
    match status {
        ibv::Status::SUCCESS => Status::Success,
        ibv::Status::LOCAL_LENGTH_ERROR => Status::Length,
        ibv::Status::LOCAL_PROTECTION_ERROR => Status::LocalProtection,
        ibv::Status::FLUSHED => Status::Flushed,
        ibv::Status::REMOTE_INVALID_REQUEST => Status::InvalidRequest,
        ibv::Status::REMOTE_ACCESS_ERROR => Status::RemoteAccess,
        ibv::Status::REMOTE_OPERATION_ERROR => Status::RemoteOperation,
        ibv::Status::RETRIES_EXCEEDED => Status::PeerLost,
        ibv::Status::RECEIVER_NOT_READY => Status::ReceiverNotReady,
        ibv::Status(other) => Status::Other(other),
    }
}
