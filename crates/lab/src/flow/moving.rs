//! Tuples that are moved between processes: the movers of each process, as threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millstream_dfi::RegistryClient;
use millstream_fabric::shm::ShmDevice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::{FlowFailure, FlowResult};
use super::mover::{FlowPlan, MoverSetup, Moving, PATIENCE};
use super::part::Part;
use super::tally::Tally;
use super::tuples::with_words;

/// Bytes that a thread makes before its next look for batches, and batches that the thread takes.
const TURN_BYTES: usize = 64 << 10;
const BATCHES: usize = 8;
/// Turns without work after which a thread lets others run.
pub(super) const IDLE: u32 = 64;

/// Result of a process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Moved {
    nanoseconds: u64,
    sent: Tally,
    received: Tally,
}

/// A run between processes whose answer is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    /// Of the slowest process, from the start, which comes when all are connected, until its
    /// sources are closed and its targets have ended.
    pub(super) time: Duration,
    /// The tuples of all targets.
    pub(super) received: Tally,
}

impl Ran {
    /// The run, from what the processes say.
    pub(super) fn new(plan: &FlowPlan, ends: Vec<Value>) -> FlowResult<Ran> {
        let unreadable = |_| FlowFailure::Option("a process sends no numbers of a flow".into());
        let read = |end| serde_json::from_value(end).map_err(unreadable);
        let ends = ends.into_iter().map(read).collect::<FlowResult<Vec<Moved>>>()?;
        let add = |sum: Tally, one: Tally| sum.plus(one);
        let sent = ends.iter().map(|end| end.sent).fold(Tally::default(), add);
        let received = ends.iter().map(|end| end.received).fold(Tally::default(), add);
        let expected = plan.expected(sent);
        if received != expected || sent.count != plan.tuples * plan.threads(true).count() as u64 {
            return Err(FlowFailure::Answer { expected, found: received });
        }
        let slowest = ends.iter().map(|end| end.nanoseconds).max().unwrap_or(0);
        Ok(Ran { time: Duration::from_nanos(slowest), received })
    }

    /// Bytes that all targets together got in a second.
    pub(super) fn bytes_per_s(&self, plan: &FlowPlan) -> f64 {
        self.received.count as f64 * plan.tuple_bytes as f64 / self.time.as_secs_f64()
    }
}

/// Joins as the movers of a process.
pub(super) fn join(
    plan: &FlowPlan,
    process: u32,
    device: &ShmDevice,
    registry: &RegistryClient,
) -> FlowResult<Box<dyn Part>> {
    let own = (0..plan.movers.len()).filter(|mover| plan.movers[*mover].node == process);
    let setup = |mover| Ok((mover, MoverSetup::join(plan, mover, device, registry)?));
    let joined = own.map(setup).collect::<FlowResult<_>>()?;
    let plan = plan.clone();
    with_words!(plan.tuple_bytes, WORDS => {
        Ok(Box::new(Together::<WORDS> { plan, joined, movers: Vec::new() }) as Box<dyn Part>)
    })
}

/// The movers of a process.
struct Together<const W: usize> {
    plan: FlowPlan,
    joined: Vec<(usize, MoverSetup<ShmDevice>)>,
    movers: Vec<Moving<ShmDevice, W>>,
}

impl<const W: usize> Part for Together<W> {
    fn connect(&mut self, registry: &RegistryClient) -> FlowResult<()> {
        for (mover, setup) in std::mem::take(&mut self.joined) {
            self.movers.push(setup.connect(&self.plan, mover, registry)?);
        }
        Ok(())
    }

    fn run(&mut self, stopped: &AtomicBool) -> FlowResult<Value> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let spawn = |mover| scope.spawn(|| work(mover, stopped));
            let threads: Vec<_> = self.movers.iter_mut().map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect::<FlowResult<Vec<()>>>()
        })?;
        let nanoseconds = start.elapsed().as_nanos() as u64;
        let (mut sent, mut received) = (Tally::default(), Tally::default());
        for mover in &self.movers {
            let [pushed, taken] = mover.tallies();
            (sent, received) = (sent.plus(pushed), received.plus(taken));
        }
        Ok(json!(Moved { nanoseconds, sent, received }))
    }
}

/// Gives a mover turns until all is done.
fn work<const W: usize>(mover: &mut Moving<ShmDevice, W>, stopped: &AtomicBool) -> FlowResult<()> {
    let tuples = (TURN_BYTES / (8 * W)) as u64;
    let mut idle = Idle::new(IDLE);
    loop {
        let did = mover.turn(tuples, BATCHES)?;
        if did.all {
            return Ok(());
        }
        idle.turn(did.pushed + did.taken > 0, stopped)?;
    }
}

/// How long a thread has found nothing to do.
pub(super) struct Idle {
    /// After so many turns the thread lets others run.
    most: u32,
    turns: u32,
    since: Option<Instant>,
}

impl Idle {
    /// A thread that lets others run after so many turns without work.
    pub(super) fn new(most: u32) -> Idle {
        Idle { most, turns: 0, since: None }
    }

    /// Takes note of a turn. Where there are fewer cores than threads, others go first.
    #[inline]
    pub(super) fn turn(&mut self, worked: bool, stopped: &AtomicBool) -> FlowResult<()> {
        if worked {
            (self.turns, self.since) = (0, None);
            return Ok(());
        }
        self.turns += 1;
        if self.turns < self.most {
            std::hint::spin_loop();
            return Ok(());
        }
        self.turns = 0;
        if stopped.load(Ordering::Acquire) {
            return Err(FlowFailure::Stopped);
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(FlowFailure::Stuck(PATIENCE.as_secs()));
        }
        std::thread::yield_now();
        Ok(())
    }
}
