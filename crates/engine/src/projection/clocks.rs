//! Virtual clocks: whose turn it is, and how late it is then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{Machine, Projection, Running};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::worker::Step;

/// A worker that waits looks again after this time at the least, and then after twice as long each
/// time, up to the other. (A real one looks again at once; here, every look is a step.)
const LOOK_NS: u64 = 1_000;
const LOOK_NS_MAX: u64 = 16_000;
/// A real worker goes to sleep after so many looks (see `Worker::wait`).
const LOOKS_AWAKE: f64 = 200.0;
/// The end of a process's streams is looked for this often (see `Job::run_and_keep`).
const END_NS: u64 = 50_000;
/// Nothing of a job takes so long in which nobody has anything to do.
const QUIET_NS_MAX: u64 = 100_000_000_000;

/// What there is to be run: the turn of a worker, or of the end of a process's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at_ns: u64,
    /// Of turns at the same time, the first one that was decided on.
    order: u64,
    process: usize,
    worker: Option<usize>,
    waits: Waits,
}

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Waits {
    /// The next pause, and how long it has been awake without anything to do, in nanoseconds.
    pause_ns: u64,
    awake_ns: u64,
    asleep: bool,
}

/// Processors that all share, by the time at which they are free.
struct Processors(Option<Vec<u64>>);

impl Processors {
    /// The next one that is free, and when it is: not before `at_ns`.
    fn next(&self, at_ns: u64) -> (usize, u64) {
        let Some(free) = &self.0 else { return (0, at_ns) };
        let first = free.iter().copied().enumerate().min_by_key(|(_, at)| *at);
        first.map_or((0, at_ns), |(number, at)| (number, at.max(at_ns)))
    }

    fn occupy(&mut self, number: usize, until_ns: u64) {
        if let Some(free) = self.0.as_mut().and_then(|free| free.get_mut(number)) {
            *free = until_ns;
        }
    }
}

/// Runs all processes to their ends.
pub(super) fn run(
    mut running: Running,
    machine: &Machine,
    workers: usize,
    meter: &Meter,
) -> Result<Projection> {
    let processes = running.processes.len();
    let mut processors = Processors(machine.processors.map(|number| vec![0; number.max(1)]));
    let (mut turns, mut order) = (BinaryHeap::new(), 0);
    let mut queue = |turns: &mut BinaryHeap<_>, turn: Turn| {
        order += 1;
        turns.push(Reverse(Turn { order, ..turn }));
    };
    for process in 0..processes {
        for worker in running.awake(process) {
            let waits = Waits::default();
            queue(&mut turns, Turn { at_ns: 0, order: 0, process, worker, waits });
        }
    }
    let (mut last_ns, mut busy_ns, mut some_ns) = (0, 0.0, 0);
    while let Some(Reverse(turn)) = turns.pop() {
        let Turn { process, worker, mut waits, .. } = turn;
        // Who sleeps looks without a processor; when there is something, it wakes up on one.
        let (mut processor, start_ns) = match waits.asleep {
            true => (0, turn.at_ns),
            false => processors.next(turn.at_ns),
        };
        let passed = Duration::from_nanos(start_ns).saturating_sub(running.sim.now());
        running.sim.advance(passed);
        let step = running.step(process, worker, (start_ns / 1000) as i64);
        let charged = meter.charged_ns();
        let charged_ns = charged.round() as u64;
        if matches!(step, Step::Wait { .. }) {
            if start_ns > some_ns + QUIET_NS_MAX {
                return Err(Error::Internal("all workers wait for each other".into()));
            }
            let at_ns = start_ns + waits.look_again(worker, charged);
            if !waits.asleep {
                processors.occupy(processor, at_ns);
            }
            queue(&mut turns, Turn { at_ns, waits, ..turn });
            continue;
        }
        let mut begin_ns = start_ns;
        if waits.asleep {
            (processor, begin_ns) = processors.next(start_ns + machine.wake.as_nanos() as u64);
        }
        let at_ns = begin_ns + charged_ns;
        processors.occupy(processor, at_ns);
        busy_ns += charged;
        (last_ns, some_ns) = (last_ns.max(at_ns), some_ns.max(at_ns));
        let waits = Waits::default();
        match (step, worker) {
            (Step::Done, Some(_)) if running.awake(process) == [None] => {
                queue(&mut turns, Turn { at_ns, worker: None, waits, ..turn });
            }
            (Step::Done, _) => {}
            _ => queue(&mut turns, Turn { at_ns, waits, ..turn }),
        }
    }
    let all_ns = last_ns as f64 * (processes * workers) as f64;
    let busy = if all_ns > 0.0 { busy_ns / all_ns } else { 0.0 };
    Ok(Projection { time: Duration::from_nanos(last_ns), busy, stats: running.outcomes()? })
}

impl Waits {
    /// There was nothing to do, which has taken `charged_ns` to see: after which time to look
    /// again.
    fn look_again(&mut self, worker: Option<usize>, charged_ns: f64) -> u64 {
        if worker.is_none() {
            return END_NS;
        }
        self.pause_ns = (2 * self.pause_ns).clamp(LOOK_NS, LOOK_NS_MAX);
        let pause_ns = self.pause_ns.max(charged_ns as u64);
        self.awake_ns += pause_ns;
        self.asleep |= self.awake_ns as f64 >= LOOKS_AWAKE * charged_ns;
        pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_that_is_free_first_is_next() {
        let mut two = Processors(Some(vec![0, 0]));
        two.occupy(0, 100);
        assert_eq!(two.next(50), (1, 50));
        two.occupy(1, 70);
        assert_eq!((two.next(60), two.next(90)), ((1, 70), (1, 90)));
        two.occupy(1, 200);
        assert_eq!(two.next(60), (0, 100));
        // Everybody's own is always free.
        let mut own = Processors(None);
        own.occupy(0, 1000);
        assert_eq!(own.next(7), (0, 7));
    }

    #[test]
    fn who_waits_looks_less_and_less_often_and_falls_asleep() {
        let mut waits = Waits::default();
        let pauses: Vec<u64> = (0..6).map(|_| waits.look_again(Some(0), 300.0)).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 16_000]);
        assert!(!waits.asleep);
        // 200 looks of 300 ns are over.
        waits.look_again(Some(0), 300.0);
        assert!(waits.asleep);
        assert_eq!(waits.look_again(None, 300.0), END_NS);
    }
}
