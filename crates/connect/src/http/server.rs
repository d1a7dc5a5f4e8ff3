//! A port: a thread takes connections, and each has a thread of its own.
//!
//! Where there are too many connections, the connection that has been idle longest gives way to a
//! new one. All connections end when the [`Port`] is dropped.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::message::{Answer, Head, Words};

/// The pause after a connection that cannot be taken.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for a sender to receive an answer.
const WRITE: Duration = Duration::from_secs(5);
/// Time for bytes sent in vain. The sender would lose the answer if they stayed unread.
const LINGER: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;

/// Answers the requests of a port.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. The body, if there is one, is still to be received.
    ///
    /// # Errors
    ///
    /// The end of the connection, perhaps with a last answer.
    fn serve(&self, head: &Head, sender: &mut Sender) -> Result<(), End>;
}

/// Limits of a port.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of a head.
    pub head_bytes: usize,
    /// Time without a request.
    pub idle: Duration,
    /// Time for a head.
    pub head: Duration,
    /// Whether a head that is cut off is answered.
    pub answers_cut: bool,
    /// Words of its answers.
    pub words: Words,
}

/// The end of a connection.
#[derive(Debug)]
pub enum End {
    /// The sender has closed the connection, or it is broken, or the port is closed.
    Closed,
    /// The sender takes too long.
    Late,
    /// The last answer.
    Answered(Answer),
}

impl From<Answer> for End {
    fn from(answer: Answer) -> End {
        End::Answered(answer)
    }
}

/// A port that is open until it is dropped.
pub struct Port<S> {
    service: Arc<S>,
    address: SocketAddr,
    connections: Arc<Connections>,
    /// The listening socket: shut down, it wakes the thread that waits for connections.
    socket: TcpStream,
    accepting: Option<JoinHandle<()>>,
}

impl<S: Service> Port<S> {
    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// The address is in use or not of this machine, or no thread can be started.
    pub fn open(address: SocketAddr, service: S, limits: Limits) -> io::Result<Port<S>> {
        let listener = TcpListener::bind(address)?;
        let (address, socket) = (listener.local_addr()?, OwnedFd::from(listener.try_clone()?));
        let (open, closed) = (Mutex::default(), AtomicBool::new(false));
        let connections = Arc::new(Connections { limits, open, closed });
        let service = Arc::new(service);
        let own = (connections.clone(), service.clone());
        let accepting = thread::Builder::new().name("http".into());
        let accepting = Some(accepting.spawn(move || accept(&listener, &own.0, &own.1))?);
        Ok(Port { service, address, connections, socket: socket.into(), accepting })
    }

    /// The address, with the port that the system has chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The service of this port.
    pub fn service(&self) -> &S {
        &self.service
    }
}

impl<S> Drop for Port<S> {
    fn drop(&mut self) {
        self.connections.closed.store(true, Ordering::Relaxed);
        // No failure is known of: the socket listens.
        _ = self.socket.shutdown(Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            // A panic there would have ended the thread, too.
            _ = accepting.join();
        }
        for open in self.connections.lock().values() {
            // A sender that has gone needs no word of it.
            _ = open.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The connections of a port.
struct Connections {
    limits: Limits,
    open: Mutex<BTreeMap<u64, Open>>,
    closed: AtomicBool,
}

struct Open {
    stream: Arc<TcpStream>,
    stage: Stage,
    /// Begin of the stage.
    since: Instant,
}

/// Progress of a connection. Where there are too many, connections of the first stage go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing has come since the last answer.
    Idle,
    Receiving,
    /// The request has come; the answer has not been sent.
    Answering,
}

impl Connections {
    /// A panic elsewhere cannot leave the map half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection; `None` if it was refused because there are too many.
    fn add(self: &Arc<Self>, number: u64, stream: TcpStream) -> Option<Sender> {
        let stream = Arc::new(stream);
        let mut open = self.lock();
        if open.len() >= self.limits.connections && !end_oldest(&mut open) {
            drop(open);
            refuse(&stream, self.limits.words);
            return None;
        }
        let since = Instant::now();
        open.insert(number, Open { stream: stream.clone(), stage: Stage::Idle, since });
        let (buffer, connections) = (Vec::new(), self.clone());
        Some(Sender { stream, buffer, number, connections, head_only: false })
    }
}

/// Ends the connection that has been idle longest, or else has been receiving longest; whether
/// there was one. Its thread reads the end.
fn end_oldest(open: &mut BTreeMap<u64, Open>) -> bool {
    let ready = open.iter().filter(|(_, open)| open.stage < Stage::Answering);
    let oldest = ready.min_by_key(|(_, open)| (open.stage, open.since));
    let Some(number) = oldest.map(|(number, _)| *number) else { return false };
    if let Some(open) = open.remove(&number) {
        // A sender that has gone needs no word of it.
        _ = open.stream.shutdown(Shutdown::Both);
    }
    true
}

/// Refuses a connection, without waiting for a sender that cannot even take this.
fn refuse(mut stream: &TcpStream, words: Words) {
    // Unread bytes would make the system throw the answer away.
    _ = stream.set_read_timeout(Some(PAUSE));
    _ = stream.read(&mut [0; READ_BYTES]);
    _ = stream.set_nonblocking(true);
    let answer = Answer::new(503, words.busy);
    _ = stream.write((answer.head(false, words) + &answer.body).as_bytes());
}

/// Takes connections until the port is closed.
fn accept<S: Service>(listener: &TcpListener, connections: &Arc<Connections>, service: &Arc<S>) {
    for number in 0.. {
        let accepted = listener.accept();
        if connections.closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // No descriptor is left, perhaps, which may change.
            thread::sleep(PAUSE);
            continue;
        };
        let Some(mut sender) = connections.add(number, stream) else { continue };
        let service = service.clone();
        // Without a thread, the connection is closed with the closure.
        _ = thread::Builder::new().name("http".into()).spawn(move || sender.serve(&*service));
    }
}

/// A connection.
pub struct Sender {
    stream: Arc<TcpStream>,
    /// Received bytes in front of the next request, or within it.
    pub(super) buffer: Vec<u8>,
    number: u64,
    connections: Arc<Connections>,
    /// The request asks for no body.
    head_only: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}

impl Sender {
    /// Answers one request after the other.
    fn serve(&mut self, service: &impl Service) {
        let options = self.stream.set_write_timeout(Some(WRITE));
        if options.and_then(|()| self.stream.set_nodelay(true)).is_err() {
            return;
        }
        loop {
            match self.head().and_then(|head| service.serve(&head, self)) {
                Ok(()) => {}
                Err(End::Answered(answer)) => return self.close(&answer),
                Err(_) => return,
            }
        }
    }

    fn set_stage(&self, stage: Stage) {
        if let Some(open) = self.connections.lock().get_mut(&self.number)
            && open.stage != stage
        {
            (open.stage, open.since) = (stage, Instant::now());
        }
    }

    /// Keeps the connection from giving way: its request is there.
    pub fn answers(&self) {
        self.set_stage(Stage::Answering);
    }

    /// The next head.
    fn head(&mut self) -> Result<Head, End> {
        let Limits { head_bytes, idle, head, answers_cut, .. } = self.connections.limits;
        let (mut begun, mut end) = (false, Instant::now() + idle);
        self.set_stage(Stage::Idle);
        loop {
            self.head_only = self.buffer.starts_with(b"HEAD ");
            let parsed = Head::parse(&self.buffer)?;
            let length = parsed.as_ref().map_or(self.buffer.len(), |(_, length)| *length);
            if length > head_bytes {
                return Err(
                    Answer::new(431, format!("a head has at most {head_bytes} bytes")).into()
                );
            }
            if let Some((head, length)) = parsed {
                self.buffer.drain(..length);
                self.set_stage(Stage::Receiving);
                return Ok(head);
            }
            if !begun && !self.buffer.trim_ascii().is_empty() {
                (begun, end) = (true, Instant::now() + head);
                self.set_stage(Stage::Receiving);
            }
            self.receive(READ_BYTES, end).map_err(|why| match why {
                End::Late if begun => Answer::new(408, "the head took too long").into(),
                End::Closed if begun && answers_cut => {
                    Answer::new(400, "the head has no end").into()
                }
                _ => End::Closed,
            })?;
        }
    }

    /// Receives until there are so many bytes.
    pub(super) fn fill(&mut self, bytes: usize, end: Instant) -> Result<(), End> {
        while self.buffer.len() < bytes {
            self.receive((bytes - self.buffer.len()).min(READ_BYTES), end)?;
        }
        Ok(())
    }

    /// Receives something, at most so many bytes.
    pub(super) fn receive(&mut self, most: usize, end: Instant) -> Result<(), End> {
        let before = self.buffer.len();
        self.buffer.resize(before + most, 0);
        let got = self.read(before, end);
        self.buffer.truncate(before + got.as_ref().map_or(0, |got| *got));
        got.map(drop)
    }

    /// Reads into the buffer, behind so many bytes.
    fn read(&mut self, before: usize, end: Instant) -> Result<usize, End> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Late);
            }
            self.stream.set_read_timeout(Some(left)).map_err(|_| End::Closed)?;
            match (&*self.stream).read(&mut self.buffer[before..]) {
                Ok(0) => return Err(End::Closed),
                Ok(got) => return Ok(got),
                Err(error) if is_later(&error) => {}
                // A broken connection concerns its sender, who gets no answer.
                Err(_) => return Err(End::Closed),
            }
        }
    }

    /// Sends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        (&*self.stream).write_all(bytes).map_err(|_| End::Closed)
    }

    /// Sends an answer.
    pub(super) fn send(&mut self, answer: &Answer, keep_alive: bool) -> Result<(), End> {
        let mut text = answer.head(keep_alive, self.connections.limits.words);
        if !self.head_only {
            text += &answer.body;
        }
        self.write(text.as_bytes())
    }

    /// Sends the last answer and closes the connection, once the sender has read the answer.
    fn close(&mut self, answer: &Answer) {
        if self.send(answer, false).is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        self.set_stage(Stage::Idle);
        let end = Instant::now() + LINGER;
        self.buffer.clear();
        while self.receive(READ_BYTES, end).is_ok() {
            self.buffer.clear();
        }
    }
}

/// Whether nothing has come, and something may come later.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
