//! Formats of memory that peers write for each other: slots, headers, entries of queues, credit.
//!
//! A slot is a buffer with room for what goes with it. Its payload begins at a cache line, at the
//! sender as at the receiver:
//!
//! ```text
//! 0    8                      48          64                      64+m   (to a line)   +64
//! |    | datagram's own header | header    | payload of m bytes     |      | seal's line |
//! ```
//!
//! The seal's line is there only where the receiver polls buffers; its last word is the seal.

use millstream_fabric::DATAGRAM_HEADER_BYTES;

use crate::link::LINE;

/// Whether more follows from this sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// More messages may follow.
    MoreData,
    /// This is the last message of its sender for this destination.
    Depleted,
}

/// Where a slot's header is.
pub(crate) const HEADER_AT: usize = LINE - HEADER_BYTES;
pub(crate) const HEADER_BYTES: usize = 16;
/// Where a slot's payload is.
pub(crate) const PAYLOAD_AT: usize = LINE;
/// Place of a datagram in a slot, so that its header is at the common place.
pub(crate) const DATAGRAM_AT: usize = HEADER_AT - DATAGRAM_HEADER_BYTES;

/// Kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data(State),
    /// Of datagrams: the absolute credit, in the 8 bytes that follow.
    Credit,
    /// Of datagrams: the sender is alive, and has nothing to send.
    KeepAlive,
    /// Of datagrams: the receiver has the whole stream.
    Complete,
    /// Of datagrams: the endpoint has failed, or is dropped before its end.
    Failed,
}

/// In front of every message: length, kind, the sending endpoint's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) bytes: u32,
    pub(crate) kind: Kind,
    pub(crate) id: u32,
}

impl Header {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[4] = match self.kind {
            Kind::Data(State::MoreData) => 1,
            Kind::Data(State::Depleted) => 2,
            Kind::Credit => 3,
            Kind::KeepAlive => 4,
            Kind::Complete => 5,
            Kind::Failed => 6,
        };
        bytes[8..12].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let kind = match bytes[4] {
            1 => Kind::Data(State::MoreData),
            2 => Kind::Data(State::Depleted),
            3 => Kind::Credit,
            4 => Kind::KeepAlive,
            5 => Kind::Complete,
            6 => Kind::Failed,
            _ => return None,
        };
        let rest = bytes[5..8].iter().chain(&bytes[12..]);
        rest.into_iter().all(|byte| *byte == 0).then(|| Header {
            bytes: word(0),
            kind,
            id: word(8),
        })
    }
}

/// An entry of a circular queue in a peer's memory: a slot, its contents, and the lap of the queue,
/// so that nothing needs to be cleared: an entry of another lap is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slot: u32,
    pub(crate) bytes: u32,
    pub(crate) state: State,
}

/// Bits of a slot's number.
pub(crate) const SLOT_BITS: u32 = 20;
/// Most slots of an endpoint.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;
const LAP_BITS: u32 = 10;
const LAP_AT: u32 = 64 - LAP_BITS;
const STATE_AT: u32 = 32 + SLOT_BITS;

impl Entry {
    pub(crate) fn encode(self, lap: impl Into<u64>) -> u64 {
        let state = u64::from(self.state == State::Depleted);
        u64::from(self.bytes)
            | u64::from(self.slot) << 32
            | state << STATE_AT
            | lap.into() << LAP_AT
    }

    /// The entry, if it is of this lap. Whether slot and length exist is for the caller to check.
    pub(crate) fn decode(word: u64, lap: impl Into<u64>) -> Option<Entry> {
        if word >> LAP_AT != lap.into() {
            return None;
        }
        let slot = (word >> 32) as u32 & ((1 << SLOT_BITS) - 1);
        let state = if word >> STATE_AT & 1 == 1 { State::Depleted } else { State::MoreData };
        Some(Entry { slot, bytes: word as u32, state })
    }
}

/// The lap of a seal: all bits, so that the word's last byte, which lands last, is not 0.
const SEALED: u64 = (1 << LAP_BITS) - 1;

/// The last word of a buffer that is polled: length and state, and that all of it is there.
pub(crate) fn seal(bytes: u32, state: State) -> u64 {
    Entry { slot: 0, bytes, state }.encode(SEALED)
}

/// Entry of a sealed buffer.
pub(crate) fn unseal(word: u64) -> Option<Entry> {
    Entry::decode(word, SEALED)
}

/// The immediate value that tells of a written slot.
pub(crate) fn immediate(slot: u32, state: State) -> u32 {
    slot | u32::from(state == State::Depleted) << 31
}

/// Slot and state of such a value.
pub(crate) fn of_immediate(value: u32) -> (u32, State) {
    let state = if value >> 31 == 1 { State::Depleted } else { State::MoreData };
    (value & !(1 << 31), state)
}

/// Fuzz target: any bytes are decoded or refused, and what is decoded encodes to the same bytes.
///
/// # Panics
/// If it does not.
pub fn fuzz(data: &[u8]) {
    let at = |i: usize| data.get(i).copied().unwrap_or(0);
    let header = std::array::from_fn(at);
    if let Some(decoded) = Header::decode(&header) {
        assert_eq!(decoded.encode(), header);
    }
    let word = u64::from_le_bytes(std::array::from_fn(|i| at(i + HEADER_BYTES)));
    for lap in [u64::from(at(24)), word >> LAP_AT] {
        if let Some(entry) = Entry::decode(word, lap) {
            assert_eq!(Entry::decode(entry.encode(lap), lap), Some(entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Position;

    #[test]
    fn headers_come_back() {
        let data = [Kind::Data(State::MoreData), Kind::Data(State::Depleted)];
        let rest = [Kind::Credit, Kind::KeepAlive, Kind::Complete, Kind::Failed];
        for kind in data.into_iter().chain(rest) {
            let header = Header { bytes: 70_000, kind, id: 0xdead_beef };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), None);
        assert_eq!(Header::decode(&[0xff; HEADER_BYTES]), None);
    }

    /// An entry is seen in its own lap only, for as many laps as a number has room for.
    #[test]
    fn entries_of_other_laps_are_not_there() {
        let entries = 3;
        let entry = Entry { slot: (1 << SLOT_BITS) - 1, bytes: u32::MAX, state: State::Depleted };
        let mut position = Position::new(entries, 8);
        assert_eq!(Entry::decode(0, position.lap()), None, "memory that was never written");
        for _ in 0..4000 {
            let (word, lap) = (entry.encode(position.lap()), position.lap());
            assert_eq!(Entry::decode(word, lap), Some(entry));
            (0..entries).for_each(|_| position.advance());
            assert_eq!(Entry::decode(word, position.lap()), None);
        }
    }

    #[test]
    fn a_seal_is_the_last_byte() {
        let word = seal(5, State::MoreData);
        assert_eq!(word.to_le_bytes()[7], 0xff);
        let sealed = Entry { slot: 0, bytes: 5, state: State::MoreData };
        assert_eq!(unseal(word), Some(sealed));
        assert_eq!(unseal(word & !(0xff << 56)), None);
    }

    #[test]
    fn immediates_come_back() {
        for state in [State::MoreData, State::Depleted] {
            assert_eq!(of_immediate(immediate(77, state)), (77, state));
        }
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let mut state = 1_u64;
        for _ in 0..50_000 {
            let mut data = [0; 27];
            for byte in &mut data {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (state >> 60) as u8;
            }
            fuzz(&data);
        }
    }
}
