//! Two processes: the test's binary starts itself as the peer.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_fabric::setup::{HELLO_BYTES, Hello, Token};
use millstream_flow::shuffle::{
    Design, Error, Received, Receiver, ReceiverSetup, Sender, SenderSetup, Settings, State,
};

use super::{PATIENCE, patient, settings};

/// Which design a peer process runs.
pub(crate) const PEER: &str = "MILLSTREAM_TEST_PEER";
/// In front of what the peer says of itself, among the test harness's own output.
const MARK: &str = "@peer@ ";
pub(crate) const TOKEN: [u8; 32] = [9; 32];

fn token() -> Token {
    Token::new(TOKEN)
}

fn to_line(hellos: [&Hello; 2]) -> String {
    let encoded = hellos.map(|hello| hello.encode(&token()).unwrap());
    encoded.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
}

fn of_line(line: &str) -> [Hello; 2] {
    let byte = |at: usize| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap();
    [0, HELLO_BYTES].map(|start| {
        let message = std::array::from_fn(|i| byte(start + i));
        Hello::decode(&message, &token()).unwrap()
    })
}

/// A sender and a receiver, each with one peer.
pub(crate) struct End<F: Fabric> {
    sender: Option<SenderSetup<F>>,
    receiver: Option<ReceiverSetup<F>>,
}

impl<F: Fabric> End<F> {
    fn new(device: &F, settings: Settings, id: u32) -> End<F> {
        let sender = SenderSetup::new(device, id, 1, settings).unwrap();
        let receiver = ReceiverSetup::new(device, id + 1, 1, settings).unwrap();
        End { sender: Some(sender), receiver: Some(receiver) }
    }

    /// The line for the peer: first for its receiver, then for its sender.
    fn describe(&self) -> String {
        let (sender, receiver) = (self.sender.as_ref().unwrap(), self.receiver.as_ref().unwrap());
        to_line([&sender.hello(0), &receiver.hello(0)])
    }

    fn connect(&mut self, line: &str) -> (Sender<F>, Receiver<F>) {
        let [to_receiver, to_sender] = of_line(line);
        let sender = self.sender.take().unwrap().connect(&[to_sender]).unwrap();
        let receiver = self.receiver.take().unwrap().connect(&[to_receiver]).unwrap();
        (sender, receiver)
    }
}

/// The peer's program: sends back what comes, until it is killed or all has ended.
pub(crate) fn peer<F: Fabric>(device: &F, settings: Settings) {
    let mut end = End::new(device, settings, 20);
    println!("{MARK}{}", end.describe());
    let line = std::io::stdin().lines().next().unwrap().unwrap();
    let (sender, receiver) = end.connect(&line);
    while let Some(message) = receiver.get(PATIENCE).unwrap() {
        if message.is_empty() {
            continue;
        }
        let mut buffer = sender.acquire(PATIENCE).unwrap();
        buffer.payload()[..message.len()].copy_from_slice(&message);
        sender.put(buffer, message.len(), &[0], State::MoreData).unwrap();
        sender.flush(PATIENCE).unwrap();
    }
    sender.finish(PATIENCE).unwrap();
    receiver.finish(PATIENCE).unwrap();
}

/// The settings of both processes, of a role: one that is to be killed is missed soon.
pub(crate) fn between_processes(role: &str, design: Design) -> Settings {
    let settings = settings(design, 4, 2);
    if role.ends_with(KILLED) { settings } else { patient(settings) }
}

/// At the end of the role of a process that is to be killed.
const KILLED: &str = "-killed";

/// A peer process.
pub(crate) struct Peer {
    pub(crate) process: Child,
    /// Kept open: nobody reads on.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may be dead already, which is what some tests are about.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts a peer and connects to it; `arguments` make the harness run the peer's program.
pub(crate) fn start<F: Fabric>(
    device: &F,
    design: Design,
    role: &str,
    arguments: &[&str],
) -> (Peer, Sender<F>, Receiver<F>) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .env(PEER, format!("{role} {design}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut end = End::new(device, between_processes(role, design), 10);
    let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = loop {
        let line = output.next().expect("the peer ended early").unwrap();
        if let Some((_, description)) = line.split_once(MARK) {
            break description.to_owned();
        }
    };
    writeln!(process.stdin.as_mut().unwrap(), "{}", end.describe()).unwrap();
    let (sender, receiver) = end.connect(&line);
    (Peer { process, _output: output }, sender, receiver)
}

/// Sends so many messages and gets them back, in any order.
pub(crate) fn there_and_back<F: Fabric>(sender: &Sender<F>, receiver: &Receiver<F>, count: u32) {
    let (mut put, mut got) = (0, Vec::new());
    let begin = Instant::now();
    while got.len() < count as usize {
        assert!(begin.elapsed() < PATIENCE, "{} came back", got.len());
        if put < count
            && let Some(mut buffer) = sender.try_acquire().unwrap()
        {
            buffer.payload()[..4].copy_from_slice(&put.to_le_bytes());
            sender.put(buffer, 4, &[0], State::MoreData).unwrap();
            put += 1;
        }
        sender.keep_alive().unwrap();
        match receiver.try_get().unwrap() {
            Received::Message(message) => {
                got.push(u32::from_le_bytes((*message).try_into().unwrap()))
            }
            Received::Empty => std::thread::yield_now(),
            Received::End => panic!("the peer ended early"),
        }
    }
    got.sort_unstable();
    assert!(got.into_iter().eq(0..count));
}

/// That what was sent comes back, and that both processes end.
pub(crate) fn both_end<F: Fabric>(device: &F, design: Design, role: &str, arguments: &[&str]) {
    let (mut peer, sender, receiver) = start(device, design, role, arguments);
    there_and_back(&sender, &receiver, 100);
    sender.finish(PATIENCE).unwrap();
    while let Some(last) = receiver.get(PATIENCE).unwrap() {
        assert!(last.is_empty() && last.state() == State::Depleted, "nothing but the end");
    }
    receiver.finish(PATIENCE).unwrap();
    drop((sender, receiver));
    assert!(peer.process.wait().unwrap().success(), "{design}: the peer found something wrong");
}

/// Within this time everybody has to know, as long as his endpoint is called meanwhile.
const SOON: Duration = Duration::from_secs(2);
/// Calls so far apart do not count as that: it is what [`Settings::silence`] says.
const ABSENCE: Duration = Duration::from_millis(250);

/// That both halves of a shuffle notice soon when the peer is killed; returns after how long.
pub(crate) fn killed<F: Fabric>(
    device: &F,
    design: Design,
    role: &str,
    arguments: &[&str],
) -> Duration {
    let role = format!("{role}{KILLED}");
    let (mut peer, sender, receiver) = start(device, design, &role, arguments);
    there_and_back(&sender, &receiver, 20);
    peer.process.kill().unwrap();
    peer.process.wait().unwrap();
    let mut begin = Instant::now();
    let mut called = begin;
    let lost = |error: &Error| matches!(error, Error::PeerLost { .. } | Error::Silent { .. });
    let (mut there, mut here) = (None, None);
    while there.is_none() || here.is_none() {
        if called.elapsed() > ABSENCE {
            // On a busy machine it was not this process's turn.
            begin = Instant::now();
        }
        called = Instant::now();
        assert!(begin.elapsed() < SOON, "{design}: {there:?} {here:?}");
        match sender.try_acquire() {
            Ok(Some(buffer)) => drop(sender.put(buffer, 1, &[0], State::MoreData)),
            Ok(None) => {}
            Err(error) => there = Some(error),
        }
        match receiver.try_get() {
            Ok(Received::End) => panic!("{design}: the stream did not end"),
            Ok(_) => {}
            Err(error) => here = Some(error),
        }
        std::thread::yield_now();
    }
    let (there, here) = (there.unwrap(), here.unwrap());
    assert!(lost(&there) && lost(&here), "{design}: {there}; {here}");
    begin.elapsed()
}
