//! Endpoints of two processes, over shared memory and TCP.

mod common;

use common::process::{PEER, TOKEN, between_processes, both_end, killed, peer};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_flow::shuffle::Design;

const ARGUMENTS: [&str; 3] = ["as_peer", "--exact", "--nocapture"];

fn shm() -> ShmDevice {
    ShmDevice::open(Token::new(TOKEN)).unwrap()
}

fn tcp() -> TcpDevice {
    TcpDevice::open(Token::new(TOKEN), "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// What this test's binary does as another process.
#[test]
fn as_peer() {
    let Ok(role) = std::env::var(PEER) else { return };
    let (role, design) = role.split_once(' ').unwrap();
    let settings = between_processes(role, design.parse().unwrap());
    match &role[..3] {
        "shm" => peer(&shm(), settings),
        _ => peer(&tcp(), settings),
    }
}

/// One of each implementation and notification.
fn single() -> impl Iterator<Item = Design> {
    Design::VARIANTS.into_iter().filter(|design| design.name().starts_with("SE"))
}

#[test]
fn shm_goes_there_and_back() {
    single().for_each(|design| both_end(&shm(), design, "shm", &ARGUMENTS));
}

#[test]
fn tcp_goes_there_and_back() {
    single().for_each(|design| both_end(&tcp(), design, "tcp", &ARGUMENTS));
}

#[test]
fn shm_notices_a_killed_peer() {
    for design in single() {
        let time = killed(&shm(), design, "shm", &ARGUMENTS);
        println!("{design}: {time:?}");
    }
}

#[test]
fn tcp_notices_a_killed_peer() {
    for design in single() {
        let time = killed(&tcp(), design, "tcp", &ARGUMENTS);
        println!("{design}: {time:?}");
    }
}
