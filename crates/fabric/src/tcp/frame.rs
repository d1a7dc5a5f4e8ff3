//! The wire format of a connection: a greeting, then frames of a fixed header and, for some, bytes.

use crate::setup::{HEAD_BYTES, SetupError, Token, check_head, head};

/// First message of who opens a connection: magic, version, token, and which queue pairs it joins.
pub(super) const GREETING_BYTES: usize = HEAD_BYTES + 16;
/// Length of a frame's header.
pub(super) const HEADER_BYTES: usize = 40;

/// Caller and target of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The caller's device.
    pub(super) device: u64,
    /// The caller's queue pair.
    pub(super) from: u32,
    /// The queue pair that is called.
    pub(super) to: u32,
}

impl Greeting {
    pub(super) fn encode(&self, token: &Token) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..HEAD_BYTES].copy_from_slice(&head(token));
        bytes[44..52].copy_from_slice(&self.device.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.from.to_le_bytes());
        bytes[56..].copy_from_slice(&self.to.to_le_bytes());
        bytes
    }

    pub(super) fn decode(
        bytes: &[u8; GREETING_BYTES],
        token: &Token,
    ) -> Result<Greeting, SetupError> {
        check_head(bytes.first_chunk().ok_or(SetupError::Magic)?, token)?;
        let word = |at| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let device = u64::from_le_bytes(std::array::from_fn(|i| bytes[44 + i]));
        Ok(Greeting { device, from: word(52), to: word(56) })
    }
}

/// Kind of a frame. Requests go from who opened the connection, answers back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Write = 1,
    Send = 2,
    Read = 3,
    FetchAdd = 4,
    CompareSwap = 5,
    /// Are you there? Answered by an acknowledgement.
    Ping = 6,
    /// All requests up to a number are done.
    Ack = 16,
    /// The bytes of a read.
    ReadData = 17,
    /// The old value of an atomic.
    AtomicData = 18,
    /// A request was refused.
    Nak = 19,
    /// A request waits for a receive.
    NotReady = 20,
}

const KINDS: [FrameKind; 11] = [
    FrameKind::Write,
    FrameKind::Send,
    FrameKind::Read,
    FrameKind::FetchAdd,
    FrameKind::CompareSwap,
    FrameKind::Ping,
    FrameKind::Ack,
    FrameKind::ReadData,
    FrameKind::AtomicData,
    FrameKind::Nak,
    FrameKind::NotReady,
];

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// Whether the caller wants to know at once that it is done.
    pub(super) signalled: bool,
    pub(super) immediate: Option<u32>,
    /// Bytes that follow the header; of a read, bytes that are wanted.
    pub(super) bytes: u32,
    /// The region's key; of a refusal, the reason.
    pub(super) key: u32,
    /// Address in the region; of an answer, number of the request.
    pub(super) address: u64,
    /// Addend or expected value; of an answer, the old value.
    pub(super) first: u64,
    /// New value of a compare-and-swap.
    pub(super) second: u64,
}

impl Frame {
    /// A frame with only its kind.
    pub(super) fn new(kind: FrameKind) -> Frame {
        Frame {
            kind,
            signalled: false,
            immediate: None,
            bytes: 0,
            key: 0,
            address: 0,
            first: 0,
            second: 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = u8::from(self.signalled) | (u8::from(self.immediate.is_some()) << 1);
        bytes[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.immediate.unwrap_or(0).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    /// Decodes a peer's header; `None` if it is impossible.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], message_max: usize) -> Option<Frame> {
        let word = |at| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let length = word(4);
        let carries = matches!(
            kind,
            FrameKind::Write | FrameKind::Send | FrameKind::Read | FrameKind::ReadData
        );
        let immediate = bytes[1] & 2 != 0;
        let takes_immediate = matches!(kind, FrameKind::Write | FrameKind::Send);
        if bytes[1] > 3
            || bytes[2..4] != [0, 0]
            || length as usize > message_max
            || (length > 0 && !carries)
            || (immediate && !takes_immediate)
            || (!immediate && word(8) != 0)
        {
            return None;
        }
        Some(Frame {
            kind,
            signalled: bytes[1] & 1 != 0,
            immediate: immediate.then_some(word(8)),
            bytes: length,
            key: word(12),
            address: long(16),
            first: long(24),
            second: long(32),
        })
    }
}

/// Fuzz target: any bytes are refused, or decode to a frame that encodes to the same bytes.
///
/// # Panics
/// If a decoded frame does not encode to its bytes.
pub fn fuzz(data: &[u8]) {
    for chunk in data.chunks_exact(HEADER_BYTES) {
        let bytes: [u8; HEADER_BYTES] = std::array::from_fn(|i| chunk[i]);
        if let Some(frame) = Frame::decode(&bytes, 1 << 30) {
            assert_eq!(frame.encode(), bytes);
        }
    }
    let token = Token::new([7; 32]);
    let mut greeting = [0; GREETING_BYTES];
    let bytes = data.len().min(GREETING_BYTES);
    greeting[..bytes].copy_from_slice(&data[..bytes]);
    for right_head in [false, true] {
        if right_head {
            greeting[..HEAD_BYTES].copy_from_slice(&head(&token));
        }
        if let Ok(decoded) = Greeting::decode(&greeting, &token) {
            assert_eq!(decoded.encode(&token), greeting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_as_encoded() {
        for kind in KINDS {
            let mut frame = Frame::new(kind);
            frame.signalled = true;
            frame.address = 1 << 40;
            frame.first = 7;
            frame.second = u64::MAX;
            frame.key = 3;
            if kind == FrameKind::Write {
                frame.immediate = Some(9);
                frame.bytes = 100;
            }
            assert_eq!(Frame::decode(&frame.encode(), 100), Some(frame));
        }
    }

    #[test]
    fn impossible_frames_are_refused() {
        let good = Frame { bytes: 100, ..Frame::new(FrameKind::Write) }.encode();
        assert!(Frame::decode(&good, 99).is_none());
        for (at, value) in [(0, 0), (0, 7), (0, 16), (1, 4), (2, 1), (8, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert!(Frame::decode(&bad, 100).is_none(), "byte {at} = {value}");
        }
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        for _ in 0..20_000 {
            let mut data: [u8; 120] = std::array::from_fn(|_| next());
            fuzz(&data);
            for header in data.chunks_mut(HEADER_BYTES) {
                header[0] = header[0] % 21 + 1;
                header[1] %= 4;
                header[2..4].fill(0);
                header[6..12].fill(0);
            }
            fuzz(&data);
        }
    }
}
