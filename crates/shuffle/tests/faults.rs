//! Faults over the simulated fabric: whoever is concerned gets a typed error soon, and nothing
//! hangs.

mod common;

use std::time::Duration;

use common::{
    Outcome, Pattern, STEPS_MAX, Shuffle, Work, receiver_id, run, sender_id, settings, simulated,
    while_away,
};
use millstream_fabric::Error as FabricError;
use millstream_fabric::sim::{Model, SimDevice};
use millstream_shuffle::{Design, Error, Received, Settings, State, Transport};

/// Within this time everybody has to know.
const SOON: Duration = Duration::from_secs(2);

/// What passes between two turns.
const MOMENT: Duration = Duration::from_micros(200);

/// A node of three disappears in the middle of a shuffle.
fn a_node_stops(design: Design, after: u64, pattern: Pattern) {
    let (sim, devices) = simulated(after, Model::default(), 3);
    let shuffle = Shuffle::new(&devices, settings(design, 2, 2), 2).unwrap();
    let mut stopped = Duration::ZERO;
    let mut idle = |step| {
        if step == after {
            sim.stop(&devices[2]);
            stopped = sim.now();
        }
        // No jump to the next event: endpoints look after their peers in between.
        sim.advance(if step < after { Duration::from_nanos(200) } else { MOMENT });
    };
    let dies = Some((2, after));
    let work = Work { seed: after, dies, ..Work::new(pattern, 1000) };
    let outcome = run(&shuffle, work, &mut idle, STEPS_MAX);
    assert!(outcome.wrong.is_empty());
    assert!(sim.now() - stopped <= SOON, "{design}: {:?}", sim.now() - stopped);
    let lost: Vec<u32> = (0..2).map(|e| sender_id(2, e)).collect();
    let lost: Vec<u32> = (0..2).map(|e| receiver_id(2, e)).chain(lost).collect();
    for node in 0..2 {
        for endpoint in 0..design.endpoints_of(2) {
            for id in [sender_id(node, endpoint), receiver_id(node, endpoint)] {
                let found = outcome.errors.iter().find(|(who, _)| *who == id);
                let Some((_, error)) = found else { panic!("{design}: {id} knows nothing") };
                // Of the node that stopped, or of one that had noticed before.
                match error {
                    Error::PeerLost { peer, .. } | Error::Silent { peer, .. } => {
                        let first = outcome.errors.first().map(|(_, error)| error.to_string());
                        let known = lost.contains(peer)
                            || outcome.errors.iter().any(|(who, _)| who == peer);
                        assert!(known, "{design}: {id} blames {peer}, after {first:?}");
                    }
                    other => panic!("{design}: {id}: {other}"),
                }
            }
        }
    }
}

#[test]
fn a_stopped_node_is_an_error_everywhere() {
    for design in Design::VARIANTS {
        for (pattern, after) in Pattern::ALL.into_iter().zip([50, 301, 1000]) {
            a_node_stops(design, after, pattern);
        }
    }
}

/// A receiver that is dropped early, and a sender that ends without a word.
#[test]
fn an_endpoint_that_is_dropped_is_an_error_at_its_peers() {
    for design in Design::VARIANTS {
        for drops_sender in [true, false] {
            let (sim, devices) = simulated(1, Model::default(), 2);
            let mut shuffle = Shuffle::new(&devices, settings(design, 2, 2), 1).unwrap();
            let dropped = match drops_sender {
                true => shuffle.senders[1].remove(0).id(),
                false => shuffle.receivers[1].remove(0).id(),
            };
            let begin = sim.now();
            let error = loop {
                // The others are alive. Receivers wait; a sender notices when it sends.
                drop(shuffle.senders[0][0].keep_alive());
                let failed = match drops_sender {
                    true => shuffle.receivers[0][0].try_get().err(),
                    false => match shuffle.senders[0][0].try_acquire() {
                        Ok(Some(buffer)) => {
                            let put = [0, 1];
                            shuffle.senders[0][0].put(buffer, 1, &put, State::MoreData).err()
                        }
                        Ok(None) => {
                            if let Ok(Received::Message(message)) =
                                shuffle.receivers[0][0].try_get()
                            {
                                drop(message);
                            }
                            None
                        }
                        Err(error) => Some(error),
                    },
                };
                if let Some(error) = failed {
                    break error;
                }
                assert!(sim.now() - begin < SOON, "{design}: nobody noticed {dropped}");
                while_away(&sim);
            };
            match &error {
                Error::PeerLost { peer, .. } | Error::Silent { peer, .. } => {
                    assert_eq!(*peer, dropped, "{design}");
                }
                other => panic!("{design}: {other}"),
            }
            // It stays so.
            let again = match drops_sender {
                true => shuffle.receivers[0][0].try_get().err(),
                false => shuffle.senders[0][0].keep_alive().err(),
            };
            assert_eq!(again.map(|error| error.to_string()), Some(error.to_string()));
        }
    }
}

/// A completion queue that is too small: the endpoint whose queue it is says so, its peers notice.
#[test]
fn a_full_completion_queue_is_an_error_everywhere() {
    for design in Design::VARIANTS {
        let (sim, devices) = simulated(1, Model::default(), 2);
        let settings = Settings { completion_entries: Some(3), ..settings(design, 8, 2) };
        let shuffle = Shuffle::new(&devices, settings, 1).unwrap();
        // Nobody polls often enough.
        let mut idle = |_| {
            for _ in 0..50 {
                if !sim.step() {
                    sim.advance(Duration::from_millis(1));
                    break;
                }
            }
        };
        let work = Work { full: true, ..Work::new(Pattern::Broadcast, 400) };
        let Outcome { errors, wrong, .. } = run(&shuffle, work, &mut idle, STEPS_MAX);
        assert!(wrong.is_empty());
        let full = |error: &Error| match error {
            Error::Fabric(error) => matches!(**error, FabricError::CompletionOverflow),
            _ => false,
        };
        assert!(errors.iter().any(|(_, error)| full(error)), "{design}: {errors:?}");
        for (id, error) in &errors {
            let expected =
                full(error) || matches!(error, Error::PeerLost { .. } | Error::Silent { .. });
            assert!(expected, "{design}: {id}: {error}");
        }
        assert_eq!(errors.len(), 4, "{design}: {errors:?}");
    }
}

/// One sender and one receiver of datagrams, the other endpoints idle.
fn datagrams(
    model: Model,
    sequences: bool,
) -> (millstream_fabric::sim::Sim, Vec<SimDevice>, Shuffle<SimDevice>) {
    let (sim, devices) = simulated(9, model, 2);
    let design = "SESQ/SR".parse().unwrap();
    let settings = Settings { sequences, ..settings(design, 4, 2) };
    let shuffle = Shuffle::new(&devices, settings, 1).unwrap();
    (sim, devices, shuffle)
}

/// Gets until the end or an error.
fn get_all(
    shuffle: &Shuffle<SimDevice>,
    sim: &millstream_fabric::sim::Sim,
) -> Result<usize, Error> {
    let mut got = 0;
    for _ in 0..1_000_000 {
        match shuffle.receivers[1][0].try_get()? {
            Received::Message(_) => got += 1,
            Received::End => return Ok(got),
            Received::Empty => while_away(sim),
        }
        for sender in shuffle.senders.iter().flatten() {
            drop(sender.keep_alive());
        }
    }
    panic!("it hangs");
}

fn put(shuffle: &Shuffle<SimDevice>, bytes: usize, state: State) {
    let sender = &shuffle.senders[0][0];
    let buffer = sender.try_acquire().unwrap().unwrap();
    sender.put(buffer, bytes, &[1], state).unwrap();
}

/// Puts two messages, of which the second is lost.
fn put_two_and_lose_one(
    shuffle: &Shuffle<SimDevice>,
    sim: &millstream_fabric::sim::Sim,
    devices: &[SimDevice],
) {
    put(shuffle, 8, State::MoreData);
    sim.advance(Duration::from_millis(1));
    sim.cut(&devices[0], &devices[1]);
    put(shuffle, 8, State::MoreData);
    sim.advance(Duration::from_millis(1));
    sim.mend(&devices[0], &devices[1]);
}

/// The last message, on its way while nothing gets through.
#[test]
fn a_lost_depleted_is_an_error() {
    let (sim, devices, shuffle) = datagrams(Model::default(), false);
    put(&shuffle, 8, State::MoreData);
    sim.advance(Duration::from_millis(1));
    assert!(shuffle.senders[1][0].try_finish().is_ok());
    sim.cut(&devices[0], &devices[1]);
    put(&shuffle, 0, State::Depleted);
    sim.advance(Duration::from_millis(1));
    sim.mend(&devices[0], &devices[1]);
    let begin = sim.now();
    let error = get_all(&shuffle, &sim).unwrap_err();
    assert!(matches!(error, Error::Silent { peer: 100, .. }), "{error}");
    assert!(sim.now() - begin < SOON, "{:?}", sim.now() - begin);
}

/// Credit that is lost comes again.
#[test]
fn lost_credit_is_no_error() {
    let (sim, devices, shuffle) = datagrams(Model::default(), false);
    let (sender, receiver) = (&shuffle.senders[0][0], &shuffle.receivers[1][0]);
    for _ in 0..4 {
        put(&shuffle, 8, State::MoreData);
    }
    sim.advance(Duration::from_millis(1));
    let before = receiver.counters().credits;
    sim.cut(&devices[0], &devices[1]);
    for _ in 0..4 {
        assert!(matches!(receiver.try_get(), Ok(Received::Message(_))));
    }
    receiver.keep_alive().unwrap();
    assert_eq!(receiver.counters().credits, before + 2);
    sim.advance(Duration::from_millis(1));
    sim.mend(&devices[0], &devices[1]);
    put(&shuffle, 8, State::MoreData);
    assert!(!sender.try_flush().unwrap(), "it does not know of its credit");
    for _ in 0..100 {
        drop(shuffle.senders[1][0].keep_alive());
        match receiver.try_get().unwrap() {
            Received::Message(message) => return assert_eq!(message.len(), 8),
            _ => sim.advance(Duration::from_millis(5)),
        }
        sender.keep_alive().unwrap();
    }
    panic!("no credit came");
}

/// A message in the middle; the end says how many there were.
#[test]
fn a_lost_message_is_an_error_at_the_end() {
    let (sim, devices, shuffle) = datagrams(Model::default(), false);
    put_two_and_lose_one(&shuffle, &sim, &devices);
    put(&shuffle, 8, State::Depleted);
    assert!(shuffle.senders[1][0].try_finish().is_ok());
    let begin = sim.now();
    let error = get_all(&shuffle, &sim).unwrap_err();
    assert!(matches!(error, Error::Lost { source: 100, sent: 3, received: 2 }), "{error}");
    assert!(sim.now() - begin < SOON, "{:?}", sim.now() - begin);
}

/// With sequence numbers a loss is known as soon as much has come behind it.
#[test]
fn sequence_numbers_tell_of_a_loss_before_the_end() {
    let (sim, devices, shuffle) = datagrams(Model::default(), true);
    put_two_and_lose_one(&shuffle, &sim, &devices);
    let receiver = &shuffle.receivers[1][0];
    for number in 0..1000 {
        if let Ok(Some(buffer)) = shuffle.senders[0][0].try_acquire() {
            shuffle.senders[0][0].put(buffer, 8, &[1], State::MoreData).unwrap();
        }
        match receiver.try_get() {
            Ok(_) => while_away(&sim),
            Err(Error::Missing { source, number: missing }) => {
                assert_eq!((source, missing), (100, 1));
                assert!(number > 60, "that might be disorder");
                return;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("nobody noticed");
}

/// A loss and a repetition in one stream: counts alone cannot tell (paper, section 5.3), sequence
/// numbers do.
#[test]
fn only_sequence_numbers_tell_of_a_loss_with_a_repetition() {
    let model = Model { datagram_loss: 0.03, datagram_repeat: 0.05, ..Model::default() };
    let mut ends = [[0, 0], [0, 0]];
    for seed in 0..80 {
        for sequences in [false, true] {
            let (sim, devices) = simulated(seed, model, 2);
            let design = Design::ALL[3];
            assert_eq!(design.transport, Transport::Datagrams);
            // More receives than messages, so that a repetition takes nobody's.
            let settings = Settings { sequences, ..settings(design, 16, 1) };
            let shuffle = Shuffle::new(&devices, settings, 1).unwrap();
            let work = Work { seed, ..Work::new(Pattern::Broadcast, 12) };
            let outcome = run(&shuffle, work, &mut |_| while_away(&sim), STEPS_MAX);
            let ended = outcome.errors.len() < 4;
            let counts = &mut ends[usize::from(sequences)];
            counts[0] += u32::from(ended && outcome.wrong.is_empty());
            counts[1] += u32::from(!outcome.wrong.is_empty());
            for (_, error) in &outcome.errors {
                let loss = matches!(error, Error::Lost { .. } | Error::Silent { .. });
                let repetition = matches!(error, Error::Repeated { .. }) && !sequences;
                assert!(loss || repetition, "{error}");
            }
        }
    }
    let [[good, deceived], [good_with, deceived_with]] = ends;
    assert!(deceived > 0, "no seed shows what counts cannot tell");
    assert_eq!(deceived_with, 0);
    assert!(good > 0 && good_with > 0, "{ends:?}");
}

/// Without losses and repetitions any disorder is no error, and `Depleted` waits for the rest.
#[test]
fn disorder_is_no_error() {
    let model = Model { datagram_delay: 0.7, ..Model::default() };
    for seed in 0..50 {
        for design in [Design::ALL[2], Design::ALL[3]] {
            let (sim, devices) = simulated(seed, model, 2);
            let shuffle = Shuffle::new(&devices, settings(design, 8, 2), 1).unwrap();
            let work = Work { seed, ..Work::new(Pattern::Broadcast, 30) };
            let outcome = run(&shuffle, work, &mut |_| while_away(&sim), STEPS_MAX);
            assert!(outcome.errors.is_empty() && outcome.wrong.is_empty(), "{outcome:?}");
        }
    }
}

/// A sender that has nothing to send for long is not lost, as long as it is called.
#[test]
fn a_quiet_sender_is_not_lost() {
    for design in Design::VARIANTS {
        let (sim, devices) = simulated(1, Model::default(), 2);
        let shuffle = Shuffle::new(&devices, settings(design, 2, 2), 1).unwrap();
        for _ in 0..100 {
            for sender in shuffle.senders.iter().flatten() {
                sender.keep_alive().unwrap();
            }
            for receiver in shuffle.receivers.iter().flatten() {
                for _ in 0..40 {
                    assert!(matches!(receiver.try_get(), Ok(Received::Empty)), "{design}");
                }
            }
            sim.advance(Duration::from_millis(50));
        }
        let (sent, received) = shuffle.counters();
        // Somebody has asked, one way or the other.
        assert!(sent.keep_alives + received.probes > 0, "{design}");
        assert_eq!((sent.messages, received.messages), (0, 0), "{design}");
        let work = Work::new(Pattern::Repartition, 5);
        let outcome = run(&shuffle, work, &mut |_| while_away(&sim), STEPS_MAX);
        assert!(outcome.errors.is_empty() && outcome.wrong.is_empty(), "{design} {outcome:?}");
    }
}
