//! Tests of what is special about `tcp`: the system's connections, and how they end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{
    Access, Completion, CompletionQueue, Destination, Endpoint, Fabric, Operation, QueuePair,
    QueueSizes, Region, Source, Status, Timing, WorkRequest,
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

/// Hands bytes on, at most so many every 5 ms.
fn hand_on(mut from: TcpStream, mut to: TcpStream, bytes: usize) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; bytes];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
    });
}

/// The same queue pair, behind a network that is slow in both directions.
fn slow(endpoint: Endpoint) -> Endpoint {
    let Endpoint { provider, mut detail } = endpoint;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = ("127.0.0.1", u16::from_le_bytes([detail[12], detail[13]]));
    detail[12..14].copy_from_slice(&listener.local_addr().unwrap().port().to_le_bytes());
    std::thread::spawn(move || {
        let there = TcpStream::connect(server).unwrap();
        let (here, _) = listener.accept().unwrap();
        hand_on(here.try_clone().unwrap(), there.try_clone().unwrap(), 1 << 16);
        hand_on(there, here, 1 << 16);
    });
    Endpoint { provider, detail }
}

/// A message may take longer than a peer may be silent: whose bytes arrive is not silent.
#[test]
fn a_long_message_over_a_slow_network_arrives() {
    // The network's buffers take some MiB at once.
    let bytes = 24 << 20;
    let silence = Duration::from_millis(500);
    let timing = Timing { silence, ..Timing::default() };
    let (here, there) = (device(), device());
    let (mut a, mut b) = (End::new(&here, bytes, timing), End::new(&there, bytes, timing));
    a.pair.connect(&slow(b.pair.endpoint())).unwrap();
    b.pair.connect(&a.pair.endpoint()).unwrap();
    let begin = Instant::now();
    let at = b.memory.remote().at(0, bytes as u64).unwrap();
    let source = Source::Region { region: &a.memory, offset: 0, bytes };
    a.pair.post(&[WorkRequest::write(source, at).signalled(1)]).unwrap();
    assert_eq!(a.next().status, Status::Success);
    let into = Destination { region: &a.memory, offset: 0, bytes };
    let read = WorkRequest::new(Operation::Read { into, from: at });
    a.pair.post(&[read.signalled(2)]).unwrap();
    assert_eq!(a.next().status, Status::Success);
    // What the test is about has happened.
    assert!(begin.elapsed() > 4 * silence, "{:?}", begin.elapsed());
}

#[test]
fn an_unspecified_address_is_refused() {
    let token = Token::new([9; 32]);
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error = TcpDevice::open(token, address.parse().unwrap()).err().unwrap().to_string();
        assert!(error.contains("unspecified address"), "{error}");
    }
    let device = device();
    let mut pair = small(&device).pair;
    let Endpoint { provider, mut detail } = pair.endpoint();
    detail[15..19].fill(0);
    let error = pair.connect(&Endpoint { provider, detail }).unwrap_err().to_string();
    assert!(error.contains("unspecified"), "{error}");
}
