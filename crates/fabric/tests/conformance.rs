//! Runs the conformance suite over every provider that needs no device.

use std::time::Duration;

mod suite;

use self::suite::{Bed, Report, Skip, run};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Placement, Sim};
use millstream_fabric::tcp::TcpDevice;

const PATIENCE: Duration = Duration::from_secs(20);

fn check(report: Report) {
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

/// Of a link that loses some on purpose.
const LOSSY: &[Skip] = &[Skip {
    check: "datagrams wait while their way is full",
    reason: "this link loses datagrams, full or not",
}];

fn sim(model: Model, same_node: bool) {
    let skips = if model.datagram_loss > 0.0 { LOSSY } else { &[] };
    for seed in 0..10 {
        let sim = Sim::new(seed);
        let a = sim.node(model);
        let b = if same_node { a.clone() } else { sim.node(model) };
        let idle = || sim.advance(Duration::from_micros(100));
        check(run(&Bed { a: &a, b: &b, idle: &idle, patience: PATIENCE }, skips));
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

#[test]
fn shm() {
    let token = Token::new([5; 32]);
    let (a, b) = (ShmDevice::open(token).unwrap(), ShmDevice::open(token).unwrap());
    check(run(&Bed { a: &a, b: &b, idle: &std::thread::yield_now, patience: PATIENCE }, &[]));
    check(run(&Bed { a: &a, b: &a, idle: &std::thread::yield_now, patience: PATIENCE }, &[]));
}

#[test]
fn tcp() {
    let open = || TcpDevice::open(Token::new([5; 32]), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (a, b) = (open(), open());
    check(run(&Bed { a: &a, b: &b, idle: &std::thread::yield_now, patience: PATIENCE }, &[]));
    check(run(&Bed { a: &a, b: &a, idle: &std::thread::yield_now, patience: PATIENCE }, &[]));
}
