//! The coordinator's side: process 0 starts the other processes, leads them through the job, and
//! stops all of them when one fails.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millstream_engine::Stopper;
use millstream_engine::observe::Snapshot;
use millstream_fabric::setup::{Hello, Token};
use serde_json::Value;

use super::failure::{Cause, Fault, FaultKind, ProcessFailure};
use super::launcher::{Invitation, Launcher};
use super::listener::{Listener, Log};
use super::member::{Checkpoints, Member, Stops};
use super::message::{PackedHello, Reply, Request, Setup};
use super::part::FabricName;
use super::peers::Peers;
use super::transport::Transport;

/// How long processes may take to start and join.
pub(super) const JOIN_MAX: Duration = Duration::from_secs(20);
/// How often joining processes are looked after.
const LOOK: Duration = Duration::from_millis(20);

/// The processes of a job, as process 0 holds them. Dropping it ends them.
pub struct Cluster {
    peers: Arc<Peers>,
    listener: Listener,
    processes: usize,
    token: Token,
}

/// Stops a job from outside, for example from a signal handler's thread.
#[derive(Clone)]
pub struct Interrupt(Arc<Peers>);

impl Interrupt {
    /// Lets the job end everywhere with [`Cause::Interrupted`], after a result that is just being
    /// committed.
    pub fn stop(&self) {
        self.0.interrupt();
    }

    /// Whether a result is being committed, and a job that was told to stop goes on until that is
    /// done.
    pub fn is_late(&self) -> bool {
        self.0.is_committing()
    }

    /// Snapshot of a query in all processes, as far as they answer in time; `own` is process 0's
    /// part.
    pub fn observe(&self, own: &Stopper) -> Snapshot {
        let mut all = own.observe();
        self.0.observe().iter().for_each(|other| all.add_process(other));
        all.without_spare_splits()
    }

    /// Why the job ends early, as far as it is known.
    pub fn reason(&self) -> Option<ProcessFailure> {
        self.0.inbox.failure()
    }

    /// The first process that has not joined the job yet, for which all others wait.
    pub fn missing(&self) -> Option<usize> {
        self.0.missing()
    }

    /// Ends all other processes at once, and returns once all have ended.
    pub fn kill(&self) {
        self.0.started.end_all(Duration::ZERO);
    }
}

impl Cluster {
    /// Listens for processes 1 to `processes - 1`, none of which has been started yet. Strangers
    /// who call are refused, which `log` is told.
    pub fn open(
        transport: Arc<dyn Transport>,
        processes: usize,
        log: Log,
    ) -> Result<Cluster, ProcessFailure> {
        let token = Token::random().map_err(|e| cannot("draw a token", &e))?;
        Cluster::with_token(transport, processes, token, log)
    }

    /// As [`Cluster::open`], with a token that the other processes know.
    pub fn with_token(
        transport: Arc<dyn Transport>,
        processes: usize,
        token: Token,
        log: Log,
    ) -> Result<Cluster, ProcessFailure> {
        let peers = Arc::new(Peers::new(processes));
        let listener = Listener::open(transport, token, processes, log, peers.clone());
        let listener = listener.map_err(|e| cannot("listen for the other processes", &e))?;
        Ok(Cluster { peers, listener, processes, token })
    }

    /// Has `launcher` start the other processes, and waits until they have joined. After an error,
    /// [`Cluster::give_up`] knows why.
    pub fn start(&self, launcher: &dyn Launcher) -> Result<(), ProcessFailure> {
        self.start_within(launcher, JOIN_MAX)
    }

    /// As [`Cluster::start`], where the processes may take so long to join.
    pub fn start_within(
        &self,
        launcher: &dyn Launcher,
        patience: Duration,
    ) -> Result<(), ProcessFailure> {
        for process in 1..self.processes {
            if let Some(failure) = self.peers.inbox.failure() {
                return Err(failure);
            }
            let (address, token) = (self.listener.address().to_string(), self.token);
            let invitation = Invitation { address, process, token };
            let started = self.peers.started.start(launcher, &invitation);
            started.map_err(|failure| self.failed(failure))?;
        }
        self.wait_for_all(patience)
    }

    /// Address of this host, as the others reach it.
    pub fn host(&self) -> IpAddr {
        let host = self.peers.hosts().first().map(|[own, _]| *own);
        host.unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    /// The fabric of ranks: shared memory if all have joined from one address. Tells `log`.
    pub fn fabric(&self, log: &Log) -> FabricName {
        let (fabric, why) = match self.peers.hosts().iter().all(|[own, other]| own == other) {
            true => (FabricName::Shm, "all processes are on this host"),
            false => (FabricName::Tcp, "there are processes on other hosts"),
        };
        log(&format!("the processes are connected by '{}': {why}", fabric.name()));
        fabric
    }

    /// A handle that stops the job.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt(self.peers.clone())
    }

    /// After so long in which nothing happens in a query, and no process waits for anything but the
    /// others, it is taken for stuck: a minute, unless this says otherwise.
    pub fn set_patience(&self, patience: Duration) {
        self.peers.watch().set_patience(patience);
    }

    /// The job's token.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Waits until every process has joined; a process that ends earlier is a failure.
    fn wait_for_all(&self, patience: Duration) -> Result<(), ProcessFailure> {
        let started = Instant::now();
        loop {
            if let Some((process, how)) = self.peers.started.ended() {
                return Err(self.failed(ProcessFailure::new(process, Cause::Ended(how))));
            }
            if let Some(failure) = self.peers.inbox.failure() {
                return Err(failure);
            }
            let Some(missing) = self.peers.missing() else { return Ok(()) };
            if started.elapsed() > patience {
                let why = format!("has not joined within {} s", patience.as_secs());
                return Err(self.failed(ProcessFailure::new(missing, Cause::Start(why))));
            }
            thread::sleep(LOOK.min(Duration::from_millis(1) + started.elapsed() / 4));
        }
    }

    /// Tells everybody what the job is, and waits until all are set up, which may take as long as
    /// it likes. `own` is what this process does meanwhile.
    pub fn set_up(
        &self,
        fabric: &str,
        task: &Value,
        own: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), ProcessFailure> {
        let setup = Setup {
            processes: self.processes,
            fabric: fabric.to_string(),
            host: None,
            task: task.clone(),
        };
        self.send_to_all(&Request::Setup(setup))?;
        self.own(own())?;
        self.all_reply(&Reply::Ready)
    }

    /// Lets everybody execute a statement. Returns whether it is a query, which all have planned
    /// alike then.
    pub fn execute(
        &self,
        own: &mut impl Member,
        statement: usize,
        start_us: i64,
    ) -> Result<bool, ProcessFailure> {
        self.send_to_all(&Request::Execute { statement, start_us })?;
        let ours = self.own(own.execute(statement, start_us))?;
        for process in 1..self.processes {
            let theirs = match self.reply(process)? {
                Reply::Planned(theirs) => theirs,
                other => return Err(self.unexpected(process, &other)),
            };
            let difference = match (&ours, &theirs) {
                (Some(ours), Some(theirs)) => ours.difference(theirs),
                (None, None) => None,
                (ours, _) => Some(format!(
                    "the statement is {} here",
                    if ours.is_some() { "a query" } else { "no query" }
                )),
            };
            self.refuse_difference(process, difference)?;
        }
        Ok(ours.is_some())
    }

    /// Opens the checkpoints of the query that was planned last, if it has any, and tells all where
    /// it begins. Returns the number of the checkpoint in which an earlier run has ended the query.
    pub fn open_checkpoints(&self, own: &mut impl Member) -> Result<Option<u64>, ProcessFailure> {
        match self.own(own.open())? {
            Checkpoints::None => Ok(None),
            Checkpoints::At(place) => self.send_to_all(&Request::Resume(place)).map(|()| None),
            Checkpoints::Ended(number) => self.send_to_all(&Request::Skip).map(|()| Some(number)),
        }
    }

    /// Lets everybody prepare and connect the query that was planned last. Returns when all are
    /// connected.
    pub fn connect(&self, own: &mut impl Member) -> Result<(), ProcessFailure> {
        let splits = self.own(own.splits())?;
        self.send_to_all(&Request::Prepare(splits.clone()))?;
        let ours = self.own(own.prepare(&splits))?;
        let mut sent = vec![self.own(pack(&ours, &self.token))?];
        for process in 1..self.processes {
            match self.reply(process)? {
                Reply::Hellos(hellos) if hellos.len() == self.processes => sent.push(hellos),
                other => return Err(self.unexpected(process, &other)),
            }
        }
        // What process p has told about itself to q goes to q, under p.
        let mut received: Vec<Vec<Vec<PackedHello>>> = vec![Vec::new(); self.processes];
        for hellos in sent {
            for (to, hellos) in received.iter_mut().zip(hellos) {
                to.push(hellos);
            }
        }
        let for_us = std::mem::take(&mut received[0]);
        for (process, hellos) in received.into_iter().enumerate().skip(1) {
            self.send(process, &Request::Connect(hellos))?;
        }
        let received = self.own(unpack(&for_us, &self.token))?;
        let ours = self.own(own.connect(received))?;
        for process in 1..self.processes {
            match self.reply(process)? {
                Reply::Connected(theirs) => {
                    self.refuse_difference(process, ours.difference(&theirs))?;
                }
                other => return Err(self.unexpected(process, &other)),
            }
        }
        Ok(())
    }

    /// Starts the query everywhere, waits for its end, and commits its result where all went well;
    /// what the processes have to tell of it, by process.
    pub fn run(&self, own: &mut impl Member) -> Result<Vec<Value>, ProcessFailure> {
        self.peers.forget_ends();
        self.send_to_all(&Request::Start)?;
        let (ours, result) = own.run(&Stops(self.peers.inbox.clone()));
        self.peers.inbox.clear_hook();
        self.own(result)?;
        let mut ends = vec![ours];
        for process in 1..self.processes {
            match self.reply(process)? {
                Reply::Done(end) => {
                    self.peers.note_end(process, end.clone());
                    ends.push(end);
                }
                other => return Err(self.unexpected(process, &other)),
            }
        }
        self.own(own.ends(&ends))?;
        // All have ended well; but since then somebody may have ended, or Ctrl-C been pressed.
        self.peers.begin_commit()?;
        let committed = own.commit();
        if committed.is_err() {
            // A stop that was requested meanwhile is the reason.
            self.peers.end_commit();
        }
        let committed = self.own(committed).and_then(|()| self.all_reply(&Reply::Committed));
        let committed = committed.and_then(|()| self.own(own.mark()));
        self.peers.end_commit();
        committed.map(|()| ends)
    }

    /// Ends all processes, after a job that went well. Returns when none is left.
    pub fn end(self) -> Result<(), ProcessFailure> {
        self.peers.close();
        let sent = self.send_to_all(&Request::End);
        self.peers.end_all();
        sent
    }

    /// After a failure: ends all processes and waits for their end. Returns the most informative
    /// reason, and the progress of each other process in the last query, as far as reported.
    /// Process 0 is left out.
    pub fn give_up(self, failure: ProcessFailure) -> (ProcessFailure, Vec<Option<Value>>) {
        let reason = self.peers.give_up(failure);
        (reason, self.peers.ends())
    }

    fn refuse_difference(
        &self,
        process: usize,
        what: Option<String>,
    ) -> Result<(), ProcessFailure> {
        let Some(what) = what else { return Ok(()) };
        Err(self.failed(ProcessFailure::new(process, Cause::Differs(what))))
    }

    /// Result of this process's own part.
    fn own<T>(&self, result: Result<T, Fault>) -> Result<T, ProcessFailure> {
        result.map_err(|fault| match self.peers.inbox.failure() {
            // The part stopped because of the known failure.
            Some(known) if fault.kind == FaultKind::Consequence => known,
            _ => self.failed(ProcessFailure::new(0, Cause::Fault(fault))),
        })
    }

    fn unexpected(&self, process: usize, reply: &Reply) -> ProcessFailure {
        let text = format!("{reply:?}");
        let what = format!("a message out of turn: {}", text.chars().take(60).collect::<String>());
        self.failed(ProcessFailure::new(process, Cause::Rubbish(what)))
    }

    /// Notes a failure, lets all stop, and returns it.
    fn failed(&self, failure: ProcessFailure) -> ProcessFailure {
        self.peers.fail(failure.clone());
        failure
    }

    fn reply(&self, process: usize) -> Result<Reply, ProcessFailure> {
        loop {
            if let Some(reply) = self.peers.inbox.next(process, None)? {
                return Ok(reply);
            }
        }
    }

    /// Waits until all others have sent the expected reply.
    fn all_reply(&self, expected: &Reply) -> Result<(), ProcessFailure> {
        (1..self.processes).try_for_each(|process| match self.reply(process)? {
            reply if reply == *expected => Ok(()),
            other => Err(self.unexpected(process, &other)),
        })
    }

    fn send_to_all(&self, request: &Request) -> Result<(), ProcessFailure> {
        (1..self.processes).try_for_each(|process| self.send(process, request))
    }

    fn send(&self, process: usize, request: &Request) -> Result<(), ProcessFailure> {
        let link = self.peers.link(process);
        let sent = link.map_or(Ok(()), |link| link.send(request));
        sent.map_err(|e| self.failed(ProcessFailure::new(0, Cause::Fault(Fault::run(e)))))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.peers.abandon();
    }
}

/// This process cannot begin.
fn cannot(what: &str, error: &std::io::Error) -> ProcessFailure {
    ProcessFailure::new(0, Cause::Start(format!("cannot {what}: {error}")))
}

pub(super) fn pack(hellos: &[Vec<Hello>], token: &Token) -> Result<Vec<Vec<PackedHello>>, Fault> {
    let pack = |hello: &Hello| PackedHello::pack(hello, token);
    hellos.iter().map(|hellos| hellos.iter().map(pack).collect()).collect()
}

pub(super) fn unpack(hellos: &[Vec<PackedHello>], token: &Token) -> Result<Vec<Vec<Hello>>, Fault> {
    let unpack = |hello: &PackedHello| hello.unpack(token);
    hellos.iter().map(|hellos| hellos.iter().map(unpack).collect()).collect()
}
