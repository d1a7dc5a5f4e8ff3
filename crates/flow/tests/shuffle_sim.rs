//! Tests of endpoints over the simulated fabric: many seeds, counts, and faults.

mod common;

use std::time::Duration;

use common::{
    Chance, MESSAGE_BYTES, Pattern, STEPS_MAX, Shuffle, Work, run, run_well, settings, simulated,
    while_away,
};
use millstream_fabric::sim::{Model, Placement, Sim, SimDevice};
use millstream_flow::shuffle::{
    Counters, Design, Error, Received, Receiver, Sender, Settings, State, Transport,
};

fn design(name: &str) -> Design {
    name.parse().unwrap()
}

/// A design, a pattern, depths, a reader's pace and a link's model, all from the seed.
fn any_run(seed: u64) {
    let mut chance = Chance(seed);
    let design = Design::VARIANTS[seed as usize % Design::VARIANTS.len()];
    let faulty = design.transport == Transport::Datagrams && chance.below(3) == 0;
    let rate = |wanted: bool, chance: &mut Chance| {
        if wanted { chance.below(8) as f64 / 100.0 } else { 0.0 }
    };
    let model = Model {
        latency: Duration::from_nanos(100 + chance.below(20_000) as u64),
        placement: [Placement::Whole, Placement::Ordered][chance.below(2)],
        datagram_delay: 0.4,
        datagram_loss: rate(faulty, &mut chance),
        datagram_repeat: rate(faulty, &mut chance),
        ..Model::default()
    };
    let (sim, devices) = simulated(seed, model, 2 + chance.below(2));
    let depth = 1 + chance.below(4) as u32;
    let credit_every = 1 + chance.below(depth as usize) as u32;
    let settings = Settings { sequences: faulty, ..settings(design, depth, credit_every) };
    let shuffle = Shuffle::new(&devices, settings, 1 + chance.below(2)).unwrap();
    let work = Work {
        slow: 1 + chance.below(30),
        hold: chance.below((depth - credit_every) as usize + 1),
        seed,
        ..Work::new(Pattern::ALL[chance.below(3)], 12)
    };
    let mut idle = |_| while_away(&sim);
    if !faulty {
        run_well(&shuffle, work, &mut idle);
        return;
    }
    let outcome = run(&shuffle, work, &mut idle, STEPS_MAX);
    // Whoever comes to its end has everything once; the others have a reason.
    assert!(outcome.wrong.is_empty(), "seed {seed}: {:?}", outcome.wrong);
    for (_, error) in &outcome.errors {
        let expected = matches!(error, Error::Lost { .. } | Error::Missing { .. })
            // Or because of somebody else's.
            || matches!(error, Error::PeerLost { .. } | Error::Silent { .. });
        assert!(expected, "seed {seed}: {error}");
    }
}

#[test]
fn sim_a_thousand_seeds() {
    (0..1000).for_each(any_run);
}

/// One sender and one receiver on two nodes, the other endpoints idle.
struct Pair {
    sim: Sim,
    shuffle: Shuffle<SimDevice>,
}

impl Pair {
    fn new(settings: Settings) -> Pair {
        let (sim, devices) = simulated(3, Model::default(), 2);
        let shuffle = Shuffle::new(&devices, settings, 1).unwrap();
        Pair { sim, shuffle }
    }

    fn sender(&self) -> &Sender<SimDevice> {
        &self.shuffle.senders[0][0]
    }

    fn receiver(&self) -> &Receiver<SimDevice> {
        &self.shuffle.receivers[1][0]
    }

    /// Puts a message, if there is a buffer.
    fn put(&self, to: &[usize]) -> bool {
        let Some(buffer) = self.sender().try_acquire().unwrap() else { return false };
        self.sender().put(buffer, MESSAGE_BYTES, to, State::MoreData).unwrap();
        true
    }

    /// Lets everything happen that is under way.
    fn settle(&self) {
        for _ in 0..200 {
            self.sender().keep_alive().unwrap();
            self.receiver().keep_alive().unwrap();
            // Without jumps to times when connections look after their peers.
            self.sim.advance(Duration::from_micros(1));
        }
    }

    /// Sends so many messages from the one to the other, each released at once.
    fn send(&self, messages: usize) -> (Counters, Counters) {
        let (mut put, mut got) = (0, 0);
        for turn in 0.. {
            if got == messages {
                break;
            }
            let counters = || (self.sender().counters(), self.receiver().counters());
            assert!(turn < 1_000_000, "{put} put, {got} got: {:?}", counters());
            put += usize::from(put < messages && self.put(&[1]));
            if let Received::Message(message) = self.receiver().try_get().unwrap() {
                message.release().unwrap();
                got += 1;
            }
            // What was put without credit is sent by any later call.
            self.settle_once();
        }
        self.settle();
        (self.sender().counters(), self.receiver().counters())
    }
}

/// What each design posts for a transfer (paper, sections 5.2 to 5.5).
#[test]
fn operations_per_transfer_are_those_of_the_paper() {
    const MESSAGES: u64 = 120;
    // Of 2 transfers with credit after 2: writes and of them with immediate values, sends, reads,
    // datagrams.
    for (name, expected) in [
        // A send each, and a credit.
        ("MEMQ/SR", (1, 0, 2, 0, 0)),
        ("SEMQ/SR", (1, 0, 2, 0, 0)),
        ("MESQ/SR", (0, 0, 0, 0, 3)),
        ("SESQ/SR", (0, 0, 0, 0, 3)),
        // Valid entry, read, free entry.
        ("MEMQ/RD", (4, 0, 0, 2, 0)),
        ("SEMQ/RD", (4, 0, 0, 2, 0)),
        // Data with an immediate value, free entry, half a credit: 2.5 each.
        ("MEMQ/WR", (5, 2, 0, 0, 0)),
        ("SEMQ/WR", (5, 2, 0, 0, 0)),
        // Data, valid entry, free entry: 3 each.
        ("SEMQ/WR:messages", (6, 0, 0, 0, 0)),
        // Data, free entry: 2 each.
        ("SEMQ/WR:buffers", (4, 0, 0, 0, 0)),
    ] {
        let pair = Pair::new(settings(design(name), 4, 2));
        let (sent, received) = pair.send(MESSAGES as usize);
        let mut both = sent;
        both += received;
        let found = (both.writes, both.immediates, both.sends, both.reads, both.datagrams);
        let (writes, immediates, sends, reads, datagrams) = expected;
        let each = MESSAGES / 2;
        let expected =
            (each * writes, each * immediates, each * sends, each * reads, each * datagrams);
        assert_eq!(found, expected, "{name}");
        let bytes = MESSAGES * MESSAGE_BYTES as u64;
        assert_eq!((sent.messages, sent.bytes), (MESSAGES, bytes), "{name}");
        assert_eq!((received.messages, received.bytes), (MESSAGES, bytes), "{name}");
    }
}

/// Credit after every f messages: so many writes fewer.
#[test]
fn credit_is_written_as_seldom_as_asked() {
    for (every, credits) in [(1, 120), (2, 60), (4, 30), (8, 15)] {
        for name in ["SEMQ/SR", "SESQ/SR", "SEMQ/WR"] {
            let pair = Pair::new(settings(design(name), 8, every));
            let (_, received) = pair.send(120);
            assert_eq!(received.credits, credits, "{name}, f = {every}");
        }
    }
}

/// A message without payload is a message, in every design.
#[test]
fn an_empty_message_is_delivered() {
    for design in Design::VARIANTS {
        let pair = Pair::new(settings(design, 4, 2));
        for _ in 0..3 {
            let buffer = pair.sender().try_acquire().unwrap().unwrap();
            pair.sender().put(buffer, 0, &[1], State::MoreData).unwrap();
        }
        for _ in 0..3 {
            let message = pair.get();
            assert_eq!((message.len(), message.state()), (0, State::MoreData), "{design}");
        }
        let received = pair.receiver().counters();
        assert_eq!((received.messages, received.bytes), (3, 0), "{design}");
    }
}

/// With fewer buffers than f, credit would never be written: it is refused, not tried.
#[test]
fn credit_that_would_never_come_is_refused() {
    for design in Design::VARIANTS {
        let (_sim, devices) = simulated(1, Model::default(), 2);
        let refused = Shuffle::new(&devices, settings(design, 3, 4), 1).err();
        let what = refused.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(refused, Some(Error::Setting { value: Some(4), .. })), "{design}: {what}");
        assert!(what.contains("waits for ever"), "{what}");
    }
}

/// Polling buffers relies on the order in which bytes land, the other notifications do not.
#[test]
fn only_polling_buffers_needs_an_order_of_bytes() {
    let model = Model { placement: Placement::Shuffled, ..Model::default() };
    for design in Design::VARIANTS {
        let (sim, devices) = simulated(5, model, 2);
        let polls = design.name().ends_with(":buffers");
        match Shuffle::new(&devices, settings(design, 2, 2), 1) {
            Ok(shuffle) if !polls => {
                let work = Work::new(Pattern::Broadcast, 30);
                run_well(&shuffle, work, &mut |_| while_away(&sim));
            }
            Ok(_) => panic!("{design} was not refused"),
            Err(error) => assert!(polls && matches!(error, Error::Setting { .. }), "{error}"),
        }
    }
}

/// A buffer for several destinations is free when all of them are done with it.
#[test]
fn a_buffer_for_several_is_free_when_all_are_done() {
    let pair = Pair::new(settings(design("SEMQ/RD"), 1, 1));
    // One buffer for each of two peers.
    assert!(pair.put(&[0, 1]) && pair.put(&[0, 1]) && !pair.put(&[0, 1]));
    let own = &pair.shuffle.receivers[0][0];
    let mut released = 0;
    for _ in 0..500 {
        if let Received::Message(message) = own.try_get().unwrap() {
            message.release().unwrap();
            released += 1;
        }
        pair.settle_once();
    }
    // The connection has one message under way, and the other's is not taken.
    assert_eq!(released, 2);
    assert!(!pair.put(&[0, 1]), "node 1 has read nothing");
    let held = pair.get();
    pair.settle();
    assert!(!pair.put(&[0, 1]), "node 1 has released nothing");
    held.release().unwrap();
    pair.settle();
    assert!(pair.put(&[0, 1]));
    assert!(!pair.put(&[0, 1]), "the second buffer is still with node 1");
}

impl Pair {
    fn settle_once(&self) {
        self.sender().keep_alive().unwrap();
        self.sim.advance(Duration::from_micros(1));
    }

    fn get(&self) -> millstream_flow::shuffle::Delivery<'_, SimDevice> {
        for _ in 0..1000 {
            if let Received::Message(message) = self.receiver().try_get().unwrap() {
                return message;
            }
            self.settle_once();
        }
        panic!("no message came");
    }
}

/// A sender that went away would take its buffers with it: it waits until they have been read.
#[test]
fn a_sender_does_not_end_before_its_buffers_are_released() {
    let pair = Pair::new(settings(design("SEMQ/RD"), 3, 2));
    assert!(pair.put(&[1]));
    let held = pair.get();
    let own = &pair.shuffle.receivers[0][0];
    for _ in 0..400 {
        assert!(!pair.sender().try_finish().unwrap(), "one buffer is being read");
        // The end itself is released at once.
        for receiver in [own, pair.receiver()] {
            if let Received::Message(last) = receiver.try_get().unwrap() {
                assert_eq!((last.state(), last.len()), (State::Depleted, 0));
            }
        }
        pair.settle_once();
    }
    held.release().unwrap();
    pair.settle();
    assert!(pair.sender().try_finish().unwrap());
}

/// Over datagrams a sender ends when it knows that receivers have all, not when all is sent.
#[test]
fn a_sender_of_datagrams_does_not_end_before_receivers_have_all() {
    for name in ["MESQ/SR", "SESQ/SR"] {
        let pair = Pair::new(settings(design(name), 4, 2));
        assert!(pair.put(&[1]));
        for _ in 0..400 {
            assert!(!pair.sender().try_finish().unwrap(), "{name}: nobody has taken anything");
            pair.sim.advance(Duration::from_micros(1));
        }
        for receiver in &pair.shuffle.receivers {
            receiver[0].keep_alive().unwrap();
        }
        pair.sim.advance(Duration::from_millis(1));
        assert!(pair.sender().try_finish().unwrap(), "{name}: all is there");
    }
}

#[test]
fn calls_that_make_no_sense_are_errors_and_harm_nothing() {
    let pair = Pair::new(settings(design("SEMQ/SR"), 2, 2));
    let put = |bytes, to: &[usize], state| {
        let buffer = pair.sender().try_acquire().unwrap().unwrap();
        pair.sender().put(buffer, bytes, to, state)
    };
    let error = put(MESSAGE_BYTES + 1, &[0], State::MoreData).unwrap_err();
    assert!(matches!(error, Error::TooLong { bytes: 97, max: 96 }), "{error}");
    for to in [&[2][..], &[0, 1, 0]] {
        let error = put(1, to, State::MoreData).unwrap_err();
        assert!(matches!(error, Error::Destination { count: 2, .. }), "{error}");
    }
    put(1, &[0], State::Depleted).unwrap();
    let error = put(1, &[1, 0], State::MoreData).unwrap_err();
    assert!(matches!(error, Error::Ended { number: 0 }), "{error}");
    put(5, &[1], State::MoreData).unwrap();
    assert_eq!(pair.get().len(), 5);
    // No buffer was lost: two for each of two peers, of which two are on their way or back.
    pair.settle();
    let free: Vec<_> = std::iter::from_fn(|| pair.sender().try_acquire().unwrap()).collect();
    assert_eq!(free.len(), 4);
}

#[test]
fn endpoints_that_do_not_fit_are_refused() {
    use millstream_flow::shuffle::{ReceiverSetup, SenderSetup};
    let (_sim, devices) = simulated(1, Model::default(), 2);
    let ours = settings(design("SEMQ/SR"), 2, 2);
    let refused = |theirs: Settings, id: u32| {
        let sender = SenderSetup::new(&devices[0], 1, 2, ours).unwrap();
        let first = ReceiverSetup::new(&devices[1], 2, 1, ours).unwrap();
        let other = ReceiverSetup::new(&devices[1], id, 1, theirs).unwrap();
        let error = sender.connect(&[first.hello(0), other.hello(0)]).err();
        assert!(matches!(error, Some(Error::Mismatch { .. })), "{error:?}");
        error.unwrap().to_string()
    };
    let text = refused(settings(design("SEMQ/RD"), 2, 2), 3);
    assert!(text.contains("same design"), "{text}");
    let text = refused(settings(design("SEMQ/SR"), 4, 2), 3);
    assert!(text.contains("buffers for a peer: this side has 2, the peer 4"), "{text}");
    let text = refused(Settings { message_bytes: 50, ..ours }, 3);
    assert!(text.contains("bytes of a message: this side has 96, the peer 50"), "{text}");
    let text = refused(ours, 2);
    assert!(text.contains("id of its own"), "{text}");
}
