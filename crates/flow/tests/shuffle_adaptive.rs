//! Adaptive buffers (paper, section 6.2): they come when they are needed, go when they are not, and
//! are never more than the cap.

mod common;

use std::time::Duration;

use common::{MESSAGE_BYTES, Pattern, Shuffle, Work, run_well, settings, simulated, while_away};
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_flow::shuffle::{
    Delivery, Depth, Design, Error, Pool, Received, Receiver, ReceiverSetup, Sender, SenderSetup,
    Settings, State, Transport,
};

fn adaptive(design: Design, least: u32, most: u32) -> Settings {
    Settings { depth: Depth::Adaptive { least, most }, ..settings(design, least, least.min(2)) }
}

/// Ready for one sender and one receiver.
fn one_way(device: &SimDevice, settings: Settings) -> (Sender<SimDevice>, Receiver<SimDevice>) {
    let sender = SenderSetup::new(device, 1, 1, settings).unwrap();
    let receiver = ReceiverSetup::new(device, 2, 1, settings).unwrap();
    let (to_receiver, to_sender) = (sender.hello(0), receiver.hello(0));
    (sender.connect(&[to_sender]).unwrap(), receiver.connect(&[to_receiver]).unwrap())
}

fn single() -> impl Iterator<Item = Design> {
    Design::VARIANTS.into_iter().filter(|design| design.name().starts_with("SE"))
}

/// Puts as long as there are buffers, and lets happen what follows.
fn put_all(sender: &Sender<SimDevice>, sim: &Sim, most: usize) -> usize {
    let mut put = 0;
    for _ in 0..200 {
        if put < most
            && let Some(buffer) = sender.try_acquire().unwrap()
        {
            sender.put(buffer, MESSAGE_BYTES, &[0], State::MoreData).unwrap();
            put += 1;
        }
        sender.keep_alive().unwrap();
        sim.advance(Duration::from_micros(1));
    }
    put
}

/// A consumer that holds more messages than there are buffers at first: with a fixed depth it
/// would wait for ever, here buffers come, up to the cap and no further.
#[test]
fn buffers_come_when_the_consumer_holds_them() {
    for design in single() {
        let sim = Sim::new(1);
        let device = sim.node(Model::default());
        let (sender, receiver) = one_way(&device, adaptive(design, 2, 6));
        assert_eq!(receiver.counters().buffers, 2, "{design}");
        let mut held: Vec<Delivery<'_, _>> = Vec::new();
        for _ in 0..20 {
            put_all(&sender, &sim, 20);
            for _ in 0..20 {
                if let Received::Message(message) = receiver.try_get().unwrap() {
                    held.push(message);
                }
                sim.advance(Duration::from_micros(2));
            }
        }
        let counters = receiver.counters();
        assert_eq!(held.len(), 6, "{design}: {counters:?}");
        assert_eq!((counters.buffers, counters.added), (6, 4), "{design}: {counters:?}");
        // The sender took more, too, while its messages waited: all that it may have.
        assert_eq!(sender.counters().buffers_max, 6, "{design}");
        // With all of them back the stream goes on.
        held.clear();
        for _ in 0..50 {
            put_all(&sender, &sim, 1);
            if let Received::Message(message) = receiver.try_get().unwrap() {
                held.push(message);
                held.clear();
            }
        }
        let after = receiver.counters();
        assert!(after.messages > 12 && after.buffers <= 6, "{design}: {after:?}");
    }
}

/// A consumer that finds several messages each time it looks: it keeps the least.
#[test]
fn buffers_go_when_more_than_one_is_ready() {
    for design in single() {
        let sim = Sim::new(1);
        let device = sim.node(Model::default());
        let (sender, receiver) = one_way(&device, adaptive(design, 2, 8));
        // Up to the cap, by holding.
        let mut held = Vec::new();
        for _ in 0..100 {
            put_all(&sender, &sim, 3);
            if let Received::Message(message) = receiver.try_get().unwrap() {
                held.push(message);
            }
            if held.len() == 8 {
                break;
            }
        }
        assert_eq!(receiver.counters().buffers, 8, "{design}");
        let registered = receiver.counters().registered_bytes;
        held.clear();
        // Bursts, each taken at once.
        for _ in 0..30 {
            put_all(&sender, &sim, 8);
            for _ in 0..12 {
                if let Received::Message(message) = receiver.try_get().unwrap() {
                    message.release().unwrap();
                }
            }
        }
        let counters = receiver.counters();
        assert!(counters.retired > 0, "{design}: {counters:?}");
        assert!(counters.buffers < 8, "{design}: {counters:?}");
        assert!(counters.buffers >= 2, "{design}: {counters:?}");
        // They are registered all the same, for the next time.
        assert_eq!(counters.registered_bytes, registered, "{design}");
        let most = adaptive(design, 2, 8).receiver_bytes(1);
        assert!(registered <= most, "{design}: {registered} of {most}");
        assert!(sender.counters().retired > 0, "{design}: {:?}", sender.counters());
    }
}

/// Whatever comes and goes, nothing is lost or doubled.
#[test]
fn adaptive_buffers_keep_all_promises() {
    for design in Design::VARIANTS {
        for (pattern, hold) in Pattern::ALL.into_iter().zip([0, 1, 4]) {
            let (sim, devices) = simulated(7, Model::default(), 2);
            let shuffle = Shuffle::new(&devices, adaptive(design, 2, 8), 2).unwrap();
            let work = Work { hold, slow: 9, ..Work::new(pattern, 60) };
            run_well(&shuffle, work, &mut |_| while_away(&sim));
            let (sent, received) = shuffle.counters();
            let added = sent.added + received.added;
            assert!(hold < 4 || added > 0, "{design} {work:?}: {sent:?} {received:?}");
        }
    }
}

/// One pool for several endpoints: it registers what they need, and gives back what they left.
#[test]
fn endpoints_share_a_pool() {
    let design = "MESQ/SR".parse().unwrap();
    assert_eq!(Design::ALL[2], design);
    let settings = adaptive(design, 2, 100);
    let sim = Sim::new(1);
    let device = sim.node(Model::default());
    let pool = Pool::new(&device, &settings, 6);
    assert_eq!(pool.registered_bytes(), 0);
    let open = |id| ReceiverSetup::with_pool(&device, &pool, id, 1, settings);
    let receivers: Vec<_> = (0..3).map(|id| open(id).unwrap()).collect();
    assert_eq!(pool.lent(), 6);
    let registered = pool.registered_bytes();
    assert!(registered > 0);
    // The cap is the pool's.
    let refused = open(3).err();
    assert!(matches!(refused, Some(Error::Setting { .. })), "{refused:?}");
    assert_eq!(pool.lent(), 6);
    assert_eq!(pool.trim(), 0, "all are in use");
    drop(receivers);
    assert_eq!((pool.lent(), pool.registered_bytes()), (0, registered));
    assert_eq!(pool.trim(), registered);
    assert_eq!(pool.registered_bytes(), 0);
    // And it can be used again.
    assert_eq!(open(4).map(|_| pool.lent()).unwrap(), 2);
}

/// What peers address by themselves is the endpoint's own.
#[test]
fn pools_are_for_buffers_that_peers_do_not_address() {
    let sim = Sim::new(1);
    let device = sim.node(Model::default());
    for design in single() {
        let settings = adaptive(design, 2, 4);
        let pool = Pool::new(&device, &settings, 100);
        let sender = SenderSetup::with_pool(&device, &pool, 1, 1, settings);
        let receiver = ReceiverSetup::with_pool(&device, &pool, 2, 1, settings);
        assert_eq!(sender.is_err(), design.transport == Transport::Read, "{design}");
        let writes = matches!(design.transport, Transport::Write(_));
        assert_eq!(receiver.is_err(), writes, "{design}");
        let other = Settings { message_bytes: 1000, ..settings };
        assert!(SenderSetup::with_pool(&device, &pool, 1, 1, other).is_err(), "{design}");
    }
}
