//! Tests of the ring with a model checker: every interleaving, under the memory model.
//!
//! The source's READ of a footer is a load here, and its WRITE of a segment a store of the payload
//! and then of the footer, as a network card does them.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;
use millstream_flow::channel::footer::Footer;
use millstream_flow::link::lap_name;

use crate::ring::{Shape, is_free};

const SEGMENTS: usize = 2;

const SHAPE: Shape = Shape {
    payload: 16,
    segments: SEGMENTS,
    source_segments: 1,
    latency: false,
    ask_below: None,
    checksum: false,
    ordered: false,
};

/// A ring in the target's memory, and the count for latency.
struct Ring {
    payloads: [UnsafeCell<u64>; SEGMENTS],
    footers: [AtomicU64; SEGMENTS],
    count: AtomicU64,
}

// SAFETY: the payloads are what the model is about: loom reports every access that races.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Arc<Ring> {
        Arc::new(Ring {
            payloads: std::array::from_fn(|_| UnsafeCell::new(0)),
            footers: std::array::from_fn(|_| AtomicU64::new(Footer::FREE.encode(0))),
            count: AtomicU64::new(SEGMENTS as u64),
        })
    }

    /// Whether the footer says that segment `number` may be written.
    fn may_write(&self, number: u64) -> bool {
        let word = self.footers[number as usize % SEGMENTS].load(Acquire);
        let free = is_free(word, SHAPE.lap_before(number), SHAPE.payload);
        free.expect("a footer of another lap")
    }

    fn write(&self, number: u64) {
        let slot = number as usize % SEGMENTS;
        // SAFETY: the segment is free; loom checks that nobody reads it.
        self.payloads[slot].with_mut(|payload| unsafe { *payload = number * 10 });
        let footer = Footer::full(16).encode(lap_name(number / SEGMENTS as u64));
        self.footers[slot].store(footer, Release);
    }

    /// Waits for segment `number`, and reads it.
    fn read(&self, number: u64) -> u64 {
        let slot = number as usize % SEGMENTS;
        let lap = lap_name(number / SEGMENTS as u64);
        loop {
            let word = self.footers[slot].load(Acquire);
            match Footer::decode(word, lap, SHAPE.payload) {
                Some(footer) => assert_eq!(footer, Ok(Footer::full(16))),
                None => {
                    thread::yield_now();
                    continue;
                }
            }
            // SAFETY: the footer proves that the segment is complete; loom checks that nobody
            // writes it.
            return self.payloads[slot].with(|payload| unsafe { *payload });
        }
    }

    fn set_free(&self, number: u64) {
        let free = Footer::FREE.encode(lap_name(number / SEGMENTS as u64));
        self.footers[number as usize % SEGMENTS].store(free, Release);
    }
}

/// A source that writes three segments when `may_write` says so, and a target that reads each with
/// `consume`.
fn hand_over(
    may_write: impl Fn(&Ring, u64) -> bool + Send + Sync + Copy + 'static,
    consume: impl Fn(&Ring, u64) -> u64 + Send + Sync + Copy + 'static,
) {
    loom::model(move || {
        let ring = Ring::new();
        let source = {
            let ring = ring.clone();
            thread::spawn(move || {
                for number in 0..3 {
                    while !may_write(&ring, number) {
                        thread::yield_now();
                    }
                    ring.write(number);
                }
            })
        };
        for number in 0..3 {
            assert_eq!(consume(&ring, number), number * 10);
        }
        source.join().unwrap();
    });
}

fn consume_and_free(ring: &Ring, number: u64) -> u64 {
    let payload = ring.read(number);
    ring.set_free(number);
    payload
}

#[test]
fn footers_hand_segments_over_and_back() {
    hand_over(Ring::may_write, consume_and_free);
}

#[test]
fn a_count_hands_segments_over_and_back() {
    hand_over(
        |ring, number| number < ring.count.load(Acquire),
        |ring, number| {
            let payload = ring.read(number);
            ring.count.store(number + 1 + SEGMENTS as u64, Release);
            payload
        },
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_source_that_does_not_ask_overwrites() {
    hand_over(|_, _| true, consume_and_free);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_target_that_frees_too_early_is_overwritten() {
    hand_over(Ring::may_write, |ring, number| {
        let slot = number as usize % SEGMENTS;
        let lap = lap_name(number / SEGMENTS as u64);
        while Footer::decode(ring.footers[slot].load(Acquire), lap, SHAPE.payload).is_none() {
            thread::yield_now();
        }
        ring.set_free(number);
        // SAFETY: none: the segment is free, and loom finds the race.
        ring.payloads[slot].with(|payload| unsafe { *payload })
    });
}
