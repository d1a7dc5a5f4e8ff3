//! The traits that every provider implements, with the contract beside each method. Hot paths are
//! generic over these traits; there are no virtual calls.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, Provider};
use crate::error::Result;
use crate::group::Group;
use crate::memory::{Access, Region, RemoteRegion};
use crate::work::{
    Completion, Limits, Outgoing, QueueSizes, Receive, Rejected, Timing, WorkRequest,
};

/// An open device of one provider: where everything else is made.
///
/// A clone is the same device. Objects keep their dependencies alive: a queue pair its completion
/// queues and device, a completion queue its events.
pub trait Fabric: Clone + Send + Sync + 'static {
    /// Where a thread sleeps.
    type Events: Events;
    /// Where completions are polled.
    type CompletionQueue: CompletionQueue;
    /// A reliable connection (RC).
    type QueuePair: QueuePair;
    /// An unreliable datagram queue pair (UD).
    type Datagram: Datagram;

    /// Which provider it is.
    fn provider(&self) -> Provider;

    /// Capabilities of the device.
    fn limits(&self) -> &Limits;

    /// Time since some moment in the past, for time-outs. In `sim` it is virtual.
    fn now(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    /// Allocates and registers zeroed memory, aligned to a page; on huge pages where the system has
    /// them and `bytes` fill at least one.
    fn allocate(&self, bytes: usize, access: Access) -> Result<Region>;

    /// Registers memory that exists already, as a source of writes and sends; open to peers only
    /// where [`Limits::registers_remote`]. It may be unusable as a destination (`shm`): receiving
    /// and reading into it is then refused when posted.
    ///
    /// # Safety
    /// Until the region and its clones are gone and work that names it has completed, the memory
    /// stays allocated, and its owner keeps to [`Region::slice`]'s rules.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize, access: Access) -> Result<Region>;

    /// A place to sleep (a completion channel).
    fn events(&self) -> Result<Self::Events>;

    /// A completion queue of at least `entries` entries. It has to have room for all completions
    /// that can be outstanding at its queue pairs: every signalled request, every receive, and one
    /// per request that may fail.
    fn completion_queue(
        &self,
        entries: u32,
        events: Option<&Self::Events>,
    ) -> Result<Self::CompletionQueue>;

    /// A reliable connection, not connected yet. Both queues may be the same.
    fn queue_pair(
        &self,
        send: &Self::CompletionQueue,
        receive: &Self::CompletionQueue,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<Self::QueuePair>;

    /// A datagram queue pair, ready to use.
    fn datagram(
        &self,
        send: &Self::CompletionQueue,
        receive: &Self::CompletionQueue,
        sizes: QueueSizes,
    ) -> Result<Self::Datagram>;
}

/// Completions of the queue pairs that were made with it. Used by one thread at a time.
pub trait CompletionQueue: Send {
    /// Takes up to `out.len()` completions and returns how many; never waits. Completions of one
    /// queue pair's sends come in the order of posting, those of its receives in the order of
    /// arrival. What the peer placed before an incoming completion is visible after this call.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize>;

    /// The next completion that arrives wakes [`Events::wait`], once. Completions that arrived
    /// before may not: poll again between this call and waiting. A queue that was made without
    /// events cannot be armed: [`Unsupported`](crate::Error::Unsupported).
    fn arm(&mut self) -> Result<()>;
}

/// Where one thread sleeps until something happens at any of the armed completion queues.
pub trait Events: Send {
    /// Sleeps until an armed completion queue gets a completion, a queue pair fails, or the time is
    /// over. Returns whether something happened; may wake without cause.
    fn wait(&mut self, timeout: Duration) -> Result<bool>;

    /// Waker for other threads with news for the sleeper beyond completions. Waking makes the
    /// present [`wait`](Events::wait) return true, or, if there is none, the next call, at once;
    /// several wakes may count as one. Any thread may wake; waking does nothing when the sleeper is
    /// gone. Memory written before waking is visible after the wait.
    fn waker(&self) -> Waker;
}

/// State of a queue pair, as its own side knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not connected yet. Receives can be posted.
    Fresh,
    /// Connected; work can be posted.
    Connected,
    /// Failed; everything outstanding completes as flushed.
    Failed,
}

/// A reliable connection: work is done in order, exactly once, or the connection fails. Used by one
/// thread at a time.
///
/// One-sided operations need nothing from the target's threads. A failed connection stays failed:
/// the work that failed completes with the reason, all other work as [`Flushed`](crate::Status).
/// Memory is written in order of posting, as far as
/// [`Limits::ordered_placement`] goes: a later write is never visible before an earlier one.
/// Dropping it breaks the connection; its outstanding completions are lost.
pub trait QueuePair: Send {
    /// Its number, unique on the device; completions carry it.
    fn number(&self) -> u32;

    /// Where the peer can connect to. Hand it over out of band.
    fn endpoint(&self) -> Endpoint;

    /// Connects to the peer's endpoint; the peer does the same with ours. Work may be posted at
    /// once; if the peer has not connected yet, it is done when it has (where the poster's thread
    /// does the work, as in `shm`, when it next polls or posts). Post the receives first.
    fn connect(&mut self, peer: &Endpoint) -> Result<()>;

    /// The peer's region as memory of this process, where there is such a thing (`shm`) and the
    /// peer allows writing. What is stored there is in place without posting; the peer sees it in
    /// order if it is followed by an aligned word stored with release ordering, or by a posted
    /// write. It does not wait for work that was posted before.
    fn window(&mut self, peer: &RemoteRegion) -> Result<Option<Region>> {
        let _ = peer;
        Ok(None)
    }

    /// Posts requests, with one doorbell for all. Never waits. Requests are checked here as far as
    /// this side can; what the peer finds wrong is a completion's status.
    fn post(&mut self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected>;

    /// Posts buffers for the peer's sends and writes with immediate values, taken in order.
    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected>;

    /// State as this side knows. With `verbs` the death of an idle connection's peer may be known
    /// only after something was posted.
    fn state(&self) -> State;

    /// Ends the connection: outstanding work is flushed, and the peer's side fails, with `verbs`
    /// and `sim` when it next waits for an answer.
    fn fail(&mut self);
}

/// An unreliable datagram queue pair: messages may be lost, repeated and reordered, but not
/// damaged. Used by one thread at a time.
///
/// A datagram that finds no receive posted is lost; one that is longer than the receive's buffer is
/// lost too, or completes the receive with [`Length`](crate::Status).
///
/// A datagram to a [`Group`] is posted and completed once. Every member's receive queue gets one
/// copy, which may be lost, repeated or delayed independently of the other copies. A sender that is
/// a member gets a copy too. A datagram queue pair that is no member gets none. A member leaves its
/// groups when it is dropped. Without [`Limits::multicast`], joining a group and resolving it are
/// [`Unsupported`](crate::Error::Unsupported).
pub trait Datagram: Send {
    /// A peer's address, resolved (an address handle).
    type Address: Send + std::fmt::Debug;

    /// Its number, unique on the device.
    fn number(&self) -> u32;

    /// Where peers can send to. Hand it over out of band.
    fn endpoint(&self) -> Endpoint;

    /// Resolves a peer's endpoint.
    fn resolve(&mut self, peer: &Endpoint) -> Result<Self::Address>;

    /// Joins a group. Joining again changes nothing. Datagrams that are posted after the return
    /// arrive here; between machines, switches may take a moment to learn of a new member.
    fn join(&mut self, group: Group) -> Result<()>;

    /// Resolves a group as an address to send to. The sender need not be a member, and the group
    /// may be empty.
    fn resolve_group(&mut self, group: Group) -> Result<Self::Address>;

    /// Posts datagrams. Success means sent, not arrived. A datagram whose way is full waits, as
    /// long as its queue has an entry for it; a slow receiver costs time, and no datagrams, except
    /// where the network itself drops them (`tcp`, over UDP). Waiting datagrams hold up no
    /// datagrams to other destinations, but take up entries of the queue.
    fn post(
        &mut self,
        requests: &[Outgoing<'_, Self::Address>],
    ) -> std::result::Result<(), Rejected>;

    /// Posts buffers, each for one datagram and
    /// [`DATAGRAM_HEADER_BYTES`](crate::DATAGRAM_HEADER_BYTES).
    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected>;
}
