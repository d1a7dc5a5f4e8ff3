//! Checks of connections that take their receives from a shared queue.

use super::ends::{MEMORY_BYTES, SIZES, receive, source};
use super::{Bed, Check, Failure, Outcome, ensure, same, text};
use millstream_fabric::Error;
use millstream_fabric::{Access, Region};
use millstream_fabric::{
    Completion, Kind, Operation, Receive, Source, Status, Timing, WorkRequest,
};
use millstream_fabric::{CompletionQueue, Fabric, QueuePair, SharedReceives, State};

pub(super) fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    vec![
        ("connections share receives, in the order of posting", in_order::<F>),
        ("an empty shared queue holds its senders up", empty::<F>),
        ("a full shared queue refuses, and has room when completions are polled", full::<F>),
        ("immediate values take shared receives", immediates::<F>),
        ("a connection that fails leaves shared receives to the others", failure::<F>),
        ("a connection with shared receives has none of its own", none_of_its_own::<F>),
        ("many messages of many connections arrive once each", many::<F>),
    ]
}

/// Connections from a to b whose receives are b's shared ones.
struct Sharing<F: Fabric> {
    a_queue: F::CompletionQueue,
    b_queue: F::CompletionQueue,
    shared: F::SharedReceives,
    senders: Vec<F::QueuePair>,
    receivers: Vec<F::QueuePair>,
    local: Region,
    remote: Region,
}

impl<F: Fabric> Sharing<F> {
    fn new(bed: &Bed<'_, F>, pairs: usize, entries: u32) -> Result<Sharing<F>, Failure> {
        let a_queue = bed.a.completion_queue(256, None).map_err(text)?;
        let b_queue = bed.b.completion_queue(256, None).map_err(text)?;
        let shared = bed.b.shared_receives(entries).map_err(text)?;
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let timing = Timing::default();
            let mut a = bed.a.queue_pair(&a_queue, &a_queue, SIZES, timing).map_err(text)?;
            let b = bed.b.queue_pair_sharing(&b_queue, &b_queue, &shared, SIZES, timing);
            let mut b = b.map_err(text)?;
            a.connect(&b.endpoint()).map_err(text)?;
            b.connect(&a.endpoint()).map_err(text)?;
            senders.push(a);
            receivers.push(b);
        }
        let local = bed.a.allocate(MEMORY_BYTES, Access::LOCAL).map_err(text)?;
        let remote = bed.b.allocate(MEMORY_BYTES, Access::REMOTE_WRITE).map_err(text)?;
        Ok(Sharing { a_queue, b_queue, shared, senders, receivers, local, remote })
    }

    /// Posts a receive of 64 bytes whose id says where it is.
    fn receive(&mut self, place: u64) -> Outcome {
        let one = receive(&self.remote, place, place as usize * 64, 64);
        self.shared.post(&[one]).map_err(text)
    }

    /// Sends a word over connection `sender`.
    fn send(&mut self, sender: usize, word: u64) -> Outcome {
        let word = word.to_ne_bytes();
        let operation = Operation::Send { source: Source::Inline(&word), immediate: None };
        let request = WorkRequest::new(operation).signalled(sender as u64);
        self.senders[sender].post(&[request]).map_err(text)
    }

    /// Next arrival: the connection, and the completion with the receive's id.
    fn arrival(&mut self, bed: &Bed<'_, F>) -> Result<(usize, Completion), Failure> {
        let done = bed.completions(&mut self.b_queue, 1)?[0];
        let by = self.receivers.iter().position(|pair| pair.number() == done.queue_pair);
        by.map(|by| (by, done)).ok_or(format!("{done:?} is nobody's"))
    }

    fn word(&self, place: u64) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        self.remote.read(place as usize * 64, &mut bytes).map_err(text)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn sent(&mut self, bed: &Bed<'_, F>, sender: usize) -> Outcome {
        let done = bed.completions(&mut self.a_queue, 1)?[0];
        same("sender's completion", (done.id, done.status), (sender as u64, Status::Success))
    }
}

fn in_order<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Sharing::new(bed, 3, 16)?;
    for place in 0..6 {
        ends.receive(place)?;
    }
    for place in 0..6 {
        let sender = [0, 2, 1, 1, 0, 2][place as usize];
        ends.send(sender, 100 + place)?;
        let (by, done) = ends.arrival(bed)?;
        let found = (by, done.id, done.kind, done.status, done.bytes);
        same("arrival", found, (sender, place, Kind::Receive, Status::Success, 8))?;
        same("word", ends.word(place)?, 100 + place)?;
        ends.sent(bed, sender)?;
    }
    Ok(())
}

fn empty<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Sharing::new(bed, 2, 16)?;
    ends.send(0, 7)?;
    ends.send(1, 8)?;
    bed.nothing(&mut ends.b_queue)?;
    ends.receive(0)?;
    ends.receive(1)?;
    // Some senders try again only when their owner polls.
    let mut done = bed.completions(&mut ends.a_queue, 2)?;
    done.sort_by_key(|done| done.id);
    for (sender, done) in done.iter().enumerate() {
        same("sender's completion", (done.id, done.status), (sender as u64, Status::Success))?;
    }
    let mut words = Vec::new();
    for _ in 0..2 {
        let (by, done) = ends.arrival(bed)?;
        same("word", ends.word(done.id)?, 7 + by as u64)?;
        words.push(by);
    }
    words.sort_unstable();
    same("arrivals", words, vec![0, 1])
}

fn full<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Sharing::new(bed, 1, 4)?;
    let (mut posted, most) = (0, 4 * bed.b.limits().queue_entries as usize);
    let refused = loop {
        match ends.shared.post(&[Receive { id: posted as u64, buffer: None }]) {
            Ok(()) => posted += 1,
            Err(rejected) => break rejected,
        }
        ensure(posted <= most, || format!("{posted} receives were taken"))?;
    };
    same("posted of the list", refused.posted, 0)?;
    ensure(matches!(refused.reason, Error::QueueFull), || refused.reason.to_string())?;
    ensure(posted >= 4, || format!("only {posted} of 4 entries could be used"))?;
    for round in 0..3 {
        let operation = Operation::Send { source: Source::Inline(&[]), immediate: None };
        ends.senders[0].post(&[WorkRequest::new(operation).signalled(0)]).map_err(text)?;
        ends.sent(bed, 0)?;
        let (_, done) = ends.arrival(bed)?;
        same("receive", done.id, round)?;
        ends.shared.post(&[Receive { id: 1000 + round, buffer: None }]).map_err(text)?;
    }
    Ok(())
}

fn immediates<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Sharing::new(bed, 2, 16)?;
    for id in 0..4 {
        ends.shared.post(&[Receive { id, buffer: None }]).map_err(text)?;
    }
    for id in 0..4 {
        let sender = id as usize % 2;
        let to = ends.remote.remote().at(64 * id, 8).map_err(text)?;
        let word = (50 + id).to_ne_bytes();
        let request = WorkRequest::write_immediate(Source::Inline(&word), to, id as u32);
        ends.senders[sender].post(&[request.signalled(sender as u64)]).map_err(text)?;
        let (by, done) = ends.arrival(bed)?;
        let found = (by, done.id, done.kind, done.immediate);
        same("arrival", found, (sender, id, Kind::ReceiveWrite, Some(id as u32)))?;
        same("word", ends.word(id)?, 50 + id)?;
        ends.sent(bed, sender)?;
    }
    Ok(())
}

fn failure<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Sharing::new(bed, 2, 16)?;
    for place in 0..3 {
        ends.receive(place)?;
    }
    ends.receivers[0].fail();
    same("state", ends.receivers[0].state(), State::Failed)?;
    for place in 0..3 {
        ends.send(1, place)?;
        let (by, done) = ends.arrival(bed)?;
        same("arrival", (by, done.id, done.status), (1, place, Status::Success))?;
        same("word", ends.word(place)?, place)?;
        let done = bed.completions(&mut ends.a_queue, 1)?[0];
        same("sender's completion", (done.id, done.status), (1, Status::Success))?;
    }
    Ok(())
}

fn none_of_its_own<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Sharing::new(bed, 1, 16)?;
    match ends.receivers[0].post_receive(&[Receive { id: 1, buffer: None }]) {
        Err(rejected) if matches!(rejected.reason, Error::Unsupported { .. }) => Ok(()),
        other => Err(format!("a receive of its own: {other:?}")),
    }
}

fn many<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    const MESSAGES: u64 = 300;
    let pairs = 3;
    let mut ends = Sharing::new(bed, pairs, 8)?;
    for place in 0..8 {
        ends.receive(place)?;
    }
    let (mut seen, mut next) = (vec![0; pairs], 0);
    while seen.iter().sum::<u64>() < MESSAGES {
        // As many as there are receives, over connections in turn.
        let burst = 8.min(MESSAGES - next);
        for number in next..next + burst {
            let at = number as usize % 1000 * 8;
            ends.local.write(at, &number.to_ne_bytes()).map_err(text)?;
            let operation = Operation::Send { source: source(&ends.local, at, 8), immediate: None };
            let sender = number as usize % pairs;
            let request = WorkRequest::new(operation).signalled(sender as u64);
            ends.senders[sender].post(&[request]).map_err(text)?;
        }
        next += burst;
        for done in bed.completions(&mut ends.a_queue, burst as usize)? {
            same("sender's status", done.status, Status::Success)?;
        }
        for _ in 0..burst {
            let (by, done) = ends.arrival(bed)?;
            // Each connection's messages come in order.
            same("word", ends.word(done.id)?, seen[by] * pairs as u64 + by as u64)?;
            seen[by] += 1;
            ends.receive(done.id)?;
        }
    }
    let mut one = [Completion::default()];
    same("what is left", ends.b_queue.poll(&mut one).map_err(text)?, 0)?;
    Ok(())
}
