//! A simulated world in which a store runs, on one thread and in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use millstream_dfi::Result;
use millstream_fabric::sim::{Model, Sim, SimDevice};

use super::Chance;
use super::client::{Client, Load};
use super::history::Operation;
use super::message::{hold, moved};

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
    pub(crate) pace: Pace,
    /// Nodes shared by the clients; 0: each client has a node of its own.
    pub(crate) client_nodes: usize,
}

/// The meaning of time in a simulated world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// A step is the next thing that happens in the network, however late that is, and one turn.
    Events,
    /// Each step takes so long, and all nodes have a turn.
    Even(Duration),
    /// Each node has a clock. A turn takes as long as the messages that it has moved.
    Clocks(Prices),
}

/// Prices of a node's work, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    /// To post a message to one target or to a group, and to take a message.
    pub(crate) push_ns: f64,
    pub(crate) take_ns: f64,
    /// A turn without work.
    pub(crate) look_ns: f64,
}

impl Plan {
    /// The follower that stops.
    pub(crate) fn dead(&self) -> Option<usize> {
        self.stop.map(|(follower, _)| follower)
    }
}

/// The network, and the device of each actor.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) devices: Vec<SimDevice>,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> World {
        let sim = Sim::new(plan.seed);
        let replicas = (0..=plan.followers).map(|_| sim.node(plan.model));
        let mut devices: Vec<SimDevice> = replicas.collect();
        let nodes = if plan.client_nodes == 0 { plan.clients } else { plan.client_nodes };
        let of_clients: Vec<SimDevice> = (0..nodes).map(|_| sim.node(plan.model)).collect();
        devices.extend((0..plan.clients).map(|client| of_clients[client % nodes].clone()));
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
    pub(crate) waited: Duration,
    /// Virtual time of the last answer.
    pub(crate) ended: Duration,
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
            ended: clients.iter().map(|one| one.ended).max().unwrap_or_default(),
            finished: clients.iter().all(Client::is_done),
            logs_agree: true,
        }
    }
}

/// Steps after the last answer, so that late messages arrive before logs are compared.
const STEPS_AFTER: u64 = 4000;

/// Gives turns to all living nodes, in an order drawn from the seed or by the nodes' clocks, until
/// `turn` says that all is done, and a little longer.
pub(crate) fn drive(
    world: &World,
    plan: &Plan,
    turn: impl FnMut(usize, Duration, u64) -> Result<bool>,
) -> Result<()> {
    match plan.pace {
        Pace::Clocks(prices) => by_clocks(world, plan, prices, turn),
        Pace::Events | Pace::Even(_) => by_steps(world, plan, turn),
    }
}

fn by_steps(
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
            Pace::Even(_) => 0..devices.len(),
            Pace::Events | Pace::Clocks(_) => {
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
            Pace::Even(pace) => sim.advance(pace),
            _ if sim.step() => {}
            _ => sim.advance(Duration::from_micros(20)),
        }
    }
    Ok(())
}

/// The node whose clock is behind has the next turn. Messages of a turn leave when the turn is over
/// ([`hold`]).
fn by_clocks(
    world: &World,
    plan: &Plan,
    prices: Prices,
    mut turn: impl FnMut(usize, Duration, u64) -> Result<bool>,
) -> Result<()> {
    let World { sim, devices } = world;
    sim.set_look(Duration::from_nanos(1));
    let _held = hold();
    let start = sim.now();
    let mut clocks: BinaryHeap<_> = (0..devices.len()).map(|one| Reverse((start, one))).collect();
    let mut done: Option<u64> = None;
    for step in 0..plan.steps_max {
        let Some(Reverse((at, node))) = clocks.pop() else { break };
        sim.advance(at.saturating_sub(sim.now()));
        if turn(node, sim.now(), step)? {
            done.get_or_insert(step);
        }
        if done.is_some_and(|at| step - at > STEPS_AFTER) {
            break;
        }
        let (pushed, taken) = moved();
        let work = pushed as f64 * prices.push_ns + taken as f64 * prices.take_ns;
        let took = if pushed + taken == 0 { prices.look_ns } else { work };
        let took = Duration::from_nanos(took.ceil() as u64);
        clocks.push(Reverse((at.max(sim.now()) + took, node)));
    }
    Ok(())
}
