//! Tests of channels over `verbs`: between threads, processes and machines. `tests/rdma` runs them
//! in virtual machines, over the kernel's Soft-RoCE driver.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use millstream_fabric::setup::{Token, answer, call};
use millstream_fabric::verbs::{Options, Verbs};
use millstream_fabric::{Access, Fabric, Region, Timing};
use millstream_flow::channel::*;

/// How long anything may take in emulated machines.
const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: [u8; 32] = [3; 32];
const MESSAGES: u64 = 300;

/// The role of a process that this test's binary starts, and the port to call.
const ROLE: &str = "MILLSTREAM_TEST_ROLE";
/// Which of two machines this is, and the other's address.
const HOST: &str = "MILLSTREAM_RDMA_HOST";
const PEER: &str = "MILLSTREAM_RDMA_PEER";

const IMMEDIATE: Settings = Settings {
    slots: 8,
    slot_bytes: 64 * 1024,
    notification: Notification::Immediate,
    spin: Duration::from_micros(20),
    timing: Timing { silence: Duration::from_secs(1), receiver_not_ready: None },
};
const FOOTER: Settings = Settings { notification: Notification::Footer, ..IMMEDIATE };
/// Round trips between emulated machines take tens of milliseconds.
const BETWEEN_MACHINES: Settings = Settings {
    timing: Timing { silence: Duration::from_secs(10), receiver_not_ready: None },
    ..IMMEDIATE
};

fn open() -> Verbs {
    // The kernel's driver copies packets in order; it only does not promise it.
    Verbs::open(&Options { ordered_placement: Some(true), ..Options::default() }).unwrap()
}

/// Sizes from one that is never half full to a full slot, different from message to message.
fn payload_bytes(number: u64, max: usize) -> usize {
    (number as usize).wrapping_mul(7919) % (max + 1)
}

fn send_all(sender: Sender<Verbs>, events: &mut <Verbs as Fabric>::Events) -> Result<Stats> {
    send_each(sender, events, None)
}

/// Every other message with its end from `elsewhere`, if that is given: the words from 0 on.
fn send_each(
    mut sender: Sender<Verbs>,
    events: &mut <Verbs as Fabric>::Events,
    elsewhere: Option<&Region>,
) -> Result<Stats> {
    let max = sender.payload_bytes();
    for number in 0..MESSAGES {
        let mut slot = sender.acquire(events, PATIENCE)?;
        let bytes = payload_bytes(number, max);
        match elsewhere.filter(|_| number % 2 == 0) {
            Some(region) => {
                let head = bytes / (1 + number as usize % 3) / 8 * 8;
                fill(&mut slot.payload()[..head], number);
                // Message n begins with word n.
                let at = number as usize * 8 + head;
                slot.send_from(head, region, at, bytes - head, number)?;
            }
            None => {
                fill(&mut slot.payload()[..bytes], number);
                slot.send(bytes, number)?;
            }
        }
    }
    sender.finish(events, PATIENCE)
}

fn fill(buffer: &mut [u8], number: u64) {
    for (i, word) in buffer.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = (number + i as u64).to_ne_bytes();
    }
}

/// Receives until the end; what came is exactly what was sent.
fn receive_all(mut receiver: Receiver<Verbs>, events: &mut <Verbs as Fabric>::Events, max: usize) {
    let mut expected = vec![0; max];
    for number in 0..MESSAGES {
        let Received::Message(message) = receiver.receive(events, PATIENCE).unwrap() else {
            panic!("message {number} did not come");
        };
        let bytes = payload_bytes(number, max);
        fill(&mut expected[..bytes], number);
        assert_eq!(message.tag(), number);
        let whole = bytes / 8 * 8;
        assert_eq!(message.len(), bytes);
        assert!(message[..whole] == expected[..whole], "message {number} is damaged");
    }
    assert!(matches!(receiver.receive(events, PATIENCE).unwrap(), Received::End));
    println!("{:?}", receiver.stats());
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn channels_between_threads() {
    let device = open();
    for notification in [Notification::Immediate, Notification::Footer] {
        for (slots, slot_bytes) in
            [(1, 4096), (2, 64), (4, 16 << 10), (8, 64 << 10), (8, 256 << 10)]
        {
            let settings = Settings { slots, slot_bytes, notification, ..IMMEDIATE };
            println!("{slots} slots of {slot_bytes} bytes, {notification:?}");
            let (mut there, mut here) = (device.events().unwrap(), device.events().unwrap());
            let (sender, receiver) =
                connect([&device, &device], [&there, &here], settings).unwrap();
            let mut words = vec![0; slot_bytes + 8 * MESSAGES as usize];
            fill(&mut words, 0);
            let elsewhere = device.allocate(words.len(), Access::LOCAL).unwrap();
            elsewhere.write(0, &words).unwrap();
            std::thread::scope(|scope| {
                let producer = scope.spawn(|| send_each(sender, &mut there, Some(&elsewhere)));
                receive_all(receiver, &mut here, settings.payload_bytes());
                let stats = producer.join().unwrap().unwrap();
                assert_eq!(stats.messages, MESSAGES, "{stats:?}");
            });
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn footers_need_a_promise() {
    let device = Verbs::open(&Options::default()).unwrap();
    let events = device.events().unwrap();
    let settings = Settings { notification: Notification::Footer, ..IMMEDIATE };
    // The driver does not give it.
    let refused = ReceiverSetup::new(&device, &events, settings).err().unwrap();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_parked_receiver_is_woken() {
    let device = open();
    for notification in [Notification::Immediate, Notification::Footer] {
        let settings = Settings { notification, ..IMMEDIATE };
        let (mut there, mut here) = (device.events().unwrap(), device.events().unwrap());
        let (mut sender, mut receiver) =
            connect([&device, &device], [&there, &here], settings).unwrap();
        std::thread::scope(|scope| {
            let consumer = scope.spawn(move || {
                for number in 0..5 {
                    match receiver.receive(&mut here, PATIENCE).unwrap() {
                        Received::Message(message) => assert_eq!(message.tag(), number),
                        _ => panic!("message {number} did not come"),
                    }
                }
                assert!(matches!(receiver.receive(&mut here, PATIENCE).unwrap(), Received::End));
                receiver.stats()
            });
            for number in 0..5 {
                // Far longer than it spins.
                std::thread::sleep(Duration::from_millis(100));
                let slot = sender.acquire(&mut there, PATIENCE).unwrap();
                slot.send(0, number).unwrap();
            }
            sender.finish(&mut there, PATIENCE).unwrap();
            let stats = consumer.join().unwrap();
            assert!(stats.parks >= 5, "it slept: {stats:?}");
        });
    }
}

/// The receiving end: calls the sender, and connects.
fn call_sender(
    device: &Verbs,
    events: &<Verbs as Fabric>::Events,
    at: &str,
    settings: Settings,
) -> Receiver<Verbs> {
    let begin = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(at) {
            Ok(stream) => break stream,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{at}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let receiver = ReceiverSetup::new(device, events, settings).unwrap();
    let hello = call(&mut stream, &Token::new(TOKEN), &receiver.hello()).unwrap();
    receiver.connect(&hello).unwrap()
}

/// The sending end: waits for the receiver's call, and connects.
fn answer_receiver(
    device: &Verbs,
    events: &<Verbs as Fabric>::Events,
    listener: &TcpListener,
    settings: Settings,
) -> Sender<Verbs> {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = SenderSetup::new(device, events, settings).unwrap();
    let ours = sender.hello();
    let hello = answer(&mut stream, &Token::new(TOKEN), |_| Ok(ours)).unwrap();
    sender.connect(&hello).unwrap()
}

/// What this test's binary does as another process.
#[test]
#[ignore = "started by other tests"]
fn as_another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, port) = role.split_once(' ').unwrap();
    let device = open();
    let mut events = device.events().unwrap();
    let settings = if role.ends_with("-footers") { FOOTER } else { IMMEDIATE };
    let at = format!("127.0.0.1:{port}");
    let mut receiver = call_sender(&device, &events, &at, settings);
    if role.starts_with("check") {
        return receive_all(receiver, &mut events, settings.payload_bytes());
    }
    // Until the end, an error, or a signal.
    while matches!(receiver.receive(&mut events, PATIENCE), Ok(Received::Message(_))) {}
}

fn start(role: &str, listener: &TcpListener) -> Child {
    let port = listener.local_addr().unwrap().port();
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "as_another_process", "--nocapture"])
        .env(ROLE, format!("{role} {port}"))
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn channels_between_processes() {
    for (role, settings) in [("check", IMMEDIATE), ("check-footers", FOOTER)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut process = start(role, &listener);
        let device = open();
        let mut events = device.events().unwrap();
        let sender = answer_receiver(&device, &events, &listener, settings);
        let stats = send_all(sender, &mut events).unwrap();
        assert_eq!(stats.messages, MESSAGES);
        let wrote = settings.notification == Notification::Immediate;
        assert!(!wrote || stats.immediates >= MESSAGES, "{role}: {stats:?}");
        assert!(process.wait().unwrap().success(), "{role}: the receiver found something wrong");
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_killed_receiver_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut process = start("drain", &listener);
    let device = open();
    let mut events = device.events().unwrap();
    let mut sender = answer_receiver(&device, &events, &listener, IMMEDIATE);
    let mut send = || sender.acquire(&mut events, PATIENCE)?.send(100, 0);
    for _ in 0..50 {
        send().unwrap();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let error = (0..1000).find_map(|_| send().err()).expect("an error");
    assert!(matches!(error, Error::PeerLost { .. }), "{error}");
}

/// Both machines run this at once: first one sends, then the other.
#[test]
#[ignore = "needs two machines: make test-rdma-two"]
fn channels_between_machines() {
    let Ok(host) = std::env::var(HOST) else { return };
    let peer = std::env::var(PEER).unwrap();
    let device = open();
    let mut events = device.events().unwrap();
    for sending in ["1", "2"] {
        if host == sending {
            let listener = TcpListener::bind("0.0.0.0:7777").unwrap();
            let sender = answer_receiver(&device, &events, &listener, BETWEEN_MACHINES);
            let stats = send_all(sender, &mut events).unwrap();
            assert_eq!(stats.messages, MESSAGES);
        } else {
            let receiver = call_sender(&device, &events, &format!("{peer}:7777"), BETWEEN_MACHINES);
            receive_all(receiver, &mut events, IMMEDIATE.payload_bytes());
        }
    }
}
