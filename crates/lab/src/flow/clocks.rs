//! Virtual clocks: each thread of a simulated world has a clock of its own. Work takes the time of
//! its price, and other threads go on meanwhile.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use millstream_fabric::sim::Sim;

use super::failure::{FlowFailure, FlowResult};

/// A look at the simulation's clock takes next to nothing: prices have the cost of looks.
const LOOK: Duration = Duration::from_nanos(1);
/// Virtual time after which a run has got stuck.
const LIMIT: Duration = Duration::from_secs(60);

/// Result of a thread's turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Turn {
    /// So much of the thread's time.
    Took(Duration),
    /// The thread has nothing more to do.
    Over,
}

/// Gives turns to threads by their clocks, until none has more to do. Returns how long it took.
pub(super) fn run(
    sim: &Sim,
    threads: usize,
    mut turn: impl FnMut(usize) -> FlowResult<Turn>,
) -> FlowResult<Duration> {
    sim.set_look(LOOK);
    let start = sim.now();
    let mut clocks: BinaryHeap<_> = (0..threads).map(|thread| Reverse((start, thread))).collect();
    while let Some(Reverse((at, thread))) = clocks.pop() {
        sim.advance(at.saturating_sub(sim.now()));
        match turn(thread)? {
            Turn::Took(time) => clocks.push(Reverse((at.max(sim.now()) + time.max(LOOK), thread))),
            Turn::Over => {}
        }
        if sim.now() - start > LIMIT {
            return Err(FlowFailure::Stuck(LIMIT.as_secs()));
        }
    }
    Ok(sim.now() - start)
}

/// Nanoseconds as a duration.
pub(super) fn nanoseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count.max(0.0) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_work_at_the_same_time() {
        let sim = Sim::new(1);
        let mut left = [10, 20];
        let mut order = Vec::new();
        let took = run(&sim, 2, |thread| {
            order.push(thread);
            if left[thread] == 0 {
                return Ok(Turn::Over);
            }
            left[thread] -= 1;
            Ok(Turn::Took(Duration::from_micros(1)))
        });
        assert_eq!(took.unwrap(), Duration::from_micros(20), "not 30");
        assert_eq!(order[..4], [0, 1, 0, 1]);
    }
}
