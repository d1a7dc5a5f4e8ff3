//! Requests and answers over two latency flows: a client asks, servers answer. The same client and
//! servers work in real time and in a simulated world.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use millstream_dfi::{
    Consumed, Flow, Latency, Registry, RegistryClient, Route, Source, SourceSetup, Target,
    TargetSetup, Thread,
};
use millstream_fabric::Fabric;
use millstream_fabric::shm::ShmDevice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::{FlowFailure, FlowResult};
use super::mover::{Movement, PATIENCE, SILENCE};
use super::moving::Idle;
use super::part::Part;
use super::tally::Tally;
use super::tuples::{schema, with_words};
use crate::tuple::weight;

const ASK: &str = "ask";
const ANSWER: &str = "answer";
/// Looks without an answer before a thread yields: a yield takes as long as an answer.
pub(super) const IDLE: u32 = 2000;
/// Rounds of the warm-up.
const WARM: u64 = 200;

/// Requests and answers to measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct PingPlan {
    /// [`Movement::Shuffle`]: the servers are asked by turns; otherwise all are asked, and all
    /// answer.
    pub(super) movement: Movement,
    /// 1 or 2: the client, and all servers with one thread.
    pub(super) processes: usize,
    pub(super) servers: usize,
    pub(super) tuple_bytes: usize,
    pub(super) rounds: u64,
}

impl PingPlan {
    fn is_to_all(&self) -> bool {
        self.movement != Movement::Shuffle
    }

    /// Publishes both flows.
    pub(super) fn publish(&self, registry: &impl Registry) -> FlowResult<()> {
        let servers = || (0..self.servers).map(server);
        let ask = match self.movement {
            Movement::Shuffle | Movement::Pairs => Flow::shuffle(ASK).route(Route::Explicit),
            Movement::Replicate => Flow::replicate(ASK),
            Movement::Multicast => Flow::replicate(ASK).multicast(),
        };
        let answer = Flow::shuffle(ANSWER).route(Route::Explicit);
        for (flow, from, to) in [
            (ask, vec![CLIENT], servers().collect()),
            (answer, servers().collect::<Vec<_>>(), vec![CLIENT]),
        ] {
            flow.sources(from)
                .targets(to)
                .schema(schema(self.tuple_bytes))
                .optimise(Latency::default())
                .silence(SILENCE)
                .publish(registry)?;
        }
        Ok(())
    }
}

const CLIENT: Thread = Thread::new(0, 0);

fn server(number: usize) -> Thread {
    Thread::new(1 + number as u32, 0)
}

/// The client's ends, joined.
pub(super) struct ClientSetup<F: Fabric>(SourceSetup<F>, TargetSetup<F>);

impl<F: Fabric> ClientSetup<F> {
    pub(super) fn join(device: &F, registry: &impl Registry) -> FlowResult<ClientSetup<F>> {
        Ok(ClientSetup(
            SourceSetup::join(device, registry, ASK, CLIENT, PATIENCE)?,
            TargetSetup::join(device, registry, ANSWER, CLIENT, PATIENCE)?,
        ))
    }

    pub(super) fn connect<const W: usize>(
        self,
        plan: &PingPlan,
        registry: &impl Registry,
    ) -> FlowResult<Client<F, W>> {
        Ok(Client {
            ask: self.0.connect(registry, PATIENCE)?,
            answers: self.1.connect(registry, PATIENCE)?,
            plan: *plan,
            number: 0,
            missing: 0,
        })
    }
}

/// Asks, one request at a time.
pub(super) struct Client<F: Fabric, const W: usize> {
    ask: Source<F>,
    answers: Target<F>,
    plan: PingPlan,
    /// Requests so far, and answers that the last one waits for.
    number: u64,
    missing: usize,
}

impl<F: Fabric, const W: usize> Client<F, W> {
    /// Whether the next request is due.
    pub(super) fn may_ask(&self) -> bool {
        self.missing == 0
    }

    /// Whether all rounds are over.
    pub(super) fn is_over(&self) -> bool {
        self.missing == 0 && self.number == self.plan.rounds
    }

    /// Asks.
    pub(super) fn ask(&mut self) -> FlowResult<()> {
        let mut tuple = [0; W];
        tuple[1] = self.number;
        if self.plan.is_to_all() {
            self.ask.push(&tuple)?;
            self.missing = self.plan.servers;
        } else {
            self.ask.push_to(self.number as usize % self.plan.servers, &tuple)?;
            self.missing = 1;
        }
        self.number += 1;
        Ok(())
    }

    /// Looks for an answer. Returns whether one has come.
    pub(super) fn look(&mut self) -> FlowResult<bool> {
        let Consumed::Batch(batch) = self.answers.try_consume()? else { return Ok(false) };
        let mut found = Tally::default();
        found.add_all::<W>(batch.bytes());
        let expected = Tally { count: 1, sum: weight(0, answer(self.number - 1)) };
        if found != expected {
            return Err(FlowFailure::Answer { expected, found });
        }
        self.missing -= 1;
        Ok(true)
    }

    /// Does what is due without asking.
    pub(super) fn progress(&mut self) -> FlowResult<()> {
        Ok(self.ask.progress()?)
    }
}

/// The number in an answer.
fn answer(number: u64) -> u64 {
    number ^ 0x5555
}

/// A server's ends, joined.
pub(super) struct ServerSetup<F: Fabric>(TargetSetup<F>, SourceSetup<F>);

impl<F: Fabric> ServerSetup<F> {
    pub(super) fn join(
        number: usize,
        device: &F,
        registry: &impl Registry,
    ) -> FlowResult<ServerSetup<F>> {
        Ok(ServerSetup(
            TargetSetup::join(device, registry, ASK, server(number), PATIENCE)?,
            SourceSetup::join(device, registry, ANSWER, server(number), PATIENCE)?,
        ))
    }

    pub(super) fn connect<const W: usize>(
        self,
        registry: &impl Registry,
    ) -> FlowResult<Server<F, W>> {
        let asked = self.0.connect(registry, PATIENCE)?;
        let answer = self.1.connect(registry, PATIENCE)?;
        Ok(Server { asked, answer, next: None, ended: false })
    }
}

/// Answers.
pub(super) struct Server<F: Fabric, const W: usize> {
    asked: Target<F>,
    answer: Source<F>,
    /// The next answer.
    next: Option<[u64; W]>,
    ended: bool,
}

impl<F: Fabric, const W: usize> Server<F, W> {
    /// Looks for a request. Returns whether one has come.
    pub(super) fn look(&mut self) -> FlowResult<bool> {
        match self.asked.try_consume()? {
            Consumed::Batch(batch) => {
                let mut tuple = [0; W];
                let (words, _) = batch.bytes().as_chunks::<8>();
                let words = words.iter().map(|word| u64::from_ne_bytes(*word));
                tuple.iter_mut().zip(words).for_each(|(to, word)| *to = word);
                tuple[1] = answer(tuple[1]);
                self.next = Some(tuple);
                Ok(true)
            }
            Consumed::End => {
                self.ended = true;
                Ok(false)
            }
            Consumed::Empty | Consumed::Gap(_) => Ok(false),
        }
    }

    /// Answers the request that has come. Returns whether there was one.
    pub(super) fn answer(&mut self) -> FlowResult<bool> {
        let Some(tuple) = self.next.take() else { return Ok(false) };
        self.answer.push_to(0, &tuple)?;
        Ok(true)
    }
}

/// Joins as a process: the client, the servers, or both.
pub(super) fn join(
    plan: &PingPlan,
    process: u32,
    device: &ShmDevice,
    registry: &RegistryClient,
) -> FlowResult<Box<dyn Part>> {
    let last = process as usize + 1 == plan.processes;
    let client = (process == 0).then(|| ClientSetup::join(device, registry)).transpose()?;
    let servers = if last { plan.servers } else { 0 };
    let servers = (0..servers).map(|number| ServerSetup::join(number, device, registry));
    let joined = (client, servers.collect::<FlowResult<Vec<_>>>()?);
    let plan = *plan;
    with_words!(plan.tuple_bytes, WORDS => {
        let (client, servers) = (None, Vec::new());
        let part = Pinging::<WORDS> { plan, joined: Some(joined), client, servers };
        Ok(Box::new(part) as Box<dyn Part>)
    })
}

type Joined = (Option<ClientSetup<ShmDevice>>, Vec<ServerSetup<ShmDevice>>);

/// The client and the servers of a process.
struct Pinging<const W: usize> {
    plan: PingPlan,
    joined: Option<Joined>,
    client: Option<Client<ShmDevice, W>>,
    servers: Vec<Server<ShmDevice, W>>,
}

impl<const W: usize> Part for Pinging<W> {
    fn connect(&mut self, registry: &RegistryClient) -> FlowResult<()> {
        let Some((client, servers)) = self.joined.take() else { return Ok(()) };
        self.client = client.map(|client| client.connect(&self.plan, registry)).transpose()?;
        for server in servers {
            self.servers.push(server.connect(registry)?);
        }
        Ok(())
    }

    /// Returns the nanoseconds of a round, the mean of all; of servers alone `null`.
    fn run(&mut self, stopped: &AtomicBool) -> FlowResult<Value> {
        let Pinging { client, servers, .. } = self;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serving =
                (!servers.is_empty()).then(|| scope.spawn(|| serve(servers, stopped, &over)));
            let mean = client.as_mut().map(|client| ask(client, stopped)).transpose();
            // The servers' end, if the client has failed.
            over.store(mean.is_err(), Ordering::Release);
            if let Some(serving) = serving {
                serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(json!(mean?))
        })
    }
}

/// Asks in all rounds, and in some before. Returns the nanoseconds of a round.
fn ask<const W: usize>(client: &mut Client<ShmDevice, W>, stopped: &AtomicBool) -> FlowResult<f64> {
    let rounds = client.plan.rounds;
    client.plan.rounds += WARM;
    let (mut idle, mut begun) = (Idle::new(IDLE), Instant::now());
    while !client.is_over() {
        if client.may_ask() {
            if client.number == WARM {
                begun = Instant::now();
            }
            client.ask()?;
        }
        let came = client.look()?;
        idle.turn(came, stopped)?;
    }
    let time = begun.elapsed();
    client.ask.close()?;
    Ok(time.as_secs_f64() * 1e9 / rounds.max(1) as f64)
}

/// Answers until the client is over.
fn serve<const W: usize>(
    servers: &mut [Server<ShmDevice, W>],
    stopped: &AtomicBool,
    over: &AtomicBool,
) -> FlowResult<()> {
    let mut idle = Idle::new(IDLE);
    while !servers.iter().all(|server| server.ended) && !over.load(Ordering::Relaxed) {
        let mut worked = false;
        for server in servers.iter_mut().filter(|server| !server.ended) {
            server.look()?;
            worked |= server.answer()?;
        }
        idle.turn(worked, stopped)?;
    }
    Ok(())
}
