//! Where processes join: process 0 listens, lets in who holds the job's token, and refuses everybody else
//! for as long as the job runs.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_fabric::setup::Token;

use super::link::SILENCE_MAX;
use super::preamble::{self, Refusal};

/// Where refusals are told.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Callers that are listened to at once; more are turned away unheard.
const CALLERS_MAX: usize = 64;
/// Refusals that are told one by one.
const TOLD_MAX: usize = 20;
/// Pause after an error of the listening socket (too many open files).
const PAUSE: Duration = Duration::from_millis(50);

/// The listener of a job.
pub(super) struct Lobby {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    token: Token,
    joined: Mutex<Vec<bool>>,
    callers: AtomicUsize,
    refused: AtomicUsize,
    over: AtomicBool,
    log: Log,
    welcome: Box<dyn Fn(usize, TcpStream) + Send + Sync>,
}

impl Lobby {
    /// Listens on the loopback interface for processes 1 to `processes - 1` of the job with this token.
    /// `welcome` gets the connection of each, once, from another thread.
    pub(super) fn open(
        token: Token,
        processes: usize,
        log: Log,
        welcome: impl Fn(usize, TcpStream) + Send + Sync + 'static,
    ) -> io::Result<Lobby> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            token,
            joined: Mutex::new(vec![false; processes]),
            callers: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            log,
            welcome: Box::new(welcome),
        });
        let listening = shared.clone();
        let thread = thread::Builder::new()
            .name("control-listen".into())
            .spawn(move || listen(&listener, &listening))?;
        Ok(Lobby { address, shared, thread: Some(thread) })
    }

    /// Where to join.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Lobby {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Whoever calls wakes the listener.
        let called = TcpStream::connect_timeout(&self.address, SILENCE_MAX);
        if let (Ok(_), Some(thread)) = (called, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, from)) = accepted else {
            thread::sleep(PAUSE);
            continue;
        };
        if shared.callers.fetch_add(1, Ordering::SeqCst) >= CALLERS_MAX {
            shared.callers.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let calling = shared.clone();
        let greeting = thread::Builder::new().name("control-greet".into()).spawn(move || {
            if let Err(refusal) = greet(stream, &calling) {
                calling.refuse(from, &refusal);
            }
            calling.callers.fetch_sub(1, Ordering::SeqCst);
        });
        if greeting.is_err() {
            shared.callers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Lets in who may join.
fn greet(mut stream: TcpStream, shared: &Shared) -> Result<(), Refusal> {
    let processes = shared.lock_joined().len();
    let process = preamble::receive_call(&mut stream, &shared.token, processes, SILENCE_MAX)?;
    if std::mem::replace(&mut shared.lock_joined()[process], true) {
        return Err(Refusal::Joined { process });
    }
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    stream.write_all(&preamble::answer(&shared.token))?;
    (shared.welcome)(process, stream);
    Ok(())
}

impl Shared {
    fn lock_joined(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, from: SocketAddr, refusal: &Refusal) {
        if self.over.load(Ordering::SeqCst) {
            return;
        }
        let before = self.refused.fetch_add(1, Ordering::SeqCst);
        let more = match before {
            TOLD_MAX => "; further refusals are not told",
            _ if before > TOLD_MAX => return,
            _ => "",
        };
        (self.log)(&format!("refused a connection from {from}: {refusal}{more}"));
    }
}
