//! Tests of the control plane, over real sockets. The processes are threads here and do next to
//! nothing.

mod differences;
mod job;
mod seams;
mod silence;
mod strangers;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use millstream::program::cluster::frame::{Frames, encode};
use millstream::program::cluster::message::{PackedHello, Reply, Request};
use millstream::program::cluster::{
    Cause, Cluster, Fault, FaultKind, Interrupt, Invitation, Loopback, Member, Parts,
    ProcessFailure, Stops,
};
use millstream_contract::table::SplitSpec;
use millstream_fabric::setup::Hello;
use serde_json::{Value, json};

use job::{Job, Lines, PATIENCE, Role, Stub, elsewhere, hello, join_by_hand};

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
    for end in ends {
        assert_eq!(end.unwrap_err(), failure);
    }
}

#[test]
fn the_failure_of_one_stops_all_and_all_know_whose_it_was() {
    for failing in 0..4 {
        let mut roles = [Some(Role::Endless); 4];
        roles[failing] = Some(Role::Failing);
        let (failure, ends) = Job::start(&roles).fail();
        let fault = Fault::run("cannot write out.csv: No space left on device");
        assert_eq!(failure, ProcessFailure::new(failing, Cause::Fault(fault)));
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
            let last = invitations[1].clone();
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
fn a_job_is_interrupted_while_processes_join_and_who_comes_later_is_told() {
    let cluster = Cluster::open(Arc::new(Loopback), 3, Lines::default().log()).unwrap();
    let interrupt = cluster.interrupt();
    let mut invited = Vec::new();
    let failure = cluster.start(&elsewhere(3, |invitations: &[Invitation]| {
        invited.extend_from_slice(invitations);
        // Nobody joins.
        interrupt.stop();
    }));
    assert_eq!(failure, Err(ProcessFailure::new(0, Cause::Interrupted)));
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
    assert_eq!(failure, ProcessFailure::new(0, Cause::Interrupted));
    for end in ends {
        assert_eq!(end.unwrap_err(), failure);
    }
}

/// Process 0's part, in which somebody presses Ctrl-C while the result is committed.
struct Impatient(Stub, Interrupt);

impl Member for Impatient {
    fn execute(&mut self, statement: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        self.0.execute(statement, start_us)
    }
    fn prepare(&mut self, splits: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        self.0.prepare(splits)
    }
    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        self.0.connect(hellos)
    }
    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        self.0.run(stops)
    }
    fn commit(&mut self) -> Result<(), Fault> {
        self.1.stop();
        self.0.commit()
    }
}

#[test]
fn a_result_that_is_being_committed_is_not_interrupted_but_what_follows_is() {
    let Job { cluster, own, others, running: _running, .. } = Job::start(&[Some(Role::Quick); 3]);
    let (cluster, commits) = (cluster.unwrap(), own.commits.clone());
    let mut own = Impatient(own, cluster.interrupt());
    cluster.set_up("sim", &json!("task"), || Ok(())).unwrap();
    assert!(cluster.execute(&mut own, 1, 17).unwrap());
    cluster.connect(&mut own).unwrap();
    assert_eq!(cluster.run(&mut own).unwrap().len(), 3);
    assert_eq!(commits.load(Ordering::SeqCst), 3, "all have committed");
    let interrupted = ProcessFailure::new(0, Cause::Interrupted);
    let failure = cluster.execute(&mut own, 2, 17).unwrap_err();
    assert_eq!(cluster.give_up(failure).0, interrupted);
    for other in others {
        assert_eq!(other.join().unwrap().unwrap_err(), interrupted);
    }
}

#[test]
fn the_reason_is_told_rather_than_what_followed_from_it() {
    let job = Job::start(&[Some(Role::Endless), Some(Role::Losing), Some(Role::Failing)]);
    let (failure, _) = job.fail();
    assert_eq!(failure.process, 2);
    assert!(matches!(failure.cause, Cause::Fault(Fault { kind: FaultKind::Run, .. })));
}
