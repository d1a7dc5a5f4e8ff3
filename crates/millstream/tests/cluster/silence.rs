//! Tests of processes that fall silent.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use millstream::program::cluster::frame::{Frames, encode};
use millstream::program::cluster::message::{Reply, Request};
use millstream::program::cluster::{
    Cause, Fault, Invitation, Loopback, Node, ProcessFailure, SILENCE_MAX, Setup, preamble,
};
use millstream_fabric::setup::Token;
use serde_json::json;

use super::job::{Job, PATIENCE, Role, Stub, join_by_hand};

#[test]
fn silence_is_a_failure() {
    // It joins and says nothing more: no heartbeat either.
    let (send, joined) = channel();
    let job = Job::try_start(
        &[Some(Role::Endless), Some(Role::Endless), None],
        |_| "scan",
        |invitations| {
            let last = invitations[1].clone();
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
fn a_process_whose_coordinator_is_silent_or_gone_stops() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::new([3; 32]);
    let address = listener.local_addr().unwrap().to_string();
    let invitation = Invitation { address, process: 1, token };
    for silent in [true, false] {
        let invitation = invitation.clone();
        let node = thread::spawn(move || {
            Node::join(&Loopback, &invitation)?
                .serve(|_, _| Err::<Stub, _>(Fault::run("not reached")))
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
        assert_eq!(failure, ProcessFailure::new(0, cause));
    }
}

/// The channels of a process may be lost to process 0 before its silence on the control connection
/// counts.
#[test]
fn who_has_lost_a_silent_process_0_says_that_it_is_silent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::new([3; 32]);
    let address = listener.local_addr().unwrap().to_string();
    let invitation = Invitation { address, process: 1, token };
    let node = thread::spawn(move || {
        let lost = Fault::consequence("process 0 is gone: the channel's other side has failed");
        Node::join(&Loopback, &invitation)?.serve(|_, _| Err::<Stub, _>(lost))
    });
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; preamble::CALL_BYTES]).unwrap();
    stream.write_all(&preamble::answer(&token)).unwrap();
    let setup = Setup { processes: 2, fabric: "sim".into(), host: None, task: json!("task") };
    stream.write_all(&encode(&Request::Setup(setup)).unwrap()).unwrap();
    let failure = node.join().unwrap().unwrap_err();
    assert_eq!(failure, ProcessFailure::new(0, Cause::Silent(2000)));
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
