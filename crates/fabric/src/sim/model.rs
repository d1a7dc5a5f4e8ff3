//! The model of a simulated node's link: bandwidth, latency, message rate, and faults.

use std::time::Duration;

/// How the bytes of one write reach memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All at once.
    Whole,
    /// In several parts, lower addresses first.
    Ordered,
    /// In several parts, in any order: allowed by the standard, and why polling a footer relies on
    /// the hardware.
    Shuffled,
}

/// A node's link. Of two nodes that talk, the sender's figures hold on the way out, the receiver's
/// on the way in; the latency is the larger one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Payload bytes per second, in each direction.
    pub bytes_per_s: u64,
    /// Messages per second, in each direction: the least time of a message is one of them.
    pub messages_per_s: u64,
    /// Time from the last byte sent to the last byte received.
    pub latency: Duration,
    /// How bytes land in this node's memory.
    pub placement: Placement,
    /// Probability that a datagram is lost, from 0 to 1.
    pub datagram_loss: f64,
    /// Probability that a datagram arrives twice.
    pub datagram_repeat: f64,
    /// Probability that a datagram is delayed by up to ten latencies, so that later datagrams
    /// overtake it.
    pub datagram_delay: f64,
}

impl Default for Model {
    /// The paper's hardware (section 8.1): one port of 100 Gb/s, of which 11.8 GB/s were measured.
    /// Latency and message rate are those that the paper's reference 32 gives for such cards, 1 µs
    /// one way and 35 million messages a second. Nothing is lost.
    fn default() -> Self {
        Model {
            bytes_per_s: 11_800_000_000,
            messages_per_s: 35_000_000,
            latency: Duration::from_micros(1),
            placement: Placement::Whole,
            datagram_loss: 0.0,
            datagram_repeat: 0.0,
            datagram_delay: 0.0,
        }
    }
}

impl Model {
    /// Nanoseconds that a message of so many bytes occupies the link.
    pub(super) fn occupied_ns(&self, bytes: usize) -> u64 {
        let by_bytes =
            (bytes as u128 * 1_000_000_000).div_ceil(u128::from(self.bytes_per_s.max(1)));
        let by_messages = 1_000_000_000 / self.messages_per_s.max(1);
        u64::try_from(by_bytes).unwrap_or(u64::MAX / 4).max(by_messages)
    }
}

/// The simulation's only source of chance (SplitMix64).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True with this probability.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}
