//! How often an endpoint over datagrams is called.

use std::time::Duration;

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

    /// Notes a call; after an absence, messages may have been lost meanwhile.
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
