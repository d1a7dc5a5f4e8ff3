//! The control plane, over real sockets: processes that are threads here and do next to nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millstream::cluster::frame::{Frames, encode};
use millstream::cluster::message::{PackedHello, Reply, Request};
use millstream::cluster::{
    Cause, Cluster, Failure, Fault, FaultKind, Invitation, Log, Member, Node, Parts, SILENCE_MAX,
    Setup, Stops, preamble,
};
use millstream_fabric::setup::{Hello, Token};
use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use serde_json::{Value, json};

/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process does when it comes to run.
#[derive(Clone, Copy, PartialEq)]
enum Role {
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

struct Stub {
    process: usize,
    processes: usize,
    role: Role,
    plan: &'static str,
    running: Option<Sender<usize>>,
    /// How many processes have run to their end.
    done: Arc<AtomicUsize>,
    commits: Arc<AtomicUsize>,
}

fn hello(from: usize, to: usize) -> Hello {
    let endpoint = Endpoint { provider: Provider::Sim, detail: [0; ENDPOINT_DETAIL_BYTES] };
    Hello { endpoint, regions: Vec::new(), parameters: vec![from as u64, to as u64] }
}

impl Member for Stub {
    fn execute(&mut self, statement: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        let parts = Parts::new().with("plan", self.plan).with("start", start_us.to_string());
        Ok((statement > 0).then_some(parts))
    }

    fn prepare(&mut self) -> Result<Vec<Vec<Hello>>, Fault> {
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
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn log(&self) -> Log {
        let lines = self.clone();
        Arc::new(move |line| lines.0.lock().unwrap().push(line.to_string()))
    }

    /// Waits until a line contains `words`.
    fn wait_for(&self, words: &str) {
        let start = Instant::now();
        while !self.0.lock().unwrap().iter().any(|line| line.contains(words)) {
            assert!(start.elapsed() < PATIENCE, "no '{words}' in {:?}", self.0.lock().unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

type End = Result<(), Failure>;

/// A job whose other processes are threads.
struct Job {
    cluster: Option<Cluster>,
    own: Stub,
    others: Vec<JoinHandle<End>>,
    lines: Lines,
    invitations: Vec<Invitation>,
    running: Receiver<usize>,
}

impl Job {
    /// Process `p` has role `roles[p]`; `None` does not join: the test plays its part.
    fn start(roles: &[Option<Role>]) -> Job {
        Job::start_with(roles, |_| "scan")
    }

    fn start_with(roles: &[Option<Role>], plan: fn(usize) -> &'static str) -> Job {
        Job::try_start(roles, plan, |_| {}).unwrap()
    }

    /// `before` sees the invitations before anybody joins.
    fn try_start(
        roles: &[Option<Role>],
        plan: fn(usize) -> &'static str,
        before: impl FnOnce(&[Invitation]),
    ) -> Result<Job, Failure> {
        let (lines, (sender, running)) = (Lines::default(), channel());
        let (mut others, mut kept) = (Vec::new(), Vec::new());
        let (done, commits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let processes = roles.len();
        let make = |process: usize, role| Stub {
            process,
            processes,
            role,
            plan: plan(process),
            running: Some(sender.clone()),
            done: done.clone(),
            commits: commits.clone(),
        };
        let cluster = Cluster::open(processes, lines.log())?;
        let started = cluster.start(None, |invitations| {
            before(invitations);
            kept.extend_from_slice(invitations);
            for (invitation, role) in invitations.iter().zip(&roles[1..]) {
                let (invitation, Some(role)) = (*invitation, *role) else { continue };
                let stub = make(invitation.process, role);
                others.push(thread::spawn(move || {
                    Node::join(&invitation)?.serve(|process, setup: &Setup| {
                        assert_eq!((process, setup.processes), (stub.process, stub.processes));
                        assert_eq!((setup.fabric.as_str(), &setup.task), ("sim", &json!("task")));
                        Ok(stub)
                    })
                }));
            }
        });
        if let Err(failure) = started {
            return Err(cluster.give_up(failure).0);
        }
        let own = make(0, roles[0].unwrap());
        Ok(Job { cluster: Some(cluster), own, others, lines, invitations: kept, running })
    }

    fn run_all(&mut self, statements: usize) -> Result<Vec<Vec<Value>>, Failure> {
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
    fn fail(mut self) -> (Failure, Vec<End>) {
        let failure = self.run_all(2).unwrap_err();
        let (failure, _) = self.cluster.take().unwrap().give_up(failure);
        (failure, self.others.into_iter().map(|other| other.join().unwrap()).collect())
    }

    /// Lets everybody run, then does `what`, and returns how it ended.
    fn fail_while_running(self, what: impl FnOnce(&[Invitation])) -> (Failure, Vec<End>) {
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
fn join_by_hand(invitation: &Invitation) -> TcpStream {
    let mut stream = TcpStream::connect(invitation.address).unwrap();
    stream.write_all(&preamble::call(&invitation.token, invitation.process as u32)).unwrap();
    let mut answer = [0; preamble::ANSWER_BYTES];
    stream.read_exact(&mut answer).unwrap();
    preamble::decode_answer(&answer, &invitation.token).unwrap();
    stream
}

/// What comes back after `bytes` until the other side closes.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset is an end as well: not all of what we said was read.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn every_process_does_every_statement_and_hears_what_the_others_told_it() {
    for processes in [1, 2, 3, 8] {
        let mut job = Job::start(&vec![Some(Role::Quick); processes]);
        let ends = job.run_all(4).unwrap();
        let expected: Vec<Value> = (0..processes).map(|p| json!({"rows": p})).collect();
        assert_eq!(ends, vec![expected; 3]);
        assert_eq!(job.own.commits.load(Ordering::SeqCst), 3 * processes);
        job.cluster.take().unwrap().end().unwrap();
        for other in job.others {
            other.join().unwrap().unwrap();
        }
        assert!(job.lines.0.lock().unwrap().is_empty());
    }
}

#[test]
fn a_process_with_another_plan_is_refused_by_name() {
    let plan = |process| if process == 2 { "scan b" } else { "scan a" };
    let roles = [Some(Role::Quick); 4];
    let (failure, ends) = Job::start_with(&roles, plan).fail();
    let expected = "process 2 does not run what process 0 runs: not the same plan\n  process 0: scan a\n  \
                    it: scan b";
    assert_eq!(failure.to_string(), expected);
    for (end, process) in ends.iter().zip(1..) {
        let end = end.as_ref().unwrap_err();
        // The one that differs is told by the end of its connection.
        assert!(process == 2 || *end == failure, "{end}");
    }
}

#[test]
fn the_failure_of_one_stops_all_and_all_know_whose_it_was() {
    for failing in 0..4 {
        let mut roles = [Some(Role::Endless); 4];
        roles[failing] = Some(Role::Failing);
        let (failure, ends) = Job::start(&roles).fail();
        let fault = Fault::run("cannot write out.csv: No space left on device");
        assert_eq!(failure, Failure::new(failing, Cause::Fault(fault)));
        assert_eq!(
            failure.to_string(),
            format!("process {failing}: cannot write out.csv: No space left on device")
        );
        for end in ends {
            assert_eq!(end.unwrap_err(), failure);
        }
    }
}

/// What has been written is shown only where all have ended well, though all but one have.
#[test]
fn nobody_commits_if_one_fails() {
    for failing in 0..3 {
        let mut roles = [Some(Role::Quick); 3];
        roles[failing] = Some(Role::FailingLast);
        let mut job = Job::start(&roles);
        let failure = job.run_all(2).unwrap_err();
        let (failure, told) = job.cluster.take().unwrap().give_up(failure);
        assert_eq!((failure.process, job.own.commits.load(Ordering::SeqCst)), (failing, 0));
        // All have told how far they got: the one that failed, and those that were done.
        assert_eq!(told, [1, 2].map(|process| Some(json!({"rows": process}))));
    }
}

#[test]
fn who_cannot_commit_is_named() {
    for failing in 0..3 {
        let mut roles = [Some(Role::Quick); 3];
        roles[failing] = Some(Role::Uncommitted);
        let (failure, ends) = Job::start(&roles).fail();
        assert_eq!(failure.to_string(), format!("process {failing}: cannot rename out.csv"));
        assert!(ends.iter().all(|end| end.is_err()));
    }
}

#[test]
fn a_closed_connection_stops_all_at_once() {
    let mut job = Job::try_start(
        &[Some(Role::Endless), Some(Role::Endless), None],
        |_| "scan",
        |invitations| {
            let last = invitations[1];
            thread::spawn(move || {
                let mut stream = join_by_hand(&last);
                let mut say = |reply: &Reply| stream.write_all(&encode(reply).unwrap()).unwrap();
                say(&Reply::Ready);
                say(&Reply::Planned(None));
                say(&Reply::Planned(Some(Parts::new().with("plan", "scan").with("start", "17"))));
                let pack = |to| PackedHello::pack(&hello(2, to), &last.token).unwrap();
                say(&Reply::Hellos(vec![vec![pack(0)], vec![pack(1), pack(1)], vec![]]));
                say(&Reply::Connected(Parts::new().with("splits", "one")));
                // Keeps the connection until the others run, then closes it.
                let mut read = vec![0; 1 << 16];
                while !read.windows(5).any(|w| w == b"Start") {
                    let length = stream.read(&mut read).unwrap();
                    read[length..].fill(0);
                }
            });
        },
    );
    let job = job.as_mut().unwrap();
    let failure = job.run_all(2).unwrap_err();
    assert_eq!(failure.process, 2, "{failure}");
    let (failure, _) = job.cluster.take().unwrap().give_up(failure);
    assert_eq!(failure.process, 2, "{failure}");
}

#[test]
fn silence_is_a_failure() {
    // It joins and says nothing more: no heartbeat either.
    let (send, joined) = channel();
    let job = Job::try_start(
        &[Some(Role::Endless), Some(Role::Endless), None],
        |_| "scan",
        |invitations| {
            let last = invitations[1];
            thread::spawn(move || send.send(join_by_hand(&last)).unwrap());
        },
    );
    let stream = joined.recv_timeout(PATIENCE).unwrap();
    let start = Instant::now();
    let (failure, ends) = job.unwrap().fail();
    assert_eq!(failure.to_string(), "process 2 has not answered for 2 s");
    assert!(start.elapsed() >= SILENCE_MAX / 2);
    assert_eq!(ends[0].as_ref().unwrap_err(), &failure);
    drop(stream);
}

#[test]
fn a_process_whose_asker_is_silent_or_gone_stops() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::new([3; 32]);
    let invitation = Invitation { address: listener.local_addr().unwrap(), process: 1, token };
    for silent in [true, false] {
        let node = thread::spawn(move || {
            Node::join(&invitation)?.serve(|_, _| Err::<Stub, _>(Fault::run("not reached")))
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut call = [0; preamble::CALL_BYTES];
        stream.read_exact(&mut call).unwrap();
        assert_eq!(preamble::decode_call(&call, &token, 2).unwrap(), 1);
        stream.write_all(&preamble::answer(&token)).unwrap();
        if !silent {
            stream.shutdown(Shutdown::Both).unwrap();
        }
        let failure = node.join().unwrap().unwrap_err();
        // Should process 0 only have been stopped, it learns why the process has ended.
        let (mut frames, mut said) = (Frames::default(), Vec::new());
        let _ = stream.read_to_end(&mut said);
        frames.push(&said);
        let mut unheard = false;
        while let Ok(Some(reply)) = frames.take::<Reply>() {
            unheard |= reply == Reply::Unheard(2000);
        }
        assert_eq!(unheard, silent);
        let cause = if silent { Cause::Silent(2000) } else { Cause::Closed };
        assert_eq!(failure, Failure::new(0, cause));
    }
}

/// The channels of a process may be lost to process 0 before its silence on the control connection
/// counts.
#[test]
fn who_has_lost_a_silent_process_0_says_that_it_is_silent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::new([3; 32]);
    let invitation = Invitation { address: listener.local_addr().unwrap(), process: 1, token };
    let node = thread::spawn(move || {
        let lost = Fault::consequence("process 0 is gone: the channel's other side has failed");
        Node::join(&invitation)?.serve(|_, _| Err::<Stub, _>(lost))
    });
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; preamble::CALL_BYTES]).unwrap();
    stream.write_all(&preamble::answer(&token)).unwrap();
    let setup = Setup { processes: 2, fabric: "sim".into(), task: json!("task") };
    stream.write_all(&encode(&Request::Setup(setup)).unwrap()).unwrap();
    let failure = node.join().unwrap().unwrap_err();
    assert_eq!(failure, Failure::new(0, Cause::Silent(2000)));
}

#[test]
fn whom_the_others_have_not_heard_has_failed_itself() {
    let mut stream = None;
    let mut job = Job::try_start(
        &[Some(Role::Endless), None],
        |_| "scan",
        |invitations| stream = Some(join_by_hand(&invitations[0])),
    )
    .unwrap();
    stream.take().unwrap().write_all(&encode(&Reply::Unheard(2000)).unwrap()).unwrap();
    let failure = job.run_all(2).unwrap_err();
    let (failure, _) = job.cluster.take().unwrap().give_up(failure);
    assert_eq!(failure.to_string(), "process 0 has not answered for 2 s");
}

#[test]
fn a_process_of_another_version_ends_a_job_that_it_should_join() {
    let job = Job::try_start(
        &[Some(Role::Endless), Some(Role::Endless), None],
        |_| "scan",
        |invitations| {
            let mut call = preamble::call(&invitations[1].token, 2);
            call[8] = 77;
            assert_eq!(answer_to(invitations[1].address, &call), b"");
        },
    );
    let Err(failure) = job else { panic!("it may not join") };
    let words = failure.to_string();
    assert!(words.starts_with("process 2 speaks version 77 of the control protocol"), "{words}");
}

#[test]
fn a_job_is_interrupted_while_processes_join_and_who_comes_later_is_told() {
    let cluster = Cluster::open(3, Lines::default().log()).unwrap();
    let interrupt = cluster.interrupt();
    let mut invited = Vec::new();
    let failure = cluster.start(None, |invitations| {
        invited.extend_from_slice(invitations);
        // Nobody joins.
        interrupt.stop();
    });
    assert_eq!(failure, Err(Failure::new(0, Cause::Interrupted)));
    let mut late = join_by_hand(&invited[0]);
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut frames, mut bytes) = (Frames::default(), [0; 1024]);
    loop {
        let read = late.read(&mut bytes).unwrap();
        assert!(read > 0, "it is not told");
        frames.push(&bytes[..read]);
        match frames.take::<Request>().unwrap() {
            Some(Request::Stop(told)) => break assert_eq!(Err(told), failure),
            Some(other) => assert_eq!(other, Request::Heartbeat),
            None => {}
        }
    }
}

#[test]
fn a_process_is_told_when_process_0_ends_or_is_interrupted() {
    let job = Job::start(&[Some(Role::Endless); 3]);
    let interrupt = job.cluster.as_ref().unwrap().interrupt();
    let (failure, ends) = job.fail_while_running(move |_| interrupt.stop());
    assert_eq!(failure, Failure::new(0, Cause::Interrupted));
    for end in ends {
        assert_eq!(end.unwrap_err(), failure);
    }
}

#[test]
fn the_reason_is_told_rather_than_what_followed_from_it() {
    let job = Job::start(&[Some(Role::Endless), Some(Role::Losing), Some(Role::Failing)]);
    let (failure, _) = job.fail();
    assert_eq!(failure.process, 2);
    assert!(matches!(failure.cause, Cause::Fault(Fault { kind: FaultKind::Run, .. })));
}

#[test]
fn strangers_are_refused_logged_and_told_nothing_while_the_job_goes_on() {
    let job = Job::start(&[Some(Role::Endless); 3]);
    let (lines, interrupt) = (job.lines.clone(), job.cluster.as_ref().unwrap().interrupt());
    let (failure, _) = job.fail_while_running(move |invitations| {
        let Invitation { address, token, .. } = invitations[0];
        let good = preamble::call(&token, 1);
        let mut version = good;
        version[8] = 77;
        let mut out_of_range = good;
        out_of_range[44] = 9;
        for (bytes, words) in [
            (
                &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nand some more than that"[..],
                "does not speak",
            ),
            (&preamble::call(&Token::new([1; 32]), 1), "does not hold this job's token"),
            (&version, "it speaks version 77"),
            (&out_of_range, "it says that it is process 9, and there are 3"),
            (&good, "process 1 has joined already"),
            (&[[0xff; 48], [0; 48]].concat(), "does not speak"),
        ] {
            assert_eq!(answer_to(address, bytes), b"", "{words}");
            lines.wait_for(words);
        }
        // One that says nothing, and one that goes away in the middle.
        let mut silent = TcpStream::connect(address).unwrap();
        let mut short = TcpStream::connect(address).unwrap();
        short.write_all(&good[..20]).unwrap();
        drop(short);
        lines.wait_for("it said too little");
        let _ = silent.read(&mut [0]);
        // The job goes on: nobody has stopped it yet, and what ends it is this.
        interrupt.stop();
    });
    assert_eq!(failure, Failure::new(0, Cause::Interrupted));
}

#[test]
fn strangers_who_call_before_the_processes_join_change_nothing() {
    let mut job = Job::try_start(
        &[Some(Role::Quick); 3],
        |_| "scan",
        |invitations| {
            let Invitation { address, token, .. } = invitations[0];
            assert_eq!(answer_to(address, &preamble::call(&Token::new([1; 32]), 1)), b"");
            assert_eq!(answer_to(address, &preamble::call(&token, 0)), b"");
            // More of them than are listened to, all silent. Those that hold a place leave it after
            // a while.
            let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
            drop(silent);
        },
    )
    .unwrap();
    assert_eq!(job.run_all(2).unwrap().len(), 1);
    job.cluster.take().unwrap().end().unwrap();
}

#[test]
fn rubbish_from_a_process_that_has_joined_ends_the_job_and_names_it() {
    let message = |reply: &Reply| encode(reply).unwrap();
    for (bytes, words) in [
        (b"\x05\0\0\0hello".to_vec(), "process 1 has sent a message that cannot be read"),
        (vec![0xff; 64], "process 1 has sent a message of 4294967295 bytes"),
        (message(&Reply::Done(Value::Null)), "process 1 has sent a message out of turn: Done"),
        (encode(&Request::Start).unwrap(), "process 1 has sent a message that cannot be read"),
    ] {
        let mut stream = None;
        let job = Job::try_start(
            &[Some(Role::Endless), None],
            |_| "scan",
            |invitations| {
                let mut joined = join_by_hand(&invitations[0]);
                joined.write_all(&bytes).unwrap();
                stream = Some(joined);
            },
        );
        let failure = match job {
            Ok(job) => job.fail().0,
            // It came before everybody had joined.
            Err(failure) => failure,
        };
        assert!(failure.to_string().starts_with(words), "{failure}");
    }
}

#[test]
fn wrong_messages_of_process_0_end_a_process() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::new([3; 32]);
    let invitation = Invitation { address: listener.local_addr().unwrap(), process: 1, token };
    for bytes in [b"\x05\0\0\0hello".to_vec(), encode(&Request::Start).unwrap()] {
        let node = thread::spawn(move || {
            Node::join(&invitation)?.serve(|_, _| Err::<Stub, _>(Fault::run("not reached")))
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; preamble::CALL_BYTES]).unwrap();
        stream.write_all(&preamble::answer(&token)).unwrap();
        stream.write_all(&bytes).unwrap();
        let failure = node.join().unwrap().unwrap_err();
        assert!(matches!(failure, Failure { process: 0, cause: Cause::Rubbish(_) }), "{failure}");
    }
    // And who answers without the token is not process 0.
    let node = thread::spawn(move || Node::join(&invitation).map(drop));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&preamble::answer(&Token::new([4; 32]))).unwrap();
    let failure = node.join().unwrap().unwrap_err();
    assert!(failure.to_string().contains("is not process 0"), "{failure}");
}
