//! Tests of providers between processes: the test's binary starts itself as the peer.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{
    Access, Completion, CompletionQueue, Endpoint, Error, Events, Fabric, QueuePair, QueueSizes,
    Receive, Region, Source, State, Status, Timing, WorkRequest,
};

const SIZES: QueueSizes = QueueSizes { send: 16, receive: 16 };
const PEER: &str = "MILLSTREAM_TEST_PEER";
/// In front of what the peer says of itself, among the test harness's own output.
const MARK: &str = "@peer@ ";
const TOKEN: [u8; 32] = [9; 32];

fn tcp(token: [u8; 32]) -> TcpDevice {
    TcpDevice::open(Token::new(token), "127.0.0.1:0".parse().unwrap()).unwrap()
}

fn shm(token: [u8; 32]) -> ShmDevice {
    ShmDevice::open(Token::new(token)).unwrap()
}

/// One end: a pair with its queue, and memory that the peer may write.
struct End<F: Fabric> {
    events: F::Events,
    queue: F::CompletionQueue,
    pair: F::QueuePair,
    memory: Region,
}

impl<F: Fabric> End<F> {
    fn new(device: &F) -> End<F> {
        let events = device.events().unwrap();
        let queue = device.completion_queue(64, Some(&events)).unwrap();
        let pair = device.queue_pair(&queue, &queue, SIZES, Timing::default()).unwrap();
        let memory = device.allocate(1 << 16, Access::REMOTE_ALL).unwrap();
        End { events, queue, pair, memory }
    }

    /// As a line of text.
    fn describe(&self) -> String {
        let remote = self.memory.remote();
        let endpoint: String =
            self.pair.endpoint().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{endpoint} {} {}", remote.address, remote.key)
    }

    /// Connects to the peer of this description; returns where its memory is.
    fn connect(&mut self, line: &str) -> millstream_fabric::RemoteRegion {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut bytes = [0; Endpoint::BYTES];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&words[0][2 * i..2 * i + 2], 16).unwrap();
        }
        self.pair.connect(&Endpoint::decode(&bytes).unwrap()).unwrap();
        let (address, key) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        millstream_fabric::RemoteRegion { address, bytes: 1 << 16, key }
    }
}

/// The peer's program: does nothing but be there, until its input ends or it is killed.
fn peer<F: Fabric>(device: &F) {
    let mut end = End::new(device);
    println!("{MARK}{}", end.describe());
    let mut input = std::io::stdin().lines();
    let line = input.next().unwrap().unwrap();
    let there = end.connect(&line);
    // Shows that it is connected: a word in the other's memory.
    let to = there.at(0, 8).unwrap();
    let one = 1_u64.to_ne_bytes();
    end.pair.post(&[WorkRequest::write(Source::Inline(&one), to).signalled(0)]).unwrap();
    assert_eq!(next(&mut end.queue).status, Status::Success);
    for _ in input {}
}

#[test]
fn as_peer() {
    match std::env::var(PEER).as_deref() {
        Ok("shm") => peer(&shm(TOKEN)),
        Ok("tcp") => peer(&tcp(TOKEN)),
        _ => {}
    }
}

/// A peer process, connected to `end`.
struct Peer {
    /// Kept open: nobody reads on.
    _output: Lines<BufReader<ChildStdout>>,
    process: Child,
    memory: millstream_fabric::RemoteRegion,
}

fn start<F: Fabric>(provider: &str, end: &mut End<F>) -> Peer {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["as_peer", "--exact", "--nocapture"])
        .env(PEER, provider)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = loop {
        let line = output.next().expect("the peer ended early").unwrap();
        if let Some((_, description)) = line.split_once(MARK) {
            break description.to_owned();
        }
    };
    writeln!(process.stdin.as_mut().unwrap(), "{}", end.describe()).unwrap();
    let memory = end.connect(&line);
    let begin = Instant::now();
    while end.memory.word(0).load(std::sync::atomic::Ordering::Acquire) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the peer did not come");
        drop(end.queue.poll(&mut [Completion::default()]));
        std::thread::yield_now();
    }
    Peer { process, memory, _output: output }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may be dead already, which is what some tests are about.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Writes to a process that is busy with nothing, and to it alone.
fn writes_need_no_help<F: Fabric>(provider: &str, device: &F) {
    let mut end = End::new(device);
    let peer = start(provider, &mut end);
    let to = peer.memory.at(64, 8).unwrap();
    for value in 0..100_u64 {
        let bytes = value.to_ne_bytes();
        let write = WorkRequest::write(Source::Inline(&bytes), to);
        let into = millstream_fabric::Destination { region: &end.memory, offset: 128, bytes: 8 };
        let read = millstream_fabric::Operation::Read { into, from: to };
        end.pair.post(&[write, WorkRequest::new(read).signalled(value)]).unwrap();
        let done = next(&mut end.queue);
        assert_eq!((done.id, done.status), (value, Status::Success));
        let read = end.memory.word(128).load(std::sync::atomic::Ordering::Acquire);
        assert_eq!(read, value);
    }
}

fn next<Q: CompletionQueue>(queue: &mut Q) -> Completion {
    let begin = Instant::now();
    let mut one = [Completion::default()];
    while queue.poll(&mut one).unwrap() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "no completion came");
        std::thread::yield_now();
    }
    one[0]
}

/// A sleeping thread learns that its peer was killed; the posted receive is flushed.
fn a_killed_peer_is_noticed<F: Fabric>(provider: &str, device: &F) {
    let mut end = End::new(device);
    let mut peer = start(provider, &mut end);
    end.pair.post_receive(&[Receive { id: 5, buffer: None }]).unwrap();
    peer.process.kill().unwrap();
    peer.process.wait().unwrap();
    let begin = Instant::now();
    while end.pair.state() != State::Failed {
        // A closed connection is known at once; two seconds are for one that is silent.
        assert!(begin.elapsed() < Duration::from_secs(2), "nobody noticed");
        end.queue.arm().unwrap();
        end.events.wait(Duration::from_millis(50)).unwrap();
    }
    let done = next(&mut end.queue);
    assert_eq!((done.id, done.status), (5, Status::Flushed));
}

#[test]
fn shm_writes_need_no_help() {
    writes_need_no_help("shm", &shm(TOKEN));
}

#[test]
fn tcp_writes_need_no_help() {
    writes_need_no_help("tcp", &tcp(TOKEN));
}

#[test]
fn shm_notices_a_killed_peer() {
    a_killed_peer_is_noticed("shm", &shm(TOKEN));
}

#[test]
fn tcp_notices_a_killed_peer() {
    a_killed_peer_is_noticed("tcp", &tcp(TOKEN));
}

#[test]
fn tcp_notices_a_silent_peer() {
    let device = tcp(TOKEN);
    let mut end = End::new(&device);
    let peer = start("tcp", &mut end);
    // A stopped process answers nothing, but its connections stay open.
    let pid = peer.process.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let begin = Instant::now();
    while end.pair.state() != State::Failed {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody noticed");
        end.events.wait(Duration::from_millis(20)).unwrap();
    }
    // The promise is two seconds; a loaded machine may add to it.
    println!("noticed after {:?}", begin.elapsed());
}

/// Memory that was looked at through a window is mapped: writing there later asks the peer nothing.
#[test]
fn shm_writes_to_a_stopped_peer() {
    let device = shm(TOKEN);
    let mut end = End::new(&device);
    let peer = start("shm", &mut end);
    assert!(end.pair.window(&peer.memory).unwrap().is_some());
    let pid = peer.process.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let write = WorkRequest::write(Source::Inline(b"well"), peer.memory.at(64, 4).unwrap());
    end.pair.post(&[write.signalled(1)]).unwrap();
    assert_eq!(next(&mut end.queue).status, Status::Success);
}

#[test]
fn strangers_are_refused() {
    let (ours, theirs) = (shm([1; 32]), shm([2; 32]));
    let (mut a, b) = (End::new(&ours), End::new(&theirs));
    let error = a.pair.connect(&b.pair.endpoint()).unwrap_err();
    assert!(matches!(error, Error::Setup(_)), "{error}");
    let (ours, theirs) = (tcp([1; 32]), tcp([2; 32]));
    let (mut a, b) = (End::new(&ours), End::new(&theirs));
    let error = a.pair.connect(&b.pair.endpoint()).unwrap_err();
    assert!(matches!(error, Error::Setup(_)), "{error}");
}

/// Whatever a killed process shared is gone with it.
#[test]
fn shm_leaves_nothing_behind() {
    let device = shm(TOKEN);
    let mut end = End::new(&device);
    let mut peer = start("shm", &mut end);
    let endpoint = end.pair.endpoint();
    let mine = format!("millstream-{:016x}", id_of(&endpoint));
    let sockets = || std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(sockets().contains(&mine), "the test looks in the wrong place");
    let before = sockets().matches("millstream-").count();
    peer.process.kill().unwrap();
    peer.process.wait().unwrap();
    drop((peer, end, device));
    let begin = Instant::now();
    // Other tests of this binary have sockets too, and may open some meanwhile.
    while sockets().contains(&mine) {
        assert!(begin.elapsed() < Duration::from_secs(5), "of {before} sockets ours is left");
        std::thread::yield_now();
    }
    let files = std::fs::read_dir("/dev/shm").map_or(0, |directory| {
        directory.filter_map(Result::ok).filter(|file| is_ours(&file.file_name())).count()
    });
    assert_eq!(files, 0);
}

fn is_ours(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().contains("millstream")
}

fn id_of(endpoint: &Endpoint) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| endpoint.detail[i]))
}

/// Whoever talks nonsense to the listener is cut off, and harms nobody.
#[test]
fn tcp_cuts_nonsense_off() {
    use std::io::Read;
    let device = tcp(TOKEN);
    for message in [
        &b"GET / HTTP/1.1\r\nHost: millstream\r\nAccept: everything\r\n\r\n\r\n"[..],
        &[0; 60],
        &[255; 200],
    ] {
        let mut stream = std::net::TcpStream::connect(device.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(message).unwrap();
        let mut answer = Vec::new();
        // Closed, perhaps with a reset since not all was read; but nothing was told.
        drop(stream.read_to_end(&mut answer));
        assert!(answer.is_empty(), "{answer:?}");
    }
    // One that says nothing is cut off too, later.
    let mut stream = std::net::TcpStream::connect(device.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);

    let (mut a, mut b) = (End::new(&device), End::new(&device));
    a.pair.connect(&b.pair.endpoint()).unwrap();
    b.pair.connect(&a.pair.endpoint()).unwrap();
    let to = b.memory.remote().at(0, 4).unwrap();
    a.pair.post(&[WorkRequest::write(Source::Inline(b"well"), to).signalled(3)]).unwrap();
    assert_eq!(next(&mut a.queue).status, Status::Success);
}
