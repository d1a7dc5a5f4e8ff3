//! A test that operations cost no allocation in the steady state. It is alone in its file because
//! it counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_txn::*;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Move {
    keys: [u64; 2],
    amount: u64,
}

struct Moves;

impl Application for Moves {
    type Event = Move;
    type Output = bool;

    fn post_process(&self, _: &Move, outcome: &Outcome<'_>) -> bool {
        outcome.verdict().is_ok()
    }
}

const KEYS: u64 = 500;
const EVENTS: u64 = 3000;

/// Allocations of a batch of transfers, after several such batches; and how many committed.
fn allocations(scheme: Scheme) -> (u64, usize) {
    let mut store = Store::new();
    let spec = TableSpec::new("accounts", 1, 2).check("not negative", |row| row[0] as i64 >= 0);
    let accounts = store.add(spec).unwrap();
    for key in 0..KEYS {
        store.insert(accounts, &[key], &[100, 0]).unwrap();
    }
    let mut program = Program::new("transfer");
    let key = |at: usize| Key::of(move |event: &Move, _| [event.keys[at]]);
    let read = program.read(accounts, key(0));
    program.require(&[read], "insufficient", |view| view.used(0).word(0) >= view.event().amount);
    program.update(accounts, key(0), &[], |view, row| row[0] -= view.event().amount);
    program.update(accounts, key(1), &[read], |view, row| row[0] += view.event().amount);
    let running = Manager::new(scheme, store).start(Moves, vec![program], 1).unwrap();
    let Running { mut numbering, mut workers, .. } = running;
    let (mut counts, mut committed) = ([0; 6], 0);
    for count in &mut counts {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for number in 0..EVENTS {
            // The same keys in each batch: what a batch needs most is known after the first.
            let keys = [number * 7 % KEYS, number * 13 % KEYS];
            let event = Move { keys, amount: number % 90 };
            workers[0].take(numbering.ticket(&event), event).unwrap();
        }
        workers[0].punctuate();
        workers[0].finish(&mut |is_committed| committed += usize::from(is_committed));
        *count = ALLOCATIONS.load(Ordering::Relaxed) - before;
    }
    (counts[5], committed)
}

#[test]
fn operations_allocate_nothing() {
    let schemes =
        [Scheme::TStream, Scheme::Lal, Scheme::Lwm, Scheme::Pat { partitions: 16 }, Scheme::Nocc];
    for scheme in schemes {
        let (count, committed) = allocations(scheme);
        assert!((1000..6 * EVENTS as usize - 1000).contains(&committed), "{scheme:?}: {committed}");
        // A batch of TStream is allocated as a whole.
        let most = if scheme == Scheme::TStream { 1 } else { 0 };
        assert!(count <= most, "{scheme:?}: {count} allocations in a batch of {EVENTS} events");
    }
}
