//! Multi-Paxos (thesis, section 7.4.3.2 and figure 7.3): the failure-free path.
//!
//! Four flows: clients to leader (N:1 shuffle), leader to followers (multicast), followers to
//! leader (N:1 shuffle), leader to clients (shuffle by client). An answer takes four message
//! delays. The leader never changes.

use std::time::Duration;

use millstream_dfi::{Flow, LocalRegistry, Result, Route, Target};
use millstream_fabric::Fabric;

use super::client::Client;
use super::message::{
    ANSWER, Brought, LEADER, Message, Port, READ, Store, VOTE, WRITE, open, take,
};
use super::world::{Plan, Report, World, drive};
use super::{Bug, planted};

/// An entry of the leader's log, and the followers that have it.
struct Entry {
    request: Message,
    votes: u64,
}

struct Leader<F: Fabric> {
    requests: Target<F>,
    accepts: Port<F>,
    votes: Target<F>,
    answers: Port<F>,
    replicas: u32,
    log: Vec<Entry>,
    /// Entries that a majority has, and that have been executed.
    executed: usize,
    store: Store,
    /// The stand-in for DARE: nothing is taken while a write has no majority.
    serial: bool,
}

impl<F: Fabric> Leader<F> {
    fn turn(&mut self) -> Result<()> {
        self.accepts.progress()?;
        self.answers.progress()?;
        while let Brought::Message(vote) = take(&mut self.votes)? {
            let entry = self.log.get_mut(vote.slot as usize);
            if let Some(entry) = entry.filter(|_| vote.kind == VOTE && vote.replica < 64) {
                entry.votes |= 1 << vote.replica;
            }
        }
        self.execute()?;
        // The leader obeys credit: it takes no request while messages wait for credit.
        let clear = self.accepts.is_clear() && self.answers.is_clear();
        let open = &self.log[self.executed..];
        let busy = self.serial && open.iter().any(|entry| entry.request.command == WRITE);
        if !clear || busy {
            return Ok(());
        }
        let Brought::Message(request) = take(&mut self.requests)? else { return Ok(()) };
        let slot = self.log.len() as u64;
        self.log.push(Entry { request, votes: 1 << LEADER });
        if planted(Bug::AnswersBeforeVotes) {
            let value = match request.command {
                READ => self.store.execute(&request),
                _ => request.value,
            };
            self.answer(request, value, slot)?;
        }
        self.accepts.send(Message { slot, ..request })
    }

    /// Executes in the order of the log what a majority has.
    fn execute(&mut self) -> Result<()> {
        while let Some(entry) = self.log.get(self.executed)
            && 2 * entry.votes.count_ones() > self.replicas
        {
            let (request, slot) = (entry.request, self.executed as u64);
            let value = self.store.execute(&request);
            self.executed += 1;
            if !planted(Bug::AnswersBeforeVotes) {
                self.answer(request, value, slot)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Message, value: u64, slot: u64) -> Result<()> {
        let answer = Message { kind: ANSWER, replica: LEADER, value, slot, ..request };
        self.answers.send_to(request.client, answer)
    }
}

struct Follower<F: Fabric> {
    number: u64,
    accepts: Target<F>,
    votes: Port<F>,
    log: Vec<Message>,
}

impl<F: Fabric> Follower<F> {
    fn turn(&mut self) -> Result<()> {
        self.votes.progress()?;
        if self.votes.is_clear()
            && let Brought::Message(request) = take(&mut self.accepts)?
        {
            // There is one source, so the slots arrive in order.
            self.log.push(request);
            return self.votes.send(Message { kind: VOTE, replica: self.number, ..request });
        }
        Ok(())
    }
}

/// Runs the store until all clients are done.
pub(crate) fn run(world: &World, plan: &Plan, serial: bool) -> Result<Report> {
    let (devices, registry) = (&world.devices, LocalRegistry::new());
    let followers: Vec<usize> = (1..=plan.followers).collect();
    let clients = world.clients(plan);
    let flow = |flow: Flow| flow.silence(plan.silence);
    let shuffle = |name: &str| flow(Flow::shuffle(name).route(Route::by(|_, _| 0)));
    let (requests, mut to_leader) = open(
        devices,
        &registry,
        (shuffle("requests"), "requests", plan.segments),
        (&clients, &[0]),
    )?;
    let accepts = flow(Flow::replicate("accepts").multicast());
    let (mut accept, to_followers) =
        open(devices, &registry, (accepts, "accepts", plan.segments), (&[0], &followers))?;
    let (votes, mut from_followers) =
        open(devices, &registry, (shuffle("votes"), "votes", plan.segments), (&followers, &[0]))?;
    let answers = flow(Flow::shuffle("answers").route(Route::Explicit));
    let (mut answer, to_clients) =
        open(devices, &registry, (answers, "answers", plan.segments), (&[0], &clients))?;

    let mut leader = Leader {
        requests: to_leader.remove(0),
        accepts: accept.remove(0),
        votes: from_followers.remove(0),
        answers: answer.remove(0),
        replicas: 1 + plan.followers as u32,
        log: Vec::new(),
        executed: 0,
        store: Store::default(),
        serial,
    };
    let mut followers: Vec<_> = to_followers
        .into_iter()
        .zip(votes)
        .zip(1..)
        .map(|((accepts, votes), number)| Follower { number, accepts, votes, log: Vec::new() })
        .collect();
    let ends = requests.into_iter().zip(to_clients).zip(0..);
    let mut clients: Vec<_> =
        ends.map(|(ends, id)| Client::new(id, ends, (plan.load, 1), plan.seed)).collect();
    drive(world, plan, |actor, now: Duration, step| {
        match actor {
            0 => leader.turn()?,
            _ if actor <= plan.followers => followers[actor - 1].turn()?,
            _ => clients[actor - plan.followers - 1].turn(now, step)?,
        }
        Ok(clients.iter().all(Client::is_done))
    })?;
    Ok(Report::of(&clients))
}
