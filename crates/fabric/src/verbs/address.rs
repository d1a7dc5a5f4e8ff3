//! Address of a queue pair, with retries and time-outs in the codes of the RDMA standard.

use std::time::Duration;

use millstream_verbs::{Gid, Mtu, Path};

use crate::endpoint::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use crate::error::{Error, Result};

/// Which of the two kinds of queue pair an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum AddressKind {
    Reliable = 1,
    Datagram = 2,
}

/// An endpoint's detail: little endian, in this order, behind the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: AddressKind,
    /// The port's GID; needed on Ethernet.
    pub(super) gid: Option<Gid>,
    /// The port's local identifier; 0 on Ethernet.
    pub(super) lid: u16,
    /// Number of the queue pair: 24 bits.
    pub(super) number: u32,
    /// Number of its first packet: 24 bits.
    pub(super) first_packet: u32,
    /// Its port's MTU.
    pub(super) mtu: Mtu,
    /// How many reads and atomics it accepts at a time.
    pub(super) reads: u8,
    /// How long it wants to wait between two tries for a receive, in the standard's code.
    pub(super) receive_timer: u8,
    /// The key that datagrams need.
    pub(super) key: u32,
}

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

impl Address {
    pub(super) fn endpoint(&self) -> Endpoint {
        let mut detail = [0; ENDPOINT_DETAIL_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            detail[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&[self.kind as u8, u8::from(self.gid.is_some())]);
        put(&self.gid.unwrap_or_default());
        put(&self.lid.to_le_bytes());
        put(&self.number.to_le_bytes());
        put(&self.first_packet.to_le_bytes());
        put(&[self.mtu as u8, self.reads, self.receive_timer]);
        put(&self.key.to_le_bytes());
        Endpoint { provider: Provider::Verbs, detail }
    }

    /// Decodes and checks a peer's address of a queue pair of this kind.
    pub(super) fn of(endpoint: &Endpoint, kind: AddressKind) -> Result<Address> {
        let mut rest = &endpoint.detail_for(Provider::Verbs)?[..];
        let bad = |reason| Error::BadEndpoint { reason };
        let [tag, has_gid] = take(&mut rest);
        if tag != kind as u8 {
            return Err(bad("it is not an address of this kind of queue pair"));
        }
        let gid = take(&mut rest);
        let gid = match has_gid {
            0 => None,
            1 => Some(gid),
            _ => return Err(bad("it does not say whether it has a GID")),
        };
        let lid = u16::from_le_bytes(take(&mut rest));
        let number = u32::from_le_bytes(take(&mut rest));
        let first_packet = u32::from_le_bytes(take(&mut rest));
        let [mtu, reads, receive_timer] = take(&mut rest);
        let key = u32::from_le_bytes(take(&mut rest));
        let mtu = *MTUS
            .get(usize::from(mtu).wrapping_sub(1))
            .ok_or(bad("there is no such maximum transfer unit"))?;
        if number >= 1 << 24 || first_packet >= 1 << 24 || receive_timer >= 32 {
            return Err(bad("a number in it is too large"));
        }
        Ok(Address { kind, gid, lid, number, first_packet, mtu, reads, receive_timer, key })
    }

    /// The way to it from this side's port.
    pub(super) fn path(&self, port: u8, gid_index: Option<u8>, service_level: u8) -> Result<Path> {
        if self.gid.is_some() != gid_index.is_some() {
            return Err(Error::BadEndpoint {
                reason: "one side is on Ethernet or chose a GID, the other is not and did not",
            });
        }
        let gid_index = gid_index.unwrap_or(0);
        Ok(Path { port, gid_index, gid: self.gid, lid: self.lid, service_level })
    }
}

/// Takes so many bytes from the beginning; what is decoded has a fixed length, so they are there.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (head, rest) = bytes.split_at(N);
    *bytes = rest;
    std::array::from_fn(|i| head[i])
}

/// How often something is tried again when there is no answer. Soft-RoCE takes the largest number,
/// 7, for ever.
pub(super) const RETRIES: u8 = 6;

/// The code of the time to wait for one answer, 4.096 µs times two to its power, such that all
/// tries together take at least `silence`, and less than twice that.
pub(super) fn answer_timeout(silence: Duration) -> u8 {
    let tries = u128::from(RETRIES) + 1;
    // 0 would mean to wait for ever.
    (1..31).find(|code| tries * (4096 << code) >= silence.as_nanos()).unwrap_or(31)
}

/// Waiting times between tries for a receive, in units of 10 µs, by the standard's code.
const RECEIVE_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How often to try again when no receive is there, and the code of the time to wait in between:
/// together at least `patience`, for ever without one.
pub(super) fn receive_retries(patience: Option<Duration>) -> Result<(u8, u8)> {
    const FOR_EVER: u8 = 7;
    const COUNT: u8 = 6;
    // 640 µs: as good as at once for people, and a peer without receives is not flooded.
    const USUAL: u8 = 12;
    let Some(patience) = patience else { return Ok((FOR_EVER, USUAL)) };
    let long_enough = |code: &u8| {
        let total = u64::from(COUNT) * u64::from(RECEIVE_TIMERS[usize::from(*code)]) * 10;
        u128::from(total) >= patience.as_micros()
    };
    // Code 0 is the longest.
    let code = (1..32).chain([0]).find(long_enough).ok_or_else(|| Error::Limit {
        what: "milliseconds of waiting for a receive",
        asked: patience.as_millis().try_into().unwrap_or(u64::MAX),
        max: u64::from(COUNT) * u64::from(RECEIVE_TIMERS[0]) / 100,
    })?;
    Ok((COUNT, code))
}

/// Fuzz target: any address is refused or makes sense, whichever provider it names.
///
/// # Panics
/// If an address is taken whose numbers are out of range.
pub fn fuzz(data: &[u8]) {
    let Some(bytes) = data.first_chunk() else { return };
    let Ok(endpoint) = Endpoint::decode(bytes) else { return };
    assert_eq!(endpoint.encode(), *bytes);
    for kind in [AddressKind::Reliable, AddressKind::Datagram] {
        let Ok(address) = Address::of(&endpoint, kind) else { continue };
        assert!(address.number < 1 << 24 && address.first_packet < 1 << 24);
        assert!(address.receive_timer < 32);
        for gid_index in [None, Some(3)] {
            // Refused if the networks do not fit.
            drop(address.path(1, gid_index, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Address = Address {
        kind: AddressKind::Reliable,
        gid: Some([9; 16]),
        lid: 0x1234,
        number: 0x00ab_cdef,
        first_packet: 0x0012_3456,
        mtu: Mtu::B1024,
        reads: 16,
        receive_timer: 12,
        key: 0x7654_3210,
    };

    #[test]
    fn what_is_decoded_is_what_was_encoded() {
        let other = Address { kind: AddressKind::Datagram, gid: None, mtu: Mtu::B4096, ..ADDRESS };
        for address in [ADDRESS, other] {
            assert_eq!(Address::of(&address.endpoint(), address.kind).unwrap(), address);
        }
        assert!(Address::of(&ADDRESS.endpoint(), AddressKind::Datagram).is_err());
    }

    #[test]
    fn hostile_addresses_are_errors() {
        // Every byte in turn set to every value: decoded, or refused, and never out of range.
        for place in 0..ENDPOINT_DETAIL_BYTES {
            for value in 0..=255 {
                let mut endpoint = ADDRESS.endpoint();
                endpoint.detail[place] = value;
                if let Ok(address) = Address::of(&endpoint, AddressKind::Reliable) {
                    assert!(address.number < 1 << 24 && address.first_packet < 1 << 24);
                    assert!(address.receive_timer < 32);
                }
            }
        }
        let foreign = Endpoint { provider: Provider::Sim, ..ADDRESS.endpoint() };
        assert!(matches!(
            Address::of(&foreign, AddressKind::Reliable),
            Err(Error::BadEndpoint { .. })
        ));
    }

    #[test]
    fn a_mixture_of_networks_is_refused() {
        assert!(ADDRESS.path(1, None, 0).is_err());
        assert!(Address { gid: None, ..ADDRESS }.path(1, Some(3), 0).is_err());
        let path = ADDRESS.path(1, Some(3), 2).unwrap();
        assert_eq!((path.gid_index, path.lid, path.service_level), (3, 0x1234, 2));
    }

    #[test]
    fn patience_is_rounded_up_to_less_than_twice() {
        for milliseconds in [1, 20, 200, 1000, 60_000] {
            let silence = Duration::from_millis(milliseconds);
            let all = 7 * 4096 * 2_u128.pow(u32::from(answer_timeout(silence)));
            let asked = silence.as_nanos();
            assert!((asked..2 * asked).contains(&all), "{milliseconds} ms: {all} ns");
        }
        assert_eq!(answer_timeout(Duration::MAX), 31);
        assert_eq!(answer_timeout(Duration::ZERO), 1);
    }

    #[test]
    fn waiting_for_receives() {
        assert_eq!(receive_retries(None).unwrap().0, 7);
        // Six times 3.84 ms, which is the first to reach 20 ms: code 17 of the standard's table.
        assert_eq!(receive_retries(Some(Duration::from_millis(20))).unwrap(), (6, 17));
        assert_eq!(receive_retries(Some(Duration::from_micros(5))).unwrap(), (6, 1));
        // Only the longest, 655.36 ms, is long enough.
        assert_eq!(receive_retries(Some(Duration::from_secs(3))).unwrap(), (6, 0));
        assert!(receive_retries(Some(Duration::from_secs(4))).is_err());
    }
}
