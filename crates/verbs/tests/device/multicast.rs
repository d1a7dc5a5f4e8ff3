//! Tests of multicast groups.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use millstream_verbs::*;

use crate::common::*;
use crate::datagram::{HEADER, KEY, datagram_end};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
/// Number of the queue pair in datagrams to a group.
const EVERY_MEMBER: u32 = 0x00ff_ffff;

fn gid() -> Gid {
    GROUP.to_ipv6_mapped().octets()
}

/// The host's IP layer joins the group: packets that come back from the network interface are for
/// the driver only then.
fn join_host(rig: &Rig) -> UdpSocket {
    let interface = Ipv6Addr::from(rig.gid.gid).to_ipv4_mapped().expect("an IPv4 address");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.join_multicast_v4(&GROUP, &interface).unwrap();
    socket
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    let gids = rig.context.gids().unwrap();
    let is_ipv4 = |entry: &&GidEntry| {
        entry.kind == GidKind::RoceV2 && Ipv6Addr::from(entry.gid).to_ipv4_mapped().is_some()
    };
    rig.gid = *gids.iter().find(is_ipv4).expect("a RoCE v2 GID of an IPv4 address");
    rig
}

fn address(rig: &Rig) -> AddressHandle {
    AddressHandle::new(&rig.domain, &Path { gid: Some(gid()), lid: 0, ..rig.path() }).unwrap()
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn attached_queue_pairs_get_a_copy_each() {
    let rig = rig();
    let limits = rig.context.limits().unwrap();
    assert!(limits.multicast_groups > 0 && limits.queue_pairs_per_group > 1, "{limits:?}");
    let (_host, address) = (join_host(&rig), address(&rig));
    let ends = [0; 4].map(|_| datagram_end(&rig));
    let [sender, one, two, outside] = &ends;
    for end in [one, two] {
        end.pair.attach(&gid(), 0).unwrap();
        end.pair.attach(&gid(), 0).unwrap();
    }
    for end in &ends {
        end.receive(1, 0, HEADER + 5);
        end.receive(2, 100, HEADER + 5);
    }
    put(&sender.region, 0, b"grist");
    let pieces = [sender.region.piece(0, 5).unwrap()];
    let send = |key| SendRequest::send(9, &pieces).to(&address, EVERY_MEMBER, key);
    // Nobody has this key.
    assert_success(&sender.run(send(KEY + 1)), 9, Operation::Send);
    assert_success(&sender.run(send(KEY)), 9, Operation::Send);
    for end in [one, two] {
        let done = next(&end.queue);
        assert_success(&done, 1, Operation::Receive);
        assert_eq!(
            (done.bytes() as usize, get(&end.region, HEADER, 5)),
            (HEADER + 5, b"grist".to_vec())
        );
        assert_eq!(done.source_queue_pair(), sender.pair.number());
    }
    one.pair.detach(&gid(), 0).unwrap();
    assert!(one.pair.detach(&gid(), 0).is_err(), "it was detached");
    assert_success(&sender.run(send(KEY)), 9, Operation::Send);
    assert_success(&next(&two.queue), 2, Operation::Receive);
    for end in [one, outside, sender] {
        assert!(is_empty(&end.queue));
    }
}

/// A group takes no more than `queue_pairs_per_group`, so all that were dropped have left.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_queue_pair_that_is_dropped_is_detached() {
    let rig = rig();
    let most = rig.context.limits().unwrap().queue_pairs_per_group;
    for _ in 0..2 {
        let ends: Vec<End> = (0..most).map(|_| datagram_end(&rig)).collect();
        for end in &ends {
            end.pair.attach(&gid(), 0).unwrap();
        }
        let one_more = datagram_end(&rig);
        assert_eq!(one_more.pair.attach(&gid(), 0).unwrap_err().call, "ibv_attach_mcast");
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn only_datagrams_have_groups_and_only_groups_are_joined() {
    let rig = rig();
    let reliable = rig.end();
    assert!(reliable.pair.attach(&gid(), 0).is_err());
    let datagrams = datagram_end(&rig);
    let error = datagrams.pair.attach(&rig.gid.gid, 0).unwrap_err();
    assert_eq!((error.call, error.errno), ("ibv_attach_mcast", libc::EINVAL));
}
