//! Projections: how long a job would take on machines that do not exist here.
//!
//! A whole job, with all its processes and the engine's own code, runs on one thread over the
//! fabric `sim`, twice. The first time ([`measure`]), the parts of its steps are timed: batches,
//! merges, firing and others. This gives a price for each kind of part ([`Kind`]). The second time
//! ([`project`]), every worker has a virtual clock. The worker whose clock is lowest runs a step,
//! and its clock advances by the prices of what the step did. Messages take the time of a stated
//! network [`Model`]. The projection is the time of the worker that finishes last. The same prices
//! always give the same projection.
//!
//! The cost of messages for a processor is not measured here, because `sim` is not the fabric of
//! any real machine. It is part of the machine's description, and the laboratory measures it
//! between two threads.
//!
//! What the model leaves out: contention for memory, except for what the measuring run itself is
//! exposed to; the operating system, except for time slices and waking up; and the cost of polling
//! in vain. What a step sends leaves when the step begins.

mod clocks;

use std::sync::Arc;
use std::time::Duration;

use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_flow::channel::Settings as Channels;

pub use crate::meter::{Kind, Price};

use crate::error::{Error, Result};
use crate::job::Job;
use crate::meter::{Meter, Prices, Tallies};
use crate::network::MeshOptions;
use crate::plan::Plan;
use crate::settings::{Exchange, Settings};
use crate::simulation::{Process, meshes};
use crate::sink::Sink;
use crate::stats::Stats;
use crate::worker::Step;
use millstream_operators::env::{Clocked, Env};

/// A job to project: a process for each sink.
#[derive(Debug, Clone, Copy)]
pub struct Projected<'a> {
    /// What all processes run.
    pub plan: &'a Plan,
    /// Of each process.
    pub settings: &'a Settings,
    /// Of all channels.
    pub channels: Channels,
}

/// The machines that a job is projected to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Those that all workers share; `None` if each has its own.
    pub processors: Option<Shared>,
    /// Between processes.
    pub network: Model,
    /// What it takes a sleeping worker to wake up.
    pub wake: Duration,
    /// What it takes the worker that wakes another.
    pub waking: Duration,
}

/// Processors that all workers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// How many there are.
    pub number: usize,
    /// How long a worker keeps its processor while others want it.
    pub slice: Duration,
}

/// Prices of what steps do.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    prices: Prices,
    /// Nanoseconds that were measured, by kind.
    measured_ns: [f64; Kind::ALL.len()],
}

/// What a projection came to.
#[derive(Debug)]
pub struct Projection {
    /// From the start to the end of the last process.
    pub time: Duration,
    /// How much of that time a worker was at work, the mean of all.
    pub busy: f64,
    /// Counters, by process.
    pub stats: Vec<Stats>,
}

impl Costs {
    /// Given prices; what is not given costs nothing.
    pub fn given(prices: &[(Kind, Price)]) -> Costs {
        let none = Costs { prices: Prices::default(), measured_ns: Default::default() };
        prices.iter().fold(none, |costs, (kind, price)| costs.with(*kind, *price))
    }

    /// The same with another price for a kind, for example what a message costs over a certain
    /// fabric.
    pub fn with(mut self, kind: Kind, price: Price) -> Costs {
        self.prices[kind as usize] = price;
        self
    }

    /// Between these costs and others: a `share` of the way, between 0 and 1.
    pub fn towards(mut self, other: &Costs, share: f64) -> Costs {
        let between = |a: &mut f64, b: f64| *a += (b - *a) * share.clamp(0.0, 1.0);
        for (price, other) in self.prices.iter_mut().zip(&other.prices) {
            between(&mut price.span_ns, other.span_ns);
            between(&mut price.unit_ns, other.unit_ns);
        }
        for (ns, other) in self.measured_ns.iter_mut().zip(&other.measured_ns) {
            between(ns, *other);
        }
        self
    }

    /// Of one kind.
    pub fn price(&self, kind: Kind) -> Price {
        self.prices[kind as usize]
    }

    /// The share of a kind in all that was measured, between 0 and 1.
    pub fn share(&self, kind: Kind) -> f64 {
        let all: f64 = self.measured_ns.iter().sum();
        if all > 0.0 { self.measured_ns[kind as usize] / all } else { 0.0 }
    }
}

/// Steps that a worker runs before the next has its turn while they are measured: so many that its
/// data are in its caches most of the time, as where it has a processor to itself.
const STRETCH: usize = 8;

/// Runs the job on this thread and measures what its steps cost. Kinds of the fabric
/// ([`Kind::of_fabric`]) are free then: [`Costs::with`] adds them.
///
/// # Errors
/// What the job itself fails with.
pub fn measure(job: Projected<'_>, sinks: &[Arc<dyn Sink>]) -> Result<Costs> {
    // Messages take hardly any time: only work is looked at.
    let fast = Model {
        bytes_per_s: u64::MAX / 4,
        messages_per_s: 1_000_000_000,
        latency: Duration::from_nanos(100),
        ..Model::default()
    };
    let mut running = Running::new(job, sinks, fast)?;
    let mut clocks_us = vec![vec![0; job.settings.workers]; sinks.len()];
    let meter = Meter::measuring();
    let mut all = Tallies::default();
    let mut idle_rounds = 0;
    while !running.is_over() {
        let mut some = false;
        for (process, clocks_us) in clocks_us.iter_mut().enumerate() {
            for worker in running.awake(process) {
                let mut end_us = 0;
                let clock_us = match worker {
                    Some(worker) => &mut clocks_us[worker],
                    None => &mut end_us,
                };
                some |= running.stretch(process, worker, &meter, &mut all, clock_us);
            }
        }
        // Sources and epochs wait for time to pass.
        idle_rounds = if some { 0 } else { idle_rounds + 1 };
        if idle_rounds > 0 {
            clocks_us.iter_mut().flatten().for_each(|clock_us| *clock_us += 1_000);
        }
        if idle_rounds > IDLE_ROUNDS_MAX {
            return Err(Error::Internal("all workers wait for each other".into()));
        }
    }
    running.outcomes()?;
    let mut costs = Costs::given(&[]);
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.of_fabric()) {
        costs.prices[kind as usize] = all[kind as usize].price();
        costs.measured_ns[kind as usize] = all[kind as usize].ns.max(0.0);
    }
    Ok(costs)
}

/// More than any timeout, in rounds of a millisecond.
const IDLE_ROUNDS_MAX: u32 = 100_000;

/// Runs the job on this thread, in virtual time.
///
/// # Errors
/// What the job itself fails with.
pub fn project(
    job: Projected<'_>,
    sinks: &[Arc<dyn Sink>],
    machine: &Machine,
    costs: &Costs,
) -> Result<Projection> {
    let running = Running::new(job, sinks, machine.network)?;
    let meter = Meter::charging(costs.prices);
    clocks::run(running, machine, job.settings.workers, &meter)
}

/// The processes of a job, and their surroundings.
struct Running {
    env: Arc<Clocked>,
    sim: Sim,
    processes: Vec<Process>,
}

const START_US: i64 = 1_700_000_000_000_000;

impl Running {
    fn new(job: Projected<'_>, sinks: &[Arc<dyn Sink>], network: Model) -> Result<Running> {
        let Projected { plan, settings, channels } = job;
        let (env, sim) = (Arc::new(Clocked::new(START_US)), Sim::new(0));
        let alone = sinks.len() == 1 && settings.exchange == Exchange::LateMerge;
        let meshes = match alone {
            true => vec![None],
            false => {
                let devices: Vec<SimDevice> = sinks.iter().map(|_| sim.node(network)).collect();
                let options = MeshOptions::new(settings, plan.state_stages());
                meshes(&devices, options, channels)?.into_iter().map(Some).collect()
            }
        };
        let process = |(mesh, sink): (_, &Arc<dyn Sink>)| {
            let env: Arc<dyn Env> = env.clone();
            let job = Job::prepare(plan, settings, vec![sink.clone()], env, START_US, mesh)?;
            Ok(Process::new(job))
        };
        let processes = meshes.into_iter().zip(sinks).map(process).collect::<Result<_>>()?;
        Ok(Running { env, sim, processes })
    }

    /// Workers of a process that are not done; `None` is the end of its streams, when all are.
    fn awake(&self, process: usize) -> Vec<Option<usize>> {
        let Process { running, result, .. } = &self.processes[process];
        match (&running[..], result) {
            (_, Some(_)) => Vec::new(),
            ([], None) => vec![None],
            (running, None) => running.iter().copied().map(Some).collect(),
        }
    }

    fn is_over(&self) -> bool {
        self.processes.iter().all(|process| process.result.is_some())
    }

    /// Runs a step at a time, at which it is `now_us` for the worker.
    fn step(&mut self, process: usize, worker: Option<usize>, now_us: i64) -> Step {
        self.env.set(START_US + now_us);
        let process = &mut self.processes[process];
        let choice = process.running.iter().position(|running| Some(*running) == worker);
        process.step(choice.unwrap_or(0))
    }

    /// Runs steps of a worker as long as it has something to do, at most [`STRETCH`]; returns
    /// whether it had.
    fn stretch(
        &mut self,
        process: usize,
        worker: Option<usize>,
        meter: &Meter,
        all: &mut Tallies,
        clock_us: &mut i64,
    ) -> bool {
        for number in 0..STRETCH {
            let step = self.step(process, worker, *clock_us);
            let tallies = meter.tallies();
            self.sim.advance(Duration::from_micros(1));
            if matches!(step, Step::Wait { .. }) {
                return number > 0;
            }
            let mut ns = 0.0;
            for (sum, tally) in all.iter_mut().zip(&tallies) {
                sum.merge(tally);
                ns += tally.ns;
            }
            *clock_us += (ns / 1e3) as i64;
            if step == Step::Done {
                break;
            }
        }
        true
    }

    /// What all processes came to; the first error, if there is one.
    fn outcomes(self) -> Result<Vec<Stats>> {
        let outcome = |process: Process| match process.result {
            Some((stats, Ok(()))) => Ok(stats),
            Some((_, Err(error))) => Err(error),
            None => Err(Error::Internal("the projection stopped".into())),
        };
        self.processes.into_iter().map(outcome).collect()
    }
}
