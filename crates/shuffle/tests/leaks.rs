//! A test that endpoints give everything back, also after errors. It is alone in its file because
//! it counts what the whole process has mapped and opened.

mod common;

use common::{PATIENCE, Shuffle, patient, settings};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_shuffle::{Design, Error, State};

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

#[test]
fn endpoints_give_back_all_memory() {
    let mut before = (0, 0);
    // What is opened once and kept is opened in the first round.
    for round in 0..3 {
        for design in Design::VARIANTS.into_iter().filter(|one| one.name().starts_with("SE")) {
            for fails in [false, true] {
                shuffle_once(design, fails);
            }
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
}
