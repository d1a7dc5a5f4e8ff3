//! Tests of endpoints over `verbs`: between endpoints of one process, and between processes.
//! `tests/rdma` runs them in a virtual machine, over the kernel's Soft-RoCE driver.

mod common;

use common::process::{PEER, between_processes, both_end, killed, peer};
use common::{Pattern, Shuffle, Work, patient, run_well, settings};
use millstream_fabric::verbs::{Options, Verbs};
use millstream_flow::shuffle::Design;

const ARGUMENTS: [&str; 4] = ["--ignored", "--exact", "as_another_process", "--nocapture"];

fn open() -> Verbs {
    // The kernel's driver copies packets in order; it only does not promise it.
    Verbs::open(&Options { ordered_placement: Some(true), ..Options::default() }).unwrap()
}

/// The conformance suite, in all designs and patterns.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn verbs_keep_all_promises() {
    let devices = [open(), open()];
    for design in Design::VARIANTS {
        for (pattern, (depth, credit_every, slow)) in
            Pattern::ALL.into_iter().zip([(1, 1, 1), (2, 2, 40), (4, 2, 1)])
        {
            let settings = patient(settings(design, depth, credit_every));
            let shuffle = Shuffle::new(&devices, settings, 2).unwrap();
            let work = Work { slow, ..Work::new(pattern, 20) };
            run_well(&shuffle, work, &mut |_| std::thread::yield_now());
            println!("{design} {pattern:?}: {:?}", shuffle.counters());
        }
    }
}

/// What this test's binary does as another process.
#[test]
#[ignore = "started by other tests"]
fn as_another_process() {
    let Ok(role) = std::env::var(PEER) else { return };
    let (role, design) = role.split_once(' ').unwrap();
    peer(&open(), between_processes(role, design.parse().unwrap()));
}

fn single() -> impl Iterator<Item = Design> {
    Design::VARIANTS.into_iter().filter(|design| design.name().starts_with("SE"))
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn verbs_go_there_and_back() {
    single().for_each(|design| both_end(&open(), design, "verbs", &ARGUMENTS));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn verbs_notice_a_killed_peer() {
    for design in single() {
        println!("{design}: {:?}", killed(&open(), design, "verbs", &ARGUMENTS));
    }
}
