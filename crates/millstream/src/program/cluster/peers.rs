//! The coordinator's view of its peers: their connections, the processes themselves if the
//! coordinator started them, and the first failure.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream_engine::Standing;
use millstream_engine::observe::Snapshot;
use serde_json::Value;

use super::failure::{Cause, Fault, ProcessFailure, guarded};
use super::inbox::Inbox;
use super::launcher::Started;
use super::limits;
use super::link::{Link, read_all};
use super::message::{Reply, Request};
use super::observing::Observing;
use super::transport::Stream;
use super::watch::Watch;

/// How long processes may take to end, once told, before they are ended.
pub(super) const END_MAX: Duration = Duration::from_millis(1500);
/// How long the end of a process is waited for whose connection has closed, to tell how it ended.
const REASON_MAX: Duration = Duration::from_millis(500);
/// How often it is looked whether all have ended.
const LOOK: Duration = Duration::from_millis(2);

pub(super) struct Peers {
    pub(super) inbox: Arc<Inbox<Reply>>,
    pub(super) started: Started,
    links: Mutex<Vec<Option<Arc<Link>>>>,
    /// How far processes got with the last query, by process.
    ends: Mutex<Vec<Option<Value>>>,
    /// Connections with a running reader.
    open: AtomicUsize,
    committing: Mutex<Committing>,
    /// Held while all processes receive COMMIT or STOP, so that all receive the same message. Taken
    /// after `committing`, if both are.
    announcing: Mutex<()>,
    watch: Mutex<Watch>,
    observing: Observing,
    /// Whether the others have been told of a failure.
    failure_sent: AtomicBool,
    over: AtomicBool,
}

/// Whether a result is being committed: it cannot be stopped any more then, or there were half of
/// it.
#[derive(Default)]
struct Committing {
    under_way: bool,
    /// A stop was requested meanwhile.
    interrupted: bool,
}

impl Peers {
    /// Of a job of so many processes, none of which is there yet.
    pub(super) fn new(processes: usize) -> Peers {
        Peers {
            inbox: Arc::new(Inbox::new(processes)),
            started: Started::default(),
            links: Mutex::new((0..processes).map(|_| None).collect()),
            ends: Mutex::new(vec![None; processes]),
            open: AtomicUsize::new(0),
            committing: Mutex::default(),
            announcing: Mutex::default(),
            watch: Mutex::new(Watch::new(processes)),
            observing: Observing::new(processes),
            failure_sent: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    fn links(&self) -> MutexGuard<'_, Vec<Option<Arc<Link>>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a process, if it has joined.
    pub(super) fn link(&self, process: usize) -> Option<Arc<Link>> {
        self.links()[process].clone()
    }

    /// A process has told how far it got.
    pub(super) fn note_end(&self, process: usize, end: Value) {
        self.all_ends()[process] = Some(end);
    }

    /// A query begins.
    pub(super) fn forget_ends(&self) {
        self.all_ends().fill(None);
        self.observing.forget();
    }

    fn all_ends(&self) -> MutexGuard<'_, Vec<Option<Value>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the others got with the last query, when all have ended.
    pub(super) fn ends(&self) -> Vec<Option<Value>> {
        for process in 1..self.links().len() {
            // Nobody has read it, since the job has failed.
            if let Some(Reply::Done(end)) = self.inbox.unread(process) {
                self.note_end(process, end);
            }
        }
        // Whoever could not be waited for may tell his still.
        self.all_ends().iter().skip(1).cloned().collect()
    }

    /// Addresses of this host and of each joined process's host.
    pub(super) fn hosts(&self) -> Vec<[IpAddr; 2]> {
        self.links().iter().flatten().map(|link| link.hosts()).collect()
    }

    /// The first process that has not joined.
    pub(super) fn missing(&self) -> Option<usize> {
        self.links().iter().skip(1).position(Option::is_none).map(|at| at + 1)
    }

    /// Registers a joined process: from now on a thread reads its messages.
    pub(super) fn welcome(self: &Arc<Peers>, process: usize, stream: Arc<dyn Stream>) {
        let (peers, link) = (self.clone(), Arc::new(Link::new(stream)));
        self.links()[process] = Some(link.clone());
        let late = self.inbox.failure().filter(|_| self.failure_sent.load(Ordering::SeqCst));
        // A process that comes too late has not been told with the others.
        let sent = late.map_or(Ok(()), |failure| link.send(&Request::Stop(failure)));
        let joined = sent.and_then(|()| {
            self.open.fetch_add(1, Ordering::SeqCst);
            tracing::info!(peer = process, "process {process} has joined");
            let name = format!("control-{process}");
            let thread = thread::Builder::new().name(name).spawn(move || {
                if let Err(failure) = guarded(0, || peers.read(process, &link)) {
                    peers.fail(failure);
                }
                peers.open.fetch_sub(1, Ordering::SeqCst);
            });
            thread.map(drop).map_err(|error| {
                self.open.fetch_sub(1, Ordering::SeqCst);
                limits::without_thread(&error)
            })
        });
        if let Err(error) = joined {
            self.fail(ProcessFailure::new(0, Cause::Fault(Fault::run(error))));
        }
    }

    fn read(&self, process: usize, link: &Link) {
        let heartbeat = || Request::Heartbeat;
        let mut cause = read_all(link, heartbeat, |reply| match reply {
            Reply::Heartbeat => {
                // Nothing, now: it has not begun yet, or ended already.
                let none = "the others to end the query".to_string();
                self.note_standing(process, Standing { steps: 0, waits_for: Some(none) });
            }
            Reply::Standing(standing) => self.note_standing(process, standing),
            Reply::Observed(snapshot) => self.observing.note(process, *snapshot),
            Reply::Stopped(end) => self.note_end(process, end),
            Reply::Failed(fault) => self.fail(ProcessFailure::new(process, Cause::Fault(fault))),
            // This process was stopped, or did not get to run.
            Reply::Unheard(ms) => self.fail(ProcessFailure::new(0, Cause::Silent(ms))),
            reply => self.inbox.put(process, reply),
        });
        if self.over.load(Ordering::SeqCst) {
            return;
        }
        // Once the reason is known others end for that.
        let is_first = !self.inbox.failure().is_some_and(|known| known.is_reason());
        if cause == Cause::Closed {
            // Other processes must not wait for the exit status.
            self.fail(ProcessFailure::new(process, Cause::Closed));
            if let Some(how) = self.started.end_of(process, REASON_MAX) {
                cause = Cause::Ended(how);
            }
        }
        let lost = ProcessFailure::new(process, cause);
        if is_first {
            tracing::warn!(peer = process, "{lost}");
        }
        self.fail(lost);
    }

    /// A process is so far.
    fn note_standing(&self, process: usize, theirs: Standing) {
        let own = self.inbox.standing();
        let mut watch = self.watch();
        let stuck = match own {
            Some(own) => watch.note(process, theirs, own),
            None => {
                watch.forget();
                None
            }
        };
        drop(watch);
        if let Some(waits) = stuck {
            self.fail(ProcessFailure::new(0, Cause::Stuck(waits)));
        }
    }

    /// Snapshots of the other processes; for a late process, its last snapshot.
    pub(super) fn observe(&self) -> Vec<Snapshot> {
        self.observing.ask(|| {
            let links: Vec<_> = self.links().iter().flatten().cloned().collect();
            links.iter().for_each(|link| link.send_heartbeat(&Request::Observe));
        })
    }

    pub(super) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn committing(&self) -> MutexGuard<'_, Committing> {
        self.committing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the job from outside; while a result is committed, after that.
    pub(super) fn interrupt(&self) {
        let mut committing = self.committing();
        if committing.under_way {
            committing.interrupted = true;
        } else {
            self.fail(ProcessFailure::new(0, Cause::Interrupted));
        }
    }

    /// Whether a result is being committed.
    pub(super) fn is_committing(&self) -> bool {
        self.committing().under_way
    }

    /// All have ended a query well: tells all to commit its result, unless something has failed
    /// since.
    pub(super) fn begin_commit(&self) -> Result<(), ProcessFailure> {
        let mut committing = self.committing();
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = self.inbox.failure() {
            return Err(failure);
        }
        committing.under_way = true;
        let links = self.links().clone();
        links
            .iter()
            .flatten()
            .try_for_each(|link| link.send(&Request::Commit))
            .map_err(|error| ProcessFailure::new(0, Cause::Fault(Fault::run(error))))
    }

    /// The result has been committed, or could not be.
    pub(super) fn end_commit(&self) {
        let interrupted = std::mem::take(&mut *self.committing()).interrupted;
        if interrupted {
            self.interrupt();
        }
    }

    /// Notes a failure; the first one stops the job everywhere.
    pub(super) fn fail(&self, failure: ProcessFailure) {
        self.inbox.fail(failure.clone());
        if self.over.load(Ordering::SeqCst) || self.failure_sent.swap(true, Ordering::SeqCst) {
            return;
        }
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        let links: Vec<_> = self.links().iter().cloned().enumerate().collect();
        for (process, link) in links {
            // A process that reports its own fault waits for an acknowledgement; a process with
            // another plan cannot know of the difference.
            let has_to_know = process != failure.process
                || matches!(failure.cause, Cause::Fault(_) | Cause::Differs(_));
            if let (true, Some(link)) = (has_to_know, link) {
                let _ = link.send(&Request::Stop(failure.clone()));
            }
        }
        if matches!(failure.cause, Cause::Silent(_)) {
            // It may be stopped, and could not end by itself.
            self.started.kill(failure.process);
        }
    }

    /// Closes the job: later events are no failures.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.inbox.close();
    }

    /// Waits until all processes, which have been told, have ended, and ends those that do not.
    pub(super) fn end_all(&self) {
        let begin = Instant::now();
        // A connection that is closed from here, with something unread, could take a last message
        // with it.
        while self.open.load(Ordering::SeqCst) > 0 && begin.elapsed() < END_MAX {
            thread::sleep(LOOK);
        }
        self.started.end_all(END_MAX.saturating_sub(begin.elapsed()));
    }

    /// Ends all processes at once, and closes all connections.
    pub(super) fn abandon(&self) {
        self.close();
        self.started.end_all(Duration::ZERO);
        self.links().iter().flatten().for_each(|link| link.close());
    }

    /// After a failure: ends all processes and returns the reason that tells most. None is left
    /// then.
    pub(super) fn give_up(&self, failure: ProcessFailure) -> ProcessFailure {
        self.fail(failure.clone());
        let begin = Instant::now();
        self.end_all();
        loop {
            let known = self.inbox.failure().unwrap_or(failure.clone());
            // The other processes may first have seen only a lost connection.
            if known.is_reason() || begin.elapsed() > END_MAX {
                return known;
            }
            thread::sleep(LOOK);
        }
    }
}
