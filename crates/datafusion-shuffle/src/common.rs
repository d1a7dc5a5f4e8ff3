//! State common to all links of a process, and their set-up messages.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use millstream_fabric::setup::{HELLO_BYTES, Hello, SetupError, Token};

use crate::config::Config;
use crate::control::Hellos;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::mover::{Bell, lock};

/// State common to all links of a process.
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) token: Token,
    pub(crate) counters: Mutex<Counters>,
    pub(crate) bell: Bell,
    /// The last id that an endpoint was given.
    pub(crate) last_id: AtomicU32,
}

impl Common {
    pub(crate) fn next_id(&self) -> u32 {
        self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    pub(crate) fn count(&self, what: impl FnOnce(&mut Counters)) {
        what(&mut lock(&self.counters));
    }
}

/// An endpoint's registered memory, which counts until this is dropped, right after the endpoint.
pub(crate) struct Registered {
    common: Arc<Common>,
    bytes: u64,
}

impl Registered {
    pub(crate) fn new(common: &Arc<Common>, bytes: u64) -> Registered {
        common.count(|counters| counters.registered_bytes += bytes);
        Registered { common: common.clone(), bytes }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.common.count(|counters| counters.registered_bytes -= self.bytes);
    }
}

/// A lane's set-up messages, for a peer that has the token.
pub(crate) fn encode_hellos(hellos: impl Iterator<Item = Hello>, token: &Token) -> Result<Hellos> {
    let encode = |hello: Hello| hello.encode(token).map(|bytes| bytes.to_vec());
    let lanes: std::result::Result<_, _> = hellos.map(encode).collect();
    let reason = |error: SetupError| error.to_string();
    let lanes =
        lanes.map_err(|error| Error::Connect { worker: "itself".into(), reason: reason(error) })?;
    Ok(Hellos { lanes })
}

/// The set-up messages of a peer that may be anybody; as many as there are lanes.
pub(crate) fn decode_hellos(hellos: &Hellos, common: &Common, peer: &str) -> Result<Vec<Hello>> {
    let refused = |reason: String| Error::Connect { worker: peer.into(), reason };
    if hellos.lanes.len() != common.config.lanes as usize {
        let (ours, theirs) = (common.config.lanes, hellos.lanes.len());
        return Err(refused(format!("links here have {ours} lanes, and its links {theirs}")));
    }
    let decode = |bytes: &Vec<u8>| {
        let bytes: &[u8; HELLO_BYTES] = bytes[..]
            .try_into()
            .map_err(|_| refused("its set-up message has a wrong length".into()))?;
        Hello::decode(bytes, &common.token).map_err(|error| refused(error.to_string()))
    };
    hellos.lanes.iter().map(decode).collect()
}
