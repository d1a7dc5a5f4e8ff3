//! Reading a stream: large messages are read straight to their destination; headers and small
//! messages go through a buffer, many with one call.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{Frame, HEADER_BYTES};
use super::pair::TcpConnection;
use crate::keys::Target;
use crate::memory::Region;
use crate::work::Limits;

/// Bytes that are read ahead.
const AHEAD_BYTES: usize = 32 * 1024;
/// After a message of up to this length more is read ahead than a header: copying what follows, if
/// it is like it, costs less than a call for each.
const SMALL_BYTES: usize = 8 * 1024;

/// Memory that bytes are received into, kept mapped.
pub(super) enum Memory {
    None,
    /// Target of a peer's write.
    Target(Target),
    /// A posted receive, or where a read goes: memory that is its owner's again when the pair
    /// fails.
    Posted(Arc<TcpConnection>, Region, usize),
}

impl Memory {
    fn start(&self) -> *mut u8 {
        match self {
            Memory::None => std::ptr::null_mut(),
            Memory::Target(target) => target.start(),
            Memory::Posted(_, region, offset) => region.as_ptr().wrapping_add(*offset),
        }
    }

    /// Runs `write`, unless the memory is its owner's again: then `None`.
    fn fill<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        match self {
            Memory::Posted(pair, ..) => pair.fill(write),
            Memory::None | Memory::Target(_) => Some(write()),
        }
    }
}

/// Bytes that go straight from the socket to where they belong, the last 8 of them held back until
/// all others are there.
pub(super) struct Arriving {
    memory: Memory,
    /// Bytes that go straight there.
    body: usize,
    /// Bytes in all.
    total: usize,
    got: usize,
    tail: [u8; 8],
}

impl Arriving {
    pub(super) fn new(memory: Memory, total: usize) -> Arriving {
        let end = (memory.start() as usize).wrapping_add(total);
        let body = if total >= 8 && end.is_multiple_of(8) { total - 8 } else { total };
        Arriving { memory, body, total, got: 0, tail: [0; 8] }
    }

    fn is_complete(&self) -> bool {
        self.got == self.total
    }

    /// Places of the next bytes: first for bytes that go straight into memory, then for bytes held
    /// back.
    fn room(&mut self) -> [(*mut u8, usize); 2] {
        let straight = self.got.min(self.body);
        let held = self.got - straight;
        let body = self.memory.start().wrapping_add(straight);
        let tail = self.tail.as_mut_ptr().wrapping_add(held);
        // What has no memory has no body.
        [(body, self.body - straight), (tail, self.total - self.body - held)]
    }

    /// Copies from bytes that were read ahead, as many as fit; returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let copy = || {
            let mut taken = 0;
            for (start, room) in room {
                let part = &bytes[taken..][..room.min(bytes.len() - taken)];
                // SAFETY: the room is checked memory that is alive and may be written, or the tail;
                // `bytes` is the reader's.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start, part.len()) };
                taken += part.len();
            }
            taken
        };
        let taken = self.memory.fill(copy).unwrap_or(0);
        self.got += taken;
        taken
    }

    /// Releases the held back bytes. False if the memory may not be written any more.
    fn release(&self) -> bool {
        if self.body == self.total {
            std::sync::atomic::fence(Ordering::Release);
            return true;
        }
        let last = u64::from_ne_bytes(self.tail);
        let word = self.memory.start().wrapping_add(self.body).cast::<u64>();
        let store = || {
            // SAFETY: the last 8 of the checked bytes, aligned since their end is, alive with
            // `memory`.
            unsafe { AtomicU64::from_ptr(word) }.store(last, Ordering::Release);
        };
        self.memory.fill(store).is_some()
    }
}

/// Reads headers and bytes from a socket, as much per call as there is.
pub(super) struct Reader {
    ahead: Box<[u8]>,
    /// Range of `ahead` that has been read and not been used.
    from: usize,
    to: usize,
    arriving: Option<Arriving>,
    /// Whether the last message was small.
    small: bool,
}

/// Result of a call.
pub(super) enum Brought {
    /// Nothing at present.
    Nothing,
    /// So many bytes, perhaps 0; `all` if that was all there is.
    Bytes { got: usize, all: bool },
    /// The stream has ended.
    End,
}

impl Reader {
    pub(super) fn new() -> Reader {
        let ahead = vec![0; AHEAD_BYTES].into();
        Reader { ahead, from: 0, to: 0, arriving: None, small: true }
    }

    /// One system call. Only when all that has come is used, but for a part of a header.
    pub(super) fn read(&mut self, socket: &TcpStream) -> Brought {
        self.ahead.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let ahead = if self.small { AHEAD_BYTES } else { HEADER_BYTES.max(self.to) };
        let [body, tail] = match &mut self.arriving {
            Some(arriving) => arriving.room(),
            None => [(std::ptr::null_mut(), 0); 2],
        };
        let header = (self.ahead[self.to..].as_mut_ptr(), ahead - self.to);
        let room = [body, tail, header];
        let mut parts =
            room.map(|(start, bytes)| libc::iovec { iov_base: start.cast(), iov_len: bytes });
        // SAFETY: zeros are an empty message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        let mut receive = || {
            // SAFETY: the parts lie in memory that was checked for this message and may be written,
            // in the tail, and in the buffer; all are alive.
            let got =
                unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
            usize::try_from(got).map_err(|_| io::Error::last_os_error())
        };
        let got = match &self.arriving {
            Some(arriving) => arriving.memory.fill(receive),
            None => Some(receive()),
        };
        match got {
            None | Some(Ok(0)) => Brought::End,
            Some(Ok(got)) => {
                self.count(got);
                let asked = room.iter().map(|(_, bytes)| bytes).sum::<usize>();
                Brought::Bytes { got, all: got < asked }
            }
            Some(Err(error)) => match error.kind() {
                io::ErrorKind::WouldBlock => Brought::Nothing,
                io::ErrorKind::Interrupted => Brought::Bytes { got: 0, all: false },
                _ => Brought::End,
            },
        }
    }

    fn count(&mut self, mut got: usize) {
        if let Some(arriving) = &mut self.arriving {
            let taken = got.min(arriving.total - arriving.got);
            arriving.got += taken;
            got -= taken;
        }
        self.to += got;
    }

    /// Whether a message's bytes have all come; they are released then. If their memory may not be
    /// written any more, that is the end of the stream.
    pub(super) fn message_complete(&mut self) -> bool {
        match &self.arriving {
            Some(arriving) if arriving.is_complete() && arriving.release() => {
                self.arriving = None;
                true
            }
            _ => false,
        }
    }

    /// Whether a message's bytes are awaited.
    pub(super) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Whether a whole header has come and was not taken.
    pub(super) fn has_header(&self) -> bool {
        self.arriving.is_none() && self.to - self.from >= HEADER_BYTES
    }

    /// A whole header: `Some(None)` if it is impossible.
    pub(super) fn take_header(&mut self) -> Option<Option<Frame>> {
        if self.arriving.is_some() {
            return None;
        }
        let header = self.ahead[self.from..self.to].first_chunk()?;
        let frame = Frame::decode(header, Limits::SOFTWARE.message_bytes);
        self.from += HEADER_BYTES;
        Some(frame)
    }

    /// The bytes that follow go here.
    pub(super) fn expect(&mut self, mut arriving: Arriving) {
        self.small = arriving.total <= SMALL_BYTES;
        self.from += arriving.take(&self.ahead[self.from..self.to]);
        self.arriving = Some(arriving);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::super::frame::FrameKind;
    use super::*;
    use crate::keys::{KeyTable, Need};
    use crate::mapping::Mapping;
    use crate::memory::Access;

    /// Lengths around the limits between small and other messages, and of the buffer.
    const LENGTHS: [usize; 9] =
        [0, 5, 8, 100, SMALL_BYTES, SMALL_BYTES + 1, AHEAD_BYTES, AHEAD_BYTES + 8, 100_000];

    fn streams() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        out.set_nodelay(true).unwrap();
        (out, listener.accept().unwrap().0)
    }

    fn payload(number: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 7 + number) as u8).collect()
    }

    #[test]
    fn messages_arrive_whole_however_the_stream_is_cut() {
        let mut state = 5_u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % end
        };
        for _ in 0..20 {
            let lengths: Vec<usize> = (0..30).map(|_| LENGTHS[below(LENGTHS.len())]).collect();
            let mut stream = Vec::new();
            for (number, bytes) in lengths.iter().enumerate() {
                let frame = Frame { bytes: *bytes as u32, ..Frame::new(FrameKind::Write) };
                stream.extend(frame.encode());
                stream.extend(payload(number, *bytes));
            }
            let mut cuts: Vec<usize> = (0..40).map(|_| below(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let (mut out, into) = streams();
            let writer = std::thread::spawn(move || {
                for cut in cuts.windows(2) {
                    out.write_all(&stream[cut[0]..cut[1]]).unwrap();
                    std::thread::yield_now();
                }
            });
            read_all(&into, &lengths);
            writer.join().unwrap();
        }
    }

    fn read_all(stream: &TcpStream, lengths: &[usize]) {
        let memory = Arc::new(Mapping::anonymous(1 << 17).unwrap());
        let keys = Arc::new(KeyTable::default());
        let region = keys.add(1, memory, 1 << 17, Access::REMOTE_WRITE);
        let at = region.remote();
        let target = |offset: usize, bytes: usize| {
            let (address, bytes) = (at.address + offset as u64, bytes as u64);
            Memory::Target(keys.resolve(at.key, address, bytes, Need::Write).unwrap())
        };
        let mut reader = Reader::new();
        let (mut whole, mut begun) = (0, 0);
        let offset = |number: usize| number % 16 * 8 + number % 3;
        while whole < lengths.len() {
            loop {
                if reader.message_complete() {
                    let mut found = vec![0; lengths[whole]];
                    region.read(offset(whole), &mut found).unwrap();
                    assert!(found == payload(whole, found.len()), "message {whole}");
                    whole += 1;
                }
                let Some(frame) = reader.take_header() else { break };
                let bytes = frame.expect("a good header").bytes as usize;
                assert_eq!(bytes, lengths[begun]);
                if bytes == 0 {
                    whole += 1;
                } else {
                    reader.expect(Arriving::new(target(offset(begun), bytes), bytes));
                }
                begun += 1;
            }
            if whole < lengths.len() {
                match reader.read(stream) {
                    Brought::Nothing => std::thread::yield_now(),
                    Brought::Bytes { .. } => {}
                    Brought::End => panic!("the stream ended after {whole} messages"),
                }
            }
        }
    }
}
