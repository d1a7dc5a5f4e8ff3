//! Every kind of flow and goal, over every fabric that needs no network card.

use crate::common::suite::suite;
use crate::common::{shm, simulated, tcp};
use millstream_fabric::sim::Model;

#[test]
fn sim_every_kind_and_goal() {
    let (sim, devices) = simulated(1, Model::default(), 2);
    suite(&devices, 60, |_| {
        sim.step();
    });
}

#[test]
fn shm_every_kind_and_goal() {
    suite(&shm(2), 60, |_| {});
}

#[test]
fn tcp_every_kind_and_goal() {
    suite(&tcp(2), 60, |_| {});
}
