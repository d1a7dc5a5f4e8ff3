//! Replicate flows over multicast, in the order of pairs and in one order for all (thesis, section
//! 7.5.4). `MILLSTREAM_SEEDS` sets the number of seeds of each seeded test.

use std::time::Duration;

use crate::common::casting::{Drawn, Order, draw, pass, run_drawn};
use crate::common::order::{begins_in_one_order, disorder, wait_and_sleep};
use crate::common::stopping::{Stop, check_dropping, run_with_a_stop};
use crate::common::{
    Ends, Outcome, Plan, Row, check, connect, run, seeds, shm, simulated, tcp, threads,
};
use millstream_dfi::{
    Bandwidth, Consumed, Error, Flow, Gaps, Latency, LocalRegistry, OnLoss, Optimise, Role,
    SourceSetup, TargetSetup, Thread,
};
use millstream_fabric::Fabric;
use millstream_fabric::sim::{Model, SimDevice};

fn flow(order: Order) -> Flow {
    let flow = Flow::replicate("f").schema(Row::schema()).multicast();
    match order {
        Order::OfPairs => flow,
        Order::OfFlow => flow.ordered(),
        Order::Notified => flow.ordered().gaps(Gaps::Notify),
    }
}

/// All orders, goals and topologies over these devices, on one thread.
pub(crate) fn suite<F: Fabric>(devices: &[F], tuples: u64, mut idle: impl FnMut(usize)) {
    let goals: [Optimise; 4] = [
        Bandwidth { segment: 256, segments: 4, source_segments: 2 }.into(),
        Bandwidth { segment: 96, segments: 1, source_segments: 1 }.into(),
        Latency { segments: 8 }.into(),
        Latency { segments: 1 }.into(),
    ];
    let nodes = devices.len();
    for (sources, targets) in [(1, 1), (1, 3), (2, 2), (3, 2)] {
        let lists = (threads(sources, nodes, 0), threads(targets, nodes, 100));
        for (goal, order) in goals
            .iter()
            .flat_map(|goal| [Order::OfPairs, Order::OfFlow].map(|order| (*goal, order)))
        {
            let flow = flow(order).optimise(goal).silence(Duration::from_secs(60));
            let mut ends = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
            let plan = Plan { flush: 9, ..Plan::new(sources as u64, tuples) };
            let outcome = run(&mut ends, plan, &mut idle);
            check(&outcome, plan, targets);
            if order == Order::OfFlow {
                assert_eq!(disorder(&outcome.orders), None, "{goal:?}");
            }
        }
    }
}

#[test]
fn sim_every_order_and_goal() {
    let (sim, devices) = simulated(1, Model::default(), 2);
    suite(&devices, 60, |_| pass(&sim));
}

#[test]
fn tcp_every_order_and_goal() {
    suite(&tcp(2), 60, |_| {});
}

#[test]
fn tcp_threads_wait_and_sleep() {
    let devices = tcp(2);
    wait_and_sleep(&devices, flow(Order::OfPairs), 20_000);
    assert_eq!(disorder(&wait_and_sleep(&devices, flow(Order::OfFlow), 20_000)), None);
}

/// A segment is sent once, for one target and for eight.
#[test]
fn a_segment_is_one_send_for_any_number_of_targets() {
    for targets in [1, 8] {
        let (sim, devices) = simulated(3, Model::default(), 1 + targets);
        let lists = (threads(1, 1, 0), threads(targets + 1, targets + 1, 0)[1..].to_vec());
        let goal = Bandwidth { segment: 1024, segments: 32, source_segments: 32 };
        let mut ends =
            connect(&devices, flow(Order::OfPairs).optimise(goal), (&lists.0, &lists.1)).unwrap();
        let plan = Plan { slow: 1, ..Plan::new(7, 32_000) };
        let outcome = run(&mut ends, plan, |_| pass(&sim));
        check(&outcome, plan, targets);
        let counters = ends.sources[0].counters();
        assert_eq!(counters.datagrams, 1000, "a tuple has 32 bytes");
        assert_eq!((counters.resent, counters.writes, counters.numbers), (0, 0, 0));
        assert_eq!(counters.segments, 1000 * targets as u64);
    }
}

/// A number is drawn once for each segment, and the sender of a flow without order draws none.
#[test]
fn a_segment_of_an_ordered_flow_is_one_number() {
    let (sim, devices) = simulated(3, Model::default(), 3);
    let lists = (threads(1, 3, 0), threads(3, 3, 0)[1..].to_vec());
    let goal = Latency { segments: 16 };
    let mut ends =
        connect(&devices, flow(Order::OfFlow).optimise(goal), (&lists.0, &lists.1)).unwrap();
    let plan = Plan::new(7, 500);
    check(&run(&mut ends, plan, |_| pass(&sim)), plan, 2);
    let counters = ends.sources[0].counters();
    assert_eq!((counters.datagrams, counters.numbers), (500, 500));
}

#[test]
fn a_fabric_without_multicast_refuses() {
    let device = shm(1).remove(0);
    let registry = LocalRegistry::new();
    let here = Thread::new(0, 0);
    flow(Order::OfPairs).sources([here]).targets([here]).publish(&registry).unwrap();
    let patience = Duration::from_secs(1);
    let source = SourceSetup::join(&device, &registry, "f", here, patience).err();
    let target = TargetSetup::join(&device, &registry, "f", here, patience).err();
    assert!(matches!(source, Some(Error::NoMulticast)), "{source:?}");
    assert!(matches!(target, Some(Error::NoMulticast)), "{target:?}");
}

#[test]
fn impossible_declarations_are_refused() {
    let registry = LocalRegistry::new();
    let here = Thread::new(0, 0);
    let large = Bandwidth { segment: 8192, segments: 4, source_segments: 4 };
    for (flow, why) in [
        (Flow::shuffle("f").multicast(), "only a replicate flow"),
        (Flow::shuffle("f").ordered(), "only a replicate flow has one order"),
        (Flow::combine("f").ordered(), "only a replicate flow has one order"),
        (Flow::replicate("f").ordered().gaps(Gaps::Notify), "rings lose nothing"),
        (Flow::replicate("f").multicast().gaps(Gaps::Notify), "ordered flows only"),
        (Flow::replicate("f").multicast().optimise(large), "8192 bytes; multicast takes 4064"),
        (Flow::replicate("f").multicast().time_out(Duration::ZERO), "time-out"),
    ] {
        let flow = flow.schema(Row::schema()).sources([here]).targets([here]);
        let error = flow.publish(&registry).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// Nothing is lost, doubled or out of order for a pair.
#[test]
fn lossy_networks_lose_nothing() {
    let (mut resent, mut repeated) = (0, 0);
    for seed in 0..seeds(300) {
        let drawn = draw(seed, Order::OfPairs, 150);
        let (outcome, sources, targets) = run_drawn(&drawn);
        check(&outcome, drawn.plan, drawn.targets);
        resent += sources.resent;
        repeated += targets.repeated;
    }
    assert!(resent > 0 && repeated > 0, "the network has not lost or repeated anything");
}

/// All targets consume all tuples in one order.
#[test]
fn lossy_networks_keep_the_order_of_the_flow() {
    let mut resent = 0;
    for seed in 0..seeds(300) {
        let drawn = draw(seed, Order::OfFlow, 120);
        let (outcome, sources, _) = run_drawn(&drawn);
        check(&outcome, drawn.plan, drawn.targets);
        assert_eq!(disorder(&outcome.orders), None, "seed {seed}");
        resent += sources.resent;
    }
    assert!(resent > 0);
}

/// Each place of the order is the same tuple at all targets, or a gap.
#[test]
fn lossy_networks_leave_gaps_that_are_told() {
    let (mut gaps, mut resent) = (0, 0);
    for seed in 0..seeds(300) {
        let drawn = draw(seed, Order::Notified, 120);
        let (outcome, sources, targets) = run_drawn(&drawn);
        let errors = (&outcome.source_errors, &outcome.target_errors);
        assert!(errors.0.is_empty() && errors.1.is_empty(), "seed {seed}: {errors:?}");
        assert_eq!((outcome.damaged, outcome.unfinished), (0, 0), "seed {seed}");
        assert_eq!(disorder(&outcome.orders), None, "seed {seed}");
        let all = drawn.sources as u64 * drawn.plan.tuples;
        for order in &outcome.orders {
            assert_eq!(order.len() as u64, all, "seed {seed}: places");
        }
        gaps += targets.gaps;
        resent += sources.resent;
    }
    assert!(gaps > 0 && resent == 0, "{gaps} gaps, {resent} sent again");
}

/// Runs until all are done or failed, with node `stopped` gone at a step drawn from the seed.
fn run_stopping(drawn: &mut Drawn, stopped: usize) -> (Outcome, Ends<SimDevice>) {
    let mut ends = drawn.connect();
    let at_step = drawn.chance.below(5000);
    let stop = Stop { node: stopped, at_step, pause: Duration::from_micros(100) };
    let outcome = run_with_a_stop(&mut ends, drawn.plan, (&drawn.sim, &drawn.devices), stop);
    (outcome, ends)
}

/// A node that stops at any step is an error at all ends that had not finished.
#[test]
fn stopped_nodes_are_errors_within_two_seconds() {
    let mut failed = 0;
    for seed in 0..seeds(200) {
        let order = [Order::OfPairs, Order::OfFlow, Order::Notified][seed as usize % 3];
        let mut drawn = draw(seed, order, 150);
        let stopped = drawn.chance.below(drawn.devices.len());
        let (outcome, _) = run_stopping(&mut drawn, stopped);
        failed += outcome.source_errors.len() + outcome.target_errors.len();
        assert!(order == Order::OfPairs || begins_in_one_order(&outcome, None), "seed {seed}");
    }
    assert!(failed > 0);
}

/// With gaps an ordered flow goes on without a lost source, whose last segments may be at some
/// targets only, and without a lost target, unless that is the sequencer.
#[test]
fn stopped_nodes_leave_an_ordered_flow_with_gaps() {
    let mut went_on = 0;
    for seed in 0..seeds(200) {
        let mut drawn = draw(seed, Order::Notified, 150).dropping();
        let (sources, nodes) = (drawn.sources, drawn.devices.len());
        let stopped = drawn.chance.below(nodes);
        let (outcome, _) = run_stopping(&mut drawn, stopped);
        assert!(begins_in_one_order(&outcome, stopped.checked_sub(sources)), "seed {seed}");
        if stopped == sources {
            continue;
        }
        let errors = (&outcome.source_errors, &outcome.target_errors);
        assert!(errors.0.is_empty() && errors.1.is_empty(), "seed {seed}: {errors:?}");
        for (at, order) in outcome.orders.iter().enumerate() {
            let left = sources - usize::from(stopped < sources);
            let least = left * drawn.plan.tuples as usize;
            assert!(at + sources == stopped || order.len() >= least, "seed {seed}: target {at}");
        }
        went_on += 1;
    }
    assert!(went_on > 0);
}

/// With `OnLoss::Drop` a lost target leaves the flow and holds nobody's credit; a lost source ends
/// after what arrived of it.
#[test]
fn stopped_nodes_leave_a_dropping_flow() {
    let mut losses_told = 0;
    for seed in 0..seeds(200) {
        let mut drawn = draw(seed, Order::OfPairs, 150).dropping();
        let stopped = drawn.chance.below(drawn.devices.len());
        let (outcome, mut ends) = run_stopping(&mut drawn, stopped);
        losses_told += check_dropping(&mut ends, &outcome, drawn.plan, stopped);
    }
    assert!(losses_told > 0);
}

/// Without the sequencer, which is at target 0, an ordered flow fails even if it drops targets.
#[test]
fn an_ordered_flow_fails_without_its_sequencer() {
    let (sim, devices) = simulated(1, Model::default(), 3);
    let lists = (threads(1, 3, 0), threads(3, 3, 0)[1..].to_vec());
    let flow = flow(Order::OfFlow).optimise(Latency { segments: 4 }).on_loss(OnLoss::Drop);
    let mut ends = connect(&devices, flow, (&lists.0, &lists.1)).unwrap();
    sim.stop(&devices[1]);
    let start = sim.now();
    let mut error = None;
    while error.is_none() && sim.now() < start + Duration::from_secs(2) {
        sim.advance(Duration::from_micros(100));
        let pushed = ends.sources[0].try_push(&Row::new(0, 0));
        error = pushed.and_then(|_| ends.sources[0].progress()).err();
        let _ = ends.targets[1].try_consume();
    }
    let Some(Error::PeerLost { peer, .. }) = error else { panic!("{error:?}") };
    assert_eq!((peer.role, peer.index), (Role::Target, 0));
    sim.advance(Duration::from_millis(1));
    assert!(ends.targets[1].try_consume().is_err());
}

/// A gap is an error of `consume`, once, and the target goes on.
#[test]
fn consume_tells_of_a_gap_and_goes_on() {
    let loss = Model { datagram_loss: 0.2, ..Model::default() };
    let (sim, devices) = simulated(5, loss, 2);
    let lists = (threads(1, 2, 0), threads(2, 2, 0)[1..].to_vec());
    let goal = Latency { segments: 64 };
    let mut ends =
        connect(&devices, flow(Order::Notified).optimise(goal), (&lists.0, &lists.1)).unwrap();
    for number in 0..50 {
        assert!(ends.sources[0].try_push(&Row::new(0, number)).unwrap());
    }
    while !ends.sources[0].try_flush().unwrap() {
        pass(&sim);
    }
    let (mut tuples, mut gaps) = (0, 0);
    while tuples + gaps < 50 {
        ends.sources[0].progress().unwrap();
        // Blocking calls would let the source's time pass, too: it marks its last segments.
        if matches!(ends.targets[0].try_consume().unwrap(), Consumed::Empty) {
            pass(&sim);
            continue;
        }
        tuples = ends.targets[0].counters().segments;
        gaps = ends.targets[0].counters().gaps;
    }
    assert!(gaps > 0, "{tuples} tuples");
}
