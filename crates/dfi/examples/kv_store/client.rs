//! Clients: they draw requests, wait for answers, and write a history.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_dfi::{Result, Target};
use millstream_fabric::Fabric;

use super::answers::WINDOW;
use super::history::Operation;
use super::message::{ANSWER, Brought, LEADER, Message, Port, READ, REQUEST, WRITE, take};
use super::{Bug, Chance, planted};

/// The work of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Requests of each client, and how many of them may be outstanding.
    pub(crate) requests: u64,
    pub(crate) outstanding: usize,
    pub(crate) keys: usize,
    /// Writes, of a hundred requests.
    pub(crate) writes: usize,
    /// A request without an answer is sent again after this time.
    pub(crate) again: Option<Duration>,
}

/// A request that has no answer yet.
struct Pending {
    message: Message,
    operation: usize,
    /// When it was first sent, and last.
    called: Duration,
    sent: Duration,
    /// By slot: the replicas that have answered, and the leader's value.
    answers: BTreeMap<u64, (u64, Option<u64>)>,
}

pub(crate) struct Client<F: Fabric> {
    pub(crate) id: u64,
    pub(crate) requests: Port<F>,
    pub(crate) answers: Target<F>,
    pub(crate) load: Load,
    /// Matching answers that a request needs, with the leader's answer among them.
    pub(crate) needed: u32,
    chance: Chance,
    pending: BTreeMap<u64, Pending>,
    pub(crate) history: Vec<Operation>,
    pub(crate) sent_again: u64,
    /// The sum of all times to an answer.
    pub(crate) waited: Duration,
    /// When the last answer came.
    pub(crate) ended: Duration,
}

impl<F: Fabric> Client<F> {
    pub(crate) fn new(
        id: u64,
        (requests, answers): (Port<F>, Target<F>),
        (load, needed): (Load, u32),
        seed: u64,
    ) -> Client<F> {
        Client {
            id,
            requests,
            answers,
            load,
            needed,
            chance: Chance(seed ^ (id + 1) << 40),
            pending: BTreeMap::new(),
            history: Vec::new(),
            sent_again: 0,
            waited: Duration::ZERO,
            ended: Duration::ZERO,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.history.len() as u64 == self.load.requests && self.pending.is_empty()
    }

    pub(crate) fn turn(&mut self, now: Duration, step: u64) -> Result<()> {
        self.requests.progress()?;
        if let Brought::Message(answer) = take(&mut self.answers)? {
            self.answered(&answer, now, step);
        }
        if !self.requests.is_clear() {
            return Ok(());
        }
        let number = self.history.len() as u64;
        let first = self.pending.keys().next().copied().unwrap_or(number);
        let more = number < self.load.requests && number - first < WINDOW;
        if more && self.pending.len() < self.load.outstanding {
            return self.request(now, step);
        }
        let Some(again) = self.load.again else { return Ok(()) };
        let late = |one: &&mut Pending| now.saturating_sub(one.sent) >= again;
        if let Some(pending) = self.pending.values_mut().find(late) {
            pending.sent = now;
            self.sent_again += 1;
            return self.requests.send(pending.message);
        }
        Ok(())
    }

    fn request(&mut self, now: Duration, step: u64) -> Result<()> {
        let number = self.history.len() as u64;
        let key = self.chance.below(self.load.keys) as u64;
        let write = self.chance.below(100) < self.load.writes;
        // Each value is written once.
        let value = if write { self.id << 32 | (number + 1) } else { 0 };
        let command = if write { WRITE } else { READ };
        let message = Message {
            kind: REQUEST,
            command,
            replica: 0,
            client: self.id,
            number,
            key,
            value,
            slot: 0,
        };
        let operation = self.history.len();
        self.history.push(Operation { key, write, value, called: step, answered: None });
        let answers = BTreeMap::new();
        self.pending
            .insert(number, Pending { message, operation, called: now, sent: now, answers });
        self.requests.send(message)
    }

    /// An answer counts with those of the same slot.
    fn answered(&mut self, answer: &Message, now: Duration, step: u64) {
        if answer.kind != ANSWER || answer.replica >= 64 {
            return;
        }
        let Some(pending) = self.pending.get_mut(&answer.number) else { return };
        let (replicas, value) = pending.answers.entry(answer.slot).or_default();
        *replicas |= 1 << answer.replica;
        if answer.replica == LEADER {
            *value = Some(answer.value);
        }
        let enough = replicas.count_ones() >= self.needed;
        let written = planted(Bug::AnswersWithoutLeader) && pending.message.command == WRITE;
        let value = if written { Some(pending.message.value) } else { *value };
        if let (true, Some(value)) = (enough, value) {
            let operation = &mut self.history[pending.operation];
            (operation.value, operation.answered) = (value, Some(step));
            self.waited += now.saturating_sub(pending.called);
            self.ended = now;
            self.pending.remove(&answer.number);
        }
    }
}
