//! The local socket of a running job, over which `millstream jobs`, `why` and `stop` ask it.
//!
//! The socket stands in a folder of its user's own (mode 0700), as `PID.sock` (mode 0600). It
//! appears under this name only when its job listens, so a socket without a listener is a killed
//! job's. A request and its answer are a line of JSON each. After the answer to *stop* the
//! connection stays open until the job has ended.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::board::{Report, StatusBoard, StopAnswer};
use crate::console::warn;

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: u64 = 1 << 10;
/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// How often it is looked whether a job that was asked to end has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How often it is looked whether a job that did not answer ends.
const ENDING: usize = 10;
/// How long a request or an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a socket's path at most: the kernel's limit, with its end.
const PATH_BYTES_MAX: usize = 107;

/// Request to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// Its state.
    Report,
    /// To end, as at Ctrl-C.
    Stop,
    /// To read no more, fire what is open, and end well.
    Drain,
}

/// Answer of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    Report(Box<Report>),
    Stop(StopAnswer),
}

/// The file of this program's socket, which is removed at the program's end at the latest.
static OWN: OnceLock<PathBuf> = OnceLock::new();

extern "C" fn remove_own() {
    if let Some(path) = OWN.get() {
        // Whoever has removed it already has done no harm.
        let _ = fs::remove_file(path);
    }
}

/// The folders in which sockets may stand: the first that can be used is.
fn folders() -> Vec<PathBuf> {
    // SAFETY: it reads a number of this process and cannot fail.
    let user = unsafe { libc::getuid() };
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    let own = own.map(|folder| folder.join("millstream"));
    let temporary = std::env::temp_dir().join(format!("millstream-{user}"));
    own.into_iter().chain([temporary]).collect()
}

/// Whether a folder is this user's own, and nobody else can look into it.
fn is_own(folder: &Path) -> bool {
    // SAFETY: it reads a number of this process and cannot fail.
    let user = unsafe { libc::geteuid() };
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

/// Why no job can be asked, if another user has the folder for sockets, or can look into it.
pub(super) fn unusable() -> Option<String> {
    let folders = folders();
    if folders.iter().any(|folder| is_own(folder)) {
        return None;
    }
    let folder = folders.into_iter().rfind(|folder| fs::symlink_metadata(folder).is_ok())?;
    // SAFETY: it reads a number of this process and cannot fail.
    let user = unsafe { libc::geteuid() };
    let shown = folder.display();
    Some(match fs::symlink_metadata(&folder) {
        Ok(found) if found.is_dir() && found.uid() == user => format!(
            "{shown}, where their sockets belong, is open to other users\n  help: chmod 700 {shown}"
        ),
        _ => format!(
            "{shown}, where their sockets belong, is not a folder of this user\n  help: remove it, \
             or set XDG_RUNTIME_DIR to a folder of your own"
        ),
    })
}

/// Makes the folder for sockets, if it is not there.
fn make_folder() -> Option<PathBuf> {
    folders().into_iter().find(|folder| {
        let path = folder.join(format!(".{}.new", u32::MAX));
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return false;
        }
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => false,
            _ => is_own(folder),
        }
    })
}

/// A socket with a listener, until dropped.
pub(super) struct Listening {
    path: PathBuf,
    over: Arc<AtomicBool>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        // Wakes the listener, which then sees `over`.
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens for requests about `board`. `None` where listening is not possible.
pub(super) fn open(board: &Arc<StatusBoard>) -> Option<Listening> {
    let Some(folder) = make_folder() else {
        if let Some(reason) = unusable() {
            warn(&format!("`millstream stop` and `why` will not reach this job: {reason}"));
        }
        return None;
    };
    // What killed jobs have left goes.
    all();
    let (job, new) = (std::process::id(), folder.join(format!(".{}.new", std::process::id())));
    let path = folder.join(format!("{job}.sock"));
    // One of a killed job that had the same number.
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new).ok()?;
    let named = fs::set_permissions(&new, Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&new, &path));
    if named.is_err() {
        let _ = fs::remove_file(&new);
        return None;
    }
    if OWN.set(path.clone()).is_ok() {
        // SAFETY: what it is to call is a function without arguments that unwinds nowhere.
        unsafe { libc::atexit(remove_own) };
    }
    let (board, over) = (board.clone(), Arc::<AtomicBool>::default());
    let (listening, thread) = (over.clone(), thread::Builder::new().name("local".into()));
    thread.spawn(move || accept(&listener, &board, &listening)).ok()?;
    Some(Listening { path, over })
}

/// Serves each connection on a thread of its own, until the job has ended. Too many are closed.
fn accept(listener: &UnixListener, board: &Arc<StatusBoard>, over: &Arc<AtomicBool>) {
    // Each connection holds a copy.
    let open = Arc::new(());
    for stream in listener.incoming() {
        if over.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptor is left, perhaps, which may change.
            thread::sleep(LOOK);
            continue;
        };
        if Arc::strong_count(&open) > CONNECTIONS_MAX {
            continue;
        }
        let (board, over, open) = (board.clone(), over.clone(), open.clone());
        // Without a thread, the connection is closed with the closure.
        let _ = thread::Builder::new().name("local".into()).spawn(move || {
            // A client that has gone needs no answer.
            let _ = serve(stream, &board, &over);
            drop(open);
        });
    }
}

fn serve(stream: UnixStream, board: &StatusBoard, over: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let answer = match request {
        Request::Report => Answer::Report(Box::new(board.report())),
        Request::Stop => Answer::Stop(board.stop(false)),
        Request::Drain => Answer::Stop(board.stop(true)),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    (&stream).write_all(&text)?;
    if matches!(answer, Answer::Stop(StopAnswer::Yes)) {
        // It closes when the job has ended, which whoever has asked waits for.
        stream.set_read_timeout(Some(LOOK))?;
        while !over.load(SeqCst) {
            match (&stream).read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
    }
    Ok(())
}

/// A job that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) job: u32,
    path: PathBuf,
}

/// The jobs of this user that run, in the order of their numbers. What killed jobs have left is
/// removed.
pub(super) fn all() -> Vec<Socket> {
    let mut found = Vec::new();
    for folder in folders().into_iter().filter(|folder| is_own(folder)) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_socket = path.extension().is_some_and(|end| end == "sock");
            let job = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            let Some(job) = job.filter(|_| is_socket) else { continue };
            match UnixStream::connect(&path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(&path);
                }
                Err(_) => {}
                Ok(_) => found.push(Socket { job, path }),
            }
        }
    }
    found.sort_by_key(|socket| socket.job);
    found
}

impl Socket {
    /// True if the job does not listen any more.
    pub(super) fn has_ended(&self) -> bool {
        let gone = || UnixStream::connect(&self.path).is_err();
        // A program that ends closes its connections in sequence.
        (0..ENDING).any(|_| {
            gone() || {
                thread::sleep(LOOK);
                false
            }
        })
    }

    /// True if the job is suspended, as by Ctrl-Z: until it goes on, there are no answers.
    pub(super) fn is_suspended(&self) -> bool {
        // `PID (NAME) STATE …`, and a name may have brackets.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.job)).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']))
    }

    /// Asks, and returns the answer, with the connection.
    pub(super) fn ask(&self, request: Request) -> io::Result<(Answer, BufReader<UnixStream>)> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut text = serde_json::to_vec(&request)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok((serde_json::from_str(&line)?, reader))
    }
}
