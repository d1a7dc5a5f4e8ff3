//! The threads of a measured flow. A mover is a source, some targets, or both by turns, and works
//! alike in real time and in a simulated world.

use std::time::{Duration, Instant};

use millstream_dfi::{
    Bandwidth, Consumed, Counters, Flow, Latency, Registry, Result, Route, Source, SourceSetup,
    Target, TargetSetup, Thread,
};
use millstream_fabric::Fabric;
use serde::{Deserialize, Serialize};

use super::tally::Tally;
use super::tuples::{Maker, Receivers, schema};
use crate::shuffle::COMPUTE_BYTES;

/// Name of the measured flow.
pub(super) const FLOW: &str = "measured";
/// Threads may be late to connect where there are more of them than cores.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// Patience with threads that have not joined.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Most targets of a mover.
const TARGETS_MAX: u32 = 64;

/// The kinds of measured flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Movement {
    /// A tuple goes to the target of its key's hash.
    Shuffle,
    /// Source i sends to target i.
    Pairs,
    /// A tuple goes to every target, over rings.
    Replicate,
    /// The same as datagrams to a group.
    Multicast,
}

/// A thread's part in a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mover {
    /// The process, or the simulated node.
    pub(super) node: u32,
    /// Whether the thread is a source.
    pub(super) source: bool,
    /// How many targets the thread is.
    pub(super) targets: u32,
}

/// So many nodes with so many sources and as many targets, each a thread of its own.
pub(super) fn full_mesh(nodes: u32, threads: u32) -> Vec<Mover> {
    let both = |node| [(node, true), (node, false)];
    let movers = (0..nodes).flat_map(|node| std::iter::repeat_n(node, threads as usize));
    let mover = |(node, source)| Mover { node, source, targets: u32::from(!source) };
    movers.flat_map(both).map(mover).collect()
}

/// A flow to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FlowPlan {
    pub(super) movement: Movement,
    pub(super) movers: Vec<Mover>,
    pub(super) tuple_bytes: usize,
    /// Tuples of each source.
    pub(super) tuples: u64,
    /// Bytes of a segment, and segments of the rings at targets and sources.
    pub(super) segment: usize,
    pub(super) segments: usize,
    pub(super) source_segments: usize,
    /// Whether a segment is a tuple.
    pub(super) latency: bool,
    /// Microseconds to compute over 32 KiB of received tuples, besides the sum.
    pub(super) compute_us: f64,
    /// The same for node 0, if it is slower than the others.
    pub(super) straggler_us: Option<f64>,
}

impl FlowPlan {
    /// A flow with the thesis' rings.
    pub(super) fn new(movement: Movement, movers: Vec<Mover>, tuple_bytes: usize) -> FlowPlan {
        let goal = match movement {
            Movement::Multicast => Bandwidth::DATAGRAMS,
            _ => Bandwidth::default(),
        };
        let Bandwidth { segment, segments, source_segments } = goal;
        FlowPlan {
            movement,
            movers,
            tuple_bytes,
            tuples: 0,
            segment,
            segments,
            source_segments,
            latency: false,
            compute_us: 0.0,
            straggler_us: None,
        }
    }

    /// The same with so many bytes from all sources together, in whole tuples.
    pub(super) fn with_bytes(mut self, bytes: u64) -> FlowPlan {
        let sources = self.threads(true).count().max(1) as u64;
        self.tuples = (bytes / sources / self.tuple_bytes as u64).max(1);
        self
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.movers.iter().map(|mover| mover.node as usize + 1).max().unwrap_or(1)
    }

    /// Tuples of a full segment.
    pub(super) fn per_segment(&self) -> u64 {
        if self.latency {
            return 1;
        }
        (self.segment / self.tuple_bytes).max(1) as u64
    }

    /// Whether every target gets every tuple.
    fn is_to_all(&self) -> bool {
        matches!(self.movement, Movement::Replicate | Movement::Multicast)
    }

    /// The threads of an end, in the order of the declaration.
    pub(super) fn threads(&self, sources: bool) -> impl Iterator<Item = Thread> + '_ {
        self.movers.iter().zip(0_u32..).flat_map(move |(mover, at)| {
            let count = if sources { u32::from(mover.source) } else { mover.targets };
            (0..count).map(move |one| Thread::new(mover.node, at * TARGETS_MAX + one))
        })
    }

    /// The flow, declared.
    pub(super) fn flow(&self) -> Flow {
        let flow = match self.is_to_all() {
            true => Flow::replicate(FLOW),
            false => Flow::shuffle(FLOW).route(Route::Explicit),
        };
        let (segment, segments, source_segments) =
            (self.segment, self.segments, self.source_segments);
        let flow = flow
            .sources(self.threads(true))
            .targets(self.threads(false))
            .schema(schema(self.tuple_bytes))
            .silence(SILENCE);
        let flow = match self.latency {
            true => flow.optimise(Latency { segments }),
            false => flow.optimise(Bandwidth { segment, segments, source_segments }),
        };
        if self.movement == Movement::Multicast { flow.multicast() } else { flow }
    }

    /// The tuples that all targets together have to get, from the tuples that were sent.
    pub(super) fn expected(&self, sent: Tally) -> Tally {
        let copies = if self.is_to_all() { self.threads(false).count() as u64 } else { 1 };
        sent.times(copies)
    }

    /// The maker of the tuples of a mover's source: source i has the i-th share of the numbers.
    fn maker<const W: usize>(&self, mover: usize) -> Maker<W> {
        let index = self.movers[..mover].iter().filter(|one| one.source).count();
        let first = index as u64 * self.tuples;
        let targets = self.threads(false).count();
        let receivers = match self.movement {
            Movement::Shuffle => Receivers::ByHash,
            Movement::Pairs => Receivers::One(index % targets.max(1)),
            Movement::Replicate | Movement::Multicast => Receivers::All,
        };
        Maker::new(first..first + self.tuples, targets, receivers)
    }

    /// How long a mover computes over received bytes.
    fn compute(&self, mover: usize) -> Duration {
        let slow = self.straggler_us.filter(|_| self.movers[mover].node == 0);
        Duration::from_secs_f64(slow.unwrap_or(self.compute_us) / 1e6)
    }
}

/// The ends of a mover, joined and not connected.
pub(super) struct MoverSetup<F: Fabric> {
    source: Option<SourceSetup<F>>,
    targets: Vec<TargetSetup<F>>,
}

impl<F: Fabric> MoverSetup<F> {
    /// Joins the plan's flow, which is published.
    pub(super) fn join(
        plan: &FlowPlan,
        mover: usize,
        fabric: &F,
        registry: &impl Registry,
    ) -> Result<MoverSetup<F>> {
        let Mover { node, source, targets } = plan.movers[mover];
        let thread = |one: u32| Thread::new(node, mover as u32 * TARGETS_MAX + one);
        let source = source
            .then(|| SourceSetup::join(fabric, registry, FLOW, thread(0), PATIENCE))
            .transpose()?;
        let targets = (0..targets)
            .map(|one| TargetSetup::join(fabric, registry, FLOW, thread(one), PATIENCE))
            .collect::<Result<_>>()?;
        Ok(MoverSetup { source, targets })
    }

    /// Connects, once all movers have joined.
    pub(super) fn connect<const W: usize>(
        self,
        plan: &FlowPlan,
        mover: usize,
        registry: &impl Registry,
    ) -> Result<Moving<F, W>> {
        let source = self.source.map(|source| source.connect(registry, PATIENCE)).transpose()?;
        let connect = |target: TargetSetup<F>| Ok((target.connect(registry, PATIENCE)?, false));
        let targets = self.targets.into_iter().map(connect).collect::<Result<_>>()?;
        let compute = plan.compute(mover);
        Ok(Moving {
            source: source.map(|source| (source, plan.maker(mover))),
            closed: false,
            targets,
            received: Tally::default(),
            compute,
        })
    }
}

/// A thread at work.
pub(super) struct Moving<F: Fabric, const W: usize> {
    source: Option<(Source<F>, Maker<W>)>,
    closed: bool,
    /// Each with whether it has ended.
    targets: Vec<(Target<F>, bool)>,
    received: Tally,
    compute: Duration,
}

/// Result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Did {
    /// Tuples pushed and taken.
    pub(super) pushed: u64,
    pub(super) taken: u64,
    /// Whether the mover's source is closed and its targets have ended.
    pub(super) all: bool,
}

impl<F: Fabric, const W: usize> Moving<F, W> {
    /// Pushes at most so many tuples, and takes at most so many batches from each target.
    pub(super) fn turn(&mut self, tuples: u64, batches: usize) -> Result<Did> {
        let pushed = self.push(tuples)?;
        let taken = self.take(batches)?;
        let has_closed = self.source.is_none() || self.closed;
        let all = has_closed && self.targets.iter().all(|(_, ended)| *ended);
        Ok(Did { pushed, taken, all })
    }

    /// Pushes, and closes the source after its last tuple.
    pub(super) fn push(&mut self, tuples: u64) -> Result<u64> {
        let Some((source, maker)) = &mut self.source else { return Ok(0) };
        if self.closed {
            return Ok(0);
        }
        let pushed = maker.push(source, tuples)?;
        if maker.is_done() {
            self.closed = source.try_close()?;
        } else if pushed < tuples {
            source.progress()?;
        }
        Ok(pushed)
    }

    /// Takes batches and adds them up.
    pub(super) fn take(&mut self, batches: usize) -> Result<u64> {
        let before = self.received.count;
        let Moving { targets, received, compute, .. } = self;
        for (target, ended) in targets {
            for _ in 0..batches {
                if *ended {
                    break;
                }
                match target.try_consume()? {
                    Consumed::Batch(batch) => {
                        let begin = (!compute.is_zero()).then(Instant::now);
                        received.add_all::<W>(batch.bytes());
                        if let Some(begin) = begin {
                            linger::<W>(batch.bytes(), begin, *compute);
                        }
                    }
                    Consumed::End => *ended = true,
                    Consumed::Empty | Consumed::Gap(_) => break,
                }
            }
        }
        Ok(self.received.count - before)
    }

    /// Pushed tuples and taken tuples.
    pub(super) fn tallies(&self) -> [Tally; 2] {
        let sent = self.source.as_ref().map(|(_, maker)| maker.sent());
        [sent.unwrap_or_default(), self.received]
    }

    /// Counters of the source.
    pub(super) fn source_counters(&self) -> Counters {
        self.source.as_ref().map(|(source, _)| source.counters()).unwrap_or_default()
    }
}

/// Computes over a batch until it has taken the time for its length, from `begin`.
fn linger<const W: usize>(bytes: &[u8], begin: Instant, compute: Duration) {
    let time = compute.mul_f64(bytes.len() as f64 / COMPUTE_BYTES as f64);
    while begin.elapsed() < time {
        let mut unused = Tally::default();
        unused.add_all::<W>(bytes);
        std::hint::black_box(unused);
    }
}
