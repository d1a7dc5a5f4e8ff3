//! Models of the pool, the decision and the latch: every interleaving, under the memory model.
//!
//! The files of these parts are compiled again here, with loom's atomics.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
}
#[path = "decision.rs"]
#[allow(dead_code, reason = "models need a part of it")]
mod decision;
#[path = "latch.rs"]
#[allow(dead_code, reason = "models need a part of it")]
mod latch;
#[path = "pool.rs"]
#[allow(dead_code, reason = "models need a part of it")]
mod pool;

use decision::{Gate, Missing};
use latch::Latch;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;
use pool::Stack;

/// A number that loom watches: two accesses of which one writes must be ordered.
struct Watched(UnsafeCell<u64>);

// SAFETY: loom reports every access that races; this is what the models are about.
unsafe impl Sync for Watched {}

impl Watched {
    fn new() -> Watched {
        Watched(UnsafeCell::new(0))
    }

    fn get(&self) -> u64 {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&self, value: u64) {
        // SAFETY: loom checks that nobody reads or writes.
        self.0.with_mut(|place| unsafe { *place = value });
    }
}

/// Two chains, on the same transaction and then each on a later write of its own, and two workers.
struct World {
    records: [Watched; 2],
    captured: Watched,
    verdict: Watched,
    missing: Missing,
    gates: [Gate; 2],
    pool: Stack,
    links: [AtomicU32; 2],
    finished: AtomicU32,
    decisions: AtomicU32,
}

impl World {
    fn new(inputs: u32) -> Arc<World> {
        let world = World {
            records: std::array::from_fn(|_| Watched::new()),
            captured: Watched::new(),
            verdict: Watched::new(),
            missing: Missing::new(),
            gates: std::array::from_fn(|_| Gate::new()),
            pool: Stack::new(),
            links: std::array::from_fn(|_| AtomicU32::new(0)),
            finished: AtomicU32::new(0),
            decisions: AtomicU32::new(0),
        };
        world.missing.set(inputs);
        Arc::new(world)
    }

    /// Opens the gate of a chain, and wakes the chain if it is parked.
    fn open(&self, chain: usize) {
        if self.gates[chain].open() {
            self.pool.push(chain as u32, &self.links[chain]);
        }
    }

    /// The later write of a chain, which is its end.
    fn end(&self, chain: usize) {
        self.records[chain].set(self.records[chain].get() + 1);
        self.finished.fetch_add(1, Release);
    }

    /// Walks along chains that were woken, until both are at their ends.
    fn walk_woken(&self) {
        while self.finished.load(Acquire) < 2 {
            match self.pool.pop(|chain| &self.links[chain as usize]) {
                Some(chain) => {
                    assert!(self.gates[chain as usize].is_open(), "woken after the decision");
                    self.end(chain as usize);
                }
                None => thread::yield_now(),
            }
        }
    }
}

/// Runs `walk` of chain 0 and chain 1 on two threads, then both walk what is woken.
fn on_two_workers(inputs: u32, walk: fn(&World, usize)) {
    loom::model(move || {
        let world = World::new(inputs);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                walk(&world, 1);
                world.walk_woken();
            })
        };
        walk(&world, 0);
        world.walk_woken();
        other.join().unwrap();
        assert_eq!(world.decisions.load(Relaxed), 1, "decided once");
        assert_eq!(world.finished.load(Relaxed), 2, "each chain comes to its end once");
        assert_eq!(world.records.each_ref().map(Watched::get), [11, 11]);
    });
}

/// Both chains bring an input, and the transaction writes both records.
fn walk_member(world: &World, chain: usize) {
    world.gates[chain].park_ahead();
    if !world.missing.arrive() {
        return;
    }
    world.decisions.fetch_add(1, Relaxed);
    world.records.iter().for_each(|record| record.set(record.get() + 10));
    world.gates[chain].open();
    world.open(1 - chain);
    world.end(chain);
}

#[test]
fn the_last_of_two_members_decides_and_wakes_the_other() {
    on_two_workers(2, walk_member);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_chain_that_goes_on_after_parking_is_noticed() {
    on_two_workers(2, |world, chain| {
        world.gates[chain].park_ahead();
        if world.missing.arrive() {
            world.decisions.fetch_add(1, Relaxed);
            world.records.iter().for_each(|record| record.set(10));
        } else {
            world.records[chain].get();
        }
        world.end(chain);
    });
}

/// Chain 0 brings the only input, and goes on. Chain 1 follows the decision.
fn walk_source_or_follower(world: &World, chain: usize) {
    if chain == 0 {
        world.captured.set(world.records[0].get() + 10);
        if world.missing.arrive() {
            world.decisions.fetch_add(1, Relaxed);
            world.verdict.set(world.captured.get());
            world.open(1);
        }
        world.records[0].set(10);
        world.end(0);
        return;
    }
    if !world.gates[1].is_open() && world.gates[1].park() {
        return;
    }
    world.records[1].set(world.verdict.get());
    world.end(1);
}

#[test]
fn a_follower_parks_or_sees_the_verdict() {
    loom::model(|| {
        let world = World::new(1);
        let other = {
            let world = world.clone();
            thread::spawn(move || walk_source_or_follower(&world, 1))
        };
        walk_source_or_follower(&world, 0);
        other.join().unwrap();
        // The follower has parked or has run, and never both.
        let woken = world.pool.pop(|chain| &world.links[chain as usize]);
        let finished = world.finished.load(Acquire);
        assert_eq!(finished + u32::from(woken.is_some()), 2);
        assert_eq!(world.verdict.get(), 10);
        assert_eq!(world.records[0].get(), 11);
        assert_eq!(world.records[1].get(), if woken.is_some() { 0 } else { 11 });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_input_that_is_counted_before_it_is_there_is_noticed() {
    loom::model(|| {
        let world = World::new(2);
        let bring = |world: &World| {
            let is_last = world.missing.arrive();
            world.captured.set(1);
            if is_last {
                world.captured.get();
            }
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || bring(&world))
        };
        bring(&world);
        other.join().unwrap();
    });
}

#[test]
fn a_number_in_the_pool_is_taken_once() {
    loom::model(|| {
        let stack = Arc::new((Stack::new(), [(); 3].map(|()| AtomicU32::new(0))));
        let pop = |(stack, links): &(Stack, [AtomicU32; 3])| stack.pop(|at| &links[at as usize]);
        stack.0.push(0, &stack.1[0]);
        stack.0.push(1, &stack.1[1]);
        // The head goes and comes back while the other thread may be about to replace it.
        let other = {
            let stack = stack.clone();
            thread::spawn(move || {
                let first = pop(&stack);
                let second = pop(&stack);
                if let Some(number) = first {
                    stack.0.push(number, &stack.1[number as usize]);
                }
                second
            })
        };
        let mut taken: Vec<u32> = pop(&stack).into_iter().collect();
        taken.extend(other.join().unwrap());
        taken.extend(std::iter::from_fn(|| pop(&stack)));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert!(stack.0.is_empty());
    });
}

#[test]
fn behind_the_latch_all_pieces_are_seen() {
    const PIECES: u32 = 3;
    loom::model(|| {
        let shared = Arc::new((Latch::new(), [(); PIECES as usize].map(|()| Watched::new())));
        let work = |(latch, pieces): &(Latch, [Watched; PIECES as usize])| {
            while let Some((first, end)) = latch.take(1, PIECES) {
                assert_eq!(end, first + 1);
                pieces[first as usize].set(pieces[first as usize].get() + 1);
                latch.finish(1);
            }
            while !latch.is_down(PIECES) {
                thread::yield_now();
            }
            pieces.iter().for_each(|piece| assert_eq!(piece.get(), 1));
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || work(&shared))
        };
        work(&shared);
        other.join().unwrap();
    });
}
