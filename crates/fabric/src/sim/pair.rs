//! Reliable connections of the simulation, as a network card's two ends play them.

use std::collections::VecDeque;

use super::model::Placement;
use super::world::{Buffer, Bytes, Event, Posted, World, nanoseconds};
use crate::contract::State;
use crate::keys::{Need, Target};
use crate::memory::RemoteAddress;
use crate::place::place;
use crate::work::{Completion, Kind, Operation, QueueSizes, Status, Timing, WorkRequest};

/// Unreachable peers are tried again after this time.
const RETRANSMIT_NS: u64 = 100_000;
/// Peers without a posted receive are tried again after this time.
const NOT_READY_NS: u64 = 10_000;

/// One end of a connection. Work goes through it in order: posted, arrived at the peer, executed
/// there, acknowledged, completed.
pub(super) struct Pair {
    pub(super) node: usize,
    pub(super) send_queue: usize,
    pub(super) receive_queue: usize,
    pub(super) sizes: QueueSizes,
    timing: Timing,
    pub(super) state: State,
    peer: Option<usize>,
    /// Posted and not acknowledged, oldest first.
    outstanding: VecDeque<Work>,
    /// Sequence number of the oldest.
    first: u64,
    /// Sequence number of the next to execute at the peer.
    next: u64,
    /// Whether that one's bytes are being placed.
    placing: bool,
    /// Time of the last arrival; later work does not arrive before.
    arrived: u64,
    /// Send queue entries that no polled completion has freed.
    pub(super) used: u32,
    /// Entries that the next completion frees besides its own.
    unsignalled: u32,
    pub(super) receives: VecDeque<Posted>,
    /// Whether a timer for the peer's silence runs.
    timer: bool,
    /// When the peer was heard of last.
    heard: u64,
    /// Since when the peer has had no receive for us.
    not_ready: Option<u64>,
}

struct Work {
    id: u64,
    signalled: bool,
    kind: Kind,
    bytes: u32,
    action: Action,
    arrived: bool,
}

enum Action {
    Write { bytes: Bytes, to: RemoteAddress, immediate: Option<u32> },
    Read { into: Buffer, from: RemoteAddress, data: Vec<u8> },
    Send { bytes: Bytes, immediate: Option<u32> },
    Atomic { into: Buffer, at: RemoteAddress, change: Change, old: u64 },
}

#[derive(Clone, Copy)]
enum Change {
    Add(u64),
    Swap { expected: u64, new: u64 },
}

pub(super) enum PairEvent {
    /// The work with this number reaches the peer.
    Arrive(u64),
    /// Bytes of the work with this number reach the peer's memory.
    Place { number: u64, target: Target, from: usize, to: usize },
    /// All of them have.
    Placed,
    /// The peer's receive queue is looked at again.
    Retry,
    /// All work up to this number is done, the last with this status.
    Answer(u64, Status),
    /// Has the peer been heard of?
    Timer,
}

impl Pair {
    pub(super) fn new(
        node: usize,
        send_queue: usize,
        receive_queue: usize,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Pair {
        Pair {
            node,
            send_queue,
            receive_queue,
            sizes,
            timing,
            state: State::Fresh,
            peer: None,
            outstanding: VecDeque::new(),
            first: 0,
            next: 0,
            placing: false,
            arrived: 0,
            used: 0,
            unsignalled: 0,
            receives: VecDeque::new(),
            timer: false,
            heard: 0,
            not_ready: None,
        }
    }

    pub(super) fn connect(&mut self, peer: usize) {
        self.peer = Some(peer);
        self.state = State::Connected;
    }

    /// Forgets everything: its owner is gone.
    pub(super) fn drop_work(&mut self) {
        self.state = State::Failed;
        self.outstanding.clear();
        self.receives.clear();
    }

    fn work(&mut self, number: u64) -> Option<&mut Work> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.outstanding.get_mut(index)
    }
}

impl Work {
    fn new(request: &WorkRequest<'_>) -> Work {
        let mut sent = 0;
        let action = match &request.operation {
            Operation::Write { source, to, immediate } => {
                sent = source.bytes();
                Action::Write { bytes: Bytes::new(source), to: *to, immediate: *immediate }
            }
            Operation::Send { source, immediate } => {
                sent = source.bytes();
                Action::Send { bytes: Bytes::new(source), immediate: *immediate }
            }
            Operation::Read { into, from } => {
                Action::Read { into: Buffer::new(into), from: *from, data: Vec::new() }
            }
            Operation::FetchAdd { into, at, add } => Action::Atomic {
                into: Buffer::new(into),
                at: *at,
                change: Change::Add(*add),
                old: 0,
            },
            Operation::CompareSwap { into, at, expected, new } => Action::Atomic {
                into: Buffer::new(into),
                at: *at,
                change: Change::Swap { expected: *expected, new: *new },
                old: 0,
            },
        };
        Work {
            id: request.id,
            signalled: request.signalled,
            kind: request.operation.kind(),
            bytes: u32::try_from(sent).unwrap_or(u32::MAX),
            action,
            arrived: false,
        }
    }
}

impl World {
    /// Takes a request that was checked into the queue and puts it on the wire.
    pub(super) fn post(&mut self, index: usize, request: &WorkRequest<'_>) {
        let work = Work::new(request);
        let bytes = work.bytes as usize;
        let pair = &mut self.pairs[index];
        pair.used += 1;
        let number = pair.first + pair.outstanding.len() as u64;
        if pair.outstanding.is_empty() {
            pair.heard = self.now;
        }
        pair.outstanding.push_back(work);
        let start_timer = !std::mem::replace(&mut pair.timer, true);
        let (node, silence) = (pair.node, nanoseconds(pair.timing.silence));
        let to = pair.peer.map_or(node, |peer| self.pairs[peer].node);
        let arrives = self.transmit(node, to, bytes).max(self.pairs[index].arrived);
        self.pairs[index].arrived = arrives;
        self.schedule(arrives, Event::Pair(index, PairEvent::Arrive(number)));
        if start_timer {
            self.schedule(self.now + silence, Event::Pair(index, PairEvent::Timer));
        }
    }

    pub(super) fn pair_event(&mut self, index: usize, event: PairEvent) {
        if self.pairs[index].state != State::Connected {
            return;
        }
        match event {
            PairEvent::Arrive(number) => {
                if self.peer_of(index).is_none() {
                    let again = self.now + RETRANSMIT_NS;
                    self.schedule(again, Event::Pair(index, PairEvent::Arrive(number)));
                    return;
                }
                if let Some(work) = self.pairs[index].work(number) {
                    work.arrived = true;
                }
                self.execute(index);
            }
            PairEvent::Place { number, target, from, to } => {
                if let Some(Work { action: Action::Write { bytes, .. }, .. }) =
                    self.pairs[index].work(number)
                {
                    // SAFETY: the source is alive while its work is outstanding; the target was
                    // resolved for the whole message and holds its memory.
                    unsafe { place(target.start().add(from), bytes.start().add(from), to - from) }
                }
            }
            PairEvent::Placed => {
                self.pairs[index].placing = false;
                self.executed(index, Status::Success);
                self.execute(index);
            }
            PairEvent::Retry => self.execute(index),
            PairEvent::Answer(number, status) => self.answered(index, number, status),
            PairEvent::Timer => self.timer(index),
        }
    }

    /// The peer, if it can be reached, is connected to us, and has not failed.
    fn peer_of(&self, index: usize) -> Option<usize> {
        let pair = &self.pairs[index];
        let peer = pair.peer?;
        let other = &self.pairs[peer];
        let ready = other.state == State::Connected
            && other.peer == Some(index)
            && self.reachable(pair.node, other.node);
        ready.then_some(peer)
    }

    /// Executes at the peer what has arrived there, in order.
    fn execute(&mut self, index: usize) {
        loop {
            let pair = &mut self.pairs[index];
            let number = pair.next;
            if pair.placing || pair.state != State::Connected {
                return;
            }
            if !pair.work(number).is_some_and(|work| work.arrived) {
                return;
            }
            let Some(peer) = self.peer_of(index) else {
                self.schedule(self.now + RETRANSMIT_NS, Event::Pair(index, PairEvent::Retry));
                return;
            };
            if self.takes_receive(index, number) && self.pairs[peer].receives.is_empty() {
                self.receiver_not_ready(index);
                return;
            }
            self.pairs[index].not_ready = None;
            match self.execute_one(index, peer, number) {
                Some(status) => self.executed(index, status),
                None => return,
            }
        }
    }

    fn takes_receive(&mut self, index: usize, number: u64) -> bool {
        let work = self.pairs[index].work(number);
        work.is_some_and(|work| {
            matches!(work.action, Action::Send { .. } | Action::Write { immediate: Some(_), .. })
        })
    }

    fn receiver_not_ready(&mut self, index: usize) {
        let now = self.now;
        let pair = &mut self.pairs[index];
        pair.heard = now;
        let since = *pair.not_ready.get_or_insert(now);
        let patience = pair.timing.receiver_not_ready.map(nanoseconds);
        if patience.is_some_and(|patience| now - since >= patience) {
            self.executed(index, Status::ReceiverNotReady);
        } else {
            self.schedule(now + NOT_READY_NS, Event::Pair(index, PairEvent::Retry));
        }
    }

    /// Executes one piece of work; `None` if its bytes take their time.
    fn execute_one(&mut self, index: usize, peer: usize, number: u64) -> Option<Status> {
        let node = self.pairs[peer].node;
        let keys = self.nodes[node].keys.clone();
        let resolve = |address: RemoteAddress, bytes: usize, need| {
            keys.resolve(address.key, address.address, bytes as u64, need)
        };
        let work = self.pairs[index].work(number)?;
        match &mut work.action {
            Action::Write { bytes, to, .. } => {
                let length = bytes.len();
                let Some(target) = resolve(*to, length, Need::Write) else {
                    return Some(self.refuse(peer, Status::RemoteAccess));
                };
                if self.nodes[node].model.placement == Placement::Whole || length < 16 {
                    // SAFETY: the source is alive while its work is outstanding; the target was
                    // resolved for so many bytes.
                    unsafe { place(target.start(), bytes.start(), length) };
                    return Some(Status::Success);
                }
                let to = *to;
                self.place_in_parts(index, node, number, length, to);
                None
            }
            Action::Send { bytes, .. } => {
                let (start, length) = (bytes.start(), bytes.len());
                let room = self.pairs[peer].receives.front().map_or(0, Posted::room);
                if length > room {
                    return Some(self.refuse(peer, Status::InvalidRequest));
                }
                if let Some(buffer) = self.pairs[peer].receives.front()?.buffer.as_ref() {
                    // SAFETY: the source as above; the buffer has room and its region is alive.
                    unsafe { place(buffer.start(), start, length) };
                }
                Some(Status::Success)
            }
            Action::Read { into, from, data } => {
                let Some(target) = resolve(*from, into.bytes, Need::Read) else {
                    return Some(self.refuse(peer, Status::RemoteAccess));
                };
                let length = into.bytes;
                data.resize(length, 0);
                // SAFETY: the target was resolved for so many bytes, `data` has them too.
                unsafe {
                    std::ptr::copy_nonoverlapping(target.start(), data.as_mut_ptr(), length);
                }
                Some(Status::Success)
            }
            Action::Atomic { at, change, old, .. } => {
                let Some(target) = resolve(*at, 8, Need::Atomic) else {
                    return Some(self.refuse(peer, Status::RemoteAccess));
                };
                // SAFETY: resolved for an atomic: 8 bytes, aligned, alive.
                let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(target.start().cast()) };
                *old = change.apply(word);
                Some(Status::Success)
            }
        }
    }

    /// The peer finds a request wrong: its own end fails too.
    fn refuse(&mut self, peer: usize, status: Status) -> Status {
        if status == Status::InvalidRequest
            && let Some(receive) = self.pairs[peer].receives.pop_front()
        {
            self.complete_receive(peer, receive.id, Status::Length, Kind::Receive, 0, None);
        }
        self.fail(peer, Status::Flushed);
        status
    }

    fn place_in_parts(
        &mut self,
        index: usize,
        node: usize,
        number: u64,
        length: usize,
        to: RemoteAddress,
    ) {
        // Cut where addresses are multiples of 8: hardware does not tear aligned words.
        let parts = 2 + self.chance.below(3);
        let mut cuts = vec![0, length];
        for _ in 1..parts {
            let cut = self.chance.below(length as u64);
            let aligned = (to.address + cut).next_multiple_of(8) - to.address;
            cuts.push((aligned as usize).min(length));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut ranges: Vec<(usize, usize)> = cuts.windows(2).map(|w| (w[0], w[1])).collect();
        if self.nodes[node].model.placement == Placement::Shuffled {
            for i in (1..ranges.len()).rev() {
                ranges.swap(i, self.chance.below(i as u64 + 1) as usize);
            }
        }
        let keys = self.nodes[node].keys.clone();
        let mut at = self.now;
        for (from, end) in ranges {
            let target = keys.resolve(to.key, to.address, length as u64, Need::Write);
            if let Some(target) = target {
                let event = PairEvent::Place { number, target, from, to: end };
                self.schedule(at, Event::Pair(index, event));
            }
            at += 1 + self.chance.below(2_000);
        }
        self.pairs[index].placing = true;
        self.schedule(at, Event::Pair(index, PairEvent::Placed));
    }

    /// The next work in order was executed at the peer, or refused: tells both sides.
    fn executed(&mut self, index: usize, status: Status) {
        let number = self.pairs[index].next;
        self.pairs[index].next += 1;
        let Some(peer) = self.pairs[index].peer else { return };
        let Some(work) = self.pairs[index].work(number) else { return };
        let (kind, bytes) = (work.kind, work.bytes);
        let immediate = match &work.action {
            Action::Send { immediate, .. } => Some(*immediate),
            Action::Write { immediate: Some(value), .. } => Some(Some(*value)),
            _ => None,
        };
        let answer_bytes = match &work.action {
            Action::Read { data, .. } => data.len(),
            _ => 0,
        };
        if status == Status::Success
            && let Some(immediate) = immediate
            && let Some(receive) = self.pairs[peer].receives.pop_front()
        {
            let kind = if kind == Kind::Send { Kind::Receive } else { Kind::ReceiveWrite };
            self.complete_receive(peer, receive.id, status, kind, bytes, immediate);
        }
        let (here, there) = (self.pairs[index].node, self.pairs[peer].node);
        let answer_at = match answer_bytes {
            // An acknowledgement takes no room on the link.
            0 => self.now + self.latency(here, there),
            bytes => self.transmit(there, here, bytes),
        };
        let answer_at = answer_at.max(self.now + self.latency(here, there));
        self.schedule(answer_at, Event::Pair(index, PairEvent::Answer(number, status)));
    }

    fn complete_receive(
        &mut self,
        index: usize,
        id: u64,
        status: Status,
        kind: Kind,
        bytes: u32,
        immediate: Option<u32>,
    ) {
        let completion = Completion {
            id,
            status,
            kind,
            bytes,
            immediate,
            queue_pair: number_of(index),
            ..Completion::default()
        };
        self.complete(self.pairs[index].receive_queue, completion, 0);
    }

    fn answered(&mut self, index: usize, number: u64, status: Status) {
        if self.pairs[index]
            .peer
            .is_none_or(|peer| !self.reachable(self.pairs[index].node, self.pairs[peer].node))
        {
            let again = self.now + RETRANSMIT_NS;
            self.schedule(again, Event::Pair(index, PairEvent::Answer(number, status)));
            return;
        }
        self.pairs[index].heard = self.now;
        while self.pairs[index].first <= number && self.pairs[index].state == State::Connected {
            if self.pairs[index].first == number && status != Status::Success {
                self.fail(index, status);
                return;
            }
            let Some(work) = self.pairs[index].outstanding.pop_front() else { return };
            self.pairs[index].first += 1;
            self.finish(index, work);
        }
    }

    /// Completes work that succeeded.
    fn finish(&mut self, index: usize, work: Work) {
        match &work.action {
            Action::Read { into, data, .. } => {
                // SAFETY: the buffer has the length that was read, and its region is alive.
                unsafe { place(into.start(), data.as_ptr(), data.len()) }
            }
            Action::Atomic { into, old, .. } => {
                let old = old.to_ne_bytes();
                // SAFETY: the buffer has 8 bytes, and its region is alive.
                unsafe { place(into.start(), old.as_ptr(), 8) }
            }
            Action::Write { .. } | Action::Send { .. } => {}
        }
        if work.signalled {
            self.complete_send(index, &work, Status::Success);
        } else {
            self.pairs[index].unsignalled += 1;
        }
    }

    fn complete_send(&mut self, index: usize, work: &Work, status: Status) {
        let pair = &mut self.pairs[index];
        let frees = 1 + std::mem::take(&mut pair.unsignalled);
        let completion = Completion {
            id: work.id,
            status,
            kind: work.kind,
            queue_pair: number_of(index),
            ..Completion::default()
        };
        let queue = pair.send_queue;
        self.complete(queue, completion, frees);
    }

    /// The connection is broken: the oldest work ends with `status`, everything else is flushed.
    pub(super) fn fail(&mut self, index: usize, status: Status) {
        let pair = &mut self.pairs[index];
        if pair.state == State::Failed {
            return;
        }
        pair.state = State::Failed;
        let (send, receive) = (pair.send_queue, pair.receive_queue);
        let mut status = status;
        for work in std::mem::take(&mut pair.outstanding) {
            self.complete_send(index, &work, status);
            status = Status::Flushed;
        }
        for receive in std::mem::take(&mut self.pairs[index].receives) {
            self.complete_receive(index, receive.id, Status::Flushed, Kind::Receive, 0, None);
        }
        self.signal(send);
        self.signal(receive);
    }

    fn timer(&mut self, index: usize) {
        let now = self.now;
        let pair = &mut self.pairs[index];
        if pair.outstanding.is_empty() {
            pair.timer = false;
            return;
        }
        let end = pair.heard + nanoseconds(pair.timing.silence);
        if now >= end {
            self.fail(index, Status::PeerLost);
        } else {
            self.schedule(end, Event::Pair(index, PairEvent::Timer));
        }
    }
}

impl Change {
    fn apply(self, word: &std::sync::atomic::AtomicU64) -> u64 {
        use std::sync::atomic::Ordering::SeqCst;
        match self {
            Change::Add(add) => word.fetch_add(add, SeqCst),
            Change::Swap { expected, new } => {
                word.compare_exchange(expected, new, SeqCst, SeqCst).unwrap_or_else(|old| old)
            }
        }
    }
}

/// Numbers of queue pairs begin at 1.
pub(super) fn number_of(index: usize) -> u32 {
    index as u32 + 1
}
