//! Tests of the rule for sleeping and waking with a model checker: every interleaving, under the
//! memory model.
//!
//! A thread of its own does what a network card would do later.

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Notify};
use loom::thread;

use crate::channel::footer::{Footer, lap_name};
use crate::link::handover::{Words, announce, may_sleep};

const SLOTS: usize = 2;

/// A ring and the words around it.
struct Ring {
    payloads: [UnsafeCell<u64>; SLOTS],
    footers: [AtomicU64; SLOTS],
    /// Credit, in the producer's memory.
    released: AtomicU64,
    /// How much was sent, in the producer's memory.
    announced: AtomicU64,
    /// The consumer's flag, in the producer's memory.
    parked: AtomicU64,
    wake: Notify,
}

// SAFETY: the payloads are what the model is about: loom reports every access that races.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Arc<Ring> {
        Arc::new(Ring {
            payloads: std::array::from_fn(|_| UnsafeCell::new(0)),
            footers: std::array::from_fn(|_| AtomicU64::new(0)),
            released: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            wake: Notify::new(),
        })
    }

    fn send(&self, number: u64) {
        let slot = number as usize % SLOTS;
        // SAFETY: there is credit for the slot; loom checks that nobody reads it.
        self.payloads[slot].with_mut(|payload| unsafe { *payload = number * 10 });
        let footer = Footer::full(8).encode(lap_name(number / SLOTS as u64));
        self.footers[slot].store(footer, Release);
    }

    fn look(&self, number: u64) -> Option<u64> {
        let slot = number as usize % SLOTS;
        let word = self.footers[slot].load(Acquire);
        let footer = Footer::decode(word, lap_name(number / SLOTS as u64), 100)?;
        assert_eq!(footer, Ok(Footer::full(8)));
        // SAFETY: the footer proves that the slot is complete; loom checks that nobody writes it.
        Some(self.payloads[slot].with(|payload| unsafe { *payload }))
    }
}

impl Words for Ring {
    fn announce(&self, count: u64) {
        self.announced.store(count, Relaxed);
    }

    fn fence(&self) {
        fence(SeqCst);
    }

    fn peer_flag(&self) -> u64 {
        self.parked.load(Relaxed)
    }
}

#[test]
fn slots_are_handed_over_and_back() {
    loom::model(|| {
        let ring = Ring::new();
        let producer = {
            let ring = ring.clone();
            thread::spawn(move || {
                for number in 0..3_u64 {
                    while number - ring.released.load(Acquire) >= SLOTS as u64 {
                        thread::yield_now();
                    }
                    ring.send(number);
                }
            })
        };
        for number in 0..3_u64 {
            let payload = loop {
                match ring.look(number) {
                    Some(payload) => break payload,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(payload, number * 10);
            ring.released.store(number + 1, Release);
        }
        producer.join().unwrap();
    });
}

/// A producer that sends one message while its consumer goes to sleep.
fn parking(announce: impl Fn(&Ring, u64) -> u64 + Copy + Send + Sync + 'static) {
    loom::model(move || {
        let ring = Ring::new();
        let producer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let wake = announce(&ring, 1) != 0;
                // The write arrives some time later.
                let card = {
                    let ring = ring.clone();
                    thread::spawn(move || {
                        ring.send(0);
                        if wake {
                            ring.wake.notify();
                        }
                    })
                };
                card.join().unwrap();
            })
        };
        // The flag is placed, then the count read: the card does both, in this order.
        ring.parked.store(1, SeqCst);
        fence(SeqCst);
        let answer = ring.announced.load(SeqCst);
        let payload = if may_sleep(answer, 0) {
            loop {
                match ring.look(0) {
                    Some(payload) => break payload,
                    // A lost wake-up is a deadlock, which loom reports.
                    None => ring.wake.wait(),
                }
            }
        } else {
            loop {
                match ring.look(0) {
                    Some(payload) => break payload,
                    None => thread::yield_now(),
                }
            }
        };
        assert_eq!(payload, 0);
        producer.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_woken() {
    parking(announce);
}

#[test]
#[should_panic(expected = "deadlock")]
fn looking_at_the_flag_before_announcing_loses_wake_ups() {
    parking(|ring, count| {
        let wake = ring.peer_flag();
        ring.announced.store(count, Relaxed);
        wake
    });
}
