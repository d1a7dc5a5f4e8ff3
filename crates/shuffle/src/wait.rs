//! Waiting: look again and again, let others run, and sleep between looks when it takes long.
//!
//! An endpoint polls (paper, section 8: "busy polling for latency"): what it waits for may be a
//! word in its memory that no event tells of, and several threads may wait at one endpoint.

use std::time::Duration;

use millstream_fabric::Fabric;

use crate::error::{Error, Result};

/// Sleep between looks, when spinning is over.
const NAP: Duration = Duration::from_micros(50);

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
