//! The bytes of a response, read with an eye on counts: the library makes room for as many elements
//! of an array as a response says.

use std::ops::Range;

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::buf::ByteBuf;

/// Numbers of tags are no counts, and may be greater than the bytes behind them.
const TAGS: usize = 64;

/// Bytes in which no count is greater than the number of bytes behind the count: an element has at
/// least one byte. Only counts of variable length are looked at, which responses of today have.
pub(super) struct Counted(pub(super) Bytes);

impl Counted {
    /// Whether the number that begins here is a count of more than there can be.
    fn is_too_much(&self) -> bool {
        let (mut value, mut at) = (0u64, 0);
        for byte in self.0.iter().take(5) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            at += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value > (self.0.len() - at + TAGS) as u64
    }
}

impl Buf for Counted {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }

    /// The first byte of a number of variable length, or a later one, which says less.
    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        if self.is_too_much() {
            return Err(TryGetError { requested: usize::MAX, available: self.0.len() });
        }
        self.0.try_get_u8()
    }
}

impl ByteBuf for Counted {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.0.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.0.split_to(size)
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::MetadataResponse;
    use kafka_protocol::protocol::Decodable;

    use super::*;

    #[test]
    fn a_count_of_more_than_there_is_ends_in_an_error() {
        // Throttled for no time, and then four thousand million brokers.
        let lie = Bytes::from_static(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
        assert!(MetadataResponse::decode(&mut Counted(lie), 12).is_err());
    }

    #[test]
    fn honest_counts_are_read() {
        let host = "h".repeat(200);
        let mut bytes = BytesMut::new();
        // Throttled for no time; one broker with its number, host, port, and no rack.
        bytes.put_slice(&[0, 0, 0, 0, 2, 0, 0, 0, 7, 201, 1]);
        bytes.put_slice(host.as_bytes());
        bytes.put_slice(&[0, 0, 35, 132, 0, 0]);
        // No name of the cluster, a controller, and no topics.
        bytes.put_slice(&[0, 0, 0, 0, 7, 1, 0]);
        let found = MetadataResponse::decode(&mut Counted(bytes.freeze()), 12).unwrap();
        assert_eq!(&*found.brokers[0].host, host.as_str());
        assert_eq!((found.brokers[0].port, found.controller_id.0), (9_092, 7));
    }
}
