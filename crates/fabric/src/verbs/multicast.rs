//! Multicast groups over RoCE version 2, which are IP multicast groups.
//!
//! Attaching a queue pair tells the device. The host's IP layer joins too: it passes packets on to
//! the Soft-RoCE driver, and it tells switches of members (IGMP). On InfiniBand the subnet manager
//! creates groups. libibverbs cannot ask the subnet manager, so there are no groups on InfiniBand.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use millstream_verbs as ibv;

use crate::error::{Error, Result};
use crate::group::Group;
use crate::setup::Token;

/// Number of the queue pair in datagrams to a group.
pub(super) const QUEUE_PAIR: u32 = 0x00ff_ffff;
/// A group's local identifier, which Ethernet does not use.
pub(super) const LID: u16 = 0;

/// Capability of a device to join groups and to send to them.
pub(super) struct Multicast {
    token: Token,
    /// Address of the device's network interface.
    interface: Ipv4Addr,
}

impl Multicast {
    /// The capability, or the reason why there is none.
    pub(super) fn new(
        token: Option<Token>,
        port: &ibv::Port,
        gid: Option<&ibv::GidEntry>,
        limits: &ibv::DeviceLimits,
    ) -> std::result::Result<Multicast, &'static str> {
        if !port.ethernet {
            return Err("multicast groups over InfiniBand, where only the subnet manager can \
                        create them");
        }
        if limits.multicast_groups == 0 {
            return Err("multicast groups on an RDMA device without multicast");
        }
        let interface = gid
            .filter(|entry| entry.kind == ibv::GidKind::RoceV2)
            .and_then(|entry| Ipv6Addr::from(entry.gid).to_ipv4_mapped())
            .ok_or(
                "multicast groups without a RoCE v2 GID of an IPv4 address; choose such a GID",
            )?;
        let token = token.ok_or("multicast groups without the job's token; set Options::token")?;
        Ok(Multicast { token, interface })
    }

    /// The group's multicast GID.
    pub(super) fn gid(&self, group: Group) -> ibv::Gid {
        group.address(&self.token).ip().to_ipv6_mapped().octets()
    }

    /// Lets the host's IP layer join the group until the socket is closed.
    pub(super) fn join_host(&self, group: Group) -> Result<UdpSocket> {
        let io = |source| Error::Os { call: "joining a multicast group", source };
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(io)?;
        let ip = *group.address(&self.token).ip();
        socket.join_multicast_v4(&ip, &self.interface).map_err(io)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(
        token: Option<Token>,
        ethernet: bool,
        (kind, address): (ibv::GidKind, &str),
        multicast_groups: u32,
    ) -> std::result::Result<Multicast, &'static str> {
        let gid = address.parse::<Ipv6Addr>().unwrap().octets();
        let gid = ibv::GidEntry { gid, index: 0, port: 1, kind };
        let mtu = ibv::Mtu::B1024;
        let port = ibv::Port { state: 4, mtu, message_bytes_max: 1, lid: 0, ethernet };
        let limits = ibv::DeviceLimits {
            ports: 1,
            requests_per_queue: 1,
            completions_per_queue: 1,
            reads_accepted_per_queue_pair: 1,
            reads_started_per_queue_pair: 1,
            multicast_groups,
            queue_pairs_per_group: 1,
        };
        Multicast::new(token, &port, Some(&gid), &limits)
    }

    #[test]
    fn groups_need_a_token_and_an_ipv4_address_of_roce_v2() {
        let (token, good) = (Some(Token::new([7; 32])), (ibv::GidKind::RoceV2, "::ffff:10.0.0.1"));
        let multicast = new(token, true, good, 1).unwrap();
        assert_eq!(multicast.interface, Ipv4Addr::new(10, 0, 0, 1));
        let gid = Ipv6Addr::from(multicast.gid(Group::new(3))).to_ipv4_mapped().unwrap();
        assert!(gid.is_multicast(), "{gid}");
        for (token, ethernet, gid, groups, word) in [
            (None, true, good, 1, "Options::token"),
            (token, false, good, 1, "InfiniBand"),
            (token, true, (ibv::GidKind::RoceV1, good.1), 1, "RoCE v2"),
            (token, true, (ibv::GidKind::RoceV2, "fe80::1"), 1, "IPv4"),
            (token, true, good, 0, "without multicast"),
        ] {
            let reason = new(token, ethernet, gid, groups).err().unwrap();
            assert!(reason.contains(word), "{reason}");
        }
    }
}
