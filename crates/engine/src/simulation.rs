//! Deterministic simulation: a whole job, of one process or of several, on one thread, in virtual
//! time, with every choice drawn from a seed.
//!
//! One step at a time, a random worker of a random process runs. Between processes is the fabric
//! `sim`, with slow and cut links and with nodes that stop. What control connections do in a real
//! job happens here after a random time: when a process has failed or is gone, the others are told
//! to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_flow::channel::Settings as Channels;

use crate::checkpoint::{Checkpoints, Resume};
use crate::error::{Error, Result};
use crate::job::{Job, Stopper, run_guarded};
use crate::network::{Mesh, MeshOptions, MeshSetup, peer_error};
use crate::plan::Plan;
use crate::roles::Place;
use crate::settings::Settings;
use crate::sink::Sink;
use crate::stats::Stats;
use crate::worker::{Step, Worker};
use millstream_operators::env::{Env, Simulated};

/// Events and settings of a simulated job of several processes.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Every choice follows from it.
    pub seed: u64,
    /// Settings of all channels: rings may be tiny.
    pub channels: Channels,
    /// One-way latency of the links.
    pub latency: Duration,
    /// Per process: it runs a step where one that is not slow runs so many. There are as many
    /// processes as entries.
    pub slowness: Vec<u32>,
    /// Faults, each after a number of steps of all workers.
    pub faults: Vec<(u64, Fault)>,
    /// After how many steps which process is asked to drain the job.
    pub drain: Option<(u64, usize)>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process is gone, without a word.
    Kill(usize),
    /// Nothing passes between two processes.
    Cut(usize, usize),
    /// Everything passes again.
    Mend(usize, usize),
}

impl Scenario {
    /// So many processes, of which nothing is known but the seed: rings, latency and who is slow
    /// follow from it, and nothing goes wrong.
    pub fn from_seed(seed: u64, processes: usize) -> Scenario {
        let chance = Simulated::new(seed, 0);
        let pick = |from: &[u32]| from[chance.choose(from.len() as u64).unwrap_or(0) as usize];
        Scenario {
            seed,
            channels: Channels {
                slots: pick(&[1, 2, 3, 8]) as usize,
                slot_bytes: pick(&[512, 1024, 4096, 65_536]) as usize,
                ..Channels::default()
            },
            latency: Duration::from_micros(pick(&[1, 20, 1000]).into()),
            slowness: (0..processes).map(|_| pick(&[1, 1, 3, 30])).collect(),
            faults: Vec::new(),
            drain: None,
        }
    }
}

/// Result of a process; `None` for a killed process.
pub type Outcome = Option<(Stats, Result<()>)>;

/// Runs a job of several processes; `sinks` has the sinks of each. Returns the results of the
/// processes, and the faults that came while any process ran.
pub fn simulate(
    plan: &Plan,
    settings: &Settings,
    sinks: &[Vec<Arc<dyn Sink>>],
    scenario: &Scenario,
) -> Result<(Vec<Outcome>, Vec<Fault>)> {
    simulate_from(plan, settings, sinks, scenario, (&Resume::default(), &[]), |_| ())
}

/// As [`simulate`], for a job that goes on where an earlier job stood; the [`Checkpoints`] of each
/// process take its cuts. `begins` is given a handle of each process before the job runs.
pub fn simulate_from(
    plan: &Plan,
    settings: &Settings,
    sinks: &[Vec<Arc<dyn Sink>>],
    scenario: &Scenario,
    (from, checkpoints): (&Resume, &[Arc<dyn Checkpoints>]),
    begins: impl FnOnce(Vec<Stopper>),
) -> Result<(Vec<Outcome>, Vec<Fault>)> {
    let start_us = from.started_us.unwrap_or(1_700_000_000_000_000);
    let mut plan = plan.clone();
    plan.lay_out(&from.layouts)?;
    let env: Arc<Simulated> = Arc::new(from.simulated(scenario.seed, start_us));
    let sim = Sim::new(scenario.seed);
    let model = Model { latency: scenario.latency, ..Model::default() };
    let devices: Vec<SimDevice> = sinks.iter().map(|_| sim.node(model)).collect();
    let options = MeshOptions::new(settings, plan.state_stages());
    let meshes = meshes(&devices, options, scenario.channels)?;
    let (mut processes, mut stoppers) = (Vec::new(), Vec::new());
    for (process, (mesh, sinks)) in meshes.into_iter().zip(sinks).enumerate() {
        let env: Arc<dyn Env> = env.clone();
        let from = (from, checkpoints.get(process).cloned());
        let sinks = sinks.clone();
        let job = Job::prepare(&plan, settings, sinks, env, start_us, from, Some(mesh))?;
        stoppers.push(job.stopper());
        processes.push(Process::new(job));
    }
    begins(stoppers);
    for (process, slowness) in processes.iter_mut().zip(&scenario.slowness) {
        process.slowness = (*slowness).max(1);
    }
    let mut faults = scenario.faults.clone();
    faults.sort_by_key(|(step, _)| *step);
    faults.reverse();
    let (cuts, notices, came) = Default::default();
    let drain = scenario.drain;
    let mut network = Some(Network { sim, devices, faults, came, cuts, notices, drain });
    run(&*env, &mut processes, &mut network);
    let came = network.map(|network| network.came).unwrap_or_default();
    Ok((processes.into_iter().map(|process| process.result).collect(), came))
}

/// Connects one process per device.
fn meshes(devices: &[SimDevice], options: MeshOptions, channels: Channels) -> Result<Vec<Mesh>> {
    let processes = devices.len();
    let setup = |(process, device)| {
        let place = Place { process, processes };
        MeshSetup::new(device, place, options, channels).map_err(|e| peer_error(process, e))
    };
    let setups = devices.iter().enumerate().map(setup).collect::<Result<Vec<_>>>()?;
    let hellos: Vec<Vec<_>> =
        (0..processes).map(|to| setups.iter().map(|setup| setup.hellos(to)).collect()).collect();
    let connect = |(process, (setup, from)): (usize, (MeshSetup<SimDevice>, &Vec<_>))| {
        setup.connect(from).map_err(|e| peer_error(process, e))
    };
    setups.into_iter().zip(&hellos).enumerate().map(connect).collect()
}

/// Runs a job of one process.
pub(crate) fn alone(job: Job) -> (Stats, Result<()>) {
    let env = job.env();
    let mut process = [Process::new(job)];
    run(&*env, &mut process, &mut None);
    let [process] = process;
    let missing = || (Stats::default(), Err(Error::Internal("the simulation stopped".into())));
    process.result.unwrap_or_else(missing)
}

/// A process of the job.
pub(crate) struct Process {
    job: Option<Job>,
    workers: Vec<Worker>,
    /// Workers that are not done.
    pub(crate) running: Vec<usize>,
    slowness: u32,
    pub(crate) result: Outcome,
    remains: Option<Job>,
}

impl Process {
    pub(crate) fn new(mut job: Job) -> Process {
        let workers = job.workers();
        let running = (0..workers.len()).collect();
        Process { job: Some(job), workers, running, slowness: 1, result: None, remains: None }
    }

    /// Progress of the process, while it runs.
    #[cfg(test)]
    pub(crate) fn standing(&self) -> Option<crate::standing::Standing> {
        self.job.as_ref().map(|job| job.stopper().standing())
    }

    /// Number of choices: workers that are not done, or else the end of the streams.
    fn choices(&self) -> usize {
        if self.job.is_some() { self.running.len().max(1) } else { 0 }
    }

    /// Runs a step of the chosen running worker, or towards the end of the streams if no worker
    /// runs. Returns the reason for waiting, if it waits.
    pub(crate) fn step(&mut self, choice: usize) -> Step {
        let Some(job) = &self.job else { return Step::Done };
        if let Some(id) = self.running.get(choice).copied() {
            let step = run_guarded(job.shared(), || self.workers[id].step()).unwrap_or(Step::Done);
            if step == Step::Done {
                self.running.swap_remove(choice);
            }
            return step;
        }
        let ended = run_guarded(job.shared(), || job.end_streams(&mut self.workers));
        if ended == Some(false) {
            return Step::Wait { until_us: None };
        }
        self.result = self.job.take().map(|job| {
            let result = job.close(&self.workers);
            if job.shared().has_enough() {
                // Streams have not ended in order: what remains is kept until all have heard of it.
                self.remains = Some(job);
            } else {
                // Its ends of all channels are gone.
                self.workers.clear();
            }
            result
        });
        Step::Done
    }
}

/// Network between the processes.
struct Network {
    sim: Sim,
    devices: Vec<SimDevice>,
    /// The next one last.
    faults: Vec<(u64, Fault)>,
    /// Faults that came while some process ran.
    came: Vec<Fault>,
    /// Pairs of processes with a cut connection.
    cuts: BTreeSet<(usize, usize)>,
    /// Times of notices, with the process and the error.
    notices: Vec<(i64, usize, Error)>,
    /// After how many steps which process is asked to drain the job.
    drain: Option<(u64, usize)>,
}

impl Network {
    /// Asks a process to drain the job, if that is due and it still runs.
    fn drain(&mut self, steps: u64, processes: &[Process]) {
        if let Some((_, process)) = self.drain.take_if(|(step, _)| *step <= steps)
            && let Some(job) = &processes[process].job
        {
            job.stopper().drain();
        }
    }

    /// Lets what is due go wrong.
    fn fail(&mut self, steps: u64, env: &dyn Env, processes: &mut [Process]) {
        while let Some((_, fault)) = self.faults.pop_if(|(step, _)| *step <= steps) {
            if processes.iter().any(|process| process.job.is_some()) {
                self.came.push(fault);
            }
            match fault {
                Fault::Kill(process) => {
                    self.sim.stop(&self.devices[process]);
                    let killed = &mut processes[process];
                    if killed.job.take().is_some() {
                        (killed.workers, killed.running) = (Vec::new(), Vec::new());
                        self.tell_others(env, process, "it was killed", processes);
                    }
                }
                Fault::Cut(a, b) => {
                    self.cuts.insert((a, b));
                    self.sim.cut(&self.devices[a], &self.devices[b]);
                }
                Fault::Mend(a, b) => {
                    self.cuts.remove(&(a, b));
                    self.sim.mend(&self.devices[a], &self.devices[b]);
                }
            }
        }
    }

    fn tell_others(&mut self, env: &dyn Env, process: usize, why: &str, processes: &[Process]) {
        for other in (0..processes.len()).filter(|other| *other != process) {
            let delay_us = env.choose(20_000).unwrap_or(0) as i64;
            let error = Error::Process { process, message: why.to_string() };
            self.notices.push((env.now_us() + delay_us, other, error));
        }
    }

    /// Tells processes what they are to be told by now.
    fn tell(&mut self, now_us: i64, processes: &[Process]) {
        for (_, to, error) in self.notices.extract_if(.., |(at, ..)| *at <= now_us) {
            if let Some(job) = &processes[to].job {
                job.stopper().stop_with(error);
            }
        }
    }
}

/// Times that everybody waits for time to pass, with no step in between that did something, after
/// which nobody will ever go on. Who waits for memory looks again every millisecond, so this is a
/// minute at least.
const WAITS_MAX: u32 = 60_000;

/// Steps of a job of several processes, not counting those for which a slow one stands still, after
/// which it is taken to go round in circles: the longest of some thousand seeds (memory, 446) takes
/// a sixth of them.
const STEPS_MAX: u64 = 100_000_000;

/// Runs processes to their ends.
fn run(env: &dyn Env, processes: &mut [Process], network: &mut Option<Network>) {
    let mut rounds = Rounds::default();
    let mut steps = 0u64;
    loop {
        steps += 1;
        if let Some(network) = network {
            network.fail(steps, env, processes);
            network.drain(steps, processes);
            network.tell(env.now_us(), processes);
        }
        let all: usize = processes.iter().map(Process::choices).sum();
        if all == 0 {
            return;
        }
        let mut choice = env.choose(all as u64).unwrap_or(0) as usize;
        let mut at = 0;
        while choice >= processes[at].choices() {
            choice -= processes[at].choices();
            at += 1;
        }
        let skips = processes[at].slowness;
        if skips <= 1 || env.choose(u64::from(skips)) == Some(0) {
            rounds.step(env, processes, network, at, choice);
        }
        pass(env, network, 1);
    }
}

/// How it goes on.
#[derive(Default)]
struct Rounds {
    /// Waiting workers, by process and worker, with the end of the wait.
    waiting: BTreeMap<(usize, usize), Option<i64>>,
    /// Steps taken, and times in a row that everybody waited for time to pass.
    taken: u64,
    waits: u32,
    /// All have waited once with nothing to come. Something may have come since the first of them
    /// looked, so they look once more.
    quiet: bool,
}

impl Rounds {
    /// Runs a step of a process, of the worker that is chosen there.
    fn step(
        &mut self,
        env: &dyn Env,
        processes: &mut [Process],
        network: &mut Option<Network>,
        at: usize,
        choice: usize,
    ) {
        self.taken += 1;
        if network.is_some() && self.taken == STEPS_MAX {
            give_up(network, processes);
        }
        let process = &mut processes[at];
        let id = process.running.get(choice).copied().unwrap_or(usize::MAX);
        match process.step(choice) {
            Step::Wait { until_us } => {
                self.waiting.insert((at, id), until_us);
            }
            Step::Busy | Step::Done => {
                self.waiting.clear();
                (self.waits, self.quiet) = (0, false);
            }
        }
        if let (Some(network), Some((_, Err(error)))) = (&mut *network, &processes[at].result)
            && id == usize::MAX
        {
            network.tell_others(env, at, &error.to_string(), processes);
        }
        if self.waiting.len() >= processes.iter().map(Process::choices).sum() {
            self.wait(env, processes, network);
        }
    }

    /// Everybody waits: lets time pass until the first has something to do.
    fn wait(&mut self, env: &dyn Env, processes: &[Process], network: &mut Option<Network>) {
        let until = self.waiting.values().flatten().min().copied();
        let notice = network.as_ref().and_then(|n| n.notices.iter().map(|n| n.0).min());
        self.waiting.clear();
        let happens = network.as_ref().is_some_and(|network| network.sim.step());
        match [until, notice].into_iter().flatten().min() {
            _ if happens => self.quiet = false,
            Some(_) if self.waits > WAITS_MAX => give_up(network, processes),
            Some(next) => {
                (self.waits, self.quiet) = (self.waits + 1, false);
                let us = (next - env.now_us()).max(0);
                env.pass_time(next);
                if let Some(network) = &network {
                    network.sim.advance(Duration::from_micros(us as u64));
                }
            }
            None if self.quiet => give_up(network, processes),
            None => self.quiet = true,
        }
    }
}

fn pass(env: &dyn Env, network: &Option<Network>, us: i64) {
    env.pass_time(env.now_us() + us);
    if let Some(network) = network {
        network.sim.advance(Duration::from_micros(us as u64));
    }
}

/// Nothing is left to happen. Where a link is cut, its two ends notice by each other's silence, and
/// the others are told; otherwise it is a deadlock.
fn give_up(network: &mut Option<Network>, processes: &[Process]) {
    let cuts = network.iter().flat_map(|network| &network.cuts);
    let ends = cuts.flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
    let lost: Vec<_> =
        ends.filter_map(|(at, peer)| Some((processes[at].job.as_ref()?, peer))).collect();
    for (job, peer) in &lost {
        let message = "it has not answered for 2 s".into();
        job.stopper().stop_with(Error::PeerLost { process: *peer, message });
    }
    if lost.is_empty() {
        let jobs = processes.iter().filter_map(|process| process.job.as_ref());
        let deadlock = || Error::Internal("the workers wait for each other for ever".into());
        jobs.for_each(|job| job.stopper().stop_with(deadlock()));
    }
}
