//! Proof that the seeded tests notice faults: each fault is planted, and has to be found.

#[path = "../tests/support/mod.rs"]
mod support;

use crate::planted::{Fault, PLANTED};
use crate::{Scheme, Settings};
use support::case::Case;
use support::random::Random;
use support::{ORDERED, small_settings};

/// Runs of each fault, until one differs.
const SEEDS: u64 = 3000;

/// Whether one of some seeded runs with this fault differs from one by one execution.
fn is_caught(fault: Option<Fault>, scheme: Scheme) -> bool {
    let caught = std::panic::catch_unwind(|| {
        PLANTED.set(fault);
        for seed in 0..SEEDS {
            let mut random = Random::new(seed);
            let case = Case::random(&mut random, 40);
            let settings = Settings { solo_below: 0, ..small_settings(&mut random) };
            let workers = 2 + random.index(3);
            let ran = case.run_stepped(scheme, workers, settings, &mut random);
            case.check(scheme, ran);
        }
    })
    .is_err();
    PLANTED.set(None);
    caught
}

#[test]
fn without_a_fault_all_runs_are_right() {
    for scheme in ORDERED.into_iter().chain([Scheme::Nocc]) {
        assert!(!is_caught(None, scheme), "{scheme:?}");
    }
}

macro_rules! caught {
    ($($name:ident, $fault:ident, $scheme:expr;)*) => {$(
        #[test]
        fn $name() {
            assert!(is_caught(Some(Fault::$fault), $scheme));
        }
    )*};
}

caught! {
    a_chain_that_does_not_wait, SkipWait, Scheme::TStream;
    an_abort_that_leaves_a_version, AbortLeavesVersion, Scheme::TStream;
    a_read_that_sees_a_later_write, LateRead, Scheme::TStream;
    a_decision_from_half_of_the_inputs, HalfOfInputs, Scheme::TStream;
    an_order_by_arrival, OrderOfArrival, Scheme::TStream;
    results_before_the_end, EarlyPunctuation, Scheme::TStream;
    a_lost_waking, LostWaking, Scheme::TStream;
    records_that_stay, NoSweep, Scheme::TStream;
    records_that_stay_behind_locks, NoSweep, Scheme::Lal;
    lal_without_waiting, SkipGrant, Scheme::Lal;
    lwm_without_waiting, SkipGrant, Scheme::Lwm;
    lwm_that_reads_the_latest_version, LatestVersion, Scheme::Lwm;
    pat_that_waits_for_one_partition, OnePartition, Scheme::Pat { partitions: 7 };
    nocc_without_undo, NoUndo, Scheme::Nocc;
    nocc_that_numbers_late, LateNumber, Scheme::Nocc;
}
