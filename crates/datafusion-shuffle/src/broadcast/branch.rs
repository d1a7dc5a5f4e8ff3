//! A reading end of a broadcast's flow.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};

use millstream_dfi::{Consumed, RegistryClient, Target, TargetSetup};
use millstream_fabric::Fabric;
use url::Url;

use super::reader;
use crate::common::{Common, Registered};
use crate::control::Joined;
use crate::error::{Error, Result};
use crate::frame::{Frame, Kind};
use crate::inbound::Inbound;
use crate::mover::{Member, Turn, lock};

/// Messages that a turn takes at most.
const MESSAGES: usize = 32;

/// A reading end: messages go to the inboxes of its link's streams.
pub(crate) struct Branch<F: Fabric> {
    link: Arc<Inbound<F>>,
    /// Number of the first stream, and how many there are.
    first: u32,
    count: u32,
    state: Mutex<State<F>>,
    _registered: Registered,
}

struct State<F: Fabric> {
    target: Target<F>,
    /// Streams whose end has come.
    ended: u32,
}

/// The registry of a worker.
fn address(worker: &Url, port: u32) -> Result<SocketAddr> {
    let refused =
        |reason: &str| Error::Connect { worker: worker.to_string(), reason: reason.into() };
    let port = u16::try_from(port).map_err(|_| refused("its registry has no such port"))?;
    let host = worker.host_str().ok_or_else(|| refused("its address has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host, port).to_socket_addrs().map_err(|error| refused(&error.to_string()))?;
    found.next().ok_or_else(|| refused("its host is not known"))
}

impl<F: Fabric> Branch<F> {
    /// Joins the flow, and waits for the writer and all other readers. Blocks.
    pub(crate) fn connect(
        fabric: &F,
        (common, worker): (&Arc<Common>, &Url),
        joined: &Joined,
        (link, first, count): (Arc<Inbound<F>>, u32, u32),
    ) -> Result<Branch<F>> {
        let patience = common.config.patience;
        let registry = RegistryClient::new(common.token, address(worker, joined.port)?);
        let thread = reader(joined.target);
        let setup = TargetSetup::join(fabric, &registry, &joined.flow, thread, patience)?;
        let target = setup.connect(&registry, patience)?;
        let _registered = Registered::new(common, target.counters().ring_bytes);
        let state = Mutex::new(State { target, ended: 0 });
        Ok(Branch { link, first, count, state, _registered })
    }

    /// Takes what has come. Returns whether there was anything, or `None` at the end.
    fn drain(&self, state: &mut State<F>) -> Result<Option<bool>> {
        for taken in 0..MESSAGES {
            match state.target.try_consume()? {
                Consumed::Batch(batch) => {
                    let kind = self.arrived(batch.bytes())?;
                    state.ended += u32::from(matches!(kind, Kind::End | Kind::Failed));
                }
                Consumed::Empty | Consumed::Gap(_) => return Ok(Some(taken > 0)),
                Consumed::End if state.ended < self.count => return Err(self.lost()),
                Consumed::End => return Ok(None),
            }
        }
        Ok(Some(true))
    }

    fn arrived(&self, padded: &[u8]) -> Result<Kind> {
        let worker = || self.link.worker.clone();
        let broken = |what: &str| Error::Protocol { worker: worker(), what: what.into() };
        let message = Frame::unpad(padded);
        let frame = message.and_then(Frame::decode);
        let (Some(message), Some(frame)) = (message, frame) else {
            return Err(broken("a message's header is wrong"));
        };
        if frame.stream >= self.count {
            return Err(broken("a broadcast has no such stream"));
        }
        let stream = self.first + frame.stream;
        self.link.copied(Frame { stream, ..frame }, message)?;
        Ok(frame.kind)
    }

    fn lost(&self) -> Error {
        let reason = "its process has ended the broadcast".into();
        Error::Lost { worker: self.link.worker.clone(), reason }
    }
}

impl<F: Fabric> Member for Branch<F> {
    fn turn(&self) -> Turn {
        let mut state = lock(&self.state);
        let streams = self.first..self.first + self.count;
        if state.ended < self.count && !self.link.has_streams(streams.clone()) {
            // All were closed before their end. The writer drops this end from the flow.
            return Turn::Gone;
        }
        match self.drain(&mut state) {
            Ok(Some(true)) => Turn::Moved,
            Ok(Some(false)) => Turn::Waiting,
            Ok(None) => Turn::Gone,
            Err(error) => {
                self.link.fail_streams(streams, &error);
                Turn::Gone
            }
        }
    }
}
