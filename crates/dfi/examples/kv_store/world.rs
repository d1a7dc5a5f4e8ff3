//! A simulated world in which a store runs, on one thread and in virtual time.

use std::time::Duration;

use millstream_dfi::Result;
use millstream_fabric::sim::{Model, Sim, SimDevice};

use crate::Chance;
use crate::client::{Client, Load};
use crate::history::Operation;

/// How a store runs. Node 0 is the leader; then come followers, and then clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) followers: usize,
    pub(crate) clients: usize,
    pub(crate) load: Load,
    pub(crate) model: Model,
    /// Segments of each ring: the credit.
    pub(crate) segments: usize,
    /// A follower, from 1, that stops at this step.
    pub(crate) stop: Option<(usize, u64)>,
    /// A silent peer is lost after this time.
    pub(crate) silence: Duration,
    pub(crate) steps_max: u64,
    /// Without a pace, a step is the next thing that happens in the network, however late that is,
    /// and one turn. With a pace, each step takes so long, and all nodes have a turn.
    pub(crate) pace: Option<Duration>,
}

impl Plan {
    /// The follower that stops.
    pub(crate) fn dead(&self) -> Option<usize> {
        self.stop.map(|(follower, _)| follower)
    }
}

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) devices: Vec<SimDevice>,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> World {
        let sim = Sim::new(plan.seed);
        let nodes = 1 + plan.followers + plan.clients;
        let devices = (0..nodes).map(|_| sim.node(plan.model)).collect();
        World { sim, devices }
    }

    /// The nodes of the clients.
    pub(crate) fn clients(&self, plan: &Plan) -> Vec<usize> {
        (1 + plan.followers..self.devices.len()).collect()
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) history: Vec<Operation>,
    /// Slots that the leader gave to followers, and slots that became no-ops.
    pub(crate) fills: u64,
    pub(crate) no_ops: u64,
    pub(crate) sent_again: u64,
    /// Sum of the waiting times of all requests, in virtual time.
    #[cfg_attr(not(test), expect(dead_code, reason = "a figure only with a pace"))]
    pub(crate) waited: Duration,
    /// Whether all requests were answered.
    pub(crate) finished: bool,
    /// Whether the logs of living replicas are the same, as far as they go.
    pub(crate) logs_agree: bool,
}

impl Report {
    pub(crate) fn of(clients: &[Client<SimDevice>]) -> Report {
        Report {
            history: clients.iter().flat_map(|one| one.history.iter().copied()).collect(),
            fills: 0,
            no_ops: 0,
            sent_again: clients.iter().map(|one| one.sent_again).sum(),
            waited: clients.iter().map(|one| one.waited).sum(),
            finished: clients.iter().all(Client::is_done),
            logs_agree: true,
        }
    }
}

/// Steps after the last answer, so that late messages arrive before logs are compared.
const STEPS_AFTER: u64 = 4000;

/// Gives turns to all living nodes, in an order drawn from the seed, until `turn` says that all is
/// done, and a little longer.
pub(crate) fn drive(
    world: &World,
    plan: &Plan,
    mut turn: impl FnMut(usize, Duration, u64) -> Result<bool>,
) -> Result<()> {
    let World { sim, devices } = world;
    let mut chance = Chance(plan.seed ^ 0x5eed);
    let mut done: Option<u64> = None;
    for step in 0..plan.steps_max {
        if let Some((follower, at)) = plan.stop
            && at == step
        {
            sim.stop(&devices[follower]);
        }
        let gone = |node| plan.stop.is_some_and(|(dead, at)| node == dead && step >= at);
        let nodes = match plan.pace {
            Some(_) => 0..devices.len(),
            None => {
                let node = chance.below(devices.len());
                node..node + 1
            }
        };
        for node in nodes.filter(|node| !gone(*node)) {
            if turn(node, sim.now(), step)? {
                done.get_or_insert(step);
            }
        }
        if done.is_some_and(|at| step - at > STEPS_AFTER) {
            break;
        }
        match plan.pace {
            Some(pace) => sim.advance(pace),
            None if sim.step() => {}
            None => sim.advance(Duration::from_micros(20)),
        }
    }
    Ok(())
}
