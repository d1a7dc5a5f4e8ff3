//! The target's network card in the simulation: it executes the requests that have arrived, in
//! order, in its own memory.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use super::model::Placement;
use super::pair::{PairEvent, RETRANSMIT_NS, Work};
use super::world::{Event, World, nanoseconds};
use crate::contract::State;
use crate::kept::{KeptOperation, KeptReceive};
use crate::keys::{Need, Target};
use crate::memory::RemoteAddress;
use crate::place::place;
use crate::work::{Kind, Status};

/// Peers without a posted receive are tried again after this time.
const NOT_READY_NS: u64 = 10_000;

impl World {
    /// Executes at the peer what has arrived there, in order.
    pub(super) fn execute(&mut self, index: usize) {
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
            if self.takes_receive(index, number) && !self.reserve(peer) {
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

    /// Sets the peer's oldest receive aside for the request that begins. Returns whether there is
    /// one.
    fn reserve(&mut self, peer: usize) -> bool {
        let pair = &mut self.pairs[peer];
        pair.reserved = pair.receives.pop_front();
        pair.reserved.is_some()
    }

    fn takes_receive(&mut self, index: usize, number: u64) -> bool {
        let work = self.pairs[index].work(number);
        work.is_some_and(|work| work.request.operation().takes_receive())
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

    /// Executes one piece of work; `None` if its bytes arrive in parts, over time.
    fn execute_one(&mut self, index: usize, peer: usize, number: u64) -> Option<Status> {
        let node = self.pairs[peer].node;
        let keys = self.nodes[node].keys.clone();
        let resolve = |address: RemoteAddress, bytes: usize, need| {
            keys.resolve(address.key, address.address, bytes as u64, need)
        };
        let placement = self.nodes[node].model.placement;
        let Work { request, answer, .. } = self.pairs[index].work(number)?;
        let done = match &request.operation {
            KeptOperation::Write { source, to, .. } => {
                let ((start, length), to) = (source.parts(), *to);
                let target = resolve(to, length, Need::Write);
                if target.is_some() && placement != Placement::Whole && length >= 16 {
                    self.place_in_parts(index, node, number, length, to);
                    return None;
                }
                // SAFETY: the source is alive while its work is outstanding; the target was
                // resolved for so many bytes.
                target.map(|target| unsafe { place(target.start(), start, length) })
            }
            KeptOperation::Send { source, .. } => {
                let (start, length) = source.parts();
                let room = self.pairs[peer].reserved.as_ref().map_or(0, KeptReceive::room);
                if length > room {
                    return Some(self.refuse(peer, Status::InvalidRequest));
                }
                if let Some(buffer) = self.pairs[peer].reserved.as_ref()?.buffer.as_ref() {
                    // SAFETY: the source as above; the buffer has room and its region is alive.
                    unsafe { place(buffer.start(), start, length) };
                }
                Some(())
            }
            KeptOperation::Read { into, from } => {
                resolve(*from, into.bytes, Need::Read).map(|target| {
                    answer.resize(into.bytes, 0);
                    let to = answer.as_mut_ptr();
                    // SAFETY: the target was resolved for so many bytes, `answer` has them too.
                    unsafe { std::ptr::copy_nonoverlapping(target.start(), to, into.bytes) }
                })
            }
            KeptOperation::FetchAdd { at, add, .. } => resolve(*at, 8, Need::Atomic)
                .map(|target| change(&target, answer, |word| word.fetch_add(*add, SeqCst))),
            KeptOperation::CompareSwap { at, expected, new, .. } => {
                let swap = |word: &AtomicU64| {
                    let old = word.compare_exchange(*expected, *new, SeqCst, SeqCst);
                    old.unwrap_or_else(|old| old)
                };
                resolve(*at, 8, Need::Atomic).map(|target| change(&target, answer, swap))
            }
        };
        Some(match done {
            Some(()) => Status::Success,
            None => self.refuse(peer, Status::RemoteAccess),
        })
    }

    /// The peer finds a request wrong: its own end fails too.
    fn refuse(&mut self, peer: usize, status: Status) -> Status {
        if status == Status::InvalidRequest
            && let Some(receive) = self.pairs[peer].reserved.take()
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
}

/// Changes a word that was resolved for an atomic; the old value is the answer.
fn change(target: &Target, answer: &mut Vec<u8>, change: impl Fn(&AtomicU64) -> u64) {
    // SAFETY: resolved for an atomic: 8 bytes, aligned, alive.
    let word = unsafe { AtomicU64::from_ptr(target.start().cast()) };
    *answer = change(word).to_ne_bytes().to_vec();
}
