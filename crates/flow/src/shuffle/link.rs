//! One end of a reliable connection between two endpoints: its queue pair, what is under way, and
//! the words that each end has for the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{
    Access, Completion, Fabric, Kind, QueuePair, QueueSizes, Region, RemoteRegion, Source, State,
    Status, WorkRequest,
};

use crate::shuffle::counters::Counters;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::settings::{SIGNAL_EVERY, Settings};
use crate::shuffle::wire::{Entry, LINE};

/// Where the words of a block are.
pub(crate) const CREDIT: usize = 0;
const PROBE: usize = LINE;
const RING: usize = 2 * LINE;

/// The id of work that no buffer depends on, and that is signalled now and then.
pub(crate) const CONTROL: u64 = u64::MAX;
/// The id of such work whose completion matters.
pub(crate) const TOLD: u64 = u64::MAX - 1;

/// The buffer that depends on the work with this id, if one does.
pub(crate) fn slot_of(id: u64) -> Option<u32> {
    u32::try_from(id).ok()
}

/// An idle side asks so often whether its peer still answers: a network card notices a peer's end
/// only when it waits for an answer.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// What a peer has said of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) id: u32,
    pub(crate) control: RemoteRegion,
    pub(crate) buffers: RemoteRegion,
    /// Buffers that it has granted, or has at most.
    pub(crate) granted: u64,
    /// Receives that it has posted.
    pub(crate) receives: u64,
}

/// Which half of the shuffle an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Sender = 1,
    Receiver = 2,
}

/// The numbers of a set-up message, behind the role.
pub(crate) fn parameters(
    role: Role,
    id: u32,
    settings: &Settings,
    granted: u64,
    receives: u64,
) -> Vec<u64> {
    vec![
        role as u64,
        id.into(),
        settings.design.code(),
        settings.message_bytes as u64,
        settings.per_peer().1.into(),
        granted,
        receives,
    ]
}

/// Checks what the peer says of itself; `regions` is how many it has to open.
pub(crate) fn peer_of(
    hello: &Hello,
    theirs: Role,
    settings: &Settings,
    regions: usize,
) -> Result<Peer> {
    let number = |at: usize| hello.parameters.get(at).copied().unwrap_or(0);
    for (what, ours, theirs) in [
        ("half of a shuffle (1 sends, 2 receives)", theirs as u64, number(0)),
        ("design", settings.design.code(), number(2)),
        ("bytes of a message", settings.message_bytes as u64, number(3)),
        ("buffers for a peer", settings.per_peer().1.into(), number(4)),
        ("count of regions", regions as u64, hello.regions.len() as u64),
    ] {
        if ours != theirs {
            return Err(Error::Mismatch { what, ours, theirs });
        }
    }
    let id = u32::try_from(number(1)).map_err(|_| Error::Mismatch {
        what: "width of an endpoint's id (32 bits)",
        ours: 32,
        theirs: 64,
    })?;
    let region = |at: usize| hello.regions.get(at).copied().unwrap_or_default();
    let control = region(0);
    if regions > 0 {
        let needed = settings.block_bytes() as u64;
        if control.bytes < needed || !control.address.is_multiple_of(LINE as u64) {
            let what = "bytes of the block of words, from a cache line on";
            return Err(Error::Mismatch { what, ours: needed, theirs: control.bytes });
        }
    }
    Ok(Peer { id, control, buffers: region(1), granted: number(5), receives: number(6) })
}

/// That no two peers have the same id.
pub(crate) fn check_ids(ids: &[u32]) -> Result<()> {
    for (number, id) in ids.iter().enumerate() {
        if ids[..number].contains(id) {
            let what = "peers, each with an id of its own";
            return Err(Error::Mismatch { what, ours: number as u64, theirs: (*id).into() });
        }
    }
    Ok(())
}

/// The blocks of words that peers write here, one for each connection.
pub(crate) struct Control {
    region: Region,
    block_bytes: usize,
    entries: u64,
}

impl Control {
    pub(crate) fn new<F: Fabric>(fabric: &F, settings: &Settings, peers: usize) -> Result<Control> {
        let block_bytes = settings.block_bytes();
        let region = fabric.allocate(peers * block_bytes, Access::REMOTE_WRITE)?;
        Ok(Control { region, block_bytes, entries: settings.per_peer().1.into() })
    }

    /// The block of connection `index`, for its peer.
    pub(crate) fn remote(&self, index: usize) -> RemoteRegion {
        let RemoteRegion { address, key, .. } = self.region.remote();
        let address = address + (index * self.block_bytes) as u64;
        RemoteRegion { address, bytes: self.block_bytes as u64, key }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.region.len()
    }

    fn word(&self, index: usize, at: usize) -> &AtomicU64 {
        self.region.word(index * self.block_bytes + at)
    }

    pub(crate) fn credit(&self, index: usize) -> u64 {
        self.word(index, CREDIT).load(Ordering::Acquire)
    }

    /// Entry `number` of the queue that the peer fills, if it is there.
    #[inline]
    pub(crate) fn entry(&self, index: usize, number: u64) -> Option<Entry> {
        let at = RING + (number % self.entries) as usize * 8;
        Entry::decode(self.word(index, at).load(Ordering::Acquire), number, self.entries)
    }
}

/// A reliable connection.
pub(crate) struct Link<F: Fabric> {
    pub(crate) pair: F::QueuePair,
    number: u32,
    pub(crate) peer: Peer,
    /// Entries of the send queue, and how many are taken.
    entries: u32,
    used: u32,
    unsignalled: u32,
    /// Entries that each signalled request frees, oldest first.
    signals: VecDeque<u32>,
    ring_entries: u64,
    pub(crate) failed: Option<Status>,
    heard: Duration,
}

/// A connection before it is connected.
pub(crate) fn new_pair<F: Fabric>(
    fabric: &F,
    queue: &F::CompletionQueue,
    sizes: QueueSizes,
    settings: &Settings,
) -> Result<F::QueuePair> {
    Ok(fabric.queue_pair(queue, queue, sizes, settings.timing)?)
}

impl<F: Fabric> Link<F> {
    pub(crate) fn connect(
        mut pair: F::QueuePair,
        hello: &Hello,
        peer: Peer,
        entries: u32,
        settings: &Settings,
        now: Duration,
    ) -> Result<Link<F>> {
        pair.connect(&hello.endpoint)?;
        Ok(Link {
            number: pair.number(),
            pair,
            peer,
            entries,
            used: 0,
            unsignalled: 0,
            signals: VecDeque::new(),
            ring_entries: settings.per_peer().1.into(),
            failed: None,
            heard: now,
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether so many more requests can be posted.
    #[inline]
    pub(crate) fn room(&self, requests: u32) -> bool {
        self.failed.is_none() && self.used + requests <= self.entries
    }

    /// Whether nothing is outstanding that would be told of.
    pub(crate) fn is_quiet(&self) -> bool {
        self.signals.is_empty()
    }

    /// Posts requests, for which there is room; the last is signalled with this id.
    pub(crate) fn post(
        &mut self,
        requests: &mut [WorkRequest<'_>],
        id: u64,
        counters: &mut Counters,
    ) -> Result<()> {
        use millstream_fabric::Operation;
        for request in requests.iter() {
            match request.operation {
                Operation::Write { immediate, .. } => {
                    counters.writes += 1;
                    counters.immediates += u64::from(immediate.is_some());
                }
                Operation::Send { .. } => counters.sends += 1,
                Operation::Read { .. } => counters.reads += 1,
                Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {}
            }
        }
        let count = requests.len() as u32;
        self.used += count;
        self.unsignalled += count;
        if (id != CONTROL || self.unsignalled >= SIGNAL_EVERY)
            && let Some(last) = requests.last_mut()
        {
            *last = last.signalled(id);
            self.signals.push_back(std::mem::take(&mut self.unsignalled));
        }
        match self.pair.post(requests) {
            Ok(()) => Ok(()),
            Err(rejected) => self.refused(rejected.reason),
        }
    }

    /// A connection that has failed is not an error of this call: it is judged later, when all that
    /// had arrived has been taken.
    fn refused(&mut self, reason: millstream_fabric::Error) -> Result<()> {
        match reason {
            millstream_fabric::Error::Failed => {
                self.failed.get_or_insert(Status::Flushed);
                Ok(())
            }
            other => Err(other.into()),
        }
    }

    pub(crate) fn post_receives(
        &mut self,
        receives: &[millstream_fabric::Receive<'_>],
        counters: &mut Counters,
    ) -> Result<()> {
        counters.receives += receives.len() as u64;
        match self.pair.post_receive(receives) {
            Ok(()) => Ok(()),
            Err(rejected) => self.refused(rejected.reason),
        }
    }

    /// Writes a word of the peer's block.
    pub(crate) fn write_word(
        &mut self,
        at: usize,
        value: u64,
        id: u64,
        counters: &mut Counters,
    ) -> Result<()> {
        let to = self.peer.control.at(at as u64, 8)?;
        let value = value.to_ne_bytes();
        self.post(&mut [WorkRequest::write(Source::Inline(&value), to)], id, counters)
    }

    /// Writes entry `number` of the queue in the peer's block.
    pub(crate) fn write_entry(
        &mut self,
        number: u64,
        entry: Entry,
        id: u64,
        counters: &mut Counters,
    ) -> Result<()> {
        let at = RING + (number % self.ring_entries) as usize * 8;
        self.write_word(at, entry.encode(number, self.ring_entries), id, counters)
    }

    /// Takes note of a completion of this connection. Returns it if it succeeded.
    pub(crate) fn absorb(&mut self, completion: &Completion, now: Duration) -> bool {
        if completion.status != Status::Success {
            if self.failed.is_none_or(|status| status == Status::Flushed) {
                self.failed = Some(completion.status);
            }
            return false;
        }
        self.heard = now;
        if !matches!(completion.kind, Kind::Receive | Kind::ReceiveWrite) {
            self.used -= self.signals.pop_front().unwrap_or(0);
        }
        true
    }

    /// Looks whether the connection has failed, and asks the peer whether it is there if nothing
    /// was heard for a while.
    pub(crate) fn watch(&mut self, now: Duration, counters: &mut Counters) -> Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        if self.pair.state() == State::Failed {
            self.failed = Some(Status::Flushed);
        } else if now.saturating_sub(self.heard) >= HEARTBEAT && self.is_quiet() && self.room(1) {
            self.heard = now;
            counters.probes += 1;
            self.write_word(PROBE, 1, TOLD, counters)?;
        }
        Ok(())
    }
}

/// The connection that a completion is of.
pub(crate) fn index_of<F: Fabric>(links: &[Link<F>], completion: &Completion) -> Option<usize> {
    links.iter().position(|link| link.number() == completion.queue_pair)
}

/// Whether any of the connections has failed.
pub(crate) fn any_failed<F: Fabric>(links: &[Link<F>]) -> bool {
    links.iter().any(|link| link.failed.is_some())
}

/// Ends all connections, so that peers notice.
pub(crate) fn fail<F: Fabric>(links: &mut [Link<F>]) {
    for link in links {
        link.failed.get_or_insert(Status::Flushed);
        link.pair.fail();
    }
}
