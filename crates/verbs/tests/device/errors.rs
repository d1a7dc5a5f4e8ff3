//! Tests of failures: each is reported, on the side that can know of it.

use millstream_verbs::*;

use crate::common::*;

/// Posts a request that must fail with that status, and finds the queue pair in the error state.
fn assert_fails(end: &End, request: SendRequest<'_>, status: Status) {
    let done = end.run(request);
    assert_eq!(done.status(), status, "{done:?}");
    assert_eq!(end.pair.state().unwrap(), State::Error);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn wrong_remote_keys_and_places() {
    let rig = Rig::new();
    let readable = rig.region(Access::LOCAL_WRITE | Access::REMOTE_READ);
    let writable = rig.region(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let gone = {
        let region = rig.region(Access::ALL);
        region.remote(0)
    };
    let other_domain = ProtectionDomain::new(&rig.context).unwrap();
    let memory = Memory::new(4096, Pages::Ordinary).unwrap();
    let foreign = MemoryRegion::new(&other_domain, memory, Access::ALL).unwrap();
    let good = rig.region(Access::ALL);
    let wrong_key = RemoteAddress { remote_key: good.remote_key() ^ 0x55, ..good.remote(0) };

    for (what, place) in [
        ("wrong key", wrong_key),
        ("over the end", good.remote(REGION_BYTES - 7)),
        ("before the beginning", good.remote(0usize.wrapping_sub(8))),
        ("no right to write", readable.remote(0)),
        ("another domain", foreign.remote(0)),
        ("deregistered", gone),
    ] {
        eprintln!("write: {what}");
        let (a, _b) = rig.ends();
        let pieces = [a.region.piece(0, 8).unwrap()];
        assert_fails(&a, SendRequest::write(1, &pieces, place), Status::REMOTE_ACCESS_ERROR);
    }
    let (a, _b) = rig.ends();
    let pieces = [a.region.piece(0, 8).unwrap()];
    let read = SendRequest::read(1, &pieces, writable.remote(0));
    assert_fails(&a, read, Status::REMOTE_ACCESS_ERROR);
    let (a, _b) = rig.ends();
    let former = [a.region.piece(0, 8).unwrap()];
    let add = SendRequest::fetch_and_add(1, &former, writable.remote(0), 1);
    assert_fails(&a, add, Status::REMOTE_ACCESS_ERROR);
    assert_eq!(get(&readable, 0, 64), [0; 64]);
    assert_eq!(get(&writable, 0, 64), [0; 64]);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_queue_pair_that_allows_nothing() {
    let rig = Rig::new();
    let (a, b) = (rig.end(), rig.end());
    rig.connect(&a.pair, b.pair.number(), RETRIES);
    b.pair.initialize_reliable(1, Access::LOCAL_WRITE).unwrap();
    let peer = Peer {
        path: rig.path(),
        queue_pair: a.pair.number(),
        first_packet: RETRIES.first_packet,
        mtu: rig.port.mtu,
        reads_accepted: 4,
        receiver_not_ready_timer: 12,
    };
    b.pair.connect(&peer).unwrap();
    b.pair.start_reliable(&RETRIES).unwrap();
    let pieces = [a.region.piece(0, 8).unwrap()];
    let done = a.run(SendRequest::write(1, &pieces, b.region.remote(0)));
    assert!(!done.status().is_success(), "{done:?}");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn wrong_local_keys() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let mut piece = a.region.piece(0, 8).unwrap();
    piece.local_key ^= 0x55;
    let pieces = [piece];
    let write = SendRequest::write(1, &pieces, b.region.remote(0));
    let done = a.run(write);
    // The first is what the standard says, the others what Soft-RoCE says, in Linux 6.1 and 6.12.
    let statuses = [Status::LOCAL_PROTECTION_ERROR, Status::LOCAL_OPERATION_ERROR, Status::FLUSHED];
    assert!(statuses.contains(&done.status()), "{done:?}");
    assert_eq!(a.pair.state().unwrap(), State::Error);
    assert_eq!(get(&b.region, 0, 8), [0; 8]);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_message_longer_than_its_receive() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    b.receive(1, 0, 100);
    let pieces = [a.region.piece(0, 101).unwrap()];
    let done = a.run(SendRequest::send(2, &pieces));
    // The second is what the standard says, the first what Soft-RoCE says; so below.
    let statuses = [Status::REMOTE_OPERATION_ERROR, Status::REMOTE_INVALID_REQUEST];
    assert!(statuses.contains(&done.status()), "{done:?}");
    let received = next(&b.queue);
    let statuses = [Status::LOCAL_OPERATION_ERROR, Status::LOCAL_LENGTH_ERROR];
    assert!(received.id() == 1 && statuses.contains(&received.status()), "{received:?}");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_receiver_that_is_not_ready() {
    let rig = Rig::new();
    let (a, b) = (rig.end(), rig.end());
    rig.connect(&a.pair, b.pair.number(), Retries { receiver_not_ready: 1, ..RETRIES });
    rig.connect(&b.pair, a.pair.number(), RETRIES);
    let pieces = [a.region.piece(0, 8).unwrap()];
    let mut list = [SendRequest::send(1, &pieces), SendRequest::send(2, &pieces)];
    a.pair.post_send(&mut list).unwrap();
    let done = next(&a.queue);
    assert_eq!((done.id(), done.status()), (1, Status::RECEIVER_NOT_READY));
    // What stood behind it is flushed, and everything posted from now on.
    let done = next(&a.queue);
    assert_eq!((done.id(), done.status()), (2, Status::FLUSHED));
    a.pair.post_send(&mut [SendRequest::send(3, &pieces)]).unwrap();
    let done = next(&a.queue);
    assert_eq!((done.id(), done.status()), (3, Status::FLUSHED));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_receiver_that_becomes_ready() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    put(&a.region, 0, b"patience");
    let pieces = [a.region.piece(0, 8).unwrap()];
    a.pair.post_send(&mut [SendRequest::send(1, &pieces).signaled()]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(is_empty(&a.queue), "nothing can have been received");
    b.receive(2, 0, 8);
    assert_success(&next(&a.queue), 1, Operation::Send);
    assert_success(&next(&b.queue), 2, Operation::Receive);
    assert_eq!(get(&b.region, 0, 8), b"patience");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_peer_that_does_not_answer() {
    let rig = Rig::new();
    let (a, b) = (rig.end(), rig.end());
    // 4.096 µs times 2^12 is 17 ms, tried three times.
    rig.connect(&a.pair, b.pair.number(), Retries { timeout: 12, count: 2, ..RETRIES });
    let pieces = [a.region.piece(0, 8).unwrap()];
    let write = SendRequest::write(1, &pieces, b.region.remote(0));
    assert_fails(&a, write, Status::RETRIES_EXCEEDED);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_full_send_queue() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    // No receive is posted, so nothing completes. A queue may hold more than it says.
    let mut list = vec![SendRequest::send(1, &[]).signaled(); 4 * CAPACITY.sends as usize];
    let full = a.pair.post_send(&mut list).unwrap_err();
    assert!(full.error.is_queue_full(), "{full}");
    assert!(full.posted >= CAPACITY.sends as usize && full.posted < list.len(), "{full}");
    for _ in 0..full.posted {
        b.pair.post_receive(&mut [ReceiveRequest::new(2, &[])]).unwrap();
        assert_success(&next(&a.queue), 1, Operation::Send);
        assert_success(&next(&b.queue), 2, Operation::Receive);
    }
    assert!(is_empty(&a.queue));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_full_receive_queue() {
    let rig = Rig::new();
    let (a, _b) = rig.ends();
    let mut list = vec![ReceiveRequest::new(1, &[]); 4 * CAPACITY.receives as usize];
    let full = a.pair.post_receive(&mut list).unwrap_err();
    assert!(full.error.is_queue_full(), "{full}");
    assert!(full.posted >= CAPACITY.receives as usize && full.posted < list.len(), "{full}");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn states_and_flushing() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    assert_eq!(rig.end().pair.state().unwrap(), State::Reset);
    assert_eq!(a.pair.state().unwrap(), State::ReadyToSend);
    b.receive(1, 0, 8);
    b.receive(2, 8, 8);
    b.pair.fail().unwrap();
    assert_eq!(b.pair.state().unwrap(), State::Error);
    for id in [1, 2] {
        let flushed = next(&b.queue);
        assert_eq!((flushed.id(), flushed.status()), (id, Status::FLUSHED));
    }
    // A queue pair can be used again from the beginning.
    for end in [&a, &b] {
        end.pair.reset().unwrap();
        assert_eq!(end.pair.state().unwrap(), State::Reset);
    }
    rig.connect(&a.pair, b.pair.number(), RETRIES);
    rig.connect(&b.pair, a.pair.number(), RETRIES);
    let pieces = [a.region.piece(0, 8).unwrap()];
    let done = a.run(SendRequest::write(3, &pieces, b.region.remote(0)));
    assert_success(&done, 3, Operation::Write);
    // States are not skipped.
    let error = rig.end().pair.start_reliable(&RETRIES).unwrap_err();
    assert_eq!((error.call, error.errno), ("ibv_modify_qp", libc::EINVAL));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn what_belongs_to_another_device_is_refused() {
    let (rig, other) = (Rig::new(), Rig::new());
    let (queue, foreign) = (rig.queue(), other.queue());
    let options = QueuePairOptions {
        transport: Transport::Reliable,
        send_queue: &queue,
        receive_queue: &foreign,
        capacity: CAPACITY,
        all_signaled: false,
    };
    assert_eq!(QueuePair::new(&rig.domain, &options).err().unwrap().errno, libc::EINVAL);
    let channel = CompletionChannel::new(&other.context).unwrap();
    let error = CompletionQueue::new(&rig.context, 8, Some(&channel), 0).err().unwrap();
    assert_eq!(error.errno, libc::EINVAL);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn registering_what_is_not_there() {
    let rig = Rig::new();
    let memory = Memory::new(4096, Pages::Ordinary).unwrap();
    let (address, bytes) = (memory.address(), memory.bytes());
    drop(memory);
    // SAFETY: nothing is mapped there, so nothing can be written to.
    let result = unsafe { MemoryRegion::register(&rig.domain, address, bytes, Access::ALL) };
    let error = result.err().expect("an error");
    assert_eq!((error.call, error.errno), ("ibv_reg_mr", libc::EFAULT));
    assert_eq!(error.to_string(), "ibv_reg_mr failed: Bad address (os error 14)");
}
