//! Tests of channels over shared memory, where each side stores into the other's memory.

use std::time::Duration;

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::{Access, Fabric, Region, RemoteRegion};
use millstream_flow::channel::{
    Error, Notification, Received, Receiver, ReceiverSetup, Sender, SenderSetup, Settings,
};

fn device() -> ShmDevice {
    ShmDevice::open(Token::new([1; 32])).unwrap()
}

/// A channel between two devices, and where its sides sleep.
struct Mill {
    sender: Sender<ShmDevice>,
    receiver: Receiver<ShmDevice>,
    events: [<ShmDevice as Fabric>::Events; 2],
}

impl Mill {
    fn new(settings: Settings) -> Mill {
        let (a, b) = (device(), device());
        let events = [a.events().unwrap(), b.events().unwrap()];
        let sender = SenderSetup::new(&a, &events[0], settings).unwrap();
        let receiver = ReceiverSetup::new(&b, &events[1], settings).unwrap();
        let (to_receiver, to_sender) = (sender.hello(), receiver.hello());
        let sender = sender.connect(&to_sender).unwrap();
        let receiver = receiver.connect(&to_receiver).unwrap();
        Mill { sender, receiver, events }
    }
}

/// A part of a region that does not begin at a cache line.
fn shifted(region: &Region, bytes: u64, by: u64) -> RemoteRegion {
    let RemoteRegion { address, key, .. } = region.remote();
    RemoteRegion { address: address + by, bytes, key }
}

#[test]
fn regions_that_begin_anywhere_are_refused() {
    for by in [1, 4, 8] {
        let (a, b) = (device(), device());
        let events = [a.events().unwrap(), b.events().unwrap()];
        let memory = [&a, &b].map(|side| side.allocate(1 << 20, Access::REMOTE_ALL).unwrap());
        let setups = || {
            let sender = SenderSetup::new(&a, &events[0], Settings::default()).unwrap();
            let receiver = ReceiverSetup::new(&b, &events[1], Settings::default()).unwrap();
            (sender, receiver)
        };
        for which in 0..2 {
            let (sender, receiver) = setups();
            let mut hello = receiver.hello();
            hello.regions[which] = shifted(&memory[1], hello.regions[which].bytes, by);
            let refused = sender.connect(&hello).err();
            assert!(matches!(refused, Some(Error::Mismatch { .. })), "{refused:?}");
        }
        let (sender, receiver) = setups();
        let mut hello = sender.hello();
        hello.regions[0] = shifted(&memory[0], hello.regions[0].bytes, by);
        let refused = receiver.connect(&hello).err();
        assert!(matches!(refused, Some(Error::Mismatch { .. })), "{refused:?}");
    }
}

/// A sender that was about to sleep, and finds credit by itself, is not woken for ever after.
#[test]
fn who_does_not_wait_any_more_is_not_woken() {
    let Mill { mut sender, mut receiver, .. } =
        Mill::new(Settings { slots: 4, slot_bytes: 4096, ..Settings::default() });
    while let Some(slot) = sender.try_acquire().unwrap() {
        slot.send(8, 0).unwrap();
    }
    assert!((0..10).any(|_| sender.park().unwrap()), "it may sleep");
    for _ in 0..100 {
        while matches!(receiver.try_receive().unwrap(), Received::Message(_)) {}
        while let Some(slot) = sender.try_acquire().unwrap() {
            slot.send(8, 0).unwrap();
        }
    }
    let woken = receiver.stats().immediates;
    assert!((1..=3).contains(&woken), "woken {woken} times");
}

/// A sender that ends abruptly is an error behind what it had sent, whether or not credit is due.
#[test]
fn what_arrived_before_an_abrupt_end_is_delivered() {
    for notification in [Notification::Footer, Notification::Immediate] {
        for waits in [false, true] {
            let settings = Settings { slots: 4, notification, ..Settings::default() };
            let Mill { mut sender, mut receiver, events: [_, mut events] } = Mill::new(settings);
            if waits {
                // Asleep, as far as the sender knows.
                assert!((0..10).any(|_| receiver.park().unwrap()), "it may sleep");
            }
            for number in 0..4 {
                sender.try_acquire().unwrap().unwrap().send(8, number).unwrap();
            }
            drop(sender);
            let mut seen = Vec::new();
            let error = loop {
                let received = match waits {
                    true => receiver.receive(&mut events, Duration::from_secs(20)),
                    false => receiver.try_receive(),
                };
                match received {
                    Ok(Received::Message(message)) => seen.push(message.tag()),
                    Ok(Received::Empty) => {}
                    Ok(Received::End) => panic!("the sender did not end the stream"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::PeerLost { .. }), "{error}");
            assert_eq!(seen, [0, 1, 2, 3], "{notification:?}, waits: {waits}");
        }
    }
}
