//! Tests of shared receive queues.

use std::time::Duration;

use millstream_verbs::*;

use crate::common::*;

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn queue_pairs_share_receives() {
    let rig = Rig::new();
    let shared = SharedReceiveQueue::new(&rig.domain, 16, 2, 4711).unwrap();
    let senders = [rig.end(None), rig.end(None)];
    let receivers = [rig.end(Some(&shared)), rig.end(Some(&shared))];
    for (sender, receiver) in senders.iter().zip(&receivers) {
        rig.connect(&sender.pair, receiver.pair.number(), RETRIES);
        rig.connect(&receiver.pair, sender.pair.number(), RETRIES);
    }
    let region = rig.region(Access::ALL);
    let pieces: Vec<_> = (0..6).map(|i| [region.piece(100 * i, 100).unwrap()]).collect();
    let mut receives: Vec<_> =
        pieces.iter().enumerate().map(|(i, piece)| ReceiveRequest::new(i as u64, piece)).collect();
    shared.post_receive(&mut receives).unwrap();

    // Alternating senders; the receives are taken in the order in which they were posted.
    for i in 0..6 {
        let (sender, receiver) = (&senders[i % 2], &receivers[i % 2]);
        let text = format!("message {i}");
        let data = [InlineData::new(text.as_bytes())];
        assert_success(&sender.run(SendRequest::send(50, &[]).inline(&data)), 50, Operation::Send);
        let received = next(&receiver.queue);
        assert_success(&received, i as u64, Operation::Receive);
        assert_eq!(received.queue_pair(), receiver.pair.number());
        assert_eq!(get(&region, 100 * i, text.len()), text.as_bytes());
    }
    let error = receivers[0].pair.post_receive(&mut [ReceiveRequest::new(1, &[])]).unwrap_err();
    assert_eq!(error.error.errno, libc::EINVAL, "such a queue pair has no queue of its own");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_shared_queue_that_runs_low_says_so() {
    let rig = Rig::new();
    let shared = SharedReceiveQueue::new(&rig.domain, 16, 1, 4711).unwrap();
    let (sender, receiver) = (rig.end(None), rig.end(Some(&shared)));
    rig.connect(&sender.pair, receiver.pair.number(), RETRIES);
    rig.connect(&receiver.pair, sender.pair.number(), RETRIES);
    shared.post_receive(&mut [ReceiveRequest::new(1, &[]); 4]).unwrap();
    shared.set_limit(3).unwrap();
    let (capacity, limit) = shared.capacity_and_limit().unwrap();
    assert!(capacity >= 16 && limit == 3, "{capacity} {limit}");

    assert_success(&sender.run(SendRequest::send(1, &[])), 1, Operation::Send);
    assert_eq!(rig.context.next_event(Duration::from_millis(100)), Ok(None));
    assert_success(&sender.run(SendRequest::send(2, &[])), 2, Operation::Send);
    let event = rig.context.next_event(PATIENCE).unwrap().expect("an event");
    assert_eq!(event.source, EventSource::SharedReceiveQueue(4711), "{event:?}");
    assert_eq!(event.number, AsyncEvent::SHARED_RECEIVE_QUEUE_LIMIT, "{event:?}");
    assert_eq!(shared.capacity_and_limit().unwrap().1, 0, "the limit is said once");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_full_shared_queue() {
    let rig = Rig::new();
    let shared = SharedReceiveQueue::new(&rig.domain, 16, 1, 0).unwrap();
    let (capacity, _) = shared.capacity_and_limit().unwrap();
    let mut list = vec![ReceiveRequest::new(1, &[]); 4 * capacity as usize];
    let full = shared.post_receive(&mut list).unwrap_err();
    assert!(full.error.is_queue_full(), "{full}");
    assert!(full.posted >= 16 && full.posted < list.len(), "{full}");
}
