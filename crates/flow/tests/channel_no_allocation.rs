//! A test that messages cost no allocation, over shared memory and over TCP. It is alone in its
//! file because it counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{Access, Fabric};
use millstream_flow::channel::{Notification, Received, Settings, connect};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations while `messages` messages pass, after as many have.
fn allocations<F: Fabric>(devices: [&F; 2], settings: Settings, messages: u64) -> u64 {
    let events = [devices[0].events().unwrap(), devices[1].events().unwrap()];
    let (mut sender, mut receiver) = connect(devices, [&events[0], &events[1]], settings).unwrap();
    let [mut there, mut here] = events;
    let elsewhere = devices[0].allocate(4096, Access::LOCAL).unwrap();
    let patience = Duration::from_secs(20);
    let mut before = 0;
    for number in 0..2 * messages {
        if number == messages {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        let bytes = [8, 3000][number as usize % 2];
        let slot = sender.acquire(&mut there, patience).unwrap();
        match number / 2 % 2 {
            0 => slot.send(bytes, number).unwrap(),
            _ => slot.send_from(8, &elsewhere, 100, bytes - 8, number).unwrap(),
        }
        match receiver.receive(&mut here, patience).unwrap() {
            Received::Message(message) => {
                assert_eq!((message.len(), message.tag()), (bytes, number))
            }
            _ => panic!("message {number} did not come"),
        }
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn messages_allocate_nothing() {
    let token = Token::new([1; 32]);
    for notification in [Notification::Footer, Notification::Immediate] {
        let settings = Settings { slot_bytes: 4096, notification, ..Settings::default() };
        let device = ShmDevice::open(token).unwrap();
        assert_eq!(allocations([&device, &device], settings, 1000), 0, "shm, {notification:?}");
        let open = || TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();
        let (a, b) = (open(), open());
        // Lists of the card may still grow a little, when a heartbeat falls together with much
        // work.
        let count = allocations([&a, &b], settings, 1000);
        assert!(count < 10, "tcp, {notification:?}: {count} allocations");
    }
}
