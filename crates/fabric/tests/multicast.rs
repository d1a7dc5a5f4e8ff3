//! Tests of multicast groups: what they cost and lose in `sim`, and between processes over `tcp`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{
    Access, Completion, CompletionQueue, DATAGRAM_HEADER_BYTES, Datagram, Destination, Fabric,
    Group, Kind, Outgoing, QueueSizes, Receive, Region, Source,
};

const GROUP: Group = Group::new(5);
const BYTES: usize = 4096;

/// A datagram queue pair with one buffer, into which all its receives go.
struct End<F: Fabric> {
    queue: F::CompletionQueue,
    datagrams: F::Datagram,
    memory: Region,
    heard: Vec<u32>,
}

impl<F: Fabric> End<F> {
    fn new(device: &F, receives: usize) -> End<F> {
        let queue = device.completion_queue(1 << 15, None).unwrap();
        let sizes = QueueSizes { send: 1 << 13, receive: 1 << 13 };
        let mut datagrams = device.datagram(&queue, &queue, sizes).unwrap();
        let memory = device.allocate(2 * BYTES, Access::LOCAL).unwrap();
        let bytes = DATAGRAM_HEADER_BYTES + BYTES;
        let buffer = Some(Destination { region: &memory, offset: 0, bytes });
        let receive = Receive { id: 1, buffer };
        datagrams.post_receive(&vec![receive; receives]).unwrap();
        End { queue, datagrams, memory, heard: Vec::new() }
    }

    fn member(device: &F, receives: usize) -> End<F> {
        let mut end = End::new(device, receives);
        end.datagrams.join(GROUP).unwrap();
        end
    }

    fn send(&mut self, to: &<F::Datagram as Datagram>::Address, bytes: usize, number: u32) {
        let source = Source::Region { region: &self.memory, offset: 0, bytes };
        let request = Outgoing { id: 2, to, source, immediate: Some(number), signalled: true };
        self.datagrams.post(&[request]).unwrap();
    }

    /// Takes completions; returns how many datagrams have been heard.
    fn poll(&mut self) -> usize {
        let mut some = [Completion::default(); 64];
        let count = self.queue.poll(&mut some).unwrap();
        let received = some[..count].iter().filter(|done| done.kind == Kind::Receive);
        self.heard.extend(received.map(|done| done.immediate.unwrap()));
        self.heard.len()
    }

    fn poll_all(&mut self) {
        while self.poll() < { self.poll() } {}
    }
}

/// A sender, and so many members, on a node each.
fn world(seed: u64, members: usize, model: Model) -> (Sim, End<SimDevice>, Vec<End<SimDevice>>) {
    let sim = Sim::new(seed);
    let sender = End::new(&sim.node(model), 0);
    let members = (0..members).map(|_| End::member(&sim.node(model), 1 << 13)).collect();
    (sim, sender, members)
}

/// Time until so many datagrams have arrived at all members, sent to the group, or to each member.
fn time(count: u32, members: usize, to_each: bool) -> Duration {
    let (sim, mut sender, mut all) = world(1, members, Model::default());
    let group = [sender.datagrams.resolve_group(GROUP).unwrap()];
    let each: Vec<_> = all
        .iter()
        .map(|member| sender.datagrams.resolve(&member.datagrams.endpoint()).unwrap())
        .collect();
    for number in 0..count {
        for to in if to_each { &each[..] } else { &group[..] } {
            sender.send(to, BYTES, number);
        }
    }
    while sim.step() {}
    for member in &mut all {
        member.poll_all();
        assert_eq!(member.heard, (0..count).collect::<Vec<_>>());
    }
    sim.now()
}

#[test]
fn the_senders_link_is_paid_once() {
    let (one, eight) = (time(100, 1, false), time(100, 8, false));
    assert_eq!(one, eight);
    // 4096 bytes at 11.8 GB/s are 348 ns, rounded up, and a latency of 1 µs.
    assert_eq!(one, Duration::from_nanos(100 * 348 + 1000));
    assert_eq!(time(100, 1, true), one);
    assert_eq!(time(100, 8, true), Duration::from_nanos(800 * 348 + 1000));
}

#[test]
fn members_of_one_node_share_its_link() {
    let sim = Sim::new(1);
    let (here, there) = (sim.node(Model::default()), sim.node(Model::default()));
    let mut sender = End::new(&here, 0);
    let mut members: Vec<_> = (0..8).map(|_| End::member(&there, 200)).collect();
    let to = sender.datagrams.resolve_group(GROUP).unwrap();
    (0..100).for_each(|number| sender.send(&to, BYTES, number));
    while sim.step() {}
    members.iter_mut().for_each(End::poll_all);
    assert!(members.iter().all(|member| member.heard.len() == 100));
    assert_eq!(sim.now(), Duration::from_nanos(100 * 348 + 1000));
}

/// Two groups' senders and receivers do not share a link, but a receiver of both is one link.
#[test]
fn a_receivers_link_is_paid_for_each_sender() {
    let sim = Sim::new(1);
    let mut senders: Vec<_> = (0..4).map(|_| End::new(&sim.node(Model::default()), 0)).collect();
    let mut member = End::member(&sim.node(Model::default()), 400);
    for sender in &mut senders {
        let to = sender.datagrams.resolve_group(GROUP).unwrap();
        (0..100).for_each(|number| sender.send(&to, BYTES, number));
    }
    while sim.step() {}
    member.poll_all();
    assert_eq!(member.heard.len(), 400);
    assert_eq!(sim.now(), Duration::from_nanos(400 * 348 + 1000));
}

const COUNT: u32 = 4000;

/// What four members heard of 4000 datagrams to their group.
fn heard(seed: u64, model: Model) -> Vec<Vec<u32>> {
    let (sim, mut sender, mut members) = world(seed, 4, model);
    let to = sender.datagrams.resolve_group(GROUP).unwrap();
    (0..COUNT).for_each(|number| sender.send(&to, 8, number));
    while sim.step() {}
    members.iter_mut().for_each(End::poll_all);
    members.into_iter().map(|member| member.heard).collect()
}

/// How many of all datagrams `holds` for.
fn share(holds: impl Fn(u32) -> bool) -> f64 {
    (0..COUNT).filter(|number| holds(*number)).count() as f64 / f64::from(COUNT)
}

/// Whether what happens to each member with this probability happens to each independently.
fn assert_independent(members: &[Vec<bool>], probability: f64) {
    for (i, one) in members.iter().enumerate() {
        let own = share(|n| one[n as usize]);
        assert!((own - probability).abs() < 0.03, "member {i}: {own}");
        for (j, other) in members.iter().enumerate().skip(i + 1) {
            let both = share(|n| one[n as usize] && other[n as usize]);
            let expected = probability * probability;
            assert!((both - expected).abs() < 0.03, "members {i} and {j}: {both}");
        }
    }
}

/// For each number, how often it was heard.
fn counts(heard: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; COUNT as usize];
    heard.iter().for_each(|number| counts[*number as usize] += 1);
    counts
}

#[test]
fn each_member_loses_by_itself() {
    let model = Model { datagram_loss: 0.3, ..Model::default() };
    for seed in 0..3 {
        let members = heard(seed, model);
        let lost: Vec<Vec<bool>> =
            members.iter().map(|heard| counts(heard).iter().map(|n| *n == 0).collect()).collect();
        assert_independent(&lost, 0.3);
        assert_eq!(members, heard(seed, model), "the seed decides");
    }
}

#[test]
fn each_members_copy_is_repeated_by_itself() {
    let members = heard(3, Model { datagram_repeat: 0.3, ..Model::default() });
    let mut repeated = Vec::new();
    for heard in &members {
        let counts = counts(heard);
        assert!(counts.iter().all(|n| [1, 2].contains(n)));
        repeated.push(counts.iter().map(|n| *n == 2).collect::<Vec<_>>());
    }
    assert_independent(&repeated, 0.3);
}

#[test]
fn each_members_copy_is_delayed_by_itself() {
    let members = heard(3, Model { datagram_delay: 0.3, ..Model::default() });
    let all: Vec<u32> = (0..COUNT).collect();
    for (i, heard) in members.iter().enumerate() {
        let mut sorted = heard.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, all);
        assert_ne!(*heard, all, "nothing was overtaken");
        assert!(members[..i].iter().all(|other| other != heard), "as at another member");
    }
}

#[test]
fn a_cut_link_silences_one_member() {
    let sim = Sim::new(1);
    let nodes: Vec<SimDevice> = (0..3).map(|_| sim.node(Model::default())).collect();
    let mut sender = End::new(&nodes[0], 0);
    let (mut cut, mut whole) = (End::member(&nodes[1], 9), End::member(&nodes[2], 9));
    let to = sender.datagrams.resolve_group(GROUP).unwrap();
    sim.cut(&nodes[0], &nodes[1]);
    sender.send(&to, 8, 1);
    while sim.step() {}
    sim.mend(&nodes[0], &nodes[1]);
    sender.send(&to, 8, 2);
    while sim.step() {}
    cut.poll_all();
    whole.poll_all();
    assert_eq!((&cut.heard[..], &whole.heard[..]), (&[2][..], &[1, 2][..]));
}

/// Set in the process that this test's binary starts as another member.
const MEMBER: &str = "MILLSTREAM_TEST_MEMBER";
/// In front of what the member says of itself, among the test harness's own output.
const MARK: &str = "@member@ ";
const PATIENCE: Duration = Duration::from_secs(20);

fn tcp(token: [u8; 32]) -> TcpDevice {
    TcpDevice::open(Token::new(token), "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// The other process: says what it hears, until it has heard number 9.
#[test]
fn as_member() {
    if std::env::var_os(MEMBER).is_none() {
        return;
    }
    let mut end = End::member(&tcp([1; 32]), 100);
    println!("{MARK}joined");
    let begin = Instant::now();
    while !end.heard.contains(&9) {
        assert!(begin.elapsed() < PATIENCE, "{:?}", end.heard);
        end.poll();
        std::thread::yield_now();
    }
    println!("{MARK}{:?}", end.heard);
}

#[test]
fn members_in_several_processes_hear_over_tcp() {
    let mut processes: Vec<_> = (0..2)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["as_member", "--exact", "--nocapture"])
                .env(MEMBER, "yes")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut outputs: Vec<_> = processes
        .iter_mut()
        .map(|process| BufReader::new(process.stdout.take().unwrap()).lines())
        .collect();
    let mut said = |i: usize| loop {
        let line = outputs[i].next().expect("the member ended early").unwrap();
        if let Some((_, words)) = line.split_once(MARK) {
            return words.to_owned();
        }
    };
    assert_eq!([said(0), said(1)], ["joined", "joined"]);
    // The same numbers in another job are another group.
    let (ours, theirs) = (tcp([1; 32]), tcp([2; 32]));
    let (mut sender, mut stranger) = (End::new(&ours, 0), End::new(&theirs, 0));
    let to = sender.datagrams.resolve_group(GROUP).unwrap();
    let elsewhere = stranger.datagrams.resolve_group(GROUP).unwrap();
    for number in 0..10 {
        stranger.send(&elsewhere, 8, 100 + number);
        sender.send(&to, 8, number);
    }
    let all = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    assert_eq!([said(0), said(1)], [all, all]);
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    std::io::stdout().flush().unwrap();
}
