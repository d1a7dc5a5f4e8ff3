//! Waiting: look again and again, let others run, and sleep between looks when it takes long.
//!
//! An endpoint polls (paper, section 8: "busy polling for latency"): what it waits for may be a
//! word in its memory that no event tells of, and several threads may wait at one endpoint.

use std::time::Duration;

use millstream_fabric::Fabric;

use crate::shuffle::error::{Error, Result};

/// Sleep between looks, when spinning is over.
const NAP: Duration = Duration::from_micros(50);

/// Whether an endpoint over datagrams is called often enough to judge others by their silence.
pub(crate) struct Attention {
    /// When it was last called, and since when often enough.
    called: Duration,
    awake: Duration,
}

impl Attention {
    pub(crate) fn new(now: Duration) -> Attention {
        Attention { called: now, awake: now }
    }

    /// It is called; after an absence, what others said meanwhile may have been lost.
    pub(crate) fn call(&mut self, now: Duration, silence: Duration) {
        if now.saturating_sub(self.called) > silence / 4 {
            self.awake = now;
        }
        self.called = now;
    }

    /// How long a peer that was last heard of then has been silent while this endpoint listened.
    pub(crate) fn silent(&self, now: Duration, heard: Duration) -> Duration {
        now.saturating_sub(heard.max(self.awake))
    }
}

pub(crate) fn wait_for<F: Fabric, T>(
    fabric: &F,
    spin: Duration,
    timeout: Duration,
    what: &'static str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    if let Some(found) = look()? {
        return Ok(found);
    }
    let start = fabric.now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        let waited = fabric.now().saturating_sub(start);
        if waited >= timeout {
            return Err(Error::TimedOut { what });
        }
        if waited < spin { std::thread::yield_now() } else { std::thread::sleep(NAP) }
    }
}
