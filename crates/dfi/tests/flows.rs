//! Every kind of flow and goal, over every fabric that needs no network card.

mod common;

use std::net::{Ipv4Addr, SocketAddr};

use common::simulated;
use common::suite::suite;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::Model;
use millstream_fabric::tcp::TcpDevice;

#[test]
fn sim_every_kind_and_goal() {
    let (sim, devices) = simulated(1, Model::default(), 2);
    suite(&devices, 60, |_| {
        sim.step();
    });
}

fn shm(count: usize) -> Vec<ShmDevice> {
    let token = Token::random().unwrap();
    (0..count).map(|_| ShmDevice::open(token).unwrap()).collect()
}

fn tcp(count: usize) -> Vec<TcpDevice> {
    let token = Token::random().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    (0..count).map(|_| TcpDevice::open(token, address).unwrap()).collect()
}

#[test]
fn shm_every_kind_and_goal() {
    suite(&shm(2), 60, |_| {});
}

#[test]
fn tcp_every_kind_and_goal() {
    suite(&tcp(2), 60, |_| {});
}
