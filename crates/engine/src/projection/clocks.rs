//! Virtual clocks: which worker has the next turn, and at what time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{Machine, Projection, Running, Shared};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::worker::{AWAKE, Step};

/// A worker that waits looks again after this time at the least, and then after twice as long each
/// time, up to the other. (A real one looks again at once; here, every look is a step.)
const LOOK_NS: u64 = 1_000;
const LOOK_NS_MAX: u64 = 16_000;
/// The end of a process's streams is looked for this often (see `Job::run_and_keep`).
const END_NS: u64 = 50_000;
/// Nothing of a job takes so long in which nobody has anything to do.
const QUIET_NS_MAX: u64 = 100_000_000_000;

/// What there is to be run: a worker, or the end of a process's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    process: usize,
    worker: Option<usize>,
    waits: Waits,
}

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Waits {
    /// The last pause, in nanoseconds, and when the first one began.
    pause_ns: u64,
    since_ns: Option<u64>,
    asleep: bool,
}

/// A task that has got a processor, at `at_ns`, which it keeps until `slice_ns` at the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    at_ns: u64,
    slice_ns: u64,
    task: Task,
}

/// What happens at some time, the earliest first; of what happens at the same time, what was
/// decided on first.
struct Queue<T> {
    heap: BinaryHeap<Reverse<(u64, u64, T)>>,
    order: u64,
}

impl<T: Ord> Queue<T> {
    fn new() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), order: 0 }
    }

    fn push(&mut self, at_ns: u64, item: T) {
        self.order += 1;
        self.heap.push(Reverse((at_ns, self.order, item)));
    }

    fn first_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|Reverse((at_ns, _, item))| (at_ns, item))
    }
}

/// Processors that all tasks share.
struct Processors {
    free: usize,
    /// Steps, when they end: up to when the task may keep its processor, if it is not done.
    busy: Queue<(u64, Option<Task>)>,
    /// Who has something to do, since when, or looks whether there is, and when.
    ready: Queue<Task>,
    slice_ns: u64,
    now_ns: u64,
}

impl Processors {
    fn new(Shared { number, slice }: Shared) -> Processors {
        let slice_ns = slice.as_nanos().try_into().unwrap_or(u64::MAX);
        let (busy, ready) = (Queue::new(), Queue::new());
        Processors { free: number.max(1), busy, ready, slice_ns, now_ns: 0 }
    }

    /// Whose turn is next: of a task that goes on where it is, or gets a processor that is free.
    fn next(&mut self) -> Option<Turn> {
        loop {
            let busy_ns = self.busy.first_ns().unwrap_or(u64::MAX);
            let ready_ns = self.ready.first_ns().unwrap_or(u64::MAX);
            if self.free > 0 && ready_ns <= busy_ns {
                let (at_ns, task) = self.ready.pop()?;
                self.now_ns = self.now_ns.max(at_ns);
                let slice_ns = self.now_ns.saturating_add(self.slice_ns);
                return Some(Turn { at_ns: self.now_ns, slice_ns, task });
            }
            let (at_ns, (slice_ns, task)) = self.busy.pop()?;
            self.now_ns = at_ns;
            self.free += 1;
            let Some(task) = task else { continue };
            if at_ns < slice_ns || ready_ns > at_ns {
                return Some(Turn { at_ns, slice_ns, task });
            }
            // Its slice is over, and others have waited for longer.
            self.ready.push(at_ns, task);
        }
    }

    /// Who has got the processor has it until its step ends, and then goes on, if there is anything
    /// left of it.
    fn keep(&mut self, end_ns: u64, slice_ns: u64, left: Option<Task>) {
        self.free -= 1;
        self.busy.push(end_ns, (slice_ns, left));
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
    let own = Shared { number: processes * workers, slice: Duration::MAX };
    let mut processors = Processors::new(machine.processors.unwrap_or(own));
    for process in 0..processes {
        for worker in running.awake(process) {
            processors.ready.push(0, Task { process, worker, waits: Waits::default() });
        }
    }
    let (mut last_ns, mut busy_ns) = (0, 0.0);
    // Who has done something last, and before; and what is still to be charged, for waking others.
    let mut latest = [None; 2];
    let mut waking_ns = vec![0.0; processes * workers];
    let place = |task: Task| task.worker.map(|worker| task.process * workers + worker);
    while let Some(turn) = processors.next() {
        let Turn { at_ns: start_ns, slice_ns, mut task } = turn;
        let Task { process, worker, waits } = task;
        let passed = Duration::from_nanos(start_ns).saturating_sub(running.sim.now());
        running.sim.advance(passed);
        let step = running.step(process, worker, (start_ns / 1000) as i64);
        let mut charged_ns = meter.charged_ns();
        if matches!(step, Step::Wait { .. }) {
            if start_ns > last_ns + QUIET_NS_MAX {
                return Err(Error::Internal("all workers wait for each other".into()));
            }
            let at_ns = start_ns + task.waits.look_again(worker, start_ns);
            processors.ready.push(at_ns, task);
            continue;
        }
        let me = place(task);
        let mut wake_ns = 0;
        if waits.asleep {
            wake_ns = machine.wake.as_nanos() as u64;
            // Whoever did something last has woken it.
            if let Some(other) = latest.into_iter().find(|at| *at != me).flatten() {
                waking_ns[other] += machine.waking.as_nanos() as f64;
            }
        }
        if let Some(me) = me {
            charged_ns += std::mem::take(&mut waking_ns[me]);
            if latest[0] != Some(me) {
                latest = [Some(me), latest[0]];
            }
        }
        let at_ns = start_ns + wake_ns + charged_ns.round() as u64;
        busy_ns += charged_ns;
        last_ns = last_ns.max(at_ns);
        task.waits = Waits::default();
        let done = step == Step::Done;
        processors.keep(at_ns, slice_ns, (!done).then_some(task));
        if done && worker.is_some() && running.awake(process) == [None] {
            processors.ready.push(at_ns, Task { worker: None, ..task });
        }
    }
    let all_ns = last_ns as f64 * (processes * workers) as f64;
    let busy = if all_ns > 0.0 { busy_ns / all_ns } else { 0.0 };
    Ok(Projection { time: Duration::from_nanos(last_ns), busy, stats: running.outcomes()? })
}

impl Waits {
    /// There was nothing to do: after which time to look again. Where a real worker sleeps by then,
    /// so does this one.
    fn look_again(&mut self, worker: Option<usize>, now_ns: u64) -> u64 {
        if worker.is_none() {
            return END_NS;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        self.asleep = u128::from(now_ns - since_ns) >= AWAKE.as_nanos();
        self.pause_ns = (2 * self.pause_ns).clamp(LOOK_NS, LOOK_NS_MAX);
        self.pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(process: usize) -> Task {
        Task { process, worker: Some(0), waits: Waits::default() }
    }

    fn processors(number: usize) -> Processors {
        Processors::new(Shared { number, slice: Duration::from_nanos(100) })
    }

    /// A step of this length is a task's last.
    const LAST_NS: u64 = 77;

    /// Whose turn it is, when, and until when it has its processor; its step takes so long.
    fn turn(processors: &mut Processors, step_ns: u64) -> Option<(usize, u64, u64)> {
        let Turn { at_ns, slice_ns, task } = processors.next()?;
        processors.keep(at_ns + step_ns, slice_ns, (step_ns != LAST_NS).then_some(task));
        Some((task.process, at_ns, slice_ns))
    }

    #[test]
    fn a_processor_is_kept_for_a_slice_while_others_want_it() {
        let mut one = processors(1);
        (0..2).for_each(|process| one.ready.push(0, task(process)));
        let turns: Vec<_> = (0..6).map_while(|_| turn(&mut one, 60)).collect();
        let expected =
            [(0, 0, 100), (0, 60, 100), (1, 120, 220), (1, 180, 220), (0, 240, 340), (0, 300, 340)];
        assert_eq!(turns, expected);
    }

    #[test]
    fn who_is_alone_goes_on_and_who_comes_later_gets_what_is_free() {
        let mut two = processors(2);
        two.ready.push(0, task(0));
        two.ready.push(70, task(1));
        let turns: Vec<_> = (0..5).map_while(|_| turn(&mut two, 60)).collect();
        let expected = [(0, 0, 100), (0, 60, 100), (1, 70, 170), (0, 120, 100), (1, 130, 170)];
        assert_eq!(turns, expected);
        assert!(processors(1).next().is_none());
    }

    #[test]
    fn a_last_step_takes_its_processor_too() {
        let mut one = processors(1);
        (0..2).for_each(|process| one.ready.push(0, task(process)));
        let turns: Vec<_> = (0..2).map_while(|_| turn(&mut one, LAST_NS)).collect();
        assert_eq!(turns, [(0, 0, 100), (1, LAST_NS, LAST_NS + 100)]);
        assert_eq!(turn(&mut one, LAST_NS), None);
    }

    #[test]
    fn who_waits_looks_less_and_less_often_and_falls_asleep() {
        let (mut waits, mut now_ns) = (Waits::default(), 500);
        let mut pauses = Vec::new();
        while !waits.asleep {
            pauses.push(waits.look_again(Some(0), now_ns));
            now_ns += pauses[pauses.len() - 1];
        }
        // 1, 2, 4 and 8 µs, and five times 16, are less than 100 µs; the next look is the last.
        let expected = [1, 2, 4, 8, 16, 16, 16, 16, 16, 16, 16].map(|us| us * 1_000);
        assert_eq!(pauses, expected);
        assert_eq!(waits.look_again(None, now_ns), END_NS);
        // Time without a processor counts.
        let mut waits = Waits::default();
        waits.look_again(Some(0), 0);
        assert!(!waits.asleep);
        waits.look_again(Some(0), 4_000_000);
        assert!(waits.asleep);
    }
}
