//! The simulated world: its nodes, their queues, and the events to come.
//!
//! Everything that takes time is an event in one queue, ordered by virtual time and then by the
//! order of scheduling, so that a run depends on the seed and the calls made, and on nothing else.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::model::{Chance, Model};
use super::pair::{Pair, PairEvent};
use super::ud::{Arrival, Ud};
use crate::keys::KeyTable;
use crate::work::{Completion, Status};

pub(super) struct World {
    pub(super) now: u64,
    /// How much time a look at a clock takes.
    pub(super) look: u64,
    scheduled: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    pub(super) chance: Chance,
    pub(super) nodes: Vec<Node>,
    pub(super) queues: Vec<SimCompletions>,
    pub(super) pairs: Vec<Pair>,
    pub(super) uds: Vec<Ud>,
    /// Whether something happened, by number of the events object.
    pub(super) signals: Vec<bool>,
    cuts: HashSet<(usize, usize)>,
}

pub(super) struct Node {
    pub(super) model: Model,
    pub(super) keys: Arc<KeyTable>,
    stopped: bool,
    out_free: u64,
    in_free: u64,
}

/// A message on its way from a node.
pub(super) struct Sent {
    from: usize,
    /// When the sender's link began to send.
    start: u64,
    /// How long the sender's link was occupied.
    sending: u64,
}

/// A completion queue.
pub(super) struct SimCompletions {
    pub(super) entries: VecDeque<Entry>,
    pub(super) capacity: usize,
    pub(super) events: Option<usize>,
    pub(super) armed: bool,
    pub(super) overflow: bool,
}

/// A completion and the send queue entries that are free when it has been polled.
pub(super) struct Entry {
    pub(super) completion: Completion,
    pub(super) frees: u32,
}

pub(super) enum Event {
    Pair(usize, PairEvent),
    Datagram(usize, Arrival),
}

struct Scheduled {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Nanoseconds of a duration, at most a few centuries.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        World {
            now: 0,
            look: 50,
            scheduled: 0,
            events: BinaryHeap::new(),
            chance: Chance::new(seed),
            nodes: Vec::new(),
            queues: Vec::new(),
            pairs: Vec::new(),
            uds: Vec::new(),
            signals: Vec::new(),
            cuts: HashSet::new(),
        }
    }

    pub(super) fn add_node(&mut self, model: Model, keys: Arc<KeyTable>) -> usize {
        self.nodes.push(Node { model, keys, stopped: false, out_free: 0, in_free: 0 });
        self.nodes.len() - 1
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        let at = at.max(self.now);
        self.events.push(Reverse(Scheduled { at, order: self.scheduled, event }));
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(next)| next.at)
    }

    /// Lets the next event happen. Returns whether there was one.
    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse(Scheduled { at, event, .. })) = self.events.pop() else { return false };
        self.now = at;
        match event {
            Event::Pair(pair, event) => self.pair_event(pair, event),
            Event::Datagram(to, arrival) => self.datagram_arrives(to, arrival),
        }
        true
    }

    /// Lets happen what is due until `end`, and makes it `end`.
    pub(super) fn run_until(&mut self, end: u64) {
        while self.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Occupies the links between two nodes with a message and returns when it has arrived.
    pub(super) fn transmit(&mut self, from: usize, to: usize, bytes: usize) -> u64 {
        let sent = self.send_out(from, bytes);
        self.bring_in(&sent, to, bytes)
    }

    /// Occupies a node's link on the way out.
    pub(super) fn send_out(&mut self, from: usize, bytes: usize) -> Sent {
        let out = &mut self.nodes[from];
        let start = out.out_free.max(self.now);
        let sending = out.model.occupied_ns(bytes);
        out.out_free = start + sending;
        Sent { from, start, sending }
    }

    /// Occupies a node's link on the way in and returns when the message has arrived.
    pub(super) fn bring_in(&mut self, sent: &Sent, to: usize, bytes: usize) -> u64 {
        let latency = self.latency(sent.from, to);
        let into = &mut self.nodes[to];
        let receiving = into.model.occupied_ns(bytes).max(sent.sending);
        let arrived = (sent.start + latency).max(into.in_free) + receiving;
        into.in_free = arrived;
        arrived
    }

    pub(super) fn latency(&self, a: usize, b: usize) -> u64 {
        nanoseconds(self.nodes[a].model.latency.max(self.nodes[b].model.latency))
    }

    pub(super) fn reachable(&self, a: usize, b: usize) -> bool {
        !self.nodes[a].stopped && !self.nodes[b].stopped && !self.cuts.contains(&ordered(a, b))
    }

    pub(super) fn stop(&mut self, node: usize) {
        self.nodes[node].stopped = true;
    }

    pub(super) fn cut(&mut self, a: usize, b: usize) {
        self.cuts.insert(ordered(a, b));
    }

    pub(super) fn mend(&mut self, a: usize, b: usize) {
        self.cuts.remove(&ordered(a, b));
    }

    /// Adds a completion. A queue that is full has overflowed for good, and its pairs have failed.
    pub(super) fn complete(&mut self, queue: usize, completion: Completion, frees: u32) {
        let full = &mut self.queues[queue];
        if full.overflow {
            return;
        }
        if full.entries.len() == full.capacity {
            full.overflow = true;
            self.signal(queue);
            let on_it = |pair: &Pair| pair.send_queue == queue || pair.receive_queue == queue;
            let pairs: Vec<usize> =
                (0..self.pairs.len()).filter(|i| on_it(&self.pairs[*i])).collect();
            for pair in pairs {
                self.fail(pair, Status::Flushed);
            }
            return;
        }
        full.entries.push_back(Entry { completion, frees });
        if std::mem::take(&mut full.armed) {
            self.signal(queue);
        }
    }

    /// Wakes whoever sleeps on this completion queue's events.
    pub(super) fn signal(&mut self, queue: usize) {
        if let Some(events) = self.queues[queue].events {
            self.signals[events] = true;
        }
    }
}

fn ordered(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}
