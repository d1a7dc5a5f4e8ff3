//! Reliable connections of the simulation: what the network cards at both ends do.

use std::collections::VecDeque;

use super::world::{Event, World, nanoseconds};
use crate::contract::State;
use crate::kept::{KeptOperation, KeptReceive, KeptRequest};
use crate::keys::Target;
use crate::place::place;
use crate::work::{Completion, Kind, QueueSizes, Status, Timing, WorkRequest};

/// Unreachable peers are tried again after this time.
pub(super) const RETRANSMIT_NS: u64 = 100_000;

/// A request in flight.
pub(super) struct Work {
    pub(super) request: KeptRequest,
    /// The bytes that were read, or the old value.
    pub(super) answer: Vec<u8>,
    pub(super) arrived: bool,
}

/// One end of a connection. Work goes through it in order: posted, arrived at the peer, executed
/// there, acknowledged, completed.
pub(super) struct Pair {
    pub(super) node: usize,
    pub(super) send_queue: usize,
    pub(super) receive_queue: usize,
    pub(super) sizes: QueueSizes,
    pub(super) timing: Timing,
    pub(super) state: State,
    peer: Option<usize>,
    /// Posted and not acknowledged, oldest first.
    outstanding: VecDeque<Work>,
    /// Sequence number of the oldest.
    first: u64,
    /// Sequence number of the next to execute at the peer.
    pub(super) next: u64,
    /// Whether that one's bytes are being placed.
    pub(super) placing: bool,
    /// Time of the last arrival; later work does not arrive before.
    arrived: u64,
    /// Send queue entries that no polled completion has freed.
    pub(super) used: u32,
    /// Entries that the next completion frees besides its own.
    unsignalled: u32,
    pub(super) receives: VecDeque<KeptReceive>,
    /// The receive taken by the peer's request that is being executed.
    pub(super) reserved: Option<KeptReceive>,
    /// Whether a timer for the peer's silence runs.
    timer: bool,
    /// When the peer was heard of last.
    pub(super) heard: u64,
    /// Since when the peer has had no receive for us.
    pub(super) not_ready: Option<u64>,
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
            reserved: None,
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
        self.reserved = None;
    }

    pub(super) fn work(&mut self, number: u64) -> Option<&mut Work> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.outstanding.get_mut(index)
    }
}

impl World {
    /// Takes a request that was checked into the queue and puts it on the wire.
    pub(super) fn post(&mut self, index: usize, request: &WorkRequest<'_>) {
        let request = KeptRequest::new(request);
        let bytes = request.sent_bytes();
        let work = Work { request, answer: Vec::new(), arrived: false };
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
                if let Some(work) = self.pairs[index].work(number)
                    && let KeptOperation::Write { source, .. } = &work.request.operation
                {
                    let start = source.parts().0;
                    // SAFETY: the source is alive while its work is outstanding; the target was
                    // resolved for the whole message and holds its memory.
                    unsafe { place(target.start().add(from), start.add(from), to - from) }
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
    pub(super) fn peer_of(&self, index: usize) -> Option<usize> {
        let pair = &self.pairs[index];
        let peer = pair.peer?;
        let other = &self.pairs[peer];
        let ready = other.state == State::Connected
            && other.peer == Some(index)
            && self.reachable(pair.node, other.node);
        ready.then_some(peer)
    }

    /// The next work in order was executed at the peer, or refused: tells both sides.
    pub(super) fn executed(&mut self, index: usize, status: Status) {
        let number = self.pairs[index].next;
        self.pairs[index].next += 1;
        let Some(peer) = self.pairs[index].peer else { return };
        let Some(work) = self.pairs[index].work(number) else { return };
        let kind = work.request.operation().kind();
        let bytes = u32::try_from(work.request.sent_bytes()).unwrap_or(u32::MAX);
        let immediate = match work.request.operation {
            KeptOperation::Send { immediate, .. } => Some(immediate),
            KeptOperation::Write { immediate: Some(value), .. } => Some(Some(value)),
            _ => None,
        };
        let answer_bytes = if kind == Kind::Read { work.answer.len() } else { 0 };
        if status == Status::Success
            && let Some(immediate) = immediate
            && let Some(receive) = self.pairs[peer].reserved.take()
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

    pub(super) fn complete_receive(
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
        if let Some(into) = work.request.destination() {
            // SAFETY: the buffer has the length of the answer, and its region is alive.
            unsafe { place(into.start(), work.answer.as_ptr(), work.answer.len()) }
        }
        if work.request.signalled {
            self.complete_send(index, &work, Status::Success);
        } else {
            self.pairs[index].unsignalled += 1;
        }
    }

    fn complete_send(&mut self, index: usize, work: &Work, status: Status) {
        let pair = &mut self.pairs[index];
        let frees = 1 + std::mem::take(&mut pair.unsignalled);
        let completion = Completion {
            id: work.request.id,
            status,
            kind: work.request.operation().kind(),
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
        let reserved = self.pairs[index].reserved.take();
        let own = std::mem::take(&mut self.pairs[index].receives);
        for receive in reserved.into_iter().chain(own) {
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

/// Numbers of queue pairs begin at 1.
pub(super) fn number_of(index: usize) -> u32 {
    index as u32 + 1
}
