//! What happens to a job while its tables are read.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use millstream_contract::plan::Plan;
use millstream_contract::sink::RowOrder;
use millstream_contract::{Result, Settings};
use millstream_engine::simulation::{Outcome, Scenario, simulate_from};
use millstream_engine::{Job, Resume, Stats, Stopper};

use super::joining::Log;
use super::kept::Kept;
use super::reading::{Look, read};
use super::{checkpoints, sinks_of};
use crate::support::Random;

/// Takes cuts, and stops the job.
#[derive(Debug)]
pub(crate) struct Control {
    /// Of the processes of the job.
    stoppers: Mutex<Vec<Stopper>>,
    kept: Arc<Kept>,
    random: Mutex<Random>,
    /// One look at a split in so many takes a cut, and stops the job; 0: none does.
    looks_of_cut: u64,
    looks_of_stop: u64,
    /// A log that grows.
    log: Option<Arc<Log>>,
}

impl Control {
    /// One look in so many takes a cut, and stops the job.
    pub(crate) fn new(kept: &Arc<Kept>, random: Random, looks: [u64; 2]) -> Arc<Control> {
        Arc::new(Control::of(kept, random, looks, None))
    }

    /// The same, and now and then the log grows, and the job looks for new splits.
    pub(crate) fn growing(
        kept: &Arc<Kept>,
        random: Random,
        looks: [u64; 2],
        log: &Arc<Log>,
    ) -> Arc<Control> {
        Arc::new(Control::of(kept, random, looks, Some(log.clone())))
    }

    fn of(kept: &Arc<Kept>, random: Random, looks: [u64; 2], log: Option<Arc<Log>>) -> Control {
        let ([looks_of_cut, looks_of_stop], kept) = (looks, kept.clone());
        let (stoppers, random) = (Mutex::default(), Mutex::new(random));
        Control { stoppers, kept, random, looks_of_cut, looks_of_stop, log }
    }

    /// Of a job to which nothing happens.
    pub(crate) fn none(kept: &Arc<Kept>) -> Arc<Control> {
        Control::new(kept, Random::new(1), [0, 0])
    }

    /// The plan of a job over tables that look here while they are read; see [`read`].
    pub(crate) fn read(
        self: &Arc<Control>,
        plan: &Plan,
        from: &Resume,
        manner: (bool, bool),
    ) -> Plan {
        let look: Arc<dyn Look> = self.clone();
        read(plan.clone(), &look, from, manner)
    }

    /// Runs a job.
    pub(crate) fn run(&self, job: Job) -> (Stats, Result<()>) {
        *self.stoppers.lock().unwrap() = vec![job.stopper()];
        *self.kept.stopper.lock().unwrap() = Some(job.stopper());
        let ended = job.run();
        // The job holds the control.
        self.forget();
        ended
    }

    /// Runs the processes of a job that goes on from there, each of which may write files of its
    /// own (`local`).
    pub(crate) fn run_processes(
        &self,
        plan: &Plan,
        settings: &Settings,
        (orders, local): (&[RowOrder], bool),
        scenario: &Scenario,
        from: &Resume,
    ) -> Result<Vec<Outcome>> {
        let processes = || 0..scenario.slowness.len();
        let sinks: Vec<_> = processes().map(|p| sinks_of(&self.kept, p, orders, local)).collect();
        let stores: Vec<_> = processes().map(|process| checkpoints(&self.kept, process)).collect();
        let begins = |stoppers: Vec<Stopper>| {
            *self.kept.stopper.lock().unwrap() = stoppers.first().cloned();
            *self.stoppers.lock().unwrap() = stoppers;
        };
        let from = (from, &stores[..]);
        let simulated = simulate_from(plan, settings, &sinks, scenario, from, begins);
        self.forget();
        simulated.map(|(outcomes, _)| outcomes)
    }

    fn forget(&self) {
        self.stoppers.lock().unwrap().clear();
        *self.kept.stopper.lock().unwrap() = None;
    }

    /// Takes a cut, if none is being taken.
    pub(crate) fn cut(&self, stopper: &Stopper) {
        let kept = &self.kept;
        let begun = kept.begun.load(Relaxed);
        if kept.ended() != begun {
            return;
        }
        let durable = kept.durable.load(Relaxed);
        kept.begun.store(begun + 1, Relaxed);
        if !stopper.cut(begun + 1) {
            // Other processes may still save the cut before.
            kept.begun.store(begun, Relaxed);
            kept.durable.store(durable, Relaxed);
        }
    }
}

impl Look for Control {
    fn look(&self) {
        let (mut random, stoppers) = (self.random.lock().unwrap(), self.stoppers.lock().unwrap());
        let Some(first) = stoppers.first() else { return };
        if self.looks_of_cut > 0 && random.below(self.looks_of_cut) == 0 {
            self.cut(first);
        }
        if let Some(log) = &self.log {
            if random.below(20) == 0 {
                log.grow();
            }
            if random.below(3) == 0 {
                stoppers[random.below(stoppers.len() as u64) as usize].look_for_splits();
            }
        }
        if self.looks_of_stop > 0 && random.below(self.looks_of_stop) == 0 {
            stoppers[random.below(stoppers.len() as u64) as usize].stop();
        }
    }
}
