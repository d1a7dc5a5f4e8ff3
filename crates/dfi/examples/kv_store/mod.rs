//! The nodes of the stores, and the simulated worlds of a run.

mod answers;
mod chance;
mod client;
mod history;
mod message;
mod nopaxos;
mod paxos;
mod world;

pub(crate) use chance::Chance;
pub(crate) use client::Load;
pub(crate) use history::contradiction;
pub(crate) use world::{Pace, Plan, Prices, Report};

use world::World;

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
    pub(crate) static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
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
