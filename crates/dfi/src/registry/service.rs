//! The registry of a job's processes: a service of process 0, over TCP, with the job's token.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_fabric::setup::{HEAD_BYTES, Hello, SetupError, Token, check_head, head};

use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::registry::message::{Answer, Request, receive, send};
use crate::registry::{End, LocalRegistry, Registry};

/// Patience with a peer that should send or take bytes.
const IO_PATIENCE: Duration = Duration::from_secs(5);
/// Longest patience of a request.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// Most requests at a time; more are refused by closing their connections.
const REQUESTS_MAX: usize = 1 << 12;
/// Pause before a service that does not listen yet is called again.
const RETRY: Duration = Duration::from_millis(20);

/// A registry that answers the calls of [`RegistryClient`]s. The service's own process uses
/// [`RegistryService::local`]. Dropping it ends the service; flows whose threads have connected go
/// on.
pub struct RegistryService {
    local: LocalRegistry,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl RegistryService {
    /// Listens at an address; port 0 takes a free one. Peers need the token.
    ///
    /// # Errors
    /// The address is taken, or the system has no more threads.
    pub fn open(token: Token, address: SocketAddr) -> Result<RegistryService> {
        let listener = TcpListener::bind(address).map_err(SetupError::from)?;
        let address = listener.local_addr().map_err(SetupError::from)?;
        let (local, stop) = (LocalRegistry::new(), Arc::new(AtomicBool::new(false)));
        let (registry, stopped) = (local.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("dfi-registry".into());
        let listener = thread
            .spawn(move || listen(&listener, &registry, &token, &stopped))
            .map_err(SetupError::from)?;
        Ok(RegistryService { local, address, stop, listener: Some(listener) })
    }

    /// The address to call.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The registry itself, for threads of this process.
    pub fn local(&self) -> &LocalRegistry {
        &self.local
    }
}

impl Drop for RegistryService {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The call ends the wait for the next connection.
        let called = TcpStream::connect_timeout(&self.address, IO_PATIENCE);
        if let (Ok(_), Some(listener)) = (called, self.listener.take()) {
            let _ = listener.join();
        }
    }
}

/// Takes connections until the service ends; each has a thread of its own.
fn listen(listener: &TcpListener, registry: &LocalRegistry, token: &Token, stop: &AtomicBool) {
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptors left, say: others may be closed meanwhile.
            std::thread::sleep(RETRY);
            continue;
        };
        if busy.load(Ordering::Acquire) >= REQUESTS_MAX {
            continue;
        }
        busy.fetch_add(1, Ordering::AcqRel);
        let (registry, token, done) = (registry.clone(), *token, busy.clone());
        let thread = std::thread::Builder::new().name("dfi-registry-call".into());
        let spawned = thread.spawn(move || {
            // A caller that does not keep to the protocol gets no answer.
            let _ = serve(stream, &registry, &token);
            done.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Answers one request. Strangers learn nothing.
fn serve(mut stream: TcpStream, registry: &LocalRegistry, token: &Token) -> Result<()> {
    prepare(&stream, IO_PATIENCE).map_err(SetupError::from)?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).map_err(SetupError::from)?;
    check_head(&head, token)?;
    let request = Request::decode(&receive(&mut stream)?, token)?;
    let answer = perform(registry, request).unwrap_or_else(Answer::Refused);
    send(&mut stream, &answer.encode(token)?)
}

fn prepare(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(IO_PATIENCE))?;
    stream.set_read_timeout(Some(patience))
}

fn perform(registry: &LocalRegistry, request: Request) -> Result<Answer> {
    Ok(match request {
        Request::Publish(declaration) => {
            registry.publish(&declaration)?;
            Answer::Done
        }
        Request::LookUp(flow, patience) => {
            Answer::Declared(registry.look_up(&flow, patience.min(PATIENCE_MAX))?.into())
        }
        Request::Join(flow, end, hellos) => {
            registry.join(&flow, end, hellos)?;
            Answer::Done
        }
        Request::Peers(flow, end, patience) => {
            Answer::Hellos(registry.peers(&flow, end, patience.min(PATIENCE_MAX))?)
        }
        Request::Withdraw(flow) => {
            registry.withdraw(&flow)?;
            Answer::Done
        }
    })
}

/// Calls a [`RegistryService`], with a connection for each call.
#[derive(Debug, Clone)]
pub struct RegistryClient {
    token: Token,
    address: SocketAddr,
}

impl RegistryClient {
    /// A client of the service at this address. Nothing is sent yet.
    pub fn new(token: Token, address: SocketAddr) -> RegistryClient {
        RegistryClient { token, address }
    }

    /// A request that the service may answer after `patience`. A service that does not listen yet
    /// is called again for as long, and at least for some seconds.
    fn call(&self, request: &Request, patience: Duration) -> Result<Answer> {
        let bytes = request.encode(&self.token)?;
        let patience = patience.min(PATIENCE_MAX);
        let mut stream = self.connect(patience.max(IO_PATIENCE))?;
        prepare(&stream, patience + IO_PATIENCE).map_err(SetupError::from)?;
        stream.write_all(&head(&self.token)).map_err(SetupError::from)?;
        send(&mut stream, &bytes)?;
        match Answer::decode(&receive(&mut stream)?, &self.token)? {
            Answer::Refused(error) => Err(error),
            answer => Ok(answer),
        }
    }

    fn connect(&self, patience: Duration) -> Result<TcpStream> {
        let start = Instant::now();
        loop {
            match TcpStream::connect_timeout(&self.address, IO_PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) if start.elapsed() >= patience => {
                    let why = format!("no service answers at {}: {error}", self.address);
                    return Err(Error::Registry { why });
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }
}

fn unexpected<T>() -> Result<T> {
    Err(Error::Registry { why: "the service's answer does not fit the request".into() })
}

impl Registry for RegistryClient {
    fn publish(&self, declaration: &Declaration) -> Result<()> {
        match self.call(&Request::Publish(declaration.clone().into()), Duration::ZERO)? {
            Answer::Done => Ok(()),
            _ => unexpected(),
        }
    }

    fn look_up(&self, flow: &str, patience: Duration) -> Result<Declaration> {
        match self.call(&Request::LookUp(flow.into(), patience), patience)? {
            Answer::Declared(declaration) => Ok(*declaration),
            _ => unexpected(),
        }
    }

    fn join(&self, flow: &str, end: End, hellos: Vec<Hello>) -> Result<()> {
        match self.call(&Request::Join(flow.into(), end, hellos), Duration::ZERO)? {
            Answer::Done => Ok(()),
            _ => unexpected(),
        }
    }

    fn peers(&self, flow: &str, end: End, patience: Duration) -> Result<Vec<Hello>> {
        match self.call(&Request::Peers(flow.into(), end, patience), patience)? {
            Answer::Hellos(hellos) => Ok(hellos),
            _ => unexpected(),
        }
    }

    fn withdraw(&self, flow: &str) -> Result<()> {
        match self.call(&Request::Withdraw(flow.into()), Duration::ZERO)? {
            Answer::Done => Ok(()),
            _ => unexpected(),
        }
    }
}
