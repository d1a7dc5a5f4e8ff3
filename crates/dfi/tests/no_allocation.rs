//! A test that tuples and segments cost no allocation, over shared memory and over TCP. It is alone
//! in its program because it counts the whole process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Row, connect, shm, tcp, threads};
use millstream_dfi::{Bandwidth, Consumed, Flow, Latency, Optimise, Route};
use millstream_fabric::Fabric;

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

/// Allocations while `tuples` tuples pass to two targets, after as many have.
fn allocations<F: Fabric>(devices: &[F], flow: Flow, copies: u64, tuples: u64) -> u64 {
    let lists = (threads(1, 1, 0), threads(2, devices.len(), 100));
    let flow = flow.schema(Row::schema());
    let mut ends = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
    let (mut before, mut pushed, mut arrived) = (0, 0, 0);
    while arrived < copies * 2 * tuples {
        if pushed == tuples && before == 0 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        if pushed < 2 * tuples {
            pushed += u64::from(ends.sources[0].try_push(&Row::new(0, pushed)).unwrap());
        } else {
            ends.sources[0].try_flush().unwrap();
        }
        for target in &mut ends.targets {
            if let Consumed::Batch(batch) = target.try_consume().unwrap() {
                arrived += batch.len() as u64;
            }
        }
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn tuples_allocate_nothing() {
    let shm = shm(1);
    let goals: [Optimise; 2] = [
        Bandwidth { segment: 1024, segments: 4, source_segments: 2 }.into(),
        Latency { segments: 16 }.into(),
    ];
    let flows = || {
        goals.into_iter().flat_map(|goal| {
            let by = Route::by(|tuple, _| tuple[0] as usize % 2);
            [
                (Flow::shuffle("f").route(Route::Key("key")).optimise(goal), 1),
                (Flow::shuffle("f").route(by).optimise(goal), 1),
                (Flow::replicate("f").optimise(goal), 2),
                (Flow::replicate("f").optimise(goal).ordered(), 2),
            ]
        })
    };
    for (flow, copies) in flows() {
        assert_eq!(allocations(&shm, flow.clone(), copies, 5000), 0, "shm, {flow:?}");
    }
    // The cards of these devices are threads, so they are opened when shared memory is done.
    let tcp = tcp(2);
    let multicast = goals.into_iter().flat_map(|goal| {
        let flow = Flow::replicate("f").optimise(goal).multicast();
        [(flow.clone(), 2), (flow.ordered(), 2)]
    });
    for (flow, copies) in flows().chain(multicast) {
        // Lists of the card may still grow a little, when a heartbeat falls together with much
        // work.
        let count = allocations(&tcp, flow.clone(), copies, 5000);
        assert!(count < 10, "tcp, {flow:?}: {count} allocations");
    }
}
