//! The settings of an exchange.

use std::time::Duration;

use millstream_flow::shuffle::{Depth, Design, Endpoints, Settings, Transport};

use crate::error::{Error, Result};
use crate::frame::HEADER_BYTES;

/// Settings of an exchange. All processes need the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Which of the shuffle's eight designs.
    pub design: Design,
    /// Bytes of a slot. A column that fits into one is never split, and can be read in place.
    pub message_bytes: usize,
    /// Slots of a lane, on each side.
    pub depth: u32,
    /// A lane's credit is written back after so many messages; at most half the depth.
    pub credit_every: u32,
    /// Endpoints of a link, among which its streams are shared out. Designs with a single endpoint
    /// have 1.
    pub lanes: u32,
    /// Bytes that a stream may be ahead of its reader, and a further batch. The limit bounds the
    /// memory for readers that wait: open streams times this.
    pub window_bytes: u64,
    /// Messages that are shorter are copied out at once: a slot is worth more than such a copy.
    pub copy_below_bytes: usize,
    /// How long the first reader of a broadcast waits for others, with which it then shares a flow.
    /// Zero: each reader gets a copy through its own link.
    pub gather: Duration,
    /// How long connecting to a worker, and its answer to a request, may take.
    pub patience: Duration,
}

impl Config {
    /// Slots of 256 KiB (a column of 8192 rows has 64 KiB if its values have 8 bytes), 16 of them,
    /// and windows of 2 MiB; over datagrams 4 KiB, and 64 slots.
    pub fn new(design: Design) -> Config {
        let (message_bytes, depth) = match design.transport {
            Transport::Datagrams => (Settings::new(design).message_bytes, 64),
            _ => (256 * 1024, 16),
        };
        let lanes = match design.endpoints {
            Endpoints::Several => 2,
            Endpoints::Single => 1,
        };
        Config {
            design,
            message_bytes,
            depth,
            credit_every: 4,
            lanes,
            window_bytes: 2 << 20,
            copy_below_bytes: 8 * 1024,
            gather: Duration::from_millis(5),
            patience: Duration::from_secs(12),
        }
    }

    /// The settings of a lane's endpoints.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            message_bytes: self.message_bytes,
            depth: Depth::Fixed(self.depth),
            credit_every: self.credit_every,
            sequences: self.design.transport == Transport::Datagrams,
            ..Settings::new(self.design)
        }
    }

    /// Bytes of a slot behind the frame's header.
    pub(crate) fn room(&self) -> usize {
        self.message_bytes - HEADER_BYTES
    }

    /// Slots of a lane that batches may hold. The others circulate, so a lane never stands still
    /// because a reader keeps what it has read. With credit after `f` messages a sender needs `f`
    /// circulating slots, which `check` makes sure of.
    pub(crate) fn held_max(&self) -> usize {
        (self.depth - self.depth.div_ceil(2)) as usize
    }

    /// Checks that the settings are possible; settings of endpoints are checked when endpoints are
    /// opened.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what, value| Err(Error::Setting { what, value });
        if self.message_bytes < 2 * HEADER_BYTES {
            return refused("a slot has 128 bytes or more", self.message_bytes as u64);
        }
        if self.lanes == 0 || (self.lanes > 1 && self.design.endpoints == Endpoints::Single) {
            let what = "a link has a lane, and more only in designs with several endpoints";
            return refused(what, self.lanes.into());
        }
        if self.lanes as usize > LANES_MAX {
            return refused("a link has at most 64 lanes", self.lanes.into());
        }
        if self.credit_every == 0 || self.credit_every > self.depth.div_ceil(2) {
            let what = "credit is written back after 1 message or more, at most half the depth";
            return refused(what, self.credit_every.into());
        }
        if self.window_bytes == 0 {
            return refused("a stream's window has a byte or more", 0);
        }
        Ok(())
    }
}

/// Most lanes of a link.
pub(crate) const LANES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_possible_for_all_designs_and_half_the_slots_circulate() {
        for design in Design::VARIANTS {
            let config = Config::new(design);
            config.check().unwrap();
            let circulating = config.depth as usize - config.held_max();
            assert!(circulating >= config.credit_every as usize, "{design:?}");
        }
        let config = Config { depth: 7, ..Config::new(Design::ALL[1]) };
        assert_eq!(config.held_max(), 3);
        config.check().unwrap();
        assert!(Config { depth: 6, ..config }.check().is_err(), "4 of 3 circulating");
        assert!(Config { lanes: 2, ..config }.check().is_err(), "a single endpoint");
    }
}
