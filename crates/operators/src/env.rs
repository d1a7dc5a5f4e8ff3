//! The environment of a job: clock, sleeping and waking, random choices.
//!
//! A job runs either on real threads and the real clock ([`Threads`]), or on one thread, in virtual
//! time, with every choice drawn from a seed (`Simulated`). A step takes the time and random
//! numbers from here only. Real threads also yield and sleep, but only between steps.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millstream_state::near_cache_bytes;

/// Bytes of a core's second-level cache in simulation, the same on every machine.
pub(crate) const SIMULATED_NEAR_CACHE: usize = 2 << 20;

const HOUR_MS: u64 = 3_600_000;

/// Services that a job needs from the outside world.
pub trait Env: Send + Sync + fmt::Debug {
    /// Microseconds since the epoch.
    fn now_us(&self) -> i64;
    /// Nanoseconds since some moment, for measuring how long a piece of work takes. In simulation
    /// work takes no time.
    fn now_ns(&self) -> u64 {
        (self.now_us() as u64).wrapping_mul(1000)
    }
    /// Bytes of a core's second-level cache.
    fn near_cache_bytes(&self) -> usize {
        SIMULATED_NEAR_CACHE
    }
    /// Lets `worker` sleep until it is woken or the clock reaches `until_us`.
    fn wait(&self, worker: usize, until_us: Option<i64>);
    /// Wakes `worker`, or lets its next `wait` return at once.
    fn wake(&self, worker: usize);
    /// In simulation: a number below `bound`, from the seed. Otherwise `None`: take the usual
    /// course.
    fn choose(&self, bound: u64) -> Option<u64>;
    /// In simulation: lets virtual time pass. Real time passes by itself.
    fn pass_time(&self, until_us: i64);
}

/// Real threads and the real clock.
#[derive(Debug)]
pub struct Threads {
    bells: Vec<Bell>,
    /// Wakers of workers that sleep at a network's events.
    wakers: Vec<Waker>,
    start: Instant,
    start_us: i64,
}

#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Threads {
    /// Surroundings for this many workers, which sleep here or where `wakers` wake them.
    pub fn new(workers: usize, wakers: Vec<Waker>) -> Threads {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Threads {
            bells: (0..workers).map(|_| Bell::default()).collect(),
            wakers,
            start: Instant::now(),
            start_us: since.as_micros() as i64,
        }
    }
}

impl Env for Threads {
    /// Never goes backwards, whatever happens to the system's clock.
    fn now_us(&self) -> i64 {
        self.start_us + self.start.elapsed().as_micros() as i64
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn near_cache_bytes(&self) -> usize {
        near_cache_bytes()
    }

    fn wait(&self, worker: usize, until_us: Option<i64>) {
        let bell = &self.bells[worker];
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            // An hour, if nothing is due: a lost wake-up would be late and not forever.
            let us = until_us.map_or(3_600_000_000, |until| (until - self.now_us()).max(0));
            let timeout = Duration::from_micros(us as u64);
            let waited = bell.heard.wait_timeout_while(rung, timeout, |rung| !*rung);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }

    fn wake(&self, worker: usize) {
        if let Some(waker) = self.wakers.get(worker) {
            waker.wake_by_ref();
            return;
        }
        let bell = &self.bells[worker];
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            *rung = true;
            bell.heard.notify_one();
        }
    }

    fn choose(&self, _bound: u64) -> Option<u64> {
        None
    }
    fn pass_time(&self, _until_us: i64) {}
}

/// One thread, virtual time, chance from a seed.
#[derive(Debug)]
pub struct Simulated {
    now_us: AtomicI64,
    random: AtomicU64,
}

impl Simulated {
    /// An environment with this seed and start, microseconds.
    pub fn new(seed: u64, start_us: i64) -> Simulated {
        // Mixed, so that neighbouring seeds have nothing in common; never 0.
        let mut s = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        s = (s ^ s >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        s = (s ^ s >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        Simulated { now_us: AtomicI64::new(start_us), random: AtomicU64::new(s | 1) }
    }

    /// As [`Simulated::new`], for a run of a job that goes on: since the job's first start, at
    /// `first_us`, the clock has been put back by up to an hour, or up to a day has passed.
    pub fn resumed(seed: u64, first_us: i64) -> Simulated {
        let simulated = Simulated::new(seed, first_us);
        let ms = match simulated.below(3) {
            0 => 0,
            1 => -(simulated.below(HOUR_MS) as i64),
            _ => simulated.below(24 * HOUR_MS) as i64,
        };
        Simulated { now_us: AtomicI64::new(first_us + ms * 1000), ..simulated }
    }

    fn below(&self, bound: u64) -> u64 {
        let mut s = self.random.load(Ordering::Relaxed);
        s ^= s >> 12;
        s ^= s << 25;
        s ^= s >> 27;
        self.random.store(s, Ordering::Relaxed);
        ((s.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) * bound) >> 32
    }
}

impl Env for Simulated {
    fn now_us(&self) -> i64 {
        self.now_us.load(Ordering::Relaxed)
    }
    fn wait(&self, _worker: usize, _until_us: Option<i64>) {}
    fn wake(&self, _worker: usize) {}
    fn choose(&self, bound: u64) -> Option<u64> {
        Some(self.below(bound))
    }
    fn pass_time(&self, until_us: i64) {
        self.now_us.fetch_max(until_us, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_finds_another_time() {
        let (hour_us, first_us) = (HOUR_MS as i64 * 1000, 1_700_000_000_000_000);
        let after = |seed| Simulated::resumed(seed, first_us).now_us() - first_us;
        let all: Vec<i64> = (0..100).map(after).collect();
        assert!(all.iter().all(|us| (-hour_us..24 * hour_us).contains(us)), "{all:?}");
        let count = |is: fn(&i64) -> bool| all.iter().filter(|us| is(us)).count();
        let found = [count(|us| *us < -60_000_000), count(|us| *us == 0), count(|us| *us > 0)];
        assert!(found.iter().all(|count| *count > 10), "earlier, the same, later: {found:?}");
        assert!(all.iter().any(|us| *us > 12 * hour_us), "{all:?}");
        assert_eq!(all, (0..100).map(after).collect::<Vec<_>>(), "a seed tells all");
    }
}
