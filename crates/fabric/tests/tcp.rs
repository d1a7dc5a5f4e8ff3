//! What is particular to TCP: connections of the system's, and what becomes of them.

use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{
    Access, Completion, CompletionQueue, Fabric, QueuePair, QueueSizes, Region, Source, Status,
    Timing, WorkRequest,
};

fn device() -> TcpDevice {
    TcpDevice::open(Token::new([9; 32]), "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// One end: a pair with its queue, and memory that the peer may use.
struct End {
    queue: <TcpDevice as Fabric>::CompletionQueue,
    pair: <TcpDevice as Fabric>::QueuePair,
    memory: Region,
}

impl End {
    fn new(device: &TcpDevice, bytes: usize, timing: Timing) -> End {
        let queue = device.completion_queue(64, None).unwrap();
        let sizes = QueueSizes { send: 16, receive: 16 };
        let pair = device.queue_pair(&queue, &queue, sizes, timing).unwrap();
        let memory = device.allocate(bytes, Access::REMOTE_ALL).unwrap();
        End { queue, pair, memory }
    }

    /// The next completion.
    fn next(&mut self) -> Completion {
        let begin = Instant::now();
        let mut one = [Completion::default()];
        while self.queue.poll(&mut one).unwrap() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "no completion came");
            std::thread::yield_now();
        }
        one[0]
    }

    /// Writes a word to the other end.
    fn write(&mut self, to: &End) -> Status {
        let to = to.memory.remote().at(0, 4).unwrap();
        self.pair.post(&[WorkRequest::write(Source::Inline(b"well"), to).signalled(1)]).unwrap();
        self.next().status
    }
}

fn small(device: &TcpDevice) -> End {
    End::new(device, 64, Timing::default())
}

/// Sockets of this process that listen at this port.
fn listeners(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table
        .lines()
        .filter(|line| line.contains(&format!("0100007F:{port:04X} 00000000:0000 0A")))
        .count()
}

#[test]
fn a_device_that_is_gone_listens_no_more() {
    for _ in 0..50 {
        let (here, there) = (device(), device());
        let (mut a, mut b) = (small(&here), small(&there));
        a.pair.connect(&b.pair.endpoint()).unwrap();
        b.pair.connect(&a.pair.endpoint()).unwrap();
        let ports = [here.address().port(), there.address().port()];
        assert_eq!(ports.map(listeners), [1, 1], "the test looks in the wrong place");
        drop((a, b, here, there));
        assert_eq!(ports.map(listeners), [0, 0]);
    }
}

/// A peer may take its time to connect, and there may be many of them.
#[test]
fn who_has_called_waits_until_its_peer_connects() {
    let (here, there) = (device(), device());
    let ends = |device| -> Vec<End> { (0..270).map(|_| small(device)).collect() };
    let (mut callers, mut called) = (ends(&here), ends(&there));
    for (a, b) in callers.iter_mut().zip(&called) {
        a.pair.connect(&b.pair.endpoint()).unwrap();
    }
    // Longer than a connection that says nothing is kept.
    std::thread::sleep(Duration::from_millis(2500));
    for (a, b) in callers.iter_mut().zip(&mut called).step_by(67) {
        b.pair.connect(&a.pair.endpoint()).unwrap();
        assert_eq!(a.write(b), Status::Success);
        assert_eq!(b.write(a), Status::Success);
    }
}
