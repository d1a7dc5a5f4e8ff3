//! Peers that write nonsense: an error with a type, and no panic.

mod common;

use common::{Chance, MESSAGE_BYTES, settings, while_away};
use millstream_fabric::setup::Hello;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_fabric::{
    Access, Completion, CompletionQueue, Fabric, Operation, QueuePair, QueueSizes, Receive, Region,
    RemoteRegion, Source, Timing, WorkRequest,
};
use millstream_flow::shuffle::{
    Design, Error, Received, ReceiverSetup, Result, SenderSetup, State, Transport,
};

const DEPTH: u32 = 4;

/// A peer without an endpoint: a connection, memory, and what it may write to.
struct Stranger {
    pair: <SimDevice as Fabric>::QueuePair,
    queue: <SimDevice as Fabric>::CompletionQueue,
    memory: Region,
    targets: Vec<RemoteRegion>,
}

impl Stranger {
    fn new(device: &SimDevice) -> Stranger {
        let queue = device.completion_queue(1000, None).unwrap();
        let sizes = QueueSizes { send: 400, receive: 400 };
        let mut pair = device.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
        let memory = device.allocate(1 << 16, Access::REMOTE_ALL).unwrap();
        let receive = Receive { id: 0, buffer: None };
        pair.post_receive(&vec![receive; 300]).unwrap();
        Stranger { pair, queue, memory, targets: Vec::new() }
    }

    /// What an honest endpoint said, with this connection and memory in place of its own.
    fn hello(&self, honest: &Hello) -> Hello {
        let RemoteRegion { address, key, .. } = self.memory.remote();
        let own = |region: &RemoteRegion| RemoteRegion { address, key, bytes: region.bytes };
        Hello {
            endpoint: self.pair.endpoint(),
            regions: honest.regions.iter().map(own).collect(),
            parameters: honest.parameters.clone(),
        }
    }

    fn connect(&mut self, hello: &Hello) {
        self.pair.connect(&hello.endpoint).unwrap();
        self.targets.clone_from(&hello.regions);
    }

    /// Writes or sends something that is nearly right, or not at all.
    fn act(&mut self, chance: &mut Chance) {
        let mut bytes = [0; MESSAGE_BYTES];
        for byte in &mut bytes {
            *byte = chance.below(256) as u8;
        }
        for word in bytes.chunks_mut(8) {
            // An entry of the first laps or a seal (see `wire`): lap, slot, length, nearly right.
            let small = |chance: &mut Chance, end: usize| chance.below(end) as u64;
            let lap = [1, 2, 0x3ff][chance.below(3)];
            let entry = lap << 54 | small(chance, 8) << 32 | small(chance, 2 * MESSAGE_BYTES);
            match chance.below(3) {
                0 => {}
                1 => word.copy_from_slice(&entry.to_le_bytes()),
                // A credit, a header.
                _ => word.copy_from_slice(&small(chance, 1 << 34).to_le_bytes()),
            }
        }
        let target = self.targets[chance.below(self.targets.len())];
        let words = target.bytes as usize / 8;
        let length = 8 * (1 + chance.below(words.min(MESSAGE_BYTES / 8)));
        let at = 8 * chance.below(words - length / 8 + 1) as u64;
        let source = Source::Inline(&bytes[..length]);
        let to = target.at(at, length as u64).unwrap();
        let slot = chance.below(2 * DEPTH as usize) as u32 | (chance.below(2) as u32) << 31;
        // One that finds no receive holds up all that follow, so these are rare.
        let request = match chance.below(60) {
            0 => WorkRequest::new(Operation::Send { source, immediate: None }),
            1 => WorkRequest::write_immediate(source, to, slot),
            _ => WorkRequest::write(source, to),
        };
        drop(self.pair.post(&[request.signalled(1)]));
        drop(self.queue.poll(&mut [Completion::default(); 8]));
    }
}

fn reliable() -> impl Iterator<Item = Design> {
    Design::VARIANTS
        .into_iter()
        .filter(|design| design.transport != Transport::Datagrams)
        .filter(|design| design.name().starts_with("SE"))
}

/// Only errors that say what the peer did.
fn check(design: Design, seed: u64, result: Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::Protocol { peer: 7, .. } | Error::PeerLost { peer: 7, .. }) => true,
        // An address beyond what the peer had said was its memory.
        Err(Error::Fabric(error)) => {
            let outside = matches!(*error, millstream_fabric::Error::OutOfBounds { .. });
            assert!(outside, "{design}, seed {seed}: {error}");
            true
        }
        Err(other) => panic!("{design}, seed {seed}: {other}"),
    }
}

/// Runs many seeds in every design; `reached` is an endpoint that a stranger's nonsense reaches,
/// and says whether it ended with an error. In some seeds it has to.
fn survives(reached: impl Fn(Design, &Sim, &SimDevice, u64) -> bool) {
    for design in reliable() {
        let ends_with_error = |seed: &u64| {
            let sim = Sim::new(*seed);
            reached(design, &sim, &sim.node(Model::default()), *seed)
        };
        let errors = (0..60).filter(ends_with_error).count();
        assert!(errors > 0, "{design}: {errors} errors: its nonsense is never looked at");
    }
}

#[test]
fn receivers_survive_any_sender() {
    survives(|design, sim, device, seed| {
        let settings = settings(design, DEPTH, 2);
        let honest = SenderSetup::new(device, 7, 1, settings).unwrap();
        let receiver = ReceiverSetup::new(device, 2, 1, settings).unwrap();
        let mut stranger = Stranger::new(device);
        stranger.connect(&receiver.hello(0));
        let receiver = receiver.connect(&[stranger.hello(&honest.hello(0))]).unwrap();
        let mut chance = Chance(seed);
        let mut held = Vec::new();
        (0..200).any(|_| {
            stranger.act(&mut chance);
            while_away(sim);
            let found = receiver.try_get().map(|found| {
                if let Received::Message(message) = found {
                    assert!(message.len() <= MESSAGE_BYTES);
                    held.push(message);
                }
            });
            if held.len() > 1 {
                held.remove(0);
            }
            check(design, seed, found)
        })
    });
}

#[test]
fn senders_survive_any_receiver() {
    survives(|design, sim, device, seed| {
        let settings = settings(design, DEPTH, 2);
        let honest = ReceiverSetup::new(device, 7, 1, settings).unwrap();
        let sender = SenderSetup::new(device, 1, 1, settings).unwrap();
        let mut stranger = Stranger::new(device);
        stranger.connect(&sender.hello(0));
        let sender = sender.connect(&[stranger.hello(&honest.hello(0))]).unwrap();
        let mut chance = Chance(seed);
        (0..200).any(|_| {
            stranger.act(&mut chance);
            while_away(sim);
            let found = sender.try_acquire().and_then(|buffer| match buffer {
                Some(buffer) => sender.put(buffer, 5, &[0], State::MoreData),
                None => Ok(()),
            });
            check(design, seed, found)
        })
    });
}

/// Impossible set-up messages are refused.
#[test]
fn wrong_hellos_are_refused() {
    for design in Design::VARIANTS {
        let sim = Sim::new(1);
        let device = sim.node(Model::default());
        let settings = settings(design, DEPTH, 2);
        let hello = SenderSetup::new(&device, 7, 1, settings).unwrap().hello(0);
        let refused = |hello: Hello| {
            let receiver = ReceiverSetup::new(&device, 2, 1, settings).unwrap();
            let error = receiver.connect(&[hello]).err();
            assert!(matches!(error, Some(Error::Mismatch { .. })), "{design}: {error:?}");
        };
        for at in 0..hello.parameters.len() {
            if at < 5 {
                let mut wrong = hello.clone();
                wrong.parameters[at] = u64::MAX;
                refused(wrong);
            }
        }
        let mut wrong = hello.clone();
        wrong.parameters.clear();
        refused(wrong);
        let mut wrong = hello.clone();
        wrong.regions.push(RemoteRegion::default());
        refused(wrong);
        for at in 0..hello.regions.len().min(1) {
            let mut wrong = hello.clone();
            wrong.regions[at].bytes = 8;
            refused(wrong);
            let mut wrong = hello.clone();
            wrong.regions[at].address += 8;
            refused(wrong);
        }
    }
}
