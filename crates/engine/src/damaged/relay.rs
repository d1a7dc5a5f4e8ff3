//! A test job of two processes with a relay between them, which sees every message and may change
//! it, repeat it or drop it. The job runs on one thread, over the fabric `sim`, with every choice
//! from a seed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_fabric::Fabric;
use millstream_fabric::setup::Hello;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_flow::channel::{
    Received, Receiver, ReceiverSetup, Result as FlowResult, Sender, SenderSetup,
    Settings as Channels,
};

use crate::checkpoint::Resume;
use crate::error::Result;
use crate::job::Job;
use crate::network::{Mesh, MeshOptions, MeshSetup, Place};
use crate::plan::Plan;
use crate::settings::Settings;
use crate::simulation::Process;
use crate::sink::{RowOrder, Sink};
use crate::support::{Collect, lines};
use crate::worker::Step;
use millstream_operators::env::{Env, Simulated};

/// Channel of a message: the receiving process, and the place among its channels: deltas for each
/// leader, messages, and lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelayChannel {
    pub(super) to: usize,
    pub(super) channel: usize,
}

/// Change of a message: returns messages in its place, each with its channel.
pub(super) type Change<'c> =
    &'c mut dyn FnMut(RelayChannel, Vec<u8>) -> Vec<(RelayChannel, Vec<u8>)>;

struct Line {
    way: RelayChannel,
    from: Receiver<SimDevice>,
    to: Sender<SimDevice>,
    waiting: VecDeque<Vec<u8>>,
    ended: bool,
}

/// The ends of channels that two processes take for each other's.
struct Relay(Vec<Line>);

/// Rounds after which a job counts as waiting for ever: some ten times the usual number.
const ROUNDS_MAX: u32 = 1_000_000;

/// Places of a process's senders in its list of hellos, lanes included, each with the place of the
/// matching receiver in the other process's list.
fn senders(workers: usize, hellos: usize) -> Vec<(usize, usize)> {
    let (first, lanes) = (workers + 1, hellos / 2 - (workers + 1));
    let usual = (0..first).map(|i| (i, i + first));
    usual.chain((0..lanes).map(|i| (2 * first + i, 2 * first + i + lanes))).collect()
}

impl Relay {
    fn connect(
        sim: &Sim,
        settings: &Settings,
        channels: Channels,
    ) -> FlowResult<(Vec<Mesh>, Relay)> {
        let nodes: Vec<SimDevice> = (0..3).map(|_| sim.node(Model::default())).collect();
        let relay = &nodes[2];
        let setup = |process| {
            let place = Place { process, processes: 2 };
            MeshSetup::new(&nodes[process], place, MeshOptions::new(settings, 1), channels)
        };
        let setups = [setup(0)?, setup(1)?];
        let told = [setups[0].hellos(1), setups[1].hellos(0)];
        let mut heard: [Vec<Option<Hello>>; 2] =
            [vec![None; told[1].len()], vec![None; told[0].len()]];
        let mut relayed = Vec::new();
        for from in 0..2 {
            let to = 1 - from;
            for (channel, (sender, receiver)) in
                senders(settings.workers, told[from].len()).into_iter().enumerate()
            {
                let events = relay.events()?;
                let receiving = ReceiverSetup::new(relay, &events, channels)?;
                let sending = SenderSetup::new(relay, &events, channels)?;
                heard[from][receiver] = Some(receiving.hello());
                heard[to][sender] = Some(sending.hello());
                relayed.push(Line {
                    way: RelayChannel { to, channel },
                    from: receiving.connect(&told[from][sender])?,
                    to: sending.connect(&told[to][receiver])?,
                    waiting: VecDeque::new(),
                    ended: false,
                });
            }
        }
        let mut meshes = Vec::new();
        for (process, (setup, heard)) in setups.into_iter().zip(heard).enumerate() {
            let heard = heard.into_iter().flatten().collect();
            let from = if process == 0 { [vec![], heard] } else { [heard, vec![]] };
            meshes.push(setup.connect(&from)?);
        }
        Ok((meshes, Relay(relayed)))
    }

    /// Hands on what has come. Fails where a process is gone.
    fn pump(&mut self, change: Change<'_>) -> FlowResult<()> {
        for line in 0..self.0.len() {
            let Line { way, from, ended, .. } = &mut self.0[line];
            let message = match from.try_receive()? {
                Received::Message(message) => message.to_vec(),
                Received::Empty => continue,
                Received::End => {
                    *ended = true;
                    continue;
                }
            };
            for (way, message) in change(*way, message) {
                let line = self.0.iter_mut().find(|line| line.way == way).expect("a channel");
                line.waiting.push_back(message);
            }
        }
        for line in &mut self.0 {
            while let Some(message) = line.waiting.front() {
                let Some(mut slot) = line.to.try_acquire()? else { break };
                slot.payload()[..message.len()].copy_from_slice(message);
                slot.send(message.len(), 0)?;
                line.waiting.pop_front();
            }
            if line.ended && line.waiting.is_empty() {
                line.to.try_finish()?;
            }
        }
        Ok(())
    }
}

/// Result of a job: the ends of process 0 and 1, `None` if the other process failed before; and the
/// written rows.
pub(super) struct Came {
    pub(super) ends: [Option<Result<()>>; 2],
    pub(super) rows: Vec<String>,
}

/// Runs a plan on two processes until both have ended, or one has failed.
///
/// # Panics
/// If they wait for ever.
pub(super) fn run(plan: &Plan, settings: &Settings, seed: u64, change: Change<'_>) -> Came {
    let start_us = 1_700_000_000_000_000;
    let env: Arc<dyn Env> = Arc::new(Simulated::new(seed, start_us));
    let sim = Sim::new(seed);
    let channels = Channels { slots: 4, slot_bytes: 1024, ..Channels::default() };
    let (meshes, mut relay) = Relay::connect(&sim, settings, channels).expect("channels");
    let sink = || Arc::new(Collect { order: RowOrder::Deterministic, batches: Mutex::default() });
    let sinks = [sink(), sink()];
    let processes = meshes.into_iter().zip(&sinks).map(|(mesh, sink)| {
        let sink: Arc<dyn Sink> = sink.clone();
        let job = Job::prepare(
            plan,
            settings,
            vec![sink],
            env.clone(),
            start_us,
            (&Resume::default(), None),
            Some(mesh),
        );
        Process::new(job.expect("a good plan"))
    });
    let mut processes: Vec<Process> = processes.collect();
    for _ in 0..ROUNDS_MAX {
        let mut waits = true;
        for process in &mut processes {
            let choice = env.choose(process.running.len().max(1) as u64).unwrap_or(0) as usize;
            if process.result.is_none() {
                waits &= matches!(process.step(choice), Step::Wait { .. });
            }
        }
        let failed = |process: &Process| matches!(process.result, Some((_, Err(_))));
        let ended = processes.iter().all(|process| process.result.is_some());
        if ended || processes.iter().any(failed) {
            break;
        }
        let pumped = relay.pump(change);
        // The end of one that has ended well may be gone before the relay has heard of it.
        assert!(pumped.is_ok() || processes.iter().any(|p| p.result.is_some()), "{pumped:?}");
        let us = if waits { 100 } else { 1 };
        env.pass_time(env.now_us() + us);
        sim.advance(Duration::from_micros(us as u64));
    }
    let standing: Vec<_> = processes.iter().map(Process::standing).collect();
    let rows = sinks[0].batches.lock().expect("no panic").iter().flat_map(lines).collect();
    let ends = processes.into_iter().map(|process| process.result.map(|(_, end)| end));
    let ends: Vec<_> = ends.collect();
    assert!(ends.iter().flatten().count() > 0, "seed {seed}: they wait for ever: {standing:?}");
    Came { ends: ends.try_into().expect("two"), rows }
}
