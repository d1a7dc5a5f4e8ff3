//! Connections of the control plane, apart from the messages that go over them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// A network between the processes of a job: process 0 listens, the other processes connect.
pub trait Transport: Send + Sync {
    /// Listens at a new address, which invitations name.
    fn listen(&self) -> io::Result<Box<dyn Acceptor>>;

    /// Connects to the address of an acceptor.
    ///
    /// # Errors
    /// `ConnectionRefused` if the acceptor is gone, `TimedOut` after `patience`.
    fn connect(&self, address: &str, patience: Duration) -> io::Result<Arc<dyn Stream>>;
}

/// The listening end of a transport.
pub trait Acceptor: Send {
    /// Address to connect to.
    fn address(&self) -> io::Result<String>;

    /// Waits for the next caller; with the caller's address, for messages.
    fn accept(&self) -> io::Result<(Arc<dyn Stream>, String)>;
}

/// A connection: bytes in both directions, in order. Several threads write, and another reads.
pub trait Stream: Send + Sync {
    /// Reads some bytes; none at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` after `patience`.
    fn read(&self, bytes: &mut [u8], patience: Duration) -> io::Result<usize>;

    /// Writes all bytes; gives up after `patience` in which none is taken.
    fn write(&self, bytes: &[u8], patience: Duration) -> io::Result<()>;

    /// Ends one direction or both, also for a thread that waits in [`Stream::read`].
    fn close(&self, how: Shutdown);

    /// This end's address and the other end's.
    fn hosts(&self) -> [IpAddr; 2] {
        [Ipv4Addr::LOCALHOST.into(); 2]
    }
}

/// TCP over the loopback interface.
#[derive(Debug, Clone, Copy)]
pub struct Loopback;

impl Transport for Loopback {
    fn listen(&self) -> io::Result<Box<dyn Acceptor>> {
        Ok(Box::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?))
    }

    fn connect(&self, address: &str, patience: Duration) -> io::Result<Arc<dyn Stream>> {
        connect(address, patience)
    }
}

/// TCP between hosts: process 0 listens at an address that all processes were given.
#[derive(Debug, Clone)]
pub struct Network {
    /// `host:port`, where the host may be a name.
    pub address: String,
}

impl Transport for Network {
    fn listen(&self) -> io::Result<Box<dyn Acceptor>> {
        Ok(Box::new(TcpListener::bind(&self.address)?))
    }

    fn connect(&self, address: &str, patience: Duration) -> io::Result<Arc<dyn Stream>> {
        connect(address, patience)
    }
}

/// Connects to the first of a name's addresses that answers.
fn connect(address: &str, patience: Duration) -> io::Result<Arc<dyn Stream>> {
    let mut failed = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Arc::new(stream));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl Acceptor for TcpListener {
    fn address(&self) -> io::Result<String> {
        Ok(self.local_addr()?.to_string())
    }

    fn accept(&self) -> io::Result<(Arc<dyn Stream>, String)> {
        let (stream, from) = TcpListener::accept(self)?;
        stream.set_nodelay(true)?;
        Ok((Arc::new(stream), from.to_string()))
    }
}

impl Stream for TcpStream {
    fn read(&self, bytes: &mut [u8], patience: Duration) -> io::Result<usize> {
        self.set_read_timeout(Some(patience))?;
        Read::read(&mut &*self, bytes)
    }

    fn write(&self, bytes: &[u8], patience: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(patience))?;
        Write::write_all(&mut &*self, bytes)
    }

    fn close(&self, how: Shutdown) {
        // A connection that is gone has ended already.
        let _ = self.shutdown(how);
    }

    fn hosts(&self) -> [IpAddr; 2] {
        let unknown = || IpAddr::from(Ipv4Addr::LOCALHOST);
        [self.local_addr(), self.peer_addr()]
            .map(|found| found.map_or_else(|_| unknown(), |it| it.ip()))
    }
}
