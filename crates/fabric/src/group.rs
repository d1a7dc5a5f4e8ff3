//! Multicast groups, and their addresses in IP networks.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::setup::Token;

/// A multicast group of a job: a number that its members and senders agree on.
///
/// Equal numbers of different jobs are different groups. Two numbers of one job never share an
/// address. Two jobs may share one by chance; then each still ignores the other's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(u16);

impl Group {
    /// The job's group of this number.
    pub const fn new(number: u16) -> Group {
        Group(number)
    }

    /// The group's number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The group's address, of those that organisations use inside their networks (239.0.0.0/8),
    /// and a port below the ones that Linux gives to clients.
    pub(crate) fn address(self, token: &Token) -> SocketAddrV4 {
        let mixed = mix(token, 0);
        let [high, low] = (self.0 ^ mixed as u16).to_be_bytes();
        let port = 1 << 14 | (mixed >> 24) as u16 & 0x3fff;
        SocketAddrV4::new(Ipv4Addr::new(239, (mixed >> 16) as u8, high, low), port)
    }
}

/// The key of a job's datagrams over RDMA devices. Keys with the highest bit are for the system.
pub(crate) fn datagram_key(token: &Token) -> u32 {
    mix(token, 1) as u32 & 0x7fff_ffff
}

/// A number that depends on every bit of a token. The number is as public as the wire.
fn mix(token: &Token, salt: u64) -> u64 {
    let words = token.bytes().as_chunks::<8>().0;
    words.iter().fold(salt, |mixed, word| {
        // A step of SplitMix64.
        let mut z = (mixed ^ u64::from_le_bytes(*word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn groups_of_a_job_have_addresses_of_their_own() {
        let token = Token::new([7; 32]);
        let all: HashSet<_> = (0..=u16::MAX).map(|n| Group::new(n).address(&token)).collect();
        assert_eq!(all.len(), 1 << 16);
        for address in all {
            assert_eq!(address.ip().octets()[0], 239);
            assert!((1 << 14..1 << 15).contains(&address.port()), "{address}");
        }
    }

    #[test]
    fn every_bit_of_the_token_matters() {
        let mut seen = HashSet::new();
        let mut keys = HashSet::new();
        for bit in 0..=256 {
            let mut bytes = [0; 32];
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte = 1 << (bit % 8);
            }
            let token = Token::new(bytes);
            seen.insert(Group::new(1).address(&token));
            keys.insert(datagram_key(&token));
            assert!(datagram_key(&token) < 1 << 31);
        }
        // Of 257 tokens all are expected to differ in 38 bits of address and port.
        assert_eq!((seen.len(), keys.len()), (257, 257));
    }
}
