//! Counters of one side of a channel.

/// Counters since the channel was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes of payload sent or released.
    pub bytes: u64,
    /// Messages sent or released.
    pub messages: u64,
    /// At the sender: how often a slot was wanted and there was no credit.
    pub credit_stalls: u64,
    /// How often the completion queue was polled.
    pub polls: u64,
    /// How often this side was about to sleep.
    pub parks: u64,
    /// Write requests posted (of slots, credit and flags). Over shared memory slots and credit are
    /// stored and not posted, unless they wake the peer.
    pub writes: u64,
    /// Writes that woke the peer, or signalled with an immediate value.
    pub immediates: u64,
}
