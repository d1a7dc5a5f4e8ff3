//! Flows with aggregation at the target. Sources and targets work alike in real time and in a
//! simulated world.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use millstream_dfi::{
    Aggregate, Combined, Combiner, Flow, Registry, RegistryClient, Source, SourceSetup,
    TargetSetup, Thread, Value as DfiValue,
};
use millstream_fabric::Fabric;
use millstream_fabric::shm::ShmDevice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::{FlowFailure, FlowResult};
use super::mover::{PATIENCE, SILENCE};
use super::moving::{IDLE, Idle};
use super::part::Part;
use super::tally::Tally;
use super::tuples::{schema, with_words};

/// Groups of a flow.
const GROUPS: u64 = 64;
/// Tuples that a source pushes in a real turn.
const TURN: u64 = 1024;

/// A flow that aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct CombinePlan {
    /// 1 or 2, in a real run.
    pub(super) processes: usize,
    pub(super) sources: u32,
    pub(super) tuple_bytes: usize,
    /// Tuples of each source.
    pub(super) tuples: u64,
}

impl CombinePlan {
    fn source(&self, number: u32) -> Thread {
        Thread::new(1 + number, 0)
    }

    const TARGET: Thread = Thread::new(0, 0);

    /// Publishes the flow under a name.
    pub(super) fn publish(&self, name: &str, registry: &impl Registry) -> FlowResult<()> {
        Flow::combine(name)
            .sources((0..self.sources).map(|one| self.source(one)))
            .targets([CombinePlan::TARGET])
            .schema(schema(self.tuple_bytes))
            .silence(SILENCE)
            .publish(registry)?;
        Ok(())
    }

    /// Joins as a source.
    pub(super) fn join_source<F: Fabric>(
        &self,
        (name, number): (&str, u32),
        device: &F,
        registry: &impl Registry,
    ) -> FlowResult<SourceSetup<F>> {
        Ok(SourceSetup::join(device, registry, name, self.source(number), PATIENCE)?)
    }

    /// Joins as the target.
    pub(super) fn join_target<F: Fabric>(
        &self,
        name: &str,
        device: &F,
        registry: &impl Registry,
    ) -> FlowResult<TargetSetup<F>> {
        Ok(TargetSetup::join(device, registry, name, CombinePlan::TARGET, PATIENCE)?)
    }

    /// The sources' numbers are 0 to `tuples`; a tuple's group is the number's rest.
    fn expected(&self) -> Tally {
        let (count, sources) = (self.tuples, u64::from(self.sources));
        let sum = u128::from(count) * u128::from(count.saturating_sub(1)) / 2;
        Tally { count: count * sources, sum: (sum as u64).wrapping_mul(sources) }
    }

    /// Checks counts and sums of all groups together.
    pub(super) fn check<F: Fabric>(&self, combiner: &Combiner<F>) -> FlowResult<()> {
        let mut found = Tally::default();
        for group in combiner.rows() {
            if let Some(DfiValue::Count(count)) = group.value(0) {
                found.count += count;
            }
            if let Some(DfiValue::Integer(sum)) = group.value(1) {
                found.sum = found.sum.wrapping_add(sum as u64);
            }
        }
        let expected = self.expected();
        if found == expected { Ok(()) } else { Err(FlowFailure::Answer { expected, found }) }
    }
}

/// A source at work.
pub(super) struct Feeder<F: Fabric, const W: usize> {
    source: Source<F>,
    numbers: Range<u64>,
    tuple: [u64; W],
    pub(super) closed: bool,
}

impl<F: Fabric, const W: usize> Feeder<F, W> {
    pub(super) fn new(source: Source<F>, tuples: u64) -> Feeder<F, W> {
        Feeder { source, numbers: 0..tuples, tuple: [0; W], closed: false }
    }

    /// Pushes at most so many tuples, and closes after the last. Returns how many.
    pub(super) fn turn(&mut self, most: u64) -> FlowResult<u64> {
        let start = self.numbers.start;
        let end = self.numbers.end.min(start + most);
        let mut next = start;
        while next < end {
            (self.tuple[0], self.tuple[1]) = (next % GROUPS, next);
            if !self.source.try_push(&self.tuple)? {
                break;
            }
            next += 1;
        }
        self.numbers.start = next;
        if self.numbers.is_empty() {
            self.closed = self.closed || self.source.try_close()?;
        } else if next < end {
            self.source.progress()?;
        }
        Ok(next - start)
    }
}

/// The combiner of the figure: COUNT and SUM by group.
pub(super) fn combiner<F: Fabric>(
    setup: TargetSetup<F>,
    registry: &impl Registry,
) -> FlowResult<Combiner<F>> {
    let target = setup.connect(registry, PATIENCE)?;
    let aggregates = [Aggregate::count(), Aggregate::sum("number")];
    Ok(Combiner::new(target, &["key"], &aggregates)?)
}

/// Aggregates a segment, if one is there. Returns its tuples, and whether all sources have closed.
pub(super) fn step<F: Fabric>(
    combiner: &mut Combiner<F>,
    tuple_bytes: usize,
) -> FlowResult<(u64, bool)> {
    let before = combiner.target().counters().bytes;
    let is_over = combiner.try_step()? == Combined::End;
    let bytes = combiner.target().counters().bytes - before;
    Ok((bytes / tuple_bytes as u64, is_over))
}

/// The name of the flow of a real run.
pub(super) const FLOW: &str = "combined";

/// Joins as a process: the source, the target, or both.
pub(super) fn join(
    plan: &CombinePlan,
    process: u32,
    device: &ShmDevice,
    registry: &RegistryClient,
) -> FlowResult<Box<dyn Part>> {
    let last = process as usize + 1 == plan.processes;
    let source = (process == 0).then(|| plan.join_source((FLOW, 0), device, registry));
    let target = last.then(|| plan.join_target(FLOW, device, registry));
    let joined = Some((source.transpose()?, target.transpose()?));
    let plan = *plan;
    with_words!(plan.tuple_bytes, WORDS => {
        let (feeder, combiner) = (None, None);
        Ok(Box::new(Combining::<WORDS> { plan, joined, feeder, combiner }) as Box<dyn Part>)
    })
}

type Setups = (Option<SourceSetup<ShmDevice>>, Option<TargetSetup<ShmDevice>>);

/// The source and the target of a process.
struct Combining<const W: usize> {
    plan: CombinePlan,
    joined: Option<Setups>,
    feeder: Option<Feeder<ShmDevice, W>>,
    combiner: Option<Combiner<ShmDevice>>,
}

impl<const W: usize> Part for Combining<W> {
    fn connect(&mut self, registry: &RegistryClient) -> FlowResult<()> {
        let Some((source, target)) = self.joined.take() else { return Ok(()) };
        let source = source.map(|source| source.connect(registry, PATIENCE)).transpose()?;
        self.feeder = source.map(|source| Feeder::new(source, self.plan.tuples));
        self.combiner = target.map(|target| combiner(target, registry)).transpose()?;
        Ok(())
    }

    /// Returns the nanoseconds of this process.
    fn run(&mut self, stopped: &AtomicBool) -> FlowResult<Value> {
        let Combining { plan, feeder, combiner, .. } = self;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let feeding = feeder.as_mut().map(|feeder| {
                scope.spawn(|| {
                    let mut idle = Idle::new(IDLE);
                    while !feeder.closed {
                        let pushed = feeder.turn(TURN)?;
                        idle.turn(pushed > 0, stopped)?;
                    }
                    FlowResult::Ok(())
                })
            });
            let mut idle = Idle::new(IDLE);
            if let Some(combiner) = combiner.as_mut() {
                loop {
                    let (taken, is_over) = step(combiner, plan.tuple_bytes)?;
                    if is_over {
                        break;
                    }
                    idle.turn(taken > 0, stopped)?;
                }
            }
            feeding.map_or(Ok(()), |feeding| {
                feeding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        let nanoseconds = begin.elapsed().as_nanos() as u64;
        if let Some(combiner) = combiner {
            plan.check(combiner)?;
        }
        Ok(json!(nanoseconds))
    }
}
