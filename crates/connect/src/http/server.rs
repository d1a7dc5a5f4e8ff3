//! The server: a thread that takes connections, and one for each of them. Tables of one address
//! share it, each with a path of its own ([`super::route`]).
//!
//! A body counts from before it is read until its records are decoded and handed to a worker. If
//! too much waits, the sender is told to come again later. A thread waits for a sender a moment at
//! a time, so all end soon after the last [`Server`] is dropped. Where there are too many
//! connections, the one that has been idle longest gives way to a new one.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memchr::memmem;

use super::body::{LINE_BYTES_MAX, chunk_bytes, too_large};
use super::request::{Answer, FIELDS_MAX, HEAD_BYTES_MAX, Head, head_end, parse};
use super::route::{Room, Route, Served};

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

/// Takes requests for a table until it is dropped.
pub(super) struct Server {
    pub(super) route: Arc<Route>,
    listener: Arc<Listener>,
}

/// A port, and the thread that takes connections there, as long as there is a table.
struct Listener {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

/// The ports of this process, by the address that was asked for.
static LISTENERS: Mutex<Vec<(SocketAddr, Weak<Listener>)>> = Mutex::new(Vec::new());

/// What all threads of a port share.
struct Shared {
    patience: Patience,
    stopped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// One for each table, each with another path.
    routes: Vec<Arc<Route>>,
    connections: BTreeMap<u64, Open>,
}

/// A connection.
struct Open {
    stream: TcpStream,
    stage: Stage,
    /// When the stage began.
    since: Instant,
}

/// Progress of a connection. Where there are too many, those of the first stage go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing has come since the last answer.
    Idle,
    Receiving,
    /// The body has come; the answer has not been sent.
    Answering,
}

impl Shared {
    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn set_stage(&self, number: u64, stage: Stage) {
        if let Some(open) = self.lock().connections.get_mut(&number)
            && open.stage != stage
        {
            (open.stage, open.since) = (stage, Instant::now());
        }
    }

    /// The table of a path, or why there is none.
    fn route(&self, path: &str) -> Result<Arc<Route>, Answer> {
        let state = self.lock();
        let found = state.routes.iter().find(|route| *route.served.path == *path);
        found.cloned().ok_or_else(|| {
            if state.routes.is_empty() {
                return Answer::new(503, "the job has ended");
            }
            let paths: Vec<&str> = state.routes.iter().map(|route| &*route.served.path).collect();
            Answer::new(404, format!("records are sent to {}", paths.join(" or ")))
        })
    }
}

impl State {
    /// Ends the connection that has been idle longest, or else has been receiving longest; whether
    /// there was one. Whoever serves it reads its end.
    fn end_oldest(&mut self) -> bool {
        let ready = self.connections.iter().filter(|(_, open)| open.stage < Stage::Answering);
        let oldest = ready.min_by_key(|(_, open)| (open.stage, open.since));
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        if let Some(open) = self.connections.remove(&number) {
            // Whoever has gone needs no word of it.
            _ = open.stream.shutdown(Shutdown::Both);
        }
        true
    }
}

impl Server {
    /// Takes requests for this table from now on, beside those for others on the same address.
    pub(super) fn start(
        address: SocketAddr,
        served: Served,
        patience: Patience,
    ) -> io::Result<(Server, SocketAddr)> {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|(_, listener)| listener.strong_count() > 0);
        let shares = |(other, _): &&(SocketAddr, _)| *other == address && address.port() != 0;
        let known = listeners.iter().find(shares).and_then(|(_, listener)| listener.upgrade());
        let listener = match known {
            Some(listener) => listener,
            None => {
                let listener = Arc::new(Listener::start(address, patience)?);
                listeners.push((address, Arc::downgrade(&listener)));
                listener
            }
        };
        drop(listeners);
        let route = Arc::new(Route::new(served));
        let mut state = listener.shared.lock();
        if state.routes.iter().any(|other| other.served.path == route.served.path) {
            let message = "another table has this path: give each a 'path' of its own";
            return Err(io::Error::new(ErrorKind::AddrInUse, message));
        }
        state.routes.push(route.clone());
        drop(state);
        let address = listener.address;
        Ok((Server { route, listener }, address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listener.shared.lock().routes.retain(|route| !Arc::ptr_eq(route, &self.route));
        self.route.close();
    }
}

impl Listener {
    fn start(address: SocketAddr, patience: Patience) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stopped, state) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { patience, stopped, state });
        let own = shared.clone();
        let accepting = thread::Builder::new().name("http".into());
        let accepting = accepting.spawn(move || accept(&listener, &own))?;
        Ok(Listener { shared, address, accepting: Some(accepting) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            // It panics nowhere; and if it did, it has ended.
            _ = accepting.join();
        }
        for open in self.shared.lock().connections.values() {
            // Whoever has gone needs no word of it.
            _ = open.stream.shutdown(Shutdown::Both);
        }
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
            let text = format!("{CONNECTIONS_MAX} bodies are being taken in");
            let busy = Answer::new(503, text);
            // A sender that cannot even take this is not waited for.
            _ = stream.set_nonblocking(true);
            _ = stream.write(&busy.bytes(false));
        }
    }
}

/// Serves a connection on a thread of its own; gives it back where there are too many.
fn begin(stream: TcpStream, number: u64, shared: &Arc<Shared>) -> Result<(), TcpStream> {
    let Ok(own) = stream.try_clone() else { return Err(stream) };
    {
        let mut state = shared.lock();
        if state.connections.len() >= CONNECTIONS_MAX && !state.end_oldest() {
            return Err(stream);
        }
        let (stage, since) = (Stage::Idle, Instant::now());
        state.connections.insert(number, Open { stream: own, stage, since });
    }
    let entry = Entry { number, shared: shared.clone() };
    let thread = thread::Builder::new().name("http".into());
    // Without a thread, the connection is closed with what was to run on it.
    _ = thread.spawn(move || {
        let shared = entry.shared.clone();
        // A connection that breaks concerns its sender, who got no answer.
        _ = Connection { stream, buffer: Vec::new(), number, shared }.serve();
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
    number: u64,
    shared: Arc<Shared>,
}

/// Why nothing more comes.
enum End {
    /// The sender has closed the connection, or it is broken, or the server stops.
    Closed,
    /// It takes too long.
    Late,
    /// It is not taken.
    Refused(Answer),
}

impl From<Answer> for End {
    fn from(answer: Answer) -> End {
        End::Refused(answer)
    }
}

impl Connection {
    /// One request after the other.
    fn serve(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(READ))?;
        self.stream.set_write_timeout(Some(WRITE))?;
        self.stream.set_nodelay(true)?;
        loop {
            let head = match self.head() {
                None => return Ok(()),
                Some(Err(answer)) => return self.refuse(&answer),
                Some(Ok(head)) => head,
            };
            let route = match self.shared.route(&head.path) {
                Ok(route) => route,
                Err(answer) => return self.refuse(&answer),
            };
            // Before it sends in vain.
            if let Some(refusal) = route.refusal() {
                return self.refuse(&refusal);
            }
            let mut room = route.room();
            let body = match self.body(&head, &route, &mut room) {
                Ok(body) => body,
                Err(End::Closed) => return Ok(()),
                Err(End::Late) => {
                    return self.refuse(&Answer::new(408, "the body took too long"));
                }
                Err(End::Refused(answer)) => return self.refuse(&answer),
            };
            self.shared.set_stage(self.number, Stage::Answering);
            let (answer, answering) = route.take(body, head.packed, room);
            let keep_alive = head.keep_alive && answer.status != 503;
            self.stream.write_all(&answer.bytes(keep_alive))?;
            drop(answering);
            if !keep_alive {
                return Ok(());
            }
        }
    }

    /// The next head; `None` if there is none.
    fn head(&mut self) -> Option<Result<Head, Answer>> {
        let Patience { idle, head, .. } = self.shared.patience;
        let mut end = Instant::now() + idle;
        let mut begun = false;
        self.shared.set_stage(self.number, Stage::Idle);
        loop {
            // Some send an empty line behind a body.
            while self.buffer.starts_with(b"\r\n") {
                self.buffer.drain(..2);
            }
            if let Some(length) = head_end(&self.buffer).filter(|end| *end <= HEAD_BYTES_MAX) {
                let head: Vec<u8> = self.buffer.drain(..length).collect();
                return Some(parse(&head));
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                let text = format!("a head has at most {HEAD_BYTES_MAX} bytes");
                return Some(Err(Answer::new(431, text)));
            }
            if !begun && !self.buffer.is_empty() {
                (begun, end) = (true, Instant::now() + head);
                self.shared.set_stage(self.number, Stage::Receiving);
            }
            match self.receive(READ_BYTES, end) {
                Ok(()) => {}
                Err(End::Late) if begun => {
                    return Some(Err(Answer::new(408, "the head took too long")));
                }
                Err(_) => return None,
            }
        }
    }

    /// The body that belongs to a head, as it is sent.
    fn body(&mut self, head: &Head, route: &Route, room: &mut Room) -> Result<Vec<u8>, End> {
        self.shared.set_stage(self.number, Stage::Receiving);
        let max = route.served.body_bytes_max;
        let begun = Instant::now() + self.shared.patience.body;
        let end = |bytes: u64| begun + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        let Some(length) = head.length else {
            self.go_on(head)?;
            return self.chunks(max, room, end);
        };
        if length > max {
            return Err(too_large(max).into());
        }
        room.add(length)?;
        self.go_on(head)?;
        // Checked: it is at most what one body may have.
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        self.fill(bytes, end(length))?;
        let rest = self.buffer.split_off(bytes);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Tells a sender to go on that waits for it.
    fn go_on(&mut self, head: &Head) -> Result<(), End> {
        if head.waits && self.buffer.is_empty() {
            let sent = self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
            sent.map_err(|_| End::Closed)?;
        }
        Ok(())
    }

    /// A body that comes in chunks. `end` says how long so many bytes may take.
    fn chunks(
        &mut self,
        max: u64,
        room: &mut Room,
        end: impl Fn(u64) -> Instant,
    ) -> Result<Vec<u8>, End> {
        let mut body = Vec::new();
        loop {
            let before = body.len() as u64;
            let bytes = chunk_bytes(&self.line(end(before))?)?;
            if bytes == 0 {
                break;
            }
            if bytes > max - before {
                return Err(too_large(max).into());
            }
            room.add(bytes)?;
            let count = bytes as usize;
            self.fill(count + 2, end(before + bytes))?;
            if !self.buffer[count..].starts_with(b"\r\n") {
                return Err(Answer::new(400, "a chunk does not end where it should").into());
            }
            body.extend_from_slice(&self.buffer[..count]);
            self.buffer.drain(..count + 2);
        }
        // Fields behind the body say nothing that is asked for.
        for _ in 0..FIELDS_MAX {
            if self.line(end(body.len() as u64))?.is_empty() {
                return Ok(body);
            }
        }
        let text = format!("more than {FIELDS_MAX} fields behind the body");
        Err(Answer::new(431, text).into())
    }

    /// A line between chunks, without its end.
    fn line(&mut self, end: Instant) -> Result<Vec<u8>, End> {
        loop {
            let begin = &self.buffer[..self.buffer.len().min(LINE_BYTES_MAX)];
            if let Some(at) = memmem::find(begin, b"\r\n") {
                let mut line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                line.truncate(at);
                return Ok(line);
            }
            if self.buffer.len() >= LINE_BYTES_MAX {
                return Err(Answer::new(400, "a line between chunks has no end").into());
            }
            // What belongs to the chunk is better received with the rest of it.
            self.receive(LINE_BYTES_MAX / 4, end)?;
        }
    }

    /// Receives until there are so many bytes.
    fn fill(&mut self, bytes: usize, end: Instant) -> Result<(), End> {
        while self.buffer.len() < bytes {
            self.receive((bytes - self.buffer.len()).min(READ_BYTES), end)?;
        }
        Ok(())
    }

    /// Receives something, at most so many bytes.
    fn receive(&mut self, most: usize, end: Instant) -> Result<(), End> {
        let before = self.buffer.len();
        self.buffer.resize(before + most, 0);
        let got = loop {
            if self.shared.is_stopped() {
                break 0;
            }
            match self.stream.read(&mut self.buffer[before..]) {
                Ok(got) => break got,
                Err(error) if is_later(&error) && Instant::now() < end => {}
                Err(error) if is_later(&error) => {
                    self.buffer.truncate(before);
                    return Err(End::Late);
                }
                // A connection that breaks concerns its sender, who gets no answer.
                Err(_) => break 0,
            }
        };
        self.buffer.truncate(before + got);
        // A sender that sends a byte now and then takes too long, too.
        match got {
            0 => Err(End::Closed),
            _ if Instant::now() >= end => Err(End::Late),
            _ => Ok(()),
        }
    }

    /// Answers, and closes the connection. What the sender still sends is taken in for a moment:
    /// otherwise the connection would be reset, and the answer lost.
    fn refuse(&mut self, answer: &Answer) -> io::Result<()> {
        self.stream.write_all(&answer.bytes(false))?;
        self.stream.shutdown(Shutdown::Write)?;
        let end = Instant::now() + LINGER;
        while Instant::now() < end {
            self.buffer.clear();
            if self.receive(READ_BYTES, end).is_err() {
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
