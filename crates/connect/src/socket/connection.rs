//! A connection that is made when it is first read, and that ends when somebody says so.
//!
//! Neither connecting, waiting for a sender, nor reading can be interrupted. So each is done for a
//! moment only, and then it is looked whether the reader is still there.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long to wait for a host to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// How long to read without a look at whether to stop.
const READ: Duration = Duration::from_millis(100);
/// How often to look for a sender.
const LOOK: Duration = Duration::from_millis(10);

/// The other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Peer {
    /// A host and its port.
    Connect(String, u16),
    /// Wait on this address for a sender.
    Listen(SocketAddr),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Connect(host, port) => write!(f, "socket {host}:{port}"),
            Peer::Listen(address) => write!(f, "socket {address}"),
        }
    }
}

/// Ends a connection when it is dropped.
#[derive(Debug)]
pub(super) struct Stop(Arc<SharedConnection>);

/// State shared by a connection and its [`Stop`].
#[derive(Debug, Default)]
struct SharedConnection {
    stopped: AtomicBool,
    /// There is a connection, or was.
    open: AtomicBool,
    /// The sender has closed it, and all that it has sent has been received.
    closed: AtomicBool,
}

impl Stop {
    /// Whether there is a connection, or was one; otherwise nothing has come.
    pub(super) fn is_open(&self) -> bool {
        self.0.open.load(Ordering::Acquire)
    }

    /// Whether the connection was ended from here: more may have been on its way. Known once the
    /// end of what has been received has been seen.
    pub(super) fn has_cut(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed) && !self.0.closed.load(Ordering::Acquire)
    }

    /// Ends the connection: nothing more is received, and what has been is followed by an end.
    pub(super) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Bytes received over a connection. The connection ends when the sender closes it, or by [`Stop`].
#[derive(Debug)]
pub(super) struct SocketConnection {
    state: ConnectionState,
    shared: Arc<SharedConnection>,
}

#[derive(Debug)]
enum ConnectionState {
    Connect(String, u16),
    Accept(TcpListener),
    /// Until the first byte has come, with the listener: a silent peer is no sender.
    Open(TcpStream, Option<TcpListener>),
}

impl SocketConnection {
    /// Also returns the listening address, if there is one, before the first connection: so its
    /// readers can connect.
    pub(super) fn new(peer: &Peer) -> io::Result<(SocketConnection, Stop, Option<SocketAddr>)> {
        let (state, address) = match peer {
            Peer::Connect(host, port) => (ConnectionState::Connect(host.clone(), *port), None),
            Peer::Listen(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                (ConnectionState::Accept(listener), Some(address))
            }
        };
        let shared = Arc::<SharedConnection>::default();
        let stop = Stop(shared.clone());
        Ok((SocketConnection { state, shared }, stop, address))
    }

    fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Makes the connection; `None`: it has been stopped before.
    fn open(&mut self) -> io::Result<Option<TcpStream>> {
        match &self.state {
            ConnectionState::Connect(host, port) => self.connect(host, *port),
            ConnectionState::Accept(listener) => self.accept(listener),
            ConnectionState::Open(..) => Ok(None),
        }
    }

    fn connect(&self, host: &str, port: u16) -> io::Result<Option<TcpStream>> {
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let mut failed = io::Error::new(ErrorKind::NotConnected, "the host has no address");
        // A name may have several addresses; not all of them need to answer.
        for address in (name, port).to_socket_addrs()? {
            if self.is_stopped() {
                return Ok(None);
            }
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Waits for another sender, since this peer has sent nothing.
    fn goes_on(&mut self, listener: TcpListener) {
        self.shared.open.store(false, Ordering::Release);
        self.state = ConnectionState::Accept(listener);
    }

    fn accept(&self, listener: &TcpListener) -> io::Result<Option<TcpStream>> {
        while !self.is_stopped() {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(Some(stream));
                }
                // It had given up before it was looked at.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if is_later(&error) => thread::sleep(LOOK),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Whether nothing has come, and something may come later. (`TimedOut` is the system's word for a
/// connection whose other side does not answer any more.)
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Read for SocketConnection {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !matches!(self.state, ConnectionState::Open(..)) {
                let Some(stream) = self.open()? else { return Ok(0) };
                stream.set_read_timeout(Some(READ))?;
                let before =
                    std::mem::replace(&mut self.state, ConnectionState::Open(stream, None));
                if let (ConnectionState::Accept(before), ConnectionState::Open(_, listener)) =
                    (before, &mut self.state)
                {
                    *listener = Some(before);
                }
                self.shared.open.store(true, Ordering::Release);
            }
            if self.is_stopped() {
                return Ok(0);
            }
            let ConnectionState::Open(stream, listener) = &mut self.state else { return Ok(0) };
            match (stream.read(out), listener.take()) {
                (Err(error), before) if is_later(&error) => *listener = before,
                // A port scan, say.
                (Ok(0), Some(before)) => self.goes_on(before),
                (Err(error), Some(before)) if error.kind() == ErrorKind::ConnectionReset => {
                    self.goes_on(before);
                }
                // The first byte closes the port: there is one sender.
                (got, _) => {
                    if matches!(got, Ok(0)) {
                        self.shared.closed.store(true, Ordering::Release);
                    }
                    return got;
                }
            }
        }
    }
}
