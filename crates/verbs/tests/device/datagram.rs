//! Tests of unreliable datagrams.

use std::sync::Arc;

use millstream_verbs::*;

use crate::common::*;

pub(crate) const KEY: u32 = 0x1234_5678;

/// The bytes in front of every datagram that is received.
pub(crate) const HEADER: usize = 40;

/// A queue pair that is ready to send, with its completion queue and memory.
pub(crate) fn datagram_end(rig: &Rig) -> End {
    let queue = rig.queue();
    let pair = rig.pair(Transport::Datagram, &queue);
    pair.initialize_datagram(1, KEY).unwrap();
    pair.start_datagram(5).unwrap();
    End { queue, pair, region: rig.region(Access::ALL) }
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn datagrams_reach_any_queue_pair() {
    let rig = Rig::new();
    let sender = datagram_end(&rig);
    let receivers = [datagram_end(&rig), datagram_end(&rig)];
    let address = AddressHandle::new(&rig.domain, &rig.path()).unwrap();
    // The largest message: one packet.
    let bytes = rig.port.mtu.bytes();
    let data = pattern(bytes, 7);
    put(&sender.region, 0, &data);
    for (i, receiver) in receivers.iter().enumerate() {
        receiver.receive(20 + i as u64, 64, HEADER + bytes);
        let pieces = [sender.region.piece(0, bytes).unwrap()];
        let send = SendRequest::send(1, &pieces).with_immediate(i as u32).to(
            &address,
            receiver.pair.number(),
            KEY,
        );
        assert_success(&sender.run(send), 1, Operation::Send);
        let received = next(&receiver.queue);
        assert_success(&received, 20 + i as u64, Operation::Receive);
        assert_eq!(received.bytes() as usize, HEADER + bytes);
        assert_eq!(received.immediate(), Some(i as u32));
        assert_eq!(received.source_queue_pair(), sender.pair.number());
        assert_eq!(get(&receiver.region, 64 + HEADER, bytes), data);
        // RoCE v2 over IPv4: the address stands at the end of the header.
        assert_eq!(get(&receiver.region, 64 + 36, 4), rig.gid.gid[12..]);
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn inline_datagrams() {
    let rig = Rig::new();
    let (a, b) = (datagram_end(&rig), datagram_end(&rig));
    let address = Arc::new(AddressHandle::new(&rig.domain, &rig.path()).unwrap());
    b.receive(1, 0, 100);
    let data = [InlineData::new(b"hello")];
    let send = SendRequest::send(2, &[]).inline(&data).to(&address, b.pair.number(), KEY);
    assert_success(&a.run(send), 2, Operation::Send);
    assert_success(&next(&b.queue), 1, Operation::Receive);
    assert_eq!(get(&b.region, HEADER, 5), b"hello");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn datagrams_are_lost_silently() {
    let rig = Rig::new();
    let (a, b) = (datagram_end(&rig), datagram_end(&rig));
    let address = AddressHandle::new(&rig.domain, &rig.path()).unwrap();
    put(&a.region, 0, b"lost");
    put(&a.region, 4, b"kept");
    let lost = [a.region.piece(0, 4).unwrap()];
    let kept = [a.region.piece(4, 4).unwrap()];
    // No receive is posted; then the wrong key; then nobody of that number.
    let number = b.pair.number();
    assert_success(
        &a.run(SendRequest::send(1, &lost).to(&address, number, KEY)),
        1,
        Operation::Send,
    );
    b.receive(9, 0, HEADER + 4);
    for (number, key) in [(number, KEY + 1), (0xff_fff0, KEY)] {
        let send = SendRequest::send(2, &lost).to(&address, number, key);
        assert_success(&a.run(send), 2, Operation::Send);
    }
    assert_success(
        &a.run(SendRequest::send(3, &kept).to(&address, number, KEY)),
        3,
        Operation::Send,
    );
    assert_success(&next(&b.queue), 9, Operation::Receive);
    assert_eq!(get(&b.region, HEADER, 4), b"kept");
    assert!(is_empty(&b.queue));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn what_is_not_a_datagram_is_refused() {
    let rig = Rig::new();
    let (a, b) = (datagram_end(&rig), datagram_end(&rig));
    let address = AddressHandle::new(&rig.domain, &rig.path()).unwrap();
    let small = [a.region.piece(0, 8).unwrap()];
    let number = b.pair.number();
    let good = SendRequest::send(1, &small).to(&address, number, KEY).signaled();
    let remote = b.region.remote(0);
    for bad in [
        SendRequest::send(2, &small),
        SendRequest::write(2, &small, remote),
        SendRequest::write(2, &small, remote).to(&address, number, KEY),
        SendRequest::fetch_and_add(2, &small, remote, 1),
    ] {
        let refused = a.pair.post_send(&mut [good, bad]).unwrap_err();
        assert_eq!((refused.posted, refused.error.errno), (0, libc::EINVAL));
    }
    let other = Rig::new();
    let foreign = AddressHandle::new(&other.domain, &other.path()).unwrap();
    let send = SendRequest::send(2, &small).to(&foreign, number, KEY);
    assert_eq!(a.pair.post_send(&mut [send]).unwrap_err().error.errno, libc::EINVAL);
    assert!(is_empty(&a.queue));
}
