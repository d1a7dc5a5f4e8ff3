//! The eight designs of the paper's table 1, by name.

use std::fmt;
use std::str::FromStr;

use crate::shuffle::error::{Error, Result};

/// How many endpoints an operator has for its threads (paper, section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoints {
    /// One for each thread (ME): nobody contends, and everything is registered once per thread.
    Several,
    /// One for all threads (SE): fewer queue pairs, and threads contend for it.
    Single,
}

/// Which endpoint implementation (paper, sections 5.2 to 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Send and receive over reliable connections (MQ/SR).
    SendReceive,
    /// Send and receive over unreliable datagrams (SQ/SR): one queue pair for all peers.
    Datagrams,
    /// The receiver reads the sender's buffers over reliable connections (MQ/RD).
    Read,
    /// The sender writes into the receiver's buffers over reliable connections (MQ/WR).
    Write(Notification),
}

/// How the receiver learns that a buffer was written (paper, section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notification {
    /// The buffer's last byte is a seal, which lands last: two writes for a transfer. It needs a
    /// fabric that places bytes in address order
    /// ([`Limits::ordered_placement`](millstream_fabric::Limits::ordered_placement)).
    Buffers,
    /// A second write puts an entry into a queue in the receiver's memory: three writes.
    MessageQueue,
    /// The write has an immediate value: two writes, and one more for every batch of credit.
    CompletionQueue,
}

/// A design of the shuffle operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Design {
    /// How many endpoints.
    pub endpoints: Endpoints,
    /// Which implementation they have.
    pub transport: Transport,
}

impl Design {
    /// The eight designs; writing designs poll the completion queue, as the paper chooses (section
    /// 7.1.2).
    pub const ALL: [Design; 8] = [
        Design::new(Endpoints::Several, Transport::SendReceive),
        Design::new(Endpoints::Single, Transport::SendReceive),
        Design::new(Endpoints::Several, Transport::Datagrams),
        Design::new(Endpoints::Single, Transport::Datagrams),
        Design::new(Endpoints::Several, Transport::Read),
        Design::new(Endpoints::Single, Transport::Read),
        Design::new(Endpoints::Several, Transport::Write(Notification::CompletionQueue)),
        Design::new(Endpoints::Single, Transport::Write(Notification::CompletionQueue)),
    ];

    /// The eight and, of the two that write, also the other two notifications.
    pub const VARIANTS: [Design; 12] = [
        Design::ALL[0],
        Design::ALL[1],
        Design::ALL[2],
        Design::ALL[3],
        Design::ALL[4],
        Design::ALL[5],
        Design::ALL[6],
        Design::ALL[7],
        Design::new(Endpoints::Several, Transport::Write(Notification::MessageQueue)),
        Design::new(Endpoints::Single, Transport::Write(Notification::MessageQueue)),
        Design::new(Endpoints::Several, Transport::Write(Notification::Buffers)),
        Design::new(Endpoints::Single, Transport::Write(Notification::Buffers)),
    ];

    /// The design of these two choices.
    pub const fn new(endpoints: Endpoints, transport: Transport) -> Design {
        Design { endpoints, transport }
    }

    /// Its name: the paper's, and for a notification that the paper did not choose, which.
    pub fn name(self) -> &'static str {
        use Notification::{Buffers, CompletionQueue, MessageQueue};
        let (several, single) = match self.transport {
            Transport::SendReceive => ("MEMQ/SR", "SEMQ/SR"),
            Transport::Datagrams => ("MESQ/SR", "SESQ/SR"),
            Transport::Read => ("MEMQ/RD", "SEMQ/RD"),
            Transport::Write(CompletionQueue) => ("MEMQ/WR", "SEMQ/WR"),
            Transport::Write(MessageQueue) => ("MEMQ/WR:messages", "SEMQ/WR:messages"),
            Transport::Write(Buffers) => ("MEMQ/WR:buffers", "SEMQ/WR:buffers"),
        };
        match self.endpoints {
            Endpoints::Several => several,
            Endpoints::Single => single,
        }
    }

    /// Whether messages of one sending endpoint arrive at one receiving endpoint in order. Of
    /// datagrams they do not.
    pub fn is_ordered(self) -> bool {
        self.transport != Transport::Datagrams
    }

    /// Queue pairs of one node's sending (or receiving) half, of `peers` nodes and `threads`
    /// threads (paper, table 1).
    pub fn queue_pairs(self, peers: usize, threads: usize) -> usize {
        let endpoints = self.endpoints_of(threads);
        if self.transport == Transport::Datagrams { endpoints } else { endpoints * peers }
    }

    /// Endpoints of one node's sending (or receiving) half.
    pub fn endpoints_of(self, threads: usize) -> usize {
        match self.endpoints {
            Endpoints::Several => threads,
            Endpoints::Single => 1,
        }
    }

    /// A number that both ends compare.
    pub(crate) fn code(self) -> u64 {
        let transport = match self.transport {
            Transport::SendReceive => 0,
            Transport::Datagrams => 1,
            Transport::Read => 2,
            Transport::Write(Notification::Buffers) => 3,
            Transport::Write(Notification::MessageQueue) => 4,
            Transport::Write(Notification::CompletionQueue) => 5,
        };
        transport * 2 + u64::from(self.endpoints == Endpoints::Single)
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Design {
    type Err = Error;

    fn from_str(name: &str) -> Result<Design> {
        let found = Design::VARIANTS.into_iter().find(|design| design.name() == name);
        let names = || Design::VARIANTS.iter().map(|one| one.name()).collect();
        found.ok_or_else(|| Error::NoSuchDesign { name: name.into(), names: names() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_tell_designs_apart() {
        for (i, design) in Design::VARIANTS.into_iter().enumerate() {
            assert_eq!(design.name().parse::<Design>().unwrap(), design);
            for other in &Design::VARIANTS[..i] {
                assert_ne!(other.code(), design.code(), "{other} {design}");
            }
        }
        let error = "MEMQ".parse::<Design>().unwrap_err().to_string();
        assert!(error.contains("MEMQ/SR") && error.contains("SEMQ/WR:buffers"), "{error}");
    }

    /// The paper's figures for 16 nodes of 14 threads, which table 1's formulas give.
    #[test]
    fn queue_pairs_are_those_of_the_table() {
        let pairs = |name: &str| name.parse::<Design>().unwrap().queue_pairs(16, 14);
        assert_eq!(pairs("MEMQ/SR"), 224);
        assert_eq!(pairs("SEMQ/RD"), 16);
        assert_eq!(pairs("MESQ/SR"), 14);
        assert_eq!(pairs("SESQ/SR"), 1);
    }
}
