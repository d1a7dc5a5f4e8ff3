//! Runs the conformance suite over `verbs`. `tests/rdma` runs this test in a virtual machine, over
//! the kernel's Soft-RoCE driver.

use std::collections::HashSet;
use std::time::{Duration, Instant};

mod suite;

use self::suite::{Bed, Skip, run};
use millstream_fabric::setup::Token;
use millstream_fabric::survey::survey;
use millstream_fabric::verbs::{
    Options, Verbs, VerbsAddress, VerbsCompletionQueue, VerbsDatagram, devices,
};
use millstream_fabric::{
    Access, Completion, CompletionQueue, DATAGRAM_HEADER_BYTES, Datagram, Destination, Error,
    Fabric, Group, Kind, Outgoing, Provider, QueueSizes, Receive, Region, Source, Status,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What this driver does otherwise; see docs/rdma.md.
const SOFT_ROCE: &[Skip] = &[
    Skip {
        check: "a full send queue refuses, and is free after polling",
        reason: "Soft-RoCE frees the entries of unsignalled work by itself, so no queue gets full",
    },
    Skip {
        check: "a send longer than the receive fails",
        reason: "it fails, but Soft-RoCE gives other reasons than the standard on both sides",
    },
];

fn check(a: &Verbs, b: &Verbs) {
    let (idle, stranger) = (&std::thread::yield_now, &open_for(Token::new([6; 32])));
    let report = run(&Bed { a, b, stranger, idle, patience: PATIENCE }, SOFT_ROCE);
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

fn open() -> Verbs {
    open_for(Token::new([5; 32]))
}

/// The device, for the job with this token.
fn open_for(token: Token) -> Verbs {
    let device = Verbs::open(&Options { token: Some(token), ..Options::default() }).unwrap();
    println!("{device}: {:?}", device.limits());
    assert!(device.limits().multicast);
    device
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn one_device() {
    let device = open();
    check(&device, &device);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_device_opened_twice() {
    check(&open(), &open());
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn what_is_asked_for_is_opened_or_the_reason_said() {
    assert_eq!(devices().unwrap(), ["rxe0"]);
    let chosen = Verbs::open(&Options::default()).unwrap();
    assert_eq!(chosen.provider(), Provider::Verbs);
    let text = chosen.to_string();
    assert!(text.starts_with("rxe0 port 1, RoCE v2, GID ::ffff:10.77.0.1 (index"), "{text}");

    let first = Options { device: Some("rxe0".into()), gid_index: Some(0), ..Options::default() };
    let text = Verbs::open(&first).unwrap().to_string();
    assert!(text.contains("GID fe80:"), "the table begins with the link's own address: {text}");
    let ordered = Options { ordered_placement: Some(true), ..Options::default() };
    assert!(Verbs::open(&ordered).unwrap().limits().ordered_placement);

    let no_device = Options { device: Some("mlx5_7".into()), ..Options::default() };
    let no_port = Options { port: Some(2), ..Options::default() };
    let no_gid = Options { gid_index: Some(200), ..Options::default() };
    for (options, reason) in [
        (no_device, "RDMA: not available: no device \"mlx5_7\"; there is rxe0"),
        (no_port, "RDMA: not available: rxe0 has no port 2; there are 1 to 1"),
        (no_gid, "RDMA: not available: port 1 of rxe0 has no GID at index 200"),
    ] {
        let error = Verbs::open(&options).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().starts_with(reason), "{error}");
    }
}

/// What `millstream fabric` says of RDMA.
fn listed() -> String {
    let found = survey().into_iter().rfind(|found| found.provider == Provider::Verbs);
    found.expect("verbs are always listed").to_string()
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn the_device_is_listed() {
    let text = listed();
    let start = "verbs: available (rxe0 port 1, RoCE v2, GID ::ffff:10.77.0.1";
    assert!(text.starts_with(start), "{text}");
}

#[test]
#[ignore = "needs the driver and no device: make test-rdma"]
fn no_device_is_listed() {
    let text = listed();
    assert!(text.starts_with("verbs: RDMA: not available: no device"), "{text}");
}

/// Which of two machines this is: 1 or 2.
const HOST: &str = "MILLSTREAM_RDMA_HOST";

/// A member of a group on one of two machines, and what it heard.
struct Member {
    queue: VerbsCompletionQueue,
    datagrams: VerbsDatagram,
    memory: Region,
    /// Immediate values, by the sender's machine.
    heard: [Vec<u32>; 256],
}

impl Member {
    const RECEIVES: u32 = 128;
    const BUFFER: usize = DATAGRAM_HEADER_BYTES + 64;

    fn new(device: &Verbs, group: Group) -> Member {
        let queue = device.completion_queue(256, None).unwrap();
        let sizes = QueueSizes { send: 16, receive: Self::RECEIVES };
        let mut datagrams = device.datagram(&queue, &queue, sizes).unwrap();
        let memory =
            device.allocate(Self::RECEIVES as usize * Self::BUFFER, Access::LOCAL).unwrap();
        datagrams.join(group).unwrap();
        let heard = std::array::from_fn(|_| Vec::new());
        let mut member = Member { queue, datagrams, memory, heard };
        (0..Self::RECEIVES).for_each(|id| member.receive(id.into()));
        member
    }

    fn receive(&mut self, id: u64) {
        let (region, bytes) = (&self.memory, Self::BUFFER);
        let buffer = Some(Destination { region, offset: id as usize * bytes, bytes });
        self.datagrams.post_receive(&[Receive { id, buffer }]).unwrap();
    }

    /// Sends the immediate value, also in the datagram's bytes.
    fn send(&mut self, to: &VerbsAddress, word: u32) {
        let bytes = word.to_le_bytes();
        let source = Source::Inline(&bytes);
        let request = Outgoing { id: 0, to, source, immediate: Some(word), signalled: true };
        self.datagrams.post(&[request]).unwrap();
    }

    fn poll(&mut self) {
        let mut some = [Completion::default(); 16];
        let count = self.queue.poll(&mut some).unwrap();
        for done in &some[..count] {
            assert_eq!(done.status, Status::Success);
            if done.kind != Kind::Receive {
                continue;
            }
            let (word, mut bytes) = (done.immediate.unwrap(), [0; 4]);
            let at = done.id as usize * Self::BUFFER + DATAGRAM_HEADER_BYTES;
            self.memory.read(at, &mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), word, "damaged");
            self.heard[(word >> 24) as usize].push(word & 0x00ff_ffff);
            self.receive(done.id);
        }
    }
}

/// Two machines are members of a group, and each sends to it. A round trip takes tens of
/// milliseconds, so each goes on until the other says that it has heard enough.
#[test]
#[ignore = "needs two RDMA devices: make test-rdma-two"]
fn groups_between_machines() {
    const ENOUGH: usize = 20;
    const DONE: u32 = 1 << 23;
    /// In the place of the machine's number, in datagrams to a group without members.
    const NOBODY: u32 = 99;
    let host: u32 = std::env::var(HOST).unwrap().parse().unwrap();
    let (here, there) = (host as usize, 3 - host as usize);
    let device = open();
    let mut member = Member::new(&device, Group::new(1));
    let group = member.datagrams.resolve_group(Group::new(1)).unwrap();
    let empty = member.datagrams.resolve_group(Group::new(2)).unwrap();
    let (begin, mut sent, mut last) = (Instant::now(), 0, 0);
    while last < ENOUGH {
        assert!(begin.elapsed() < Duration::from_secs(240), "{:?}", member.heard[there]);
        let done = if member.heard[there].len() >= ENOUGH { DONE } else { 0 };
        member.send(&group, host << 24 | done | sent);
        member.send(&empty, NOBODY << 24 | sent);
        sent += 1;
        let peer_is_done = member.heard[there].iter().any(|word| word & DONE != 0);
        last += usize::from(done != 0 && peer_is_done);
        let round = Instant::now();
        while round.elapsed() < Duration::from_millis(50) {
            member.poll();
            std::thread::yield_now();
        }
    }
    for heard in &mut member.heard {
        heard.iter_mut().for_each(|word| *word &= DONE - 1);
    }
    let mut own = member.heard[here].clone();
    own.sort_unstable();
    assert_eq!(own, (0..sent).collect::<Vec<_>>(), "a copy of each own datagram");
    let other = &member.heard[there];
    let distinct: HashSet<_> = other.iter().collect();
    assert_eq!(distinct.len(), other.len(), "no more than one copy of each of the other's");
    assert_eq!(member.heard[NOBODY as usize], []);
    println!("{sent} datagrams sent, {} of the other machine's heard", other.len());
}
