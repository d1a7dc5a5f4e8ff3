//! Prices: what a tuple and a look cost on this machine, for the clocks of simulated threads.
//!
//! A source thread and a target thread work by turns, never at the same time. So a price has what
//! the flow's code costs, what the fabric's copy costs, and what it costs that another core has
//! touched the ring, but no wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_dfi::LocalRegistry;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use serde_json::{Value, json};

use super::failure::{FlowFailure, FlowResult};
use super::mover::{FlowPlan, Movement, Mover, MoverSetup, PATIENCE};
use crate::round;

/// Measured rounds, whose median counts, and rounds of the warm-up.
const ROUNDS: u64 = 41;
const WARM: u64 = 8;
/// Looks for a turn after which a thread lets others run.
const YIELD: u32 = 10_000;
/// Looks that are measured together.
const LOOKS: u64 = 2000;

/// Nanoseconds of a thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    /// Making and pushing a tuple, with its share of the segment's requests.
    pub(super) push_ns: f64,
    /// Taking and summing a tuple, with its share of the segment.
    pub(super) take_ns: f64,
    /// A look at a target without a batch.
    pub(super) look_ns: f64,
}

impl Price {
    /// The prices as the report has them.
    pub(super) fn json(&self, tuple_bytes: usize) -> Value {
        json!({
            "tuple_bytes": tuple_bytes,
            "push_ns": round(self.push_ns, 2),
            "take_ns": round(self.take_ns, 2),
            "look_ns": round(self.look_ns, 1),
        })
    }
}

/// Measures the prices of a source and of a thread with so many targets, for tuples of `W` words.
/// Multicast, which `shm` does not have, has the prices of a replication to one target: a datagram
/// is one request, too.
pub(super) fn measure<const W: usize>(plan: &FlowPlan, targets: u32) -> FlowResult<Price> {
    let is_multicast = plan.movement == Movement::Multicast;
    let movement = if is_multicast { Movement::Replicate } else { plan.movement };
    let targets = if is_multicast { 1 } else { targets };
    let movers = vec![
        Mover { node: 0, source: true, targets: 0 },
        Mover { node: 0, source: false, targets },
    ];
    // Half of the rings is filled in a turn, so that no source waits where keys are uneven.
    let rings = if movement == Movement::Shuffle { u64::from(targets) } else { 1 };
    let tuples = (plan.segments as u64 / 2).max(1) * rings * plan.per_segment();
    let plan = FlowPlan { movement, movers, tuples: moved_by_turns(tuples), ..plan.clone() };
    let (device, registry) = (ShmDevice::open(Token::random()?)?, LocalRegistry::new());
    plan.flow().publish(&registry)?;
    let join = |mover| MoverSetup::join(&plan, mover, &device, &registry);
    let (source, target) = (join(0)?, join(1)?);
    let mut source = source.connect::<W>(&plan, 0, &registry)?;
    let mut target = target.connect::<W>(&plan, 1, &registry)?;
    let most = plan.segments + 1;
    let (push_ns, take_ns) = by_turns(|| Ok(source.push(tuples)?), || Ok(target.take(most)?))?;
    let begin = Instant::now();
    for _ in 0..LOOKS {
        target.take(1)?;
    }
    let look_ns = nanoseconds_of(begin.elapsed(), LOOKS * u64::from(targets));
    let begin = Instant::now();
    while !(source.turn(tuples, 0)?.all & target.turn(0, 8)?.all) {
        if begin.elapsed() > PATIENCE {
            return Err(FlowFailure::Stuck(PATIENCE.as_secs()));
        }
    }
    let (expected, found) = (plan.expected(source.tallies()[0]), target.tallies()[1]);
    if expected != found {
        return Err(FlowFailure::Answer { expected, found });
    }
    Ok(Price { push_ns, take_ns, look_ns })
}

/// Tuples that [`by_turns`] moves with so many in a turn.
pub(super) fn moved_by_turns(tuples: u64) -> u64 {
    tuples * (WARM + ROUNDS)
}

/// Lets two threads work by turns. Each says how many tuples its turn has moved. Returns the
/// nanoseconds of a tuple at both: medians of the turns.
pub(super) fn by_turns(
    mut push: impl FnMut() -> FlowResult<u64> + Send,
    mut take: impl FnMut() -> FlowResult<u64>,
) -> FlowResult<(f64, f64)> {
    let turn = AtomicU64::new(0);
    let (pushes, takes) = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| half(&turn, 0, &mut push));
        let takes = half(&turn, 1, &mut take);
        let pushes = pushing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (pushes, takes)
    });
    Ok((pushes?, takes?))
}

/// One thread's turns. A thread that has failed lets the other go on.
fn half(
    turn: &AtomicU64,
    first: u64,
    work: &mut impl FnMut() -> FlowResult<u64>,
) -> FlowResult<f64> {
    let mut times = Vec::new();
    let mut result = Ok(());
    for round in 0..WARM + ROUNDS {
        let mut looks = 0_u32;
        while turn.load(Ordering::Acquire) < 2 * round + first {
            looks += 1;
            match looks.is_multiple_of(YIELD) {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
        if result.is_ok() {
            let begin = Instant::now();
            let count = work();
            let time = begin.elapsed();
            match count {
                Ok(count) if round >= WARM => times.push(nanoseconds_of(time, count)),
                Ok(_) => {}
                Err(error) => result = Err(error),
            }
        }
        turn.store(2 * round + first + 1, Ordering::Release);
    }
    result.map(|()| median(times))
}

fn nanoseconds_of(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / count.max(1) as f64
}

/// The median; 0 of nothing.
pub(super) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}
