//! Ports of a device: state, packet size, addresses (GIDs).

use crate::raw::*;

/// A port: its state and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The state as in the InfiniBand standard: 1 down, 2 initialising, 3 armed, 4 active.
    pub state: u32,
    /// The largest payload of a packet in use.
    pub mtu: Mtu,
    /// The largest message, in bytes.
    pub message_bytes_max: u32,
    /// The local identifier (InfiniBand); 0 on Ethernet.
    pub lid: u16,
    /// Whether the link is Ethernet (RoCE), which needs a GID in every address.
    pub ethernet: bool,
}

impl Port {
    /// Whether traffic can flow.
    pub fn is_active(&self) -> bool {
        self.state == 4
    }

    pub(crate) fn from_raw(raw: &ibv_port_attr) -> Port {
        Port {
            state: raw.state,
            mtu: Mtu::from_raw(raw.active_mtu),
            message_bytes_max: raw.max_msg_sz,
            lid: raw.lid,
            ethernet: raw.link_layer == 2,
        }
    }
}

/// The largest payload of a packet. UD messages are one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// In bytes.
    pub fn bytes(self) -> usize {
        128 << self as usize
    }

    /// Meaning of the library's number; for an undefined number, the smallest size.
    pub(crate) fn from_raw(raw: u32) -> Mtu {
        match raw {
            5.. => Mtu::B4096,
            4 => Mtu::B2048,
            3 => Mtu::B1024,
            2 => Mtu::B512,
            _ => Mtu::B256,
        }
    }
}

/// A global identifier: an InfiniBand port's, or on Ethernet an IPv6 address or a mapped IPv4 one.
pub type Gid = [u8; 16];

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The identifier.
    pub gid: Gid,
    /// Its place in the port's table.
    pub index: u8,
    /// The port.
    pub port: u8,
    /// The protocol it is for.
    pub kind: GidKind,
}

/// The protocol that a GID is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: on Ethernet, not routable.
    RoceV1,
    /// RoCE version 2: on UDP.
    RoceV2,
}

impl GidEntry {
    pub(crate) fn from_raw(raw: &ibv_gid_entry) -> GidEntry {
        GidEntry {
            gid: raw.gid.raw,
            index: raw.gid_index as u8,
            port: raw.port_num as u8,
            kind: match raw.gid_type {
                0 => GidKind::InfiniBand,
                1 => GidKind::RoceV1,
                _ => GidKind::RoceV2,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_in_bytes() {
        // The InfiniBand standard's five sizes.
        let sizes = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096].map(Mtu::bytes);
        assert_eq!(sizes, [256, 512, 1024, 2048, 4096]);
        assert_eq!((1..=5).map(|n| Mtu::from_raw(n).bytes()).collect::<Vec<_>>(), sizes);
    }
}
