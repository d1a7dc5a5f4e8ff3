//! Runs the conformance suite over every provider that needs no device.

use std::time::Duration;

mod suite;

use self::suite::{Bed, Report, Skip, multicast_names, run};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Placement, Sim};
use millstream_fabric::tcp::TcpDevice;

const PATIENCE: Duration = Duration::from_secs(20);

fn check(report: Report) {
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

fn skips(checks: &[&'static str], reason: &'static str) -> Vec<Skip> {
    checks.iter().map(|check| Skip { check, reason }).collect()
}

/// Checks that need every datagram to arrive.
const ALL_ARRIVE: [&str; 3] = [
    "datagrams wait while their way is full",
    "a group's datagram arrives once at each member",
    "joining a group twice changes nothing",
];

fn sim(model: Model, same_node: bool) {
    let lossy = if model.datagram_loss > 0.0 { &ALL_ARRIVE[..] } else { &[] };
    let skips = skips(lossy, "this link loses datagrams");
    for seed in 0..10 {
        // A world is a job.
        let (sim, other) = (Sim::new(seed), Sim::new(seed));
        let (a, stranger) = (sim.node(model), other.node(model));
        let b = if same_node { a.clone() } else { sim.node(model) };
        let idle = || {
            sim.advance(Duration::from_micros(100));
            other.advance(Duration::from_micros(100));
        };
        let bed = Bed { a: &a, b: &b, stranger: &stranger, idle: &idle, patience: PATIENCE };
        check(run(&bed, &skips));
    }
}

#[test]
fn sim_whole() {
    sim(Model::default(), false);
}

#[test]
fn sim_same_node() {
    sim(Model::default(), true);
}

#[test]
fn sim_ordered() {
    sim(Model { placement: Placement::Ordered, ..Model::default() }, false);
}

#[test]
fn sim_with_bad_datagrams() {
    let model = Model {
        placement: Placement::Shuffled,
        datagram_loss: 0.2,
        datagram_delay: 0.5,
        ..Model::default()
    };
    sim(model, false);
}

/// Two devices of one job and a device of another, and the first device alone.
fn software<F: Fabric>(open: impl Fn(Token) -> F, skips: &[Skip]) {
    let token = Token::new([5; 32]);
    let (a, b, stranger) = (open(token), open(token), open(Token::new([6; 32])));
    for b in [&b, &a] {
        let idle = &std::thread::yield_now;
        check(run(&Bed { a: &a, b, stranger: &stranger, idle, patience: PATIENCE }, skips));
    }
}

#[test]
fn shm() {
    let reason = "Unix sockets have no multicast";
    let skips = skips(&multicast_names::<ShmDevice>(), reason);
    software(|token| ShmDevice::open(token).unwrap(), &skips);
}

#[test]
fn tcp() {
    software(|token| TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap(), &[]);
}
