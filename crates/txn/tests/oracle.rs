//! Seeded random programs against an oracle that executes them one by one.
//!
//! `MILLSTREAM_SEEDS` sets the number of seeds of each test.

mod support;

use millstream_txn::{Counts, Scheme, Settings};
use support::case::Case;
use support::random::Random;
use support::{ORDERED, seeds, small_settings};

/// Steps of all workers on one thread, in an order that the seed draws.
fn stepped(scheme: Scheme, seeds: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let case = Case::random(&mut random, 40);
        let settings = small_settings(&mut random);
        let workers = 1 + random.index(4);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let ran = case.run_stepped(scheme, workers, settings, &mut random);
            case.check(scheme, ran)
        }));
        match result {
            Ok(of_case) => counts.add(&of_case),
            Err(panic) => {
                eprintln!("seed {seed} of {scheme:?}, {workers} workers");
                std::panic::resume_unwind(panic);
            }
        }
    }
    counts
}

#[test]
fn tstream_equals_one_by_one_execution_in_any_schedule() {
    let seeds = seeds(500);
    let counts = stepped(Scheme::TStream, seeds);
    println!("{counts:?}");
    // The cases have happened, in proportion to the seeds.
    let Counts { parked, decided, aborted, stolen, tail_pieces, .. } = counts;
    assert!(parked > seeds / 4 && decided > seeds && aborted > seeds / 4);
    assert!(stolen > seeds / 40 && tail_pieces > seeds / 40);
}

#[test]
fn schemes_with_locks_equal_one_by_one_execution_in_any_schedule() {
    for scheme in ORDERED.into_iter().filter(|scheme| *scheme != Scheme::TStream) {
        let seeds = seeds(250);
        let counts = stepped(scheme, seeds);
        assert!(counts.aborted > seeds / 2, "{scheme:?}: {counts:?}");
    }
}

#[test]
fn nocc_equals_execution_in_the_order_that_it_tells() {
    let seeds = seeds(250);
    let counts = stepped(Scheme::Nocc, seeds);
    println!("{counts:?}");
    assert!(counts.aborted > seeds / 2 && counts.retries > seeds / 2);
}

/// Threads instead of drawn schedules.
#[test]
fn threads_equal_one_by_one_execution() {
    let mut counts = Counts::default();
    for seed in 0..seeds(240) / 6 {
        let mut random = Random::new(seed ^ 0xABCD);
        let case = Case::random(&mut random, 400);
        let settings = Settings { solo_below: 0, ..small_settings(&mut random) };
        for scheme in ORDERED.into_iter().chain([Scheme::Nocc]) {
            for workers in 1..=4 {
                counts.add(&case.check(scheme, case.run_threads(scheme, workers, settings)));
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.parked > 0 && counts.aborted > 0 && counts.stolen > 0);
}
