//! Datagrams of the simulation, to one receiver or to a group: they may be lost, duplicated and
//! reordered.

use std::collections::{HashMap, HashSet, VecDeque};

use super::world::{Event, World};
use crate::group::Group;
use crate::kept::KeptReceive;
use crate::place::place;
use crate::work::{Completion, DATAGRAM_HEADER_BYTES, Kind, Outgoing, QueueSizes, Source, Status};

/// Numbers of datagram queue pairs begin here.
pub(super) const FIRST_NUMBER: u32 = 1 << 23;

/// A datagram queue pair.
pub(super) struct Ud {
    pub(super) node: usize,
    pub(super) send_queue: usize,
    pub(super) receive_queue: usize,
    pub(super) sizes: QueueSizes,
    pub(super) open: bool,
    pub(super) used: u32,
    unsignalled: u32,
    pub(super) receives: VecDeque<KeptReceive>,
    pub(super) groups: HashSet<Group>,
}

/// Destination of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recipient {
    /// The datagram queue pair with this index.
    One(usize),
    /// All members of a group.
    Members(Group),
}

/// A datagram on its way.
#[derive(Clone)]
pub(super) struct Arrival {
    from: usize,
    immediate: Option<u32>,
    bytes: Vec<u8>,
}

impl Ud {
    pub(super) fn new(node: usize, send: usize, receive: usize, sizes: QueueSizes) -> Ud {
        Ud {
            node,
            send_queue: send,
            receive_queue: receive,
            sizes,
            open: true,
            used: 0,
            unsignalled: 0,
            receives: VecDeque::new(),
            groups: HashSet::new(),
        }
    }
}

impl World {
    /// Sends a datagram that was checked.
    pub(super) fn send_datagram<A>(
        &mut self,
        index: usize,
        to: Recipient,
        request: &Outgoing<'_, A>,
    ) {
        let mut bytes = vec![0; request.source.bytes()];
        match request.source {
            Source::Inline(slice) => bytes.copy_from_slice(slice),
            // The range was checked; a failure would only leave zeros.
            Source::Region { region, offset, .. } => drop(region.read(offset, &mut bytes)),
        }
        let immediate = request.immediate;
        let sent = self.send_out(self.uds[index].node, bytes.len());
        let members = match to {
            Recipient::One(one) => vec![one],
            Recipient::Members(group) => self.members(group),
        };
        // The copy for all members of a node arrives there once.
        let mut arrivals: HashMap<usize, u64> = HashMap::new();
        for member in members {
            let node = self.uds[member].node;
            let bring_in = || self.bring_in(&sent, node, bytes.len());
            let arrives = *arrivals.entry(node).or_insert_with(bring_in);
            let arrival = Arrival { from: index, immediate, bytes: bytes.clone() };
            self.deliver(member, arrives, arrival);
        }
        self.datagram_sent(index, request.id, request.signalled);
    }

    /// The open datagram queue pairs that have joined a group, in the order of their numbers.
    fn members(&self, group: Group) -> Vec<usize> {
        let is_member = |ud: &Ud| ud.open && ud.groups.contains(&group);
        (0..self.uds.len()).filter(|i| is_member(&self.uds[*i])).collect()
    }

    /// Draws what becomes of the copy for one receiver, which arrives at `arrives` or later.
    fn deliver(&mut self, to: usize, arrives: u64, arrival: Arrival) {
        let (here, there) = (self.uds[arrival.from].node, self.uds[to].node);
        let model = self.nodes[there].model;
        let copies = match () {
            () if self.chance.happens(model.datagram_loss) => 0,
            () if self.chance.happens(model.datagram_repeat) => 2,
            () => 1,
        };
        for _ in 0..copies {
            let mut at = arrives;
            if self.chance.happens(model.datagram_delay) {
                at += self.chance.below(10 * self.latency(here, there) + 1);
            }
            self.schedule(at, Event::Datagram(to, arrival.clone()));
        }
    }

    /// Completes a datagram at its sender.
    fn datagram_sent(&mut self, index: usize, id: u64, signalled: bool) {
        let ud = &mut self.uds[index];
        ud.used += 1;
        if !signalled {
            ud.unsignalled += 1;
            return;
        }
        let frees = 1 + std::mem::take(&mut ud.unsignalled);
        let completion = Completion {
            id,
            kind: Kind::Send,
            queue_pair: FIRST_NUMBER + index as u32,
            ..Completion::default()
        };
        let queue = ud.send_queue;
        self.complete(queue, completion, frees);
    }

    pub(super) fn datagram_arrives(&mut self, to: usize, arrival: Arrival) {
        let Arrival { from, immediate, bytes } = arrival;
        let reachable = self.reachable(self.uds[from].node, self.uds[to].node);
        let ud = &mut self.uds[to];
        let whole = DATAGRAM_HEADER_BYTES + bytes.len();
        if !reachable || !ud.open || ud.receives.front().is_none_or(|first| first.room() < whole) {
            return;
        }
        let Some(KeptReceive { id, buffer: Some(buffer) }) = ud.receives.pop_front() else {
            return;
        };
        // SAFETY: the buffer has room for header and bytes, and its region is alive.
        unsafe { place(buffer.start().add(DATAGRAM_HEADER_BYTES), bytes.as_ptr(), bytes.len()) };
        let completion = Completion {
            id,
            status: Status::Success,
            queue_pair: FIRST_NUMBER + to as u32,
            kind: Kind::Receive,
            bytes: whole as u32,
            immediate,
            source_queue_pair: FIRST_NUMBER + from as u32,
        };
        let queue = ud.receive_queue;
        self.complete(queue, completion, 0);
    }
}
