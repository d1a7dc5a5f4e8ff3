//! A flow between processes, which find each other by the registry of one of them. The test's
//! binary starts itself as the other process.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Row};
use millstream_dfi::{
    Error, Flow, RegistryClient, RegistryService, Role, SourceSetup, TargetSetup, Thread,
};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;

/// The other process' fabric, role and registry.
const PEER: &str = "MILLSTREAM_TEST_FLOW_PEER";
const TUPLES: u64 = 20_000;
const TOKEN: [u8; 32] = [9; 32];

fn token() -> Token {
    Token::new(TOKEN)
}

fn tcp() -> TcpDevice {
    TcpDevice::open(token(), (Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// Not a test: the program of the other process, which has one source. It closes in order, or
/// pushes until it is killed.
#[test]
fn the_other_process() {
    let Ok(peer) = std::env::var(PEER) else { return };
    let mut words = peer.split(' ');
    let mut word = || words.next().unwrap();
    let (fabric, role, address) = (word(), word(), word());
    match fabric {
        "shm" => other(&ShmDevice::open(token()).unwrap(), role, address.parse().unwrap()),
        _ => other(&tcp(), role, address.parse().unwrap()),
    }
}

fn other<F: Fabric>(device: &F, role: &str, registry: SocketAddr) {
    let registry = RegistryClient::new(token(), registry);
    let thread = Thread::new(1, 0);
    let source = SourceSetup::join(device, &registry, "f", thread, PATIENCE).unwrap();
    let mut source = source.connect(&registry, PATIENCE).unwrap();
    for number in (0..).take_while(|number| role == "killed" || *number < TUPLES) {
        source.push(&Row::new(0, number)).unwrap();
    }
    source.close().unwrap();
}

struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // It may be dead already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A target here, a source there.
fn between<F: Fabric>(device: &F, fabric: &str, role: &str, flow: Flow) {
    let service = RegistryService::open(token(), (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let thread = Thread::new(0, 0);
    flow.sources([Thread::new(1, 0)])
        .targets([thread])
        .schema(Row::schema())
        .publish(service.local())
        .unwrap();
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["processes::the_other_process", "--exact"])
        .env(PEER, format!("{fabric} {role} {}", service.address()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut other = Other(process);
    let target = TargetSetup::join(device, service.local(), "f", thread, PATIENCE).unwrap();
    let mut target = target.connect(service.local(), PATIENCE).unwrap();
    let (mut expected, mut killed) = (0, None);
    let ended = loop {
        match target.consume() {
            Ok(Some(batch)) => {
                for row in batch.rows::<Row>().unwrap() {
                    assert_eq!(*row, Row::new(0, expected));
                    expected += 1;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        if role == "killed" && killed.is_none() && expected > TUPLES {
            other.0.kill().unwrap();
            killed = Some(Instant::now());
        }
    };
    match (ended, killed) {
        (Ok(()), None) => assert_eq!(expected, TUPLES),
        (Err(Error::PeerLost { peer, .. }), Some(killed)) => {
            assert_eq!((peer.role, peer.thread), (Role::Source, Thread::new(1, 0)));
            assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
        }
        (ended, _) => panic!("{ended:?}"),
    }
    let status = other.0.wait().unwrap();
    assert_eq!(status.success(), role != "killed");
}

#[test]
fn a_flow_between_processes() {
    between(&ShmDevice::open(token()).unwrap(), "shm", "whole", Flow::shuffle("f"));
    between(&tcp(), "tcp", "whole", Flow::shuffle("f"));
    between(&tcp(), "tcp", "whole", Flow::replicate("f").multicast());
    between(&tcp(), "tcp", "whole", Flow::replicate("f").multicast().ordered());
}

#[test]
fn a_process_that_is_killed() {
    between(&ShmDevice::open(token()).unwrap(), "shm", "killed", Flow::shuffle("f"));
    between(&tcp(), "tcp", "killed", Flow::shuffle("f"));
    // The other test's flow uses the same group: each ignores the datagrams of the other.
    between(&tcp(), "tcp", "killed", Flow::replicate("f").multicast());
    between(&tcp(), "tcp", "killed", Flow::replicate("f").multicast().ordered());
}
