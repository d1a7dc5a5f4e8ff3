//! A connection that a peer has opened. The peer's requests are executed here, as a network card
//! would, without the threads that own the memory.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::epoll::Watched;
use super::frame::{Frame, FrameKind};
use super::pair::TcpConnection;
use super::reader::{Arriving, Brought, Memory, Reader};
use crate::keys::{KeyTable, Need, Target};
use crate::work::Status;

/// A peer that does not take its answers is not read from beyond this.
const REPLIES_MAX: usize = 8 << 20;
/// So much is read from one connection before the others have their turn, and before a worker that
/// does the card's work sees what has come.
const TURN_BYTES: usize = 128 * 1024;

/// A peer's connection, joined to the pair it called.
pub(super) struct Incoming {
    pub(super) socket: TcpStream,
    pub(super) pair: Arc<TcpConnection>,
    reader: Reader,
    /// The request whose bytes arrive.
    current: Option<Frame>,
    /// A request that waits for a receive.
    waiting: Option<Frame>,
    /// Time of the last message to the peer that its request waits, or that its bytes arrive.
    told: Instant,
    /// True if bytes have come since.
    progressed: bool,
    /// Requests done.
    done: u64,
    /// Whether the peer wants to know.
    owes: bool,
    replies: Vec<u8>,
    replied: usize,
    /// Set by a refused request: the connection ends, but the peer has to read the reason first;
    /// further bytes are thrown away until the peer closes.
    pub(super) draining: Option<Instant>,
    pub(super) gone: bool,
    pub(super) watched: Watched,
}

impl Incoming {
    pub(super) fn new(socket: TcpStream, pair: Arc<TcpConnection>, watched: Watched) -> Incoming {
        Incoming {
            socket,
            pair,
            reader: Reader::new(),
            current: None,
            waiting: None,
            told: Instant::now(),
            progressed: false,
            done: 0,
            // Tells the peer that we are there.
            owes: true,
            replies: Vec::new(),
            replied: 0,
            draining: None,
            gone: false,
            watched,
        }
    }

    /// Events to poll the socket for. Nothing is read while an earlier request waits.
    pub(super) fn events(&self) -> i16 {
        let reads =
            self.waiting.is_none() && self.replies.len() < REPLIES_MAX && !self.reader.has_header();
        let writes = self.replied < self.replies.len();
        (if reads { libc::POLLIN } else { 0 }) | (if writes { libc::POLLOUT } else { 0 })
    }

    /// Whether there is something to do though nothing has come: it waits, for a receive perhaps,
    /// or has an answer to give.
    pub(super) fn has_work(&self) -> bool {
        self.owes || self.events() & libc::POLLIN == 0
    }

    /// Executes what has come and answers.
    pub(super) fn turn(&mut self, keys: &KeyTable) {
        if self.draining.is_none() && self.pair.is_failed() {
            self.gone = true;
            return;
        }
        self.process(keys);
        let mut bytes = 0;
        while bytes < TURN_BYTES
            && !self.gone
            && self.waiting.is_none()
            && self.replies.len() < REPLIES_MAX
        {
            match self.reader.read(&self.socket) {
                Brought::Nothing => break,
                Brought::End => self.gone = true,
                Brought::Bytes { got, all } => {
                    self.progressed = true;
                    self.process(keys);
                    bytes += if all { TURN_BYTES } else { got };
                }
            }
        }
        if self.owes {
            self.owes = false;
            let ack = Frame { address: self.done, ..Frame::new(FrameKind::Ack) };
            self.replies.extend_from_slice(&ack.encode());
        }
        self.reply();
    }

    /// Called every few milliseconds: a peer whose request waits, or takes its time to arrive,
    /// should know that we are there.
    pub(super) fn tick(&mut self, now: Instant) {
        if now.saturating_duration_since(self.told) < self.pair.timing.silence / 8 {
            return;
        }
        if self.waiting.is_some() {
            self.told = now;
            self.replies.extend_from_slice(&Frame::new(FrameKind::NotReady).encode());
            self.reply();
        } else if self.current.is_some() && std::mem::take(&mut self.progressed) {
            self.told = now;
            self.owes = true;
        }
    }

    /// Executes what has come, until something is missing or has to wait.
    fn process(&mut self, keys: &KeyTable) {
        if let Some(frame) = self.waiting.take() {
            self.begin(frame, true, keys);
        }
        while !self.gone && self.waiting.is_none() && self.replies.len() < REPLIES_MAX {
            if self.reader.message_complete()
                && let Some(frame) = self.current.take()
            {
                self.complete(&frame);
            }
            match self.reader.take_header() {
                None => return,
                Some(_) if self.draining.is_some() => {}
                Some(Some(frame)) => self.begin(frame, false, keys),
                // Not our protocol: nothing more can be understood.
                Some(None) => self.gone = true,
            }
        }
    }

    /// A request's header is there; `again` if it has waited for a receive.
    fn begin(&mut self, frame: Frame, again: bool, keys: &KeyTable) {
        let bytes = frame.bytes as usize;
        let takes_receive = frame.kind == FrameKind::Send || frame.immediate.is_some();
        let resolve = |bytes: u64, need| keys.resolve(frame.key, frame.address, bytes, need);
        let mut receive = None;
        if takes_receive {
            // Before a receive is taken for it.
            if frame.kind == FrameKind::Write && resolve(bytes as u64, Need::Write).is_none() {
                return self.refuse(Status::RemoteAccess);
            }
            receive = self.pair.reserve();
            if receive.is_none() {
                if self.pair.is_failed() {
                    self.gone = true;
                    return;
                }
                self.wait(frame, again);
                return;
            }
        }
        match frame.kind {
            FrameKind::Write => match resolve(bytes as u64, Need::Write) {
                Some(target) => self.expect(frame, Memory::Target(target)),
                None => self.refuse(Status::RemoteAccess),
            },
            FrameKind::Send => match receive {
                Some((room, _)) if bytes > room => {
                    self.pair.take_receive(&frame, Status::Length);
                    self.refuse(Status::InvalidRequest);
                }
                Some((_, Some((region, offset)))) => {
                    self.expect(frame, Memory::Posted(self.pair.clone(), region, offset));
                }
                _ => self.expect(frame, Memory::None),
            },
            FrameKind::Read => match resolve(bytes as u64, Need::Read) {
                Some(target) => self.send_data(bytes, &target),
                None => self.refuse(Status::RemoteAccess),
            },
            FrameKind::FetchAdd | FrameKind::CompareSwap => match resolve(8, Need::Atomic) {
                Some(target) => self.change(&frame, &target),
                None => self.refuse(Status::RemoteAccess),
            },
            FrameKind::Ping => {
                self.done += 1;
                self.owes = true;
            }
            FrameKind::Ack
            | FrameKind::ReadData
            | FrameKind::AtomicData
            | FrameKind::Nak
            | FrameKind::NotReady => self.gone = true,
        }
    }

    fn wait(&mut self, frame: Frame, again: bool) {
        if !again {
            self.told = Instant::now();
            self.replies.extend_from_slice(&Frame::new(FrameKind::NotReady).encode());
        }
        self.waiting = Some(frame);
    }

    fn expect(&mut self, frame: Frame, memory: Memory) {
        if frame.bytes == 0 {
            self.complete(&frame);
        } else {
            self.reader.expect(Arriving::new(memory, frame.bytes as usize));
            self.current = Some(frame);
        }
    }

    /// A request's bytes are in place.
    fn complete(&mut self, frame: &Frame) {
        let takes_receive = frame.kind == FrameKind::Send || frame.immediate.is_some();
        if takes_receive && !self.pair.take_receive(frame, Status::Success) {
            // The receive was flushed: the peer must not hear that it was done.
            self.gone = true;
            return;
        }
        self.done += 1;
        self.owes |= frame.signalled;
    }

    fn send_data(&mut self, bytes: usize, target: &Target) {
        self.done += 1;
        let header =
            Frame { bytes: bytes as u32, address: self.done, ..Frame::new(FrameKind::ReadData) };
        self.replies.extend_from_slice(&header.encode());
        let at = self.replies.len();
        self.replies.reserve(bytes);
        // SAFETY: resolved for so many bytes, and there is room for them, all of which are written;
        // a copy may be torn, as the contract says.
        unsafe {
            let to = self.replies.as_mut_ptr().add(at);
            std::ptr::copy_nonoverlapping(target.start(), to, bytes);
            self.replies.set_len(at + bytes);
        }
    }

    fn change(&mut self, frame: &Frame, target: &Target) {
        let order = Ordering::SeqCst;
        // SAFETY: resolved for an atomic: 8 bytes, aligned, alive.
        let word = unsafe { AtomicU64::from_ptr(target.start().cast()) };
        let old = match frame.kind {
            FrameKind::FetchAdd => word.fetch_add(frame.first, order),
            _ => word
                .compare_exchange(frame.first, frame.second, order, order)
                .unwrap_or_else(|old| old),
        };
        self.done += 1;
        let answer = Frame { address: self.done, first: old, ..Frame::new(FrameKind::AtomicData) };
        self.replies.extend_from_slice(&answer.encode());
    }

    fn refuse(&mut self, status: Status) {
        let code = if status == Status::InvalidRequest { 1 } else { 2 };
        let nak = Frame { address: self.done + 1, key: code, ..Frame::new(FrameKind::Nak) };
        self.owes = false;
        self.replies.extend_from_slice(&nak.encode());
        self.reply();
        self.draining = Some(Instant::now());
        self.pair.lost();
    }

    fn reply(&mut self) {
        while self.replied < self.replies.len() {
            match (&self.socket).write(&self.replies[self.replied..]) {
                Ok(0) => break,
                Ok(bytes) => self.replied += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.replies.clear();
        self.replied = 0;
    }
}

/// Status that a refusal names.
pub(super) fn status_of(code: u32) -> Status {
    match code {
        1 => Status::InvalidRequest,
        2 => Status::RemoteAccess,
        other => Status::Other(other),
    }
}
