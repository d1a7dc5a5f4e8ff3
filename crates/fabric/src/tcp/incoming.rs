//! A connection that a peer opened: its requests are executed here, as a network card would, without the
//! threads that own the memory.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::MESSAGE_BYTES;
use super::frame::{Frame, FrameKind, HEADER_BYTES};
use super::pair::Shared;
use crate::keys::{KeyTable, Need, Target};
use crate::memory::Region;
use crate::work::Status;

/// A peer that does not take its answers is not read from beyond this.
const REPLIES_MAX: usize = 8 << 20;
/// Most calls for one connection before the others have their turn.
const CALLS: usize = 16;

/// Memory that bytes are received into, kept mapped.
enum Memory {
    None,
    Target(Target),
    Region(Region, usize),
}

impl Memory {
    fn start(&self) -> *mut u8 {
        match self {
            Memory::None => std::ptr::null_mut(),
            Memory::Target(target) => target.start(),
            Memory::Region(region, offset) => region.as_ptr().wrapping_add(*offset),
        }
    }
}

/// Bytes that go straight from the socket to where they belong, the last 8 of them held back until
/// all others are there.
pub(super) struct Arriving {
    memory: Memory,
    /// Bytes that go straight there.
    body: usize,
    /// Bytes in all.
    total: usize,
    got: usize,
    tail: [u8; 8],
}

impl Arriving {
    fn new(memory: Memory, total: usize) -> Arriving {
        let end = (memory.start() as usize).wrapping_add(total);
        let body = if total >= 8 && end.is_multiple_of(8) { total - 8 } else { total };
        Arriving { memory, body, total, got: 0, tail: [0; 8] }
    }

    pub(super) fn into_region(region: Region, offset: usize, total: usize) -> Arriving {
        Arriving::new(Memory::Region(region, offset), total)
    }

    fn is_complete(&self) -> bool {
        self.got == self.total
    }

    /// Releases the held back bytes.
    fn release(&self) {
        if self.body < self.total {
            let last = u64::from_ne_bytes(self.tail);
            let word = self.memory.start().wrapping_add(self.body).cast::<u64>();
            // SAFETY: the last 8 of the checked bytes, aligned since their end is, alive with `memory`.
            unsafe { AtomicU64::from_ptr(word) }.store(last, Ordering::Release);
        } else {
            std::sync::atomic::fence(Ordering::Release);
        }
    }
}

/// Reads headers and bytes from a socket, as much per call as there is.
pub(super) struct Reader {
    header: [u8; HEADER_BYTES],
    filled: usize,
    arriving: Option<Arriving>,
}

/// What a call brought.
pub(super) enum Brought {
    /// Nothing is there now.
    Nothing,
    /// Something, perhaps a whole header or message.
    Something,
    /// The stream has ended.
    End,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader { header: [0; HEADER_BYTES], filled: 0, arriving: None }
    }

    /// One system call.
    pub(super) fn read(&mut self, socket: &TcpStream) -> Brought {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 3];
        let mut count = 0;
        let mut add = |start: *mut u8, bytes: usize| {
            if bytes > 0 {
                parts[count] = libc::iovec { iov_base: start.cast(), iov_len: bytes };
                count += 1;
            }
        };
        if let Some(arriving) = &mut self.arriving {
            let got = arriving.got.min(arriving.body);
            add(arriving.memory.start().wrapping_add(got), arriving.body - got);
            let held = arriving.got - got;
            let tail = arriving.total - arriving.body;
            add(arriving.tail.as_mut_ptr().wrapping_add(held), tail - held);
        }
        add(self.header.as_mut_ptr().wrapping_add(self.filled), HEADER_BYTES - self.filled);
        // SAFETY: zeros are an empty message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = count;
        // SAFETY: the parts lie in memory that was checked for this message, in the tail, and in the
        // header; all are alive.
        let got =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        match usize::try_from(got) {
            Ok(0) => Brought::End,
            Ok(got) => {
                self.count(got);
                Brought::Something
            }
            Err(_) => match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock => Brought::Nothing,
                io::ErrorKind::Interrupted => Brought::Something,
                _ => Brought::End,
            },
        }
    }

    fn count(&mut self, mut got: usize) {
        if let Some(arriving) = &mut self.arriving {
            let taken = got.min(arriving.total - arriving.got);
            arriving.got += taken;
            got -= taken;
        }
        self.filled += got;
    }

    /// Whether a message's bytes have all come; they are released then.
    pub(super) fn message_complete(&mut self) -> bool {
        match &self.arriving {
            Some(arriving) if arriving.is_complete() => {
                arriving.release();
                self.arriving = None;
                true
            }
            _ => false,
        }
    }

    /// Whether bytes of a message are still to come.
    pub(super) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// A whole header: `Some(None)` if it is impossible.
    pub(super) fn take_header(&mut self) -> Option<Option<Frame>> {
        if self.filled < HEADER_BYTES || self.is_arriving() {
            return None;
        }
        self.filled = 0;
        Some(Frame::decode(&self.header, MESSAGE_BYTES))
    }

    /// The bytes that follow go here.
    pub(super) fn expect(&mut self, arriving: Arriving) {
        self.arriving = Some(arriving);
    }
}

/// A peer's connection, joined to the pair it called.
pub(super) struct Incoming {
    pub(super) socket: TcpStream,
    pub(super) pair: Arc<Shared>,
    reader: Reader,
    /// The request whose bytes arrive.
    current: Option<Frame>,
    /// A request that waits for a receive.
    waiting: Option<Frame>,
    told_waiting: Instant,
    /// Requests done.
    done: u64,
    /// Whether the peer wants to know.
    owes: bool,
    replies: Vec<u8>,
    replied: usize,
    /// A refused request ends the connection, but the peer has to read why: until it closes, what it
    /// sends is thrown away.
    pub(super) draining: Option<Instant>,
    pub(super) gone: bool,
}

impl Incoming {
    pub(super) fn new(socket: TcpStream, pair: Arc<Shared>) -> Incoming {
        Incoming {
            socket,
            pair,
            reader: Reader::new(),
            current: None,
            waiting: None,
            told_waiting: Instant::now(),
            done: 0,
            // Tells the peer that we are there.
            owes: true,
            replies: Vec::new(),
            replied: 0,
            draining: None,
            gone: false,
        }
    }

    /// What to poll its socket for.
    pub(super) fn events(&self) -> i16 {
        let reads = self.waiting.is_none() && self.replies.len() < REPLIES_MAX;
        let writes = self.replied < self.replies.len();
        (if reads { libc::POLLIN } else { 0 }) | (if writes { libc::POLLOUT } else { 0 })
    }

    /// Executes what has come and answers.
    pub(super) fn turn(&mut self, keys: &KeyTable) {
        if self.draining.is_none() && self.pair.is_failed() {
            self.gone = true;
            return;
        }
        for _ in 0..CALLS {
            if let Some(frame) = self.waiting.take() {
                self.begin(frame, keys);
                if self.waiting.is_some() {
                    break;
                }
            }
            if self.gone || self.replies.len() >= REPLIES_MAX {
                break;
            }
            match self.reader.read(&self.socket) {
                Brought::Nothing => break,
                Brought::End => {
                    self.gone = true;
                    break;
                }
                Brought::Something => self.process(keys),
            }
        }
        if self.owes {
            self.owes = false;
            let ack = Frame { address: self.done, ..Frame::new(FrameKind::Ack) };
            self.replies.extend_from_slice(&ack.encode());
        }
        self.reply();
    }

    /// Called every few milliseconds: a peer whose request waits should know that we are there.
    pub(super) fn tick(&mut self, now: Instant) {
        let told = now.saturating_duration_since(self.told_waiting);
        if self.waiting.is_some() && told >= self.pair.timing.silence / 8 {
            self.told_waiting = now;
            self.replies.extend_from_slice(&Frame::new(FrameKind::NotReady).encode());
            self.reply();
        }
    }

    fn process(&mut self, keys: &KeyTable) {
        if self.reader.message_complete()
            && let Some(frame) = self.current.take()
        {
            self.complete(&frame);
        }
        match self.reader.take_header() {
            None => {}
            Some(_) if self.draining.is_some() => {}
            Some(Some(frame)) => self.begin(frame, keys),
            // Not our protocol: nothing more can be understood.
            Some(None) => self.gone = true,
        }
    }

    /// A request's header is there.
    fn begin(&mut self, frame: Frame, keys: &KeyTable) {
        let bytes = frame.bytes as usize;
        let takes_receive = frame.kind == FrameKind::Send || frame.immediate.is_some();
        let mut receive = None;
        if takes_receive {
            receive = self.pair.next_receive();
            if receive.is_none() {
                if self.pair.is_failed() {
                    self.gone = true;
                    return;
                }
                self.wait(frame);
                return;
            }
        }
        let resolve = |bytes: u64, need| keys.resolve(frame.key, frame.address, bytes, need);
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
                    self.expect(frame, Memory::Region(region, offset));
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

    fn wait(&mut self, frame: Frame) {
        if self.waiting.is_none() {
            self.told_waiting = Instant::now();
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
        if frame.kind == FrameKind::Send || frame.immediate.is_some() {
            self.pair.take_receive(frame, Status::Success);
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
        self.replies.resize(at + bytes, 0);
        // SAFETY: resolved for so many bytes, and there is room for them; a copy may be torn, as the
        // contract says.
        unsafe {
            let to = self.replies.as_mut_ptr().add(at);
            std::ptr::copy_nonoverlapping(target.start(), to, bytes);
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
