//! Queue pairs: creating, connecting and destroying them, and posting work.

use std::ffi::{c_int, c_uint};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{check, non_null};
use crate::raw::*;
use crate::work::{link_receives, link_sends, place_of};
use crate::{
    Access, CompletionQueue, Context, Error, Gid, Mtu, Path, PostError, ProtectionDomain,
    ReceiveRequest, SendRequest,
};

/// The room of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Outstanding requests of the send queue.
    pub sends: u32,
    /// Outstanding requests of the receive queue.
    pub receives: u32,
    /// Pieces of one request of the send queue.
    pub send_pieces: u32,
    /// Pieces of one request of the receive queue.
    pub receive_pieces: u32,
    /// Bytes that can be taken into a request itself.
    pub inline_bytes: u32,
}

/// The transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection (RC): one peer; everything arrives once and in order, or the queue pair
    /// fails; messages up to 2 GiB; all operations.
    Reliable,
    /// Unreliable datagram (UD): any peers; only sends, of one packet each, which may be lost.
    Datagram,
}

/// Components of a queue pair.
#[derive(Clone)]
pub struct QueuePairOptions<'a> {
    /// The transport.
    pub transport: Transport,
    /// Where requests of the send queue complete.
    pub send_queue: &'a Arc<CompletionQueue>,
    /// Where receives complete; may be the same.
    pub receive_queue: &'a Arc<CompletionQueue>,
    /// The room asked for.
    pub capacity: Capacity,
    /// Every request of the send queue completes visibly, whether it is signaled or not.
    pub all_signaled: bool,
}

impl QueuePairOptions<'_> {
    /// Whether everything belongs to that device.
    fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(self.send_queue.context(), context)
            && Arc::ptr_eq(self.receive_queue.context(), context)
    }
}

/// A send queue and a receive queue. Made in the *reset* state; must be taken through
/// *initialised* and *ready to receive* to *ready to send*.
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    transport: Transport,
    capacity: Capacity,
    domain: Arc<ProtectionDomain>,
    /// Attached multicast groups. The kernel refuses to destroy a queue pair that has some.
    groups: Mutex<Vec<(Gid, u16)>>,
    // Must outlive the library's object.
    _send_queue: Arc<CompletionQueue>,
    _receive_queue: Arc<CompletionQueue>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A new queue pair.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        options: &QueuePairOptions<'_>,
    ) -> Result<QueuePair, Error> {
        if !options.is_of(&domain.context) {
            // Providers do not check this.
            return Err(Error { call: "ibv_create_qp", errno: libc::EINVAL });
        }
        let mut attributes = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: options.send_queue.raw.as_ptr(),
            recv_cq: options.receive_queue.raw.as_ptr(),
            srq: null_mut(),
            cap: options.capacity.to_raw(),
            qp_type: match options.transport {
                Transport::Reliable => IBV_QPT_RC,
                Transport::Datagram => IBV_QPT_UD,
            },
            sq_sig_all: c_int::from(options.all_signaled),
        };
        // SAFETY: everything named is alive, and kept so by the queue pair.
        let raw =
            unsafe { (domain.context.library.ibv_create_qp)(domain.raw.as_ptr(), &mut attributes) };
        Ok(QueuePair {
            raw: non_null("ibv_create_qp", raw)?,
            transport: options.transport,
            capacity: Capacity::from_raw(&attributes.cap),
            domain: domain.clone(),
            groups: Mutex::default(),
            _send_queue: options.send_queue.clone(),
            _receive_queue: options.receive_queue.clone(),
        })
    }

    /// The queue pair's number, for peers. 24 bits.
    pub fn number(&self) -> u32 {
        // SAFETY: the library's structure lives as long as the queue pair; this does not change.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Its transport.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The room it really has: at least what was asked for.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The domain it belongs to.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// RC, reset to initialised: receives can be posted. `access` is what the peer may do.
    pub fn initialize_reliable(&self, port: u8, access: Access) -> Result<(), Error> {
        let attributes = ibv_qp_attr {
            qp_state: State::Initialized as c_uint,
            port_num: port,
            qp_access_flags: access.0,
            ..Default::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(attributes, mask)
    }

    /// UD, reset to initialised: receives can be posted. Senders must give that key.
    pub fn initialize_datagram(&self, port: u8, key: u32) -> Result<(), Error> {
        let attributes = ibv_qp_attr {
            qp_state: State::Initialized as c_uint,
            port_num: port,
            qkey: key,
            ..Default::default()
        };
        self.modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
    }

    /// RC, initialised to ready to receive.
    pub fn connect(&self, peer: &Peer) -> Result<(), Error> {
        let attributes = ibv_qp_attr {
            qp_state: State::ReadyToReceive as c_uint,
            path_mtu: peer.mtu as c_uint,
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: peer.reads_accepted,
            min_rnr_timer: peer.receiver_not_ready_timer,
            ah_attr: peer.path.to_raw(),
            ..Default::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(attributes, mask)
    }

    /// RC, ready to receive to ready to send.
    pub fn start_reliable(&self, retries: &Retries) -> Result<(), Error> {
        let attributes = ibv_qp_attr {
            qp_state: State::ReadyToSend as c_uint,
            sq_psn: retries.first_packet,
            max_rd_atomic: retries.reads_started,
            timeout: retries.timeout,
            retry_cnt: retries.count,
            rnr_retry: retries.receiver_not_ready,
            ..Default::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY;
        self.modify(attributes, mask)
    }

    /// UD, initialised to ready to send; `first_packet` is any number of 24 bits.
    pub fn start_datagram(&self, first_packet: u32) -> Result<(), Error> {
        let receive =
            ibv_qp_attr { qp_state: State::ReadyToReceive as c_uint, ..Default::default() };
        self.modify(receive, IBV_QP_STATE)?;
        let send = ibv_qp_attr {
            qp_state: State::ReadyToSend as c_uint,
            sq_psn: first_packet,
            ..Default::default()
        };
        self.modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// UD: attaches the queue pair to a multicast group. Datagrams to the group with this queue
    /// pair's key take one of its receives. `lid` is the group's local identifier (InfiniBand); 0
    /// on Ethernet. Attaching again changes nothing.
    ///
    /// The call concerns this device alone. On InfiniBand the subnet manager has to know of the
    /// member too, on Ethernet the host's IP layer and the switches (by joining the IP group).
    pub fn attach(&self, group: &Gid, lid: u16) -> Result<(), Error> {
        let mut groups = self.groups();
        if groups.contains(&(*group, lid)) {
            return Ok(());
        }
        let gid = ibv_gid { raw: *group };
        let attach = self.domain.context.library.ibv_attach_mcast;
        // SAFETY: the queue pair is alive, the GID is readable.
        check("ibv_attach_mcast", unsafe { attach(self.raw.as_ptr(), &gid, lid) })?;
        groups.push((*group, lid));
        Ok(())
    }

    /// Detaches the queue pair from a group. Dropping the queue pair detaches from all groups.
    pub fn detach(&self, group: &Gid, lid: u16) -> Result<(), Error> {
        let mut groups = self.groups();
        self.detach_raw(group, lid)?;
        groups.retain(|attached| *attached != (*group, lid));
        Ok(())
    }

    fn detach_raw(&self, group: &Gid, lid: u16) -> Result<(), Error> {
        let gid = ibv_gid { raw: *group };
        let detach = self.domain.context.library.ibv_detach_mcast;
        // SAFETY: the queue pair is alive, the GID is readable.
        check("ibv_detach_mcast", unsafe { detach(self.raw.as_ptr(), &gid, lid) })
    }

    fn groups(&self) -> MutexGuard<'_, Vec<(Gid, u16)>> {
        // Every change is a single call, so a panic elsewhere leaves it whole.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all work: outstanding requests complete as flushed.
    pub fn fail(&self) -> Result<(), Error> {
        let attributes = ibv_qp_attr { qp_state: State::Error as c_uint, ..Default::default() };
        self.modify(attributes, IBV_QP_STATE)
    }

    /// Back to the state after creation; outstanding requests vanish without completing.
    pub fn reset(&self) -> Result<(), Error> {
        let attributes = ibv_qp_attr { qp_state: State::Reset as c_uint, ..Default::default() };
        self.modify(attributes, IBV_QP_STATE)
    }

    fn modify(&self, mut attributes: ibv_qp_attr, mask: c_int) -> Result<(), Error> {
        // SAFETY: the queue pair is alive, the attributes are readable.
        let code = unsafe {
            (self.domain.context.library.ibv_modify_qp)(self.raw.as_ptr(), &mut attributes, mask)
        };
        check("ibv_modify_qp", code)
    }

    /// The present state.
    pub fn state(&self) -> Result<State, Error> {
        let mut attributes = ibv_qp_attr::default();
        // SAFETY: all zero is a value of this plain structure of numbers and pointers.
        let mut init = unsafe { std::mem::zeroed::<ibv_qp_init_attr>() };
        // SAFETY: the queue pair is alive, both structures are writable.
        let code = unsafe {
            let query = self.domain.context.library.ibv_query_qp;
            query(self.raw.as_ptr(), &mut attributes, IBV_QP_STATE | IBV_QP_CAP, &mut init)
        };
        check("ibv_query_qp", code)?;
        Ok(State::from_raw(attributes.qp_state))
    }

    /// Whether the device promises that the bytes of a write from the peer land in the order of
    /// their addresses: what polling a footer relies on. `false` also means that the driver, or
    /// a library older than rdma-core 41, does not say.
    pub fn places_writes_in_order(&self) -> bool {
        let Some(query) = self.domain.context.library.ibv_query_qp_data_in_order else {
            return false;
        };
        // SAFETY: the queue pair is alive.
        unsafe { query(self.raw.as_ptr(), IBV_WR_RDMA_WRITE, 0) == 1 }
    }

    /// Posts a list of requests, in order, with one doorbell.
    ///
    /// Fails with [`Error::is_queue_full`] when there is no room. Requests before the one that
    /// failed are posted all the same. On a UD queue pair every request must be a send with an
    /// address of the same device; else the whole list is refused.
    #[inline]
    pub fn post_send(&self, requests: &mut [SendRequest<'_>]) -> Result<(), PostError> {
        if self.transport == Transport::Datagram {
            self.check_datagrams(requests)?;
        }
        let first = link_sends(requests);
        if first.is_null() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: queue pair and context are alive. The list is linked inside of `requests`; its
        // lists of pieces, inline bytes and address handles are borrowed by the requests. Pieces
        // are checked by the device against its registered memory.
        let code = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.post_send)(self.raw.as_ptr(), first, &mut bad)
        };
        check("ibv_post_send", code)
            .map_err(|error| PostError { posted: place_of(requests, bad), error })
    }

    /// Checks the address handles of datagrams, which providers follow without a look: each must be
    /// a handle of this device.
    fn check_datagrams(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        // SAFETY: the library's structure lives as long as the queue pair.
        let context = unsafe { self.raw.as_ref().context };
        if requests.iter().all(|request| request.is_datagram_on(context)) {
            return Ok(());
        }
        Err(PostError { posted: 0, error: Error { call: "ibv_post_send", errno: libc::EINVAL } })
    }

    /// Posts a list of receives.
    #[inline]
    pub fn post_receive(&self, requests: &mut [ReceiveRequest<'_>]) -> Result<(), PostError> {
        let first = link_receives(requests);
        if first.is_null() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: as for `post_send`.
        let code = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.post_recv)(self.raw.as_ptr(), first, &mut bad)
        };
        check("ibv_post_recv", code)
            .map_err(|error| PostError { posted: place_of(requests, bad), error })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        for (group, lid) in std::mem::take(&mut *self.groups()) {
            // The kernel refuses to destroy an attached queue pair. A failure here has no remedy.
            let _ = self.detach_raw(&group, lid);
        }
        // SAFETY: made once, destroyed once; its components are still alive. Its completions leave
        // the completion queues.
        unsafe { (self.domain.context.library.ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}

impl Capacity {
    fn to_raw(self) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr: self.sends,
            max_recv_wr: self.receives,
            max_send_sge: self.send_pieces,
            max_recv_sge: self.receive_pieces,
            max_inline_data: self.inline_bytes,
        }
    }

    fn from_raw(raw: &ibv_qp_cap) -> Capacity {
        Capacity {
            sends: raw.max_send_wr,
            receives: raw.max_recv_wr,
            send_pieces: raw.max_send_sge,
            receive_pieces: raw.max_recv_sge,
            inline_bytes: raw.max_inline_data,
        }
    }
}

/// The states of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// After creation: nothing works.
    Reset = 0,
    /// Receives can be posted.
    Initialized = 1,
    /// Messages are received.
    ReadyToReceive = 2,
    /// Everything works.
    ReadyToSend = 3,
    /// The send queue is being drained.
    Draining = 4,
    /// The send queue failed (UD).
    SendError = 5,
    /// Everything is flushed.
    Error = 6,
}

impl State {
    fn from_raw(raw: c_uint) -> State {
        match raw {
            0 => State::Reset,
            1 => State::Initialized,
            2 => State::ReadyToReceive,
            3 => State::ReadyToSend,
            4 => State::Draining,
            5 => State::SendError,
            _ => State::Error,
        }
    }
}

/// The other end of a reliable connection, for [`QueuePair::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The way there.
    pub path: Path,
    /// The number of its queue pair.
    pub queue_pair: u32,
    /// The number of its first packet: its [`Retries::first_packet`].
    pub first_packet: u32,
    /// The packets' largest payload: no more than either port's.
    pub mtu: Mtu,
    /// How many reads and atomics of the peer are accepted at a time.
    pub reads_accepted: u8,
    /// How long a peer that met no posted receive waits before it tries again, in the standard's
    /// code: 0 is 655 ms, 1 is 10 µs, 12 is 640 µs, 31 is 491 ms.
    pub receiver_not_ready_timer: u8,
}

/// When to give up, for [`QueuePair::start_reliable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The number of this side's first packet: any number of 24 bits.
    pub first_packet: u32,
    /// How many reads and atomics may be under way: no more than the peer accepts.
    pub reads_started: u8,
    /// How long to wait for an answer: 4.096 µs times 2 to this power; 0 waits forever.
    pub timeout: u8,
    /// How often to try again without an answer, 0 to 7. Soft-RoCE takes 7 for ever.
    pub count: u8,
    /// How often to try again when no receive was posted, 0 to 6; 7 is forever.
    pub receiver_not_ready: u8,
}
