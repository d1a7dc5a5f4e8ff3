//! Tests of channels over the simulated fabric: random schedules, faults, and bytes that land out
//! of order.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_fabric::sim::{Model, Placement, Sim, SimDevice, SimEvents};
use millstream_fabric::{Access, Fabric, Region};
use millstream_flow::channel::{
    Error, Notification, Received, Receiver, ReceiverSetup, Sender, SenderSetup, Settings,
};

/// A producer and a consumer on two nodes.
struct Mill {
    sim: Sim,
    nodes: [SimDevice; 2],
    sender: Sender<SimDevice>,
    receiver: Receiver<SimDevice>,
    events: [SimEvents; 2],
}

impl Mill {
    fn new(seed: u64, model: Model, settings: Settings) -> Mill {
        let sim = Sim::new(seed);
        let nodes = [sim.node(model), sim.node(model)];
        let events = [nodes[0].events().unwrap(), nodes[1].events().unwrap()];
        let sender = SenderSetup::new(&nodes[0], &events[0], settings).unwrap();
        let receiver = ReceiverSetup::unchecked(&nodes[1], &events[1], settings).unwrap();
        let (to_receiver, to_sender) = (sender.hello(), receiver.hello());
        let sender = sender.connect(&to_sender).unwrap();
        let receiver = receiver.connect(&to_receiver).unwrap();
        Mill { sim, nodes, sender, receiver, events }
    }
}

/// The tests' own source of chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// Every byte of message `number` follows from its number and length.
fn fill(payload: &mut [u8], number: u64) {
    for (i, byte) in payload.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9) >> (i % 24)) as u8 ^ i as u8;
    }
}

fn is_whole(payload: &[u8], number: u64) -> bool {
    let mut expected = vec![0; payload.len()];
    fill(&mut expected, number);
    payload == expected
}

/// What a run of a random schedule saw.
#[derive(Debug, Default)]
struct Seen {
    received: u64,
    damaged: u64,
    stalls: u64,
    parks: u64,
    immediates: u64,
    short: u64,
    empty: u64,
    full: u64,
    gathered: u64,
}

/// When a producer writes over what it sent from where it stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reuse {
    /// When credit for it has come.
    Released,
    /// As soon as it is sent.
    TooEarly,
}

/// Memory outside of the channel that messages are sent from: blocks that are used again.
struct Source {
    region: Region,
    block_bytes: usize,
    free: Vec<usize>,
    /// Blocks in use, with the number of the slot they went with.
    used: VecDeque<(usize, u64)>,
    reuse: Reuse,
}

impl Source {
    fn new(node: &SimDevice, block_bytes: usize, blocks: usize, reuse: Reuse) -> Source {
        let region = node.allocate(block_bytes * blocks, Access::LOCAL).unwrap();
        Source { region, block_bytes, free: (0..blocks).collect(), used: VecDeque::new(), reuse }
    }

    /// Writes over the blocks that are done with.
    fn reclaim(&mut self, sender: &Sender<SimDevice>) {
        let released = sender.released().unwrap();
        while let Some((block, number)) = self.used.pop_front() {
            if number > released && self.reuse == Reuse::Released {
                self.used.push_front((block, number));
                return;
            }
            let over = vec![0xee; self.block_bytes];
            self.region.write(block * self.block_bytes, &over).unwrap();
            self.free.push(block);
        }
    }
}

/// Sends `messages` messages of random lengths in a random schedule, both sides taking turns on one
/// thread, sometimes going to sleep; checks order, number and credit.
fn run(seed: u64, model: Model, settings: Settings, messages: u64) -> Result<Seen, Error> {
    run_with(seed, model, settings, messages, Reuse::Released)
}

// tidy: long function: one schedule, from what is drawn to what came of it
fn run_with(
    seed: u64,
    model: Model,
    settings: Settings,
    messages: u64,
    reuse: Reuse,
) -> Result<Seen, Error> {
    let mut mill = Mill::new(seed, model, settings);
    // Fewer than slots: they are used again as soon as that is allowed.
    let blocks = settings.slots.div_ceil(2);
    let mut source = Source::new(&mill.nodes[0], settings.slot_bytes, blocks, reuse);
    let mut chance = Chance(seed ^ 0x5eed);
    let mut seen = Seen::default();
    let (mut sent, mut finished, mut ended) = (0, false, false);
    let slots = settings.slots as u64;
    let mut turns = 0_u64;
    while !finished || !ended {
        turns += 1;
        assert!(turns < 1_000_000, "seed {seed}: it hangs: {sent} sent, {seen:?}");
        match chance.below(6) {
            0 | 1 if sent < messages => {
                let payload_bytes = mill.sender.payload_bytes();
                let credits = mill.sender.credits();
                if let Some(mut slot) = mill.sender.try_acquire()? {
                    assert!(credits > 0, "a slot without credit");
                    let bytes = match chance.below(4) {
                        0 => payload_bytes,
                        1 => 0,
                        _ => chance.below(payload_bytes as u64 + 1) as usize,
                    };
                    seen.full += u64::from(bytes == payload_bytes);
                    seen.empty += u64::from(bytes == 0);
                    seen.short += u64::from(bytes > 0 && bytes < settings.slot_bytes / 2);
                    let block = if chance.below(2) == 0 { source.free.pop() } else { None };
                    if let Some(block) = block {
                        let head = chance.below(bytes as u64 + 1) as usize;
                        let mut whole = vec![0; bytes];
                        fill(&mut whole, sent);
                        slot.payload()[..head].copy_from_slice(&whole[..head]);
                        // Somewhere in the block.
                        let room = settings.slot_bytes - (bytes - head);
                        let at =
                            block * settings.slot_bytes + chance.below(room as u64 + 1) as usize;
                        source.region.write(at, &whole[head..])?;
                        slot.send_from(head, &source.region, at, bytes - head, sent)?;
                        source.used.push_back((block, mill.sender.sent()));
                        seen.gathered += u64::from(head > 0 && head < bytes);
                    } else {
                        fill(&mut slot.payload()[..bytes], sent);
                        slot.send(bytes, sent)?;
                    }
                    sent += 1;
                    assert_eq!(mill.sender.sent(), sent);
                }
            }
            2 | 3 if !ended => match mill.receiver.try_receive()? {
                Received::Message(message) => {
                    let right = message.tag() == seen.received && is_whole(&message, seen.received);
                    seen.damaged += u64::from(!right);
                    seen.received += 1;
                }
                Received::Empty => {}
                Received::End => ended = true,
            },
            4 => {
                for _ in 0..chance.below(8) {
                    mill.sim.step();
                }
            }
            _ => {
                // One side has nothing to do and may sleep; it must not sleep for ever.
                if chance.below(2) == 0 && !ended {
                    mill.receiver.park()?;
                } else if !finished {
                    mill.sender.park()?;
                }
            }
        }
        source.reclaim(&mill.sender);
        if sent == messages && !finished {
            finished = mill.sender.try_finish()?;
        }
        assert!(sent - seen.received <= slots, "seed {seed}: a slot was overwritten unread");
        assert!(mill.sender.credits() <= slots, "seed {seed}: credit out of nothing");
    }
    assert_eq!((sent, seen.received), (messages, messages), "seed {seed}");
    let (out, into) = (mill.sender.stats(), mill.receiver.stats());
    assert_eq!((out.messages, out.bytes), (into.messages, into.bytes), "seed {seed}");
    seen.stalls = out.credit_stalls;
    seen.parks = out.parks + into.parks;
    seen.immediates = out.immediates + into.immediates;
    Ok(seen)
}

fn settings(seed: u64, notification: Notification) -> Settings {
    let slots = [1, 2, 3, 4, 8, 17][seed as usize % 6];
    let slot_bytes = [64, 128, 256, 1024][seed as usize / 6 % 4];
    Settings { slots, slot_bytes, notification, ..Settings::default() }
}

#[test]
fn any_schedule_keeps_order_and_credit() {
    let mut all = Seen::default();
    for seed in 0..400 {
        let placement = [Placement::Whole, Placement::Ordered][seed as usize % 2];
        let model = Model { placement, ..Model::default() };
        let notification = [Notification::Footer, Notification::Immediate][seed as usize / 2 % 2];
        let seen = run(seed, model, settings(seed, notification), 60).unwrap();
        assert_eq!(seen.damaged, 0, "seed {seed}");
        all.stalls += seen.stalls;
        all.parks += seen.parks;
        all.immediates += seen.immediates;
        all.short += seen.short;
        all.empty += seen.empty;
        all.full += seen.full;
        all.gathered += seen.gathered;
    }
    // What the test is about has happened.
    let Seen { stalls, parks, immediates, short, empty, full, gathered, .. } = all;
    for (what, count) in [
        ("stalls", stalls),
        ("parks", parks),
        ("immediates", immediates),
        ("short slots", short),
        ("empty messages", empty),
        ("full slots", full),
        ("messages from two places", gathered),
    ] {
        assert!(count > 100, "{what}: {count}");
    }
}

#[test]
fn laps_go_round_more_than_once() {
    let settings = Settings { slots: 2, slot_bytes: 64, ..Settings::default() };
    let seen = run(3, Model::default(), settings, 1500).unwrap();
    assert_eq!((seen.received, seen.damaged), (1500, 0));
}

/// The fabric reads what is sent from where it stands as late as hardware might.
#[test]
fn what_is_sent_from_where_it_stands_must_stay_until_credit_comes() {
    let mut damaged = 0;
    for seed in 0..50 {
        for notification in [Notification::Footer, Notification::Immediate] {
            let settings = settings(seed, notification);
            let early = run_with(seed, Model::default(), settings, 60, Reuse::TooEarly).unwrap();
            damaged += early.damaged;
            let right = run_with(seed, Model::default(), settings, 60, Reuse::Released).unwrap();
            assert_eq!(right.damaged, 0, "seed {seed}");
            assert!(right.gathered > 0, "seed {seed}");
        }
    }
    assert!(damaged > 100, "only {damaged} messages changed on their way: the test shows nothing");
}

/// Credit counts what was processed, one slot after the other.
#[test]
fn released_follows_the_receiver() {
    let settings = Settings { slots: 2, slot_bytes: 1024, ..Settings::default() };
    let mut mill = Mill::new(1, Model::default(), settings);
    let region = mill.nodes[0].allocate(4096, Access::LOCAL).unwrap();
    for number in 1..=10_u64 {
        mill.sender
            .try_acquire()
            .unwrap()
            .unwrap()
            .send_from(0, &region, 100, 900, number)
            .unwrap();
        assert_eq!((mill.sender.sent(), mill.sender.released().unwrap()), (number, number - 1));
        mill.sim.advance(Duration::from_millis(1));
        assert_eq!(mill.sender.released().unwrap(), number - 1, "nobody has looked at it yet");
        match mill.receiver.try_receive().unwrap() {
            Received::Message(message) => assert_eq!((message.len(), message.tag()), (900, number)),
            _ => panic!("message {number} did not come"),
        }
        assert!(matches!(mill.receiver.try_receive().unwrap(), Received::Empty));
        mill.sim.advance(Duration::from_millis(1));
        assert_eq!(mill.sender.released().unwrap(), number);
    }
}

/// What is asked for beyond slot or region is refused, and the channel goes on.
#[test]
fn bytes_outside_of_slot_and_region_are_refused() {
    let settings = Settings { slots: 2, slot_bytes: 1024, ..Settings::default() };
    let mut mill = Mill::new(1, Model::default(), settings);
    let max = mill.sender.payload_bytes();
    let region = mill.nodes[0].allocate(4096, Access::LOCAL).unwrap();
    for (head, offset, bytes) in
        [(1, 0, max), (max, 0, 1), (max + 1, 0, 0), (usize::MAX, 0, 2), (2, 0, usize::MAX)]
    {
        let slot = mill.sender.try_acquire().unwrap().unwrap();
        let refused = slot.send_from(head, &region, offset, bytes, 0).unwrap_err();
        assert!(matches!(refused, Error::TooLong { .. }), "{head} and {bytes}: {refused}");
    }
    for (offset, bytes) in [(4096, 1), (4000, 97), (usize::MAX, 1)] {
        let slot = mill.sender.try_acquire().unwrap().unwrap();
        let refused = slot.send_from(8, &region, offset, bytes, 0).unwrap_err();
        assert!(matches!(refused, Error::Fabric(_)), "{offset}, {bytes}: {refused}");
    }
    assert_eq!((mill.sender.sent(), mill.sender.credits()), (0, 2));
    let mut slot = mill.sender.try_acquire().unwrap().unwrap();
    slot.payload()[..4].copy_from_slice(b"meal");
    slot.send_from(4, &region, 4096, 0, 7).unwrap();
    mill.sim.advance(Duration::from_millis(1));
    match mill.receiver.try_receive().unwrap() {
        Received::Message(message) => assert_eq!((&*message, message.tag()), (&b"meal"[..], 7)),
        _ => panic!("the message was lost"),
    };
}

#[test]
fn footers_fail_and_immediates_hold_when_bytes_land_out_of_order() {
    let model = Model { placement: Placement::Shuffled, ..Model::default() };
    let mut damaged = 0;
    for seed in 0..100 {
        let mut footers = settings(seed, Notification::Footer);
        footers.slot_bytes = 1024;
        damaged += run(seed, model, footers, 60).unwrap().damaged;
        let immediates = Settings { notification: Notification::Immediate, ..footers };
        let seen = run(seed, model, immediates, 60).unwrap();
        assert_eq!(seen.damaged, 0, "seed {seed}");
        assert!(seen.immediates >= 60);
    }
    assert!(damaged > 0, "no footer was seen before its payload: the test shows nothing");
}

#[test]
fn footers_are_refused_where_bytes_land_out_of_order() {
    let sim = Sim::new(1);
    let node = sim.node(Model { placement: Placement::Shuffled, ..Model::default() });
    let events = node.events().unwrap();
    let refused = ReceiverSetup::new(&node, &events, Settings::default());
    assert!(matches!(refused.err(), Some(Error::Setting { .. })));
}

#[test]
fn different_settings_do_not_connect() {
    let sim = Sim::new(1);
    let (a, b) = (sim.node(Model::default()), sim.node(Model::default()));
    let (a_events, b_events) = (a.events().unwrap(), b.events().unwrap());
    let base = Settings::default();
    for other in [
        Settings { slots: 4, ..base },
        Settings { slot_bytes: 4096, ..base },
        Settings { notification: Notification::Immediate, ..base },
    ] {
        let sender = SenderSetup::new(&a, &a_events, base).unwrap();
        let receiver = ReceiverSetup::new(&b, &b_events, other).unwrap();
        let hello = receiver.hello();
        assert!(matches!(sender.connect(&hello).err(), Some(Error::Mismatch { .. })));
    }
    for bad in [
        Settings { slots: 0, ..base },
        Settings { slots: 5000, ..base },
        Settings { slot_bytes: 100, ..base },
        Settings { slot_bytes: 0, ..base },
    ] {
        let refused = SenderSetup::new(&a, &a_events, bad);
        assert!(matches!(refused.err(), Some(Error::Setting { .. })), "{bad:?}");
    }
}

/// Receives until there is an error, within virtual time.
fn receiver_error(mill: &mut Mill) -> Error {
    for _ in 0..100 {
        match mill.receiver.receive(&mut mill.events[1], Duration::from_millis(1)) {
            Ok(_) => mill.sim.advance(Duration::from_millis(100)),
            Err(error) => return error,
        }
    }
    panic!("the receiver did not notice in ten seconds");
}

fn sender_error(mill: &mut Mill) -> Error {
    for _ in 0..100 {
        match mill.sender.acquire(&mut mill.events[0], Duration::from_millis(1)) {
            Ok(slot) => slot.send(8, 0).unwrap(),
            Err(Error::TimedOut { .. }) => mill.sim.advance(Duration::from_millis(100)),
            Err(error) => return error,
        }
    }
    panic!("the sender did not notice in ten seconds");
}

#[test]
fn a_stopped_sender_is_an_error_at_the_receiver() {
    let mut mill = Mill::new(1, Model::default(), Settings::default());
    mill.sender.try_acquire().unwrap().unwrap().send(8, 0).unwrap();
    mill.sim.advance(Duration::from_millis(1));
    let stopped = mill.nodes[0].clone();
    mill.sim.stop(&stopped);
    // What had arrived is still delivered.
    assert!(matches!(mill.receiver.try_receive(), Ok(Received::Message(_))));
    assert!(matches!(receiver_error(&mut mill), Error::PeerLost { .. }));
}

#[test]
fn a_stopped_receiver_is_an_error_at_the_sender() {
    let mut mill = Mill::new(1, Model::default(), Settings::default());
    let stopped = mill.nodes[1].clone();
    mill.sim.stop(&stopped);
    assert!(matches!(sender_error(&mut mill), Error::PeerLost { .. }));
}

#[test]
fn a_sender_that_stops_while_its_receiver_sleeps_is_noticed() {
    let mut mill = Mill::new(1, Model::default(), Settings::default());
    for _ in 0..100 {
        if mill.receiver.park().unwrap() {
            break;
        }
        mill.sim.step();
    }
    let stopped = mill.nodes[0].clone();
    mill.sim.stop(&stopped);
    assert!(matches!(receiver_error(&mut mill), Error::PeerLost { .. }));
}

#[test]
fn a_short_cut_of_the_link_is_survived() {
    let mut mill = Mill::new(1, Model::default(), Settings::default());
    let nodes = mill.nodes.clone();
    mill.sim.cut(&nodes[0], &nodes[1]);
    let mut slot = mill.sender.try_acquire().unwrap().unwrap();
    slot.payload()[..4].copy_from_slice(b"meal");
    slot.send(4, 9).unwrap();
    mill.sim.advance(Duration::from_millis(300));
    assert!(matches!(mill.receiver.try_receive(), Ok(Received::Empty)));
    mill.sim.mend(&nodes[0], &nodes[1]);
    mill.sim.advance(Duration::from_millis(10));
    match mill.receiver.try_receive().unwrap() {
        Received::Message(message) => assert_eq!((&*message, message.tag()), (&b"meal"[..], 9)),
        _ => panic!("the message was lost"),
    };
}

#[test]
fn too_long_a_message_is_refused() {
    let mut mill = Mill::new(1, Model::default(), Settings::default());
    let bytes = mill.sender.payload_bytes() + 1;
    let slot = mill.sender.try_acquire().unwrap().unwrap();
    assert!(matches!(slot.send(bytes, 0), Err(Error::TooLong { .. })));
}
