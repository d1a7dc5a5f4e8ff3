//! The conformance suite: what endpoints promise, in every design and pattern, the same over all
//! fabrics that need no device.

mod common;

use common::{Pattern, Shuffle, Work, patient, run_well, settings, simulated, while_away};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::Model;
use millstream_fabric::tcp::TcpDevice;
use millstream_flow::shuffle::{Design, Transport};

/// Tiny buffers, credit from every message to as seldom as is possible, a slow reader, a reader
/// that holds as many messages as it may.
fn check<F: Fabric>(
    devices: &[F],
    threads: usize,
    messages: usize,
    designs: &[Design],
    idle: &mut dyn FnMut(u64),
) {
    for design in designs {
        for (at, pattern) in Pattern::ALL.into_iter().enumerate() {
            for (depth, credit_every, slow, hold) in
                [(1, 1, 1, 0), (2, 2, 40, 0), (3, 3, 1, 0), (4, 2, 7, 2)]
            {
                let settings = patient(settings(*design, depth, credit_every));
                let shuffle = Shuffle::new(devices, settings, threads).unwrap();
                let seed = (at as u64) << 8 | u64::from(depth);
                let work = Work { slow, hold, seed, ..Work::new(pattern, messages) };
                run_well(&shuffle, work, idle);
            }
        }
    }
}

#[test]
fn sim_keeps_all_promises() {
    let (sim, devices) = simulated(1, Model::default(), 3);
    let mut idle = |_| while_away(&sim);
    check(&devices, 2, 24, &Design::VARIANTS, &mut idle);
}

#[test]
fn shm_keeps_all_promises() {
    let token = Token::new([1; 32]);
    let devices: Vec<_> = (0..2).map(|_| ShmDevice::open(token).unwrap()).collect();
    check(&devices, 2, 16, &Design::VARIANTS, &mut |_| ());
}

/// Over TCP one node is enough to see that nothing depends on the fabric; datagrams go over UDP.
#[test]
fn tcp_keeps_all_promises() {
    let token = Token::new([1; 32]);
    let address = "127.0.0.1:0".parse().unwrap();
    let devices: Vec<_> = (0..2).map(|_| TcpDevice::open(token, address).unwrap()).collect();
    let single = |design: &Design| design.name().starts_with("SE");
    let designs: Vec<_> = Design::VARIANTS.into_iter().filter(single).collect();
    check(&devices, 1, 12, &designs, &mut |step| {
        if step.is_multiple_of(64) {
            std::thread::yield_now();
        }
    });
}

/// Queue pairs are those of the paper's table 1, and memory that of its formula.
#[test]
fn sim_resources_are_as_computed() {
    let (_sim, devices) = simulated(1, Model::default(), 3);
    for design in Design::VARIANTS {
        let threads = 4;
        let shuffle = Shuffle::new(&devices, settings(design, 2, 2), threads).unwrap();
        let (sent, received) = shuffle.counters();
        let nodes = devices.len();
        let pairs = (nodes * design.queue_pairs(nodes, threads)) as u64;
        assert_eq!((sent.queue_pairs, received.queue_pairs), (pairs, pairs), "{design}");
        let endpoints = (nodes * design.endpoints_of(threads)) as u64;
        let of_sender = shuffle.settings.sender_bytes(nodes);
        let of_receiver = shuffle.settings.receiver_bytes(nodes);
        assert_eq!(sent.registered_bytes, endpoints * of_sender, "{design}");
        assert_eq!(received.registered_bytes, endpoints * of_receiver, "{design}");
        // Buffers for each peer and thread, times peers, times threads, on every node.
        let buffers = (2 * nodes * threads * nodes) as u64;
        assert_eq!((sent.buffers, received.buffers), (buffers, buffers), "{design}");
        let datagrams = design.transport == Transport::Datagrams;
        assert_eq!(datagrams, pairs == endpoints, "{design}");
    }
}
