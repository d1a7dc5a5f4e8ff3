//! What the tests share: a shuffle between nodes of one process, and a run of it that checks
//! everything that arrives.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod process;

use std::collections::HashMap;
use std::time::Duration;

use millstream_fabric::sim::{Model, Sim, SimDevice};
use millstream_fabric::{Fabric, Timing};
use millstream_flow::shuffle::{
    Counters, Delivery, Depth, Design, Error, Received, Receiver, ReceiverSetup, Result, Sender,
    SenderSetup, Settings, State,
};

/// Small messages, so that runs are short.
pub(crate) const MESSAGE_BYTES: usize = 96;

/// Settings of a test: `depth` buffers, credit after `credit_every`.
pub(crate) fn settings(design: Design, depth: u32, credit_every: u32) -> Settings {
    Settings {
        message_bytes: MESSAGE_BYTES,
        depth: Depth::Fixed(depth),
        credit_every,
        ..Settings::new(design)
    }
}

/// The same for fabrics in real time, where a busy machine is no reason to take a peer for lost.
pub(crate) fn patient(settings: Settings) -> Settings {
    let silence = Duration::from_secs(60);
    let timing = Timing { silence, receiver_not_ready: None };
    Settings { silence, stragglers: silence, timing, ..settings }
}

/// All endpoints of a shuffle: `senders[node][endpoint]`, and the same of receivers. Endpoint e of
/// a node is connected to endpoint e of every node, its own included.
pub(crate) struct Shuffle<F: Fabric> {
    pub(crate) senders: Vec<Vec<Sender<F>>>,
    pub(crate) receivers: Vec<Vec<Receiver<F>>>,
    pub(crate) settings: Settings,
    pub(crate) threads: usize,
}

pub(crate) fn sender_id(node: usize, endpoint: usize) -> u32 {
    (100 + 10 * node + endpoint) as u32
}

pub(crate) fn receiver_id(node: usize, endpoint: usize) -> u32 {
    (500 + 10 * node + endpoint) as u32
}

impl<F: Fabric> Shuffle<F> {
    /// Opens and connects everything, with so many threads on each node.
    pub(crate) fn new(devices: &[F], settings: Settings, threads: usize) -> Result<Shuffle<F>> {
        let nodes = devices.len();
        let endpoints = settings.design.endpoints_of(threads);
        let shared = (threads / endpoints) as u32;
        let settings = Settings { threads: shared, ..settings };
        let mut to = Vec::new();
        let mut from = Vec::new();
        for (node, device) in devices.iter().enumerate() {
            let open = |e| SenderSetup::new(device, sender_id(node, e), nodes, settings);
            to.push((0..endpoints).map(open).collect::<Result<Vec<_>>>()?);
            let open = |e| ReceiverSetup::new(device, receiver_id(node, e), nodes, settings);
            from.push((0..endpoints).map(open).collect::<Result<Vec<_>>>()?);
        }
        let hellos = |e: usize, node: usize| -> Vec<_> {
            from.iter().map(|there| there[e].hello(node)).collect()
        };
        let to_senders: Vec<Vec<_>> =
            (0..nodes).map(|n| (0..endpoints).map(|e| hellos(e, n)).collect()).collect();
        let hellos = |e: usize, node: usize| -> Vec<_> {
            to.iter().map(|there| there[e].hello(node)).collect()
        };
        let to_receivers: Vec<Vec<_>> =
            (0..nodes).map(|n| (0..endpoints).map(|e| hellos(e, n)).collect()).collect();
        let mut shuffle = Shuffle { senders: Vec::new(), receivers: Vec::new(), settings, threads };
        for (setups, hellos) in to.into_iter().zip(&to_senders) {
            let connected = setups.into_iter().zip(hellos).map(|(setup, all)| setup.connect(all));
            shuffle.senders.push(connected.collect::<Result<_>>()?);
        }
        for (setups, hellos) in from.into_iter().zip(&to_receivers) {
            let connected = setups.into_iter().zip(hellos).map(|(setup, all)| setup.connect(all));
            shuffle.receivers.push(connected.collect::<Result<_>>()?);
        }
        Ok(shuffle)
    }

    /// The sum over all sending endpoints, and over all receiving ones.
    pub(crate) fn counters(&self) -> (Counters, Counters) {
        let mut sums = (Counters::default(), Counters::default());
        for sender in self.senders.iter().flatten() {
            sums.0 += sender.counters();
        }
        for receiver in self.receivers.iter().flatten() {
            sums.1 += receiver.counters();
        }
        sums
    }
}

/// Communication patterns (paper, section 4.1), by their transmission groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    Repartition,
    Multicast,
    Broadcast,
}

impl Pattern {
    pub(crate) const ALL: [Pattern; 3] =
        [Pattern::Repartition, Pattern::Multicast, Pattern::Broadcast];

    pub(crate) fn groups(self, nodes: usize) -> Vec<Vec<usize>> {
        match self {
            Pattern::Repartition => (0..nodes).map(|node| vec![node]).collect(),
            // Each node and its neighbour, and the first alone: some are in several, and of two
            // nodes the last group has both.
            Pattern::Multicast => {
                let pair = |node| vec![node, (node + 1) % nodes];
                let mut groups: Vec<_> = (0..nodes).map(pair).collect();
                groups.push(vec![0]);
                groups
            }
            Pattern::Broadcast => vec![(0..nodes).collect()],
        }
    }
}

/// The tests' only source of chance.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// What a run does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) pattern: Pattern,
    /// Messages that each thread puts.
    pub(crate) messages: usize,
    /// A receiver of node 0 has its turn only so seldom.
    pub(crate) slow: usize,
    /// Messages that a consumer holds before it releases the oldest.
    pub(crate) hold: usize,
    /// Whether messages are full, or of any length.
    pub(crate) full: bool,
    pub(crate) seed: u64,
    /// A node whose endpoints are not called any more from this step on.
    pub(crate) dies: Option<(usize, u64)>,
}

impl Work {
    pub(crate) fn new(pattern: Pattern, messages: usize) -> Work {
        Work { pattern, messages, slow: 1, hold: 0, full: false, seed: 1, dies: None }
    }
}

/// How a run ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Errors by endpoint: id and error. Senders that had finished have none.
    pub(crate) errors: Vec<(u32, Error)>,
    /// The step of each.
    pub(crate) failed_at: Vec<u64>,
    /// Senders and receivers of which something came twice, not at all, or out of order, though
    /// the receiver came to its end.
    pub(crate) wrong: Vec<(u32, u32)>,
    /// Messages delivered.
    pub(crate) delivered: u64,
    pub(crate) steps: u64,
}

/// One thread that puts.
struct Producer {
    node: usize,
    endpoint: usize,
    left: usize,
    failed: bool,
    finished: bool,
}

/// One endpoint that is got from.
struct Consumer<'a, F: Fabric> {
    node: usize,
    receiver: &'a Receiver<F>,
    held: Vec<Delivery<'a, F>>,
    ends: usize,
    finished: bool,
    failed: bool,
}

/// A payload: sender's id, number among those of this sender for this receiver, and bytes that
/// follow from both.
fn fill(payload: &mut [u8], sender: u32, number: u32) {
    payload[..4].copy_from_slice(&sender.to_le_bytes());
    payload[4..8].copy_from_slice(&number.to_le_bytes());
    for (i, byte) in payload.iter_mut().enumerate().skip(8) {
        *byte = (sender as usize + 31 * number as usize + i) as u8;
    }
}

/// Runs a shuffle to its end, one call after the other in an order that follows from the seed, and
/// checks what arrives. `idle` lets time pass. After `steps_max` turns it counts as hanging.
pub(crate) fn run<F: Fabric>(
    shuffle: &Shuffle<F>,
    work: Work,
    idle: &mut dyn FnMut(u64),
    steps_max: u64,
) -> Outcome {
    let mut run = Run::new(shuffle, work);
    while !run.is_over() {
        run.turn();
        run.outcome.steps += 1;
        idle(run.outcome.steps);
        if run.outcome.steps >= steps_max {
            run.hangs();
        }
    }
    run.check();
    run.outcome
}

/// The same, where nothing may go wrong.
pub(crate) fn run_well<F: Fabric>(
    shuffle: &Shuffle<F>,
    work: Work,
    idle: &mut dyn FnMut(u64),
) -> Outcome {
    let outcome = run(shuffle, work, idle, STEPS_MAX);
    let Outcome { errors, wrong, .. } = &outcome;
    let design = shuffle.settings.design;
    assert!(errors.is_empty() && wrong.is_empty(), "{design} {work:?}: {errors:?} {wrong:?}");
    let put = work.messages * shuffle.threads * shuffle.senders.len();
    assert!(outcome.delivered >= put as u64, "{design} {work:?}: {outcome:?}");
    let (sent, received) = shuffle.counters();
    // Those that only say that the sender is alive are no messages.
    assert_eq!((sent.messages, sent.bytes), (received.messages, received.bytes), "{design}");
    outcome
}

/// Far more turns than any run takes.
pub(crate) const STEPS_MAX: u64 = 5_000_000;

/// The next thing happens; if there is none, time passes.
pub(crate) fn while_away(sim: &Sim) {
    if !sim.step() {
        sim.advance(Duration::from_micros(200));
    }
}

/// A world of so many nodes.
pub(crate) fn simulated(seed: u64, model: Model, nodes: usize) -> (Sim, Vec<SimDevice>) {
    let sim = Sim::new(seed);
    let devices = (0..nodes).map(|_| sim.node(model)).collect();
    (sim, devices)
}

struct Run<'a, F: Fabric> {
    shuffle: &'a Shuffle<F>,
    work: Work,
    groups: Vec<Vec<usize>>,
    chance: Chance,
    producers: Vec<Producer>,
    consumers: Vec<Consumer<'a, F>>,
    /// By sender and receiver: the numbers put, and those received.
    put: HashMap<(u32, u32), Vec<u32>>,
    got: HashMap<(u32, u32), Vec<u32>>,
    /// By sender: messages put, which gives them their numbers.
    numbers: HashMap<u32, u32>,
    outcome: Outcome,
}

impl<'a, F: Fabric> Run<'a, F> {
    fn new(shuffle: &'a Shuffle<F>, work: Work) -> Run<'a, F> {
        let mut producers = Vec::new();
        for (node, senders) in shuffle.senders.iter().enumerate() {
            for thread in 0..shuffle.threads {
                let endpoint = thread % senders.len();
                let left = work.messages;
                producers.push(Producer { node, endpoint, left, failed: false, finished: false });
            }
        }
        let each = shuffle.receivers.iter().enumerate();
        let each = each.flat_map(|(node, all)| all.iter().map(move |one| (node, one)));
        let consumer = |(node, receiver): (usize, &'a Receiver<F>)| Consumer {
            node,
            receiver,
            held: Vec::new(),
            ends: 0,
            finished: false,
            failed: false,
        };
        Run {
            groups: work.pattern.groups(shuffle.senders.len()),
            chance: Chance(work.seed),
            consumers: each.map(consumer).collect(),
            shuffle,
            work,
            producers,
            put: HashMap::new(),
            got: HashMap::new(),
            numbers: HashMap::new(),
            outcome: Outcome::default(),
        }
    }

    fn hangs(&self) -> ! {
        for one in &self.producers {
            let sender = &self.shuffle.senders[one.node][one.endpoint];
            let Producer { left, failed, finished, .. } = one;
            println!("{}: {left} left, {failed} {finished} {:?}", sender.id(), sender.counters());
        }
        for Consumer { receiver, held, ends, finished, failed, .. } in &self.consumers {
            let held = held.len();
            println!("{}: {held} held, {ends} ends, {failed} {finished}", receiver.id());
            println!("{:?}", receiver.counters());
        }
        panic!("{:?} {} hangs: {:?}", self.work, self.shuffle.settings.design, self.outcome);
    }

    fn is_over(&self) -> bool {
        let mut producers = self.producers.iter();
        let mut consumers = self.consumers.iter();
        producers.all(|one| one.failed || one.finished || self.is_dead(one.node))
            && consumers.all(|one| one.failed || one.finished || self.is_dead(one.node))
    }

    fn is_dead(&self, node: usize) -> bool {
        self.work.dies.is_some_and(|(dead, at)| dead == node && self.outcome.steps >= at)
    }

    fn turn(&mut self) {
        let all = self.producers.len() + self.consumers.len();
        let who = self.chance.below(all);
        let consumer = who.checked_sub(self.producers.len());
        let node = match consumer {
            None => self.producers[who].node,
            Some(consumer) => self.consumers[consumer].node,
        };
        if self.is_dead(node) {
            return;
        }
        let result = match consumer {
            None => self.produce(who),
            Some(consumer) => self.consume(consumer),
        };
        let Err(error) = result else { return };
        assert!(error.is_final(), "{error}");
        let id = match consumer {
            None => {
                self.producers[who].failed = true;
                let Producer { node, endpoint, .. } = self.producers[who];
                sender_id(node, endpoint)
            }
            Some(consumer) => {
                self.consumers[consumer].failed = true;
                self.consumers[consumer].held.clear();
                self.consumers[consumer].receiver.id()
            }
        };
        self.outcome.errors.push((id, error));
        self.outcome.failed_at.push(self.outcome.steps);
    }

    fn produce(&mut self, who: usize) -> Result<()> {
        let Producer { node, endpoint, left, failed, finished } = self.producers[who];
        let sender = &self.shuffle.senders[node][endpoint];
        if failed || finished {
            return Ok(());
        }
        if left == 0 {
            // The last thread of an endpoint ends its streams.
            let others = self.producers.iter();
            let of_sender = |one: &&Producer| one.node == node && one.endpoint == endpoint;
            if others.filter(of_sender).all(|one| one.left == 0) {
                self.producers[who].finished = sender.try_finish()?;
                return Ok(());
            }
            return sender.keep_alive();
        }
        let Some(mut buffer) = sender.try_acquire()? else { return Ok(()) };
        let group = self.groups[self.chance.below(self.groups.len())].clone();
        let number = self.numbers.entry(sender.id()).or_default();
        let bytes = match self.work.full {
            true => MESSAGE_BYTES,
            false => 8 + self.chance.below(MESSAGE_BYTES - 7),
        };
        fill(&mut buffer.payload()[..bytes], sender.id(), *number);
        sender.put(buffer, bytes, &group, State::MoreData)?;
        for to in group {
            let pair = (sender.id(), receiver_id(to, endpoint));
            self.put.entry(pair).or_default().push(*number);
        }
        *number += 1;
        self.producers[who].left -= 1;
        Ok(())
    }

    fn consume(&mut self, who: usize) -> Result<()> {
        let slow = who == 0 && !self.outcome.steps.is_multiple_of(self.work.slow as u64);
        let consumer = &mut self.consumers[who];
        if slow || consumer.failed || consumer.finished {
            return Ok(());
        }
        match consumer.receiver.try_get()? {
            Received::Empty => {
                if self.chance.below(4) == 0 && !consumer.held.is_empty() {
                    consumer.held.remove(0).release()?;
                }
            }
            Received::End => {
                consumer.held.clear();
                consumer.ends += 1;
                // The end stays.
                consumer.finished = consumer.ends > 1 && consumer.receiver.try_finish()?;
            }
            Received::Message(message) => {
                assert_eq!(consumer.ends, 0, "nothing comes after the end");
                if !message.is_empty() {
                    let sender = u32::from_le_bytes(message[..4].try_into().unwrap());
                    let number = u32::from_le_bytes(message[4..8].try_into().unwrap());
                    assert_eq!(sender, consumer.receiver.sources()[message.source()]);
                    let mut expected = vec![0; message.len()];
                    fill(&mut expected, sender, number);
                    assert!(*message == expected[..], "a message is damaged");
                    let pair = (sender, consumer.receiver.id());
                    self.got.entry(pair).or_default().push(number);
                    self.outcome.delivered += 1;
                }
                consumer.held.push(message);
                if consumer.held.len() > self.work.hold {
                    consumer.held.remove(0).release()?;
                }
            }
        }
        Ok(())
    }

    /// That endpoints which came to their end have received what was put, once each, and in order
    /// where that is promised.
    fn check(&mut self) {
        let ordered = self.shuffle.settings.design.is_ordered();
        for consumer in self.consumers.iter().filter(|one| one.finished) {
            for source in consumer.receiver.sources() {
                let pair = (*source, consumer.receiver.id());
                let put = self.put.remove(&pair).unwrap_or_default();
                let mut got = self.got.remove(&pair).unwrap_or_default();
                if !ordered {
                    got.sort_unstable();
                }
                if got != put {
                    self.outcome.wrong.push(pair);
                }
            }
        }
    }
}

/// Time for anything between threads and processes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
