//! A test that endpoints give everything back, also after errors. It is alone in its file because
//! it counts what the whole process has mapped and opened.

mod common;

use std::time::Duration;

use common::process::{PEER, TOKEN, between_processes, killed, peer};
use common::{PATIENCE, Pattern, STEPS_MAX, Shuffle, Work, patient, run, settings, simulated};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::Model;
use millstream_flow::shuffle::{Design, Error, Settings, State, Transport};

/// Shared mappings of this process, and its open files.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:")).count();
    (shared, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// One message, and then an end in good order or with an error.
fn shuffle_once(design: Design, fails: bool) {
    let token = Token::new([5; 32]);
    let devices: Vec<_> = (0..2).map(|_| ShmDevice::open(token).unwrap()).collect();
    let settings = settings(design, 2, 2);
    let settings = if fails { settings } else { patient(settings) };
    let mut shuffle = Shuffle::new(&devices, settings, 1).unwrap();
    let buffer = shuffle.senders[0][0].acquire(PATIENCE).unwrap();
    shuffle.senders[0][0].put(buffer, 10, &[0, 1], State::MoreData).unwrap();
    for receivers in &shuffle.receivers {
        let message = receivers[0].get(PATIENCE).unwrap().expect("a message");
        assert_eq!(message.len(), 10);
    }
    if fails {
        drop(shuffle.senders.pop());
        for receivers in &shuffle.receivers {
            // Endpoints of datagrams that are not called are lost, too.
            drop(shuffle.senders[0][0].keep_alive());
            let error = loop {
                if let Err(error) = receivers[0].get(PATIENCE) {
                    break error;
                }
            };
            assert!(matches!(error, Error::PeerLost { .. } | Error::Silent { .. }), "{error}");
        }
        return;
    }
    let senders = &shuffle.senders;
    std::thread::scope(|scope| {
        for all in senders {
            scope.spawn(|| all[0].finish(PATIENCE).unwrap());
        }
        for all in &shuffle.receivers {
            scope.spawn(|| {
                while all[0].get(PATIENCE).unwrap().is_some() {}
                all[0].finish(PATIENCE).unwrap();
            });
        }
    });
}

/// One of each implementation and notification.
fn single() -> impl Iterator<Item = Design> {
    Design::VARIANTS.into_iter().filter(|design| design.name().starts_with("SE"))
}

#[test]
fn endpoints_give_back_all_memory() {
    let mut before = (0, 0);
    // What is opened once and kept is opened in the first round.
    for round in 0..3 {
        for design in single() {
            for fails in [false, true] {
                shuffle_once(design, fails);
            }
            killed(&ShmDevice::open(Token::new(TOKEN)).unwrap(), design, "shm", &ARGUMENTS);
        }
        if round == 0 {
            before = held();
        }
    }
    assert_eq!(held(), before);
    let token = Token::new([5; 32]);
    let device = [ShmDevice::open(token).unwrap()];
    let design = Design::ALL[0];
    let shuffle = Shuffle::new(&device, settings(design, 2, 2), 1).unwrap();
    assert!(held().0 > before.0, "this counts what endpoints map");
    drop(shuffle);
    for design in single() {
        for fault in [Fault::Stopped, Fault::LostDepleted, Fault::Full] {
            let datagrams = design.transport == Transport::Datagrams;
            if datagrams || !matches!(fault, Fault::LostDepleted) {
                gives_back_after(fault, design);
            }
        }
    }
}

const ARGUMENTS: [&str; 3] = ["as_peer", "--exact", "--nocapture"];

/// What this test's binary does as another process.
#[test]
fn as_peer() {
    let Ok(role) = std::env::var(PEER) else { return };
    let (role, design) = role.split_once(' ').unwrap();
    let device = ShmDevice::open(Token::new(TOKEN)).unwrap();
    peer(&device, between_processes(role, design.parse().unwrap()));
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Stopped,
    LostDepleted,
    Full,
}

/// Bytes that this process has mapped.
fn mapped() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    size.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Faults of the simulated network, whose endpoints' memory is mapped as any other's.
fn gives_back_after(fault: Fault, design: Design) {
    let before = mapped();
    let (sim, devices) = simulated(1, Model::default(), 2);
    let completion_entries = matches!(fault, Fault::Full).then_some(3);
    let settings = Settings { message_bytes: 4000, completion_entries, ..settings(design, 128, 2) };
    let shuffle = Shuffle::new(&devices, settings, 1).unwrap();
    let (sent, received) = shuffle.counters();
    let registered = sent.registered_bytes + received.registered_bytes;
    assert!(mapped() >= before + registered, "this counts what endpoints register");
    if let Fault::LostDepleted = fault {
        sim.cut(&devices[0], &devices[1]);
        let buffer = shuffle.senders[0][0].try_acquire().unwrap().unwrap();
        shuffle.senders[0][0].put(buffer, 0, &[1], State::Depleted).unwrap();
        sim.advance(Duration::from_millis(1));
        sim.mend(&devices[0], &devices[1]);
    }
    let mut idle = |step| {
        if step == 300 && matches!(fault, Fault::Stopped) {
            sim.stop(&devices[1]);
        }
        // Nobody polls often enough for a short queue.
        let slow = step >= 1000 || matches!(fault, Fault::Full);
        sim.advance(Duration::from_micros(if slow { 1000 } else { 20 }));
    };
    let dies = matches!(fault, Fault::Stopped).then_some((1, 300));
    let work = Work { full: true, dies, ..Work::new(Pattern::Broadcast, 400) };
    let work = match fault {
        Fault::LostDepleted => Work { messages: 0, ..work },
        _ => work,
    };
    let outcome = run(&shuffle, work, &mut idle, STEPS_MAX);
    assert!(outcome.errors.len() >= 2, "{design}, {fault:?}: {outcome:?}");
    drop(shuffle);
    let left = mapped().saturating_sub(before);
    assert!(left < registered / 4, "{design}, {fault:?}: {left} of {registered} are left");
}
