//! Reliable connections over shared memory.
//!
//! The thread that posts a request does the work at once, on the peer's mapped memory; the peer's
//! threads take no part. A request is kept only if it has to wait, for the peer to connect or to
//! post a receive. It is then done when its owner posts or polls again.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::Device;
use super::layout::{Control, SharedReceive, Taken, check_own};
use super::link::Link;
use super::peer::{Attempt, Peer, start_of};
use super::service::PairEntry;
use crate::contract::State;
use crate::error::{Error, Result};
use crate::kept::{KeptRequest, post_all};
use crate::keys::Need;
use crate::memory::{Access, Region, Registration, RemoteAddress, RemoteRegion};
use crate::place::place;
use crate::queue::{Member, Queue, lock};
use crate::soft::Connection;
use crate::work::{
    Completion, Kind, Operation, QueueSizes, Receive, Rejected, Source, Status, Timing,
    WorkRequest, check_source,
};

/// A connection, known to its owner, its completion queues, and the service.
pub struct ShmConnection {
    number: u32,
    /// Identity of this pair for peers.
    identity: u64,
    device: Arc<Device>,
    sizes: QueueSizes,
    timing: Timing,
    send_queue: Arc<Queue<ShmConnection>>,
    receive_queue: Arc<Queue<ShmConnection>>,
    control: Control,
    /// Send queue entries that no polled completion has freed.
    used: AtomicU32,
    /// Receives whose completion was polled.
    polled: AtomicU64,
    /// The peer's process is gone.
    peer_gone: AtomicBool,
    /// Some work waits.
    waiting: AtomicBool,
    /// The connection has failed, and who posted may not know.
    failed: AtomicBool,
    engine: Mutex<Engine>,
}

/// State under the lock, which is hardly ever contended.
struct Engine {
    state: State,
    peer: Option<Peer>,
    /// Posted and not done yet, oldest first.
    pending: VecDeque<KeptRequest>,
    /// Entries that the next completion frees besides its own.
    unsignalled: u32,
    /// Posted receives in order, as this side knows them.
    receives: VecDeque<(u64, u64)>,
    /// Receives posted since the beginning.
    posted: u64,
    /// Since when the oldest pending work waits.
    waits_since: Option<Instant>,
}

impl Member for ShmConnection {
    fn number(&self) -> u32 {
        self.number
    }

    // One or two loads if nothing can be done.
    #[inline]
    fn poll(&self) {
        if self.waiting.load(Ordering::Relaxed) || self.news() {
            self.look_after(&mut lock(&self.engine));
        }
    }

    // One or two loads if there are no receives.
    #[inline]
    fn poll_receives(&self, queue: &Queue<ShmConnection>, out: &mut [Completion]) -> usize {
        if !std::ptr::eq(&raw const *self.receive_queue, queue) {
            return 0;
        }
        let failed = self.failed.load(Ordering::Acquire);
        if self.control.taken() == self.polled.load(Ordering::Relaxed) && !failed {
            return 0;
        }
        let mut engine = lock(&self.engine);
        let mut count = 0;
        while count < out.len()
            && let Some(completion) = self.next_receive(&mut engine)
        {
            out[count] = completion;
            count += 1;
        }
        count
    }

    fn free(&self, entries: u32) {
        self.used.fetch_sub(entries, Ordering::AcqRel);
    }

    fn end(&self) {
        self.fail(&mut lock(&self.engine), Status::Flushed);
    }
}

impl Connection for ShmConnection {
    /// A mapping of its own of a peer's region. The connection maps it too: what is posted there
    /// later does not wait for the peer's service, which may be stopped by then.
    fn window(&self, remote: &RemoteRegion) -> Result<Option<Region>> {
        let mut engine = lock(&self.engine);
        let Some(peer) = &mut engine.peer else { return Err(Error::NotConnected) };
        peer.map(remote.key);
        let Some(region) = peer.link.region(remote.key)? else { return Ok(None) };
        let Some(start) =
            region.resolve(remote.address, remote.bytes, Need::Write).and_then(NonNull::new)
        else {
            return Ok(None);
        };
        let registration = Registration {
            start,
            bytes: remote.bytes as usize,
            access: Access::LOCAL,
            device: self.device.number,
            local_key: 0,
            remote_key: 0,
            owner: Box::new(region),
        };
        // SAFETY: the owner keeps the mapping, inside of which the range was found to lie.
        Ok(Some(unsafe { Region::new(registration) }))
    }

    fn post(&self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected> {
        let mut engine = lock(&self.engine);
        self.look_after(&mut engine);
        let mut ready = self.is_ready(&mut engine);
        post_all(requests, |request| match &request.operation {
            Operation::Write { source, to, immediate: None } if ready => {
                self.write(&mut engine, request, source, *to)
            }
            _ => {
                let result = self.post_one(&mut engine, request);
                // The request may have to wait; so do requests behind it then.
                ready = self.is_ready(&mut engine);
                result
            }
        })
    }

    fn post_receives(&self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        let mut engine = lock(&self.engine);
        self.look_after(&mut engine);
        post_all(receives, |receive| self.post_one_receive(&mut engine, receive))
    }

    fn state(&self) -> State {
        let mut engine = lock(&self.engine);
        self.look_after(&mut engine);
        engine.state
    }
}

impl ShmConnection {
    pub(super) fn new(
        number: u32,
        device: &Arc<Device>,
        queues: (&Arc<Queue<ShmConnection>>, &Arc<Queue<ShmConnection>>),
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<(ShmConnection, PairEntry)> {
        let capacity = u64::from(sizes.receive.max(1)).next_power_of_two();
        let (file, control) = Control::new(capacity)?;
        let bell = queues.1.sleep.as_ref().map(|sleep| sleep.file.clone());
        let entry = PairEntry { control: file, capacity, bell };
        let engine = Engine {
            state: State::Fresh,
            peer: None,
            pending: VecDeque::with_capacity(sizes.send as usize),
            unsignalled: 0,
            receives: VecDeque::with_capacity(sizes.receive as usize),
            posted: 0,
            waits_since: None,
        };
        let shared = ShmConnection {
            number,
            identity: device.identity(number),
            device: device.clone(),
            sizes,
            timing,
            send_queue: queues.0.clone(),
            receive_queue: queues.1.clone(),
            control,
            used: AtomicU32::new(0),
            polled: AtomicU64::new(0),
            peer_gone: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            engine: Mutex::new(engine),
        };
        Ok((shared, entry))
    }

    pub(super) fn connect(
        self: &Arc<Self>,
        link: Arc<Link>,
        identity: u64,
        number: u32,
    ) -> Result<()> {
        let mut engine = lock(&self.engine);
        match engine.state {
            State::Fresh => {}
            State::Connected => return Err(Error::AlreadyConnected),
            State::Failed => return Err(Error::Failed),
        }
        engine.peer = Some(Peer::new(link.clone(), number)?);
        engine.state = State::Connected;
        self.control.connect(identity);
        drop(engine);
        link.watch(self);
        Ok(())
    }

    /// Posts one request; `engine` is this pair's.
    fn post_one(&self, engine: &mut Engine, request: &WorkRequest<'_>) -> Result<()> {
        match engine.state {
            State::Connected => {}
            State::Fresh => return Err(Error::NotConnected),
            State::Failed => return Err(Error::Failed),
        }
        request.operation.check(self.device.number, &self.device.limits)?;
        if let Operation::Read { into, .. }
        | Operation::FetchAdd { into, .. }
        | Operation::CompareSwap { into, .. } = &request.operation
        {
            check_own(into)?;
        }
        let used = self.used.load(Ordering::Acquire);
        if used >= self.sizes.send {
            return Err(Error::QueueFull);
        }
        self.used.fetch_add(1, Ordering::AcqRel);
        if !engine.pending.is_empty() {
            engine.pending.push_back(KeptRequest::new(request));
            return Ok(());
        }
        match self.attempt(engine, &request.operation) {
            Attempt::Done => {
                self.finish(engine, request.id, request.signalled, request.operation.kind());
            }
            Attempt::Failed(status) => {
                let kind = request.operation.kind();
                self.complete(engine, request.id, kind, status);
                self.fail(engine, Status::Flushed);
            }
            Attempt::NotConnected | Attempt::NotReady => {
                engine.pending.push_back(KeptRequest::new(request));
                engine.waits_since = Some(Instant::now());
                self.set_waiting(true);
            }
        }
        Ok(())
    }

    /// Whether plain writes can be done at once.
    #[inline]
    fn is_ready(&self, engine: &mut Engine) -> bool {
        engine.state == State::Connected
            && engine.pending.is_empty()
            && engine
                .peer
                .as_ref()
                .is_some_and(|peer| peer.control.connected_to(self.identity) == Some(true))
    }

    /// Fast path of `post_one`: a plain write to a peer that is ready.
    #[inline]
    fn write(
        &self,
        engine: &mut Engine,
        request: &WorkRequest<'_>,
        source: &Source<'_>,
        to: RemoteAddress,
    ) -> Result<()> {
        if engine.state != State::Connected {
            return Err(Error::Failed);
        }
        check_source(source, self.device.number, &self.device.limits)?;
        if self.used.load(Ordering::Acquire) >= self.sizes.send {
            return Err(Error::QueueFull);
        }
        self.used.fetch_add(1, Ordering::AcqRel);
        let bytes = source.bytes();
        let peer = engine.peer.as_mut();
        match peer.and_then(|peer| peer.resolve(to, bytes as u64, Need::Write)) {
            Some(start) => {
                // SAFETY: the source was checked; the target is mapped and has the room.
                unsafe { place(start, start_of(source), bytes) }
                self.finish(engine, request.id, request.signalled, Kind::Write);
            }
            None => {
                self.complete(engine, request.id, Kind::Write, Status::RemoteAccess);
                self.fail(engine, Status::Flushed);
            }
        }
        Ok(())
    }

    fn post_one_receive(&self, engine: &mut Engine, receive: &Receive<'_>) -> Result<()> {
        if engine.state == State::Failed {
            return Err(Error::Failed);
        }
        let shared = SharedReceive::new(receive, self.device.number)?;
        if engine.receives.len() >= self.sizes.receive as usize {
            return Err(Error::QueueFull);
        }
        engine.receives.push_back((receive.id, shared.bytes));
        self.control.post(engine.posted, shared);
        engine.posted += 1;
        Ok(())
    }

    #[inline]
    fn attempt(&self, engine: &mut Engine, operation: &Operation<'_>) -> Attempt {
        match engine.peer.as_mut() {
            Some(peer) => peer.attempt(self.identity, operation),
            None => Attempt::NotConnected,
        }
    }

    /// Success of the oldest work.
    #[inline]
    fn finish(&self, engine: &mut Engine, id: u64, signalled: bool, kind: Kind) {
        if signalled {
            self.complete(engine, id, kind, Status::Success);
        } else {
            engine.unsignalled += 1;
        }
    }

    fn complete(&self, engine: &mut Engine, id: u64, kind: Kind, status: Status) {
        let frees = 1 + std::mem::take(&mut engine.unsignalled);
        let completion =
            Completion { id, status, kind, queue_pair: self.number, ..Completion::default() };
        self.send_queue.push(completion, frees);
    }

    fn set_waiting(&self, waiting: bool) {
        if self.waiting.swap(waiting, Ordering::AcqRel) != waiting {
            self.send_queue.count_waiting(waiting);
        }
    }

    /// Whether the peer has failed or gone and this side does not know it yet.
    #[inline]
    fn news(&self) -> bool {
        (self.control.told_failed() || self.peer_gone.load(Ordering::Acquire))
            && !self.failed.load(Ordering::Relaxed)
    }

    /// Notices a peer's end, and tries pending work again.
    #[inline]
    fn look_after(&self, engine: &mut Engine) {
        if self.news() && engine.state == State::Connected {
            self.fail(engine, Status::PeerLost);
        }
        if !engine.pending.is_empty() {
            self.try_pending(engine);
        }
    }

    fn try_pending(&self, engine: &mut Engine) {
        while engine.state == State::Connected {
            let Some(pending) = engine.pending.pop_front() else { break };
            let operation = pending.operation();
            let kind = operation.kind();
            let (patience, late) = match self.attempt(engine, &operation) {
                Attempt::Done => {
                    engine.waits_since = None;
                    self.finish(engine, pending.id, pending.signalled, kind);
                    continue;
                }
                Attempt::Failed(status) => {
                    self.complete(engine, pending.id, kind, status);
                    self.fail(engine, Status::Flushed);
                    break;
                }
                Attempt::NotConnected => (Some(self.timing.silence), Status::PeerLost),
                Attempt::NotReady => (self.timing.receiver_not_ready, Status::ReceiverNotReady),
            };
            let since = *engine.waits_since.get_or_insert_with(Instant::now);
            if patience.is_some_and(|patience: Duration| since.elapsed() >= patience) {
                self.complete(engine, pending.id, kind, late);
                self.fail(engine, Status::Flushed);
            } else {
                engine.pending.push_front(pending);
            }
            break;
        }
        self.set_waiting(!engine.pending.is_empty());
    }

    /// The connection is broken: what is pending ends with `status` and then flushed, receives are
    /// flushed when polled, the peer is told.
    fn fail(&self, engine: &mut Engine, status: Status) {
        if engine.state == State::Failed {
            return;
        }
        engine.state = State::Failed;
        self.control.fail();
        if let Some(peer) = &engine.peer {
            peer.control.tell_failed();
            if let Some(bell) = &peer.bell {
                bell.ring();
            }
        }
        let mut status = status;
        for pending in std::mem::take(&mut engine.pending) {
            self.complete(engine, pending.id, pending.operation().kind(), status);
            status = Status::Flushed;
        }
        self.set_waiting(false);
        self.failed.store(true, Ordering::Release);
        self.send_queue.wake();
        self.receive_queue.wake();
    }

    /// The service found the peer's process gone.
    pub(super) fn peer_is_gone(&self) {
        self.peer_gone.store(true, Ordering::Release);
        self.send_queue.wake();
        self.receive_queue.wake();
    }

    fn next_receive(&self, engine: &mut MutexGuard<'_, Engine>) -> Option<Completion> {
        let number = self.polled.load(Ordering::Relaxed);
        let taken = self.control.taken();
        let base = Completion { queue_pair: self.number, ..Completion::default() };
        if taken == number {
            // Nothing more came: of a failed pair the rest is flushed.
            let (id, _) = if engine.state == State::Failed {
                engine.receives.pop_front()?
            } else {
                return None;
            };
            return Some(Completion { id, status: Status::Flushed, kind: Kind::Receive, ..base });
        }
        let Taken { kind, bytes, immediate } = self.control.result(number);
        let many = taken.wrapping_sub(number);
        let possible = many <= engine.receives.len() as u64;
        let Some((id, room)) = possible.then(|| engine.receives.pop_front()).flatten() else {
            // The peer claims receives that there are not.
            self.polled.store(taken, Ordering::Relaxed);
            self.fail(engine, Status::Flushed);
            return None;
        };
        self.polled.store(number + 1, Ordering::Relaxed);
        let (status, kind) = match kind {
            0 if u64::from(bytes) <= room => (Status::Success, Kind::Receive),
            1 => (Status::Success, Kind::ReceiveWrite),
            _ => (Status::Length, Kind::Receive),
        };
        if status != Status::Success {
            self.fail(engine, Status::Flushed);
        }
        Some(Completion { id, status, kind, bytes, immediate, ..base })
    }
}
