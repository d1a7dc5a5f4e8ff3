//! Tests of reliable connections: all operations.

use millstream_verbs::*;

use crate::common::*;

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_device_tells_what_it_is() {
    let rig = Rig::new();
    let limits = rig.context.limits().unwrap();
    assert_eq!(limits.ports, 1, "{limits:?}");
    // What is told is what holds: a queue one longer than the limit is refused.
    let longer = Capacity { sends: limits.requests_per_queue + 1, ..CAPACITY };
    let queue = rig.queue();
    let options = QueuePairOptions {
        transport: Transport::Reliable,
        send_queue: &queue,
        receive_queue: &queue,
        capacity: longer,
        all_signaled: false,
    };
    let error = QueuePair::new(&rig.domain, &options).err().unwrap();
    assert_eq!((error.call, error.errno), ("ibv_create_qp", libc::EINVAL));
    assert!(limits.reads_accepted_per_queue_pair >= 4, "{limits:?}");
    assert!(rig.port.is_active() && rig.port.ethernet, "{:?}", rig.port);
    assert!(rig.gid.port == 1 && rig.gid.gid != [0; 16], "{:?}", rig.gid);
    assert!(rig.context.port(9).is_err());

    let unknown = Context::open("no_such_device").unwrap_err().to_string();
    assert!(unknown.contains("no device \"no_such_device\"; there is rxe0"), "{unknown}");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn write_lands_and_nothing_around_it_changes() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let data = pattern(100_000, 1);
    put(&a.region, 0, &data);
    put(&b.region, 0, &[0xee; 200_000]);
    // Two pieces, one place; many packets.
    let pieces = [a.region.piece(0, 60_000).unwrap(), a.region.piece(60_000, 40_000).unwrap()];
    let done = a.run(SendRequest::write(5, &pieces, b.region.remote(1000)));
    assert_success(&done, 5, Operation::Write);
    assert_eq!(done.queue_pair(), a.pair.number());
    assert_eq!(get(&b.region, 1000, 100_000), data);
    assert_eq!(get(&b.region, 0, 1000), [0xee; 1000]);
    assert_eq!(get(&b.region, 101_000, 1000), [0xee; 1000]);
    assert!(is_empty(&b.queue), "a write completes only where it was posted");
    assert!(!a.pair.places_writes_in_order(), "the driver promises no order");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn write_with_immediate_takes_a_receive() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let data = pattern(5000, 2);
    put(&a.region, 0, &data);
    b.pair.post_receive(&mut [ReceiveRequest::new(40, &[])]).unwrap();
    let pieces = [a.region.piece(0, 5000).unwrap()];
    let write = SendRequest::write(6, &pieces, b.region.remote(64)).with_immediate(0xdead_beef);
    assert_success(&a.run(write), 6, Operation::Write);
    let received = next(&b.queue);
    assert_success(&received, 40, Operation::ReceiveWriteWithImmediate);
    assert!(received.is_receive());
    assert_eq!((received.immediate(), received.bytes()), (Some(0xdead_beef), 5000));
    assert_eq!(get(&b.region, 64, 5000), data);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn read_fetches() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let data = pattern(70_000, 3);
    put(&b.region, 500, &data);
    let pieces = [a.region.piece(8, 70_000).unwrap()];
    let done = a.run(SendRequest::read(7, &pieces, b.region.remote(500)));
    assert_success(&done, 7, Operation::Read);
    assert_eq!(get(&a.region, 8, 70_000), data);
    assert!(is_empty(&b.queue));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn send_fills_the_oldest_receive() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let data = pattern(9000, 4);
    put(&a.region, 0, &data);
    let pieces = [b.region.piece(0, 1000).unwrap(), b.region.piece(50_000, 20_000).unwrap()];
    b.pair
        .post_receive(&mut [ReceiveRequest::new(1, &pieces), ReceiveRequest::new(2, &[])])
        .unwrap();

    let pieces = [a.region.piece(0, 9000).unwrap()];
    assert_success(&a.run(SendRequest::send(8, &pieces)), 8, Operation::Send);
    let received = next(&b.queue);
    assert_success(&received, 1, Operation::Receive);
    assert_eq!((received.bytes(), received.immediate()), (9000, None));
    assert_eq!(get(&b.region, 0, 1000), data[..1000]);
    assert_eq!(get(&b.region, 50_000, 8000), data[1000..]);

    // An empty message, which carries only its immediate.
    let empty = SendRequest::send(9, &[]).with_immediate(17);
    assert_success(&a.run(empty), 9, Operation::Send);
    let received = next(&b.queue);
    assert_success(&received, 2, Operation::Receive);
    assert_eq!((received.bytes(), received.immediate()), (0, Some(17)));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn inline_bytes_are_taken_when_posted() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let limit = a.pair.capacity().inline_bytes as usize;
    assert!(limit >= CAPACITY.inline_bytes as usize);
    let mut bytes = pattern(limit, 5);
    let expected = bytes.clone();
    {
        // Not registered, and overwritten before the request is known to be done.
        let (head, tail) = bytes.split_at(10);
        let data = [InlineData::new(head), InlineData::new(tail)];
        let write = SendRequest::write(1, &[], b.region.remote(0)).inline(&data).signaled();
        a.pair.post_send(&mut [write]).unwrap();
    }
    bytes.fill(0);
    assert_success(&next(&a.queue), 1, Operation::Write);
    assert_eq!(get(&b.region, 0, limit), expected);

    let long = vec![1; limit + 1];
    let data = [InlineData::new(&long)];
    let write = SendRequest::write(2, &[], b.region.remote(0)).inline(&data).signaled();
    let refused = a.pair.post_send(&mut [write]).unwrap_err();
    assert_eq!((refused.posted, refused.error.errno), (0, libc::EINVAL));
    assert!(!refused.error.is_queue_full());
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn atomics_return_the_former_value() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let word = b.region.remote(4096);
    let former = [a.region.piece(16, 8).unwrap()];
    put(&b.region, 4096, &1000u64.to_ne_bytes());

    let add = SendRequest::fetch_and_add(1, &former, word, u64::MAX);
    assert_success(&a.run(add), 1, Operation::FetchAndAdd);
    assert_eq!((get_word(&a.region, 16), get_word(&b.region, 4096)), (1000, 999));

    let swap = SendRequest::compare_and_swap(2, &former, word, 998, 5);
    assert_success(&a.run(swap), 2, Operation::CompareAndSwap);
    assert_eq!((get_word(&a.region, 16), get_word(&b.region, 4096)), (999, 999));

    let swap = SendRequest::compare_and_swap(3, &former, word, 999, 5);
    assert_success(&a.run(swap), 3, Operation::CompareAndSwap);
    assert_eq!((get_word(&a.region, 16), get_word(&b.region, 4096)), (999, 5));

    // Not at a multiple of eight: refused at once, or by the peer.
    let add = SendRequest::fetch_and_add(4, &former, word.offset(4), 1).signaled();
    match a.pair.post_send(&mut [add]) {
        Err(refused) => assert_eq!(refused.error.errno, libc::EINVAL),
        Ok(()) => assert!(!next(&a.queue).status().is_success()),
    }
    assert_eq!(get(&b.region, 4096, 16), [[5, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn atomics_of_several_connections_exclude_each_other() {
    const ROUNDS: u64 = 200;
    let rig = Rig::new();
    let counter = rig.region(Access::ALL);
    let mut formers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| add_repeatedly(&rig, counter.remote(0), ROUNDS)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    formers.sort();
    assert_eq!(formers, (0..2 * ROUNDS).collect::<Vec<_>>());
    assert_eq!(get_word(&counter, 0), 2 * ROUNDS);
}

/// Adds one that often, over a connection of its own; the former values.
fn add_repeatedly(rig: &Rig, word: RemoteAddress, rounds: u64) -> Vec<u64> {
    let (a, _b) = rig.ends();
    let former = [a.region.piece(0, 8).unwrap()];
    let mut add = |round| {
        assert_success(
            &a.run(SendRequest::fetch_and_add(round, &former, word, 1)),
            round,
            Operation::FetchAndAdd,
        );
        get_word(&a.region, 0)
    };
    (0..rounds).map(&mut add).collect()
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn only_signaled_requests_complete_visibly() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    // Far more requests than the queue holds: room is reused after every fourth.
    for round in 0..100u64 {
        let words = [0, 1, 2, 3].map(|i| (4 * round + i).to_ne_bytes());
        let data = words.each_ref().map(|word| [InlineData::new(word)]);
        let mut list = [0, 1, 2, 3].map(|i| {
            SendRequest::write(4 * round + i as u64, &[], b.region.remote(8 * i)).inline(&data[i])
        });
        list[3] = list[3].signaled();
        a.pair.post_send(&mut list).unwrap();
        assert_success(&next(&a.queue), 4 * round + 3, Operation::Write);
        // In order, so the earlier ones are done.
        let found = [0, 8, 16, 24].map(|offset| get_word(&b.region, offset));
        assert_eq!(found, [0, 1, 2, 3].map(|i| 4 * round + i));
    }
    assert!(is_empty(&a.queue));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn all_signaled_completes_everything() {
    let rig = Rig::new();
    let (queue, other) = (rig.queue(), rig.end());
    let options = QueuePairOptions {
        transport: Transport::Reliable,
        send_queue: &queue,
        receive_queue: &queue,
        capacity: CAPACITY,
        all_signaled: true,
    };
    let pair = QueuePair::new(&rig.domain, &options).unwrap();
    rig.connect(&pair, other.pair.number(), RETRIES);
    rig.connect(&other.pair, pair.number(), RETRIES);
    let mut list = [1, 2].map(|id| SendRequest::write(id, &[], other.region.remote(0)));
    pair.post_send(&mut list).unwrap();
    assert_success(&next(&queue), 1, Operation::Write);
    assert_success(&next(&queue), 2, Operation::Write);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn memory_in_huge_pages() {
    const HUGE: usize = 2 << 20;
    let rig = Rig::new();
    let (a, _) = rig.ends();
    let (b, c) = rig.ends();
    let memory = Memory::new(2 * HUGE, Pages::Huge).expect("reserved huge pages");
    assert_eq!(memory.address().as_ptr() as usize % HUGE, 0);
    let region = MemoryRegion::new(&rig.domain, memory, Access::ALL).unwrap();
    assert_eq!(region.bytes(), 2 * HUGE);
    // Over the border between two pages.
    let data = pattern(100_000, 6);
    put(&b.region, 0, &data);
    let pieces = [b.region.piece(0, 100_000).unwrap()];
    let write = SendRequest::write(1, &pieces, region.remote(HUGE - 50_000));
    assert_success(&b.run(write), 1, Operation::Write);
    assert_eq!(get(&region, HUGE - 50_000, 100_000), data);
    // And from there.
    let pieces = [region.piece(HUGE - 50_000, 100_000).unwrap()];
    let write = SendRequest::write(2, &pieces, c.region.remote(0));
    assert_success(&b.run(write), 2, Operation::Write);
    assert_eq!(get(&c.region, 0, 100_000), data);
    assert!(region.piece(2 * HUGE - 1, 2).is_none() && region.piece(usize::MAX, 1).is_none());
    drop(a);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn memory_that_somebody_else_holds() {
    let rig = Rig::new();
    let (a, _b) = rig.ends();
    let memory = Memory::new(8192, Pages::Ordinary).unwrap();
    // SAFETY: the memory outlives the region.
    let region = unsafe {
        MemoryRegion::register(&rig.domain, memory.address(), memory.bytes(), Access::ALL)
    }
    .unwrap();
    put(&a.region, 0, b"shared");
    let pieces = [a.region.piece(0, 6).unwrap()];
    let write = SendRequest::write(1, &pieces, region.remote(100));
    assert_success(&a.run(write), 1, Operation::Write);
    assert_eq!(get(&region, 100, 6), b"shared");
    drop(region);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn parts_may_be_dropped_in_any_order() {
    let rig = Rig::new();
    let (a, b) = rig.ends();
    let remote = b.region.remote(0);
    let End { queue, pair, region } = a;
    drop(rig);
    // The queue pair keeps device, domain and completion queue.
    let weak = std::sync::Arc::downgrade(&queue);
    let pieces = [region.piece(0, 8).unwrap()];
    pair.post_send(&mut [SendRequest::write(1, &pieces, remote).signaled()]).unwrap();
    assert_success(&next(&queue), 1, Operation::Write);
    drop(queue);
    drop(region);
    assert!(weak.upgrade().is_some());
    drop(pair);
    assert!(weak.upgrade().is_none());
    drop(b);
}
