//! The settings of a shuffle, and the sizes that follow from them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use millstream_fabric::{DATAGRAM_HEADER_BYTES, Limits, QueueSizes, Timing};

use crate::link::{BLOCK_BYTES, LINE, WAKES};
use crate::shuffle::design::{Design, Endpoints, Notification, Transport};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::wire::{HEADER_BYTES, PAYLOAD_AT, SLOTS_MAX};

/// How many buffers an endpoint has in circulation (paper, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// So many for each peer and thread, always.
    Fixed(u32),
    /// As many as keep a link busy: bandwidth times latency (section 6.1). A connection has as many
    /// as if it had the link for itself, since the peers of the others may have nothing to send.
    BandwidthDelay {
        /// The link's bandwidth.
        bytes_per_s: u64,
        /// From the sender's post until the receiver's answer is seen.
        latency: Duration,
    },
    /// Between two numbers for each peer and thread, as they are needed (section 6.2).
    Adaptive {
        /// So many at first, and never fewer.
        least: u32,
        /// Never more.
        most: u32,
    },
}

/// Meaning of `adaptive` alone: the paper has no numbers.
const ADAPTIVE: Depth = Depth::Adaptive { least: 2, most: 64 };

/// `fixed:K`, `bdp:BYTES_PER_S:LATENCY_NS`, `adaptive` or `adaptive:LEAST:MOST`.
impl FromStr for Depth {
    type Err = Error;

    fn from_str(text: &str) -> Result<Depth> {
        let parts: Vec<&str> = text.split(':').collect();
        let depth = match parts[..] {
            ["fixed", depth] => depth.parse().ok().map(Depth::Fixed),
            ["bdp", bytes_per_s, latency] => {
                let bandwidth = bytes_per_s.parse().ok();
                bandwidth.zip(latency.parse().ok()).map(|(bytes_per_s, nanoseconds)| {
                    let latency = Duration::from_nanos(nanoseconds);
                    Depth::BandwidthDelay { bytes_per_s, latency }
                })
            }
            ["adaptive"] => Some(ADAPTIVE),
            ["adaptive", least, most] => {
                let least = least.parse().ok();
                least.zip(most.parse().ok()).map(|(least, most)| Depth::Adaptive { least, most })
            }
            _ => None,
        };
        depth.ok_or_else(|| Error::NoSuchDepth { text: text.into() })
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Depth::Fixed(depth) => write!(f, "fixed:{depth}"),
            Depth::BandwidthDelay { bytes_per_s, latency } => {
                write!(f, "bdp:{bytes_per_s}:{}", latency.as_nanos())
            }
            Depth::Adaptive { least, most } => write!(f, "adaptive:{least}:{most}"),
        }
    }
}

/// A half of the shuffle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Sender = 1,
    Receiver = 2,
}

/// Settings of a shuffle. All endpoints of one need the same, but for `spin` and the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which of the eight designs.
    pub design: Design,
    /// Bytes of payload that a buffer has room for. A datagram has to fit into the fabric's.
    pub message_bytes: usize,
    /// Buffers in circulation.
    pub depth: Depth,
    /// Threads that share an endpoint; each may hold buffers. Of [`Endpoints::Several`], 1.
    pub threads: u32,
    /// Credit is written back when so many receives have been posted (f, section 7.1.1). At most
    /// the buffers for each peer: with fewer, credit would never be written.
    pub credit_every: u32,
    /// Of datagrams: whether sequence numbers are checked. They are what tells a loss with a
    /// repetition from nothing at all, and they drop repetitions (section 5.3).
    pub sequences: bool,
    /// Of datagrams: how long to wait for what is missing when a stream has ended.
    pub stragglers: Duration,
    /// Of datagrams: a peer from which something is due and nothing comes for so long is lost. From
    /// a receiver something is always due, from a sender if it has credit. A thread that may be
    /// away longer calls [`Sender::keep_alive`](crate::shuffle::Sender::keep_alive) and
    /// [`Receiver::keep_alive`](crate::shuffle::Receiver::keep_alive) meanwhile.
    pub silence: Duration,
    /// Patience of reliable connections.
    pub timing: Timing,
    /// How long a blocking call looks again and again before it sleeps. Over datagrams it then
    /// looks between naps.
    pub spin: Duration,
    /// Entries of the completion queue in place of as many as can be needed; for tests of what
    /// happens when it is too small.
    pub completion_entries: Option<u32>,
}

impl Settings {
    /// The paper's choices for a design (sections 7.1.1 and 7.1.3): messages of 64 KiB, of
    /// datagrams 4 KiB with their header, two buffers for each peer and thread, credit after two.
    /// Connections are patient for 750 ms, which a provider may double: with a quarter of a second
    /// until an idle one asks, a loss is known within two.
    pub fn new(design: Design) -> Settings {
        let message_bytes = match design.transport {
            Transport::Datagrams => 4096 - HEADER_BYTES,
            _ => 64 * 1024,
        };
        Settings {
            design,
            message_bytes,
            depth: Depth::Fixed(2),
            threads: 1,
            credit_every: 2,
            sequences: false,
            stragglers: Duration::from_millis(500),
            silence: Duration::from_secs(1),
            timing: Timing { silence: Duration::from_millis(750), receiver_not_ready: None },
            spin: Duration::from_micros(200),
            completion_entries: None,
        }
    }

    /// Buffers for one connection: at first, and at most.
    pub(crate) fn per_peer(&self) -> (u32, u32) {
        let (least, most) = match self.depth {
            Depth::Fixed(depth) => (depth, depth),
            Depth::BandwidthDelay { bytes_per_s, latency } => {
                let buffers = self.bandwidth_delay(bytes_per_s, latency);
                return (buffers, buffers);
            }
            Depth::Adaptive { least, most } => (least, most),
        };
        (least.saturating_mul(self.threads), most.saturating_mul(self.threads))
    }

    // Not inline: the division would be done ahead, of other depths' bytes, which memcheck reports.
    #[inline(never)]
    fn bandwidth_delay(&self, bytes_per_s: u64, latency: Duration) -> u32 {
        let bytes = u128::from(bytes_per_s) * latency.as_nanos() / 1_000_000_000;
        let buffers = bytes.div_ceil(self.message_bytes.max(1) as u128);
        let buffers = u32::try_from(buffers).unwrap_or(u32::MAX / LINE as u32);
        buffers.max(self.credit_every).max(2)
    }

    /// Checks that the settings are possible for `peers` peers, on a device with these limits.
    pub fn check(&self, limits: &Limits, peers: usize) -> Result<()> {
        let refused =
            |name, value: u64, why: String| Err(Error::Setting { name, value: Some(value), why });
        let (least, most) = self.per_peer();
        if peers == 0 {
            return refused("peers", 0, "an endpoint needs one".into());
        }
        if self.threads == 0 || (self.design.endpoints == Endpoints::Several && self.threads > 1) {
            let why = "an endpoint has one thread, and only a single one may have more";
            return refused("threads", self.threads.into(), why.into());
        }
        if least == 0 {
            return refused("depth", 0, "a peer needs a buffer".into());
        }
        if most < least {
            let why =
                format!("at first there are at most as many buffers as later, which is {most}");
            return refused("depth", least.into(), why);
        }
        if most as usize > SLOTS_MAX / peers {
            let why = format!(
                "an endpoint has at most {SLOTS_MAX} buffers, so of {peers} peers each has at most \
                 {}{}",
                SLOTS_MAX / peers,
                self.of_threads()
            );
            return refused("depth", most.into(), why);
        }
        if self.credit_every == 0 {
            return refused("credit_every", 0, "credit is for a message or more".into());
        }
        if self.credit_every > least {
            let why = format!(
                "a sender that has {} waits for ever if credit comes only after more messages",
                if least == 1 { "1 buffer".into() } else { format!("{least} buffers") }
            );
            return refused("credit_every", self.credit_every.into(), why);
        }
        let (what, longest) = match self.design.transport {
            Transport::Datagrams => {
                ("datagram, beside its header of 16,", limits.datagram_bytes - HEADER_BYTES)
            }
            _ => ("message", limits.message_bytes - 4 * LINE),
        };
        if self.message_bytes == 0 || self.message_bytes > longest {
            let why = format!("a {what} has 1 to {longest} bytes on this fabric");
            return refused("message_bytes", self.message_bytes as u64, why);
        }
        if self.design.transport == Transport::Write(Notification::Buffers)
            && !limits.ordered_placement
        {
            let why = "polling buffers needs a fabric that places bytes in address order".into();
            return Err(Error::Setting { name: "design", value: None, why });
        }
        self.check_queues(limits, peers)
    }

    /// Why a peer's buffers are more than the depth says.
    fn of_threads(&self) -> String {
        match self.threads {
            1 => String::new(),
            threads => format!(" ({} for each of {threads} threads)", self.per_peer().1 / threads),
        }
    }

    /// Checks that the fabric's queues have room for the requests of all buffers.
    fn check_queues(&self, limits: &Limits, peers: usize) -> Result<()> {
        for (queues, pairs) in [Role::Sender, Role::Receiver].map(|role| self.queues(role, peers)) {
            for (what, needed, max) in [
                ("entries of a queue", queues.send.max(queues.receive), limits.queue_entries),
                (
                    "entries of a completion queue",
                    self.completions(queues, pairs),
                    limits.completion_entries,
                ),
            ] {
                if needed > max {
                    let value = Some(self.per_peer().1.into());
                    let why = format!(
                        "so many buffers for each peer need {needed} {what}, and this fabric has \
                         at most {max}{}",
                        self.of_threads()
                    );
                    return Err(Error::Setting { name: "depth", value, why });
                }
            }
        }
        Ok(())
    }

    /// The sizes of an endpoint's queues, and how many queue pairs have them.
    pub(crate) fn queues(&self, role: Role, peers: usize) -> (QueueSizes, usize) {
        match (role, self.design.transport) {
            (Role::Sender, Transport::Datagrams) => (self.sender_datagrams(peers), 1),
            (Role::Receiver, Transport::Datagrams) => (self.receiver_datagrams(peers), 1),
            (Role::Sender, _) => (self.sender_queues(), peers),
            (Role::Receiver, _) => (self.receiver_queues(), peers),
        }
    }

    /// Bytes of a slot: header's line, payload, and the seal's line where there is one.
    pub(crate) fn slot_bytes(&self) -> usize {
        let seal = match self.design.transport {
            Transport::Write(Notification::Buffers) => LINE,
            _ => 0,
        };
        PAYLOAD_AT + self.message_bytes.next_multiple_of(LINE) + seal
    }

    /// Bytes of the block of words that an endpoint has for each connection: those of a link, and a
    /// queue with an entry for every buffer that may be under way (at most `most`).
    pub(crate) fn block_bytes(&self) -> usize {
        BLOCK_BYTES + (self.per_peer().1 as usize * 8).next_multiple_of(LINE)
    }

    /// Send queue of a sender's connection: two requests for every message under way, one signalled
    /// request per batch, as many unsignalled ones, a probe or two of a sleeper. Receives are for
    /// waking it.
    pub(crate) fn sender_queues(&self) -> QueueSizes {
        QueueSizes { send: 2 * self.per_peer().1 + 2 * SIGNAL_EVERY + 8, receive: WAKES }
    }

    /// Whether news land in an endpoint's memory without a completion there.
    pub(crate) fn listens(&self, role: Role) -> bool {
        use Notification::{Buffers, MessageQueue};
        let transport = self.design.transport;
        role == Role::Sender
            || matches!(transport, Transport::Read | Transport::Write(Buffers | MessageQueue))
    }

    /// Queues of a receiver's connection. Send queue: a read and a free entry or a credit for every
    /// buffer, batches as above. Receive queue: a receive for every buffer, and where receives have
    /// no buffers as many more as credit may be late; those for waking a sleeper where a receiver
    /// [listens](Settings::listens).
    pub(crate) fn receiver_queues(&self) -> QueueSizes {
        let most = self.per_peer().1;
        let send = 3 * most + 2 * SIGNAL_EVERY + 8;
        let receive = match self.design.transport {
            Transport::SendReceive => most,
            Transport::Write(Notification::CompletionQueue) => most + self.credit_every,
            _ => WAKES,
        };
        QueueSizes { send, receive }
    }

    /// Queues of a sender's datagrams: its messages and a keep-alive for each peer; and receives
    /// for what each peer says.
    pub(crate) fn sender_datagrams(&self, peers: usize) -> QueueSizes {
        let peers = peers as u32;
        QueueSizes {
            send: peers * (self.per_peer().1 + 2) + SIGNAL_EVERY,
            receive: peers * self.credit_receives(),
        }
    }

    /// Receives of a sender of datagrams for one receiver, as what finds none is lost: credit for
    /// all buffers that may have come since it looked last, the end, and three that are repeated.
    fn credit_receives(&self) -> u32 {
        self.per_peer().1.checked_div(self.credit_every).unwrap_or(0) + 4
    }

    /// Queues of a receiver's datagrams: what each peer is told; a receive for every buffer.
    pub(crate) fn receiver_datagrams(&self, peers: usize) -> QueueSizes {
        let peers = peers as u32;
        QueueSizes { send: peers * self.receiver_share(), receive: peers * self.per_peer().1 }
    }

    /// Datagrams of a receiver for one sender that may wait to be sent: credit for all buffers, the
    /// end or a failure, and some that are repeated.
    pub(crate) fn receiver_share(&self) -> u32 {
        self.per_peer().1 + 4
    }

    /// Entries of a completion queue for these sizes: everything posted may fail at once.
    pub(crate) fn completions(&self, queues: QueueSizes, pairs: usize) -> u32 {
        let needed = (queues.send + queues.receive).saturating_mul(pairs as u32);
        self.completion_entries.unwrap_or(needed)
    }

    /// Bytes that a sending endpoint for so many receivers registers: exactly, or at most if depth
    /// is adaptive or its buffers are a [`Pool`](crate::shuffle::Pool)'s. The buffers are the
    /// paper's formula (section 7.1.1): buffers for each peer and thread, times peers, times
    /// threads, times the message's length, which is rounded up to a cache line. With them: a line
    /// for each buffer's header and one for its seal where buffers are polled, a block of words for
    /// each connection, and for datagrams room for credit.
    pub fn sender_bytes(&self, receivers: usize) -> u64 {
        let buffers = receivers * self.per_peer().1 as usize * self.slot_bytes();
        let rest = match self.design.transport {
            Transport::Datagrams => receivers * self.credit_receives() as usize * CREDIT_SLOT_BYTES,
            _ => receivers * self.block_bytes(),
        };
        (buffers + rest) as u64
    }

    /// Bytes that a receiving endpoint for so many senders registers; the same formula.
    pub fn receiver_bytes(&self, senders: usize) -> u64 {
        let buffers = senders * self.per_peer().1 as usize * self.slot_bytes();
        let rest = match self.design.transport {
            Transport::Datagrams => 0,
            _ => senders * self.block_bytes(),
        };
        (buffers + rest) as u64
    }
}

/// Unsignalled requests after which one is signalled, to free the queue's entries.
pub(crate) const SIGNAL_EVERY: u32 = 16;
/// Room for one credit: its own header, ours, and a word.
pub(crate) const CREDIT_SLOT_BYTES: usize = 128;
const _: () = assert!(DATAGRAM_HEADER_BYTES + HEADER_BYTES + 8 <= CREDIT_SLOT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str) -> Settings {
        Settings::new(name.parse().unwrap())
    }

    /// Section 7.1.1: 8 nodes of 14 threads with 16 buffers of 64 KiB for each peer and thread need
    /// nearly 1 GB "across the entire cluster", or 112 MiB per node.
    #[test]
    fn memory_is_by_the_formula() {
        let settings = Settings {
            depth: Depth::Fixed(16),
            threads: 14,
            credit_every: 16,
            ..settings("SEMQ/SR")
        };
        let buffers = 8 * 14 * 16 * 65536;
        let headers = 8 * 14 * 16 * 64;
        // For each of 8 peers four lines and 14 times 16 words.
        let words = 8 * (256 + 14 * 16 * 8);
        assert_eq!(settings.receiver_bytes(8), buffers + headers + words);
        assert_eq!(8 * buffers, 896 << 20, "nearly a gigabyte");
    }

    #[test]
    fn depths_have_names() {
        for text in ["fixed:3", "bdp:12500000000:14100", "adaptive:2:64"] {
            assert_eq!(text.parse::<Depth>().unwrap().to_string(), text);
        }
        assert_eq!("adaptive".parse::<Depth>().unwrap(), ADAPTIVE);
        for text in ["", "fixed", "fixed:x", "bdp:1", "adaptive:1", "fixed:1:2"] {
            let error = text.parse::<Depth>().unwrap_err().to_string();
            assert!(error.contains("adaptive:LEAST:MOST"), "{error}");
        }
    }

    /// 100 Gb/s and 14.4 µs, with 4 KiB: the 44 buffers that the paper found (section 7.1.8).
    #[test]
    fn the_bandwidth_delay_rule_rounds_up() {
        let depth = Depth::BandwidthDelay {
            bytes_per_s: 12_500_000_000,
            latency: Duration::from_nanos(14_100),
        };
        // 176,250 bytes are 43.03 messages of 4096 bytes.
        let settings = Settings { depth, message_bytes: 4096, ..settings("MEMQ/SR") };
        assert_eq!(settings.per_peer(), (44, 44));
        let short = Depth::BandwidthDelay { bytes_per_s: 1, latency: Duration::ZERO };
        assert_eq!(Settings { depth: short, ..settings }.per_peer(), (2, 2));
    }
}
