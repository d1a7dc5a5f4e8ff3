//! Header of a message: stream and kind of content.
//!
//! The header is the first cache line of a slot's payload, so the content behind is aligned for any
//! column. Numbers are little-endian.

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 64;

/// Content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of a batch whose buffers are laid out ([`crate::image`]).
    Batch = 1,
    /// A part of a batch in the format of Arrow IPC.
    Serialised = 2,
    /// The stream's end.
    End = 3,
    /// The stream's end by an error, whose text follows.
    Failed = 4,
}

/// A message's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) stream: u32,
    /// The message's number in its stream, from 0.
    pub(crate) sequence: u64,
    /// Bytes behind the header.
    pub(crate) bytes: u32,
    /// Messages of the batch.
    pub(crate) parts: u32,
    /// Bytes of the table, which comes first.
    pub(crate) table_bytes: u64,
    pub(crate) rows: u64,
}

impl Frame {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut line = [0; HEADER_BYTES];
        line[..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        line[4..8].copy_from_slice(&self.stream.to_le_bytes());
        line[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        line[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        line[20..24].copy_from_slice(&self.parts.to_le_bytes());
        line[24..32].copy_from_slice(&self.table_bytes.to_le_bytes());
        line[32..40].copy_from_slice(&self.rows.to_le_bytes());
        line
    }

    /// A message without the bytes that fill it up to whole tuples of a flow.
    pub(crate) fn unpad(padded: &[u8]) -> Option<&[u8]> {
        let bytes = padded.get(16..20)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        padded.get(..HEADER_BYTES.checked_add(bytes as usize)?)
    }

    /// The header of a message, if it is one and says the message's length.
    pub(crate) fn decode(message: &[u8]) -> Option<Frame> {
        let (line, rest) = message.split_first_chunk::<HEADER_BYTES>()?;
        let four = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| line[at + byte]));
        let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
        let kind = match four(0) {
            1 => Kind::Batch,
            2 => Kind::Serialised,
            3 => Kind::End,
            4 => Kind::Failed,
            _ => return None,
        };
        let frame = Frame {
            kind,
            stream: four(4),
            sequence: eight(8),
            bytes: four(16),
            parts: four(20),
            table_bytes: eight(24),
            rows: eight(32),
        };
        (frame.bytes as usize == rest.len() && frame.parts > 0).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        let frame = Frame {
            kind: Kind::Failed,
            stream: 7,
            sequence: 1 << 40,
            bytes: 3,
            parts: 1,
            table_bytes: 1 << 33,
            rows: u64::MAX,
        };
        let message = [&frame.encode()[..], b"abc"].concat();
        assert_eq!(Frame::decode(&message), Some(frame));
        let padded = [&message[..], &[0; 13]].concat();
        assert_eq!(Frame::unpad(&padded), Some(&message[..]));
        assert_eq!(Frame::unpad(&message[..66]), None, "shorter than it says");
        assert_eq!(Frame::unpad(&message[..19]), None, "no header");
        assert_eq!(Frame::decode(&message[..66]), None, "shorter than it says");
        assert_eq!(Frame::decode(&message[..63]), None, "no header");
        let mut strange = message.clone();
        strange[0] = 5;
        assert_eq!(Frame::decode(&strange), None, "no such kind");
        strange = message;
        strange[20] = 0;
        assert_eq!(Frame::decode(&strange), None, "no parts");
    }
}
