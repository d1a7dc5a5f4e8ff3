//! The software network card of `tcp`: it reads all sockets of the device, executes requests, and
//! passes on the answers.
//!
//! A thread of its own does this, so the target's workers need not. But while a worker polls a
//! completion queue, the worker does the card's work and the thread steps back. On a machine with
//! few cores, two threads that pass bytes to each other are slower than one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::epoll::{Epoll, Watched};
use super::frame::{FrameKind, GREETING_BYTES, Greeting};
use super::incoming::{Incoming, status_of};
use super::pair::TcpConnection;
use super::reader::{Arriving, Brought, Memory, Reader};
use super::{CLOSING, Device, PATIENCE};
use crate::error::{Result, last_os_error};
use crate::queue::lock;
use crate::setup::head;

/// Maximum number of unidentified connections.
const STRANGERS_MAX: usize = 256;
/// Interval of looking at heartbeats and time-outs if nothing else happens.
const TICK: Duration = Duration::from_millis(50);
/// After so long without a look this process was kept from running: no peer was silent meanwhile.
const PAUSED: Duration = Duration::from_millis(300);
/// So long after a worker's last poll the thread takes over.
const STEP_BACK: Duration = Duration::from_millis(1);

/// All sockets of a device.
pub(super) struct Card {
    epoll: Epoll,
    listener: TcpListener,
    listening: Watched,
    strangers: Vec<Stranger>,
    incoming: Vec<Incoming>,
    outgoing: Vec<OwnConnection>,
    /// True while work is pending that no socket will report.
    waits: bool,
    ticked: Instant,
    /// A connection could not be taken, for want of a descriptor perhaps: not again before the next
    /// tick.
    deaf: bool,
}

/// A connection whose pair is not known yet.
struct Stranger {
    socket: TcpStream,
    greeting: [u8; GREETING_BYTES],
    filled: usize,
    known: Option<Greeting>,
    since: Instant,
    gone: bool,
    watched: Watched,
}

/// Our own connection: answers come here.
pub(super) struct OwnConnection {
    pub(super) socket: Arc<TcpStream>,
    pub(super) pair: Arc<TcpConnection>,
    reader: Reader,
    /// The request whose bytes arrive.
    answers: u64,
    gone: bool,
    watched: Watched,
}

impl OwnConnection {
    pub(super) fn new(socket: Arc<TcpStream>, pair: Arc<TcpConnection>) -> OwnConnection {
        let watched = Watched::default();
        OwnConnection { socket, pair, reader: Reader::new(), answers: 0, gone: false, watched }
    }

    fn turn(&mut self) {
        let mut more = true;
        while more && !self.gone {
            match self.reader.read(&self.socket) {
                Brought::Nothing => return,
                Brought::End => self.gone = true,
                Brought::Bytes { all, .. } => {
                    self.process();
                    if self.reader.is_arriving() {
                        self.pair.heard();
                    }
                    more = !all;
                }
            }
        }
    }

    /// Takes the answers that have come.
    fn process(&mut self) {
        while !self.gone {
            if self.reader.message_complete() {
                self.pair.acknowledged(self.answers);
            }
            match self.reader.take_header() {
                None => return,
                Some(Some(frame)) if self.begin(&frame) => {}
                Some(_) => self.gone = true,
            }
        }
    }

    /// An answer's header is there. False if it makes no sense.
    fn begin(&mut self, frame: &super::frame::Frame) -> bool {
        let number = frame.address;
        match frame.kind {
            FrameKind::Ack => self.pair.acknowledged(number),
            FrameKind::NotReady => self.pair.not_ready(),
            FrameKind::Nak => self.pair.refused(number, status_of(frame.key)),
            FrameKind::AtomicData => return self.pair.atomic_done(number, frame.first),
            FrameKind::ReadData => {
                let bytes = frame.bytes as usize;
                let Some((region, offset)) = self.pair.destination(number, bytes) else {
                    return false;
                };
                if bytes == 0 {
                    self.pair.acknowledged(number);
                } else {
                    self.answers = number;
                    let memory = Memory::Posted(self.pair.clone(), region, offset);
                    self.reader.expect(Arriving::new(memory, bytes));
                }
            }
            FrameKind::Write
            | FrameKind::Send
            | FrameKind::Read
            | FrameKind::FetchAdd
            | FrameKind::CompareSwap
            | FrameKind::Ping => return false,
        }
        true
    }
}

impl Card {
    pub(super) fn new(listener: TcpListener) -> Result<Card> {
        let (mut epoll, mut listening) = (Epoll::new()?, Watched::default());
        if !epoll.watch(listener.as_raw_fd(), &mut listening, libc::POLLIN) {
            return Err(last_os_error("epoll_ctl"));
        }
        Ok(Card {
            epoll,
            listener,
            listening,
            strangers: Vec::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            waits: false,
            ticked: Instant::now(),
            deaf: false,
        })
    }

    /// Closes all connections.
    pub(super) fn close(&mut self) {
        self.strangers.clear();
        self.incoming.clear();
        self.outgoing.clear();
    }

    /// Tells the system what each socket should be watched for, where that has changed.
    fn watch(&mut self, device: &Device) {
        self.outgoing.append(&mut lock(&device.fresh));
        let Card { epoll, strangers, incoming, outgoing, .. } = self;
        let unknown = strangers.iter().filter(|stranger| stranger.known.is_none()).count();
        let accepts = if unknown < STRANGERS_MAX && !self.deaf { libc::POLLIN } else { 0 };
        epoll.watch(self.listener.as_raw_fd(), &mut self.listening, accepts);
        self.waits = false;
        // Whom the system does not watch, for want of memory, would never be heard.
        for stranger in strangers {
            let reads = if stranger.known.is_none() { libc::POLLIN } else { libc::POLLRDHUP };
            let socket = stranger.socket.as_raw_fd();
            stranger.gone |= !epoll.watch(socket, &mut stranger.watched, reads);
            self.waits |= stranger.known.is_some() || stranger.gone;
        }
        for incoming in incoming {
            let (events, socket) = (incoming.events(), incoming.socket.as_raw_fd());
            incoming.gone |= !epoll.watch(socket, &mut incoming.watched, events);
            self.waits |= events & libc::POLLIN == 0 || incoming.gone;
        }
        for outgoing in outgoing {
            let writes = if outgoing.pair.is_congested() { libc::POLLOUT } else { 0 };
            let socket = outgoing.socket.as_raw_fd();
            outgoing.gone |= !epoll.watch(socket, &mut outgoing.watched, libc::POLLIN | writes);
            self.waits |= outgoing.gone;
        }
    }

    /// Does all that can be done now. Never waits.
    pub(super) fn turn(&mut self, device: &Arc<Device>) {
        if device.changed.swap(false, Ordering::AcqRel) {
            self.watch(device);
        }
        if self.epoll.look() {
            self.serve(device);
        }
        let now = Instant::now();
        let unheard = now.saturating_duration_since(self.ticked);
        if unheard >= CLOSING || self.waits {
            self.ticked = now;
            if unheard >= PAUSED {
                self.outgoing.iter().for_each(|outgoing| outgoing.pair.excuse(unheard));
            }
            self.tick(device, now);
        }
    }

    /// When the thread has to look even if nothing comes.
    fn patience(&self) -> Duration {
        let closing = self.outgoing.iter().any(|outgoing| outgoing.pair.is_closing());
        if closing { CLOSING } else { TICK }
    }

    fn serve(&mut self, device: &Arc<Device>) {
        // Answers first: a refusal explains why a peer then closes its own connection.
        for outgoing in &mut self.outgoing {
            let events = self.epoll.ready(&outgoing.watched);
            if events & libc::POLLOUT != 0 {
                outgoing.pair.room();
            }
            if events & !libc::POLLOUT != 0 {
                outgoing.turn();
            }
        }
        for incoming in &mut self.incoming {
            if self.epoll.ready(&incoming.watched) != 0 {
                incoming.turn(&device.keys);
            }
        }
        for stranger in &mut self.strangers {
            if self.epoll.ready(&stranger.watched) != 0 {
                stranger.turn(device);
            }
        }
        if self.epoll.ready(&self.listening) != 0 {
            match self.listener.accept() {
                Ok((socket, _)) => self.meet(socket),
                Err(_) => self.deaf = true,
            }
        }
        self.settle(device);
    }

    /// Somebody has called.
    fn meet(&mut self, socket: TcpStream) {
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        // Latency only; without it everything works.
        drop(socket.set_nodelay(true));
        self.strangers.push(Stranger {
            socket,
            greeting: [0; GREETING_BYTES],
            filled: 0,
            known: None,
            since: Instant::now(),
            gone: false,
            watched: Watched::default(),
        });
    }

    fn tick(&mut self, device: &Arc<Device>, now: Instant) {
        self.deaf = false;
        for incoming in &mut self.incoming {
            incoming.tick(now);
            if incoming.has_work() {
                incoming.turn(&device.keys);
            }
        }
        for outgoing in &self.outgoing {
            outgoing.pair.tick(now);
        }
        for stranger in &mut self.strangers {
            // Who is known waits until its pair is connected, or gone.
            let waited = now.saturating_duration_since(stranger.since);
            stranger.gone |= stranger.known.is_none() && waited >= PATIENCE;
        }
        self.settle(device);
    }

    /// Joins connections to their pairs, drops finished connections, and watches the rest.
    fn settle(&mut self, device: &Device) {
        for incoming in &mut self.incoming {
            if incoming.gone && incoming.draining.is_none() {
                incoming.pair.closing();
            }
            let drained = incoming.draining.is_some_and(|since| since.elapsed() >= PATIENCE);
            incoming.gone |= drained || (incoming.draining.is_none() && incoming.pair.is_failed());
        }
        let stays = |epoll: &Epoll, gone, socket| {
            if gone {
                epoll.forget(socket);
            }
            !gone
        };
        let epoll = &self.epoll;
        self.incoming.retain(|incoming| stays(epoll, incoming.gone, incoming.socket.as_raw_fd()));
        for outgoing in &mut self.outgoing {
            if outgoing.gone {
                outgoing.pair.lost();
            }
            outgoing.gone |= outgoing.pair.is_failed();
        }
        // A pair may keep its socket.
        self.outgoing.retain(|outgoing| stays(epoll, outgoing.gone, outgoing.socket.as_raw_fd()));
        let mut i = 0;
        while i < self.strangers.len() {
            match self.strangers[i].pair(device) {
                Some(pair) => {
                    let Stranger { socket, watched, .. } = self.strangers.swap_remove(i);
                    let mut incoming = Incoming::new(socket, pair, watched);
                    incoming.turn(&device.keys);
                    self.incoming.push(incoming);
                }
                None if self.strangers[i].gone => {
                    self.strangers.swap_remove(i);
                }
                None => i += 1,
            }
        }
        self.watch(device);
    }
}

impl Stranger {
    fn turn(&mut self, device: &Device) {
        if self.known.is_some() {
            // Silence until its pair is connected is the rule; any byte, or the end, ends the
            // connection.
            self.gone = true;
            return;
        }
        match self.socket.read(&mut self.greeting[self.filled..]) {
            Ok(0) => self.gone = true,
            Ok(bytes) => self.filled += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.gone = true,
        }
        if self.filled < GREETING_BYTES {
            return;
        }
        match Greeting::decode(&self.greeting, &device.token) {
            // One that has been heard before is a copy: it is told nothing.
            Ok(greeting)
                if device.may_call(&greeting)
                    && self.socket.write_all(&head(&device.token)).is_ok() =>
            {
                self.known = Some(greeting);
            }
            _ => self.gone = true,
        }
    }

    /// The pair it called, once that is connected to the caller.
    fn pair(&mut self, device: &Device) -> Option<Arc<TcpConnection>> {
        let Greeting { device: from_device, from, to } = self.known?;
        if self.gone {
            return None;
        }
        let pair = lock(&device.pairs).get(&to).and_then(std::sync::Weak::upgrade);
        match pair.as_ref().and_then(|pair| pair.is_connected_to((from_device, from))) {
            Some(true) => pair,
            Some(false) => None,
            None => {
                self.gone = true;
                None
            }
        }
    }
}

/// The device's thread.
pub(super) fn run(device: &Arc<Device>) {
    let sockets = lock(&device.card).epoll.as_raw_fd();
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls = [poll(device.wake.as_raw_fd()), poll(sockets)];
    while !device.stop.load(Ordering::Acquire) {
        let (count, wait) = if device.is_driven(STEP_BACK) {
            (1, STEP_BACK)
        } else {
            let mut card = lock(&device.card);
            card.watch(device);
            (2, card.patience())
        };
        let wait_ms = wait.as_millis() as i32;
        // SAFETY: the array has at least as many entries as are named.
        unsafe { libc::poll(polls.as_mut_ptr(), count, wait_ms) };
        if polls[0].revents != 0 {
            device.hear();
        }
        if !device.is_driven(STEP_BACK) {
            lock(&device.card).turn(device);
        }
    }
}
