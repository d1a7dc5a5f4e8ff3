//! The outboxes of a stage: what the workers of one process ship, for this stage, to leaders in
//! other processes. There is an outbox for each of these leaders.
//!
//! Each stage has its own channels and its own credit, so no stage waits because of another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use millstream_flow::channel::Settings as Channels;
use millstream_state::{Heap, Segment};

use super::marks::Marks;
use super::outbox::{Outbox, Sealed, Shipped, Shipping};
use super::port::{Outlet, peer_error};
use super::sleepers::Sleepers;
use super::wire::HEAD_BYTES;
use crate::error::{Error, Result};
use crate::obstacle::Obstacle;
use crate::plan::Plan;
use crate::roles::Place;
use millstream_operators::passed::{Format, Onward, Outgoing, PassedBuffers, PassedRows};
use millstream_operators::windowing::SliceId;

/// Outboxes of a stage to leaders in other processes.
pub(crate) struct Outboxes {
    /// How rows are passed through; `None` where they are not.
    pub(crate) format: Option<Arc<Format>>,
    /// Bytes that a message of a delta has room for.
    pub(crate) message_bytes: usize,
    workers: usize,
    /// By leader, of all processes; `None` for leaders of this process.
    outboxes: Vec<Option<Mutex<Outbox>>>,
    /// Marks of the leaders whose outboxes have something to send.
    waiting: Marks,
    /// Marks of the leaders whose outboxes stall, or did.
    stalled: Marks,
    sleepers: Arc<Sleepers>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Refuses a plan whose rows of state are longer than a message between processes may be.
pub fn check_rows(plan: &Plan) -> Result<()> {
    let body_bytes = Channels::default().payload_bytes() - HEAD_BYTES;
    for stage in &plan.stages {
        let program = crate::registry::program(stage, 0)?;
        let row_bytes = program.map_or(0, |program| program.layout().row_bytes());
        if row_bytes > body_bytes {
            return Err(too_long(row_bytes, body_bytes));
        }
    }
    Ok(())
}

fn too_long(row_bytes: usize, body_bytes: usize) -> Error {
    Error::Io {
        place: "the query's aggregates".into(),
        message: format!(
            "they take {row_bytes} bytes per key, and a message between processes has room for \
             {body_bytes}"
        ),
        help: "run it in one process, or write several queries with fewer aggregates each".into(),
    }
}

impl Outboxes {
    /// Over channels to each worker of each other process.
    pub(super) fn new(
        outlets: Vec<Vec<Box<dyn Outlet>>>,
        place: Place,
        workers: usize,
        heap: &Arc<Heap>,
        shipping: &Shipping,
        sleepers: &Arc<Sleepers>,
    ) -> Result<Outboxes> {
        let outbox = |outlet| Mutex::new(Outbox::new(outlet, place, workers, heap, shipping));
        let mut outboxes = Vec::new();
        for outlets in outlets {
            let empty = outlets.is_empty();
            outboxes.extend(outlets.into_iter().map(|outlet| Some(outbox(outlet))));
            if empty {
                outboxes.extend((0..workers).map(|_| None));
            }
        }
        let row_bytes = shipping.layout.row_bytes();
        let bodies = || outboxes.iter().flatten().map(|outbox| lock(outbox).body_bytes());
        if let Some(bytes) = bodies().find(|bytes| row_bytes > *bytes) {
            return Err(too_long(row_bytes, bytes));
        }
        Ok(Outboxes {
            format: shipping.format.clone(),
            message_bytes: bodies().max().unwrap_or(0),
            workers,
            waiting: Marks::new(outboxes.len()),
            stalled: Marks::new(outboxes.len()),
            outboxes,
            sleepers: sleepers.clone(),
        })
    }

    /// Ships what a worker has sealed to a leader elsewhere.
    pub(crate) fn ship(&self, leader: usize, sealed: Sealed) -> Result<()> {
        let Some(outbox) = &self.outboxes[leader] else {
            return Err(Error::Internal(format!("leader {leader} is in this process")));
        };
        let (mut outbox, worker) = (lock(outbox), sealed.worker);
        outbox.put(sealed);
        self.pump_outbox(leader, &mut outbox)?;
        if worker != 0 && outbox.has_more() {
            // The first worker is woken by credit.
            self.sleepers.wake(0);
        }
        Ok(())
    }

    /// Memory is scarce: sends rows that wait to be merged with rows of other workers as they are.
    /// `anyway`: even if leaders let them wait.
    pub(crate) fn hurry(&self, anyway: bool) -> Result<()> {
        for (leader, outbox) in self.outboxes.iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            let mut outbox = lock(outbox);
            outbox.hurry(anyway);
            self.pump_outbox(leader, &mut outbox)?;
        }
        Ok(())
    }

    fn pump_outbox(&self, leader: usize, outbox: &mut Outbox) -> Result<bool> {
        let was_stalled = outbox.stall().is_some();
        let some = outbox.pump().map_err(|e| peer_error(leader / self.workers, e))?;
        if some {
            self.sleepers.wake_parked();
        }
        if outbox.has_more() {
            self.waiting.mark(leader);
        }
        if outbox.stall().is_some() {
            self.stalled.mark(leader);
        } else if was_stalled {
            self.sleepers.wake_all();
        }
        Ok(some)
    }

    /// Why workers give this stage no more rows, if they do not.
    pub(crate) fn stall(&self) -> Option<Obstacle> {
        let stall = |leader: usize| {
            let outbox = lock(self.outboxes[leader].as_ref()?);
            let stall = outbox.stall()?;
            self.stalled.mark(leader);
            Some(stall)
        };
        self.stalled.take().filter_map(stall).max()
    }

    /// Sends what waits, as far as there is credit. Returns whether anything was sent.
    pub(super) fn pump(&self) -> Result<bool> {
        let mut some = false;
        for leader in self.waiting.take() {
            let Some(outbox) = &self.outboxes[leader] else { continue };
            match try_lock(outbox) {
                Some(mut outbox) => some |= self.pump_outbox(leader, &mut outbox)?,
                None => self.waiting.mark(leader),
            }
        }
        Ok(some)
    }

    /// A leader has merged a delta of ours, or lets another one come; segments that are free again.
    pub(super) fn credit(&self, leader: u32, flags: u8) -> Result<Vec<(SliceId, Segment)>> {
        let outbox = self.outboxes.get(leader as usize).and_then(Option::as_ref);
        let broken = || Error::Internal(format!("credit of leader {leader} for no delta"));
        let outbox = outbox.ok_or_else(broken)?;
        let mut outbox = lock(outbox);
        let was_stalled = outbox.stall().is_some();
        let segments = outbox.credit(flags).ok_or_else(broken)?;
        self.pump_outbox(leader as usize, &mut outbox)?;
        let (has_more, is_stalled) = (outbox.has_more(), outbox.stall().is_some());
        drop(outbox);
        match was_stalled && !is_stalled {
            true => self.sleepers.wake_all(),
            false if has_more => self.sleepers.wake(0),
            false => {}
        }
        Ok(segments)
    }

    /// A step towards sleep: arms channels with waiting messages, so that they ring. Returns
    /// whether all channels will ring.
    pub(super) fn park(&self) -> Result<bool> {
        let mut may_sleep = true;
        for (leader, outbox) in self.outboxes.iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            match try_lock(outbox) {
                Some(outbox) if !outbox.has_more() => {}
                Some(mut outbox) => {
                    let parked = outbox.outlet().park();
                    // Sends once more after arming, as the channel requires.
                    let before = outbox.stall();
                    let sent = self.pump_outbox(leader, &mut outbox)?;
                    may_sleep &= parked.map_err(|e| peer_error(leader / self.workers, e))?
                        && !sent
                        && outbox.stall() == before;
                }
                None => may_sleep = false,
            }
        }
        Ok(may_sleep)
    }

    /// Whether nothing is left to be sent.
    pub(super) fn is_drained(&self) -> bool {
        self.outboxes.iter().flatten().all(|outbox| lock(outbox).is_empty())
    }

    /// A step of ending the streams in order. Returns whether all streams have ended.
    pub(super) fn finish(&self) -> Result<bool> {
        let mut ended = true;
        for (leader, outbox) in self.outboxes.iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            let finished = lock(outbox).outlet().try_finish();
            ended &= finished.map_err(|e| peer_error(leader / self.workers, e))?;
        }
        Ok(ended)
    }

    /// Adds what has been shipped to a process.
    pub(super) fn count_of(&self, process: usize, all: &mut Shipped) {
        let of_process = self.outboxes.iter().skip(process * self.workers).take(self.workers);
        of_process.flatten().for_each(|outbox| all.add(&lock(outbox).counters()));
    }

    /// Adds what has been shipped.
    pub(super) fn count(&self, all: &mut Shipped) {
        self.outboxes.iter().flatten().for_each(|outbox| all.add(&lock(outbox).counters()));
    }
}

impl Onward for Outboxes {
    fn leaves(&self, leader: usize) -> bool {
        self.outboxes[leader].is_some()
    }

    /// Straight into the leader's channel, as far as there is room and nothing waits there.
    fn pass(
        &self,
        leader: usize,
        rows: &Outgoing<'_>,
        passing: &mut PassedBuffers,
        kept: &mut Vec<PassedRows>,
        scratch: &mut Vec<u32>,
    ) -> Result<usize> {
        let Some(mut outbox) = self.outboxes[leader].as_ref().and_then(try_lock) else {
            return Ok(0);
        };
        if outbox.has_more() {
            self.pump_outbox(leader, &mut outbox)?;
        }
        let was_stalled = outbox.stall().is_some();
        outbox.pass_kept(kept, leader / self.workers, &mut passing.pool)?;
        let passed = match kept.is_empty() {
            true => outbox.pass(&passing.format, rows, leader / self.workers, scratch)?,
            false => 0,
        };
        if outbox.has_more() && (passed > 0 || !was_stalled) {
            self.pump_outbox(leader, &mut outbox)?;
            if outbox.has_more() {
                // The first worker is woken by credit.
                self.sleepers.wake(0);
            }
        }
        if was_stalled && outbox.stall().is_none() {
            self.sleepers.wake_all();
        }
        Ok(passed)
    }
}
