//! A replicated key-value store, in two ways (thesis, sections 7.4.3.2 and 7.6.3.2): Multi-Paxos
//! over four flows, and NOPaxos over an ordered flow. A third way is a stand-in after DARE, made
//! here: each client has one request outstanding, and writes are serialised.
//!
//! A store goes on with a majority when followers are lost. A lost leader ends it: there is no
//! leader change, as in the thesis. All flows drop lost followers, which then hold nobody's credit.
//!
//! The program runs a store in a simulated network that loses one datagram in a thousand, and
//! checks that the answers are linearizable. It measures no time: all nodes share one thread.
//!
//!     cargo run --release -p millstream-dfi --example kv_store -- [paxos|nopaxos|dare] [REQUESTS]

mod client;
mod history;
mod message;
mod nopaxos;
mod paxos;
#[cfg(test)]
mod tests;
mod world;

use std::error::Error;
use std::time::Duration;

use millstream_fabric::sim::Model;

use client::Load;
use world::{Plan, Report, World};

/// The only source of chance (SplitMix64).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// Faults that the tests plant, and that the search for a linearization has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Multi-Paxos: the leader answers at once, and not when a majority has voted.
    AnswersBeforeVotes,
    /// NOPaxos: a client takes a write for done without the leader's answer.
    AnswersWithoutLeader,
    /// NOPaxos: the leader executes a request again that was sent again.
    ExecutesTwice,
}

#[cfg(test)]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether a test has planted this fault.
fn planted(bug: Bug) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(bug);
    #[cfg(not(test))]
    {
        let _ = bug;
        false
    }
}

/// The stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Paxos,
    NoPaxos,
    /// The stand-in after DARE.
    Dare,
}

/// Runs a store.
pub(crate) fn run(way: Way, plan: &Plan) -> millstream_dfi::Result<Report> {
    let world = World::new(plan);
    match way {
        Way::Paxos => paxos::run(&world, plan, false),
        Way::NoPaxos => nopaxos::run(&world, plan),
        Way::Dare => {
            let load = Load { outstanding: 1, ..plan.load };
            paxos::run(&world, &Plan { load, ..*plan }, true)
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let way = match arguments.next().as_deref() {
        None | Some("nopaxos") => Way::NoPaxos,
        Some("paxos") => Way::Paxos,
        Some("dare") => Way::Dare,
        Some(other) => return Err(format!("{other:?} is not paxos, nopaxos or dare").into()),
    };
    let requests = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    // The thesis' set-up: five replicas, six clients, 5 % writes.
    let load = Load {
        requests,
        outstanding: 8,
        // Few operations on each key: their orders are searched.
        keys: requests.max(1000) as usize,
        writes: 5,
        again: (way == Way::NoPaxos).then_some(Duration::from_millis(5)),
    };
    let plan = Plan {
        seed: 1,
        followers: 4,
        clients: 6,
        load,
        model: Model { datagram_loss: 0.001, ..Model::default() },
        segments: 64,
        stop: None,
        silence: Duration::from_millis(750),
        steps_max: u64::MAX,
        pace: None,
    };
    let report = run(way, &plan)?;
    if !report.finished {
        return Err("some requests have no answer".into());
    }
    if let Some(key) = history::contradiction(&report.history) {
        return Err(format!("no order explains the answers for key {key}").into());
    }
    if !report.logs_agree {
        return Err("the replicas' logs differ".into());
    }
    let all = report.history.len();
    println!("{way:?}: the answers to {all} requests are linearizable");
    println!(
        "{} slots filled, {} no-ops, {} requests sent again",
        report.fills, report.no_ops, report.sent_again
    );
    Ok(())
}
