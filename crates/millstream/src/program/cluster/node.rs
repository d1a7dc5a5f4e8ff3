//! A peer's side: it joins, does what the coordinator asks, and stops when the coordinator or any
//! other process is gone.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;

use super::coordinator::{JOIN_MAX, pack, unpack};
use super::failure::{Cause, Fault, FaultKind, ProcessFailure, guarded};
use super::inbox::Inbox;
use super::launcher::Invitation;
use super::limits;
use super::link::{Link, SILENCE_MAX, read_all};
use super::member::{Member, Stops};
use super::message::{Reply, Request, Setup};
use super::preamble::{self, Refusal};
use super::transport::Transport;

/// How long process 0 may take to answer: not everything has started on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Pause before calling again.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest pause while process 0 is not there.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a process that has failed waits to be told to end: process 0 does so at once, or its
/// silence is noticed.
const STOP_WAIT_MAX: Duration = SILENCE_MAX.saturating_add(Duration::from_millis(750));

/// A process that has joined a job.
pub struct Node {
    shared: Arc<Shared>,
    process: usize,
    token: Token,
}

struct Shared {
    inbox: Arc<Inbox<Request>>,
    link: Link,
    over: AtomicBool,
}

/// Expected next request of process 0: a query is prepared, connected, started and committed, each
/// once.
#[derive(Clone, Copy)]
enum Turn {
    /// A statement, or the end of the job.
    Execute,
    Prepare,
    /// As `Prepare`, of a query whose place in a checkpoint is known.
    PrepareResumed,
    Connect,
    Start,
    Commit,
}

/// Stops a process from outside of its job.
#[derive(Clone)]
pub struct Abandon(Arc<Shared>);

impl Abandon {
    /// Process 0 is gone.
    pub fn stop(&self) {
        self.0.inbox.fail(ProcessFailure::gone());
    }

    /// Why this process has to stop, as far as it is known.
    pub fn reason(&self) -> Option<ProcessFailure> {
        self.0.inbox.failure()
    }
}

impl Node {
    /// Joins the job of the invitation. Process 0 listens before it starts processes.
    pub fn join(
        transport: &dyn Transport,
        invitation: &Invitation,
    ) -> Result<Node, ProcessFailure> {
        Node::join_within(transport, invitation, Duration::ZERO)
    }

    /// As [`Node::join`], where process 0 may come later: waits for it, with growing pauses.
    pub fn join_within(
        transport: &dyn Transport,
        invitation: &Invitation,
        patience: Duration,
    ) -> Result<Node, ProcessFailure> {
        let Invitation { address, process, token } = invitation.clone();
        let failed =
            |why: String| ProcessFailure::new(process, Cause::Start(format!("cannot join: {why}")));
        let (started, mut pause) = (Instant::now(), PAUSE);
        let stream = loop {
            let joined = transport.connect(&address, ANSWER_MAX).map_err(Refusal::Stream);
            let joined = joined.and_then(|stream| {
                preamble::join(&*stream, &token, process as u32, ANSWER_MAX).map(|()| stream)
            });
            match joined {
                Ok(stream) => break stream,
                // Nobody is there yet, or the name is not known yet.
                Err(Refusal::Stream(error)) if started.elapsed() + pause < patience => {
                    tracing::debug!("process 0 is not at {address} yet: {error}");
                    thread::sleep(pause);
                    pause = (2 * pause).min(PAUSE_MAX);
                }
                Err(Refusal::Stream(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                    return Err(ProcessFailure::gone());
                }
                Err(Refusal::Stream(error)) if error.kind() == ErrorKind::TimedOut => {
                    let silent = Cause::Silent(ANSWER_MAX.as_millis() as u64);
                    return Err(ProcessFailure::new(0, silent));
                }
                // Turned away unheard: strangers take all of process 0's attention.
                Err(Refusal::Stream(_) | Refusal::Nothing) if started.elapsed() < JOIN_MAX => {
                    thread::sleep(PAUSE);
                }
                Err(Refusal::Stream(error)) => return Err(failed(format!("{address}: {error}"))),
                Err(other) => {
                    return Err(failed(format!("what answers is not process 0: {other}")));
                }
            }
        };
        let inbox = Arc::new(Inbox::new(1));
        let shared =
            Arc::new(Shared { inbox, link: Link::new(stream), over: AtomicBool::new(false) });
        let reader = shared.clone();
        let reading = thread::Builder::new().name("control-0".into()).spawn(move || {
            if let Err(failure) = guarded(process, || reader.read()) {
                if let Cause::Fault(fault) = &failure.cause {
                    let _ = reader.link.send(&Reply::Failed(fault.clone()));
                }
                reader.inbox.fail(failure);
            }
        });
        reading.map_err(|e| failed(limits::without_thread(&e).to_string()))?;
        Ok(Node { shared, process, token })
    }

    /// A handle for who learns otherwise that process 0 is gone.
    pub fn abandon(&self) -> Abandon {
        Abandon(self.shared.clone())
    }

    /// The job's token.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Takes part in the job until its end. `make` makes this process's part, given the process's
    /// number. An error is the reason of an early end; process 0 knows the reason, unless it is
    /// gone.
    pub fn serve<M: Member>(
        self,
        make: impl FnOnce(usize, &Setup) -> Result<M, Fault>,
    ) -> Result<(), ProcessFailure> {
        let mut setup = match self.request()? {
            Request::Setup(setup) => setup,
            other => return Err(self.unexpected(&other)),
        };
        setup.processes = setup.processes.max(self.process + 1);
        setup.host = Some(self.shared.link.hosts()[0]);
        let mut member = self.own(make(self.process, &setup))?;
        self.reply(&Reply::Ready)?;
        let mut turn = Turn::Execute;
        loop {
            let reply = match (turn, self.request_after(turn)?) {
                (Turn::Execute, Request::Execute { statement, start_us }) => {
                    let planned = self.own(member.execute(statement, start_us))?;
                    turn = if planned.is_some() { Turn::Prepare } else { Turn::Execute };
                    Reply::Planned(planned)
                }
                (Turn::Prepare, Request::Resume(place)) => {
                    self.own(member.go_on(place))?;
                    turn = Turn::PrepareResumed;
                    continue;
                }
                (Turn::Prepare, Request::Skip) => {
                    turn = Turn::Execute;
                    continue;
                }
                (Turn::Prepare | Turn::PrepareResumed, Request::Prepare(splits)) => {
                    let hellos = self.own(member.prepare(&splits))?;
                    turn = Turn::Connect;
                    Reply::Hellos(self.own(pack(&hellos, &self.token))?)
                }
                (Turn::Connect, Request::Connect(hellos)) => {
                    let hellos = self.own(unpack(&hellos, &self.token))?;
                    turn = Turn::Start;
                    Reply::Connected(self.own(member.connect(hellos))?)
                }
                (Turn::Start, Request::Start) => {
                    let (end, result) = member.run(&Stops(self.shared.inbox.clone()));
                    self.shared.inbox.clear_hook();
                    turn = Turn::Commit;
                    match result {
                        Ok(()) => Reply::Done(end),
                        Err(fault) => {
                            let _ = self.shared.link.send(&Reply::Stopped(end));
                            return self.own(Err(fault));
                        }
                    }
                }
                (Turn::Commit, Request::Commit) => {
                    self.own(member.commit())?;
                    turn = Turn::Execute;
                    Reply::Committed
                }
                (Turn::Execute, Request::End) => return Ok(()),
                // Replayed, or out of order: a member can rely on the order of its calls.
                (_, other) => return Err(self.unexpected(&other)),
            };
            self.reply(&reply)?;
        }
    }

    fn request(&self) -> Result<Request, ProcessFailure> {
        loop {
            if let Some(request) = self.shared.inbox.next(0, None)? {
                return Ok(request);
            }
        }
    }

    /// The next request. That a result is to be committed has been decided for all once it is asked
    /// for, whatever has failed since.
    fn request_after(&self, turn: Turn) -> Result<Request, ProcessFailure> {
        self.request().or_else(|failure| match (turn, self.shared.inbox.unread(0)) {
            (Turn::Commit, Some(Request::Commit)) => Ok(Request::Commit),
            _ => Err(failure),
        })
    }

    fn reply(&self, reply: &Reply) -> Result<(), ProcessFailure> {
        self.own(self.shared.link.send(reply).map_err(Fault::run))
    }

    /// Result of this process's own part. A failure is reported to process 0, which stops all
    /// processes.
    fn own<T>(&self, result: Result<T, Fault>) -> Result<T, ProcessFailure> {
        let fault = match result {
            Ok(value) => return Ok(value),
            Err(fault) => fault,
        };
        let consequence = fault.kind == FaultKind::Consequence;
        // It may have stopped because it was told to.
        if let (true, Some(known)) = (consequence, self.shared.inbox.failure()) {
            return Err(known);
        }
        let failure = ProcessFailure::new(self.process, Cause::Fault(fault.clone()));
        let _ = self.shared.link.send(&Reply::Failed(fault));
        // Process 0 should read that before the connection ends.
        while let Ok(Some(_)) = self.shared.inbox.next(0, Some(STOP_WAIT_MAX)) {}
        match self.shared.inbox.failure() {
            Some(known) if consequence => Err(known),
            _ => Err(failure),
        }
    }

    fn unexpected(&self, request: &Request) -> ProcessFailure {
        let text: String = format!("{request:?}").chars().take(60).collect();
        ProcessFailure::new(0, Cause::Rubbish(format!("a message out of turn: {text}")))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.link.close();
    }
}

impl Shared {
    fn read(&self) {
        let heartbeat = || self.inbox.standing().map_or(Reply::Heartbeat, Reply::Standing);
        let cause = read_all(&self.link, heartbeat, |request| match request {
            Request::Heartbeat => {}
            Request::Observe => {
                if let Some(snapshot) = self.inbox.observe() {
                    // If the answer cannot be sent, process 0 does without it.
                    self.link.send_heartbeat(&Reply::Observed(Box::new(snapshot)));
                }
            }
            Request::Stop(failure) => drop(self.inbox.fail(failure)),
            request => self.inbox.put(0, request),
        });
        if self.over.load(Ordering::SeqCst) {
            return;
        }
        if let Cause::Silent(ms) = cause {
            // Stopped and continued, it would take our end for the failure. Whoever hears of the
            // failure here ends the connection.
            let _ = self.link.send(&Reply::Unheard(ms));
        }
        self.inbox.fail(ProcessFailure::new(0, cause));
    }
}
