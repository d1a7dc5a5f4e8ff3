//! Datagrams over the kernel's datagram sockets (UDP or Unix), for the providers `shm` and `tcp`.
//!
//! A datagram queue pair may receive from anybody at any time, which kernel sockets are good at.
//! Each datagram carries the job's token, since any process can send to the socket.
//!
//! A network card sends as fast as its link takes datagrams. So does this module: a datagram that
//! finds a socket full (Unix sockets hold ten datagrams by default) is not lost, but waits, and is
//! sent when its owner polls again. Each destination has its own line: a stuck destination holds up
//! no other.
//!
//! A multicast group has a socket of its own at each member, since a socket that is bound to one of
//! the machine's addresses does not get a group's datagrams.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::group::Group;
use crate::kept::{KeptReceive, KeptSource};
use crate::place::place;
use crate::queue::{Datagrams, Member, Queue, lock};
use crate::setup::Token;
use crate::work::{
    Completion, DATAGRAM_HEADER_BYTES, Kind, Limits, Outgoing, QueueSizes, Receive, Status,
};

/// In front of every datagram on the wire: token, sender's number, immediate value and whether it
/// is one.
const WIRE_HEADER_BYTES: usize = 32 + 12;

/// A datagram queue pair that was resolved: the address of its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct SocketAddress {
    bytes: [u8; SocketAddress::BYTES],
    length: libc::socklen_t,
}

impl SocketAddress {
    const BYTES: usize = size_of::<libc::sockaddr_storage>();

    /// The address of this length.
    ///
    /// # Safety
    /// `T` is one of the system's structures for socket addresses, without padding.
    pub(crate) unsafe fn new<T>(address: &T, length: libc::socklen_t) -> SocketAddress {
        const { assert!(size_of::<T>() <= SocketAddress::BYTES && align_of::<T>() <= 8) };
        let mut bytes = [0; SocketAddress::BYTES];
        // SAFETY: `bytes` is at least as long, and all bytes of the structure are initialised.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(address).cast(),
                bytes.as_mut_ptr(),
                size_of::<T>(),
            );
        }
        SocketAddress { bytes, length }
    }

    /// As the system wants it.
    pub(crate) fn parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        (self.bytes.as_ptr().cast(), self.length)
    }
}

/// A datagram queue pair, known to its owner and its completion queues.
pub(crate) struct SharedDatagram<P> {
    pub(crate) number: u32,
    device: u32,
    limits: Limits,
    token: Token,
    sizes: QueueSizes,
    send_queue: Arc<Queue<P>>,
    receive_queue: Arc<Queue<P>>,
    socket: OwnedFd,
    used: AtomicU32,
    inner: Mutex<Inner>,
}

/// A datagram that has been posted and not been sent.
struct Unsent {
    bytes: KeptSource,
    immediate: Option<u32>,
    id: u64,
    signalled: bool,
}

/// A destination whose socket was full, and the datagrams for it, oldest first.
struct Full {
    to: SocketAddress,
    unsent: VecDeque<Unsent>,
}

struct Inner {
    unsignalled: u32,
    /// All of them together have no more datagrams than the send queue has entries.
    full: Vec<Full>,
    receives: VecDeque<KeptReceive>,
    /// A socket per joined group; closing the socket leaves the group.
    groups: Vec<(Group, OwnedFd)>,
    /// Counts polls: each begins with another socket.
    polls: usize,
    incoming: Box<[u8]>,
}

impl<P: Member> SharedDatagram<P> {
    /// Datagrams of a device (its number, limits and job) over a socket.
    pub(crate) fn new(
        number: u32,
        (device, limits, token): (u32, Limits, Token),
        queues: (&Arc<Queue<P>>, &Arc<Queue<P>>),
        sizes: QueueSizes,
        socket: OwnedFd,
    ) -> SharedDatagram<P> {
        SharedDatagram {
            number,
            device,
            limits,
            token,
            sizes,
            send_queue: queues.0.clone(),
            receive_queue: queues.1.clone(),
            socket,
            used: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                unsignalled: 0,
                full: Vec::new(),
                receives: VecDeque::with_capacity(sizes.receive as usize),
                groups: Vec::new(),
                polls: 0,
                incoming: vec![0; WIRE_HEADER_BYTES + limits.datagram_bytes].into(),
            }),
        }
    }

    /// Takes the datagrams of this number from their queues: first that of sends, then of receives.
    pub(crate) fn detach(queues: &[Arc<Queue<P>>; 2], number: u32) {
        queues[1].count_waiting(false);
        for queue in queues {
            queue.detach(number);
        }
    }

    /// Joins a group with the socket that `open` opens, unless it was joined before.
    pub(crate) fn join(&self, group: Group, open: impl FnOnce() -> Result<OwnedFd>) -> Result<()> {
        let groups = &mut lock(&self.inner).groups;
        if groups.iter().all(|(joined, _)| *joined != group) {
            groups.push((group, open()?));
        }
        Ok(())
    }

    /// Sends one datagram.
    pub(crate) fn post<A>(&self, to: &SocketAddress, request: &Outgoing<'_, A>) -> Result<()> {
        request.check(self.device, &self.limits)?;
        if self.used.load(Ordering::Acquire) >= self.sizes.send {
            return Err(Error::QueueFull);
        }
        self.used.fetch_add(1, Ordering::AcqRel);
        let (bytes, immediate) = (KeptSource::new(&request.source), request.immediate);
        let (id, signalled) = (request.id, request.signalled);
        let datagram = Unsent { bytes, immediate, id, signalled };
        let mut inner = lock(&self.inner);
        if let Some(full) = inner.full.iter_mut().find(|full| full.to == *to) {
            full.unsent.push_back(datagram);
        } else if self.send(to, &datagram) {
            self.sent(&mut inner.unsignalled, &datagram);
        } else {
            inner.full.push(Full { to: *to, unsent: VecDeque::from([datagram]) });
        }
        Ok(())
    }

    fn sent(&self, unsignalled: &mut u32, datagram: &Unsent) {
        if !datagram.signalled {
            *unsignalled += 1;
            return;
        }
        let frees = 1 + std::mem::take(unsignalled);
        let completion = Completion {
            id: datagram.id,
            kind: Kind::Send,
            queue_pair: self.number,
            ..Completion::default()
        };
        self.send_queue.push(completion, frees);
    }

    /// Returns false if a socket, here or there, is full at the moment. Whatever else goes wrong,
    /// the datagram is lost, as datagrams may be.
    fn send(&self, to: &SocketAddress, datagram: &Unsent) -> bool {
        let (address, length) = to.parts();
        let mut header = [0; WIRE_HEADER_BYTES];
        header[..32].copy_from_slice(self.token.bytes());
        header[32..36].copy_from_slice(&self.number.to_le_bytes());
        header[36..40].copy_from_slice(&datagram.immediate.unwrap_or(0).to_le_bytes());
        header[40] = datagram.immediate.is_some().into();
        let (start, bytes) = datagram.bytes.parts();
        let mut parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
            libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes },
        ];
        // SAFETY: zeros are an empty message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = address.cast_mut().cast();
        message.msg_namelen = length;
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: all pointers are alive; the kernel only reads the parts, and the source was
        // checked.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, flags) };
        let reason = std::io::Error::last_os_error().raw_os_error();
        sent >= 0 || !matches!(reason, Some(libc::EAGAIN | libc::ENOBUFS))
    }

    pub(crate) fn post_receive(&self, receive: &Receive<'_>) -> Result<()> {
        if receive.buffer.is_none() {
            return Err(Error::Limit {
                what: "bytes as room for a datagram's header",
                asked: DATAGRAM_HEADER_BYTES as u64,
                max: 0,
            });
        }
        let receives = &mut lock(&self.inner).receives;
        KeptReceive::post(receive, self.device, receives, self.sizes.receive)
    }

    /// Takes the datagrams of a socket.
    fn take(&self, inner: &mut Inner, socket: RawFd, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let buffer = &mut inner.incoming;
            // SAFETY: the buffer has the length that is named.
            let got = unsafe {
                libc::recv(
                    socket,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                )
            };
            let Ok(got) = usize::try_from(got) else { break };
            if let Some(completion) = self.accept(inner, got) {
                out[count] = completion;
                count += 1;
            }
        }
        count
    }

    fn accept(&self, inner: &mut Inner, got: usize) -> Option<Completion> {
        let message = inner.incoming.get(..got)?;
        let (token, rest) = message.split_first_chunk::<32>()?;
        let (header, data) = rest.split_first_chunk::<12>()?;
        if !self.token.matches(token) {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let whole = DATAGRAM_HEADER_BYTES + data.len();
        if inner.receives.front()?.room() < whole {
            return None;
        }
        let KeptReceive { id, buffer: Some(buffer) } = inner.receives.pop_front()? else {
            return None;
        };
        let to = buffer.start().wrapping_add(DATAGRAM_HEADER_BYTES);
        // SAFETY: the range was checked when posted, and has room for header and data.
        unsafe { place(to, data.as_ptr(), data.len()) }
        Some(Completion {
            id,
            status: Status::Success,
            queue_pair: self.number,
            kind: Kind::Receive,
            bytes: whole as u32,
            immediate: (header[8] != 0).then_some(word(4)),
            source_queue_pair: word(0),
        })
    }
}

impl<P: Member> Datagrams<P> for SharedDatagram<P> {
    fn number(&self) -> u32 {
        self.number
    }

    fn receives_at(&self, queue: &Queue<P>) -> bool {
        std::ptr::eq(&raw const *self.receive_queue, queue)
    }

    fn free(&self, entries: u32) {
        self.used.fetch_sub(entries, Ordering::AcqRel);
    }

    fn send_on(&self) {
        let mut inner = lock(&self.inner);
        let Inner { full, unsignalled, .. } = &mut *inner;
        full.retain_mut(|Full { to, unsent }| {
            while let Some(datagram) = unsent.pop_front() {
                if !self.send(to, &datagram) {
                    unsent.push_front(datagram);
                    return true;
                }
                self.sent(unsignalled, &datagram);
            }
            false
        });
    }

    /// Takes the datagrams of all sockets; datagrams without a receive are lost.
    fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        inner.polls = inner.polls.wrapping_add(1);
        let (first, sockets) = (inner.polls, inner.groups.len() + 1);
        let mut count = 0;
        for socket in 0..sockets {
            let socket = match first.wrapping_add(socket) % sockets {
                0 => self.socket.as_raw_fd(),
                group => inner.groups[group - 1].1.as_raw_fd(),
            };
            count += self.take(inner, socket, &mut out[count..]);
        }
        Ok(count)
    }
}
