//! A pipe as input. A thread of its own opens and reads it, because both wait for the writer, and
//! no worker may wait.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;

use super::MaybePacked;
use crate::hidden::hidden_everywhere;

/// Bytes taken from the pipe at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that wait to be taken in at most, give or take one read; then the writer has to.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Input received through a pipe. Its thread ends with the pipe, or at the first read after the
/// drop of this value.
#[derive(Debug)]
pub(crate) struct Pipe(Arc<SharedPipe>);

#[derive(Debug, Default)]
struct SharedPipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    ended: bool,
    error: Option<io::Error>,
    /// True if the reader has gone.
    dropped: bool,
    /// To be called when something comes.
    waker: Option<Waker>,
}

impl PipeState {
    fn end_with(&mut self, error: io::Error) {
        (self.ended, self.error) = (true, Some(error));
    }
}

impl SharedPipe {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, PipeState>) -> MutexGuard<'a, PipeState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the pipe's writer, and reads the pipe to its end.
    fn open(self: &Arc<SharedPipe>, path: &Path, table: String) {
        let pipe = AwaitedPipe { path: path.to_path_buf(), table, has_writer: false };
        silent().push(Silent { shared: Arc::downgrade(self), pipe });
        let opened = File::open(path);
        silent().iter_mut().filter(|s| s.is_of(self)).for_each(|s| s.pipe.has_writer = true);
        let mut state = self.lock();
        match opened {
            // Closes the file: the writer learns at once that there is no reader.
            Ok(_) if state.dropped => {}
            Ok(file) => {
                drop(state);
                let file = Heard { file, shared: self.clone() };
                self.take_in(Box::new(MaybePacked::new(Box::new(file))));
            }
            Err(error) => {
                state.end_with(error);
                drop(state);
                self.is_heard();
                self.changed.notify_all();
            }
        }
    }

    /// Something has come, or will never come.
    fn is_heard(&self) {
        silent().retain(|silent| !silent.is_of(self));
    }

    /// Reads `input` to its end.
    fn take_in(&self, mut input: Box<dyn Read + Send>) {
        let mut part = vec![0; READ_BYTES];
        loop {
            let got = match input.read(&mut part) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                got => got,
            };
            let mut state = self.lock();
            while state.bytes.len() >= WAITING_BYTES_MAX && !state.dropped {
                state = self.wait(state);
            }
            match got {
                Ok(0) => state.ended = true,
                Ok(count) => state.bytes.extend(&part[..count]),
                Err(error) => state.end_with(error),
            }
            let (done, waker) = (state.ended || state.dropped, state.waker.take());
            drop(state);
            self.changed.notify_all();
            if let Some(waker) = waker {
                waker.wake();
            }
            if done {
                return;
            }
        }
    }
}

/// A pipe opened by its path, with its reader.
struct Heard {
    file: File,
    shared: Arc<SharedPipe>,
}

impl Read for Heard {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(out);
        self.shared.is_heard();
        got
    }
}

/// A pipe without any input yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedPipe {
    /// Where it is, for messages.
    pub path: PathBuf,
    /// Name of the table that reads the pipe.
    pub table: String,
    /// Whether its writer has come.
    pub has_writer: bool,
}

struct Silent {
    shared: Weak<SharedPipe>,
    pipe: AwaitedPipe,
}

impl Silent {
    fn is_of(&self, shared: &SharedPipe) -> bool {
        std::ptr::eq(self.shared.as_ptr(), shared)
    }
}

/// Pipes of this process through which nothing has come.
static SILENT: Mutex<Vec<Silent>> = Mutex::new(Vec::new());

fn silent() -> MutexGuard<'static, Vec<Silent>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pipes that somebody in this process wants to read, and through which nothing has come yet.
pub fn awaited_pipes() -> Vec<AwaitedPipe> {
    let wanted = |silent: &&Silent| silent.shared.upgrade().is_some_and(|s| !s.lock().dropped);
    let shown = |Silent { pipe, .. }: &Silent| AwaitedPipe {
        path: hidden_everywhere(pipe.path.display().to_string()).into(),
        ..pipe.clone()
    };
    silent().iter().filter(wanted).map(shown).collect()
}

/// Stops waiting for the writers of this process's pipes: waiting readers get an error. A writer
/// that comes later finds no reader, and its input is not mistaken for the next reader's.
pub fn give_up_pipes() {
    let waiting: Vec<_> = silent().extract_if(.., |silent| !silent.pipe.has_writer).collect();
    for shared in waiting.iter().filter_map(|silent| silent.shared.upgrade()) {
        let mut state = shared.lock();
        state.dropped = true;
        state
            .end_with(io::Error::new(ErrorKind::TimedOut, "its writer is not waited for any more"));
        let waker = state.waker.take();
        drop(state);
        shared.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Pipe {
    /// Begins to read.
    pub(crate) fn new(input: Box<dyn Read + Send>) -> Pipe {
        Pipe::begin(move |shared| shared.take_in(input))
    }

    /// Begins to open and to read what is at `path`, as this table.
    pub(crate) fn open(path: PathBuf, table: &str) -> Pipe {
        let table = table.to_string();
        Pipe::begin(move |shared| shared.open(&path, table))
    }

    fn begin(work: impl FnOnce(&Arc<SharedPipe>) + Send + 'static) -> Pipe {
        let shared = Arc::new(SharedPipe::default());
        let own = shared.clone();
        let reader = thread::Builder::new().name("pipe".into());
        if let Err(error) = reader.spawn(move || work(&own)) {
            shared.lock().end_with(error);
        }
        Pipe(shared)
    }

    /// Whether a read would not have to wait. If it would, `waker` is called as soon as it would
    /// not.
    pub(crate) fn ready(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        let ready = state.ended || !state.bytes.is_empty();
        if !ready {
            state.waker = Some(waker.clone());
        }
        ready
    }
}

impl Read for Pipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        while state.bytes.is_empty() && !state.ended {
            state = self.0.wait(state);
        }
        if state.bytes.is_empty()
            && let Some(error) = state.error.take()
        {
            return Err(error);
        }
        let count = state.bytes.read(out)?;
        self.0.changed.notify_all();
        Ok(count)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.0.lock().dropped = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;
    use std::task::Wake;

    use super::*;

    /// Gives out what it is sent, and ends when the sender is gone.
    struct Sent(mpsc::Receiver<&'static [u8]>);
    impl Read for Sent {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let Ok(bytes) = self.0.recv() else { return Ok(0) };
            out[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }
    }

    struct Bell(mpsc::Sender<()>);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.send(()).expect("the test listens");
        }
    }

    #[test]
    fn whoever_waits_for_a_writer_may_be_told_not_to() {
        let name = format!("millstream-pipe-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let mut pipe = Pipe::open(path.clone(), "first");
        let awaited = |table: &str, has_writer| {
            let pipe = AwaitedPipe { path: path.clone(), table: table.into(), has_writer };
            awaited_pipes().contains(&pipe)
        };
        while !awaited("first", false) {
            thread::yield_now();
        }
        give_up_pipes();
        assert!(!awaited("first", false));
        let error = pipe.read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // The next one gets all, once it has opened the pipe.
        let mut writer = File::options().write(true).open(&path).unwrap();
        let mut next = Pipe::open(path.clone(), "next");
        while !awaited("next", true) {
            thread::yield_now();
        }
        // The one before may be about to close the pipe.
        while writer.write_all(b"all").is_err() {
            thread::yield_now();
        }
        let mut all = [0; 3];
        next.read_exact(&mut all).unwrap();
        assert_eq!(&all, b"all");
        assert!(!awaited("next", true));
        drop(writer);
        assert_eq!(next.read(&mut all).unwrap(), 0);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn it_is_ready_when_something_has_come_and_at_the_end() {
        let (sender, sent) = mpsc::channel();
        let (ring, rung) = mpsc::channel();
        let waker = Waker::from(Arc::new(Bell(ring)));
        let mut pipe = Pipe::new(Box::new(Sent(sent)));
        assert!(!pipe.ready(&waker));
        sender.send(b"ab").unwrap();
        rung.recv().unwrap();
        let mut out = [0; 10];
        assert!(pipe.ready(&waker));
        assert_eq!((pipe.read(&mut out).unwrap(), &out[..2]), (2, &b"ab"[..]));
        assert!(!pipe.ready(&waker));
        drop(sender);
        rung.recv().unwrap();
        assert!(pipe.ready(&waker));
        assert_eq!(pipe.read(&mut out).unwrap(), 0);
    }

    #[test]
    fn what_came_before_an_error_is_not_lost() {
        struct Broken(usize);
        impl Read for Broken {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                out[0] = b'x';
                if self.0 == 1 { Ok(1) } else { Err(io::Error::other("disk on fire")) }
            }
        }
        let mut pipe = Pipe::new(Box::new(Broken(0)));
        let mut out = [0; 10];
        assert_eq!(pipe.read(&mut out).unwrap(), 1);
        assert_eq!(pipe.read(&mut out).unwrap_err().to_string(), "disk on fire");
    }
}
