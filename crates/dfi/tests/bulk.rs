//! Many tuples pushed at once arrive as if each had been pushed alone.

use crate::common::{Ends, Row, connect, shm, tcp, threads};
use millstream_dfi::{
    AsTuple, Bandwidth, Error, Flow, Latency, Optimise, Pipelined, Route, Source, Target, Thread,
};
use millstream_fabric::Fabric;

/// A flow with explicit routes from one source to two targets.
fn ends<F: Fabric>(devices: &[F], goal: impl Into<Optimise>) -> Ends<F> {
    let flow = Flow::shuffle("f").schema(Row::schema()).route(Route::Explicit).optimise(goal);
    connect(devices, flow, (&threads(1, 1, 0), &threads(2, 2, 100))).unwrap()
}

fn bytes(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(|number| Row::new(0, number).tuple().to_vec()).collect()
}

/// The numbers that arrive, and the bytes of each segment.
fn consume<F: Fabric>(mut target: Target<F>) -> (Vec<u64>, Vec<usize>) {
    let (mut numbers, mut segments) = (Vec::new(), Vec::new());
    while let Some(batch) = target.consume().unwrap() {
        segments.push(batch.bytes().len());
        let rows = batch.rows::<Row>().unwrap();
        assert!(rows.iter().all(Row::is_whole));
        numbers.extend(rows.iter().map(|row| row.number));
        // The source has to wait now and then.
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    (numbers, segments)
}

/// Pieces of all lengths, among tuples that are pushed alone.
fn push<F: Fabric>(mut source: Source<F>) -> u64 {
    let mut next = 0;
    for length in (0..40).chain([300, 1]) {
        source.push_all_to(1, &bytes(next..next + length)).unwrap();
        next += length;
        source.push_to(1, &Row::new(0, next)).unwrap();
        next += 1;
        source.push_all_to(0, &bytes(next..next + 1)).unwrap();
    }
    source.close().unwrap();
    next
}

fn arrive<F: Fabric>(devices: &[F], goal: impl Into<Optimise>, segment: usize) {
    let Ends { mut sources, targets } = ends(devices, goal);
    let source = sources.remove(0);
    std::thread::scope(|scope| {
        let pushing = scope.spawn(move || push(source));
        let [first, second] = targets
            .into_iter()
            .map(|target| scope.spawn(move || consume(target)))
            .collect::<Vec<_>>()
            .try_into()
            .ok()
            .unwrap();
        let pushed = pushing.join().unwrap();
        assert_eq!(first.join().unwrap().0.len(), 42);
        let (numbers, segments) = second.join().unwrap();
        assert_eq!(numbers, (0..pushed).collect::<Vec<_>>());
        // Each segment is full but the last.
        let (last, full) = segments.split_last().unwrap();
        assert!(full.iter().all(|bytes| *bytes == segment) && *last <= segment, "{segments:?}");
    });
}

#[test]
fn tuples_pushed_at_once_fill_segments_in_order() {
    // 240 bytes hold 7 tuples of 32 bytes.
    for (segment, filled) in [(1024, 1024), (256, 256), (240, 224)] {
        let goal = Bandwidth { segment, segments: 4, source_segments: 2 };
        arrive(&shm(2), goal, filled);
        arrive(&tcp(2), goal, filled);
        arrive(&tcp(2), Pipelined(goal), filled);
    }
    arrive(&shm(2), Latency { segments: 4 }, size_of::<Row>());
}

#[test]
fn what_is_no_tuple_or_has_no_target_is_refused() {
    let Ends { mut sources, targets: _targets } = ends(&shm(2), Bandwidth::default());
    let source = &mut sources[0];
    let error = source.push_all_to(0, &bytes(0..2)[..63]).unwrap_err();
    assert!(matches!(error, Error::TupleLength { expected: 32, found: 63 }), "{error}");
    let error = source.push_all_to(2, &bytes(0..2)).unwrap_err();
    assert!(matches!(error, Error::NoTarget { target: 2, targets: 2 }), "{error}");
    assert_eq!(source.counters().segments, 0);

    let by_key = Flow::shuffle("f").schema(Row::schema());
    let lists = (threads(1, 1, 0), [Thread::new(1, 0)]);
    let mut ends = connect(&shm(2), by_key, (&lists.0, &lists.1)).unwrap();
    let error = ends.sources[0].push_all_to(0, &bytes(0..1)).unwrap_err();
    assert!(matches!(error, Error::Route { .. }), "{error}");
}

#[test]
fn a_lost_target_ends_the_pushing() {
    let Ends { mut sources, targets } = ends(&shm(2), Bandwidth::default());
    drop(targets);
    let much = bytes(0..1000);
    let error = (0..100_000).find_map(|_| sources[0].push_all_to(0, &much).err());
    assert!(matches!(error, Some(Error::PeerLost { .. })), "{error:?}");
}

/// Segments that are written in place arrive as they are, in order with tuples that are pushed.
#[test]
fn segments_are_filled_in_place() {
    let lists = (threads(1, 1, 0), threads(2, 2, 100));
    let goal = Bandwidth { segment: 256, segments: 4, source_segments: 2 };
    for flow in [Flow::replicate("f"), Flow::replicate("f").ordered()] {
        let flow = flow.schema(Row::schema()).optimise(goal);
        let Ends { mut sources, targets } = connect(&shm(2), flow, (&lists.0, &lists.1)).unwrap();
        let mut source = sources.remove(0);
        let readers: Vec<_> =
            targets.into_iter().map(|target| std::thread::spawn(move || consume(target))).collect();
        let mut next = 0;
        for length in (1..=8).cycle().take(100) {
            let tuples = bytes(next..next + length);
            while !source
                .try_push_with(tuples.len(), |segment| segment.copy_from_slice(&tuples))
                .unwrap()
            {
                std::thread::yield_now();
            }
            next += length;
            source.push(&Row::new(0, next)).unwrap();
            next += 1;
        }
        source.close().unwrap();
        for reader in readers {
            let (numbers, segments) = reader.join().unwrap();
            assert_eq!(numbers, (0..next).collect::<Vec<_>>());
            assert_eq!(segments.len(), 200, "each of its own, and what was pushed between");
        }
    }
}

#[test]
fn what_does_not_fit_a_segment_is_not_filled() {
    let flow = Flow::replicate("f").schema(Row::schema()).optimise(Latency { segments: 4 });
    let lists = (threads(1, 1, 0), threads(1, 1, 100));
    let mut ends = connect(&shm(1), flow, (&lists.0, &lists.1)).unwrap();
    let mut filled = |bytes| ends.sources[0].try_push_with(bytes, |_| ());
    for bytes in [0, 31] {
        assert!(matches!(filled(bytes), Err(Error::TupleLength { expected: 32, .. })));
    }
    assert!(matches!(filled(64), Err(Error::Route { .. })), "a segment is one tuple");
    assert!(filled(32).unwrap());
    let Ends { mut sources, targets: _targets } = self::ends(&shm(2), Bandwidth::default());
    assert!(matches!(sources[0].try_push_with(32, |_| ()), Err(Error::Route { .. })));
}
