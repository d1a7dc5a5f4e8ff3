//! Figures 7.13 and 7.14: the joins of the example program `radix_join`, between processes.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use millstream_dfi::{LocalRegistry, RegistryClient, Source, SourceSetup, Target, TargetSetup};
use millstream_fabric::shm::ShmDevice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::radix::{
    INNER, OUTER, Outer, PATIENCE, Plan, Row, Variant, build_and_probe, declare, relation, send,
    share,
};
use super::failure::{FlowFailure, FlowResult};
use super::part::Part;
use super::tally::Tally;

#[allow(dead_code, reason = "the example program uses the rest")]
#[path = "../../../dfi/examples/radix_join/join.rs"]
mod radix;

/// The seeds of the inner and the outer relation, as in the baseline.
const SEEDS: [u64; 2] = [1, 2];

/// A join to measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct JoinPlan {
    pub(super) processes: usize,
    /// Whether the inner relation is replicated.
    pub(super) replicate: bool,
    pub(super) inner_rows: u64,
    pub(super) outer_rows: u64,
}

impl JoinPlan {
    /// A sender and a partition for each process.
    fn plan(&self) -> Plan {
        let variant = if self.replicate { Variant::Replicate } else { Variant::Radix };
        let partition_bits = self.processes.ilog2();
        Plan { variant, processes: self.processes, senders: self.processes, partition_bits }
    }

    /// Publishes the flows.
    pub(super) fn publish(&self, registry: &LocalRegistry) -> FlowResult<()> {
        let plan = self.plan();
        Ok(plan.flows().iter().try_for_each(|name| declare(name, plan, registry))?)
    }

    /// The join by a loop: how many pairs, and the sum of the products of their values.
    pub(super) fn expected(&self) -> Tally {
        let mut table: HashMap<u64, (u64, u64)> = HashMap::new();
        for (key, value) in relation(0..self.inner_rows, self.inner_rows, SEEDS[0]) {
            let (count, sum) = table.entry(key).or_default();
            (*count, *sum) = (*count + 1, *sum + u64::from(value));
        }
        let mut all = Tally::default();
        for (key, value) in relation(0..self.outer_rows, self.inner_rows, SEEDS[1]) {
            if let Some((count, sum)) = table.get(&key) {
                all.count += count;
                all.sum = all.sum.wrapping_add(sum.wrapping_mul(u64::from(value)));
            }
        }
        all
    }
}

/// Result of a process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct JoinEnd {
    nanoseconds: u64,
    joined: Tally,
}

type Sources = (SourceSetup<ShmDevice>, Option<SourceSetup<ShmDevice>>);
type Targets = (TargetSetup<ShmDevice>, Option<TargetSetup<ShmDevice>>);
type SourceEnds = (Source<ShmDevice>, Option<Source<ShmDevice>>);
type TargetEnds = (Target<ShmDevice>, Option<Target<ShmDevice>>);

/// Joins the flows as a process, and makes the process's rows.
pub(super) fn join(
    job: &JoinPlan,
    process: u32,
    device: &ShmDevice,
    registry: &RegistryClient,
) -> FlowResult<Box<dyn Part>> {
    let (plan, process) = (job.plan(), process as usize);
    let has_outer = plan.flows().contains(&OUTER);
    let thread = plan.sender(process);
    let source = |name| SourceSetup::join(device, registry, name, thread, PATIENCE);
    let sources = (source(INNER)?, has_outer.then(|| source(OUTER)).transpose()?);
    let thread = plan.partition(process);
    let target = |name| TargetSetup::join(device, registry, name, thread, PATIENCE);
    let targets = (target(INNER)?, has_outer.then(|| target(OUTER)).transpose()?);
    let rows = [(job.inner_rows, SEEDS[0]), (job.outer_rows, SEEDS[1])]
        .map(|(rows, seed)| relation(share(rows, process, job.processes), job.inner_rows, seed));
    Ok(Box::new(Joining { plan, rows, joined: Some((sources, targets)), ends: None }))
}

/// The sender and the partition of a process.
struct Joining {
    plan: Plan,
    rows: [Vec<Row>; 2],
    joined: Option<(Sources, Targets)>,
    ends: Option<(SourceEnds, TargetEnds)>,
}

impl Part for Joining {
    fn connect(&mut self, registry: &RegistryClient) -> FlowResult<()> {
        let Some(((source, other_source), (target, other_target))) = self.joined.take() else {
            return Ok(());
        };
        let sources = (
            source.connect(registry, PATIENCE)?,
            other_source.map(|one| one.connect(registry, PATIENCE)).transpose()?,
        );
        let targets = (
            target.connect(registry, PATIENCE)?,
            other_target.map(|one| one.connect(registry, PATIENCE)).transpose()?,
        );
        self.ends = Some((sources, targets));
        Ok(())
    }

    fn run(&mut self, _stopped: &AtomicBool) -> FlowResult<Value> {
        let Some((sources, (inner, outer))) = self.ends.take() else { return Ok(Value::Null) };
        let Joining { plan, rows: [inner_rows, outer_rows], .. } = self;
        let (plan, begin) = (*plan, Instant::now());
        let joined = std::thread::scope(|scope| {
            let rows = (inner_rows.as_slice(), outer_rows.as_slice());
            let sending = scope.spawn(move || send(sources, rows, plan));
            let outer = match outer {
                Some(outer) => Outer::Flow(outer.into()),
                None => Outer::Fragment(outer_rows),
            };
            let joined = build_and_probe(inner, outer, plan);
            sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            joined
        })?;
        let joined = Tally { count: joined.pairs, sum: joined.sum };
        Ok(json!(JoinEnd { nanoseconds: begin.elapsed().as_nanos() as u64, joined }))
    }
}

/// Checks what the processes say, and returns the time of the slowest.
pub(super) fn slowest(ends: Vec<Value>, expected: Tally) -> FlowResult<Duration> {
    let unreadable = |_| FlowFailure::Option("a process sends no numbers of a join".into());
    let read = |end| serde_json::from_value(end).map_err(unreadable);
    let ends = ends.into_iter().map(read).collect::<FlowResult<Vec<JoinEnd>>>()?;
    let found = ends.iter().map(|end| end.joined).fold(Tally::default(), Tally::plus);
    if found != expected {
        return Err(FlowFailure::Answer { expected, found });
    }
    Ok(Duration::from_nanos(ends.iter().map(|end| end.nanoseconds).max().unwrap_or(0)))
}
