//! Addresses of queue pairs, which processes exchange out of band.

use crate::error::{Error, Result};

/// The providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Provider {
    /// Simulated, in one process, in virtual time.
    Sim = 1,
    /// Shared memory, between processes of one host.
    Shm = 2,
    /// TCP, anywhere.
    Tcp = 3,
    /// RDMA network cards, and the kernel's software one.
    Verbs = 4,
}

impl Provider {
    /// Its name in settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Sim => "sim",
            Provider::Shm => "shm",
            Provider::Tcp => "tcp",
            Provider::Verbs => "verbs",
        }
    }

    fn from_tag(tag: u8) -> Option<Provider> {
        [Provider::Sim, Provider::Shm, Provider::Tcp, Provider::Verbs]
            .into_iter()
            .find(|provider| *provider as u8 == tag)
    }
}

/// Bytes of a provider's own part of an address.
pub const ENDPOINT_DETAIL_BYTES: usize = 63;

/// Address of a queue pair: a provider and what that provider needs to know (for verbs: LID, GID,
/// queue pair number, first packet number).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Whose address it is.
    pub provider: Provider,
    /// The provider's own encoding, padded with zeros.
    pub detail: [u8; ENDPOINT_DETAIL_BYTES],
}

impl Endpoint {
    /// Encoded length.
    pub const BYTES: usize = 1 + ENDPOINT_DETAIL_BYTES;

    /// For sending it to the peer.
    pub fn encode(&self) -> [u8; Endpoint::BYTES] {
        let mut bytes = [0; Endpoint::BYTES];
        bytes[0] = self.provider as u8;
        bytes[1..].copy_from_slice(&self.detail);
        bytes
    }

    /// Decodes what the peer sent. The provider checks its own part when it is used.
    pub fn decode(bytes: &[u8; Endpoint::BYTES]) -> Result<Endpoint> {
        let provider = Provider::from_tag(bytes[0])
            .ok_or(Error::BadEndpoint { reason: "no such provider is known here" })?;
        let mut detail = [0; ENDPOINT_DETAIL_BYTES];
        detail.copy_from_slice(&bytes[1..]);
        Ok(Endpoint { provider, detail })
    }

    /// The detail, if the address is one of `provider`.
    pub(crate) fn detail_for(&self, provider: Provider) -> Result<&[u8; ENDPOINT_DETAIL_BYTES]> {
        if self.provider != provider {
            return Err(Error::BadEndpoint { reason: "it belongs to another provider" });
        }
        Ok(&self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_is_what_was_encoded() {
        let detail = std::array::from_fn(|i| i as u8);
        let endpoint = Endpoint { provider: Provider::Tcp, detail };
        assert_eq!(Endpoint::decode(&endpoint.encode()).unwrap(), endpoint);
        let mut bytes = endpoint.encode();
        bytes[0] = 0;
        assert!(matches!(Endpoint::decode(&bytes), Err(Error::BadEndpoint { .. })));
    }
}
