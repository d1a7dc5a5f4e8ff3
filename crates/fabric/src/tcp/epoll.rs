//! Which sockets are ready: epoll, level-triggered. The cost of asking depends on the number of
//! sockets that are ready, not on the number that exist.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::error::{Result, opened};

/// Answers at most at a time; those left over come first at the next.
const ANSWERS_MAX: usize = 256;

/// A set of sockets.
pub(super) struct Epoll {
    file: OwnedFd,
    answers: Vec<libc::epoll_event>,
    last: u64,
}

/// A socket's place in the set.
#[derive(Default)]
pub(super) struct Watched {
    /// 0: not in it.
    number: u64,
    events: u32,
}

impl Epoll {
    pub(super) fn new() -> Result<Epoll> {
        // SAFETY: a plain call.
        let file = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let file = opened("epoll_create1", file)?;
        Ok(Epoll { file, answers: Vec::with_capacity(ANSWERS_MAX), last: 0 })
    }

    /// Asks for `events` (of `poll`) of a socket from now on. False if the system refuses.
    pub(super) fn watch(&mut self, socket: RawFd, watched: &mut Watched, events: i16) -> bool {
        // They are the same bits.
        let events = u32::from(events as u16);
        let operation = match watched.number {
            0 => {
                self.last += 1;
                watched.number = self.last;
                libc::EPOLL_CTL_ADD
            }
            _ if watched.events == events => return true,
            _ => libc::EPOLL_CTL_MOD,
        };
        watched.events = events;
        let mut event = libc::epoll_event { events, u64: watched.number };
        // SAFETY: reads one event.
        unsafe { libc::epoll_ctl(self.file.as_raw_fd(), operation, socket, &raw mut event) == 0 }
    }

    /// Takes a socket out, which others may have open still.
    pub(super) fn forget(&self, socket: RawFd) {
        let mut unused = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: a plain call. A socket that is not in the set is refused, which is as good.
        unsafe {
            libc::epoll_ctl(self.file.as_raw_fd(), libc::EPOLL_CTL_DEL, socket, &raw mut unused);
        }
    }

    /// Looks what is ready, without waiting. False if nothing is.
    pub(super) fn look(&mut self) -> bool {
        let (room, most) = (self.answers.as_mut_ptr(), ANSWERS_MAX as i32);
        // SAFETY: there is room for that many.
        let count = unsafe { libc::epoll_wait(self.file.as_raw_fd(), room, most, 0) };
        // SAFETY: so many have been written, and at most as many as there is room for.
        unsafe { self.answers.set_len(count.max(0) as usize) };
        self.answers.sort_unstable_by_key(|answer| answer.u64);
        !self.answers.is_empty()
    }

    /// Events of a socket at the last [`Epoll::look`], as `poll` would report them.
    pub(super) fn ready(&self, watched: &Watched) -> i16 {
        let found = self.answers.binary_search_by_key(&watched.number, |answer| answer.u64);
        found.map_or(0, |at| self.answers[at].events as i16)
    }
}

/// Readable when a socket is ready.
impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_what_is_asked_for_and_there_is_ready() {
        let mut epoll = Epoll::new().unwrap();
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        let mut watched: Vec<Watched> = pairs.iter().map(|_| Watched::default()).collect();
        for ((socket, _), watched) in pairs.iter().zip(&mut watched) {
            assert!(epoll.watch(socket.as_raw_fd(), watched, libc::POLLIN));
        }
        assert!(!epoll.look());
        (&pairs[1].1).write_all(b"x").unwrap();
        let ready = |epoll: &Epoll, watched: &[Watched]| -> Vec<i16> {
            watched.iter().map(|watched| epoll.ready(watched)).collect()
        };
        // As long as it has not been read.
        for _ in 0..2 {
            assert!(epoll.look());
            assert_eq!(ready(&epoll, &watched), [0, libc::POLLIN, 0]);
        }
        assert!(epoll.watch(pairs[1].0.as_raw_fd(), &mut watched[1], 0));
        assert!(!epoll.look(), "nobody asks");
        assert_eq!(ready(&epoll, &watched), [0; 3]);
        assert!(epoll.watch(pairs[1].0.as_raw_fd(), &mut watched[1], libc::POLLIN | libc::POLLOUT));
        assert!(epoll.look());
        assert_eq!(ready(&epoll, &watched), [0, libc::POLLIN | libc::POLLOUT, 0]);
        (&pairs[1].0).read_exact(&mut [0]).unwrap();
        epoll.forget(pairs[1].0.as_raw_fd());
        assert!(!epoll.look());
        drop(pairs);
    }

    #[test]
    fn more_than_fit_into_an_answer_come_in_turn() {
        let mut epoll = Epoll::new().unwrap();
        let pairs: Vec<_> = (0..ANSWERS_MAX + 10).map(|_| UnixStream::pair().unwrap()).collect();
        let mut watched: Vec<Watched> = pairs.iter().map(|_| Watched::default()).collect();
        for ((socket, other), watched) in pairs.iter().zip(&mut watched) {
            let mut other = other;
            other.write_all(b"x").unwrap();
            assert!(epoll.watch(socket.as_raw_fd(), watched, libc::POLLIN));
        }
        let mut read = 0;
        while epoll.look() {
            for ((socket, _), watched) in pairs.iter().zip(&watched) {
                if epoll.ready(watched) != 0 {
                    let mut socket = socket;
                    socket.read_exact(&mut [0]).unwrap();
                    read += 1;
                }
            }
        }
        assert_eq!(read, pairs.len());
    }
}
