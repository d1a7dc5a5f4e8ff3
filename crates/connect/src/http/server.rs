//! The server: a thread that takes connections, and one for each of them.
//!
//! What a body takes is counted from before it is read until its records are decoded and handed to
//! a worker. If that is too much, the sender is told to come again later. A thread waits for a
//! sender a moment at a time, so all end soon after [`Server`] is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millstream_contract::Result;
use millstream_contract::table::Decoded;
use millstream_contract::wording::counted;

use super::request::{Answer, HEAD_BYTES_MAX, Head, head_end, parse};
use crate::input::Name;
use crate::records::{Arriving, Wanted};

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// How often to look for connections.
const LOOK: Duration = Duration::from_millis(10);
/// How long to read without a look at whether to stop.
const READ: Duration = Duration::from_millis(100);
/// How long a sender may take to receive an answer.
const WRITE: Duration = Duration::from_secs(5);
/// The slowest sender of a large body.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// How long to go on reading what a sender sends in vain, so that it gets the answer.
const LINGER: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;

/// What the server is to do.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) name: Name,
    pub(super) wanted: Wanted,
    /// Bytes of a body at most.
    pub(super) body_bytes_max: u64,
    /// Bytes of bodies at most that are being received, or wait.
    pub(super) waiting_bytes_max: u64,
    pub(super) patience: Patience,
}

/// How long senders may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long a connection may be without a request.
    pub(super) idle: Duration,
    /// How long a head may take.
    pub(super) head: Duration,
    /// How long a body may take, beside the time for its bytes.
    pub(super) body: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let [idle, head, body] = [60, 10, 10].map(Duration::from_secs);
        Patience { idle, head, body }
    }
}

/// Takes requests until it is dropped.
pub(super) struct Server {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// What all threads share.
struct Shared {
    served: Served,
    stopped: AtomicBool,
    /// Bodies received.
    bodies: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    accepted: VecDeque<Accepted>,
    /// To be called when something comes, or when nothing more does.
    waker: Option<Waker>,
    /// Nothing more is accepted.
    draining: bool,
    /// Senders of accepted bodies that have not been answered yet.
    unanswered: usize,
    /// Bytes of bodies that are being received, or wait.
    waiting: u64,
    connections: BTreeMap<u64, TcpStream>,
}

/// What there is to hand on.
pub(super) enum Next {
    Accepted(Box<Accepted>),
    /// Nothing now.
    Nothing,
    /// Nothing any more: it has been drained.
    Ended,
}

/// An accepted body whose sender is being answered.
struct Answering<'a>(&'a Shared);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.unanswered -= 1;
        let waker = if state.unanswered == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Records of a body.
pub(super) struct Accepted {
    pub(super) decoded: Decoded,
    /// Bytes of the body that they stand for.
    pub(super) bytes: usize,
    pub(super) room: Arc<Room>,
}

/// The room that a body takes, until all its records have been handed on.
pub(super) struct Room {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.waiting = state.waiting.saturating_sub(self.bytes);
    }
}

impl Shared {
    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Room for a body, if there is any.
    fn room(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        let max = self.served.waiting_bytes_max;
        let mut state = self.lock();
        let waiting = state.waiting.checked_add(bytes).filter(|waiting| *waiting <= max)?;
        state.waiting = waiting;
        Some(Room { shared: self.clone(), bytes })
    }

    /// The records of a body.
    fn decode(&self, body: Vec<u8>) -> Result<Vec<(Decoded, usize)>> {
        let number = self.bodies.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}, body {number}", self.served.name);
        let mut arriving = Arriving::new(name.into(), self.served.wanted.clone());
        *arriving.buffer() = body;
        let mut all = Vec::new();
        while let Some(chunk) = arriving.chunk(true)? {
            let bytes = chunk.bytes();
            all.push((chunk.decode_reporting()?, bytes));
        }
        Ok(all)
    }

    /// Why no body is accepted any more, if that is so.
    fn refusal(&self, state: &State) -> Option<Answer> {
        match (self.is_stopped(), state.draining) {
            (true, _) => Some(Answer::new(503, "the job has ended")),
            (_, true) => {
                Some(Answer::new(503, "the job is being drained: it takes no more records"))
            }
            _ => None,
        }
    }

    /// Hands on the records of a body, all or none. What comes with the answer, if they are
    /// accepted, is to be kept until that has been sent.
    fn take(&self, body: Vec<u8>, room: Room) -> (Answer, Option<Answering<'_>>) {
        let is_gzip = body.starts_with(&[0x1f, 0x8b]);
        let all = match self.decode(body) {
            Ok(all) => all,
            Err(_) if is_gzip => {
                let what = "the body is packed with gzip: send it as it is, unpacked";
                return (Answer::new(415, what), None);
            }
            Err(error) => return (Answer::new(400, error.to_string()), None),
        };
        let records: usize = all.iter().map(|(decoded, _)| decoded.batch.num_rows()).sum();
        let left_out: u64 = all.iter().map(|(decoded, _)| decoded.left_out).sum();
        let room = Arc::new(room);
        let accepted = |(decoded, bytes)| Accepted { decoded, bytes, room: room.clone() };
        let mut state = self.lock();
        if let Some(refusal) = self.refusal(&state) {
            drop(state);
            return (refusal, None);
        }
        state.accepted.extend(all.into_iter().map(accepted));
        state.unanswered += 1;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        let mut text = format!("{} accepted", counted(records as u64, "record"));
        if left_out > 0 {
            text += &format!(", {left_out} left out");
        }
        (Answer::new(202, text), Some(Answering(self)))
    }
}

impl Server {
    /// Listens from now on.
    pub(super) fn start(address: SocketAddr, served: Served) -> io::Result<(Server, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            served,
            stopped: AtomicBool::new(false),
            bodies: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let own = shared.clone();
        let accepting = thread::Builder::new().name("http".into());
        let accepting = accepting.spawn(move || accept(&listener, &own))?;
        Ok((Server { shared, accepting: Some(accepting) }, address))
    }

    /// Accepts nothing more.
    pub(super) fn drain(&self) {
        self.shared.lock().draining = true;
    }

    /// What has been accepted first. If there is nothing, `waker` is called when there is, or when
    /// nothing more will be.
    pub(super) fn next(&self, waker: &Waker) -> Next {
        let mut state = self.shared.lock();
        if let Some(accepted) = state.accepted.pop_front() {
            return Next::Accepted(Box::new(accepted));
        }
        // Once the split has ended the server may go, and with it what is still to be answered.
        if state.draining && state.unanswered == 0 {
            return Next::Ended;
        }
        state.waker = Some(waker.clone());
        Next::Nothing
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            // It panics nowhere; and if it did, it has ended.
            _ = accepting.join();
        }
        let mut state = self.shared.lock();
        for connection in state.connections.values() {
            // Whoever has gone needs no word of it.
            _ = connection.shutdown(Shutdown::Both);
        }
        let accepted = std::mem::take(&mut state.accepted);
        drop(state);
        // Each gives its room back, for which it needs the lock.
        drop(accepted);
    }
}

/// Takes connections until somebody says stop. The port is free then.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut number = 0;
    while !shared.is_stopped() {
        let Ok((stream, _)) = listener.accept() else {
            // Nobody is there; or there is no descriptor left, which may change.
            thread::sleep(LOOK);
            continue;
        };
        number += 1;
        if let Err(mut stream) = begin(stream, number, shared) {
            let busy = Answer::new(503, format!("more than {CONNECTIONS_MAX} connections"));
            // A sender that cannot even take this is not waited for.
            _ = stream.set_nonblocking(true);
            _ = stream.write(&busy.bytes(false));
        }
    }
}

/// Serves a connection on a thread of its own; gives it back where there are too many.
fn begin(
    stream: TcpStream,
    number: u64,
    shared: &Arc<Shared>,
) -> std::result::Result<(), TcpStream> {
    let Ok(own) = stream.try_clone() else { return Err(stream) };
    {
        let mut state = shared.lock();
        if state.connections.len() >= CONNECTIONS_MAX {
            return Err(stream);
        }
        state.connections.insert(number, own);
    }
    let entry = Entry { number, shared: shared.clone() };
    let thread = thread::Builder::new().name("http".into());
    // Without a thread, the connection is closed with what was to run on it.
    _ = thread.spawn(move || {
        let shared = entry.shared.clone();
        // A connection that breaks concerns its sender, who got no answer.
        _ = Connection { stream, buffer: Vec::new(), shared }.serve();
        drop(entry);
    });
    Ok(())
}

/// A connection's place among those that there are.
struct Entry {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.lock().connections.remove(&self.number);
    }
}

/// A sender.
struct Connection {
    stream: TcpStream,
    /// Received, and not yet understood.
    buffer: Vec<u8>,
    shared: Arc<Shared>,
}

/// Why nothing more comes.
enum End {
    /// The sender has closed the connection, or the server stops.
    Closed,
    /// It takes too long.
    Late,
}

impl Connection {
    /// One request after the other.
    fn serve(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(READ))?;
        self.stream.set_write_timeout(Some(WRITE))?;
        self.stream.set_nodelay(true)?;
        loop {
            let head = match self.head()? {
                None => return Ok(()),
                Some(Err(answer)) => return self.refuse(&answer),
                Some(Ok(head)) => head,
            };
            let max = self.shared.served.body_bytes_max;
            if head.length > max {
                let text = format!("a body has at most {max} bytes ('max-body')");
                return self.refuse(&Answer::new(413, text));
            }
            // Before it sends in vain.
            let refusal = self.shared.refusal(&self.shared.lock());
            if let Some(refusal) = refusal {
                return self.refuse(&refusal);
            }
            let Some(room) = self.shared.room(head.length) else {
                return self.refuse(&Answer::new(429, "too much waits to be taken in"));
            };
            if head.waits && self.buffer.is_empty() {
                self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let body = match self.body(&head)? {
                Ok(body) => body,
                Err(End::Closed) => return Ok(()),
                Err(End::Late) => {
                    return self.refuse(&Answer::new(408, "the body took too long"));
                }
            };
            let (answer, answering) = self.shared.take(body, room);
            let keep_alive = head.keep_alive && answer.status != 503;
            self.stream.write_all(&answer.bytes(keep_alive))?;
            drop(answering);
            if !keep_alive {
                return Ok(());
            }
        }
    }

    /// The next head; `None` if there is none.
    fn head(&mut self) -> io::Result<Option<std::result::Result<Head, Answer>>> {
        let Patience { idle, head, .. } = self.shared.served.patience;
        let mut end = Instant::now() + idle;
        let mut begun = false;
        loop {
            // Some send an empty line behind a body.
            while self.buffer.starts_with(b"\r\n") {
                self.buffer.drain(..2);
            }
            if let Some(length) = head_end(&self.buffer).filter(|end| *end <= HEAD_BYTES_MAX) {
                let head: Vec<u8> = self.buffer.drain(..length).collect();
                return Ok(Some(parse(&head)));
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                let text = format!("a head has at most {HEAD_BYTES_MAX} bytes");
                return Ok(Some(Err(Answer::new(431, text))));
            }
            if !begun && !self.buffer.is_empty() {
                (begun, end) = (true, Instant::now() + head);
            }
            match self.receive(READ_BYTES, end)? {
                Ok(()) => {}
                Err(End::Late) if begun => {
                    return Ok(Some(Err(Answer::new(408, "the head took too long"))));
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// The body that belongs to a head.
    fn body(&mut self, head: &Head) -> io::Result<std::result::Result<Vec<u8>, End>> {
        // Checked: it is at most what one body may have.
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        let patience = self.shared.served.patience.body;
        let end =
            Instant::now() + patience + Duration::from_secs(head.length / BYTES_PER_SECOND_MIN);
        while self.buffer.len() < length {
            let missing = length - self.buffer.len();
            if let Err(why) = self.receive(missing.min(READ_BYTES), end)? {
                return Ok(Err(why));
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(Ok(std::mem::replace(&mut self.buffer, rest)))
    }

    /// Receives something, at most so many bytes.
    fn receive(&mut self, most: usize, end: Instant) -> io::Result<std::result::Result<(), End>> {
        let before = self.buffer.len();
        self.buffer.resize(before + most, 0);
        let got = loop {
            if self.shared.is_stopped() {
                break Ok(0);
            }
            match self.stream.read(&mut self.buffer[before..]) {
                Err(error) if is_later(&error) => {
                    if Instant::now() >= end {
                        self.buffer.truncate(before);
                        return Ok(Err(End::Late));
                    }
                }
                got => break got,
            }
        };
        self.buffer.truncate(before + got.as_ref().map_or(0, |got| *got));
        // A sender that sends a byte now and then takes too long, too.
        Ok(match got? {
            0 => Err(End::Closed),
            _ if Instant::now() >= end => Err(End::Late),
            _ => Ok(()),
        })
    }

    /// Answers, and closes the connection. What the sender still sends is taken in for a moment:
    /// otherwise the connection would be reset, and the answer lost.
    fn refuse(&mut self, answer: &Answer) -> io::Result<()> {
        self.stream.write_all(&answer.bytes(false))?;
        self.stream.shutdown(Shutdown::Write)?;
        let end = Instant::now() + LINGER;
        while Instant::now() < end {
            self.buffer.clear();
            if let Ok(Err(_)) | Err(_) = self.receive(READ_BYTES, end) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether nothing has come, and something may come later.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
