//! NOPaxos (thesis, section 7.4.3.2, after Li et al., OSDI 2016): normal operation and gap
//! agreement.
//!
//! Clients send to all replicas over an ordered flow. A replica's log is the flow's order, so
//! replicas agree without talking. A client takes an answer once f + 1 replicas have answered for
//! the same slot, the leader among them. Without a loss that is two message delays, and two more
//! for the number.
//!
//! A follower that misses a slot asks the leader. The leader fills the slot from its log. If the
//! leader itself misses the slot, the leader makes it a no-op, and goes on when f followers have
//! done the same. The leader never changes.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_dfi::{Flow, Gaps, LocalRegistry, Result, Route, Target};
use millstream_fabric::Fabric;

use super::answers::{Answers, Known};
use super::client::Client;
use super::message::{
    ANSWER, ASK, Brought, COMMIT, DONE, FILL, LEADER, Message, NO_OP, Port, REQUEST, Store, open,
    take,
};
use super::world::{Plan, Report, World, drive};
use super::{Bug, planted};

/// The entry of a slot that was given up.
fn no_op(slot: u64) -> Message {
    let (kind, command) = (COMMIT, NO_OP);
    Message { kind, command, replica: 0, client: 0, number: 0, key: 0, value: 0, slot }
}

struct Leader<F: Fabric> {
    requests: Target<F>,
    answers: Port<F>,
    /// To the followers, and from them.
    orders: Port<F>,
    words: Target<F>,
    /// f: how many followers have to have a no-op.
    needed: u32,
    log: Vec<Message>,
    store: Store,
    /// Answers to requests that were executed: a client may send a request again.
    answered: Answers,
    /// The slot that is being made a no-op, and the followers that have done so.
    agreeing: Option<(u64, u64)>,
    /// Questions about slots that are not in the log yet.
    questions: Vec<Message>,
    fills: u64,
    no_ops: u64,
}

impl<F: Fabric> Leader<F> {
    fn turn(&mut self) -> Result<()> {
        self.answers.progress()?;
        self.orders.progress()?;
        if !self.answers.is_clear() || !self.orders.is_clear() {
            return Ok(());
        }
        if let Brought::Message(word) = take(&mut self.words)? {
            self.hear(word)?;
        }
        if self.agreeing.is_some() {
            return Ok(());
        }
        match take(&mut self.requests)? {
            Brought::Message(request) if request.kind == REQUEST => self.append(request)?,
            Brought::Message(_) | Brought::Nothing => return Ok(()),
            Brought::Gap(slot) => {
                self.agreeing = Some((slot, 0));
                return self.orders.send(no_op(slot));
            }
        }
        self.fill()
    }

    fn append(&mut self, request: Message) -> Result<()> {
        let slot = self.log.len() as u64;
        self.log.push(Message { slot, ..request });
        let Message { client, number, .. } = request;
        let value = match self.answered.find(client, number) {
            Known::Answer(value) if !planted(Bug::ExecutesTwice) => value,
            Known::Past => return Ok(()),
            Known::Answer(_) | Known::Nothing => self.store.execute(&request),
        };
        self.answered.put(client, number, value);
        let answer = Message { kind: ANSWER, replica: LEADER, value, slot, ..request };
        self.answers.send_to(request.client, answer)
    }

    fn hear(&mut self, word: Message) -> Result<()> {
        match (word.kind, &mut self.agreeing) {
            (ASK, _) => {
                self.questions.push(word);
                return self.fill();
            }
            (DONE, Some((slot, followers))) if *slot == word.slot && word.replica < 64 => {
                *followers |= 1 << word.replica;
                if followers.count_ones() >= self.needed {
                    let slot = *slot;
                    self.agreeing = None;
                    self.log.push(no_op(slot));
                    self.no_ops += 1;
                    return self.fill();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers the questions about slots that are in the log.
    fn fill(&mut self) -> Result<()> {
        let known = self.log.len() as u64;
        while let Some(at) = self.questions.iter().position(|one| one.slot < known) {
            let question = self.questions.swap_remove(at);
            let entry = self.log[question.slot as usize];
            self.fills += 1;
            self.orders.send(Message { kind: FILL, replica: question.replica, ..entry })?;
        }
        Ok(())
    }
}

struct Follower<F: Fabric> {
    number: u64,
    requests: Target<F>,
    answers: Port<F>,
    orders: Target<F>,
    words: Port<F>,
    log: Vec<Message>,
    /// No-ops in slots that the log has not reached.
    no_ops: BTreeMap<u64, Message>,
    /// The slot that was asked for.
    asked: bool,
}

impl<F: Fabric> Follower<F> {
    fn turn(&mut self) -> Result<()> {
        self.answers.progress()?;
        self.words.progress()?;
        if !self.answers.is_clear() || !self.words.is_clear() {
            return Ok(());
        }
        if let Brought::Message(order) = take(&mut self.orders)? {
            self.obey(order)?;
        }
        if self.asked {
            return Ok(());
        }
        match take(&mut self.requests)? {
            Brought::Message(request) if request.kind == REQUEST => self.append(request),
            Brought::Message(_) | Brought::Nothing => Ok(()),
            Brought::Gap(slot) => match self.no_ops.remove(&slot) {
                Some(no_op) => {
                    self.log.push(no_op);
                    Ok(())
                }
                None => {
                    self.asked = true;
                    self.words.send(Message { kind: ASK, replica: self.number, ..no_op(slot) })
                }
            },
        }
    }

    /// Appends a request, unless the leader has made its slot a no-op.
    fn append(&mut self, request: Message) -> Result<()> {
        let slot = self.log.len() as u64;
        if let Some(no_op) = self.no_ops.remove(&slot) {
            self.log.push(no_op);
            return Ok(());
        }
        self.log.push(Message { slot, ..request });
        // A follower does not execute: the leader's answer has the value.
        let answer = Message { kind: ANSWER, replica: self.number, value: 0, slot, ..request };
        self.answers.send_to(request.client, answer)
    }

    fn obey(&mut self, order: Message) -> Result<()> {
        let next = self.log.len() as u64;
        match order.kind {
            FILL if order.replica == self.number && self.asked && order.slot == next => {
                self.asked = false;
                if order.command == NO_OP {
                    self.log.push(no_op(next));
                    return Ok(());
                }
                self.append(Message { kind: REQUEST, ..order })
            }
            COMMIT => {
                if order.slot < next {
                    self.log[order.slot as usize] = order;
                } else if order.slot == next && self.asked {
                    self.asked = false;
                    self.log.push(order);
                } else {
                    self.no_ops.insert(order.slot, order);
                }
                self.words.send(Message { kind: DONE, replica: self.number, ..order })
            }
            _ => Ok(()),
        }
    }
}

/// A store whose flows are connected.
struct Nodes<F: Fabric> {
    leader: Leader<F>,
    followers: Vec<Follower<F>>,
    clients: Vec<Client<F>>,
}

/// Connects the flows between the nodes of a plan.
fn connect<F: Fabric>(devices: &[F], plan: &Plan) -> Result<Nodes<F>> {
    let registry = LocalRegistry::new();
    let followers: Vec<usize> = (1..=plan.followers).collect();
    let replicas: Vec<usize> = (0..=plan.followers).collect();
    let clients: Vec<usize> = (1 + plan.followers..devices.len()).collect();
    let flow = |flow: Flow| flow.silence(plan.silence);
    let ordered = flow(Flow::replicate("requests").multicast().ordered().gaps(Gaps::Notify));
    let (requests, mut to_replicas) =
        open(devices, &registry, (ordered, "requests", plan.segments), (&clients, &replicas))?;
    let answers = flow(Flow::shuffle("answers").route(Route::Explicit));
    let (mut answers, to_clients) =
        open(devices, &registry, (answers, "answers", plan.segments), (&replicas, &clients))?;
    let orders = flow(Flow::replicate("orders"));
    let (mut orders, to_followers) =
        open(devices, &registry, (orders, "orders", plan.segments), (&[0], &followers))?;
    let words = flow(Flow::shuffle("words").route(Route::by(|_, _| 0)));
    let (words, mut to_leader) =
        open(devices, &registry, (words, "words", plan.segments), (&followers, &[0]))?;

    let needed = plan.followers.div_ceil(2) as u32;
    let leader = Leader {
        requests: to_replicas.remove(0),
        answers: answers.remove(0),
        orders: orders.remove(0),
        words: to_leader.remove(0),
        needed,
        log: Vec::new(),
        store: Store::default(),
        answered: Answers::default(),
        agreeing: None,
        questions: Vec::new(),
        fills: 0,
        no_ops: 0,
    };
    let ends = to_replicas.into_iter().zip(answers).zip(to_followers.into_iter().zip(words));
    let follower = |(((requests, answers), (orders, words)), number)| Follower {
        number,
        requests,
        answers,
        orders,
        words,
        log: Vec::new(),
        no_ops: BTreeMap::new(),
        asked: false,
    };
    let followers = ends.zip(1..).map(follower).collect();
    let ends = requests.into_iter().zip(to_clients).zip(0..);
    let client = |(ends, id)| Client::new(id, ends, (plan.load, needed + 1), plan.seed);
    Ok(Nodes { leader, followers, clients: ends.map(client).collect() })
}

/// Runs the store until all clients are done.
pub(crate) fn run(world: &World, plan: &Plan) -> Result<Report> {
    let Nodes { mut leader, mut followers, mut clients } = connect(&world.devices, plan)?;
    drive(world, plan, |actor, now: Duration, step| {
        match actor {
            0 => leader.turn()?,
            _ if actor <= plan.followers => followers[actor - 1].turn()?,
            _ => clients[actor - plan.followers - 1].turn(now, step)?,
        }
        Ok(clients.iter().all(Client::is_done))
    })?;
    let mut report = Report::of(&clients);
    (report.fills, report.no_ops) = (leader.fills, leader.no_ops);
    let same = |a: &Message, b: &Message| (a.command, a.value) == (b.command, b.value);
    let agrees = |one: &Follower<_>| leader.log.iter().zip(&one.log).all(|(a, b)| same(a, b));
    let dead = plan.dead();
    let mut living = followers.iter().filter(|one| Some(one.number as usize) != dead);
    report.logs_agree = living.all(agrees);
    Ok(report)
}
