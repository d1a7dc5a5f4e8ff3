//! Tests of waiting for completions, and of asynchronous events.

use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::time::Duration;

use millstream_verbs::*;

use crate::common::*;

const SHORT: Duration = Duration::from_millis(100);

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_channel_wakes_its_waiter() {
    let rig = Rig::new();
    let channel = CompletionChannel::new(&rig.context).unwrap();
    assert!(channel.as_fd().as_raw_fd() >= 0);
    let queue = CompletionQueue::new(&rig.context, 64, Some(&channel), 99).unwrap();
    assert!(queue.capacity() >= 64);
    let pair = rig.pair(Transport::Reliable, &queue);
    let other = rig.end();
    rig.connect(&pair, other.pair.number(), RETRIES);
    rig.connect(&other.pair, pair.number(), RETRIES);

    assert_eq!(channel.wait(SHORT), Ok(None), "nobody asked");
    queue.request_event().unwrap();
    assert_eq!(channel.wait(SHORT), Ok(None), "nothing happened");
    pair.post_receive(&mut [ReceiveRequest::new(3, &[])]).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| channel.wait(PATIENCE));
        assert_success(&other.run(SendRequest::send(1, &[])), 1, Operation::Send);
        assert_eq!(waiter.join().unwrap(), Ok(Some(99)));
    });
    assert_success(&next(&queue), 3, Operation::Receive);

    // One request, one event: the next completion is silent.
    pair.post_receive(&mut [ReceiveRequest::new(4, &[])]).unwrap();
    assert_success(&other.run(SendRequest::send(2, &[])), 2, Operation::Send);
    assert_success(&next(&queue), 4, Operation::Receive);
    assert_eq!(channel.wait(SHORT), Ok(None));
    assert!(rig.queue().request_event().is_err(), "a queue without channel");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_link_that_goes_down_and_up() {
    let rig = Rig::new();
    assert_eq!(rig.context.next_event(SHORT), Ok(None));
    let link = std::env::var("MILLSTREAM_RDMA_LINK").unwrap_or_else(|_| "dummy0".into());
    let set = |state| {
        let status = Command::new("ip").args(["link", "set", &link, state]).status().unwrap();
        assert!(status.success());
    };
    let wait_for = |number| {
        loop {
            let event = rig.context.next_event(PATIENCE).unwrap().expect("an event");
            eprintln!("{event:?}");
            assert_eq!(event.source, EventSource::Port(1), "{event:?}");
            if event.number == number {
                return event;
            }
        }
    };
    set("down");
    assert_eq!(wait_for(AsyncEvent::PORT_ERROR).description, "port error");
    assert!(!rig.context.port(1).unwrap().is_active());
    set("up");
    wait_for(AsyncEvent::PORT_ACTIVE);
    assert!(rig.context.port(1).unwrap().is_active());
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_completion_queue_that_overflows_is_broken() {
    let rig = Rig::new();
    let queue = CompletionQueue::new(&rig.context, 4, None, 31).unwrap();
    let pair = rig.pair(Transport::Reliable, &queue);
    let other = rig.end();
    rig.connect(&pair, other.pair.number(), RETRIES);
    rig.connect(&other.pair, pair.number(), RETRIES);
    let requests = queue.capacity() as usize + 8;
    for id in 0..requests as u64 {
        let write = SendRequest::write(id, &[], other.region.remote(0)).signaled();
        pair.post_send(&mut [write]).unwrap();
    }
    let event = rig.context.next_event(PATIENCE).unwrap().expect("an event");
    assert_eq!(event.source, EventSource::CompletionQueue(31), "{event:?}");
    assert_eq!(event.number, AsyncEvent::COMPLETION_QUEUE_ERROR, "{event:?}");
}
