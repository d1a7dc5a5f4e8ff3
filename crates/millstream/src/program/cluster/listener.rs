//! The listener: the coordinator accepts the processes that hold the job's token, and refuses
//! everybody else for as long as the job runs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_fabric::setup::Token;

use super::failure::{Cause, ProcessFailure};
use super::limits;
use super::link::SILENCE_MAX;
use super::peers::Peers;
use super::preamble::{self, Refusal};
use super::transport::{Acceptor, Stream, Transport};

/// Where refusals are told.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Callers that are listened to at once; more are turned away unheard.
const CALLERS_MAX: usize = preamble::CALLERS_MAX;
/// Number of refusals that are logged separately.
const LOGGED_MAX: usize = 20;
/// Pause after an error of the listening socket (too many open files).
const PAUSE: Duration = Duration::from_millis(50);

/// The listener of a job.
pub(super) struct Listener {
    transport: Arc<dyn Transport>,
    address: String,
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
    peers: Arc<Peers>,
}

impl Listener {
    /// Listens for processes 1 to `processes - 1` of the job with this token, each of which `peers`
    /// welcomes once.
    pub(super) fn open(
        transport: Arc<dyn Transport>,
        token: Token,
        processes: usize,
        log: Log,
        peers: Arc<Peers>,
    ) -> io::Result<Listener> {
        let acceptor = transport.listen()?;
        let address = acceptor.address()?;
        let shared = Arc::new(Shared {
            token,
            joined: Mutex::new(vec![false; processes]),
            callers: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            log,
            peers,
        });
        let listening = shared.clone();
        let thread = thread::Builder::new()
            .name("control-listen".into())
            .spawn(move || listen(&*acceptor, &listening))?;
        Ok(Listener { transport, address, shared, thread: Some(thread) })
    }

    /// Where to join.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Whoever calls wakes the listener.
        let called = self.transport.connect(&self.address, SILENCE_MAX);
        if let (Ok(_), Some(thread)) = (called, self.thread.take()) {
            let _ = thread.join();
        }
        let refused = self.shared.refused.load(Ordering::SeqCst);
        if refused > LOGGED_MAX {
            let more = refused - LOGGED_MAX;
            (self.shared.log)(&format!("refused {more} more connections"));
        }
    }
}

fn listen(acceptor: &dyn Acceptor, shared: &Arc<Shared>) {
    loop {
        let accepted = acceptor.accept();
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                shared.cannot_listen(&error);
                thread::sleep(PAUSE);
                continue;
            }
        };
        if shared.callers.fetch_add(1, Ordering::SeqCst) >= CALLERS_MAX {
            shared.callers.fetch_sub(1, Ordering::SeqCst);
            shared.refuse(&from, &Refusal::Crowd);
            continue;
        }
        let calling = shared.clone();
        let greeting = thread::Builder::new().name("control-greet".into()).spawn(move || {
            if let Err(refusal) = greet(stream, &calling) {
                calling.refuse(&from, &refusal);
            }
            calling.callers.fetch_sub(1, Ordering::SeqCst);
        });
        if let Err(error) = greeting {
            shared.callers.fetch_sub(1, Ordering::SeqCst);
            shared.cannot_listen(&limits::without_thread(&error));
        }
    }
}

/// Lets in who may join.
fn greet(stream: Arc<dyn Stream>, shared: &Shared) -> Result<(), Refusal> {
    let processes = shared.lock_joined().len();
    let called = preamble::receive_call(&*stream, &shared.token, processes, SILENCE_MAX);
    if let Err(Refusal::Version { theirs, process: Some(process) }) = called {
        shared.is_another_version(process, theirs);
    }
    let process = called?;
    shared.admit(process, || stream.write(&preamble::answer(&shared.token), SILENCE_MAX))?;
    shared.peers.welcome(process, stream);
    Ok(())
}

impl Shared {
    fn lock_joined(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_are_here(&self) -> bool {
        self.lock_joined().iter().skip(1).all(|joined| *joined)
    }

    /// Lets a process in if it receives its answer. Otherwise the process may call again.
    fn admit(
        &self,
        process: usize,
        answer: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.lock_joined()[process], true) {
            return Err(Refusal::Joined { process });
        }
        answer().map_err(|error| {
            self.lock_joined()[process] = false;
            Refusal::Stream(error)
        })
    }

    /// A process that holds the token is no stranger: without it there is no job.
    fn is_another_version(&self, process: usize, theirs: u32) {
        if !self.lock_joined()[process] {
            let why = format!(
                "speaks version {theirs} of the control protocol, process 0 version {}\n  help: use \
                 the same program for all processes",
                preamble::VERSION
            );
            self.peers.fail(ProcessFailure::new(process, Cause::Start(why)));
        }
    }

    /// No further process can join. Processes that have joined are not concerned.
    fn cannot_listen(&self, error: &io::Error) {
        if !self.all_are_here() {
            let why = limits::explained(&format!("cannot let the other processes in: {error}"));
            self.peers.fail(ProcessFailure::new(0, Cause::Start(why)));
        }
    }

    fn refuse(&self, from: &str, refusal: &Refusal) {
        // A process that ends while it joins is told otherwise.
        let nothing = matches!(refusal, Refusal::Nothing) && !self.all_are_here();
        if nothing || self.over.load(Ordering::SeqCst) {
            return;
        }
        let before = self.refused.fetch_add(1, Ordering::SeqCst);
        let more = match LOGGED_MAX.checked_sub(before + 1) {
            None => return,
            Some(0) => "; further ones are counted only",
            Some(_) => "",
        };
        (self.log)(&format!("refused a connection from {from}: {refusal}{more}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::transport::Loopback;
    use super::*;

    fn shared(processes: usize, lines: &Arc<Mutex<Vec<String>>>) -> Shared {
        let lines = lines.clone();
        Shared {
            token: Token::new([7; 32]),
            joined: Mutex::new(vec![false; processes]),
            callers: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            log: Arc::new(move |line| lines.lock().unwrap().push(line.to_string())),
            peers: Arc::new(Peers::new(processes)),
        }
    }

    #[test]
    fn a_process_has_joined_when_it_has_its_answer_and_only_once() {
        let shared = shared(3, &Arc::default());
        let lost = shared.admit(2, || Err(io::ErrorKind::BrokenPipe.into()));
        assert!(matches!(lost, Err(Refusal::Stream(_))));
        // It calls again.
        shared.admit(2, || Ok(())).unwrap();
        let again = shared.admit(2, || panic!("it is not answered"));
        assert!(matches!(again, Err(Refusal::Joined { process: 2 })));
        assert!(!shared.all_are_here());
        shared.admit(1, || Ok(())).unwrap();
        assert!(shared.all_are_here());
    }

    #[test]
    fn a_process_of_another_version_ends_a_job_that_it_has_not_joined() {
        let shared = shared(3, &Arc::default());
        shared.admit(1, || Ok(())).unwrap();
        shared.is_another_version(1, 77);
        assert_eq!(shared.peers.inbox.failure(), None);
        shared.is_another_version(2, 77);
        let failure = shared.peers.inbox.failure().unwrap().to_string();
        let expected = "process 2 speaks version 77 of the control protocol, process 0 version ";
        assert!(failure.starts_with(expected), "{failure}");
    }

    #[test]
    fn only_who_is_missing_cares_that_nobody_can_be_let_in() {
        let shared = shared(2, &Arc::default());
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        shared.admit(1, || Ok(())).unwrap();
        shared.cannot_listen(&error);
        assert_eq!(shared.peers.inbox.failure(), None);
        shared.lock_joined()[1] = false;
        shared.cannot_listen(&error);
        let failure = shared.peers.inbox.failure().unwrap().to_string();
        assert!(failure.contains("cannot let the other processes in: "), "{failure}");
        assert!(failure.contains("ulimit -n"), "{failure}");
    }

    #[test]
    fn refusals_are_told_one_by_one_and_then_as_a_number() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::new(shared(2, &lines));
        let from = "127.0.0.1:4242";
        // While processes join, a process may end before it has sent a message.
        shared.refuse(from, &Refusal::Nothing);
        assert!(lines.lock().unwrap().is_empty());
        shared.admit(1, || Ok(())).unwrap();
        shared.refuse(from, &Refusal::Nothing);
        (0..LOGGED_MAX + 5).for_each(|_| shared.refuse(from, &Refusal::Token));
        let told = std::mem::take(&mut *lines.lock().unwrap());
        assert_eq!(told[0], "refused a connection from 127.0.0.1:4242: it said nothing");
        assert_eq!(told.len(), LOGGED_MAX);
        assert!(told[LOGGED_MAX - 1].ends_with("token; further ones are counted only"), "{told:?}");
        let transport = Arc::new(Loopback);
        drop(Listener { transport, address: from.into(), shared, thread: None });
        assert_eq!(*lines.lock().unwrap(), ["refused 6 more connections"]);
    }
}
