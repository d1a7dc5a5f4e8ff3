//! The datagrams of a multicast flow (thesis, section 7.5.4).
//!
//! A slot has room for a datagram, so that the payload begins at a cache line, at the source as at
//! the target:
//!
//! ```text
//! 0                       40         64                          (to a line)
//! | the fabric's header   | header   | payload                   |
//! ```
//!
//! The header, little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | index of the source; in the two highest bits, the kind |
//! | 2..4 | bytes of payload |
//! | 4..8 | the source's tag, which the set-up message named |
//! | 8..16 | the segment's number among those of its source; of a mark, how many there are |
//! | 16..24 | the number in the flow's order; of a mark, the number after the source's last |

use millstream_fabric::DATAGRAM_HEADER_BYTES;
use millstream_flow::link::LINE;

use crate::ring::Shape;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = LINE - DATAGRAM_HEADER_BYTES;
/// Place of the header in a slot.
pub(crate) const HEADER_AT: usize = DATAGRAM_HEADER_BYTES;
/// Place of the payload in a slot.
pub(crate) const PAYLOAD_AT: usize = LINE;
/// Receives that a target posts for each source beyond its credit: for marks and repeated
/// datagrams, until the target looks.
const SPARE: usize = 8;
/// The kind's place in the first field.
const KIND_AT: u32 = 14;

/// Contents of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A segment.
    Segment,
    /// How many segments there are.
    Mark,
    /// The same, and that no more will follow.
    End,
}

/// In front of every datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) source: u16,
    pub(crate) fill: u16,
    pub(crate) tag: u32,
    pub(crate) number: u64,
    pub(crate) place: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let first = self.source | (self.kind as u16) << KIND_AT;
        bytes[..2].copy_from_slice(&first.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.fill.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.place.to_le_bytes());
        bytes
    }

    /// Decodes what any process of the job may have sent.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let kind = match short(0) >> KIND_AT {
            0 => Kind::Segment,
            1 => Kind::Mark,
            2 => Kind::End,
            _ => return None,
        };
        let source = short(0) & ((1 << KIND_AT) - 1);
        let tag = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        Some(Header { kind, source, fill: short(2), tag, number: long(8), place: long(16) })
    }
}

/// The memory of a multicast flow's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of payload of a segment.
    pub(crate) payload: usize,
    /// Credit: segments that a source may send beyond what a target has consumed.
    pub(crate) segments: usize,
    /// Whether a segment is one tuple.
    pub(crate) latency: bool,
    sources: usize,
}

impl Layout {
    pub(crate) fn new(shape: &Shape, sources: usize) -> Layout {
        let Shape { payload, segments, latency, .. } = *shape;
        Layout { payload, segments, latency, sources }
    }

    /// Bytes of a slot.
    pub(crate) fn stride(&self) -> usize {
        (PAYLOAD_AT + self.payload).next_multiple_of(LINE)
    }

    /// Slots of a target, each with a receive.
    pub(crate) fn slots(&self) -> usize {
        self.sources * (self.segments + SPARE)
    }

    /// Most numbers of the flow's order that are under way at once: a source draws a number only
    /// when it has credit for the segment.
    pub(crate) fn numbers(&self) -> usize {
        self.sources * self.segments
    }

    /// Bytes of a target's slots.
    pub(crate) fn target_bytes(&self) -> usize {
        self.slots() * self.stride()
    }

    /// Bytes of a source's slots. A source keeps each segment until all targets have it.
    pub(crate) fn source_bytes(&self) -> usize {
        self.segments * self.stride()
    }

    /// Bytes of the longest datagram.
    pub(crate) fn datagram_bytes(&self) -> usize {
        HEADER_BYTES + self.payload
    }
}

/// Fuzz target: any header is refused, or decodes and encodes back to itself.
///
/// # Panics
/// If a decoded header does not encode to its bytes.
pub fn fuzz(data: &[u8]) {
    for chunk in data.chunks_exact(HEADER_BYTES) {
        let bytes: [u8; HEADER_BYTES] = std::array::from_fn(|i| chunk[i]);
        if let Some(header) = Header::decode(&bytes) {
            assert_eq!(header.encode(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for kind in [Kind::Segment, Kind::Mark, Kind::End] {
            let header = Header {
                kind,
                source: (1 << KIND_AT) - 1,
                fill: 4064,
                tag: 7,
                number: 9,
                place: 8,
            };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[0xff; HEADER_BYTES]), None);
    }

    #[test]
    fn random_headers_do_no_harm() {
        let mut state = 1_u64;
        let mut data = Vec::new();
        for _ in 0..30_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            data.extend_from_slice(&state.to_le_bytes());
        }
        fuzz(&data);
    }
}
