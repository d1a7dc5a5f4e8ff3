//! Flows whose ends are threads that wait, over shared memory and TCP; and ends that are lost.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::order::{disorder, wait_and_sleep};
use crate::common::{Arrived, Ends, Outcome, Plan, Row, check, connect, shm, tcp, threads};
use millstream_dfi::{
    Bandwidth, Error, Flow, Latency, OnLoss, Optimise, Peer, Pipelined, Role, Route, Source,
    Target, Thread,
};
use millstream_fabric::Fabric;

/// Pushes all tuples of a source, waits in between now and then, and closes.
fn push_all<F: Fabric>(mut source: Source<F>, at: u64, tuples: u64) {
    for number in 0..tuples {
        source.push(&Row::new(at, number)).unwrap();
        if number == tuples / 2 {
            // Targets fall asleep meanwhile.
            source.flush().unwrap();
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    source.close().unwrap();
}

/// Consumes everything, and notes the numbers by source.
fn consume_all<F: Fabric>(mut target: Target<F>, arrived: &Mutex<Arrived>, at: usize) {
    let mut own = std::collections::HashMap::<u64, Vec<u64>>::new();
    while let Some(batch) = target.consume().unwrap() {
        for row in batch.rows::<Row>().unwrap() {
            assert!(row.is_whole());
            own.entry(row.source).or_default().push(row.number);
        }
    }
    arrived.lock().unwrap()[at] = own;
}

/// A thread for each end.
fn suite<F: Fabric>(devices: &[F], tuples: u64) {
    let goals: [Optimise; 2] = [Bandwidth::default().into(), Latency::default().into()];
    for (sources, targets) in [(1, 1), (3, 1), (1, 3), (2, 2)] {
        for goal in goals {
            for (flow, copies) in [
                (Flow::shuffle("f").route(Route::Key("key")), 1),
                (Flow::replicate("f").route(Route::Key("key")), targets),
            ] {
                let lists = (threads(sources, 2, 0), threads(targets, 2, 100));
                let flow = flow.schema(Row::schema()).optimise(goal);
                let flow = flow.silence(Duration::from_secs(60));
                let ends = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
                let arrived = Mutex::new(vec![Default::default(); targets]);
                std::thread::scope(|scope| {
                    for (at, source) in ends.sources.into_iter().enumerate() {
                        scope.spawn(move || push_all(source, at as u64, tuples));
                    }
                    for (at, target) in ends.targets.into_iter().enumerate() {
                        let arrived = &arrived;
                        scope.spawn(move || consume_all(target, arrived, at));
                    }
                });
                let outcome = Outcome {
                    arrived: arrived.into_inner().unwrap(),
                    pushed: vec![tuples; sources],
                    ..Outcome::default()
                };
                check(&outcome, Plan::new(0, tuples), copies);
            }
        }
    }
}

#[test]
fn shm_threads_that_wait() {
    suite(&shm(2), 20_000);
}

#[test]
fn tcp_threads_that_wait() {
    suite(&tcp(2), 5000);
}

#[test]
fn threads_that_wait_consume_in_one_order() {
    let goals: [Optimise; 3] = [
        Bandwidth::default().into(),
        Latency::default().into(),
        Pipelined(Bandwidth { segment: 256, segments: 8, source_segments: 2 }).into(),
    ];
    for goal in goals {
        let flow = Flow::replicate("f").schema(Row::schema()).ordered().optimise(goal);
        assert_eq!(disorder(&wait_and_sleep(&shm(2), flow.clone(), 20_000)), None, "shm, {goal:?}");
        assert_eq!(disorder(&wait_and_sleep(&tcp(2), flow, 5000)), None, "tcp, {goal:?}");
    }
}

/// The peer that an end found lost, and after which time.
fn loss_of(result: Result<(), Error>, start: Instant) -> (Peer, Duration) {
    match result {
        Err(Error::PeerLost { peer, .. }) => (peer, start.elapsed()),
        other => panic!("{other:?}"),
    }
}

fn push_for_ever<F: Fabric>(source: &mut Source<F>) -> Result<(), Error> {
    for number in 0.. {
        source.push(&Row::new(0, number))?;
    }
    Ok(())
}

fn consume_for_ever<F: Fabric>(target: &mut Target<F>) -> Result<(), Error> {
    while target.consume()?.is_some() {}
    Ok(())
}

/// Drops one of two sources, or one of two targets: the three others get an error in time.
fn lost<F: Fabric>(devices: &[F], role: Role, goal: Optimise) {
    let lists = (threads(2, 2, 0), threads(2, 2, 100));
    let flow = Flow::shuffle("f").schema(Row::schema()).optimise(goal);
    let Ends { mut sources, mut targets } = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
    match role {
        Role::Source => drop(sources.pop()),
        Role::Target => drop(targets.pop()),
    }
    let start = Instant::now();
    let losses: Vec<(Peer, Duration)> = std::thread::scope(|scope| {
        let of_sources = sources
            .iter_mut()
            .map(|source| scope.spawn(move || loss_of(push_for_ever(source), start)));
        let of_sources: Vec<_> = of_sources.collect();
        let of_targets = targets
            .iter_mut()
            .map(|target| scope.spawn(move || loss_of(consume_for_ever(target), start)));
        let all = of_sources.into_iter().chain(of_targets.collect::<Vec<_>>());
        all.map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(losses.len(), 3);
    for (peer, after) in losses {
        // Each end names the end that was lost, not its own neighbour.
        assert_eq!((peer.role, peer.index), (role, 1), "{peer}");
        assert!(after < Duration::from_secs(2), "after {after:?}");
    }
}

#[test]
fn lost_ends_are_named_at_all_ends() {
    let goals: [Optimise; 2] = [Bandwidth::default().into(), Latency::default().into()];
    for goal in goals {
        for role in [Role::Source, Role::Target] {
            lost(&shm(2), role, goal);
            lost(&tcp(2), role, goal);
        }
    }
}

/// With `OnLoss::Drop` the others of a replicate flow go on.
fn lost_and_dropped<F: Fabric>(devices: &[F]) {
    let lists = (threads(2, 2, 0), threads(3, 2, 100));
    let flow = Flow::replicate("f").schema(Row::schema()).on_loss(OnLoss::Drop);
    let Ends { mut sources, mut targets } = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
    drop(sources.pop());
    drop(targets.pop());
    let tuples = 50_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = &mut sources[0];
            (0..tuples).for_each(|number| source.push(&Row::new(0, number)).unwrap());
            source.close().unwrap();
            let losses = source.take_losses();
            let Peer { role, index, thread } = losses[0].peer;
            assert_eq!((losses.len(), role, index), (1, Role::Target, 2));
            assert_eq!(thread, Thread::new(0, 102));
            assert!(source.take_losses().is_empty());
        });
        for target in &mut targets {
            scope.spawn(move || {
                let mut count = 0;
                while let Some(batch) = target.consume().unwrap() {
                    assert_eq!(batch.source(), 0);
                    count += batch.len() as u64;
                }
                assert_eq!(count, tuples);
                let losses = target.take_losses();
                assert_eq!((losses.len(), losses[0].peer.index), (1, 1));
            });
        }
    });
}

#[test]
fn dropped_ends_hold_up_nobody() {
    lost_and_dropped(&shm(2));
    lost_and_dropped(&tcp(2));
}
