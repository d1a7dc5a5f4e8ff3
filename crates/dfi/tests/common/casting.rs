//! Seeded runs of multicast flows over a network that loses, repeats and delays datagrams.

use std::time::Duration;

use millstream_dfi::{Bandwidth, Counters, Flow, Gaps, Latency, OnLoss, Optimise, Source, Target};
use millstream_fabric::sim::{Model, Sim, SimDevice};

use super::{Chance, Ends, Outcome, Plan, Row, connect, run, simulated, threads};

/// The order that a flow promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    OfPairs,
    OfFlow,
    /// Of the flow, with gaps.
    Notified,
}

/// A multicast flow drawn from a seed, and its nodes: each end has its own, sources first.
pub(crate) struct Drawn {
    pub(crate) sim: Sim,
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) flow: Flow,
    pub(crate) sources: usize,
    pub(crate) targets: usize,
    pub(crate) plan: Plan,
    pub(crate) chance: Chance,
}

/// Probabilities of loss, repetition and delay, each up to 5 %.
pub(crate) fn lossy(chance: &mut Chance) -> Model {
    let mut up_to_5 = || chance.below(501) as f64 / 10_000.0;
    let (datagram_loss, datagram_repeat, datagram_delay) = (up_to_5(), up_to_5(), up_to_5());
    let latency = Duration::from_nanos(100 + chance.below(20_000) as u64);
    Model { latency, datagram_loss, datagram_repeat, datagram_delay, ..Model::default() }
}

pub(crate) fn draw(seed: u64, order: Order, tuples: u64) -> Drawn {
    let mut chance = Chance(seed);
    let (sources, targets) = (1 + chance.below(3), 1 + chance.below(4));
    let segments = 1 + chance.below(12);
    let segment = [32, 96, 256, 1024][chance.below(4)];
    let goal: Optimise = match chance.below(2) {
        // The place of a tuple in the flow's order is known if each has a segment of its own.
        _ if order == Order::Notified => Latency { segments }.into(),
        0 => Latency { segments }.into(),
        _ => Bandwidth { segment, segments, source_segments: 1 }.into(),
    };
    let flow = Flow::replicate("f").schema(Row::schema()).optimise(goal).multicast();
    let flow = match order {
        Order::OfPairs => flow,
        Order::OfFlow => flow.ordered(),
        Order::Notified => flow.ordered().gaps(Gaps::Notify),
    };
    let model = lossy(&mut chance);
    let (sim, devices) = simulated(seed, model, sources + targets);
    let plan = Plan {
        slow: 1 + chance.below(8),
        flush: [0, 5, 30][chance.below(3)],
        steps_max: 400_000,
        ..Plan::new(seed, tuples)
    };
    Drawn { sim, devices, flow, sources, targets, plan, chance }
}

impl Drawn {
    pub(crate) fn connect(&self) -> Ends<SimDevice> {
        let nodes = self.sources + self.targets;
        let all = threads(nodes, nodes, 0);
        let (sources, targets) = all.split_at(self.sources);
        connect(&self.devices, self.flow.clone(), (sources, targets)).unwrap()
    }

    pub(crate) fn dropping(mut self) -> Drawn {
        self.flow = self.flow.on_loss(OnLoss::Drop);
        self
    }
}

/// Lets the next thing happen, or a while pass if there is none.
pub(crate) fn pass(sim: &Sim) {
    if !sim.step() {
        sim.advance(Duration::from_micros(50));
    }
}

/// A whole run, and the sums of the counters of sources and targets.
pub(crate) fn run_drawn(drawn: &Drawn) -> (Outcome, Counters, Counters) {
    let mut ends = drawn.connect();
    let outcome = run(&mut ends, drawn.plan, |_| pass(&drawn.sim));
    (
        outcome,
        sum(ends.sources.iter().map(Source::counters)),
        sum(ends.targets.iter().map(Target::counters)),
    )
}

/// The sum of some counters.
pub(crate) fn sum(all: impl Iterator<Item = Counters>) -> Counters {
    all.fold(Counters::default(), |sum, one| Counters {
        datagrams: sum.datagrams + one.datagrams,
        resent: sum.resent + one.resent,
        marks: sum.marks + one.marks,
        numbers: sum.numbers + one.numbers,
        repeated: sum.repeated + one.repeated,
        requests: sum.requests + one.requests,
        gaps: sum.gaps + one.gaps,
        ..sum
    })
}
