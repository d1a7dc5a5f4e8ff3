//! A measured flow in a simulated world, whose threads have virtual clocks.

use std::time::Duration;

use millstream_dfi::{Counters, LocalRegistry};
use millstream_fabric::sim::{Model, Sim, SimDevice};

use super::clocks::{Turn, nanoseconds, run};
use super::failure::{FlowFailure, FlowResult};
use super::mover::{Did, FlowPlan, MoverSetup, Moving};
use super::price::Price;
use super::tally::Tally;

/// A simulated run whose answer is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Simulated {
    /// Virtual time from the first push until all has ended.
    pub(super) time: Duration,
    /// The tuples of all targets.
    pub(super) received: Tally,
    /// Counters of all sources.
    pub(super) sources: Counters,
}

impl Simulated {
    /// Bytes that all targets together got in a second.
    pub(super) fn bytes_per_s(&self, plan: &FlowPlan) -> f64 {
        self.received.count as f64 * plan.tuple_bytes as f64 / self.time.as_secs_f64()
    }
}

/// The time of a turn.
fn time(did: Did, targets: u32, price: &Price) -> Duration {
    let work = did.pushed as f64 * price.push_ns + did.taken as f64 * price.take_ns;
    let idle = if did.pushed + did.taken == 0 { 1 } else { 0 };
    nanoseconds(work + f64::from(idle * targets.max(1)) * price.look_ns)
}

/// Runs a plan between nodes with these links; all threads have these prices.
pub(super) fn simulate<const W: usize>(
    plan: &FlowPlan,
    price: &Price,
    model: Model,
) -> FlowResult<Simulated> {
    let sim = Sim::new(1);
    let devices: Vec<SimDevice> = (0..plan.nodes()).map(|_| sim.node(model)).collect();
    let registry = LocalRegistry::new();
    plan.flow().publish(&registry)?;
    let device = |mover: usize| &devices[plan.movers[mover].node as usize];
    let join = |mover| MoverSetup::join(plan, mover, device(mover), &registry);
    let setups: Vec<_> = (0..plan.movers.len()).map(join).collect::<Result<_, _>>()?;
    let connect =
        |(mover, setup): (usize, MoverSetup<SimDevice>)| setup.connect::<W>(plan, mover, &registry);
    let connected = setups.into_iter().enumerate().map(connect);
    let mut movers: Vec<Moving<SimDevice, W>> = connected.collect::<Result<_, _>>()?;
    let most = plan.per_segment();
    let time = run(&sim, movers.len(), |mover| {
        let did = movers[mover].turn(most, 1)?;
        let took = time(did, plan.movers[mover].targets, price);
        Ok(if did.all { Turn::Over } else { Turn::Took(took) })
    })?;
    let (mut sent, mut received) = (Tally::default(), Tally::default());
    let mut sources = Counters::default();
    for mover in &movers {
        let [pushed, taken] = mover.tallies();
        (sent, received) = (sent.plus(pushed), received.plus(taken));
        let counters = mover.source_counters();
        sources.segments += counters.segments;
        sources.writes += counters.writes;
        sources.reads += counters.reads;
        sources.repeated_reads += counters.repeated_reads;
        sources.signalled_writes += counters.signalled_writes;
        sources.datagrams += counters.datagrams;
        sources.resent += counters.resent;
    }
    let expected = plan.expected(sent);
    let all = plan.tuples * plan.threads(true).count() as u64;
    if received != expected || sent.count != all {
        return Err(FlowFailure::Answer { expected, found: received });
    }
    Ok(Simulated { time, received, sources })
}
