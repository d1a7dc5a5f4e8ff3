//! Flows over the simulated fabric: many seeds, with delays, interrupted links and stopped nodes.
//!
//! `MILLSTREAM_SEEDS` sets the number of seeds of each test.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::order::{begins_in_one_order, disorder};
use crate::common::stopping::{Stop, check_dropping, run_with_a_stop};
use crate::common::{
    Chance, Ends, Outcome, Plan, Row, check, connect, join, run, seeds, simulated, threads,
};
use millstream_dfi::{
    Bandwidth, Consumed, Detection, Error, Flow, Latency, LocalRegistry, OnLoss, Optimise,
    Pipelined, Role, Route,
};
use millstream_fabric::sim::{Model, Placement, Sim, SimDevice};

/// A flow drawn from a seed, and its nodes: each end has its own.
struct Drawn {
    sim: Sim,
    devices: Vec<SimDevice>,
    flow: Flow,
    sources: usize,
    targets: usize,
    copies: usize,
    plan: Plan,
    chance: Chance,
}

/// `ordered`: only ordered flows.
fn draw(seed: u64, tuples: u64, ordered: bool) -> Drawn {
    let mut chance = Chance(seed);
    let (sources, targets) = (1 + chance.below(3), 1 + chance.below(3));
    let small = |chance: &mut Chance| Bandwidth {
        segment: [32, 96, 256, 1024][chance.below(4)],
        segments: 1 + chance.below(6),
        source_segments: 1 + chance.below(4),
    };
    let goal: Optimise = match chance.below(4) {
        0 => Latency { segments: 1 + chance.below(12) }.into(),
        1 => Pipelined(small(&mut chance)).into(),
        _ => small(&mut chance).into(),
    };
    // Only checksums prove that a segment is complete where bytes land in any order.
    let placement = [Placement::Whole, Placement::Ordered, Placement::Shuffled][chance.below(3)];
    let detection = match placement {
        Placement::Shuffled => Detection::Checksum,
        _ => [Detection::Footer, Detection::Checksum][chance.below(2)],
    };
    let latency = Duration::from_nanos(100 + chance.below(20_000) as u64);
    let model = Model { latency, placement, ..Model::default() };
    let (flow, explicit, copies) = match chance.below(4) {
        _ if ordered => (Flow::replicate("f").ordered(), false, targets),
        0 => (Flow::shuffle("f").route(Route::Key("key")), false, 1),
        1 => (Flow::shuffle("f").route(Route::Explicit), true, 1),
        2 => (Flow::shuffle("f").route(Route::by(|t, n| t[16] as usize % n)), false, 1),
        _ => (Flow::replicate("f"), false, targets),
    };
    let flow = flow.schema(Row::schema()).optimise(goal).detection(detection);
    let (sim, devices) = simulated(seed, model, sources + targets);
    let plan = Plan {
        slow: 1 + chance.below(8),
        flush: [0, 5, 30][chance.below(3)],
        explicit,
        steps_max: 300_000,
        ..Plan::new(seed, tuples)
    };
    Drawn { sim, devices, flow, sources, targets, copies, plan, chance }
}

impl Drawn {
    /// Each end on a node of its own, sources first.
    fn connect(&self) -> Ends<SimDevice> {
        let nodes = self.sources + self.targets;
        let all = threads(nodes, nodes, 0);
        let (sources, targets) = all.split_at(self.sources);
        connect(&self.devices, self.flow.clone(), (sources, targets)).unwrap()
    }
}

/// Everything arrives once, whole and in order, though links are interrupted. Returns how often.
fn interrupted(seed: u64, ordered: bool) -> usize {
    let mut drawn = draw(seed, 150, ordered);
    let (mut ends, plan) = (drawn.connect(), drawn.plan);
    let Drawn { sim, devices, chance, .. } = &mut drawn;
    let mut cut: Option<(usize, usize, Duration)> = None;
    let mut cuts = 0;
    let outcome = run(&mut ends, plan, |_| {
        match cut {
            Some((a, b, until)) if sim.now() >= until => {
                sim.mend(&devices[a], &devices[b]);
                cut = None;
            }
            None if devices.len() > 1 && chance.below(400) == 0 => {
                let (a, b) = (chance.below(devices.len()), chance.below(devices.len()));
                if a != b {
                    sim.cut(&devices[a], &devices[b]);
                    // Shorter than the silence after which a peer is lost.
                    let length = Duration::from_micros(1 + chance.below(5_000) as u64);
                    cut = Some((a, b, sim.now() + length));
                    cuts += 1;
                }
            }
            _ => {}
        }
        // Not beyond the end of an interruption.
        match cut {
            Some(_) => sim.advance(Duration::from_micros(20)),
            None => {
                sim.step();
            }
        }
    });
    check(&outcome, drawn.plan, drawn.copies);
    let disorder = if ordered { disorder(&outcome.orders) } else { None };
    assert_eq!(disorder, None, "seed {seed}");
    cuts
}

#[test]
fn interrupted_links() {
    let count = seeds(300);
    let cuts: usize = (0..count).map(|seed| interrupted(seed, false)).sum();
    assert!(cuts as u64 >= count, "{cuts} interruptions");
}

/// All targets consume all tuples in one order.
#[test]
fn interrupted_links_of_ordered_flows() {
    let count = seeds(300);
    let cuts: usize = (0..count).map(|seed| interrupted(seed, true)).sum();
    assert!(cuts as u64 >= count, "{cuts} interruptions");
}

/// Without numbers the same runs have no order: the test above would notice.
#[test]
fn flows_without_an_order_have_none() {
    let disorders = (0..40).filter(|seed| {
        let mut drawn = draw(*seed, 150, true);
        drawn.flow = Flow::replicate("f").schema(Row::schema()).detection(Detection::Checksum);
        let mut ends = drawn.connect();
        let outcome = run(&mut ends, drawn.plan, |_| {
            drawn.sim.step();
        });
        disorder(&outcome.orders).is_some()
    });
    assert!(disorders.count() > 5);
}

/// Runs until all are done or failed, with node `stopped` gone at a step drawn from the seed.
fn run_stopping(drawn: &mut Drawn, stopped: usize) -> (Outcome, Ends<SimDevice>) {
    let mut ends = drawn.connect();
    let at_step = drawn.chance.below(6000);
    // Never far: ends have to be called meanwhile.
    let stop = Stop { node: stopped, at_step, pause: Duration::from_micros(500) };
    let outcome = run_with_a_stop(&mut ends, drawn.plan, (&drawn.sim, &drawn.devices), stop);
    (outcome, ends)
}

/// A node that stops at any step is an error at all ends that had not finished. Returns whether
/// there were any.
fn stopped(seed: u64, ordered: bool) -> bool {
    let mut drawn = draw(seed, 150, ordered);
    let stopped = drawn.chance.below(drawn.devices.len());
    let (outcome, _) = run_stopping(&mut drawn, stopped);
    assert!(!ordered || begins_in_one_order(&outcome, None), "seed {seed}");
    !outcome.source_errors.is_empty() || !outcome.target_errors.is_empty()
}

#[test]
fn stopped_nodes() {
    let count = seeds(300);
    let failed = (0..count).filter(|seed| stopped(*seed, false)).count() as u64;
    assert!(failed >= count / 4, "{failed} of {count} flows had not finished");
}

/// Until the failure all targets consume in one order.
#[test]
fn stopped_nodes_of_ordered_flows() {
    let count = seeds(300);
    let failed = (0..count).filter(|seed| stopped(*seed, true)).count() as u64;
    assert!(failed >= count / 4, "{failed} of {count} flows had not finished");
}

/// With `OnLoss::Drop` a lost target leaves an ordered flow, and the others consume in one order.
/// A lost source or a lost sequencer fails the flow. Returns whether a loss was told.
fn ordered_dropped(seed: u64) -> bool {
    let mut drawn = draw(seed, 150, true);
    drawn.flow = drawn.flow.on_loss(OnLoss::Drop);
    let sources = drawn.sources;
    let stopped = drawn.chance.below(drawn.devices.len());
    let (outcome, mut ends) = run_stopping(&mut drawn, stopped);
    let lost = stopped.checked_sub(sources);
    assert!(begins_in_one_order(&outcome, lost), "seed {seed}");
    if stopped <= sources {
        // The stopped end itself is not called any more.
        return false;
    }
    check_dropping(&mut ends, &outcome, drawn.plan, stopped) > 0
}

#[test]
fn dropped_nodes_of_ordered_flows() {
    let count = seeds(300);
    let told = (0..count).filter(|seed| ordered_dropped(*seed)).count() as u64;
    assert!(told >= count / 20, "in {told} of {count} flows a loss was told");
}

/// A target that waits for a number sleeps, though later segments have arrived. It notices that
/// the source of that number is gone.
#[test]
fn a_target_sleeps_while_the_next_number_is_missing() {
    for goal in [Optimise::from(Bandwidth::default()), Latency::default().into()] {
        let (sim, devices) = simulated(1, Model::default(), 3);
        let flow = Flow::replicate("f").schema(Row::schema()).optimise(goal).ordered();
        let lists = (threads(2, 3, 0), [millstream_dfi::Thread::new(2, 0)]);
        let mut ends = connect(&devices, flow, (&lists.0, &lists.1)).unwrap();
        // Source 0 draws a number and is not called again. Source 1 sends segments of its own.
        assert!(ends.sources[0].try_push(&Row::new(0, 0)).unwrap());
        ends.sources[0].try_flush().unwrap();
        sim.advance(Duration::from_micros(20));
        for number in 0..3 {
            ends.sources[1].push(&Row::new(1, number)).unwrap();
            ends.sources[1].flush().unwrap();
        }
        assert!(matches!(ends.targets[0].try_consume().unwrap(), Consumed::Empty));
        sim.stop(&devices[0]);
        let gone = sim.now();
        let error = ends.targets[0].consume().map(|batch| batch.is_some()).unwrap_err();
        let Error::PeerLost { peer, .. } = error else { panic!("{error}") };
        assert_eq!((peer.role, peer.index), (Role::Source, 0));
        assert!(sim.now() - gone < Duration::from_secs(2));
        let looks = ends.targets[0].counters().stalls;
        assert!(looks < 20_000, "{looks} looks");
    }
}

/// With `OnLoss::Drop` a lost target leaves a replicate flow, and a lost source ends; the others
/// go on, and are told once. Returns whether some end was told.
fn dropped(seed: u64) -> bool {
    let mut drawn = draw(seed, 150, false);
    drawn.flow = Flow::replicate("f")
        .schema(Row::schema())
        .optimise(Bandwidth { segment: 96, segments: 3, source_segments: 2 })
        .detection(Detection::Checksum)
        .on_loss(OnLoss::Drop);
    drawn.plan.explicit = false;
    let stopped = drawn.chance.below(drawn.devices.len());
    let (outcome, mut ends) = run_stopping(&mut drawn, stopped);
    check_dropping(&mut ends, &outcome, drawn.plan, stopped) > 0
}

#[test]
fn dropped_nodes() {
    let count = seeds(300);
    let told = (0..count).filter(|seed| dropped(*seed)).count() as u64;
    assert!(told >= count / 4, "in {told} of {count} flows a loss was told");
}

/// With `OnLoss::Drop` a shuffle goes on without a lost source. A lost target fails it.
fn shuffle_dropped(seed: u64) -> bool {
    let mut drawn = draw(seed, 150, false);
    drawn.flow = Flow::shuffle("f")
        .schema(Row::schema())
        .optimise(Bandwidth { segment: 96, segments: 3, source_segments: 2 })
        .detection(Detection::Checksum)
        .on_loss(OnLoss::Drop);
    drawn.plan.explicit = false;
    let sources = drawn.sources;
    let stopped = drawn.chance.below(sources + drawn.targets);
    let (outcome, ends) = run_stopping(&mut drawn, stopped);
    if stopped >= sources {
        // Sources that had not finished fail, and so end at the other targets.
        return !outcome.source_errors.is_empty();
    }
    let errors = (&outcome.source_errors, &outcome.target_errors);
    assert!(errors.0.is_empty() && errors.1.is_empty(), "seed {seed}: {errors:?}");
    for source in (0..sources).filter(|source| *source != stopped) {
        let count = |arrived: &HashMap<u64, Vec<u64>>| {
            arrived.get(&(source as u64)).map_or(0, Vec::len) as u64
        };
        let all: u64 = outcome.arrived.iter().map(count).sum();
        assert_eq!(all, drawn.plan.tuples, "seed {seed}: source {source}");
    }
    ends.targets.into_iter().any(|mut target| !target.take_losses().is_empty())
}

#[test]
fn shuffles_without_a_source() {
    let count = seeds(300);
    let told = (0..count).filter(|seed| shuffle_dropped(*seed)).count() as u64;
    assert!(told >= count / 8, "in {told} of {count} flows a loss was told");
}

/// A target that sleeps notices that its source is gone, in virtual time.
#[test]
fn a_sleeping_target_notices_a_stopped_source() {
    for goal in [Optimise::from(Bandwidth::default()), Latency::default().into()] {
        let (sim, devices) = simulated(1, Model::default(), 2);
        let flow = Flow::shuffle("f").schema(Row::schema()).optimise(goal);
        let lists = (threads(1, 1, 0), [millstream_dfi::Thread::new(1, 0)]);
        let mut ends = connect(&devices, flow, (&lists.0, &lists.1)).unwrap();
        ends.sources[0].push(&Row::new(0, 0)).unwrap();
        ends.sources[0].flush().unwrap();
        assert_eq!(ends.targets[0].consume().unwrap().map(|batch| batch.len()), Some(1));
        sim.stop(&devices[0]);
        let gone = sim.now();
        let error = ends.targets[0].consume().map(|batch| batch.is_some()).unwrap_err();
        assert!(matches!(error, Error::PeerLost { .. }), "{error}");
        let after = sim.now() - gone;
        assert!(after < Duration::from_secs(2), "after {after:?}");
        // Asleep, but for a few questions: not one look in 50 ns.
        let looks = ends.targets[0].counters().stalls;
        assert!(looks < 20_000, "{looks} looks");
    }
}

/// Footers on a fabric that places bytes in any order: refused, and rightly so.
#[test]
fn footers_fail_where_bytes_land_in_any_order() {
    let shuffled = Model { placement: Placement::Shuffled, ..Model::default() };
    let run_once = |seed: u64, detection: Detection| {
        let (sim, devices) = simulated(seed, shuffled, 2);
        let lists = (threads(1, 1, 0), [millstream_dfi::Thread::new(1, 0)]);
        let registry = LocalRegistry::new();
        let flow = Flow::shuffle("f")
            .schema(Row::schema())
            .optimise(Bandwidth { segment: 1024, segments: 4, source_segments: 2 })
            .detection(detection);
        let flow = flow.sources(lists.0.clone()).targets(lists.1);
        flow.publish(&registry).unwrap();
        let checked = join(&devices, &registry, (&lists.0, &lists.1), true).err();
        if detection == Detection::Footer {
            assert!(matches!(checked, Some(Error::Unordered)), "{checked:?}");
        }
        // The threads have joined in part: a new registry.
        let registry = LocalRegistry::new();
        let flow = Flow::shuffle("f")
            .schema(Row::schema())
            .optimise(Bandwidth { segment: 1024, segments: 4, source_segments: 2 })
            .detection(detection);
        flow.sources(lists.0.clone()).targets(lists.1).publish(&registry).unwrap();
        let mut ends = join(&devices, &registry, (&lists.0, &lists.1), false).unwrap();
        let plan = Plan { slow: 1, ..Plan::new(seed, 3000) };
        let outcome = run(&mut ends, plan, |_| {
            sim.step();
        });
        if detection == Detection::Checksum {
            check(&outcome, plan, 1);
        }
        outcome.damaged
    };
    let damaged: u64 = (0..20).map(|seed| run_once(seed, Detection::Footer)).sum();
    assert!(damaged > 0, "footers have not failed: is the placement shuffled?");
    for seed in 0..20 {
        assert_eq!(run_once(seed, Detection::Checksum), 0);
    }
}
