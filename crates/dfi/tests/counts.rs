//! The requests that flows post, counted (thesis, sections 7.5.2 and 7.5.3), and the memory that
//! they take.

use std::time::Duration;

use crate::common::{Ends, Row, connect, declared, simulated, threads};
use millstream_dfi::{Bandwidth, Consumed, Flow, Latency, Optimise, Pipelined, Route};
use millstream_fabric::sim::{Model, Sim, SimDevice};

const TUPLE: u64 = size_of::<Row>() as u64;

/// One source and one target on two nodes.
fn pair(goal: impl Into<Optimise>) -> (Sim, Ends<SimDevice>) {
    let (sim, devices) = simulated(5, Model::default(), 2);
    let flow = Flow::shuffle("f").schema(Row::schema()).optimise(goal);
    let targets = [millstream_dfi::Thread::new(1, 0)];
    let ends = connect(&devices, flow, (&threads(1, 1, 0), &targets)).unwrap();
    (sim, ends)
}

/// Lets pass what is under way.
fn settle(sim: &Sim) {
    sim.advance(Duration::from_micros(50));
}

/// Consumes all that is there; returns how many segments.
fn drain(ends: &mut Ends<SimDevice>) -> u64 {
    let mut segments = 0;
    while let Consumed::Batch(_) = ends.targets[0].try_consume().unwrap() {
        segments += 1;
    }
    segments
}

/// Pushes so many tuples, none of which may have to wait, and consumes after each.
fn push(sim: &Sim, ends: &mut Ends<SimDevice>, tuples: u64) -> u64 {
    let mut consumed = 0;
    for number in 0..tuples {
        assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap(), "tuple {number} waits");
        settle(sim);
        consumed += drain(ends);
    }
    consumed
}

#[test]
fn a_bandwidth_segment_is_one_write_and_one_read() {
    for (segments, source_segments) in [(32, 4), (4, 4), (8, 2)] {
        let (sim, mut ends) = pair(Bandwidth { segment: 1024, segments, source_segments });
        let laps = 10 * segments as u64;
        let consumed = push(&sim, &mut ends, laps * 1024 / TUPLE);
        let counters = ends.sources[0].counters();
        assert_eq!((consumed, counters.segments, counters.partial), (laps, laps, 0));
        assert_eq!((counters.writes, counters.reads), (laps, laps), "{counters:?}");
        assert_eq!((counters.repeated_reads, counters.stalls), (0, 0));
        assert_eq!(counters.signalled_writes, laps / source_segments as u64);
        assert_eq!(counters.bytes, laps * 1024);
    }
}

#[test]
fn a_target_posts_nothing_for_a_segment() {
    // Only the end is confirmed: a source that never closes hears nothing of its target.
    let (sim, mut ends) = pair(Bandwidth { segment: 96, segments: 2, source_segments: 2 });
    assert_eq!(push(&sim, &mut ends, 300), 100);
    let counters = ends.targets[0].counters();
    assert_eq!((counters.writes, counters.reads), (0, 0));
    assert!(!ends.sources[0].try_close().unwrap());
    settle(&sim);
    while !matches!(ends.targets[0].try_consume().unwrap(), Consumed::End) {
        settle(&sim);
    }
    assert_eq!(ends.targets[0].counters().writes, 1, "the end");
}

#[test]
fn a_full_ring_repeats_reads_and_nothing_else() {
    let (sim, mut ends) = pair(Bandwidth { segment: 96, segments: 4, source_segments: 2 });
    let mut pushed = 0;
    for _ in 0..1000 {
        pushed += u64::from(ends.sources[0].try_push(&Row::new(0, pushed)).unwrap());
        sim.advance(Duration::from_micros(1));
    }
    // The target's ring and the source's ring are full.
    assert_eq!(pushed, (4 + 2) * 3);
    let full = ends.sources[0].counters();
    assert_eq!((full.segments, full.writes), (4, 4));
    // Back-offs of 1 to 16 µs and a round trip of 2 µs: of a millisecond, 55 to 330 READs.
    assert!((55..=330).contains(&full.repeated_reads), "{full:?}");
    assert_eq!(full.reads, 4 + full.repeated_reads);
    assert_eq!(drain(&mut ends), 4);
    for _ in 0..4 {
        settle(&sim);
        ends.sources[0].progress().unwrap();
    }
    settle(&sim);
    assert_eq!(drain(&mut ends), 2);
}

#[test]
fn latency_reads_at_most_once_in_three_quarters_of_a_ring() {
    for segments in [4, 8, 64, 128] {
        let (sim, mut ends) = pair(Latency { segments });
        let tuples = 30 * segments as u64;
        assert_eq!(push(&sim, &mut ends, tuples), tuples);
        let counters = ends.sources[0].counters();
        assert_eq!((counters.segments, counters.writes), (tuples, tuples));
        assert!(counters.reads > 0, "{counters:?}");
        let most = tuples.div_ceil(segments as u64 * 3 / 4);
        assert!(counters.reads <= most, "{} READs, at most {most}", counters.reads);
        assert_eq!((counters.repeated_reads, counters.stalls), (0, 0));
        assert_eq!(counters.signalled_writes, tuples / segments as u64);
    }
}

#[test]
fn a_pipelined_flow_reads_at_most_once_in_half_a_ring() {
    for segments in [4, 8, 32] {
        let goal = Bandwidth { segment: 96, segments, source_segments: 2 };
        let (sim, mut ends) = pair(Pipelined(goal));
        let written = 30 * segments as u64;
        assert_eq!(push(&sim, &mut ends, 3 * written), written);
        let counters = ends.sources[0].counters();
        assert_eq!((counters.segments, counters.writes), (written, written));
        let most = written.div_ceil(segments as u64 / 2);
        assert!((1..=most).contains(&counters.reads), "{counters:?}");
        assert_eq!((counters.repeated_reads, counters.stalls), (0, 0));
    }
}

#[test]
fn flushing_sends_what_there_is() {
    let (sim, mut ends) = pair(Bandwidth::default());
    let mut first = true;
    for (tuples, writes) in [(1, 2), (127, 2), (128, 1), (200, 1)] {
        let before = ends.sources[0].counters();
        for number in 0..tuples {
            assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap());
        }
        // The first time it is over when the target has been reached.
        assert_eq!(ends.sources[0].try_flush().unwrap(), !std::mem::take(&mut first));
        settle(&sim);
        assert!(ends.sources[0].try_flush().unwrap());
        let Consumed::Batch(batch) = ends.targets[0].try_consume().unwrap() else {
            panic!("a flushed segment has not arrived")
        };
        assert_eq!(batch.len() as u64, tuples);
        // Less than half full: payload and footer are written apart.
        let after = ends.sources[0].counters();
        assert_eq!(after.writes - before.writes, writes, "{tuples} tuples");
        assert_eq!(after.partial - before.partial, 1);
        settle(&sim);
    }
    // Nothing to flush is nothing to send.
    let before = ends.sources[0].counters();
    assert!(ends.sources[0].try_flush().unwrap());
    assert_eq!(ends.sources[0].counters(), before);
}

#[test]
fn the_next_call_frees_what_the_last_returned() {
    let (sim, mut ends) = pair(Bandwidth { segment: 96, segments: 1, source_segments: 1 });
    for number in 0..3 {
        assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap());
    }
    settle(&sim);
    let Consumed::Batch(batch) = ends.targets[0].try_consume().unwrap() else { panic!("empty") };
    assert_eq!(batch.rows::<Row>().unwrap()[2], Row::new(0, 2));
    // The ring's only segment is held: the next waits at the source, however often it asks.
    for number in 3..6 {
        assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap());
    }
    for _ in 0..100 {
        settle(&sim);
        ends.sources[0].progress().unwrap();
    }
    assert_eq!(ends.sources[0].counters().segments, 1);
    // The next call frees it. The segment arrives a few turns later.
    assert!(matches!(ends.targets[0].try_consume().unwrap(), Consumed::Empty));
    for _ in 0..3 {
        settle(&sim);
        ends.sources[0].progress().unwrap();
    }
    settle(&sim);
    assert_eq!(drain(&mut ends), 1);
}

#[test]
fn naive_replication_writes_every_segment_to_every_ring() {
    let (sim, devices) = simulated(5, Model::default(), 4);
    let goal = Bandwidth { segment: 1024, segments: 4, source_segments: 2 };
    let flow = Flow::replicate("f").schema(Row::schema()).optimise(goal);
    let targets: Vec<_> = (1..4).map(|node| millstream_dfi::Thread::new(node, 0)).collect();
    let mut ends = connect(&devices, flow, (&threads(1, 1, 0), &targets)).unwrap();
    // One ring at the source, whatever the number of targets.
    assert_eq!(ends.sources[0].counters().ring_bytes, 2 * (1024 + 16));
    for number in 0..320 {
        assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap());
        settle(&sim);
        for target in &mut ends.targets {
            while let Consumed::Batch(_) = target.try_consume().unwrap() {}
        }
    }
    let counters = ends.sources[0].counters();
    assert_eq!((counters.writes, counters.reads), (3 * 10, 3 * 10));
    assert!(ends.targets.iter().all(|target| target.counters().segments == 10));
}

/// A segment of an ordered flow is one number, however many targets there are.
#[test]
fn a_segment_of_an_ordered_flow_is_one_number() {
    let (sim, devices) = simulated(5, Model::default(), 4);
    let goal = Bandwidth { segment: 1024, segments: 4, source_segments: 2 };
    let flow = Flow::replicate("f").schema(Row::schema()).optimise(goal).ordered();
    let targets: Vec<_> = (1..4).map(|node| millstream_dfi::Thread::new(node, 0)).collect();
    let mut ends = connect(&devices, flow, (&threads(1, 1, 0), &targets)).unwrap();
    assert_eq!(ends.sources[0].counters().ring_bytes, 2 * (1024 + 16 + 16));
    for number in 0..320 {
        assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap());
        settle(&sim);
        ends.sources[0].progress().unwrap();
        settle(&sim);
        for target in &mut ends.targets {
            while let Consumed::Batch(_) = target.try_consume().unwrap() {}
        }
    }
    let counters = ends.sources[0].counters();
    assert_eq!((counters.writes, counters.reads, counters.numbers), (3 * 10, 3 * 10, 10));
    assert!(ends.targets.iter().all(|target| target.counters().segments == 10));
}

/// The thesis, section 7.6.1.4: 16.0, 64.1 and 785.5 MiB a node.
#[test]
fn memory_is_as_published() {
    for (nodes, each, mib) in [(2, 4, 16.0), (8, 4, 64.1), (8, 14, 785.5)] {
        let goal = Bandwidth { source_segments: 32, ..Bandwidth::default() };
        let flow = Flow::shuffle("f").schema(Row::schema()).optimise(goal);
        let (sources, targets) =
            (threads(nodes * each, nodes, 0), threads(nodes * each, nodes, 999));
        let declaration = declared(flow.sources(sources).targets(targets)).unwrap();
        let bytes = declaration.ring_bytes(1);
        let pairs = each * nodes * each;
        assert_eq!(bytes, 2 * pairs * 32 * (8192 + 16));
        let found = bytes as f64 / f64::from(1 << 20);
        assert!((found - mib).abs() < 0.05, "{found} MiB, not {mib}");
    }
}

/// What the endpoints allocate is what the declaration says.
#[test]
fn rings_are_as_large_as_declared() {
    let (_sim, devices) = simulated(5, Model::default(), 2);
    let flow = || Flow::shuffle("f").schema(Row::schema()).route(Route::Key("key"));
    let lists = (threads(3, 2, 0), threads(2, 2, 100));
    let ends = connect(&devices, flow(), (&lists.0, &lists.1)).unwrap();
    let at_sources = ends.sources.iter().map(|one| one.counters().ring_bytes).sum::<u64>();
    let at_targets = ends.targets.iter().map(|one| one.counters().ring_bytes).sum::<u64>();
    let declaration = declared(flow().sources(lists.0).targets(lists.1)).unwrap();
    let declared = declaration.ring_bytes(0) + declaration.ring_bytes(1);
    assert_eq!(at_sources + at_targets, declared as u64);
}
