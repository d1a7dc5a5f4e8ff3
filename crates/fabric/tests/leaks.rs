//! A test that devices give everything back. It is alone in its file because it counts the file
//! descriptors of the whole process.

use std::time::Duration;

mod suite;

use self::suite::{Bed, Ends};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{
    Completion, CompletionQueue, Datagram, Fabric, Group, QueuePair, QueueSizes, Source,
    WorkRequest,
};

const SIZES: QueueSizes = QueueSizes { send: 4, receive: 4 };

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Opens two devices, connects them, writes from one to the other, and drops all of it: the
/// connection first, or while the devices' users are gone.
fn open_and_drop<F: Fabric>(open: impl Fn() -> F, devices_first: bool) {
    let (a, b) = (open(), open());
    let idle = &std::thread::yield_now;
    let bed = Bed { a: &a, b: &b, stranger: &a, idle, patience: Duration::from_secs(20) };
    let mut ends = Ends::new(&bed).unwrap();
    let to = ends.remote.remote().at(0, 8).unwrap();
    let write = WorkRequest::write(Source::Inline(&[1; 8]), to).signalled(1);
    ends.a.post(&[write]).unwrap();
    let mut done = [Completion::default()];
    while ends.a_queue.poll(&mut done).unwrap() == 0 {
        std::thread::yield_now();
    }
    let group = a.datagram(&ends.a_queue, &ends.a_queue, SIZES).map(|mut datagrams| {
        assert_eq!(datagrams.join(Group::new(1)).is_ok(), a.limits().multicast);
        datagrams
    });
    drop(group.unwrap());
    if devices_first {
        drop((a, b));
        drop(ends);
    }
}

#[test]
fn devices_close_all_that_they_opened() {
    let token = Token::new([5; 32]);
    let address = "127.0.0.1:0".parse().unwrap();
    let mut before = 0;
    // What is opened once and kept is opened in the first round.
    for round in 0..10 {
        for devices_first in [false, true] {
            open_and_drop(|| ShmDevice::open(token).unwrap(), devices_first);
            open_and_drop(|| TcpDevice::open(token, address).unwrap(), devices_first);
        }
        if round == 0 {
            before = descriptors();
        }
    }
    assert_eq!(descriptors(), before);
}
