//! What all workers of a job share: how they meet, how they stop, and who takes in messages from
//! other processes.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_state::Mode;

use crate::budget::{Budget, Kind};
use crate::cluster::{self, Freed, Head, LAST, Net, decode_rows};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::exchange::Roles;
use crate::gather::Gather;
use crate::intake::Intake;
use crate::pipeline::Stateless;
use crate::settings::{FragmentMode, Settings};
use crate::stage::Stage;
use crate::standing::{Pace, Standing};
use crate::windowing::Windowing;
use crate::worker::Message;

/// Messages for one worker.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<VecDeque<Message>>);

impl Mailbox {
    pub(crate) fn take(&self) -> VecDeque<Message> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows what it holds.
    pub(crate) fn look(&self, see: impl FnMut(&Message)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(see);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What all workers of a job share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) intake: Intake,
    pub(crate) gather: Gather,
    /// Those that have state: a chain, the first of which takes records.
    pub(crate) stages: Vec<Arc<Stage>>,
    pub(crate) stateless: Option<Stateless>,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) stopping: AtomicBool,
    /// The job's other processes, if it has any.
    pub(crate) net: Option<Arc<Net>>,
    /// Who sends and receives, if records are exchanged.
    pub(crate) roles: Roles,
    pub(crate) budget: Arc<Budget>,
    pub(crate) pace: Pace,
    /// All workers have ended, and the job is being closed.
    pub(super) closing: AtomicBool,
    pub(super) error: Mutex<Option<Error>>,
    pub(super) latencies: Mutex<VecDeque<u64>>,
}

/// Fire latencies that are kept, the latest: half a megabyte.
const LATENCIES_MAX: usize = 1 << 16;

impl Shared {
    /// Stops all workers; the first error given is what the job ends with.
    pub(crate) fn stop(&self, error: Option<Error>) {
        if let Some(error) = error {
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
        self.stopping.store(true, Relaxed);
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        (0..self.settings.workers).for_each(|worker| self.env.wake(worker));
    }

    /// Wakes all workers but `worker`, who would look again in vain before it waits.
    pub(crate) fn wake_others(&self, worker: usize) {
        let others = (0..self.settings.workers).filter(|other| *other != worker);
        others.for_each(|other| self.env.wake(other));
    }

    /// How far this process is.
    pub(crate) fn standing(&self) -> Standing {
        let (steps, waits) = self.pace.look();
        let waits = waits && !self.closing.load(Relaxed);
        Standing { steps, waits_for: if waits { self.intake.waits_for() } else { None } }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether the job stops since all rows that are wanted are there.
    pub(crate) fn has_enough(&self) -> bool {
        self.stopping.load(Relaxed) && !self.has_failed()
    }

    /// Stops the job, since there are all rows that are wanted.
    pub(crate) fn stop_enough(&self) -> Result<()> {
        self.stop(None);
        match &self.net {
            Some(net) if net.is_asker() => net.broadcast(Head::new(cluster::Kind::Enough)),
            _ => Ok(()),
        }
    }

    /// Leaders, of all processes.
    pub(crate) fn leaders(&self) -> usize {
        self.net.as_ref().map_or(self.settings.workers, |net| net.leaders())
    }

    /// Number of this process's first leader among all.
    pub(crate) fn first_leader(&self) -> usize {
        self.net.as_ref().map_or(0, |net| net.first())
    }

    /// The worker of this process that is `leader`, if it is one.
    pub(crate) fn local(&self, leader: usize) -> Option<usize> {
        let local = leader.checked_sub(self.first_leader())?;
        (local < self.settings.workers).then_some(local)
    }

    /// Takes in what another process has sent to this one; returns what is free again. An internal
    /// error says what it has sent.
    pub(crate) fn take_letter(
        &self,
        process: usize,
        head: Head,
        body: &[u8],
    ) -> Result<Option<Freed>> {
        let Some(net) = &self.net else { return Ok(None) };
        let leader = || {
            let leader = head.id as usize;
            let its = leader / self.settings.workers == process;
            let broken = || Error::Internal(format!("what leader {leader} has to say"));
            its.then_some(leader).ok_or_else(broken)
        };
        match head.kind {
            cluster::Kind::Credit => {
                leader()?;
                return net.credit(&head).map(Some);
            }
            cluster::Kind::Stamp => self.intake.stamp_other(&head)?,
            cluster::Kind::Ended => {
                self.intake.ended_elsewhere(&head)?;
                self.write_waiting()?;
            }
            cluster::Kind::WindowRows if net.is_asker() => {
                self.gather.window_rows(
                    leader()?,
                    head.start,
                    decode_rows(body)?,
                    head.has(LAST),
                )?;
                self.check_gathered()?;
            }
            cluster::Kind::BatchRows if net.is_asker() => {
                let (split, ended) = (self.intake.checked(&head)?, self.intake.ended_splits());
                let rows = decode_rows(body)?.into();
                let enough = self.gather.stateless_rows(0, (head.number, split), rows, &ended)?;
                self.check_gathered()?;
                if enough {
                    self.stop_enough()?;
                }
            }
            cluster::Kind::BatchError if net.is_asker() => {
                let batch = (head.number, self.intake.checked(&head)?);
                let unknown = || Error::Internal("an error that does not say what it is".into());
                self.gather.note_failed(batch, Error::of_letter(body).ok_or_else(unknown)?);
            }
            cluster::Kind::Fired if net.is_asker() => {
                self.fired_up_to(leader()?, head.watermark)?;
            }
            cluster::Kind::Fired => {
                self.gather.note_fired(head.watermark);
                self.wake_all();
            }
            cluster::Kind::Written => {
                self.gather.note_written(head.number, self.intake.checked(&head)?);
                self.wake_all();
            }
            cluster::Kind::Enough if process == 0 => self.stop(None),
            kind => return Err(Error::Internal(format!("a message of kind {kind:?}"))),
        }
        Ok(None)
    }

    /// Writes rows of a stateless query whose turn it is, which may be since a split has ended.
    pub(crate) fn write_waiting(&self) -> Result<()> {
        match &self.stateless {
            Some(_) => self.gather.awaited_batch(0, &self.intake.ended_splits()).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Rows that wait for their order have to fit, those of other processes, too; what tables would
    /// take next is for those to judge that let them grow.
    pub(crate) fn check_gathered(&self) -> Result<()> {
        if !self.budget.is_exceeded() || self.budget.held(Kind::Segments) > 0 {
            return Ok(());
        }
        self.budget.check().map(|_| ())
    }

    pub(super) fn take_error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn send(&self, to: usize, message: Message) {
        let mailbox = &self.mailboxes[to].0;
        mailbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        self.env.wake(to);
    }

    pub(crate) fn fragment_mode(&self) -> Option<Mode> {
        match self.settings.fragment_mode {
            FragmentMode::Auto => None,
            FragmentMode::Aggregate => Some(Mode::Aggregate),
            FragmentMode::PassThrough => Some(Mode::PassThrough),
        }
    }

    /// How the last stage divides event time.
    pub(crate) fn windowing(&self) -> Windowing {
        self.stages.last().map_or_else(Windowing::whole, |stage| *stage.windowing())
    }

    /// The window of the last stage that what a slice of some stage holds will be part of.
    pub(crate) fn last_window_of(&self, stage: usize, slice: i64) -> i64 {
        let stages = &self.stages[stage..];
        let later = stages.iter().zip(stages.iter().skip(1));
        let first = stages.first().map_or(slice, |s| s.windowing().first_window_of(slice));
        later.fold(first, |window, (stage, next)| {
            let time = stage.windowing().row_time(window).unwrap_or(window);
            next.windowing().first_window_of(next.windowing().slice_of(time).start)
        })
    }

    /// The watermark of the records at which a window of the last stage can fire.
    fn lets_fire(&self, window: i64) -> i64 {
        let before = self.stages.iter().rev().skip(1);
        before.fold(self.windowing().fires_at(window), |watermark, stage| {
            stage.windowing().frontier_for(watermark)
        })
    }

    /// `worker` has fired all windows of the last stage that fire at or before a watermark; returns
    /// how many windows every worker has fired now.
    pub(crate) fn fired_up_to(&self, worker: usize, watermark: i64) -> Result<u64> {
        let starts = self.gather.advance(worker, watermark)?;
        if !starts.is_empty() && self.budget.tight() {
            // Somebody may wait for that.
            self.wake_all();
        }
        for start in &starts {
            let Some(at) = self.intake.reached_at(self.lets_fire(*start)) else { continue };
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            if latencies.len() >= LATENCIES_MAX {
                latencies.pop_front();
            }
            latencies.push_back((self.env.now_us() - at).max(0) as u64);
        }
        Ok(starts.len() as u64)
    }

    /// Whether everything that the low watermark lets go has been merged, fired and freed: if state
    /// is still at its budget then, waiting does not help.
    pub(crate) fn settled(&self, low: i64) -> bool {
        if self.budget.held(Kind::Segments) > 0 {
            return false;
        }
        let (mut low, last) = (low, self.stages.len().saturating_sub(1));
        self.stages.iter().all(|stage| {
            let fired = if stage.number == last { self.gather.fired() } else { stage.fired() };
            let windowing = stage.windowing();
            let settled = windowing.passed(fired) >= windowing.passed(low);
            low = windowing.watermark_after(low);
            settled
        })
    }
}
