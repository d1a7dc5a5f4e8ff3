//! Ports that take records. Tables of one address share a port, each with a path of its own
//! ([`super::route`]).
//!
//! A body counts from before it is read until its records are decoded and handed to a worker. If
//! too much waits, the sender is told to come again later.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::message::{Answer, Head, Words};
use super::receive::Bounds;
use super::request::post;
use super::route::{Route, Served};
use super::server::{End, Limits, Port, Sender, Service};

pub(super) const LIMITS: Limits = Limits {
    connections: 64,
    head_bytes: 16 << 10,
    idle: Duration::from_secs(60),
    head: Duration::from_secs(10),
    answers_cut: false,
    words: Words { allow: "POST", fields: "", busy: "64 bodies are being taken in" },
};

/// Time for a body, beside the time for its bytes.
pub(super) const BODY: Duration = Duration::from_secs(10);

/// Takes requests for a table until it is dropped.
pub(super) struct Server {
    pub(super) route: Arc<Route>,
    port: Arc<Port<Routes>>,
}

/// The tables of a port, each with another path.
struct Routes {
    routes: Mutex<Vec<Arc<Route>>>,
    /// Time for a body, beside the time for its bytes.
    body: Duration,
}

/// The ports of this process, by the requested address.
static PORTS: Mutex<Vec<(SocketAddr, Weak<Port<Routes>>)>> = Mutex::new(Vec::new());

impl Server {
    /// Takes requests for this table from now on, beside those for others on the same address.
    pub(super) fn start(
        address: SocketAddr,
        served: Served,
        limits: Limits,
        body: Duration,
    ) -> io::Result<(Server, SocketAddr)> {
        let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|(_, port)| port.strong_count() > 0);
        let shares = |(other, _): &&(SocketAddr, _)| *other == address && address.port() != 0;
        let known = ports.iter().find(shares).and_then(|(_, port)| port.upgrade());
        let port = match known {
            Some(port) => port,
            None => {
                let routes = Routes { routes: Mutex::default(), body };
                let port = Arc::new(Port::open(address, routes, limits)?);
                ports.push((address, Arc::downgrade(&port)));
                port
            }
        };
        drop(ports);
        let route = Arc::new(Route::new(served));
        let mut routes = port.service().lock();
        if routes.iter().any(|other| other.served.path == route.served.path) {
            let message = "another table has this path: give each a 'path' of its own";
            return Err(io::Error::new(ErrorKind::AddrInUse, message));
        }
        routes.push(route.clone());
        drop(routes);
        let address = port.address();
        Ok((Server { route, port }, address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.port.service().lock().retain(|route| !Arc::ptr_eq(route, &self.route));
        self.route.close();
    }
}

impl Routes {
    /// A panic elsewhere cannot leave the list half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Route>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of a path, or why there is none.
    fn route(&self, path: &str) -> Result<Arc<Route>, Answer> {
        let routes = self.lock();
        let found = routes.iter().find(|route| *route.served.path == *path);
        found.cloned().ok_or_else(|| {
            if routes.is_empty() {
                return Answer::new(503, "the job has ended");
            }
            let paths: Vec<&str> = routes.iter().map(|route| &*route.served.path).collect();
            Answer::new(404, format!("records are sent to {}", paths.join(" or ")))
        })
    }
}

impl Service for Routes {
    fn serve(&self, head: &Head, sender: &mut Sender) -> Result<(), End> {
        let post = post(head)?;
        let route = self.route(&post.path)?;
        if post.sequence.is_some() && route.served.journal.is_none() {
            let text = "a body with Millstream-Sequence needs a table with a 'journal'";
            return Err(Answer::new(400, text).into());
        }
        // Before it sends in vain.
        if let Some(refusal) = route.refusal() {
            return Err(refusal.into());
        }
        let mut room = route.room();
        let (bytes_max, begin) = (route.served.body_bytes_max, Instant::now());
        let bounds = Bounds { bytes_max, begin, patience: self.body };
        let body = sender.body(&post, &mut room, &bounds).map_err(|end| match end {
            End::Late => Answer::new(408, "the body took too long").into(),
            end => end,
        })?;
        sender.answers();
        let (answer, _answering) = route.take(body, post.packing, post.sequence, room);
        let keep_alive = post.keep_alive && answer.status != 503;
        sender.send(&answer, keep_alive)?;
        if keep_alive { Ok(()) } else { Err(End::Closed) }
    }
}
