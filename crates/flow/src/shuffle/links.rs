//! The reliable connections of an endpoint, and the queues of entries in their blocks of words.

use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{
    Access, Completion, Datagram, Fabric, Operation, QueuePair, QueueSizes, Receive, Region,
    RemoteRegion, WorkRequest,
};

use crate::link::{BLOCK_BYTES, Block, CONTROL, Event, Link, PEER_COUNT, Position, WAKES};
use crate::shuffle::counters::Counters;
use crate::shuffle::design::Transport;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::hello::Peer;
use crate::shuffle::settings::{Role, SIGNAL_EVERY, Settings};
use crate::shuffle::wire::Entry;

/// The immediate value of a message that wakes its peer.
const WAKE: u32 = u32::MAX;

/// The blocks of words that peers write here, one for each connection.
pub(crate) struct Blocks {
    region: Region,
    block_bytes: usize,
}

impl Blocks {
    pub(crate) fn new<F: Fabric>(fabric: &F, settings: &Settings, peers: usize) -> Result<Blocks> {
        let block_bytes = settings.block_bytes();
        let region = fabric.allocate(peers * block_bytes, Access::REMOTE_ALL)?;
        Ok(Blocks { region, block_bytes })
    }

    /// The block of connection `index`, for its peer.
    pub(crate) fn remote(&self, index: usize) -> RemoteRegion {
        let RemoteRegion { address, key, .. } = self.region.remote();
        let address = address + (index * self.block_bytes) as u64;
        RemoteRegion { address, bytes: self.block_bytes as u64, key }
    }
}

/// The queue pairs of an endpoint. Datagrams may have memory of their own, `M`.
pub(crate) enum Pairs<F: Fabric, M> {
    Reliable(Vec<F::QueuePair>, Blocks),
    Datagrams(F::Datagram, M),
}

/// Queue pairs, their completion queue, and the events for sleeping threads.
type Opened<F, M> = (Pairs<F, M>, <F as Fabric>::CompletionQueue, <F as Fabric>::Events);

/// Opens an endpoint's half for so many peers.
pub(crate) fn open<F: Fabric, M>(
    fabric: &F,
    settings: &Settings,
    role: Role,
    peers: usize,
    memory: impl FnOnce(QueueSizes) -> Result<M>,
) -> Result<Opened<F, M>> {
    settings.check(fabric.limits(), peers)?;
    let events = fabric.events()?;
    let (sizes, count) = settings.queues(role, peers);
    let queue = fabric.completion_queue(settings.completions(sizes, count), Some(&events))?;
    let pairs = match settings.design.transport {
        Transport::Datagrams => {
            Pairs::Datagrams(fabric.datagram(&queue, &queue, sizes)?, memory(sizes)?)
        }
        _ => {
            let pair = |_| -> Result<F::QueuePair> {
                let mut pair = fabric.queue_pair(&queue, &queue, sizes, settings.timing)?;
                if settings.listens(role) {
                    pair.post_receive(&[Receive { id: 0, buffer: None }; WAKES as usize])?;
                }
                Ok(pair)
            };
            let pairs = (0..peers).map(pair).collect::<Result<_>>()?;
            Pairs::Reliable(pairs, Blocks::new(fabric, settings, peers)?)
        }
    };
    Ok((pairs, queue, events))
}

impl<F: Fabric, M> Pairs<F, M> {
    /// The set-up message for a peer, which opens a region beside the block of words or none.
    pub(crate) fn hello(
        &self,
        peer: usize,
        parameters: Vec<u64>,
        open: Option<RemoteRegion>,
    ) -> Hello {
        match self {
            Pairs::Datagrams(pair, _) => {
                Hello { endpoint: pair.endpoint(), regions: Vec::new(), parameters }
            }
            Pairs::Reliable(pairs, blocks) => {
                let regions = [blocks.remote(peer)].into_iter().chain(open).collect();
                Hello { endpoint: pairs[peer].endpoint(), regions, parameters }
            }
        }
    }
}

/// A reliable connection. Its two ends tell each other by entries of queues, and by credit. A
/// failure is judged later, when all that had arrived has been taken.
pub(crate) struct Connection<F: Fabric> {
    pub(crate) link: Link<F>,
    pub(crate) peer: Peer,
    /// Whether the peer tells things in this side's memory that no completion tells of.
    listens: bool,
    /// The next entry of the peer's, and of this side's in the peer's block.
    reading: Position,
    writing: Position,
    /// Messages that use credit, and receives of the peer as last seen, since the beginning.
    pub(crate) sent: u64,
    credit: u64,
    /// How much the peer was told since it was connected, and how much it has told: entries,
    /// sealed buffers, and receives that credit was for.
    told: u64,
    seen: u64,
}

impl<F: Fabric> Connection<F> {
    /// Whether so many more requests can be posted.
    #[inline]
    pub(crate) fn room(&self, requests: u64) -> bool {
        self.link.failure().is_none() && self.link.room(requests)
    }

    /// Posts requests, for which there is room; the last is signalled with this token, or now and
    /// then if there is none.
    pub(crate) fn post(&mut self, list: &mut [WorkRequest<'_>], token: Option<u32>) -> Result<()> {
        let due = self.link.unsignalled() + list.len() as u64 >= SIGNAL_EVERY.into();
        Ok(self.link.post(list, token.or(due.then_some(CONTROL)))?)
    }

    /// Posts writes of news into the peer's memory. The last wakes a sleeping peer.
    pub(crate) fn tell(
        &mut self,
        list: &mut [WorkRequest<'_>],
        much: u64,
        token: Option<u32>,
    ) -> Result<()> {
        self.told = self.told.wrapping_add(much);
        if self.link.announce(self.told)
            && let Some(last) = list.last_mut()
            && let Operation::Write { immediate, .. } = &mut last.operation
        {
            *immediate = Some(WAKE);
        }
        self.post(list, token)
    }

    /// Writes the next entry of the queue in the peer's block.
    pub(crate) fn write_entry(&mut self, entry: Entry, token: Option<u32>) -> Result<()> {
        let value = entry.encode(self.writing.lap()).to_ne_bytes();
        let write = self.link.word(BLOCK_BYTES + self.writing.offset, &value, None)?;
        self.writing.advance();
        self.tell(&mut [write], 1, token)
    }

    /// Writes the count of receives posted, which has grown by `more`.
    pub(crate) fn write_credit(&mut self, count: u64, more: u64) -> Result<()> {
        let value = count.to_ne_bytes();
        let write = self.link.word(PEER_COUNT, &value, None)?;
        self.tell(&mut [write], more, None)
    }

    /// The next entry of the queue that the peer fills, if it is there.
    #[inline]
    pub(crate) fn next_entry(&self, counters: &mut Counters) -> Option<Entry> {
        counters.looks += 1;
        let word = self.link.block.word(BLOCK_BYTES + self.reading.offset);
        Entry::decode(word.load(std::sync::atomic::Ordering::Acquire), self.reading.lap())
    }

    /// The next entry is taken.
    pub(crate) fn took_entry(&mut self) {
        self.reading.advance();
        self.saw(1);
    }

    /// So much more was seen of what the peer has told.
    pub(crate) fn saw(&mut self, much: u64) {
        self.seen = self.seen.wrapping_add(much);
    }

    /// Whether the peer has posted a receive for another message; looks at its count if the last
    /// one is used up.
    pub(crate) fn has_credit(&mut self, counters: &mut Counters) -> bool {
        if self.sent >= self.credit {
            counters.looks += 1;
            self.look_for_credit();
        }
        self.sent < self.credit
    }

    /// The peer's word is 0 until it has told for the first time.
    fn look_for_credit(&mut self) {
        let more = self.link.block.peer_count().saturating_sub(self.credit);
        self.credit += more;
        self.saw(more);
    }

    pub(crate) fn post_receives(
        &mut self,
        receives: &[Receive<'_>],
        counters: &mut Counters,
    ) -> Result<()> {
        counters.receives += receives.len() as u64;
        Ok(self.link.post_receives(receives)?)
    }

    /// One step towards sleep.
    fn park(&mut self, now: Duration) -> Result<()> {
        self.look_for_credit();
        match self.link.look_for_failure() {
            None if self.listens => self.link.park(now)?,
            _ => self.link.probe(now)?,
        }
        Ok(())
    }

    fn may_sleep(&self) -> bool {
        self.link.failure().is_none() && (!self.listens || self.link.may_sleep(self.seen))
    }
}

/// All connections of an endpoint, by peer.
pub(crate) struct Links<F: Fabric> {
    pub(crate) all: Vec<Connection<F>>,
    block_bytes: usize,
    /// Calls that found nothing.
    idle: u32,
}

/// Idle calls from one probe of connections to the next.
const IDLE_CALLS: u32 = 16;

impl<F: Fabric> Links<F> {
    /// Connects all pairs.
    pub(crate) fn connect<'a>(
        pairs: Vec<F::QueuePair>,
        peers: impl Iterator<Item = (&'a Peer, &'a Hello)>,
        blocks: Blocks,
        (settings, role): (&Settings, Role),
        now: Duration,
    ) -> Result<Links<F>> {
        let ring = Position::new(settings.per_peer().1 as usize, 8);
        let (entries, listens) = (settings.queues(role, 1).0.send, settings.listens(role));
        let mut all = Vec::new();
        for (index, (pair, (peer, hello))) in pairs.into_iter().zip(peers).enumerate() {
            let block = Block::new(blocks.region.clone(), index * blocks.block_bytes);
            all.push(Connection {
                link: Link::connect(pair, hello, (block, peer.control), (entries, listens), now)?,
                listens,
                reading: ring,
                writing: ring,
                sent: 0,
                credit: peer.receives,
                peer: *peer,
                told: 0,
                seen: 0,
            });
        }
        Ok(Links { all, block_bytes: blocks.region.len(), idle: 0 })
    }

    /// Takes note of completions. Passes those on that succeeded, with the connection's number and
    /// the token: of a receive, its id.
    pub(crate) fn absorb(
        &mut self,
        completions: &[Completion],
        now: Duration,
        mut each: impl FnMut(usize, &Completion, u32) -> Result<()>,
    ) -> Result<()> {
        for completion in completions {
            let is_of = |one: &Connection<F>| one.link.number() == completion.queue_pair;
            let Some(index) = self.all.iter().position(is_of) else { continue };
            let connection = &mut self.all[index];
            let token = match connection.link.absorb(completion, now) {
                Event::Nothing | Event::Done(CONTROL) => continue,
                Event::Arrived if connection.listens => {
                    connection.link.refill()?;
                    continue;
                }
                Event::Arrived => completion.id as u32,
                Event::Done(token) => token,
            };
            each(index, completion, token)?;
        }
        Ok(())
    }

    /// Whether any has failed.
    pub(crate) fn any_failed(&self) -> bool {
        self.all.iter().any(|one| one.link.failure().is_some())
    }

    /// Ends all connections, so that peers notice.
    pub(crate) fn fail(&mut self) {
        self.all.iter_mut().for_each(|one| one.link.fail());
    }

    /// Judges and probes the needed connections after a call that found nothing. All that had
    /// arrived before a failure was taken if the failure was known before that call.
    pub(crate) fn look_after(
        &mut self,
        had_failed: bool,
        now: Duration,
        needed: impl Fn(usize) -> bool,
    ) -> Result<()> {
        self.idle += 1;
        for (_, one) in self.all.iter_mut().enumerate().filter(|(index, _)| needed(*index)) {
            if let Some(status) = one.link.failure().filter(|_| had_failed) {
                return Err(Error::PeerLost { peer: one.peer.id, status });
            }
            if self.idle.is_multiple_of(IDLE_CALLS) {
                one.link.probe(now)?;
            }
        }
        Ok(())
    }

    /// One step towards sleep of the needed connections.
    pub(crate) fn park(&mut self, now: Duration, needed: impl Fn(usize) -> bool) -> Result<()> {
        let mut all = self.all.iter_mut().enumerate().filter(|(index, _)| needed(*index));
        all.try_for_each(|(_, one)| one.park(now))
    }

    /// Whether a thread may sleep, as far as the needed connections know.
    pub(crate) fn may_sleep(&self, needed: impl Fn(usize) -> bool) -> bool {
        let mut all = self.all.iter().enumerate().filter(|(index, _)| needed(*index));
        all.all(|(_, one)| one.may_sleep())
    }

    /// Adds what was posted.
    pub(crate) fn count(&self, counters: &mut Counters) {
        counters.queue_pairs += self.all.len() as u64;
        counters.registered_bytes += self.block_bytes as u64;
        for posted in self.all.iter().map(|one| &one.link.counts) {
            counters.writes += posted.writes;
            counters.immediates += posted.immediates;
            counters.sends += posted.sends;
            counters.reads += posted.reads;
            counters.probes += posted.probes;
        }
    }
}
