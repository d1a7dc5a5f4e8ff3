//! What plays the network card: reads all sockets of the device, executes requests, hands on answers.
//!
//! A thread of its own does it, so that the target's workers need not; but a worker that polls a
//! completion queue does the card's work itself as long as it keeps polling, and the thread steps
//! back: on a machine with few cores two threads passing bytes to each other are slower than one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::frame::{FrameKind, GREETING_BYTES, Greeting, answer};
use super::incoming::{Incoming, status_of};
use super::pair::Shared;
use super::reader::{Arriving, Brought, Memory, Reader};
use super::{CLOSING, Device, PATIENCE};
use crate::queue::lock;

/// Most connections that have not said who they are.
const STRANGERS_MAX: usize = 256;
/// Heartbeats and time-outs are looked at so often if nothing else happens.
const TICK: Duration = Duration::from_millis(50);
/// After so long without a look this process was kept from running: no peer was silent meanwhile.
const PAUSED: Duration = Duration::from_millis(300);
/// So long after a worker's last poll the thread takes over.
const STEP_BACK: Duration = Duration::from_millis(1);

/// All sockets of a device.
pub(super) struct Card {
    listener: TcpListener,
    strangers: Vec<Stranger>,
    incoming: Vec<Incoming>,
    outgoing: Vec<Outgoing>,
    polls: Vec<libc::pollfd>,
    ticked: Instant,
    /// A connection could not be taken, for want of a descriptor perhaps: not again before the next tick.
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
}

/// Our own connection: answers come here.
pub(super) struct Outgoing {
    pub(super) socket: Arc<TcpStream>,
    pub(super) pair: Arc<Shared>,
    reader: Reader,
    /// The request whose bytes arrive.
    answers: u64,
    gone: bool,
}

impl Outgoing {
    pub(super) fn new(socket: Arc<TcpStream>, pair: Arc<Shared>) -> Outgoing {
        Outgoing { socket, pair, reader: Reader::new(), answers: 0, gone: false }
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
    pub(super) fn new(listener: TcpListener) -> Card {
        Card {
            listener,
            strangers: Vec::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            polls: Vec::new(),
            ticked: Instant::now(),
            deaf: false,
        }
    }

    /// Closes all connections.
    pub(super) fn close(&mut self) {
        self.strangers.clear();
        self.incoming.clear();
        self.outgoing.clear();
    }

    /// Lists all sockets and what to poll them for, in the order: listener, strangers, incoming,
    /// outgoing.
    fn list(&mut self, device: &Device) {
        self.outgoing.append(&mut lock(&device.fresh));
        self.polls.clear();
        let polls = &mut self.polls;
        let mut add = |fd, events| polls.push(libc::pollfd { fd, events, revents: 0 });
        let unknown = self.strangers.iter().filter(|stranger| stranger.known.is_none()).count();
        let accepts = if unknown < STRANGERS_MAX && !self.deaf { libc::POLLIN } else { 0 };
        add(self.listener.as_raw_fd(), accepts);
        for stranger in &self.strangers {
            let reads = if stranger.known.is_none() { libc::POLLIN } else { libc::POLLRDHUP };
            add(stranger.socket.as_raw_fd(), reads);
        }
        for incoming in &self.incoming {
            add(incoming.socket.as_raw_fd(), incoming.events());
        }
        for outgoing in &self.outgoing {
            let writes = if outgoing.pair.is_congested() { libc::POLLOUT } else { 0 };
            add(outgoing.socket.as_raw_fd(), libc::POLLIN | writes);
        }
    }

    /// Does all that can be done now. Never waits.
    pub(super) fn turn(&mut self, device: &Arc<Device>) {
        self.list(device);
        let count = self.polls.len() as libc::nfds_t;
        // SAFETY: the array has as many entries as are named.
        let ready = unsafe { libc::poll(self.polls.as_mut_ptr(), count, 0) };
        if ready > 0 {
            self.serve(device);
        }
        let now = Instant::now();
        let waits = self.strangers.iter().any(|stranger| stranger.known.is_some())
            || self.incoming.iter().any(|incoming| incoming.events() & libc::POLLIN == 0);
        let unheard = now.saturating_duration_since(self.ticked);
        if unheard >= CLOSING || waits {
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
        let (strangers, incoming) = (self.strangers.len(), self.incoming.len());
        let ready = |index: usize| self.polls[index].revents;
        let first_outgoing = 1 + strangers + incoming;
        // Answers first: a refusal explains why a peer then closes its own connection.
        for (i, outgoing) in self.outgoing.iter_mut().enumerate() {
            let events = ready(first_outgoing + i);
            if events & libc::POLLOUT != 0 {
                outgoing.pair.room();
            }
            if events & !libc::POLLOUT != 0 {
                outgoing.turn();
            }
        }
        for (i, incoming) in self.incoming.iter_mut().enumerate() {
            if ready(1 + strangers + i) != 0 {
                incoming.turn(&device.keys);
            }
        }
        for (i, stranger) in self.strangers.iter_mut().enumerate() {
            if ready(1 + i) != 0 {
                stranger.turn(device);
            }
        }
        if ready(0) != 0 {
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
        });
    }

    fn tick(&mut self, device: &Arc<Device>, now: Instant) {
        self.deaf = false;
        for incoming in &mut self.incoming {
            incoming.tick(now);
            // A receive may have been posted.
            incoming.turn(&device.keys);
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

    /// Joins connections to their pairs, and drops those that are done.
    fn settle(&mut self, device: &Device) {
        for incoming in &mut self.incoming {
            if incoming.gone && incoming.draining.is_none() {
                incoming.pair.closing();
            }
            let drained = incoming.draining.is_some_and(|since| since.elapsed() >= PATIENCE);
            incoming.gone |= drained || (incoming.draining.is_none() && incoming.pair.is_failed());
        }
        self.incoming.retain(|incoming| !incoming.gone);
        for outgoing in &mut self.outgoing {
            if outgoing.gone {
                outgoing.pair.lost();
            }
            outgoing.gone |= outgoing.pair.is_failed();
        }
        self.outgoing.retain(|outgoing| !outgoing.gone);
        let mut i = 0;
        while i < self.strangers.len() {
            match self.strangers[i].pair(device) {
                Some(pair) => {
                    let Stranger { socket, .. } = self.strangers.swap_remove(i);
                    let mut incoming = Incoming::new(socket, pair);
                    incoming.turn(&device.keys);
                    self.incoming.push(incoming);
                }
                None if self.strangers[i].gone => {
                    self.strangers.swap_remove(i);
                }
                None => i += 1,
            }
        }
    }
}

impl Stranger {
    fn turn(&mut self, device: &Device) {
        if self.known.is_some() {
            // It speaks again only when its pair is connected; anything else is its end.
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
            Ok(greeting) if self.socket.write_all(&answer(&device.token)).is_ok() => {
                self.known = Some(greeting);
            }
            _ => self.gone = true,
        }
    }

    /// The pair it called, once that is connected to the caller.
    fn pair(&mut self, device: &Device) -> Option<Arc<Shared>> {
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
    let mut polls = Vec::new();
    while !device.stop.load(Ordering::Acquire) {
        polls.clear();
        polls.push(libc::pollfd { fd: device.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let wait = if device.is_driven(STEP_BACK) {
            STEP_BACK
        } else {
            let mut card = lock(&device.card);
            card.list(device);
            polls.extend_from_slice(&card.polls);
            card.patience()
        };
        let (count, wait_ms) = (polls.len() as libc::nfds_t, wait.as_millis() as i32);
        // SAFETY: the array has as many entries as are named.
        unsafe { libc::poll(polls.as_mut_ptr(), count, wait_ms) };
        if polls[0].revents != 0 {
            device.hear();
        }
        if !device.is_driven(STEP_BACK) {
            lock(&device.card).turn(device);
        }
    }
}
