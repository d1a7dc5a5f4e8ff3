//! Bytes of a pipe or a connection on their way into a journal.

use std::any::Any;
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use millstream_contract::{Error, Result};
use millstream_store::journal::Journal;

use super::Live;
use crate::input::{Name, Pipe, io_error};
use crate::records::{Cut, RECORD_BYTES_MAX, RecordFormat};

/// Bytes of an entry, unless one record has more.
const READ_BYTES: usize = 1 << 20;
/// Pause before writing again to a journal that is full or fails.
const RETRY: Duration = Duration::from_secs(1);
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A thread that takes what comes through a pipe into a journal, as whole records. It ends soon
/// after the drop of this value.
pub(crate) struct Feed {
    shared: Arc<SharedFeed>,
    thread: Thread,
    /// Dropped after the thread has been told to stop.
    _input: Box<dyn Any + Send>,
}

#[derive(Default)]
struct SharedFeed {
    stopped: AtomicBool,
    state: Mutex<FeedState>,
}

#[derive(Default)]
struct FeedState {
    /// Nothing more will be appended.
    over: bool,
    error: Option<Error>,
    notices: VecDeque<String>,
}

impl SharedFeed {
    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// The way of an input.
pub(crate) struct Way {
    pub(crate) name: Name,
    pub(crate) pipe: Pipe,
    pub(crate) journal: Arc<Journal>,
    pub(crate) format: Arc<dyn RecordFormat>,
    /// Bytes that are left out where the input begins with them.
    pub(crate) header: Vec<u8>,
    /// Whether the end of the input is an entry: after a restart, no other sender is waited for.
    pub(crate) ends: bool,
}

impl Feed {
    /// Begins to take in. `input` is dropped with this value.
    pub(crate) fn start(way: Way, input: Box<dyn Any + Send>) -> Result<Feed> {
        let shared = Arc::<SharedFeed>::default();
        let (own, name) = (shared.clone(), way.name.clone());
        let work = move || {
            let journal = way.journal.clone();
            let result = way.take_in(&own);
            let mut state = own.lock();
            (state.over, state.error) = (true, result.err());
            drop(state);
            journal.wake();
        };
        let spawned = thread::Builder::new().name("journal".into()).spawn(work);
        let thread = spawned.map_err(|error| io_error(Path::new(&*name), &error))?;
        Ok(Feed { shared, thread: thread.thread().clone(), _input: input })
    }

    fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Live for Feed {
    /// The waker is that of the journal's reader.
    fn is_over(&mut self, _waker: &Waker) -> Result<bool> {
        let state = self.shared.lock();
        state.error.clone().map_or(Ok(state.over), Err)
    }

    fn drain(&mut self) {
        self.stop();
    }

    fn notice(&mut self) -> Option<String> {
        self.shared.lock().notices.pop_front()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Way {
    /// Reads to the end, or until it is stopped.
    fn take_in(mut self, shared: &SharedFeed) -> Result<()> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let (mut buffer, mut begins) = (Vec::new(), true);
        loop {
            while !self.pipe.ready(&waker) && !shared.is_stopped() {
                thread::park();
            }
            let before = buffer.len();
            buffer.resize(before + READ_BYTES, 0);
            let stopped = shared.is_stopped();
            let got = if stopped { Ok(0) } else { self.pipe.read(&mut buffer[before..]) };
            buffer.truncate(before + got.as_ref().map_or(0, |got| *got));
            let got = got.map_err(|error| io_error(Path::new(&*self.name), &error))?;
            if shared.is_stopped() {
                if !buffer.is_empty() {
                    let text = "it was drained in the middle of a record, which is left out";
                    shared.lock().notices.push_back(format!("{}: {text}", self.name));
                }
                return Ok(());
            }
            let ended = got == 0;
            let is_short = buffer.len() < self.header.len() && self.header.starts_with(&buffer);
            if is_short && !ended {
                continue;
            }
            if buffer.starts_with(&self.header) {
                buffer.drain(..self.header.len());
            }
            self.header.clear();
            let mark = if begins && buffer.starts_with(BYTE_ORDER_MARK) { 3 } else { 0 };
            let whole = match &buffer[mark..] {
                _ if ended || buffer.len() >= RECORD_BYTES_MAX => buffer.len(),
                [] => 0,
                bytes => match self.format.cut(bytes, false, usize::MAX) {
                    Cut::At(end) => mark + end,
                    _ => 0,
                },
            };
            if whole > 0 && !self.append(Some(&buffer[..whole]), shared)? {
                return Ok(());
            }
            begins &= whole == 0;
            buffer.drain(..whole);
            if ended {
                if self.ends {
                    self.append(None, shared)?;
                }
                return Ok(());
            }
        }
    }

    /// Appends an entry, as soon as the journal takes it. False: it has been stopped before.
    fn append(&self, bytes: Option<&[u8]>, shared: &SharedFeed) -> Result<bool> {
        let mut waits = false;
        let say = |text: String| {
            shared.lock().notices.push_back(format!("{}: {text}", self.name));
            self.journal.wake();
        };
        while !shared.is_stopped() {
            match self.journal.append(bytes, None) {
                Ok(_) => {
                    if waits {
                        say("it is read again".into());
                    }
                    return Ok(true);
                }
                Err(error) if error.may_pass() => {
                    if !waits {
                        let error = error.to_string().replace("\n  help: ", "; ");
                        say(format!("it is not read, because its journal takes no more: {error}"));
                    }
                    waits = true;
                    self.journal.wait_for_room(RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}
