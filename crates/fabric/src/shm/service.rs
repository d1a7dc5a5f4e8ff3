//! How the processes of one host find each other: each device has a Unix socket and a small thread.
//! The thread hands out file descriptors of shared memory to processes that run as the same user
//! and present the job's token.
//!
//! Data never pass through the thread: peers ask it once per queue pair and region. It also watches
//! the connections to other devices, and so notices at once when a process has died.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::link::Link;
use crate::error::{Error, Result, last_os_error, opened};
use crate::event_file::EventFile;
use crate::memory::Access;
use crate::queue::lock;
use crate::setup::{HEAD_BYTES, SetupError, Token, check_head, head};

/// A question: kind and number.
pub(super) const QUESTION_BYTES: usize = 8;
/// An answer: three words.
pub(super) const ANSWER_BYTES: usize = 24;
/// A set-up call may take so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// After a connection could not be taken, for want of a descriptor perhaps, it is tried again so
/// much later.
const DEAF_MS: i32 = 50;
/// Most connections from other devices.
const CONNECTIONS_MAX: usize = 1024;

pub(super) const ASK_PAIR: u32 = 1;
pub(super) const ASK_REGION: u32 = 2;

/// State shared by the thread and the device.
pub(super) struct Directory {
    pub(super) token: Token,
    /// Descriptor of the region table.
    pub(super) table: OwnedFd,
    pub(super) entries: Mutex<Entries>,
    /// Connections to peers' devices, watched for their end.
    pub(super) links: Mutex<Vec<Arc<Link>>>,
    stop: AtomicBool,
    wake: EventFile,
}

#[derive(Default)]
pub(super) struct Entries {
    pub(super) pairs: HashMap<u32, PairEntry>,
    pub(super) regions: HashMap<u32, RegionEntry>,
}

/// Description of a queue pair for peers.
pub(super) struct PairEntry {
    pub(super) control: OwnedFd,
    pub(super) capacity: u64,
    pub(super) bell: Option<Arc<OwnedFd>>,
}

/// Description of a region for peers.
pub(super) struct RegionEntry {
    pub(super) file: OwnedFd,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) access: Access,
}

impl Directory {
    pub(super) fn new(token: Token, table: OwnedFd) -> Result<Directory> {
        Ok(Directory {
            token,
            table,
            entries: Mutex::default(),
            links: Mutex::default(),
            stop: AtomicBool::new(false),
            wake: EventFile::new()?,
        })
    }

    /// Lets the thread look at its lists again.
    pub(super) fn wake(&self) {
        self.wake.signal();
    }
}

/// Starts the thread.
pub(super) fn start(directory: &Arc<Directory>, listener: OwnedFd) -> Result<JoinHandle<()>> {
    let directory = directory.clone();
    std::thread::Builder::new()
        .name("millstream-shm".into())
        .spawn(move || serve(&directory, &listener))
        .map_err(|source| Error::Os { call: "starting a thread", source })
}

/// Ends the thread and waits for it, but where it is the thread itself that had the device's last
/// handle for a moment, telling a pair of its peer's end.
pub(super) fn stop(directory: &Directory, thread: JoinHandle<()>) {
    directory.stop.store(true, Ordering::Release);
    directory.wake();
    if thread.thread().id() != std::thread::current().id() {
        drop(thread.join());
    }
}

/// A connection from another device.
struct Client {
    socket: OwnedFd,
    known: bool,
}

fn serve(directory: &Directory, listener: &OwnedFd) {
    let mut clients: Vec<Client> = Vec::new();
    let mut polls = Vec::new();
    let mut deaf = false;
    while !directory.stop.load(Ordering::Acquire) {
        let links: Vec<Arc<Link>> = lock(&directory.links).clone();
        polls.clear();
        polls.push(poll_entry(directory.wake.as_raw_fd(), libc::POLLIN));
        let accepts = if clients.len() < CONNECTIONS_MAX && !deaf { libc::POLLIN } else { 0 };
        let wait_ms = if deaf { DEAF_MS } else { -1 };
        deaf = false;
        polls.push(poll_entry(listener.as_raw_fd(), accepts));
        polls.extend(clients.iter().map(|c| poll_entry(c.socket.as_raw_fd(), libc::POLLIN)));
        polls.extend(links.iter().map(|link| poll_entry(link.raw(), libc::POLLRDHUP)));
        // SAFETY: the array has as many entries as are named.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, wait_ms) };
        if ready < 0 {
            continue;
        }
        if polls[0].revents != 0 {
            directory.wake.hear();
        }
        let (for_clients, for_links) = polls[2..].split_at(clients.len());
        let mut gone: Vec<Arc<Link>> = Vec::new();
        for (link, _) in links.iter().zip(for_links).filter(|(_, poll)| poll.revents != 0) {
            link.lose();
            gone.push(link.clone());
        }
        if !gone.is_empty() {
            let is_gone = |link: &Arc<Link>| gone.iter().any(|other| Arc::ptr_eq(link, other));
            lock(&directory.links).retain(|link| !is_gone(link));
        }
        let mut served = for_clients.iter().map(|poll| poll.revents);
        clients.retain_mut(|client| {
            let events = served.next().unwrap_or(0);
            events == 0 || serve_client(directory, client).is_ok()
        });
        if polls[1].revents != 0 {
            match accept(listener) {
                Ok(socket) if check_user(&socket).is_ok() => {
                    clients.push(Client { socket, known: false });
                }
                Ok(_) => {}
                Err(_) => deaf = true,
            }
        }
    }
}

fn poll_entry(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

fn accept(listener: &OwnedFd) -> Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for.
    let socket = unsafe {
        libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
    };
    opened("accept", socket)
}

/// Checks that the peer's process runs as our user.
pub(super) fn check_user(socket: &OwnedFd) -> Result<()> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the length that is named.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 {
        return Err(last_os_error("getsockopt(SO_PEERCRED)"));
    }
    // SAFETY: a plain call.
    if credentials.uid == unsafe { libc::geteuid() } {
        Ok(())
    } else {
        Err(SetupError::Field { what: "it is another user's" }.into())
    }
}

/// Serves one message; an error ends the connection.
fn serve_client(directory: &Directory, client: &mut Client) -> Result<()> {
    let mut message = [0; HEAD_BYTES];
    let length = match receive(&client.socket, &mut message, &mut Vec::new()) {
        Ok(0) => return Err(SetupError::Field { what: "the peer has gone" }.into()),
        Ok(length) => length,
        Err(Error::Os { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if !client.known {
        check_greeting(&message[..length], &directory.token)?;
        client.known = true;
        let answer = head(&directory.token);
        return send(&client.socket, &answer, &[directory.table.as_raw_fd()]);
    }
    let Some(question) = message[..length].first_chunk::<QUESTION_BYTES>() else {
        return Err(SetupError::Field { what: "a question that is too short" }.into());
    };
    answer(directory, &client.socket, *question)
}

fn answer(directory: &Directory, socket: &OwnedFd, question: [u8; QUESTION_BYTES]) -> Result<()> {
    let (kind, number) = decode_question(&question);
    let entries = lock(&directory.entries);
    match kind {
        Some(ASK_PAIR) => match entries.pairs.get(&number) {
            Some(entry) => {
                let answer = encode_answer([1, entry.capacity, entry.bell.is_some().into()]);
                let mut files = vec![entry.control.as_raw_fd()];
                files.extend(entry.bell.as_ref().map(|bell| bell.as_raw_fd()));
                send(socket, &answer, &files)
            }
            None => send(socket, &encode_answer([0; 3]), &[]),
        },
        Some(ASK_REGION) => match entries.regions.get(&number) {
            Some(entry) => {
                let access = u64::from(entry.access.remote_read)
                    | u64::from(entry.access.remote_write) << 1
                    | u64::from(entry.access.remote_atomic) << 2;
                let answer = encode_answer([1 | access << 8, entry.address, entry.bytes]);
                send(socket, &answer, &[entry.file.as_raw_fd()])
            }
            None => send(socket, &encode_answer([0; 3]), &[]),
        },
        _ => Err(SetupError::Field { what: "a question of an unknown kind" }.into()),
    }
}

fn encode_answer(words: [u64; 3]) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Checks the first message on a connection, in either direction.
pub(super) fn check_greeting(message: &[u8], token: &Token) -> std::result::Result<(), SetupError> {
    let message = message.try_into();
    check_head(
        message.map_err(|_| SetupError::Field { what: "a greeting of another length" })?,
        token,
    )
}

/// Fuzz target: any greeting except this token's own is refused; any question is answered.
///
/// # Panics
/// If a wrong greeting is accepted.
pub fn fuzz(data: &[u8]) {
    let token = Token::new([7; 32]);
    if check_greeting(data, &token).is_ok() {
        assert_eq!(data, head(&token));
    }
    if let Some(question) = data.first_chunk::<QUESTION_BYTES>() {
        let (kind, _) = decode_question(question);
        assert!(matches!(kind, None | Some(ASK_PAIR | ASK_REGION)));
    }
}

/// Kind and number; `None` for an unknown kind.
fn decode_question(question: &[u8; QUESTION_BYTES]) -> (Option<u32>, u32) {
    let word = |at| u32::from_le_bytes(std::array::from_fn(|i| question[at + i]));
    let kind = word(0);
    (matches!(kind, ASK_PAIR | ASK_REGION).then_some(kind), word(4))
}

/// Room for the control message of up to two descriptors, aligned as the system wants it.
#[repr(align(8))]
struct ControlBuffer([u8; 64]);

const FILES_MAX: usize = 2;

/// Sends one message with descriptors.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], files: &[RawFd]) -> Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer([0; 64]);
    // SAFETY: a message header of zeros is an empty one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if !files.is_empty() {
        let data = size_of_val(files) as u32;
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: plain arithmetic.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(data) } as usize;
        // SAFETY: the buffer has room for FILES_MAX descriptors (checked by the caller's lists),
        // and the first header lies in it.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(data) as usize;
            let to = libc::CMSG_DATA(first).cast::<RawFd>();
            for (i, file) in files.iter().take(FILES_MAX).enumerate() {
                to.add(i).write_unaligned(*file);
            }
        }
    }
    // SAFETY: all pointers in the header are alive.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(last_os_error("sendmsg")) } else { Ok(()) }
}

/// Receives a message and its descriptors; 0 bytes if the peer has gone.
pub(super) fn receive(
    socket: &OwnedFd,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer([0; 64]);
    // SAFETY: a message header of zeros is an empty one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    // SAFETY: all pointers in the header are alive and the lengths theirs.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    if got < 0 {
        return Err(last_os_error("recvmsg"));
    }
    // SAFETY: the kernel filled the header; descriptors that came are ours from here on.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while !next.is_null() {
            if (*next).cmsg_level == libc::SOL_SOCKET && (*next).cmsg_type == libc::SCM_RIGHTS {
                let empty = libc::CMSG_LEN(0) as usize;
                let count = ((*next).cmsg_len - empty) / size_of::<RawFd>();
                let from = libc::CMSG_DATA(next).cast::<RawFd>();
                for i in 0..count {
                    files.push(OwnedFd::from_raw_fd(from.add(i).read_unaligned()));
                }
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
    }
    Ok(got as usize)
}

/// An abstract socket address: no file, so nothing is left behind.
pub(super) fn address(name: &[u8]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    (address, length as libc::socklen_t)
}

/// A Unix socket of this kind.
pub(super) fn unix_socket(kind: i32) -> Result<OwnedFd> {
    // SAFETY: a plain call.
    opened("socket", unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0) })
}

/// Binds to an abstract name.
pub(super) fn bind(socket: &OwnedFd, name: &[u8]) -> Result<()> {
    let (address, length) = address(name);
    // SAFETY: the address is alive and has this length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } < 0 {
        return Err(last_os_error("bind"));
    }
    Ok(())
}
