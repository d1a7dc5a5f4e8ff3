//! Proof that the seeded tests notice faults: each is planted, and has to be found.

#[path = "../../tests/common/mod.rs"]
mod common;

use common::casting::{Order, disorder, draw, run_drawn};
use common::check;

use crate::cast::{Fault, PLANTED};

/// Whether one of some seeded runs with this fault breaks a promise of the flow.
fn is_caught(fault: Fault, order: Order) -> bool {
    std::panic::catch_unwind(|| {
        PLANTED.set(fault);
        for seed in 0..40 {
            let mut drawn = draw(seed, order, 60);
            drawn.plan.steps_max = 60_000;
            let (outcome, ..) = run_drawn(&drawn);
            check(&outcome, drawn.plan, drawn.targets);
            assert!(order == Order::OfPairs || disorder(&outcome.orders).is_none(), "disorder");
        }
    })
    .is_err()
}

#[test]
fn without_a_fault_all_runs_are_right() {
    for order in [Order::OfPairs, Order::OfFlow] {
        assert!(!is_caught(Fault::None, order), "{order:?}");
    }
}

#[test]
fn credit_that_skips_the_slowest_target_is_caught() {
    assert!(is_caught(Fault::SkipTheSlowest, Order::OfPairs));
}

#[test]
fn a_number_drawn_after_sending_is_caught() {
    assert!(is_caught(Fault::NumberAfterSending, Order::OfFlow));
}

#[test]
fn duplicates_that_are_kept_are_caught() {
    assert!(is_caught(Fault::KeepDuplicates, Order::OfPairs));
}

#[test]
fn an_end_that_is_sent_once_is_caught() {
    assert!(is_caught(Fault::EndOnce, Order::OfPairs));
}
