//! Tests of connections from strangers, and of processes of the job that send nonsense.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use millstream::program::cluster::frame::encode;
use millstream::program::cluster::message::{Reply, Request};
use millstream::program::cluster::{
    Cause, Fault, Invitation, Loopback, Member, Node, Parts, ProcessFailure, Setup, Stops, preamble,
};
use millstream_contract::table::SplitSpec;
use millstream_fabric::setup::{Hello, Token};
use serde_json::Value;

use super::job::{Job, PATIENCE, Role, Stub, join_by_hand};

/// What comes back after `bytes` until the other side closes.
fn answer_to(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset is an end as well: not all of what we said was read.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn a_process_of_another_version_ends_a_job_that_it_should_join() {
    let job = Job::try_start(
        &[Some(Role::Endless), Some(Role::Endless), None],
        |_| "scan",
        |invitations| {
            let mut call = preamble::call(&invitations[1].token, 2);
            call[8] = 77;
            assert_eq!(answer_to(&invitations[1].address, &call), b"");
        },
    );
    let Err(failure) = job else { panic!("it may not join") };
    let words = failure.to_string();
    assert!(words.starts_with("process 2 speaks version 77 of the control protocol"), "{words}");
}

#[test]
fn strangers_are_refused_logged_and_told_nothing_while_the_job_goes_on() {
    let job = Job::start(&[Some(Role::Endless); 3]);
    let (lines, interrupt) = (job.lines.clone(), job.cluster.as_ref().unwrap().interrupt());
    let (failure, _) = job.fail_while_running(move |invitations| {
        let Invitation { address, token, .. } = &invitations[0];
        let good = preamble::call(token, 1);
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
    assert_eq!(failure, ProcessFailure::new(0, Cause::Interrupted));
}

#[test]
fn strangers_who_call_before_the_processes_join_change_nothing() {
    let mut job = Job::try_start(
        &[Some(Role::Quick); 3],
        |_| "scan",
        |invitations| {
            let Invitation { address, token, .. } = &invitations[0];
            assert_eq!(answer_to(address, &preamble::call(&Token::new([1; 32]), 1)), b"");
            assert_eq!(answer_to(address, &preamble::call(token, 0)), b"");
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

/// Where a test that plays process 0 listens, and what it invites process 1 with.
fn play_process_0() -> (TcpListener, Invitation) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, token) = (listener.local_addr().unwrap().to_string(), Token::new([3; 32]));
    (listener, Invitation { address, process: 1, token })
}

/// Lets process 1 in.
fn let_in(listener: &TcpListener, token: &Token) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; preamble::CALL_BYTES]).unwrap();
    stream.write_all(&preamble::answer(token)).unwrap();
    stream
}

#[test]
fn wrong_messages_of_process_0_end_a_process() {
    let (listener, invitation) = play_process_0();
    let token = invitation.token;
    for bytes in [b"\x05\0\0\0hello".to_vec(), encode(&Request::Start).unwrap()] {
        let invitation = invitation.clone();
        let node = thread::spawn(move || {
            Node::join(&Loopback, &invitation)?
                .serve(|_, _| Err::<Stub, _>(Fault::run("not reached")))
        });
        let mut stream = let_in(&listener, &token);
        stream.write_all(&bytes).unwrap();
        let failure = node.join().unwrap().unwrap_err();
        assert!(
            matches!(failure, ProcessFailure { process: 0, cause: Cause::Rubbish(_) }),
            "{failure}"
        );
    }
    // And who answers without the token is not process 0.
    let node = thread::spawn(move || Node::join(&Loopback, &invitation).map(drop));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&preamble::answer(&Token::new([4; 32]))).unwrap();
    let failure = node.join().unwrap().unwrap_err();
    assert!(failure.to_string().contains("is not process 0"), "{failure}");
}

/// A part in a job that notes what it is asked to do.
struct Asked {
    asked: Arc<Mutex<Vec<&'static str>>>,
    /// It runs until the job fails, and has ended well by then.
    until_failure: bool,
}

impl Asked {
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

impl Member for Asked {
    fn execute(&mut self, _: usize, _: i64) -> Result<Option<Parts>, Fault> {
        self.note("Execute");
        Ok(Some(Parts::new()))
    }
    fn prepare(&mut self, _: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        self.note("Prepare");
        Ok(vec![])
    }
    fn connect(&mut self, _: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        self.note("Connect");
        Ok(Parts::new())
    }
    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        self.note("Start");
        if self.until_failure {
            let (failed, failure) = channel();
            stops.set(move |failure| drop(failed.send(failure.clone())));
            failure.recv_timeout(PATIENCE).unwrap();
        }
        (Value::Null, Ok(()))
    }
    fn commit(&mut self) -> Result<(), Fault> {
        self.note("Commit");
        Ok(())
    }
}

/// What process 0 asks for from the set-up on to the end of a query.
fn life_of_a_query() -> [(&'static str, Request); 6] {
    let setup = Setup { processes: 2, fabric: "sim".into(), host: None, task: Value::Null };
    [
        ("Setup", Request::Setup(setup)),
        ("Execute", Request::Execute { statement: 0, start_us: 0 }),
        ("Prepare", Request::Prepare(vec![])),
        ("Connect", Request::Connect(vec![])),
        ("Start", Request::Start),
        ("Commit", Request::Commit),
    ]
}

/// Every step of a query, and the set-up before it, repeated at every later point of its life.
#[test]
fn a_replayed_step_ends_a_process_and_is_not_taken_twice() {
    let (listener, invitation) = play_process_0();
    let token = invitation.token;
    let life = life_of_a_query();
    for last in 0..life.len() {
        for (name, replayed) in &life[..=last] {
            if life[last].0 == "Commit" && *name == "Execute" {
                // The next statement.
                continue;
            }
            let asked = Arc::new(Mutex::new(Vec::new()));
            let member = Asked { asked: asked.clone(), until_failure: false };
            let invitation = invitation.clone();
            let node =
                thread::spawn(move || Node::join(&Loopback, &invitation)?.serve(|_, _| Ok(member)));
            let mut stream = let_in(&listener, &token);
            for request in life[..=last].iter().map(|(_, request)| request).chain([replayed]) {
                stream.write_all(&encode(request).unwrap()).unwrap();
            }
            let failure = node.join().unwrap().unwrap_err();
            let words = failure.to_string();
            let expected = format!("process 0 has sent a message out of turn: {name}");
            assert!(words.starts_with(&expected), "{words} after {}", life[last].0);
            let once: Vec<&str> = life[1..=last].iter().map(|(name, _)| *name).collect();
            assert_eq!(*asked.lock().unwrap(), once, "{name} replayed");
        }
    }
}

/// Once process 0 has asked for it, a result is committed in every process that is left: whatever
/// fails then, or who presses Ctrl-C, there is not half of it.
#[test]
fn who_is_asked_to_commit_does_so_whatever_fails_meanwhile() {
    let (listener, invitation) = play_process_0();
    let token = invitation.token;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let member = Asked { asked: asked.clone(), until_failure: true };
    let node = thread::spawn(move || Node::join(&Loopback, &invitation)?.serve(|_, _| Ok(member)));
    let mut stream = let_in(&listener, &token);
    let interrupted = ProcessFailure::new(0, Cause::Interrupted);
    let stop = Request::Stop(interrupted.clone());
    for request in life_of_a_query().into_iter().map(|(_, request)| request).chain([stop]) {
        if request == Request::Commit {
            // It runs, and goes on to the next request only when it has heard of the failure.
            let start = Instant::now();
            while asked.lock().unwrap().last() != Some(&"Start") {
                assert!(start.elapsed() < PATIENCE, "{asked:?}");
                thread::sleep(Duration::from_millis(1));
            }
        }
        stream.write_all(&encode(&request).unwrap()).unwrap();
    }
    assert_eq!(node.join().unwrap().unwrap_err(), interrupted);
    assert_eq!(asked.lock().unwrap().last(), Some(&"Commit"));
}
