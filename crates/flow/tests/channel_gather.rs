//! Tests of messages whose second part is sent from another place in memory, over the providers
//! that move bytes between threads.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{Access, Fabric, Region};
use millstream_flow::channel::{
    Notification, Received, Receiver, Sender, Settings, Stats, connect,
};

const PATIENCE: Duration = Duration::from_secs(60);
const MESSAGES: u64 = 300;
/// Blocks that messages are sent from, each used again when its message is released.
const BLOCKS: usize = 3;

/// Sizes from nothing to a full slot: of the message, and of its beginning.
fn sizes(number: u64, max: usize) -> (usize, usize) {
    let bytes = match number % 5 {
        0 => max,
        1 => 0,
        _ => (number as usize).wrapping_mul(7919) % (max + 1),
    };
    let head = match number % 3 {
        0 => 0,
        1 => bytes,
        _ => (number as usize).wrapping_mul(104_729) % (bytes + 1),
    };
    (bytes, head)
}

/// What message `number` says.
fn text(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (number.wrapping_mul(0x9e37_79b9) >> (i % 24)) as u8 ^ i as u8)
        .collect()
}

/// Sends every message from a block of `region`, and writes over the block when its message is
/// released.
fn send_all<F: Fabric>(mut sender: Sender<F>, mut events: F::Events, region: &Region) -> Stats {
    let max = sender.payload_bytes();
    let mut used = VecDeque::new();
    for number in 0..MESSAGES {
        let (bytes, head) = sizes(number, max);
        let at = (number as usize % BLOCKS) * max;
        while used.len() == BLOCKS {
            if sender.released().unwrap() >= used[0] {
                used.pop_front();
            } else if sender.park().unwrap() && sender.released().unwrap() < used[0] {
                millstream_fabric::Events::wait(&mut events, Duration::from_millis(250)).unwrap();
            }
        }
        region.write(at, &vec![0xee; max]).unwrap();
        let message = text(number, bytes);
        region.write(at, &message[head..]).unwrap();
        let mut slot = sender.acquire(&mut events, PATIENCE).unwrap();
        slot.payload()[..head].copy_from_slice(&message[..head]);
        slot.send_from(head, region, at, bytes - head, number).unwrap();
        used.push_back(sender.sent());
    }
    sender.finish(&mut events, PATIENCE).unwrap()
}

fn receive_all<F: Fabric>(mut receiver: Receiver<F>, mut events: F::Events, max: usize) {
    for number in 0..MESSAGES {
        let Received::Message(message) = receiver.receive(&mut events, PATIENCE).unwrap() else {
            panic!("message {number} did not come");
        };
        assert_eq!(message.tag(), number);
        assert!(*message == text(number, sizes(number, max).0), "message {number} is damaged");
    }
    assert!(matches!(receiver.receive(&mut events, PATIENCE).unwrap(), Received::End));
}

/// Two threads; returns what the sender counted.
fn pass<F: Fabric>(devices: [&F; 2], settings: Settings) -> Stats {
    let (there, here) = (devices[0].events().unwrap(), devices[1].events().unwrap());
    let (sender, receiver) = connect(devices, [&there, &here], settings).unwrap();
    let max = settings.payload_bytes();
    // Memory of the program itself, as an arena of state is.
    let mut memory = vec![0_u8; BLOCKS * max];
    let start = std::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: `memory` lives longer than the region and the sender, and is used through the region
    // only.
    let region = unsafe { devices[0].register(start, memory.len(), Access::LOCAL) }.unwrap();
    let stats = std::thread::scope(|scope| {
        let producer = scope.spawn(|| send_all(sender, there, &region));
        receive_all(receiver, here, max);
        producer.join().unwrap()
    });
    drop(region);
    drop(memory);
    assert_eq!(stats.messages, MESSAGES);
    stats
}

fn settings(slot_bytes: usize, notification: Notification) -> Settings {
    Settings { slots: 4, slot_bytes, notification, ..Settings::default() }
}

#[test]
fn shm() {
    let open = || ShmDevice::open(Token::new([1; 32])).unwrap();
    let (a, b) = (open(), open());
    for slot_bytes in [64, 4096, 64 << 10] {
        // Stored in place: only what wakes is posted.
        pass([&a, &b], settings(slot_bytes, Notification::Footer));
        let posted = pass([&a, &b], settings(slot_bytes, Notification::Immediate)).writes;
        assert!(posted > MESSAGES, "{posted} writes");
    }
}

#[test]
fn tcp() {
    let open = || TcpDevice::open(Token::new([1; 32]), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (a, b) = (open(), open());
    for notification in [Notification::Footer, Notification::Immediate] {
        for slot_bytes in [64, 4096, 64 << 10] {
            pass([&a, &b], settings(slot_bytes, notification));
        }
    }
}
