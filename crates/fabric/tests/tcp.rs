//! What is particular to TCP: connections of the system's, and what becomes of them.

use millstream_fabric::setup::Token;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{Access, Fabric, QueuePair, QueueSizes, Region, Timing};

fn device() -> TcpDevice {
    TcpDevice::open(Token::new([9; 32]), "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// One end: a pair, and memory that the peer may use.
struct End {
    pair: <TcpDevice as Fabric>::QueuePair,
    _memory: Region,
}

impl End {
    fn new(device: &TcpDevice, bytes: usize, timing: Timing) -> End {
        let queue = device.completion_queue(64, None).unwrap();
        let sizes = QueueSizes { send: 16, receive: 16 };
        let pair = device.queue_pair(&queue, &queue, sizes, timing).unwrap();
        let memory = device.allocate(bytes, Access::REMOTE_ALL).unwrap();
        End { pair, _memory: memory }
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
