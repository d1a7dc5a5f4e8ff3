//! Faults over the simulated fabric: whoever is concerned gets a typed error soon, and nothing
//! hangs.

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{
    Outcome, Pattern, STEPS_MAX, Shuffle, Work, receiver_id, run, sender_id, settings, simulated,
    while_away,
};
use millstream_fabric::Error as FabricError;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_flow::shuffle::{Design, Error, Received, Settings, State, Transport};

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

/// A node disappears while nobody has anything to send.
#[test]
fn idle_endpoints_notice_a_stopped_node() {
    for design in Design::VARIANTS {
        let (sim, devices) = simulated(1, Model::default(), 2);
        let shuffle = Shuffle::new(&devices, settings(design, 2, 2), 1).unwrap();
        let (sender, receiver) = (&shuffle.senders[0][0], &shuffle.receivers[0][0]);
        let (mut there, mut here) = (None, None);
        sim.stop(&devices[1]);
        let begin = sim.now();
        while there.is_none() || here.is_none() {
            assert!(sim.now() - begin < SOON, "{design}: {there:?}, {here:?}");
            there = there.or(sender.keep_alive().err());
            here = here.or(receiver.keep_alive().err());
            sim.advance(MOMENT);
        }
        for error in [there.unwrap(), here.unwrap()] {
            let lost = matches!(error, Error::PeerLost { .. } | Error::Silent { .. });
            assert!(lost, "{design}: {error}");
        }
    }
}

/// Messages that a thread holds for long keep their source from saying anything, and that is no
/// reason to take it for lost when they are released.
#[test]
fn a_source_without_credit_is_not_silent() {
    for design in [Design::ALL[2], Design::ALL[3]] {
        let (sim, devices) = simulated(1, Model::default(), 1);
        let shuffle = Shuffle::new(&devices, settings(design, 2, 2), 1).unwrap();
        let (sender, receiver) = (&shuffle.senders[0][0], &shuffle.receivers[0][0]);
        let mut held = Vec::new();
        let wait = |held: &mut Vec<_>, time: Duration| {
            let begin = sim.now();
            while sim.now() - begin < time {
                if let Some(buffer) = sender.try_acquire().unwrap() {
                    sender.put(buffer, 8, &[0], State::MoreData).unwrap();
                }
                if let Received::Message(message) = receiver.try_get().unwrap() {
                    held.push(message);
                }
                sim.advance(MOMENT);
            }
        };
        wait(&mut held, Duration::from_secs(3));
        assert_eq!(held.len(), 2, "{design}");
        held.clear();
        wait(&mut held, Duration::from_secs(3));
        assert_eq!(held.len(), 2, "{design}");
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
        let mut times = vec![sim.now()];
        let mut idle = |_| {
            times.push(sim.now());
            for _ in 0..50 {
                if !sim.step() {
                    sim.advance(Duration::from_millis(1));
                    break;
                }
            }
        };
        let work = Work { full: true, ..Work::new(Pattern::Broadcast, 400) };
        let Outcome { errors, wrong, failed_at, .. } = run(&shuffle, work, &mut idle, STEPS_MAX);
        assert!(wrong.is_empty());
        // From the first endpoint that knows to the last.
        let at = failed_at.iter().map(|step| times[*step as usize]);
        let time = at.clone().max().unwrap() - at.min().unwrap();
        assert!(time <= SOON, "{design}: {time:?}");
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
fn datagrams(model: Model, sequences: bool) -> (Sim, Vec<SimDevice>, Shuffle<SimDevice>) {
    let (sim, devices) = simulated(9, model, 2);
    let design = "SESQ/SR".parse().unwrap();
    let settings = Settings { sequences, ..settings(design, 4, 2) };
    let shuffle = Shuffle::new(&devices, settings, 1).unwrap();
    (sim, devices, shuffle)
}

/// Ends all streams and takes all messages, until every endpoint has ended or failed, soon. Returns
/// how, by id.
fn end_all(shuffle: &Shuffle<SimDevice>, sim: &Sim) -> HashMap<u32, Result<(), Error>> {
    let begin = sim.now();
    let mut ends = HashMap::new();
    let senders: Vec<_> = shuffle.senders.iter().flatten().collect();
    let receivers: Vec<_> = shuffle.receivers.iter().flatten().collect();
    while ends.len() < senders.len() + receivers.len() {
        assert!(sim.now() - begin < SOON, "it hangs: {ends:?}");
        for sender in &senders {
            let end = sender.try_finish();
            if !matches!(end, Ok(false)) {
                ends.entry(sender.id()).or_insert(end.map(drop));
            }
        }
        for receiver in &receivers {
            let end = receiver.try_get().map(|found| matches!(found, Received::End));
            if !matches!(end, Ok(false)) {
                ends.entry(receiver.id()).or_insert(end.map(drop));
            }
        }
        while_away(sim);
    }
    ends
}

/// That the one endpoint has failed for this reason, and that nobody who depends on it has ended
/// in good order.
fn failed(ends: &HashMap<u32, Result<(), Error>>, at: u32, why: impl Fn(&Error) -> bool) {
    assert!(ends[&at].as_ref().is_err_and(why), "{ends:?}");
    for (id, end) in ends.iter().filter(|(id, _)| **id != at) {
        let lost = matches!(end, Err(Error::PeerLost { .. } | Error::Silent { .. }));
        assert!(lost || (end.is_ok() && *id != 100), "{id}: {ends:?}");
    }
}

fn put(shuffle: &Shuffle<SimDevice>, bytes: usize, state: State) {
    let sender = &shuffle.senders[0][0];
    let buffer = sender.try_acquire().unwrap().unwrap();
    sender.put(buffer, bytes, &[1], state).unwrap();
}

/// Puts two messages, of which the second is lost.
fn put_two_and_lose_one(shuffle: &Shuffle<SimDevice>, sim: &Sim, devices: &[SimDevice]) {
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
    sim.cut(&devices[0], &devices[1]);
    put(&shuffle, 0, State::Depleted);
    sim.advance(Duration::from_millis(1));
    sim.mend(&devices[0], &devices[1]);
    let ends = end_all(&shuffle, &sim);
    failed(&ends, 510, |error| matches!(error, Error::Silent { peer: 100, .. }));
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
    let ends = end_all(&shuffle, &sim);
    let lost = |error: &Error| matches!(error, Error::Lost { sender: 100, sent: 3, received: 2 });
    failed(&ends, 510, lost);
}

/// Without a loss everybody ends in good order.
#[test]
fn everybody_ends_if_nothing_is_lost() {
    let (sim, _, shuffle) = datagrams(Model::default(), false);
    put(&shuffle, 8, State::MoreData);
    let ends = end_all(&shuffle, &sim);
    assert!(ends.len() == 4 && ends.values().all(Result::is_ok), "{ends:?}");
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
            Err(Error::Missing { sender: source, number: missing }) => {
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
                let lost = matches!(error, Error::PeerLost { .. } | Error::Silent { .. });
                let loss = lost || matches!(error, Error::Lost { .. });
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
