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

#[allow(dead_code, unused_imports, reason = "measurements use the rest")]
#[path = "mod.rs"]
mod store;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::time::Duration;

use millstream_fabric::sim::Model;

use store::{Load, Pace, Plan, Way, contradiction, run};

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
        pace: Pace::Events,
        client_nodes: 0,
    };
    let report = run(way, &plan)?;
    if !report.finished {
        return Err("some requests have no answer".into());
    }
    if let Some(key) = contradiction(&report.history) {
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
