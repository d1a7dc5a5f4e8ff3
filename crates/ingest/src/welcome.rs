//! Listening for producers whose batches come over a ring.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_dfi::RegistryService;
use millstream_fabric::setup::Token;

use crate::fabric::{Device, PATIENCE, Published};
use crate::feed::Feed;
use crate::served::{Served, check_name};
use crate::slots::Placed;
use crate::wire::{self, Answer, Greeted, Greeting, Transport, Welcome};

/// Greetings that are answered at the same time; further connections are closed.
const GREETINGS_MAX: usize = 64;

/// The table that is served, and how.
pub(crate) struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) served: Served,
    pub(crate) transport: Transport,
    /// Bytes of a segment, and segments of a ring.
    pub(crate) ring: (usize, usize),
}

impl Host {
    /// Checks a greeting. Returns the producer's name in messages.
    fn check(&self, greeting: &Greeting, from: SocketAddr) -> Result<String, String> {
        let (name, table) = (&self.name, greeting.table.escape_debug());
        if *greeting.table != **name {
            return Err(format!("no table '{table}': there is {name}"));
        }
        if !self.served.admits(greeting.token.as_deref()) {
            return Err(format!(
                "table '{name}' has a token, and the producer has another or none"
            ));
        }
        match &greeting.producer {
            Some(own) => Ok(format!("{} ({from})", check_name(own)?)),
            None => Ok(from.to_string()),
        }
    }
}

/// A thread that listens for producers, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub(crate) fn start(asked: SocketAddr, host: Host) -> io::Result<Listener> {
        let listener = TcpListener::bind(asked)?;
        let address = listener.local_addr()?;
        let failed = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        let token = Token::random().map_err(|error| failed(&error))?;
        let registry = RegistryService::open(token, SocketAddr::new(address.ip(), 0));
        let registry = registry.map_err(|error| failed(&error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door { host, token, registry, greetings: AtomicUsize::new(0) };
        let (door, stopped) = (Arc::new(door), stop.clone());
        let thread = std::thread::Builder::new().name("producers".into());
        let thread = thread.spawn(move || listen(&listener, &door, &stopped))?;
        Ok(Listener { address, stop, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// State that the threads of a listener share.
struct Door {
    host: Host,
    /// The token of the registry.
    token: Token,
    registry: RegistryService,
    greetings: AtomicUsize,
}

/// A stream of which each read ends at the same time.
struct Until<'s> {
    stream: &'s TcpStream,
    until: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the greeting takes too long"));
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn listen(listener: &TcpListener, door: &Arc<Door>, stop: &AtomicBool) {
    loop {
        let stream = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        // No file descriptor is free, for example.
        let Ok((stream, from)) = stream else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if door.greetings.fetch_add(1, Ordering::AcqRel) >= GREETINGS_MAX {
            door.greetings.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let own = door.clone();
        let thread = std::thread::Builder::new().name("producer".into()).spawn(move || {
            own.greet(stream, from);
            own.greetings.fetch_sub(1, Ordering::AcqRel);
        });
        if thread.is_err() {
            door.greetings.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Door {
    /// Answers a connection.
    fn greet(&self, mut stream: TcpStream, from: SocketAddr) {
        let welcomed = stream
            .try_clone()
            .map_err(|error| error.to_string())
            .and_then(|clone| self.welcome(&mut stream, clone, from));
        if let Err(why) = welcomed {
            tracing::debug!(%from, %why, "a producer is refused");
            let _ = wire::answer(&mut stream, &Answer::Refused(why));
        }
    }

    /// Gives a producer a slot and a ring.
    fn welcome(
        &self,
        stream: &mut TcpStream,
        control: TcpStream,
        from: SocketAddr,
    ) -> Result<(), String> {
        let io = |error: io::Error| error.to_string();
        for timed in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            timed(stream, Some(PATIENCE)).map_err(io)?;
        }
        stream.set_nodelay(true).map_err(io)?;
        let until = Instant::now() + PATIENCE;
        let greeted = wire::greeted(&mut Until { stream, until }).map_err(io)?;
        let Greeted { greeting, schema, follows } = greeted;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io)?;
        let Host { name, served, transport, ring } = &self.host;
        let producer = self.host.check(&greeting, from)?;
        let place = format!("channel {name}, producer {producer}");
        let messages =
            served.messages(&place, schema.clone()).map_err(|error| error.to_string())?;
        let placed = match follows {
            true => served.slots.place(&producer),
            false => served.slots.join(&producer).map(Placed::Here),
        };
        let mut slot = match placed.map_err(|why| why.to_string())? {
            Placed::Here(slot) => slot,
            Placed::Elsewhere(port) => {
                return wire::answer(stream, &Answer::Elsewhere(port)).map_err(io);
            }
        };
        let here = stream.local_addr().map_err(io)?.ip();
        let failed = |error: &dyn std::fmt::Display| format!("{place}: {error}");
        // Producers share the registry and its token, and must not find each other's flows.
        let random = || Token::random().map_err(io);
        let token = random()?;
        let device = Device::open(*transport, token, here).map_err(|error| failed(&error))?;
        let flow = format!("{name}/{}", hexadecimal(random()?.bytes()));
        let registry = self.registry.local();
        let published = Published::new(registry, &flow, *ring).map_err(|error| failed(&error))?;
        let inflow = device.join(registry, &flow).and_then(|joined| {
            let welcome = Answer::Welcome(Welcome {
                transport: *transport,
                flow: flow.clone(),
                registry: self.registry.address().port(),
                registry_token: *self.token.bytes(),
                token: *token.bytes(),
            });
            // A producer that is gone does not join.
            let _ = wire::answer(stream, &welcome);
            joined.connect(registry)
        });
        let inflow = inflow.map_err(|error| failed(&error))?;
        slot.begin(true).map_err(|why| why.to_string())?;
        let number = slot.number();
        let feed = Feed::new(
            (inflow, published),
            (place, served.message_bytes_max),
            (messages, schema),
            (slot, control),
        );
        served.slots.attach(number, Box::new(feed));
        Ok(())
    }
}
