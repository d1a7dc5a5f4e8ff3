//! A job whose other processes are threads, or are played by the test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millstream::program::cluster::{
    Cluster, Fault, Invitation, Launched, Launcher, Log, Loopback, Member, Node, Parts,
    ProcessFailure, Setup, Stops, Transport, preamble,
};
use millstream_contract::table::SplitSpec;
use millstream_fabric::setup::Hello;
use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use serde_json::{Value, json};

/// Longer than anything here takes, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a process does when it comes to run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// Ends at once.
    Quick,
    /// Runs until it is stopped.
    Endless,
    /// Fails.
    Failing,
    /// Fails when all others are done.
    FailingLast,
    /// Ends at once, and cannot commit.
    Uncommitted,
    /// Runs until it is stopped, and then says that it has lost somebody.
    Losing,
}

pub(crate) struct Stub {
    process: usize,
    processes: usize,
    role: Role,
    plan: &'static str,
    running: Option<Sender<usize>>,
    /// How many processes have run to their end.
    done: Arc<AtomicUsize>,
    pub(crate) commits: Arc<AtomicUsize>,
}

/// The part of a process of which nobody asks when it runs.
pub(crate) fn stub(
    process: usize,
    processes: usize,
    role: Role,
    done: &Arc<AtomicUsize>,
    commits: &Arc<AtomicUsize>,
) -> Stub {
    let (done, commits) = (done.clone(), commits.clone());
    Stub { process, processes, role, plan: "scan", running: None, done, commits }
}

pub(crate) fn hello(from: usize, to: usize) -> Hello {
    let endpoint = Endpoint { provider: Provider::Sim, detail: [0; ENDPOINT_DETAIL_BYTES] };
    Hello { endpoint, regions: Vec::new(), parameters: vec![from as u64, to as u64] }
}

impl Member for Stub {
    fn execute(&mut self, statement: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        let parts = Parts::new().with("plan", self.plan).with("start", start_us.to_string());
        Ok((statement > 0).then_some(parts))
    }

    fn prepare(&mut self, _: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        let (own, all) = (self.process, self.processes);
        let for_peer = |to| if to == own { vec![] } else { vec![hello(own, to); to + 1] };
        Ok((0..all).map(for_peer).collect())
    }

    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        for (from, hellos) in hellos.iter().enumerate() {
            let expected = if from == self.process { 0 } else { self.process + 1 };
            if hellos.len() != expected || hellos.iter().any(|h| *h != hello(from, self.process)) {
                return Err(Fault::run(format!("wrong hellos from {from}")));
            }
        }
        Ok(Parts::new().with("splits", "one"))
    }

    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        let (stop, stopped) = channel();
        stops.set(move |failure| drop(stop.send(failure.clone())));
        if let Some(running) = &self.running {
            running.send(self.process).unwrap();
        }
        let result = match self.role {
            Role::Quick | Role::Uncommitted => {
                self.done.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            Role::Failing => Err(Fault::run("cannot write out.csv: No space left on device")),
            Role::FailingLast => {
                let start = Instant::now();
                while self.done.load(Ordering::SeqCst) < self.processes - 1 {
                    assert!(start.elapsed() < PATIENCE, "the others are not done");
                    thread::sleep(Duration::from_millis(1));
                }
                Err(Fault::run("cannot write out.csv: No space left on device"))
            }
            Role::Endless | Role::Losing => match stopped.recv_timeout(PATIENCE) {
                Ok(_) if self.role == Role::Losing => Err(Fault::consequence("lost a peer")),
                Ok(failure) => Err(Fault::consequence(failure)),
                Err(_) => Err(Fault::run("nobody stopped it")),
            },
        };
        (json!({"rows": self.process}), result)
    }

    fn commit(&mut self) -> Result<(), Fault> {
        if self.role == Role::Uncommitted {
            return Err(Fault::run("cannot rename out.csv"));
        }
        self.commits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// What has been logged.
#[derive(Clone, Default)]
pub(crate) struct Lines(pub(crate) Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(crate) fn log(&self) -> Log {
        let lines = self.clone();
        Arc::new(move |line| lines.0.lock().unwrap().push(line.to_string()))
    }

    /// Waits until a line contains `words`.
    pub(crate) fn wait_for(&self, words: &str) {
        let start = Instant::now();
        while !self.0.lock().unwrap().iter().any(|line| line.contains(words)) {
            assert!(start.elapsed() < PATIENCE, "no '{words}' in {:?}", self.0.lock().unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Launches nothing itself: hands all invitations over at once, when the last has come.
pub(crate) struct Elsewhere<F>(Mutex<(Vec<Invitation>, Option<F>)>, usize);

/// A launcher of `processes` processes, of which `start` starts all but the first.
pub(crate) fn elsewhere<F: FnOnce(&[Invitation]) + Send>(
    processes: usize,
    start: F,
) -> Elsewhere<F> {
    Elsewhere(Mutex::new((Vec::new(), Some(start))), processes - 1)
}

impl<F: FnOnce(&[Invitation]) + Send> Launcher for Elsewhere<F> {
    fn launch(&self, invitation: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure> {
        let (invitations, start) = &mut *self.0.lock().unwrap();
        invitations.push(invitation.clone());
        if invitations.len() == self.1 {
            start.take().unwrap()(invitations);
        }
        Ok(None)
    }
}

pub(crate) type End = Result<(), ProcessFailure>;

/// A job whose other processes are threads.
pub(crate) struct Job {
    pub(crate) cluster: Option<Cluster>,
    pub(crate) own: Stub,
    pub(crate) others: Vec<JoinHandle<End>>,
    pub(crate) lines: Lines,
    invitations: Vec<Invitation>,
    pub(crate) running: Receiver<usize>,
}

impl Job {
    /// Process `p` has role `roles[p]`; `None` does not join: the test plays its part.
    pub(crate) fn start(roles: &[Option<Role>]) -> Job {
        Job::start_with(roles, |_| "scan")
    }

    pub(crate) fn start_with(roles: &[Option<Role>], plan: fn(usize) -> &'static str) -> Job {
        Job::try_start(roles, plan, |_| {}).unwrap()
    }

    /// `before` sees the invitations before anybody joins.
    pub(crate) fn try_start(
        roles: &[Option<Role>],
        plan: fn(usize) -> &'static str,
        before: impl FnOnce(&[Invitation]) + Send,
    ) -> Result<Job, ProcessFailure> {
        Job::try_over(Arc::new(Loopback), roles, plan, before)
    }

    pub(crate) fn try_over(
        transport: Arc<dyn Transport>,
        roles: &[Option<Role>],
        plan: fn(usize) -> &'static str,
        before: impl FnOnce(&[Invitation]) + Send,
    ) -> Result<Job, ProcessFailure> {
        let (lines, (sender, running)) = (Lines::default(), channel());
        let (mut others, mut kept) = (Vec::new(), Vec::new());
        let (done, commits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let processes = roles.len();
        let make = |process: usize, role| Stub {
            plan: plan(process),
            running: Some(sender.clone()),
            ..stub(process, processes, role, &done, &commits)
        };
        let cluster = Cluster::open(transport.clone(), processes, lines.log())?;
        let started = cluster.start(&elsewhere(processes, |invitations: &[Invitation]| {
            before(invitations);
            kept.extend_from_slice(invitations);
            for (invitation, role) in invitations.iter().zip(&roles[1..]) {
                let (invitation, Some(role)) = (invitation.clone(), *role) else { continue };
                let stub = make(invitation.process, role);
                let transport = transport.clone();
                others.push(thread::spawn(move || {
                    Node::join(&*transport, &invitation)?.serve(|process, setup: &Setup| {
                        assert_eq!((process, setup.processes), (stub.process, stub.processes));
                        assert_eq!((setup.fabric.as_str(), &setup.task), ("sim", &json!("task")));
                        Ok(stub)
                    })
                }));
            }
        }));
        if let Err(failure) = started {
            return Err(cluster.give_up(failure).0);
        }
        let own = make(0, roles[0].unwrap());
        Ok(Job { cluster: Some(cluster), own, others, lines, invitations: kept, running })
    }

    pub(crate) fn run_all(&mut self, statements: usize) -> Result<Vec<Vec<Value>>, ProcessFailure> {
        let cluster = self.cluster.as_ref().unwrap();
        let mut ends = Vec::new();
        cluster.set_up("sim", &json!("task"), || Ok(()))?;
        for statement in 0..statements {
            if cluster.execute(&mut self.own, statement, 17)? {
                cluster.connect(&mut self.own)?;
                ends.push(cluster.run(&mut self.own)?);
            }
        }
        Ok(ends)
    }

    /// Runs to a failure; how everybody ended.
    pub(crate) fn fail(mut self) -> (ProcessFailure, Vec<End>) {
        let failure = self.run_all(2).unwrap_err();
        let (failure, _) = self.cluster.take().unwrap().give_up(failure);
        (failure, self.others.into_iter().map(|other| other.join().unwrap()).collect())
    }

    /// Lets everybody run, then does `what`, and returns how it ended.
    pub(crate) fn fail_while_running(
        self,
        what: impl FnOnce(&[Invitation]),
    ) -> (ProcessFailure, Vec<End>) {
        let invitations = self.invitations.clone();
        let members = self.others.len() + 1;
        let (ready, waiting) = channel();
        let Job { cluster, own, others, lines, running, .. } = self;
        let forward = thread::spawn(move || {
            for _ in 0..members {
                ready.send(running.recv_timeout(PATIENCE).unwrap()).unwrap();
            }
        });
        let (_unused, running) = channel();
        let job = Job { cluster, own, others, lines, invitations: vec![], running };
        let failing = thread::spawn(move || job.fail());
        for _ in 0..members {
            waiting.recv_timeout(PATIENCE).unwrap();
        }
        what(&invitations);
        forward.join().unwrap();
        failing.join().unwrap()
    }
}

/// A process that the test plays itself, as far as its preamble.
pub(crate) fn join_by_hand(invitation: &Invitation) -> TcpStream {
    let mut stream = TcpStream::connect(&invitation.address).unwrap();
    stream.write_all(&preamble::call(&invitation.token, invitation.process as u32)).unwrap();
    let mut answer = [0; preamble::ANSWER_BYTES];
    stream.read_exact(&mut answer).unwrap();
    preamble::decode_answer(&answer, &invitation.token).unwrap();
    stream
}
