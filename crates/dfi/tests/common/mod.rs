//! What the tests share: a flow between devices of one process, and a run of it on one thread that
//! checks everything that arrives.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod casting;
#[path = "../../examples/kv_store/chance.rs"]
mod chance;
pub(crate) mod order;
pub(crate) mod stopping;
pub(crate) mod suite;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use millstream_dfi::{
    Consumed, Declaration, Error, Flow, LocalRegistry, Registry, Result, Schema, Source,
    SourceSetup, Target, TargetSetup, Thread,
};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_fabric::tcp::TcpDevice;

pub(crate) use chance::Chance;
use chance::mix;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

millstream_dfi::tuple! {
    /// A tuple whose fields tell where it comes from and whether it is whole.
    pub(crate) struct Row {
        pub(crate) key: u64,
        pub(crate) source: u64,
        pub(crate) number: u64,
        pub(crate) check: u64,
    }
}

impl Row {
    pub(crate) fn new(source: u64, number: u64) -> Row {
        let key = mix(source << 32 | number) % 61;
        Row { key, source, number, check: mix(key ^ source.rotate_left(17) ^ number) }
    }

    pub(crate) fn is_whole(&self) -> bool {
        *self == Row::new(self.source, self.number)
    }

    pub(crate) fn schema() -> Schema {
        <Row as millstream_dfi::Tuple>::schema()
    }
}

/// Number of seeds of a test: `MILLSTREAM_SEEDS`, or a few.
pub(crate) fn seeds(usual: u64) -> u64 {
    let text = std::env::var("MILLSTREAM_SEEDS").ok();
    text.map_or(usual, |text| text.parse().expect("MILLSTREAM_SEEDS is a number"))
}

/// So many devices over shared memory.
pub(crate) fn shm(count: usize) -> Vec<ShmDevice> {
    let token = Token::random().unwrap();
    (0..count).map(|_| ShmDevice::open(token).unwrap()).collect()
}

/// So many devices over TCP.
pub(crate) fn tcp(count: usize) -> Vec<TcpDevice> {
    let token = Token::random().unwrap();
    (0..count).map(|_| TcpDevice::open(token, (Ipv4Addr::LOCALHOST, 0).into()).unwrap()).collect()
}

/// Threads 0 to `count` of the nodes, by turns.
pub(crate) fn threads(count: usize, nodes: usize, first: u32) -> Vec<Thread> {
    (0..count).map(|at| Thread::new((at % nodes) as u32, first + at as u32)).collect()
}

/// A simulated world with so many nodes.
pub(crate) fn simulated(seed: u64, model: Model, nodes: usize) -> (Sim, Vec<SimDevice>) {
    let sim = Sim::new(seed);
    let devices = (0..nodes).map(|_| sim.node(model)).collect();
    (sim, devices)
}

/// A flow whose ends are all in this process. Thread `t` of node `n` runs on device `n`.
pub(crate) struct Ends<F: Fabric> {
    pub(crate) sources: Vec<Source<F>>,
    pub(crate) targets: Vec<Target<F>>,
}

/// Publishes, joins and connects.
pub(crate) fn connect<F: Fabric>(
    devices: &[F],
    flow: Flow,
    (sources, targets): (&[Thread], &[Thread]),
) -> Result<Ends<F>> {
    let registry = LocalRegistry::new();
    let flow = flow.sources(sources.iter().copied()).targets(targets.iter().copied());
    flow.publish(&registry)?;
    join(devices, &registry, (sources, targets), true)
}

/// Joins and connects all ends of the flow "f".
pub(crate) fn join<F: Fabric>(
    devices: &[F],
    registry: &impl Registry,
    (sources, targets): (&[Thread], &[Thread]),
    checked: bool,
) -> Result<Ends<F>> {
    let device = |thread: &Thread| &devices[thread.node as usize];
    let source = |one: &Thread| SourceSetup::join(device(one), registry, "f", *one, PATIENCE);
    let target = |one: &Thread| match checked {
        true => TargetSetup::join(device(one), registry, "f", *one, PATIENCE),
        false => TargetSetup::join_unchecked(device(one), registry, "f", *one, PATIENCE),
    };
    let sources: Vec<_> = sources.iter().map(source).collect::<Result<_>>()?;
    let targets: Vec<_> = targets.iter().map(target).collect::<Result<_>>()?;
    Ok(Ends {
        sources: sources
            .into_iter()
            .map(|one| one.connect(registry, PATIENCE))
            .collect::<Result<_>>()?,
        targets: targets
            .into_iter()
            .map(|one| one.connect(registry, PATIENCE))
            .collect::<Result<_>>()?,
    })
}

/// The declaration of a flow, as a registry gives it.
pub(crate) fn declared(flow: Flow) -> Result<Declaration> {
    let registry = LocalRegistry::new();
    flow.publish(&registry)?;
    registry.look_up("f", Duration::ZERO)
}

/// What a run saw at a target, by source: the numbers of its tuples.
pub(crate) type Arrived = Vec<HashMap<u64, Vec<u64>>>;

/// What a target consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Consumption {
    /// A tuple, by its source and its number.
    Tuple(u64, u64),
    /// A gap.
    Gap(u64),
}

/// How a run goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Tuples of each source.
    pub(crate) tuples: u64,
    /// A target is called once in so many of its turns.
    pub(crate) slow: usize,
    /// A source flushes once in so many of its turns; 0: never.
    pub(crate) flush: usize,
    /// Whether pushes name their targets.
    pub(crate) explicit: bool,
    pub(crate) steps_max: usize,
}

impl Plan {
    pub(crate) fn new(seed: u64, tuples: u64) -> Plan {
        Plan { seed, tuples, slow: 2, flush: 0, explicit: false, steps_max: 20_000_000 }
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) arrived: Arrived,
    /// By target: what it consumed, in its order.
    pub(crate) orders: Vec<Vec<Consumption>>,
    /// Tuples that were damaged.
    pub(crate) damaged: u64,
    /// Ends that failed: index, error, and the time by the clock.
    pub(crate) source_errors: Vec<(usize, Error, Duration)>,
    pub(crate) target_errors: Vec<(usize, Error, Duration)>,
    /// Tuples pushed by each source.
    pub(crate) pushed: Vec<u64>,
    pub(crate) unfinished: usize,
}

/// Runs all ends on this thread, in an order drawn from the seed; `idle` lets time pass.
pub(crate) fn run<F: Fabric>(
    ends: &mut Ends<F>,
    plan: Plan,
    mut idle: impl FnMut(usize),
) -> Outcome {
    let all = vec![false; ends.sources.len() + ends.targets.len()];
    run_with(
        ends,
        plan,
        |step, _| {
            idle(step);
            Duration::ZERO
        },
        all,
    )
}

/// The same; `idle` may also mark ends, sources first, that are not called any more, and returns
/// the time. `done` are ends that are never called.
pub(crate) fn run_with<F: Fabric>(
    ends: &mut Ends<F>,
    plan: Plan,
    mut idle: impl FnMut(usize, &mut [bool]) -> Duration,
    mut done: Vec<bool>,
) -> Outcome {
    let (sources, targets) = (ends.sources.len(), ends.targets.len());
    let mut outcome = Outcome {
        arrived: vec![HashMap::new(); targets],
        orders: vec![Vec::new(); targets],
        pushed: vec![0; sources],
        unfinished: sources + targets,
        ..Outcome::default()
    };
    let mut chance = Chance(plan.seed);
    for step in 0..plan.steps_max {
        let now = idle(step, &mut done);
        outcome.unfinished = done.iter().filter(|done| !**done).count();
        if outcome.unfinished == 0 {
            break;
        }
        let at = chance.below(sources + targets);
        if done[at] {
            continue;
        }
        let finished = if at < sources {
            let pushed = &mut outcome.pushed[at];
            let result = source_turn(&mut ends.sources[at], (at, pushed), plan, &mut chance);
            result.unwrap_or_else(|error| {
                outcome.source_errors.push((at, error, now));
                true
            })
        } else {
            if chance.below(plan.slow) > 0 {
                continue;
            }
            let at = at - sources;
            let result = target_turn(
                &mut ends.targets[at],
                (&mut outcome.arrived[at], &mut outcome.orders[at]),
            );
            result
                .map(|(finished, damaged)| (outcome.damaged += damaged, finished).1)
                .unwrap_or_else(|error| {
                    outcome.target_errors.push((at, error, now));
                    true
                })
        };
        done[at] = finished;
    }
    outcome
}

/// A few pushes, or a step towards the end. Returns whether the source is closed.
fn source_turn<F: Fabric>(
    source: &mut Source<F>,
    (at, pushed): (usize, &mut u64),
    plan: Plan,
    chance: &mut Chance,
) -> Result<bool> {
    if *pushed == plan.tuples {
        return source.try_close();
    }
    if plan.flush > 0 && chance.below(plan.flush) == 0 {
        source.try_flush()?;
        return Ok(false);
    }
    for _ in 0..1 + chance.below(8) {
        let row = Row::new(at as u64, *pushed);
        let went = match plan.explicit {
            true => source.try_push_to((*pushed % source.targets() as u64) as usize, &row)?,
            false => source.try_push(&row)?,
        };
        if !went {
            break;
        }
        *pushed += 1;
        if *pushed == plan.tuples {
            break;
        }
    }
    Ok(false)
}

/// A batch. Returns whether all sources have closed, and how many tuples were damaged.
fn target_turn<F: Fabric>(
    target: &mut Target<F>,
    (arrived, order): (&mut HashMap<u64, Vec<u64>>, &mut Vec<Consumption>),
) -> Result<(bool, u64)> {
    let mut damaged = 0;
    match target.try_consume()? {
        Consumed::Batch(batch) => {
            for row in batch.rows::<Row>()? {
                if row.is_whole() && row.source == batch.source() as u64 {
                    arrived.entry(row.source).or_default().push(row.number);
                    order.push(Consumption::Tuple(row.source, row.number));
                } else {
                    damaged += 1;
                }
            }
            Ok((false, damaged))
        }
        Consumed::Gap(number) => {
            order.push(Consumption::Gap(number));
            Ok((false, 0))
        }
        Consumed::Empty => Ok((false, 0)),
        Consumed::End => Ok((true, 0)),
    }
}

/// Checks that all ended well: nothing lost, doubled, damaged or out of order, and every tuple is
/// where its route says. `copies`: how many targets get each tuple.
pub(crate) fn check(outcome: &Outcome, plan: Plan, copies: usize) {
    let errors = (&outcome.source_errors, &outcome.target_errors);
    assert!(errors.0.is_empty() && errors.1.is_empty(), "{plan:?}: {errors:?}");
    assert_eq!((outcome.damaged, outcome.unfinished), (0, 0), "{plan:?}");
    let mut seen: HashMap<(u64, u64), usize> = HashMap::new();
    for arrived in &outcome.arrived {
        for (source, numbers) in arrived {
            assert!(numbers.is_sorted_by(|a, b| a < b), "{plan:?}: source {source} reordered");
            numbers.iter().for_each(|number| *seen.entry((*source, *number)).or_default() += 1);
        }
    }
    let sources = outcome.pushed.len() as u64;
    assert_eq!(seen.len() as u64, sources * plan.tuples, "{plan:?}: tuples are missing");
    assert!(seen.values().all(|times| *times == copies), "{plan:?}: copies");
}
