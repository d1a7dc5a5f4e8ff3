//! A fuzz target: a peer that knows the token sends nonsense to a device over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use millstream_fabric::setup::{MAGIC, Token, VERSION};
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{
    Access, Completion, CompletionQueue, ENDPOINT_DETAIL_BYTES, Endpoint, Fabric, Provider,
    QueuePair, QueueSizes, Receive, Source, Status, Timing, WorkRequest,
};

use crate::{Budget, Chance, TOKEN, mutate};

/// Connections in the short form.
const CONNECTIONS: u64 = 60;
/// The peer's device and queue pair, which only this test knows.
const DEVICE: u64 = 99;
const PAIR: u32 = 7;
const SIZES: QueueSizes = QueueSizes { send: 8, receive: 8 };

/// A frame with `bytes` bytes behind its header, or that many wanted.
pub(crate) fn frame(kind: u8, bytes: u32, address: u64, key: u32) -> Vec<u8> {
    let mut frame = vec![0; 40];
    frame[0] = kind;
    frame[1] = 1;
    frame[4..8].copy_from_slice(&bytes.to_le_bytes());
    frame[12..16].copy_from_slice(&key.to_le_bytes());
    frame[16..24].copy_from_slice(&address.to_le_bytes());
    if kind <= 2 {
        frame.extend((0..bytes).map(|i| i as u8));
    }
    frame
}

fn greeting() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes(), &TOKEN].concat()
}

fn endpoint(address: SocketAddr) -> Endpoint {
    let mut detail = [0; ENDPOINT_DETAIL_BYTES];
    detail[..8].copy_from_slice(&DEVICE.to_le_bytes());
    detail[8..12].copy_from_slice(&PAIR.to_le_bytes());
    detail[12..14].copy_from_slice(&address.port().to_le_bytes());
    detail[14] = 4;
    detail[15..19].copy_from_slice(&[127, 0, 0, 1]);
    Endpoint { provider: Provider::Tcp, detail }
}

/// The stranger's two connections with a pair of the device: one that it was called on, one that it
/// opened.
fn connect(device: &TcpDevice, pair: &mut impl QueuePair) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = endpoint(listener.local_addr().unwrap());
    let called = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 60]).unwrap();
        stream.write_all(&greeting()).unwrap();
        stream
    });
    pair.connect(&here).unwrap();
    let mut stream = TcpStream::connect(device.address()).unwrap();
    let hello = [&greeting()[..], &DEVICE.to_le_bytes(), &PAIR.to_le_bytes()].concat();
    stream.write_all(&[&hello[..], &pair.number().to_le_bytes()].concat()).unwrap();
    stream.read_exact(&mut [0; 44]).unwrap();
    (called.join().unwrap(), stream)
}

#[test]
fn streams_of_frames() {
    let device = TcpDevice::open(Token::new(TOKEN), "127.0.0.1:0".parse().unwrap()).unwrap();
    let open = device.allocate(4096, Access::REMOTE_ALL).unwrap();
    let closed = device.allocate(4096, Access::LOCAL).unwrap();
    closed.write(0, &[0xee; 4096]).unwrap();
    let (mut chance, mut budget) = (Chance::new(2), Budget::new(CONNECTIONS));
    let mut reached = false;
    while budget.goes_on() {
        let mut queue = device.completion_queue(64, None).unwrap();
        let mut pair = device.queue_pair(&queue, &queue, SIZES, Timing::default()).unwrap();
        let buffer = millstream_fabric::Destination { region: &open, offset: 2048, bytes: 64 };
        pair.post_receive(&[Receive { id: 1, buffer: Some(buffer) }; 4]).unwrap();
        let (mut called, mut stream) = connect(&device, &mut pair);
        let to = open.remote();
        let mut nonsense = Vec::new();
        for _ in 0..1 + chance.below(8) {
            let kind = 1 + chance.below(6) as u8;
            let bytes = if matches!(kind, 4..=6) { 0 } else { 8 * chance.below(9) as u32 };
            nonsense.extend(frame(kind, bytes, to.address + 64, to.key));
        }
        if chance.below(8) > 0 {
            mutate(&mut nonsense, &mut chance);
        }
        // Answers to what was never asked, too.
        let mut answers = frame(16 + chance.below(5) as u8, 0, chance.below(3), 1);
        mutate(&mut answers, &mut chance);
        // It may be cut off at any time.
        drop(stream.write_all(&nonsense));
        if chance.below(2) == 0 {
            drop(called.write_all(&answers));
        }
        for stream in [&mut stream, &mut called] {
            stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            drop(stream.read(&mut [0; 4096]));
        }
        drop(queue.poll(&mut [Completion::default(); 8]));
        let mut bytes = [0; 8];
        open.read(64, &mut bytes).unwrap();
        reached |= bytes != [0; 8];
    }
    assert!(reached, "no frame was good enough to be executed");
    let mut untouched = [0; 4096];
    closed.read(0, &mut untouched).unwrap();
    assert!(untouched.iter().all(|byte| *byte == 0xee), "a closed region was changed");
    assert_works(&device);
}

/// Other connections of the device are as before.
fn assert_works(device: &TcpDevice) {
    let mut queue = device.completion_queue(64, None).unwrap();
    let memory = device.allocate(64, Access::REMOTE_WRITE).unwrap();
    let mut a = device.queue_pair(&queue, &queue, SIZES, Timing::default()).unwrap();
    let mut b = device.queue_pair(&queue, &queue, SIZES, Timing::default()).unwrap();
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    let to = memory.remote().at(0, 4).unwrap();
    a.post(&[WorkRequest::write(Source::Inline(b"well"), to).signalled(3)]).unwrap();
    let mut one = [Completion::default()];
    while queue.poll(&mut one).unwrap() == 0 {
        std::thread::yield_now();
    }
    assert_eq!((one[0].id, one[0].status), (3, Status::Success));
}
