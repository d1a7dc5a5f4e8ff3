//! Reliable connections over TCP, as their owner sees them.
//!
//! Each side opens a connection to the other. Its requests go out on its own connection, and their
//! acknowledgements come back on the same one. So a request that waits for a receive does not hold
//! up the other direction.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Device;
use super::frame::{Frame, FrameKind};
use super::request::TcpWork;
use crate::contract::State;
use crate::error::{Error, Result};
use crate::kept::{KeptRange, KeptReceive, post_all};
use crate::memory::{Region, RemoteRegion};
use crate::place::place;
use crate::queue::{Member, Queue, lock};
use crate::soft::Connection;
use crate::work::{Completion, Kind, QueueSizes, Receive, Rejected, Status, Timing, WorkRequest};

/// Parts of one system call: header and bytes of so many requests.
const PARTS: usize = 32;

/// A connection, known to its owner, its completion queues, and the card.
pub struct TcpConnection {
    number: u32,
    device: Arc<Device>,
    sizes: QueueSizes,
    pub(super) timing: Timing,
    send_queue: Arc<Queue<TcpConnection>>,
    receive_queue: Arc<Queue<TcpConnection>>,
    /// Send queue entries that no polled completion has freed.
    used: AtomicU32,
    /// Whether the socket has no room for what is to be sent.
    congested: AtomicBool,
    failed: AtomicBool,
    /// Peers that have called the pair: each calls once.
    callers: Mutex<Vec<(u64, u32)>>,
    engine: Mutex<Engine>,
}

struct Engine {
    state: State,
    peer: Option<(u64, u32)>,
    /// Our connection.
    socket: Option<Arc<TcpStream>>,
    /// Requests that are not acknowledged, oldest first.
    work: VecDeque<TcpWork>,
    /// Number of the oldest; the first of all is 1.
    first: u64,
    /// How many of them are sent whole, and how many bytes of the next.
    sent: usize,
    sent_bytes: usize,
    /// Entries that the next completion frees besides its own.
    unsignalled: u32,
    receives: VecDeque<KeptReceive>,
    /// The receive taken by the peer's request that is being executed.
    reserved: Option<KeptReceive>,
    /// The peer has taken up our connection.
    open: bool,
    /// When the peer was heard of, and when we said something.
    heard: Instant,
    spoke: Instant,
    /// Since when the peer has had no receive for us.
    not_ready: Option<Instant>,
    /// Since when the peer's connection has been closed.
    closing: Option<Instant>,
}

impl Engine {
    /// Where the answer to request `number` goes: `bytes` bytes, as were asked for.
    fn destination(&self, number: u64, bytes: usize) -> Option<(Region, usize)> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        if index >= self.sent {
            return None;
        }
        let KeptRange { region, offset, bytes: wanted } = self.work.get(index)?.into.as_ref()?;
        (*wanted == bytes).then(|| (region.clone(), *offset))
    }
}

impl Member for TcpConnection {
    fn number(&self) -> u32 {
        self.number
    }

    fn poll(&self) {}

    fn poll_receives(&self, _queue: &Queue<TcpConnection>, _out: &mut [Completion]) -> usize {
        0
    }

    fn free(&self, entries: u32) {
        self.used.fetch_sub(entries, Ordering::AcqRel);
    }

    fn end(&self) {
        self.fail(&mut lock(&self.engine), Status::Flushed);
    }
}

impl Connection for TcpConnection {
    /// There is no memory in common.
    fn window(&self, _peer: &RemoteRegion) -> Result<Option<Region>> {
        Ok(None)
    }

    fn post(&self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected> {
        let mut engine = lock(&self.engine);
        let result = post_all(requests, |request| self.post_one(&mut engine, request));
        self.flush(&mut engine);
        result
    }

    fn post_receives(&self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        // The lock keeps a failure from flushing before these are there.
        let mut engine = lock(&self.engine);
        if engine.state == State::Failed {
            return Err(Rejected { posted: 0, reason: Error::Failed });
        }
        let starved = engine.receives.is_empty();
        let (device, capacity) = (self.device.number, self.sizes.receive);
        let post = |one: &_| KeptReceive::post(one, device, &mut engine.receives, capacity);
        let result = post_all(receives, post);
        drop(engine);
        if starved {
            // A thread may be waiting for the result.
            self.device.wake();
        }
        result
    }

    fn state(&self) -> State {
        if self.is_failed() { State::Failed } else { lock(&self.engine).state }
    }
}

impl TcpConnection {
    pub(super) fn new(
        number: u32,
        device: &Arc<Device>,
        queues: (&Arc<Queue<TcpConnection>>, &Arc<Queue<TcpConnection>>),
        sizes: QueueSizes,
        timing: Timing,
    ) -> TcpConnection {
        let now = Instant::now();
        let engine = Engine {
            state: State::Fresh,
            peer: None,
            socket: None,
            work: VecDeque::with_capacity(sizes.send as usize + 1),
            first: 1,
            sent: 0,
            sent_bytes: 0,
            unsignalled: 0,
            receives: VecDeque::with_capacity(sizes.receive as usize),
            reserved: None,
            open: false,
            heard: now,
            spoke: now,
            not_ready: None,
            closing: None,
        };
        TcpConnection {
            number,
            device: device.clone(),
            sizes,
            timing,
            send_queue: queues.0.clone(),
            receive_queue: queues.1.clone(),
            used: AtomicU32::new(0),
            congested: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            callers: Mutex::default(),
            engine: Mutex::new(engine),
        }
    }

    /// Checks that the pair can be connected.
    pub(super) fn check_fresh(&self) -> Result<()> {
        match lock(&self.engine).state {
            State::Fresh => Ok(()),
            State::Connected => Err(Error::AlreadyConnected),
            State::Failed => Err(Error::Failed),
        }
    }

    /// The connection to `peer` (device and number) stands.
    pub(super) fn connected(&self, peer: (u64, u32), socket: Arc<TcpStream>) {
        let mut engine = lock(&self.engine);
        engine.state = State::Connected;
        engine.peer = Some(peer);
        engine.socket = Some(socket);
        engine.heard = Instant::now();
    }

    /// Whether it is connected to this peer; `None` if it never will be.
    pub(super) fn is_connected_to(&self, peer: (u64, u32)) -> Option<bool> {
        let engine = lock(&self.engine);
        match engine.state {
            State::Fresh => Some(false),
            State::Connected => (engine.peer == Some(peer)).then_some(true),
            State::Failed => None,
        }
    }

    /// Whether a peer may call: for the first time, and not if it will never be connected to it.
    pub(super) fn may_call(&self, peer: (u64, u32)) -> bool {
        let mut callers = lock(&self.callers);
        let may = !callers.contains(&peer) && self.is_connected_to(peer).is_some();
        if may {
            callers.push(peer);
        }
        may
    }

    #[inline]
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether the card should tell when the socket has room.
    pub(super) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Acquire)
    }

    fn post_one(&self, engine: &mut Engine, request: &WorkRequest<'_>) -> Result<()> {
        match engine.state {
            State::Connected => {}
            State::Fresh => return Err(Error::NotConnected),
            State::Failed => return Err(Error::Failed),
        }
        request.operation.check(self.device.number, &self.device.limits)?;
        if self.used.load(Ordering::Acquire) >= self.sizes.send {
            return Err(Error::QueueFull);
        }
        self.used.fetch_add(1, Ordering::AcqRel);
        if engine.work.is_empty() {
            engine.heard = Instant::now();
        }
        engine.work.push_back(TcpWork::new(request));
        Ok(())
    }

    /// Sends what the socket takes.
    fn flush(&self, engine: &mut Engine) {
        while engine.state == State::Connected && engine.sent < engine.work.len() {
            let Some(socket) = engine.socket.clone() else { return };
            match send_some(&socket, engine) {
                Ok(bytes) => advance(engine, bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.congested.swap(true, Ordering::AcqRel) {
                        self.device.wake();
                    }
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The card finds out what came before the end.
                Err(_) => {
                    engine.closing.get_or_insert_with(Instant::now);
                    return;
                }
            }
        }
        self.congested.store(false, Ordering::Release);
    }

    /// The socket has room again.
    pub(super) fn room(&self) {
        self.flush(&mut lock(&self.engine));
    }

    /// Sets the oldest receive aside for a request of the peer's that begins: its room and place.
    /// `None` if there is no receive.
    pub(super) fn reserve(&self) -> Option<(usize, Option<(Region, usize)>)> {
        let mut engine = lock(&self.engine);
        if engine.state == State::Failed {
            return None;
        }
        let receive = engine.receives.pop_front()?;
        let place = receive.buffer.as_ref().map(|buffer| (buffer.region.clone(), buffer.offset));
        let found = (receive.room(), place);
        engine.reserved = Some(receive);
        Some(found)
    }

    /// Lets `write` write to a buffer that was posted; the pair does not fail meanwhile. `None` if
    /// it has failed, and the buffers are their owner's again.
    pub(super) fn fill<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        let engine = lock(&self.engine);
        (engine.state != State::Failed).then(write)
    }

    /// The peer's request has taken the receive that was set aside. False if it was flushed before.
    pub(super) fn take_receive(&self, frame: &Frame, status: Status) -> bool {
        let mut engine = lock(&self.engine);
        let Some(receive) = engine.reserved.take() else { return false };
        let kind = if frame.kind == FrameKind::Send { Kind::Receive } else { Kind::ReceiveWrite };
        let completion = Completion {
            id: receive.id,
            status,
            kind,
            bytes: frame.bytes,
            immediate: frame.immediate,
            queue_pair: self.number,
            ..Completion::default()
        };
        // Under the lock: what is flushed by a failure comes behind it.
        self.receive_queue.push(completion, 0);
        true
    }

    /// Takes note that the peer has done all requests up to `number`.
    pub(super) fn acknowledged(&self, number: u64) {
        self.heard_up_to(&mut lock(&self.engine), number);
    }

    fn heard_up_to(&self, engine: &mut Engine, number: u64) {
        engine.heard = Instant::now();
        engine.open = true;
        self.done_up_to(engine, number);
    }

    fn done_up_to(&self, engine: &mut Engine, number: u64) {
        while engine.state == State::Connected && engine.first <= number {
            if engine.sent == 0 {
                // The peer acknowledges what was never sent.
                self.fail(engine, Status::Other(0));
                return;
            }
            let Some(work) = engine.work.pop_front() else { return };
            engine.first += 1;
            engine.sent -= 1;
            engine.not_ready = None;
            match work.kind {
                None => {}
                Some(kind) if work.signalled => {
                    self.complete(engine, work.id, kind, Status::Success);
                }
                Some(_) => engine.unsignalled += 1,
            }
        }
    }

    /// Where the answer to request `number` goes: `bytes` bytes, as were asked for.
    pub(super) fn destination(&self, number: u64, bytes: usize) -> Option<(Region, usize)> {
        lock(&self.engine).destination(number, bytes)
    }

    /// The old value of an atomic; false if none was asked for.
    pub(super) fn atomic_done(&self, number: u64, old: u64) -> bool {
        let mut engine = lock(&self.engine);
        let Some((region, offset)) = engine.destination(number, 8) else { return false };
        let old = old.to_ne_bytes();
        // SAFETY: the destination was checked when it was posted, has 8 bytes, and is not handed
        // back before the lock is.
        unsafe { place(region.as_ptr().add(offset), old.as_ptr(), 8) };
        self.heard_up_to(&mut engine, number);
        true
    }

    /// The peer refused request `number`.
    pub(super) fn refused(&self, number: u64, status: Status) {
        let mut engine = lock(&self.engine);
        self.done_up_to(&mut engine, number.saturating_sub(1));
        self.fail(&mut engine, status);
    }

    /// The peer has no receive for a request.
    pub(super) fn not_ready(&self) {
        let mut engine = lock(&self.engine);
        let now = Instant::now();
        engine.heard = now;
        engine.not_ready.get_or_insert(now);
    }

    /// Bytes of an answer came.
    pub(super) fn heard(&self) {
        lock(&self.engine).heard = Instant::now();
    }

    /// Takes note that the peer has closed its connection; its answers on ours come first.
    pub(super) fn closing(&self) {
        lock(&self.engine).closing.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_closing(&self) -> bool {
        lock(&self.engine).closing.is_some()
    }

    /// Nobody listened for so long: that was not the peer's silence.
    pub(super) fn excuse(&self, time: Duration) {
        let mut engine = lock(&self.engine);
        engine.heard = (engine.heard + time).min(Instant::now());
    }

    /// The connection is gone.
    pub(super) fn lost(&self) {
        self.fail(&mut lock(&self.engine), Status::PeerLost);
    }

    /// Called every few milliseconds.
    pub(super) fn tick(&self, now: Instant) {
        let mut engine = lock(&self.engine);
        if engine.state != State::Connected {
            return;
        }
        let silence = self.timing.silence;
        let passed = |since: Instant| now.saturating_duration_since(since);
        let patience = self.timing.receiver_not_ready;
        if engine.not_ready.is_some_and(|since| patience.is_some_and(|p| passed(since) >= p)) {
            return self.fail(&mut engine, Status::ReceiverNotReady);
        }
        if engine.closing.is_some_and(|since| passed(since) >= super::CLOSING) {
            return self.fail(&mut engine, Status::PeerLost);
        }
        if !engine.open && engine.work.is_empty() {
            // Nobody has promised to be there yet.
            engine.heard = now;
            return;
        }
        if passed(engine.heard) >= silence {
            return self.fail(&mut engine, Status::PeerLost);
        }
        // One question at a time: it may wait behind a long message.
        let asked = engine.work.back().is_some_and(|work| work.kind.is_none());
        if engine.open && !asked && passed(engine.spoke) >= silence / 4 {
            engine.spoke = now;
            engine.work.push_back(TcpWork::ping());
            self.flush(&mut engine);
        }
    }

    fn complete(&self, engine: &mut Engine, id: u64, kind: Kind, status: Status) {
        let frees = 1 + std::mem::take(&mut engine.unsignalled);
        let completion =
            Completion { id, status, kind, queue_pair: self.number, ..Completion::default() };
        self.send_queue.push(completion, frees);
    }

    /// The oldest work ends with `status`, the rest is flushed, the connection closed.
    fn fail(&self, engine: &mut Engine, status: Status) {
        if engine.state == State::Failed {
            return;
        }
        engine.state = State::Failed;
        if let Some(socket) = engine.socket.take() {
            // It fails only if the peer has ended the connection already.
            drop(socket.shutdown(Shutdown::Both));
        }
        let mut status = status;
        for work in std::mem::take(&mut engine.work) {
            if let Some(kind) = work.kind {
                self.complete(engine, work.id, kind, status);
                status = Status::Flushed;
            }
        }
        self.flush_receives(engine);
        self.failed.store(true, Ordering::Release);
        self.send_queue.wake();
        self.receive_queue.wake();
        self.device.wake();
    }

    fn flush_receives(&self, engine: &mut Engine) {
        while let Some(receive) = engine.reserved.take().or_else(|| engine.receives.pop_front()) {
            let completion = Completion {
                id: receive.id,
                status: Status::Flushed,
                kind: Kind::Receive,
                queue_pair: self.number,
                ..Completion::default()
            };
            self.receive_queue.push(completion, 0);
        }
    }
}

/// Gives the socket the next requests, as many as fit into one call; returns the bytes it took.
fn send_some(socket: &TcpStream, engine: &Engine) -> io::Result<usize> {
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    let mut count = 0;
    let mut skip = engine.sent_bytes;
    for work in engine.work.iter().skip(engine.sent).take(PARTS / 2) {
        for (start, bytes) in work.parts() {
            let skipped = skip.min(bytes);
            skip -= skipped;
            if bytes > skipped {
                let start = start.wrapping_add(skipped).cast_mut().cast();
                parts[count] = libc::iovec { iov_base: start, iov_len: bytes - skipped };
                count += 1;
            }
        }
    }
    // SAFETY: zeros are an empty message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = count;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the parts are headers and payloads of work that is alive; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// So many more bytes are sent.
fn advance(engine: &mut Engine, bytes: usize) {
    engine.sent_bytes += bytes;
    while let Some(work) = engine.work.get(engine.sent)
        && engine.sent_bytes >= work.bytes()
    {
        engine.sent_bytes -= work.bytes();
        engine.sent += 1;
    }
}
