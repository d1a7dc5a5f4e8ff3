//! Endpoints that sleep: nobody misses a wake-up, and a sleeper does not poll.

use std::time::Duration;

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_fabric::{Events, Fabric};

use super::endpoint::{Endpoint, Half};
use super::*;

/// Longer than a side sleeps without asking.
const LONG: Duration = Duration::from_secs(10);

fn connected<F: Fabric>(device: &F, name: &str, depth: u32) -> (Sender<F>, Receiver<F>) {
    let (spin, depth, design) = (Duration::ZERO, Depth::Fixed(depth), name.parse().unwrap());
    let settings = Settings { message_bytes: 64, spin, depth, ..Settings::new(design) };
    let sender = SenderSetup::new(device, 1, 1, settings).unwrap();
    let receiver = ReceiverSetup::new(device, 2, 1, settings).unwrap();
    let hellos = [sender.hello(0), receiver.hello(0)];
    (sender.connect(&hellos[1..]).unwrap(), receiver.connect(&hellos[..1]).unwrap())
}

fn put<F: Fabric>(sender: &Sender<F>) -> bool {
    let Some(buffer) = sender.try_acquire().unwrap() else { return false };
    sender.put(buffer, 8, &[0], State::MoreData).unwrap();
    true
}

/// Goes to sleep as a waiting thread does; runs `act` before, if it may sleep. Returns whether it
/// was awake all the time, or was woken.
fn sleep<H: Half>(endpoint: &Endpoint<SimDevice, H>, act: impl FnOnce()) -> bool {
    if !endpoint.with(Half::park).unwrap() {
        return true;
    }
    act();
    let mut events = endpoint.events.lock().unwrap();
    events.as_mut().unwrap().wait(LONG).unwrap()
}

const NAMES: [&str; 5] = ["SEMQ/SR", "SEMQ/RD", "SEMQ/WR", "SEMQ/WR:messages", "SEMQ/WR:buffers"];

/// A message that is put at any moment while a receiver goes to sleep wakes it.
#[test]
fn a_receiver_that_sleeps_is_woken() {
    for (name, seed) in NAMES.into_iter().flat_map(|name| (0..200).map(move |seed| (name, seed))) {
        let sim = Sim::new(seed);
        // There is credit for all of them.
        let (sender, receiver) = connected(&sim.node(Model::default()), name, 16);
        for message in 0..8 {
            // Now, after some events, or when the receiver sleeps.
            let mut moment = (seed + message) % 12;
            let mut is_put = false;
            loop {
                if let Received::Message(_) = receiver.try_get().unwrap() {
                    break;
                }
                if moment == 0 && !is_put {
                    is_put = put(&sender);
                }
                moment = moment.saturating_sub(1);
                let late = || is_put |= !is_put && put(&sender);
                assert!(sleep(&receiver.inner, late), "{name}, {seed}: missed {message}");
                sim.step();
                sender.keep_alive().unwrap();
            }
        }
    }
}

/// So does a buffer that is released while a sender goes to sleep.
#[test]
fn a_sender_that_sleeps_is_woken() {
    for (name, seed) in NAMES.into_iter().flat_map(|name| (0..200).map(move |seed| (name, seed))) {
        let sim = Sim::new(seed);
        let (sender, receiver) = connected(&sim.node(Model::default()), name, 2);
        let mut sent = 0;
        let mut moment = seed % 12;
        while sent < 12 {
            if put(&sender) {
                sent += 1;
                moment = (seed + sent) % 12;
                continue;
            }
            let take = || while let Received::Message(_) = receiver.try_get().unwrap() {};
            if moment == 0 {
                take();
            }
            moment = moment.saturating_sub(1);
            let late = || {
                while sim.step() {}
                take();
            };
            assert!(sleep(&sender.inner, late), "{name}, {seed}: missed after {sent}");
            sim.step();
        }
    }
}

/// All threads of a receiver sleep, and each of them gets a message.
#[test]
fn sleepers_of_one_endpoint_do_not_poll() {
    let device = ShmDevice::open(Token::new([7; 32])).unwrap();
    for name in NAMES {
        let (sender, receiver) = connected(&device, name, 4);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| receiver.get(LONG).unwrap().map(|one| one.len())))
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            let polls = receiver.counters().polls;
            assert!(polls < 200, "{name}: {polls} polls");
            for _ in 0..3 {
                while !put(&sender) {
                    std::thread::yield_now();
                }
            }
            sender.flush(LONG).unwrap();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Some(8), "{name}");
            }
        });
    }
}
