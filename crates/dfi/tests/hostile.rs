//! Peers that hold the job's token and write nonsense: typed errors, and no panic.

use std::time::Duration;

use crate::common::{Chance, Row, simulated};
use millstream_dfi::{
    Bandwidth, Consumed, End, Error, Flow, Latency, LocalRegistry, Optimise, Registry, Role,
    Source, SourceSetup, Target, TargetSetup, Thread,
};
use millstream_fabric::setup::Hello;
use millstream_fabric::sim::{Model, Sim, SimDevice, SimPair, SimQueue};
use millstream_fabric::{
    Access, Completion, CompletionQueue, Fabric, Operation, QueuePair, QueueSizes, Region,
    RemoteRegion, Source as Bytes, Timing, WorkRequest,
};
use millstream_flow::channel::footer::Footer;

const NOW: Duration = Duration::ZERO;
const HERE: Thread = Thread { node: 0, id: 0 };
const THERE: Thread = Thread { node: 1, id: 0 };
const SEGMENT: usize = 96;
const STRIDE: u64 = SEGMENT as u64 + 16;
const SEGMENTS: usize = 4;

/// The hostile end: a bare queue pair, and memory of its own that the peer may read and write.
struct Hostile {
    sim: Sim,
    pair: SimPair,
    queue: SimQueue,
    memory: Region,
    peer: Hello,
}

/// The hostile end's memory: words, then a ring.
const WORDS_BYTES: usize = 1024;

impl Hostile {
    /// Takes the part of `role` in a flow whose other end has joined.
    fn join(
        (sim, device): (&Sim, &SimDevice),
        registry: &LocalRegistry,
        role: Role,
        flow: &Flow,
    ) -> Hostile {
        let queue = device.completion_queue(4096, None).unwrap();
        let sizes = QueueSizes { send: 1024, receive: 8 };
        let mut pair = device.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
        let memory = device.allocate(1 << 16, Access::REMOTE_ALL).unwrap();
        let RemoteRegion { address, key, .. } = memory.remote();
        let part = |at: u64, bytes: u64| RemoteRegion { address: address + at, bytes, key };
        let regions = match role {
            Role::Source => vec![part(0, 256)],
            Role::Target => vec![part(0, 256), part(512, 64), part(WORDS_BYTES as u64, 1 << 14)],
        };
        // The declaration's fingerprint is in every set-up message: take it from one that is thrown
        // away.
        let throwaway = LocalRegistry::new();
        publish(&throwaway, flow);
        let _source = SourceSetup::join(device, &throwaway, "f", HERE, NOW).unwrap();
        let _target = TargetSetup::join(device, &throwaway, "f", THERE, NOW).unwrap();
        let found = throwaway.peers("f", End { role: Role::Source, index: 0 }, NOW).unwrap();
        let fingerprint = found[0].parameters[3];
        let parameters = vec![role as u64, 0, 0, fingerprint];
        let hello = Hello { endpoint: pair.endpoint(), regions, parameters };
        let end = End { role, index: 0 };
        registry.join("f", end, vec![hello]).unwrap();
        let peer = registry.peers("f", end, NOW).unwrap().remove(0);
        pair.connect(&peer.endpoint).unwrap();
        Hostile { sim: sim.clone(), pair, queue, memory, peer }
    }

    /// Writes a word into one of the peer's regions.
    fn write(&mut self, region: usize, at: u64, word: u64) {
        let word = word.to_ne_bytes();
        let to = self.peer.regions[region].at(at, 8).unwrap();
        let write = WorkRequest::new(Operation::Write {
            source: Bytes::Inline(&word),
            to,
            immediate: None,
        });
        // A peer that has had enough ends the connection.
        let _ = self.pair.post(&[write.signalled(1)]);
        self.sim.advance(Duration::from_micros(20));
        while self.queue.poll(&mut [Completion::default(); 16]).unwrap() > 0 {}
    }
}

fn publish(registry: &LocalRegistry, flow: &Flow) {
    flow.clone().publish(registry).unwrap();
}

/// A flow from one end here to one end there.
fn between(flow: Flow, goal: Optimise) -> Flow {
    flow.sources([HERE]).targets([THERE]).schema(Row::schema()).optimise(goal)
}

fn shuffle(goal: Optimise) -> Flow {
    between(Flow::shuffle("f"), goal)
}

fn bandwidth() -> Optimise {
    Bandwidth { segment: SEGMENT, segments: SEGMENTS, source_segments: 2 }.into()
}

/// A target whose source is hostile.
fn hostile_source(seed: u64, flow: &Flow) -> (Target<SimDevice>, Hostile) {
    let (sim, devices) = simulated(seed, Model::default(), 2);
    let registry = LocalRegistry::new();
    publish(&registry, flow);
    let target = TargetSetup::join(&devices[1], &registry, "f", THERE, NOW).unwrap();
    let hostile = Hostile::join((&sim, &devices[0]), &registry, Role::Source, flow);
    (target.connect(&registry, NOW).unwrap(), hostile)
}

/// A source whose target is hostile.
fn hostile_target(seed: u64, flow: &Flow) -> (Source<SimDevice>, Hostile) {
    let (sim, devices) = simulated(seed, Model::default(), 2);
    let registry = LocalRegistry::new();
    publish(&registry, flow);
    let source = SourceSetup::join(&devices[0], &registry, "f", HERE, NOW).unwrap();
    let hostile = Hostile::join((&sim, &devices[1]), &registry, Role::Target, flow);
    (source.connect(&registry, NOW).unwrap(), hostile)
}

fn consume(target: &mut Target<SimDevice>) -> Result<usize, Error> {
    Ok(match target.try_consume()? {
        Consumed::Batch(batch) => batch.len(),
        _ => 0,
    })
}

/// The error of a target whose source writes this word as the first footer.
fn error_of_footer(word: u64) -> Option<Error> {
    let (mut target, mut hostile) = hostile_source(1, &shuffle(bandwidth()));
    hostile.write(2, SEGMENT as u64 + 8, word);
    (0..100).find_map(|_| consume(&mut target).err())
}

#[test]
fn impossible_footers_are_protocol_errors() {
    for word in [
        Footer::full(SEGMENT as u32 + 32).encode(1),
        // No tuple, and part of a tuple.
        Footer::full(0).encode(1),
        Footer::full(31).encode(1),
        // Free, which only the target says; both flags; a flag that does not exist.
        Footer::FREE.encode(1),
        Footer::END.encode(1) | Footer::FREE.encode(0),
        Footer::full(32).encode(1) | 1 << 40,
    ] {
        let error = error_of_footer(word);
        let Some(Error::Protocol { peer, found, .. }) = error else {
            panic!("{word:#x}: {error:?}")
        };
        assert_eq!((peer.role, found), (Role::Source, word));
    }
    // Words of another lap are not there yet.
    for word in [0, Footer::full(32).encode(2), Footer::full(32).encode(255)] {
        assert!(error_of_footer(word).is_none(), "{word:#x}");
    }
}

/// The error of an ordered flow's target whose source sends segments with these numbers, and ends.
fn error_of_numbers(numbers: &[u64]) -> Option<Error> {
    let flow = between(Flow::replicate("f").ordered(), bandwidth());
    let (mut target, mut hostile) = hostile_source(1, &flow);
    for (segment, number) in numbers.iter().map(Some).chain([None]).enumerate() {
        let at = (STRIDE + 16) * segment as u64 + SEGMENT as u64;
        hostile.write(2, at, number.copied().unwrap_or(0));
        let footer = if number.is_some() { Footer::full(32) } else { Footer::END };
        hostile.write(2, at + 24, footer.encode(1));
    }
    (0..100).find_map(|_| {
        hostile.sim.advance(Duration::from_micros(20));
        consume(&mut target).err()
    })
}

#[test]
fn impossible_numbers_are_protocol_errors() {
    assert!(error_of_numbers(&[0, 1, 2]).is_none());
    for numbers in [
        // Drawn twice, falling, beyond what can be under way, left out.
        [0, 0],
        [1, 0],
        [0, 7],
        [0, u64::MAX],
        [0, 2],
    ] {
        let error = error_of_numbers(&numbers);
        assert!(matches!(error, Some(Error::Protocol { .. })), "{numbers:?}: {error:?}");
    }
}

#[test]
fn a_source_that_writes_anything_anywhere() {
    for seed in 0..2000 {
        let mut chance = Chance(seed);
        let goal = match seed % 2 {
            0 => bandwidth(),
            _ => Latency { segments: SEGMENTS }.into(),
        };
        let (mut target, mut hostile) = hostile_source(seed, &shuffle(goal));
        for _ in 0..30 {
            let region = chance.below(3);
            let words = hostile.peer.regions[region].bytes / 8;
            let at = match (region, chance.below(2)) {
                // Footers of the ring, more often than not.
                (2, 0) if seed % 2 == 0 => {
                    STRIDE * chance.below(SEGMENTS) as u64 + SEGMENT as u64 + 8
                }
                _ => 8 * chance.below(words as usize) as u64,
            };
            let lap = [0, 1, 1, 2, 255][chance.below(5)];
            let word = match chance.below(3) {
                0 => Footer::full(32 * chance.below(5) as u32).encode(lap),
                1 => (chance.below(usize::MAX) as u64) | u64::from(lap) << 56,
                _ => Footer::END.encode(lap),
            };
            hostile.write(region, at, word);
            match consume(&mut target) {
                Ok(tuples) => assert!(tuples <= SEGMENT / 32),
                Err(error) => {
                    assert!(error.is_final(), "seed {seed}: {error}");
                    // The first error stays.
                    let again = consume(&mut target).unwrap_err();
                    assert_eq!(again.to_string(), error.to_string());
                    break;
                }
            }
        }
    }
}

/// Pushes until an error comes; none after so many tuples.
fn push(source: &mut Source<SimDevice>, sim: &Sim, tuples: u64) -> Option<Error> {
    for number in 0..tuples {
        if let Err(error) = source.try_push(&Row::new(0, number)) {
            return Some(error);
        }
        sim.advance(Duration::from_micros(20));
    }
    None
}

#[test]
fn a_target_with_impossible_footers_or_counts() {
    // A ring that the target never prepared, and words of another lap.
    for (word, is_error) in [
        (0, false),
        (Footer::FREE.encode(0), false),
        (Footer::FREE.encode(1), true),
        (u64::MAX, true),
    ] {
        let (mut source, hostile) = hostile_target(1, &shuffle(bandwidth()));
        let at = WORDS_BYTES + STRIDE as usize + SEGMENT + 8;
        hostile.memory.write(at, &word.to_ne_bytes()).unwrap();
        let error = push(&mut source, &hostile.sim, 9);
        let protocol = matches!(error, Some(Error::Protocol { .. }));
        assert!(error.is_none() || protocol, "{error:?}");
        assert_eq!(protocol, is_error, "{word:#x}");
    }
    // A count that falls, and one beyond what was sent.
    for (count, is_error) in [(0, true), (SEGMENTS as u64, false), (1 << 40, true)] {
        let (mut source, hostile) =
            hostile_target(1, &shuffle(Latency { segments: SEGMENTS }.into()));
        hostile.memory.write(512, &u64::to_ne_bytes(count)).unwrap();
        let error = push(&mut source, &hostile.sim, 9);
        assert_eq!(matches!(error, Some(Error::Protocol { .. })), is_error, "{count}: {error:?}");
    }
}

#[test]
fn a_target_that_writes_anything_anywhere() {
    for seed in 0..1000 {
        let mut chance = Chance(seed);
        let goal = match seed % 2 {
            0 => bandwidth(),
            _ => Latency { segments: SEGMENTS }.into(),
        };
        let (mut source, mut hostile) = hostile_target(seed, &shuffle(goal));
        for _ in 0..20 {
            let word = [0, 1, 2, 1 << 63, u64::MAX, chance.below(usize::MAX) as u64];
            let word = word[chance.below(6)];
            match chance.below(2) {
                0 => hostile.write(0, 8 * chance.below(32) as u64, word),
                _ => {
                    let at = 8 * chance.below(1 << 8);
                    hostile.memory.write(at, &word.to_ne_bytes()).unwrap();
                }
            }
            if let Some(error) = push(&mut source, &hostile.sim, 3) {
                assert!(error.is_final(), "seed {seed}: {error}");
                break;
            }
        }
    }
}
