//! Seeded runs in which a node stops at some step.

use std::collections::HashMap;
use std::time::Duration;

use millstream_dfi::{Error, Loss, Peer, Role};
use millstream_fabric::sim::{Sim, SimDevice};

use super::{Ends, Outcome, Plan, run_with};

/// A stop. Each end has a node of its own, sources first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// The node that stops, and the step.
    pub(crate) node: usize,
    pub(crate) at_step: usize,
    /// Time of a step afterwards: ends have to be called before their peers count as lost.
    pub(crate) pause: Duration,
}

/// Runs until all are done or failed. Every error comes within two seconds of the stop and names a
/// lost peer, no end waits for ever, and what arrived is sound.
pub(crate) fn run_with_a_stop(
    ends: &mut Ends<SimDevice>,
    plan: Plan,
    (sim, devices): (&Sim, &[SimDevice]),
    stop: Stop,
) -> Outcome {
    let mut gone = None;
    let all = vec![false; devices.len()];
    let outcome = run_with(
        ends,
        plan,
        |step, done| {
            if step == stop.at_step {
                sim.stop(&devices[stop.node]);
                gone = Some(sim.now());
                done[stop.node] = true;
            }
            sim.advance(if gone.is_some() { stop.pause } else { Duration::from_micros(2) });
            sim.now()
        },
        all,
    );
    let (gone, seed) = (gone.unwrap_or(sim.now()), plan.seed);
    for (at, error, time) in outcome.source_errors.iter().chain(&outcome.target_errors) {
        assert!(matches!(error, Error::PeerLost { .. }), "seed {seed}, end {at}: {error}");
        let after = time.saturating_sub(gone);
        assert!(after <= Duration::from_secs(2), "seed {seed}, end {at}: {after:?}: {outcome:?}");
    }
    assert_eq!(outcome.unfinished, 0, "seed {seed}: an end waits for ever");
    assert!(is_sound(&outcome), "seed {seed}");
    outcome
}

/// Whether what arrived of a source at a target is in order, nothing twice, nothing damaged.
fn is_sound(outcome: &Outcome) -> bool {
    let sorted = |numbers: &Vec<u64>| numbers.is_sorted_by(|a, b| a < b);
    outcome.damaged == 0 && outcome.arrived.iter().flat_map(HashMap::values).all(sorted)
}

/// Checks a replicate flow that drops lost ends. The others go on, and each is told once of the
/// stopped end. Returns how often that was told.
pub(crate) fn check_dropping(
    ends: &mut Ends<SimDevice>,
    outcome: &Outcome,
    plan: Plan,
    stopped: usize,
) -> usize {
    let (sources, targets, seed) = (ends.sources.len(), ends.targets.len(), plan.seed);
    // Only sources that have lost all their targets fail.
    let only = stopped >= sources && targets == 1;
    assert!(only || outcome.source_errors.is_empty(), "seed {seed}: {:?}", outcome.source_errors);
    assert!(outcome.target_errors.is_empty(), "seed {seed}: {:?}", outcome.target_errors);
    let mut times = 0;
    let mut told = |losses: Vec<Loss>, lost: &dyn Fn(Peer) -> bool| {
        assert!(losses.len() <= 1 && losses.iter().all(|loss| lost(loss.peer)), "seed {seed}");
        times += losses.len();
    };
    for (at, arrived) in outcome.arrived.iter().enumerate() {
        if at + sources == stopped {
            continue;
        }
        for source in 0..sources {
            let numbers = arrived.get(&(source as u64)).map_or(&[][..], Vec::as_slice);
            // Without a gap from the start; all of it, but for the lost source.
            assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "seed {seed}");
            let whole = numbers.len() as u64 == plan.tuples;
            assert!(whole || source == stopped || only, "seed {seed}: source {source}");
        }
        let lost = |peer: Peer| peer.role == Role::Source && peer.index as usize == stopped;
        told(ends.targets[at].take_losses(), &lost);
        assert!(ends.targets[at].take_losses().is_empty(), "seed {seed}: told twice");
    }
    for (_, source) in ends.sources.iter_mut().enumerate().filter(|(at, _)| *at != stopped) {
        let lost =
            |peer: Peer| peer.role == Role::Target && peer.index as usize + sources == stopped;
        told(source.take_losses(), &lost);
    }
    times
}
