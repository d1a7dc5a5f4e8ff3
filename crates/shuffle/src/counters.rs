//! What an endpoint has done, in numbers that hold on any machine.

use std::ops::AddAssign;

/// Counts since the endpoint was opened. Those of several endpoints can be added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages sent or received; one for each destination.
    pub messages: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Write requests posted, those with an immediate value included.
    pub writes: u64,
    /// Of them, writes with an immediate value.
    pub immediates: u64,
    /// Of the writes, and of the datagrams, those that carried only credit.
    pub credits: u64,
    /// Of the writes, those that only ask whether an idle peer is alive.
    pub probes: u64,
    /// Send requests posted.
    pub sends: u64,
    /// Read requests posted.
    pub reads: u64,
    /// Datagrams posted, credit included.
    pub datagrams: u64,
    /// Datagrams that only say that the sender is alive.
    pub keep_alives: u64,
    /// Receives posted.
    pub receives: u64,
    /// Completions taken from the completion queue.
    pub completions: u64,
    /// Times that the completion queue was polled.
    pub polls: u64,
    /// Words of memory that were looked at for a peer's news.
    pub looks: u64,
    /// Datagrams that came again and were dropped.
    pub repeated: u64,
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Bytes of registered memory, now.
    pub registered_bytes: u64,
    /// Buffers in circulation, now.
    pub buffers: u64,
    /// The most buffers that were in circulation.
    pub buffers_max: u64,
    /// Buffers that were put into circulation because none was free.
    pub added: u64,
    /// Buffers that were taken out of circulation because more than one was free.
    pub retired: u64,
    /// Times that no buffer, or no message, was there when asked for.
    pub starved: u64,
}

impl Counters {
    /// Requests to remote network cards: everything but receives.
    pub fn operations(&self) -> u64 {
        self.writes + self.sends + self.reads + self.datagrams
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        let Counters { messages, bytes, writes, immediates, credits, probes, .. } = other;
        let Counters { sends, reads, datagrams, keep_alives, receives, .. } = other;
        let Counters { completions, polls, looks, repeated, queue_pairs, .. } = other;
        let Counters { registered_bytes, buffers, buffers_max, added, retired, starved, .. } =
            other;
        for (to, from) in [
            (&mut self.messages, messages),
            (&mut self.bytes, bytes),
            (&mut self.writes, writes),
            (&mut self.immediates, immediates),
            (&mut self.credits, credits),
            (&mut self.probes, probes),
            (&mut self.sends, sends),
            (&mut self.reads, reads),
            (&mut self.datagrams, datagrams),
            (&mut self.keep_alives, keep_alives),
            (&mut self.receives, receives),
            (&mut self.completions, completions),
            (&mut self.polls, polls),
            (&mut self.looks, looks),
            (&mut self.repeated, repeated),
            (&mut self.queue_pairs, queue_pairs),
            (&mut self.registered_bytes, registered_bytes),
            (&mut self.buffers, buffers),
            (&mut self.buffers_max, buffers_max),
            (&mut self.added, added),
            (&mut self.retired, retired),
            (&mut self.starved, starved),
        ] {
            *to += from;
        }
    }
}
